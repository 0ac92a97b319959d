//! The messages of one endpoint: peers, connections to them, sends and arrivals.
//!
//! In: sends, decisions about arrivals, packets and time. Out: [`PortEvent`]s. Connections are made when they are first needed:
//! a peer that is never used costs nothing.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checksum::tuning::ChecksumTuning;
use engine::messaging::{MessageTransport, Messenger, PairMux, UdpTransport};
use protocol::LentBytes;
use protocol::connection::path::PathEvent;
use protocol::messaging::{
    ChecksumPolicy, LentBytesMut, MessageArrival, MessageCompletion, MessageFailure, MessageMatching,
    MessagePostError, MessagingSettings,
};
use transport::SecurityMode;
use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, FaultInjector, UdpPortIndex};
use units::{QpNumber, Rank, Span, Time};
use wire::QueueKey;

use crate::connection_request::MAX_RAILS;
use crate::endpoint_address::{EndpointAddress, EndpointPath, fitting_paths};
use crate::envelope::{INJECT_BYTES, MAX_PREFIX_BYTES};
use crate::host_identity::{FAULTS, host_of_environment};
use crate::local_paths::local_paths;
use crate::number_map::NumberMap;
use crate::path_log::{LoggedRail, PathLog};
use crate::peer_connection::{PeerConnection, PeerState};

/// The key of datagram queue pairs. It separates nothing: the MAC does.
pub(crate) const DATAGRAM_KEY: QueueKey = QueueKey(0x504c);
/// Posted buffers for connection requests. Any datagram fits: one that does not would use a buffer up.
const POSTED_DATAGRAMS: usize = 32;
const DATAGRAM_BYTES: usize = units::limits::MAX_MTU as usize;
/// Bytes of messages that a peer may send before they are received.
const CREDIT_BYTES: u64 = 32 << 20;
/// How often connections are looked after.
const HOUSEKEEPING: Span = Span::from_micros(10_000);
/// How often a peer is asked for a sign of life while a receive waits for it alone.
const PING_EVERY: Span = Span::from_micros(1_000_000);
/// How often the receives that wait are looked at. It bounds the cost of looking at many.
const WATCH_EVERY: Span = Span::from_micros(250_000);
/// How often the processes that share memory with this one are checked.
const CHECK_ENDS_EVERY: Span = Span::from_micros(100_000);
/// How long closing waits for acknowledgements.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// "off" leaves out all checksums, to measure what they cost. All processes of a job must agree.
const CHECKSUMS: &str = "PLEACH_MESSAGES_CHECKSUM";

/// A peer of a port.
pub(crate) type PeerIndex = u32;

/// The body of a message to send.
#[derive(Debug)]
pub(crate) enum PortSendBody {
    /// Copied: a short message with its prefix.
    Copied(Vec<u8>),
    /// Sent from the user's memory.
    Lent { note: u128, loan: Arc<dyn LentBytes> },
}

/// A message to send, and the number under which its completion is reported.
#[derive(Debug)]
pub(crate) struct PortSend {
    pub(crate) token: u64,
    pub(crate) tag: u64,
    pub(crate) body: PortSendBody,
}

/// What a port reports.
#[derive(Debug)]
pub(crate) enum PortEvent {
    Sent { token: u64 },
    SendFailed { token: u64, failure: MessageFailure },
    Arrived(MessageArrival),
    Received { token: u64 },
    ReceiveFailed { token: u64, failure: MessageFailure },
    PeerLost { peer: PeerIndex, why: String },
}

/// The messages of one endpoint.
pub(crate) struct MessagePort {
    pub(crate) messenger: Messenger<PairMux>,
    pub(crate) own: EndpointAddress,
    pub(crate) datagrams: QpNumber,
    pub(crate) peers: Vec<PeerConnection>,
    by_identity: HashMap<u64, PeerIndex>,
    sends: NumberMap<u64>,
    receives: NumberMap<u64>,
    /// Sends that are complete or have failed, but whose memory a packet still refers to.
    returning: Vec<(PortEvent, Arc<dyn LentBytes>)>,
    /// Lent memory of sends that are not complete, and the peer.
    loans: NumberMap<(PeerIndex, Arc<dyn LentBytes>)>,
    pub(crate) events: VecDeque<PortEvent>,
    /// How the user wants packets protected.
    pub(crate) security: Option<SecurityMode>,
    housekeeping_at: Time,
    watch_at: Time,
    ends_at: Time,
    /// The user of this port must name the peers for which receives wait, by [`Self::watch`].
    pub(crate) is_watch_due: bool,
    paths: PathLog,
}

