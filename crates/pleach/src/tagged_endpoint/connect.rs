//! Connects a tagged endpoint: shared memory to ranks of the same host, queue pairs over UDP to the others.
//!
//! In: the communicator, over which the ranks exchange their queue pair numbers and addresses. Out: a transport to every peer.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bootstrap::pair::initial_psn;
use checksum::tuning::ChecksumTuning;
use engine::messaging::{MessageTransport, Messenger, ShmTransport, TransportMux, UdpTransport};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::{ChecksumPolicy, MessagingSettings, RailIndex};
use reduce::Operator;
use transport::udp::{
    Endpoint, EndpointOptions, PacketSecurity, QueuePairError, QueuePairSetup, UdpPortIndex, UdpRoute,
};
use units::{Psn, QpNumber, Rank};

use super::TaggedEndpoint;
use crate::communicator::Communicator;
use crate::error::{Error, JoinError};

/// Rails to each peer; as many addresses of a process are used.
const MAX_RAILS: usize = 4;
/// Ranks of one host that exchange messages in shared memory.
const MAX_SHM_RANKS: usize = 64;
const SHM_TIMEOUT: Duration = Duration::from_secs(60);
/// What each rank publishes, in words: its first queue pair, its initial PSN, and three words per address.
const RECORD_WORDS: usize = 2 + 3 * MAX_RAILS;

impl Communicator {
    /// Opens an endpoint for tagged messages to every other rank. Collective, as any other operation.
    ///
    /// # Errors
    /// If a rank is lost, or the system refuses sockets or shared memory.
    pub fn open_tagged_endpoint(&self) -> Result<TaggedEndpoint, JoinError> {
        let settings = MessagingSettings {
            checksum: ChecksumPolicy::Tuned(*ChecksumTuning::for_this_machine()),
            ..MessagingSettings::default()
        };
        let (rank, team) = (self.rank(), self.shm_team_of(self.rank()));
        let name = self.agree_on_name()?;
        let (transport, settings, rails): (Box<dyn MessageTransport + Send>, _, _) =
            if team.len() == self.size() as usize {
                (Box::new(connect_shm(&name, &team, rank)?), ShmTransport::settings(settings), 1)
            } else {
                let (udp, rails) = self.connect_udp(&settings, &name)?;
                if team.len() > 1 {
                    let shm = connect_shm(&name, &team, rank)?;
                    let team = team.iter().copied().map(Rank).collect();
                    (Box::new(TransportMux::new(shm, team, udp)), settings, rails)
                } else {
                    (Box::new(udp), settings, rails)
                }
            };
        let mut messenger = Messenger::new(transport, settings);
        for peer in (0..self.size()).filter(|peer| *peer != rank) {
            messenger.add_peer(Rank(peer), if team.contains(&peer) { 1 } else { rails });
        }
        // No rank sends before all can receive.
        self.barrier()?;
        Ok(TaggedEndpoint { messenger, completed: BTreeMap::new() })
    }

    /// The ranks that exchange messages with a rank in shared memory, itself included.
    fn shm_team_of(&self, rank: u32) -> Vec<u32> {
        let found = self.inner().hosts().iter().find(|team| team.contains(&rank) && team.len() <= MAX_SHM_RANKS);
        found.cloned().unwrap_or_else(|| vec![rank])
    }

    /// The ranks that a rank reaches over UDP, in order.
    fn udp_peers_of(&self, rank: u32) -> Vec<u32> {
        let team = self.shm_team_of(rank);
        (0..self.size()).filter(|peer| !team.contains(peer)).collect()
    }

    /// A name that no other endpoint has or had; rank 0 chooses it at random.
    fn agree_on_name(&self) -> Result<String, JoinError> {
        let mut bytes = [0; 16];
        if self.rank() == 0 {
            getrandom::fill(&mut bytes)
                .map_err(|error| io::Error::other(error.to_string()))
                .map_err(JoinError::io("cannot get random bits from the kernel"))?;
        }
        self.broadcast(&mut bytes, 0)?;
        Ok(format!("pleach-port-{:032x}", u128::from_le_bytes(bytes)))
    }

