//! Tagged messages between the ranks of a communicator, every byte checked from the sender's memory to the receiver's.
//!
//! In: sends and receives, which return at once. Out: completions, with the buffers. Ranks of one host exchange messages in shared
//! memory, others over UDP. There is no thread behind it: messages move while somebody waits ([`TaggedEndpoint::wait_received`], [`TaggedEndpoint::turn`]).
//! What is promised is in docs/messaging.md.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bootstrap::pair::initial_psn;
use checksum::tuning::ChecksumTuning;
use engine::messaging::{MessageTransport, Messenger, ShmTransport, TransportMux, UdpTransport};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::{ChecksumPolicy, MessagingSettings, RailIndex};
pub use protocol::messaging::{
    MessageCompletion, MessageFailure, MessagePostError, MessageSelector, ProbedMessage, ReceiveId, RejectedPost,
    SendId,
};
use reduce::Operator;
use transport::udp::{Endpoint, EndpointOptions, QueuePairError, QueuePairSetup, UdpPortIndex, UdpRoute};
pub use units::Rank;
use units::{Psn, QpNumber};

use crate::{Communicator, Error, JoinError};

/// Rails to each peer, and the addresses of a process that may serve as such.
const MOST_RAILS: usize = 4;
/// Ranks of one host that exchange messages in shared memory.
const MOST_IN_MEMORY: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);
/// Words that each rank tells of itself: its first queue pair and number, its rails, and three for each address.
const WORDS: usize = 2 + 3 * MOST_RAILS;

/// Where a rank sends and receives tagged messages.
pub struct TaggedEndpoint {
    messenger: Messenger<Box<dyn MessageTransport + Send>>,
    /// What has ended while something else was waited for.
    ended: BTreeMap<TransferId, MessageCompletion>,
}

/// A send or a receive that has been posted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TransferId {
    Send(SendId),
    Receive(ReceiveId),
}

impl Communicator {
    /// Opens a port to every other rank. All ranks do so at once, as with any other operation.
    ///
    /// # Errors
    /// If a rank is lost, or the system has no sockets or memory to give.
    pub fn open_port(&self) -> Result<TaggedEndpoint, JoinError> {
        let settings = MessagingSettings {
            sealing: ChecksumPolicy::Tuned(*ChecksumTuning::of_this_machine()),
            ..MessagingSettings::default()
        };
        let (me, team) = (self.rank(), self.team_of(self.rank()));
        let name = self.draw_name()?;
        let (carrier, settings, rails): (Box<dyn MessageTransport + Send>, _, _) =
            if team.len() == self.size() as usize {
                (Box::new(meet_in_memory(&name, &team, me)?), ShmTransport::settings(settings), 1)
            } else {
                let (far, rails) = self.meet_over_udp(&settings)?;
                if team.len() > 1 {
                    let near = meet_in_memory(&name, &team, me)?;
                    let team = team.iter().copied().map(Rank).collect();
                    (Box::new(TransportMux::new(near, team, far)), settings, rails)
                } else {
                    (Box::new(far), settings, rails)
                }
            };
        let mut messenger = Messenger::new(carrier, settings);
        for peer in (0..self.size()).filter(|peer| *peer != me) {
            messenger.add_peer(Rank(peer), if team.contains(&peer) { 1 } else { rails });
        }
        // Nobody sends before all are ready to hear.
        self.barrier()?;
        Ok(TaggedEndpoint { messenger, ended: BTreeMap::new() })
    }

    /// The ranks that exchange messages with this one in memory, and itself.
    fn team_of(&self, rank: u32) -> Vec<u32> {
        let found = self.comm().hosts().iter().find(|team| team.contains(&rank) && team.len() <= MOST_IN_MEMORY);
        found.cloned().unwrap_or_else(|| vec![rank])
    }

    /// The ranks that a rank reaches over UDP, in order.
    fn far_from(&self, rank: u32) -> Vec<u32> {
        let team = self.team_of(rank);
        (0..self.size()).filter(|peer| !team.contains(peer)).collect()
    }

    /// A name that no other port has or had; rank 0 draws it.
    fn draw_name(&self) -> Result<String, JoinError> {
        let mut name = [u64::from(initial_psn().get()) << 40 | u64::from(initial_psn().get()) << 16, 0];
        name[1] = u64::from(initial_psn().get()) << 32 | u64::from(std::process::id());
        self.broadcast(&mut name, 0)?;
        Ok(format!("pleach-port-{:016x}{:016x}", name[0], name[1]))
    }