impl MessagePort {
    /// Opens sockets at this host's addresses.
    ///
    /// # Errors
    /// If the environment is wrong, or the kernel refuses.
    pub(crate) fn open() -> Result<Self, String> {
        Self::open_at(local_paths()?)
    }

    pub(crate) fn open_at(mut paths: Vec<EndpointPath>) -> Result<Self, String> {
        paths.truncate(MAX_RAILS.min(fitting_paths(&paths)));
        let addresses: Vec<_> = paths.iter().map(|path| path.address).collect();
        let options = EndpointOptions { fault_injector: faults_of_environment()?, ..EndpointOptions::default() };
        let cannot = |error: io::Error| format!("cannot open UDP sockets at {addresses:?}: {error}");
        let mut endpoint = Endpoint::open(&addresses, options).map_err(cannot)?;
        for (path, bound) in paths.iter_mut().zip(endpoint.addresses()) {
            path.address = bound;
        }
        let datagrams = endpoint.create_datagram(DATAGRAM_KEY);
        for _ in 0..POSTED_DATAGRAMS {
            let posted = endpoint.post_datagram_receive(datagrams, vec![0; DATAGRAM_BYTES]);
            posted.map_err(|error| format!("cannot post a buffer for connection requests: {error}"))?;
        }
        let is_checked = checksums_of_environment()?;
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|error| format!("cannot get random bits from the kernel: {error}"))?;
        let (identity, secret) = random.split_at(8);
        let own = EndpointAddress {
            identity: u64::from_le_bytes(identity.try_into().expect("eight bytes")),
            datagrams,
            secret: secret.try_into().expect("sixteen bytes"),
            host: host_of_environment(),
            is_checked,
            paths,
        };
        let tuned = || ChecksumPolicy::Tuned(*ChecksumTuning::for_this_machine());
        let settings = MessagingSettings {
            checksum: if is_checked { tuned() } else { ChecksumPolicy::Off },
            credit_bytes: CREDIT_BYTES,
            ..MessagingSettings::default()
        };
        // A short message with its prefix must be eager: as a long one it would have no note, and nobody could match it.
        assert_eq!(settings.eager_bytes as usize, INJECT_BYTES + MAX_PREFIX_BYTES);
        let transport = UdpTransport::new(endpoint, &settings);
        let mut transport = if is_checked { transport } else { transport.without_packet_checks() };
        transport.keep_side_events();
        Ok(Self {
            messenger: Messenger::new(PairMux::new(transport), settings).with_matching(MessageMatching::ByUser),
            own,
            datagrams,
            peers: Vec::new(),
            by_identity: HashMap::new(),
            sends: NumberMap::default(),
            receives: NumberMap::default(),
            returning: Vec::new(),
            loans: NumberMap::default(),
            events: VecDeque::new(),
            security: SecurityMode::from_environment()
                .map_err(|error| format!("{}: {error}", SecurityMode::VARIABLE))?,
            housekeeping_at: Time::ZERO,
            watch_at: Time::ZERO,
            ends_at: Time::ZERO,
            is_watch_due: false,
            paths: PathLog::from_environment(),
        })
    }

    /// The peer with this address, known or new.
    pub(crate) fn peer_at(&mut self, address: &EndpointAddress) -> PeerIndex {
        if let Some(known) = self.by_identity.get(&address.identity) {
            let peer = &mut self.peers[*known as usize];
            if !peer.address.has_secret() {
                peer.address.secret = address.secret; // It connected first; now the application names it.
            }
            return *known;
        }
        let index = self.peers.len() as PeerIndex;
        self.peers.push(PeerConnection::new(address.clone()));
        self.by_identity.insert(address.identity, index);
        index
    }

    pub(crate) fn known_peer(&self, identity: u64) -> Option<PeerIndex> {
        self.by_identity.get(&identity).copied()
    }

    /// The identity of a peer.
    pub(crate) fn identity(&self, peer: PeerIndex) -> u64 {
        self.peers[peer as usize].address.identity
    }

    /// Why a peer is lost, if it is.
    pub(crate) fn lost(&self, peer: PeerIndex) -> Option<&str> {
        match &self.peers[peer as usize].state {
            PeerState::Lost(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) fn connected_peers(&self) -> impl Iterator<Item = PeerIndex> {
        let is_connected = |peer: &PeerIndex| matches!(self.peers[*peer as usize].state, PeerState::Connected { .. });
        (0..self.peers.len() as PeerIndex).filter(is_connected)
    }

    /// Peers that have not taken a long message yet: they may have acknowledged that it was announced, and be gone.
    pub(crate) fn peers_with_long_sends(&self) -> impl Iterator<Item = PeerIndex> {
        (0..self.peers.len() as PeerIndex).filter(|peer| self.peers[*peer as usize].lent_sends > 0)
    }

    /// Sends a message, or queues it until the peer is connected.
    ///
    /// # Errors
    /// If the peer is lost or too many messages wait.
    pub(crate) fn send(&mut self, peer: PeerIndex, message: PortSend) -> Result<(), MessagePostError> {
        match &self.peers[peer as usize].state {
            PeerState::Connected { .. } => self.post(peer, message),
            PeerState::Lost(_) => {
                Err(MessagePostError::Lost(Rank(peer), protocol::messaging::PeerLossCause::Unreachable))
            }
            PeerState::Unconnected | PeerState::Connecting(_) => {
                let waiting = &mut self.peers[peer as usize].waiting;
                if waiting.len() >= protocol::messaging::MAX_PENDING {
                    return Err(MessagePostError::Full);
                }
                waiting.push_back(message);
                self.connect(peer);
                Ok(())
            }
        }
    }

    fn post(&mut self, peer: PeerIndex, message: PortSend) -> Result<(), MessagePostError> {
        let PortSend { token, tag, body } = message;
        if self.messenger.transport().pairs().is_closed(Rank(peer)) {
            self.check_end(peer, true); // What it sent before is read first.
        }
        let id = match body {
            PortSendBody::Copied(bytes) => {
                self.messenger.send(Rank(peer), tag, bytes).map_err(|rejected| rejected.error)?
            }
            PortSendBody::Lent { note, loan } => {
                let id = self.messenger.send_lent(Rank(peer), (tag, note), Arc::clone(&loan))?;
                self.loans.insert(token, (peer, loan));
                self.peers[peer as usize].lent_sends += 1;
                id
            }
        };
        self.sends.insert(id.0, token);
        Ok(())
    }

    /// Sends what waited for the connection.
    pub(crate) fn flush_waiting(&mut self, peer: PeerIndex) {
        let waiting = std::mem::take(&mut self.peers[peer as usize].waiting);
        for message in waiting {
            let token = message.token;
            if let Err(error) = self.post(peer, message) {
                let cause = match error {
                    MessagePostError::Lost(_, cause) => cause,
                    _ => protocol::messaging::PeerLossCause::Dropped,
                };
                let failure = MessageFailure::Lost(Rank(peer), cause);
                self.events.push_back(PortEvent::SendFailed { token, failure });
            }
        }
    }

    /// Accepts a short message: its bytes.
    ///
    /// # Errors
    /// If they changed in memory.
    pub(crate) fn accept_eager(&mut self, arrival: MessageArrival) -> Result<Vec<u8>, MessageFailure> {
        self.messenger.accept_eager(arrival)
    }

    /// Accepts a long message into memory of the user.
    ///
    /// # Errors
    /// If its sender is lost.
    pub(crate) fn accept_transfer(
        &mut self,
        arrival: MessageArrival,
        loan: Box<dyn LentBytesMut>,
        token: u64,
    ) -> Result<(), MessagePostError> {
        let id = self.messenger.accept_transfer(arrival, loan)?;
        self.receives.insert(id.0, token);
        Ok(())
    }

    pub(crate) fn discard(&mut self, arrival: MessageArrival) {
        self.messenger.discard(arrival);
    }

    /// Does all that can be done now; waits for at most `wait` if there is nothing.
    pub(crate) fn turn(&mut self, wait: Duration) {
        if let Err(error) = self.messenger.turn(wait) {
            // Only the wait can fail, and nothing is lost by it.
            crate::log::log_once(&format!("waiting for packets failed: {error}"));
        }
        self.collect();
        while let Some(event) = self.messenger.transport().next_side_event() {
            self.handle_side_event(event);
        }
        let now = self.messenger.transport().now();
        if now >= self.housekeeping_at {
            self.housekeeping_at = now + HOUSEKEEPING;
            self.retry_connections(now);
            self.report_losses();
            if now >= self.ends_at {
                self.ends_at = now + CHECK_ENDS_EVERY;
                (0..self.peers.len() as PeerIndex).for_each(|peer| self.check_end(peer, false));
            }
            if now >= self.watch_at {
                self.watch_at = now + WATCH_EVERY;
                self.is_watch_due = true;
            }
        }
    }

    /// Turns completions and arrivals into events.
    fn collect(&mut self) {
        while let Some(completion) = self.messenger.next_completion() {
            match completion {
                MessageCompletion::Sent { id, .. } => self.finish_send(id.0, None),
                MessageCompletion::SendFailed { id, failure, .. } => self.finish_send(id.0, Some(failure)),
                MessageCompletion::Received { id, .. } => {
                    if let Some(token) = self.receives.remove(&id.0) {
                        self.events.push_back(PortEvent::Received { token });
                    }
                }
                MessageCompletion::ReceiveFailed { id, failure, .. } => {
                    if let Some(token) = self.receives.remove(&id.0) {
                        self.events.push_back(PortEvent::ReceiveFailed { token, failure });
                    }
                }
            }
        }
        while let Some(arrival) = self.messenger.next_arrival() {
            self.events.push_back(PortEvent::Arrived(arrival));
        }
        if !self.returning.is_empty() {
            let (free, held) = std::mem::take(&mut self.returning)
                .into_iter()
                .partition::<Vec<_>, _>(|(_, loan)| Arc::strong_count(loan) == 1);
            self.returning = held;
            self.events.extend(free.into_iter().map(|(event, _)| event));
        }
    }

    /// A send ended. The user gets lent memory back only when no packet refers to it.
    fn finish_send(&mut self, id: u64, failure: Option<MessageFailure>) {
        let Some(token) = self.sends.remove(&id) else { return };
        let loan = self.loans.remove(&token).map(|(peer, loan)| {
            self.peers[peer as usize].lent_sends -= 1;
            loan
        });
        let event = match failure {
            Some(failure) => PortEvent::SendFailed { token, failure },
            None => PortEvent::Sent { token },
        };
        match loan {
            Some(loan) if Arc::strong_count(&loan) > 1 => self.returning.push((event, loan)),
            _ => self.events.push_back(event),
        }
    }

    fn handle_side_event(&mut self, event: EndpointEvent) {
        match event {
            EndpointEvent::Datagram { pair, buffer, length, .. } if pair == self.datagrams => {
                self.handle_request(&buffer[..length.min(buffer.len())]);
                // A buffer of the same queue pair was just consumed, so there is room for it.
                let _ = self.messenger.transport().udp().endpoint().post_datagram_receive(pair, buffer);
            }
            EndpointEvent::Path { pair, event } => self.note_path_event(pair, &event),
            _ => {}
        }
    }

    fn note_path_event(&mut self, pair: QpNumber, event: &PathEvent) {
        let Some((Rank(index), rail)) = self.messenger.transport().udp().rail_of(pair) else { return };
        let Some(peer) = self.peers.get(index as usize) else { return };
        let PeerConnection { address, rank, pairs, .. } = peer;
        let logged = LoggedRail { index: rail, peer: address, peer_rank: *rank, pairs };
        self.paths.note(&self.own, &logged, event);
    }

    /// Sends a sign of life to a peer for which a receive waits, so that its loss is noticed.
    pub(crate) fn watch(&mut self, peer: PeerIndex) {
        let now = self.messenger.transport().now();
        let watched = &mut self.peers[peer as usize];
        if now < watched.ping_at {
            return;
        }
        let is_first = watched.ping_at == Time::ZERO;
        watched.ping_at = now + PING_EVERY;
        if is_first {
            return; // Most receives complete within the first second.
        }
        if self.messenger.transport().shares_memory_with(Rank(peer)) {
            return self.check_end(peer, true);
        }
        match self.peers[peer as usize].state {
            PeerState::Unconnected => self.connect(peer),
            PeerState::Connected { .. } if !self.peers[peer as usize].is_pinging => {
                self.peers[peer as usize].is_pinging = true;
                let body = PortSendBody::Copied(Vec::new());
                let token = crate::envelope::PING_TOKEN | u64::from(peer);
                let posted = self.post(peer, PortSend { token, tag: crate::envelope::PING_TAG, body });
                // Without space for it there are other messages, which notice a loss as well.
                self.peers[peer as usize].is_pinging = posted.is_ok();
            }
            _ => {}
        }
    }

    /// Wants to be woken through the sockets; false if there is something to do first.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.messenger.transport().fall_asleep()
    }

    fn report_losses(&mut self) {
        for peer in 0..self.peers.len() as PeerIndex {
            if matches!(self.peers[peer as usize].state, PeerState::Connected { .. })
                && let Some(cause) = self.messenger.lost(Rank(peer))
            {
                let silence = self.silence_of(peer);
                let seconds = silence.as_nanos() as f64 / 1e9;
                let why = if silence == Span::ZERO {
                    format!("{cause}")
                } else {
                    format!("{cause}, after {seconds:.1} s without an answer")
                };
                self.lose(peer, &why);
            }
        }
    }

    /// How long the queue pairs to a peer have had no answer; zero if none of them waits for one, as within a host.
    fn silence_of(&mut self, peer: PeerIndex) -> Span {
        let now = self.messenger.transport().now();
        let endpoint = self.messenger.transport().udp().endpoint();
        let pairs = self.peers[peer as usize].queue_pairs.iter();
        let silences = pairs.filter_map(|number| Some(endpoint.machine(*number)?.connection().silence(now)));
        silences.max().unwrap_or(Span::ZERO)
    }

    /// Gives a peer up: everything that waits for it fails with the reason.
    pub(crate) fn lose(&mut self, peer: PeerIndex, why: &str) {
        let lost = &mut self.peers[peer as usize];
        let why = format!("endpoint {} is lost: {why}", lost.address);
        let was_connected = matches!(lost.state, PeerState::Connected { .. });
        lost.state = PeerState::Lost(why.clone());
        let waiting = std::mem::take(&mut lost.waiting);
        let failure = MessageFailure::Lost(Rank(peer), protocol::messaging::PeerLossCause::Unreachable);
        self.events.extend(waiting.into_iter().map(|m| PortEvent::SendFailed { token: m.token, failure }));
        self.events.push_back(PortEvent::PeerLost { peer, why });
        if was_connected {
            self.messenger.drop_peer(Rank(peer));
        } else {
            // The messaging machine does not know it, and does not release its queue pairs.
            MessageTransport::drop_peer(self.messenger.transport(), Rank(peer));
        }
    }

    /// Sends one connection request over every path to a peer: any of them may be cut.
    pub(crate) fn send_request(&mut self, peer: PeerIndex, bytes: &[u8]) {
        let Some(peer) = self.peers.get(peer as usize) else { return };
        let (to, datagrams) = (peer.address.paths.clone(), peer.address.datagrams);
        let pairs = peer.pairs.clone();
        let (own, endpoint) = (self.datagrams, self.messenger.transport().udp().endpoint());
        for (local, remote) in pairs {
            let destination = (to[remote].address, datagrams, DATAGRAM_KEY);
            // A datagram that the kernel refuses is sent again later.
            let _ = endpoint.send_datagram(own, UdpPortIndex(local as u8), destination, bytes, None);
        }
    }

    /// Waits until the peers have what was sent, also what still waits for a connection.
    pub(crate) fn close(&mut self) {
        let began = Instant::now();
        while self.peers.iter().any(|peer| !peer.waiting.is_empty()) && began.elapsed() < DRAIN_LIMIT {
            self.turn(Duration::from_millis(1));
        }
        let _ = self.messenger.drain(DRAIN_LIMIT);
        self.messenger.transport().pairs().close();
    }
}

/// Whether messages have checksums.
fn checksums_of_environment() -> Result<bool, String> {
    match std::env::var(CHECKSUMS).as_deref() {
        Err(_) | Ok("" | "on") => Ok(true),
        Ok("off") => Ok(false),
        Ok(other) => Err(format!("{CHECKSUMS} is {other:?}: on or off")),
    }
}

fn faults_of_environment() -> Result<FaultInjector, String> {
    let Some(path) = std::env::var(FAULTS).ok().filter(|path| !path.is_empty()) else {
        return Ok(FaultInjector::default());
    };
    let compile = |plan: &_| FaultInjector::from_plan(plan, u64::from(std::process::id()));
    faults::read_plan(&path, compile).map_err(|error| format!("{FAULTS}: {error}"))
}

#[cfg(test)]
mod tests;