    /// Connects queue pairs to all peers over UDP: one rail per address, each with the other addresses as alternate paths.
    /// `name` has never been used: no packet of an earlier endpoint is authentic here.
    fn connect_udp(&self, settings: &MessagingSettings, name: &str) -> Result<(UdpTransport, u8), JoinError> {
        let process = self.inner().process();
        let own = process.table.record(process.rank).map(|card| card.addresses.clone()).unwrap_or_default();
        let mut addresses: Vec<SocketAddr> = own.iter().map(|address| SocketAddr::new(address.ip(), 0)).collect();
        addresses.truncate(MAX_RAILS);
        let mut rails = [addresses.len().max(1) as u64];
        self.all_reduce(&mut rails, Operator::Min)?;
        let rails = rails[0] as usize;
        addresses.truncate(rails);
        let endpoint = Endpoint::open(&addresses, EndpointOptions::default())
            .map_err(JoinError::io("cannot open UDP sockets for messages"))?;
        let mut transport = UdpTransport::new(endpoint, settings);
        let (rank, psn) = (self.rank(), initial_psn());
        let peers = self.udp_peers_of(rank);
        let each = || peers.iter().flat_map(|peer| (0..rails).map(move |rail| (*peer, rail)));
        let mut numbers = Vec::new();
        for (peer, rail) in each() {
            numbers.push(transport.create(Rank(peer), RailIndex(rail as u8)).map_err(setup_error)?);
        }
        let records = self.exchange_records(&numbers, psn, &transport.endpoint().addresses())?;
        let world = self.inner().world_ranks();
        let security: BTreeMap<u32, PacketSecurity> = peers
            .iter()
            .map(|peer| {
                (
                    *peer,
                    process.security.packets(process.pair_key(name, (world[rank as usize], world[*peer as usize]))),
                )
            })
            .collect();
        for ((peer, rail), number) in each().zip(numbers) {
            let record = &records[peer as usize * RECORD_WORDS..][..RECORD_WORDS];
            // The peer created its queue pairs in the order of its own peers, of which this rank is one.
            let position = self.udp_peers_of(peer).iter().position(|other| *other == rank).unwrap_or(0);
            let remote = QpNumber(record[0] as u32 + (position * rails + rail) as u32);
            let route = |path: usize| {
                UdpRoute::new(UdpPortIndex(path as u8), address_from_words(&record[2 + 3 * path..][..3]))
            };
            let routes = (0..rails).map(|path| route((rail + path) % rails)).collect();
            let role = if rank < peer { MigrationRole::Leader } else { MigrationRole::Follower };
            let setup = QueuePairSetup::new(remote, psn, Psn::new(record[1] as u32), routes, role);
            let setup = QueuePairSetup { policy: ConnectionPolicy::conversation(), ..setup }
                .with_security(security[&peer].clone())
                .with_long_packets(process.link_bytes);
            transport.connect(number, setup).map_err(setup_error)?;
        }
        Ok((transport, rails as u8))
    }

    /// Publishes this rank's record and returns those of all ranks, one behind the other.
    fn exchange_records(
        &self,
        numbers: &[QpNumber],
        psn: Psn,
        addresses: &[SocketAddr],
    ) -> Result<Vec<u64>, JoinError> {
        let mut records = vec![0_u64; self.size() as usize * RECORD_WORDS];
        let own = &mut records[self.rank() as usize * RECORD_WORDS..][..RECORD_WORDS];
        own[0] = numbers.first().map_or(0, |number| u64::from(number.0));
        own[1] = u64::from(psn.get());
        for (words, address) in own[2..].chunks_mut(3).zip(addresses) {
            words.copy_from_slice(&address_to_words(*address));
        }
        self.all_reduce(&mut records, Operator::Or)?;
        Ok(records)
    }
}

fn connect_shm(name: &str, team: &[u32], rank: u32) -> Result<ShmTransport, JoinError> {
    let local_rank = team.iter().position(|member| *member == rank).unwrap_or(0);
    ShmTransport::join(&format!("{name}-{}", team[0]), Rank(local_rank as u32), team.len() as u32, SHM_TIMEOUT)
        .map_err(JoinError::io("cannot set up shared memory for messages"))
}

fn setup_error(error: QueuePairError) -> JoinError {
    JoinError::Setup(Error::internal(error))
}

/// An address in three words: its bytes as IPv6, then the port.
fn address_to_words(address: SocketAddr) -> [u64; 3] {
    let bytes = match address.ip() {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    let bits = bytes.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port())]
}

fn address_from_words(words: &[u64]) -> SocketAddr {
    let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
    SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), words[2] as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_exchange() {
        for text in ["127.0.0.1:80", "10.1.2.3:65535", "[::1]:4791", "[2001:db8::7]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(address_from_words(&address_to_words(address)), address);
        }
    }
}