    /// A rail over each address, with the others to fall back on.
    fn meet_over_udp(&self, settings: &MessagingSettings) -> Result<(UdpTransport, u8), JoinError> {
        let process = self.comm().process();
        let own = process.table.card(process.me).map(|card| card.addresses.clone()).unwrap_or_default();
        let mut hosts: Vec<SocketAddr> = own.iter().map(|address| SocketAddr::new(address.ip(), 0)).collect();
        hosts.truncate(MOST_RAILS);
        let mut rails = [hosts.len().max(1) as u64];
        self.all_reduce(&mut rails, Operator::Min)?;
        let rails = rails[0] as usize;
        hosts.truncate(rails);
        let opening = JoinError::io("opening sockets for messages");
        let endpoint = Endpoint::open(&hosts, EndpointOptions::default()).map_err(opening)?;
        let mut carrier = UdpTransport::new(endpoint, settings);
        let (me, psn) = (self.rank(), initial_psn());
        let mut numbers = Vec::new();
        let others = self.far_from(me);
        for peer in others.iter().copied() {
            for rail in 0..rails {
                numbers.push(carrier.create(Rank(peer), RailIndex(rail as u8)).map_err(refused)?);
            }
        }
        let mut words = vec![0u64; self.size() as usize * WORDS];
        let mine = &mut words[me as usize * WORDS..][..WORDS];
        mine[0] = numbers.first().map_or(0, |number| u64::from(number.0));
        mine[1] = u64::from(psn.get());
        for (place, address) in mine[2..].chunks_mut(3).zip(carrier.endpoint().addresses()) {
            place.copy_from_slice(&words_of(address));
        }
        self.all_reduce(&mut words, Operator::Or)?;
        let each = others.into_iter().flat_map(|peer| (0..rails).map(move |rail| (peer, rail)));
        for ((peer, rail), number) in each.zip(numbers) {
            let card = &words[peer as usize * WORDS..][..WORDS];
            // It has made its queue pairs in the order of its own peers, of which this is one.
            let position = self.far_from(peer).iter().position(|other| *other == me).unwrap_or(0);
            let place = position * rails + rail;
            let remote = QpNumber(card[0] as u32 + place as u32);
            let path = |path: usize| UdpRoute::new(UdpPortIndex(path as u8), address_of(&card[2 + 3 * path..][..3]));
            let routes = (0..rails).map(|path_number| path((rail + path_number) % rails)).collect();
            let role = if me < peer { MigrationRole::Leader } else { MigrationRole::Follower };
            let setup = QueuePairSetup::new(remote, psn, Psn::new(card[1] as u32), routes, role);
            let setup = QueuePairSetup { policy: ConnectionPolicy::conversation(), ..setup }
                .with_long_packets(process.link_bytes);
            carrier.connect(number, setup).map_err(refused)?;
        }
        Ok((carrier, rails as u8))
    }
}

/// Meets the ranks of a team in memory.
fn meet_in_memory(name: &str, team: &[u32], me: u32) -> Result<ShmTransport, JoinError> {
    let seat = team.iter().position(|member| *member == me).unwrap_or(0);
    ShmTransport::meet(&format!("{name}-{}", team[0]), Rank(seat as u32), team.len() as u32, PATIENCE)
        .map_err(JoinError::io("meeting in shared memory"))
}

fn refused(error: QueuePairError) -> JoinError {
    JoinError::First(Error::argument(error.to_string()))
}

/// An address in three words: its bytes as those of IPv6, then the port.
fn words_of(address: SocketAddr) -> [u64; 3] {
    let bytes = match address.ip() {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    let bits = bytes.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port())]
}

fn address_of(words: &[u64]) -> SocketAddr {
    let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
    SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), words[2] as u16)
}

impl TaggedEndpoint {
    /// Sends a message; its buffer comes back with [`MessageCompletion::Sent`].
    ///
    /// # Errors
    /// If it cannot be sent; the buffer comes back.
    pub fn send(&mut self, to: u32, tag: u64, message: Vec<u8>) -> Result<SendId, RejectedPost> {
        self.messenger.send(Rank(to), tag, message)
    }

    /// Waits for a message with room for as much as the buffer holds.
    ///
    /// # Errors
    /// If nothing can come; the buffer comes back.
    pub fn receive(&mut self, wanted: MessageSelector, buffer: Vec<u8>) -> Result<ReceiveId, RejectedPost> {
        self.messenger.receive(wanted, buffer)
    }

    /// The first message that has come and that such a receive would get.
    pub fn probe(&self, wanted: &MessageSelector) -> Option<ProbedMessage> {
        self.messenger.probe(wanted)
    }

    /// Takes back a send of which nothing has gone out.
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        self.messenger.cancel_send(id)
    }

    /// Takes back a receive for which nothing has come.
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.messenger.cancel_receive(id)
    }

    /// Moves messages; with nothing to tell, waits for at most so long.
    ///
    /// # Errors
    /// If the system does not let it wait.
    pub fn turn(&mut self, wait: Duration) -> std::io::Result<()> {
        self.messenger.turn(wait)
    }

    /// What has ended, one at a time.
    pub fn next_completion(&mut self) -> Option<MessageCompletion> {
        self.ended.pop_first().map(|(_, completion)| completion).or_else(|| self.messenger.next_completion())
    }

    /// Waits for a receive; the message, as long as it is, its source and its tag.
    ///
    /// # Errors
    /// If the message does not come.
    pub fn wait_received(&mut self, id: ReceiveId) -> Result<(Vec<u8>, Rank, u64), TaggedEndpointError> {
        match self.wait(TransferId::Receive(id))? {
            MessageCompletion::Received { source, tag, length, mut buffer, .. } => {
                buffer.truncate(length);
                Ok((buffer, source, tag))
            }
            MessageCompletion::ReceiveFailed { failure, .. } | MessageCompletion::SendFailed { failure, .. } => {
                Err(TaggedEndpointError::Failed(failure))
            }
            MessageCompletion::Sent { .. } => unreachable!("a receive was waited for"),
        }
    }

    /// Waits for a send; its buffer.
    ///
    /// # Errors
    /// If the message cannot be delivered.
    pub fn wait_sent(&mut self, id: SendId) -> Result<Vec<u8>, TaggedEndpointError> {
        match self.wait(TransferId::Send(id))? {
            MessageCompletion::Sent { buffer, .. } => Ok(buffer),
            MessageCompletion::ReceiveFailed { failure, .. } | MessageCompletion::SendFailed { failure, .. } => {
                Err(TaggedEndpointError::Failed(failure))
            }
            MessageCompletion::Received { .. } => unreachable!("a send was waited for"),
        }
    }

    fn wait(&mut self, ticket: TransferId) -> Result<MessageCompletion, TaggedEndpointError> {
        if let Some(completion) = self.ended.remove(&ticket) {
            return Ok(completion);
        }
        loop {
            while let Some(completion) = self.messenger.next_completion() {
                let ended = ticket_of(&completion);
                if ended == ticket {
                    return Ok(completion);
                }
                self.ended.insert(ended, completion);
            }
            self.messenger.turn(Duration::from_millis(100)).map_err(TaggedEndpointError::Io)?;
        }
    }

    /// Waits until everything that was sent has come: before a rank ends. False if that takes longer than it may.
    ///
    /// # Errors
    /// If the system does not let it wait.
    pub fn drain(&mut self, limit: Duration) -> std::io::Result<bool> {
        self.messenger.drain(limit)
    }
}

fn ticket_of(completion: &MessageCompletion) -> TransferId {
    match completion {
        MessageCompletion::Sent { id, .. } | MessageCompletion::SendFailed { id, .. } => TransferId::Send(*id),
        MessageCompletion::Received { id, .. } | MessageCompletion::ReceiveFailed { id, .. } => {
            TransferId::Receive(*id)
        }
    }
}

/// Why a message was not delivered.
#[derive(Debug)]
pub enum TaggedEndpointError {
    /// The message's own fate.
    Failed(MessageFailure),
    /// The system does not let us wait.
    Io(std::io::Error),
}

impl std::fmt::Display for TaggedEndpointError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Io(error) => write!(f, "waiting for messages: {error}"),
        }
    }
}

impl std::error::Error for TaggedEndpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in ["127.0.0.1:80", "10.1.2.3:65535", "[::1]:4791", "[2001:db8::7]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(address_of(&words_of(address)), address);
        }
    }
}
