//! The connection to one peer, and how it is made (P-119, P-120).
//!
//! Who needs it first asks, over all paths at once, until there is an answer. If both ask, the request of the end with the lower
//! identity counts. A request that arrives twice gets the same answer. Endpoints that seem to be on one host try to share memory
//! first (`shared_memory`).

use std::collections::VecDeque;
use std::net::IpAddr;

use engine::messaging::{MessageTransport, PairMemory};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::RailIndex;
use transport::SecurityMode;
use transport::udp::{PacketSecurity, QueuePairSetup, UdpPortIndex, UdpRoute};
use units::{Psn, QpNumber, Rank, Span, Time};

use crate::connection_request::{ConnectionRequest, MAX_RAILS, RequestKind};
use crate::connection_security::{SecurityOffer, connection_key};
use crate::endpoint_address::{EndpointAddress, common_paths};
use crate::local_paths::{is_here, link_bytes};
use crate::message_port::{MessagePort, PeerIndex, PortSend};
use crate::path_log::launch_rank;

/// The first wait for an answer; it doubles with every request.
const FIRST_RETRY: Span = Span::from_micros(20_000);
const LONGEST_RETRY: Span = Span::from_micros(500_000);
/// How long a peer may take to answer.
const GIVE_UP: Span = Span::from_micros(30_000_000);

/// A connection that was asked for.
#[derive(Debug)]
pub(crate) struct ConnectionAttempt {
    pub(crate) number: u64,
    psn: Psn,
    /// The longest packets that were offered; the answer may want shorter ones.
    link_bytes: u32,
    /// What the peer is asked to join; then there are no rails.
    pub(crate) memory: Option<PairMemory>,
    began: Time,
    retry_at: Time,
    wait: Span,
}

#[derive(Debug)]
pub(crate) enum PeerState {
    Unconnected,
    Connecting(ConnectionAttempt),
    /// With the attempt that succeeded, and the answer if the peer asked.
    Connected {
        attempt: u64,
        answer: Option<Vec<u8>>,
    },
    Lost(String),
}

#[derive(Debug)]
pub(crate) struct PeerConnection {
    pub(crate) address: EndpointAddress,
    /// Its rank, if its launcher told it and it is connected.
    pub(crate) rank: Option<u16>,
    pub(crate) state: PeerState,
    /// Messages that wait for the connection.
    pub(crate) waiting: VecDeque<PortSend>,
    /// The paths, as indices of this end's and the peer's addresses.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// This end's queue pairs, one for each rail.
    pub(crate) queue_pairs: Vec<QpNumber>,
    /// When the next sign of life is due; see [`MessagePort::watch`].
    pub(crate) ping_at: Time,
    pub(crate) is_pinging: bool,
    /// Sends from lent memory that are not complete.
    pub(crate) lent_sends: u32,
    /// It could not join memory of this process.
    pub(crate) is_memory_refused: bool,
}

impl PeerConnection {
    pub(crate) fn new(address: EndpointAddress) -> Self {
        Self {
            address,
            rank: None,
            state: PeerState::Unconnected,
            waiting: VecDeque::new(),
            pairs: Vec::new(),
            queue_pairs: Vec::new(),
            ping_at: Time::ZERO,
            is_pinging: false,
            lent_sends: 0,
            is_memory_refused: false,
        }
    }
}

impl MessagePort {
    /// Asks a peer to connect, unless that is under way.
    pub(crate) fn connect(&mut self, peer: PeerIndex) {
        let found = &self.peers[peer as usize];
        if !matches!(found.state, PeerState::Unconnected) || !found.address.has_secret() {
            return; // Without its secret it cannot be asked; it asks.
        }
        if let Err(why) = self.find_paths(peer) {
            return self.lose(peer, &why);
        }
        let (mut number, mut psn) = ([0; 8], [0; 4]);
        // Neither must be secret; the process number will do if the kernel has no random bits.
        if getrandom::fill(&mut number).is_err() || getrandom::fill(&mut psn).is_err() {
            number = u64::from(std::process::id()).to_le_bytes();
        }
        let number = u64::from_le_bytes(number);
        let memory = self.create_memory(peer, number);
        if memory.is_none()
            && let Err(why) = self.create_rails(peer)
        {
            return self.lose(peer, &why);
        }
        let now = self.messenger.transport().now();
        let attempt = ConnectionAttempt {
            number,
            psn: Psn::new(u32::from_le_bytes(psn) & 0xff_ffff),
            link_bytes: self.link_bytes_to(peer),
            memory,
            began: now,
            retry_at: now + FIRST_RETRY,
            wait: FIRST_RETRY,
        };
        self.peers[peer as usize].state = PeerState::Connecting(attempt);
        self.ask(peer);
    }

    fn ask(&mut self, peer: PeerIndex) {
        let found = &self.peers[peer as usize];
        let PeerState::Connecting(attempt) = &found.state else { return };
        let request = ConnectionRequest {
            kind: if attempt.memory.is_some() { RequestKind::ShareMemory } else { RequestKind::Connect },
            attempt: attempt.number,
            pairs: found.queue_pairs.clone(),
            psn: attempt.psn,
            link_bytes: attempt.link_bytes,
            security: self.security_offer(peer),
            sender: self.own.clone(),
            rank: launch_rank(),
            receiver: found.address.identity,
        };
        let bytes = request.to_bytes(&found.address.secret);
        self.send_request(peer, &bytes);
    }

    /// Asks again where there was no answer.
    pub(crate) fn retry_connections(&mut self, now: Time) {
        for peer in 0..self.peers.len() as PeerIndex {
            let PeerState::Connecting(attempt) = &mut self.peers[peer as usize].state else { continue };
            if now < attempt.retry_at {
                continue;
            }
            if now.since(attempt.began) > GIVE_UP {
                self.lose(peer, "it did not answer a connection request for 30 s; is its process running?");
                continue;
            }
            attempt.wait = (attempt.wait + attempt.wait).min(LONGEST_RETRY);
            attempt.retry_at = now + attempt.wait;
            self.ask(peer);
        }
    }

    /// A datagram arrived that claims to be a request or an answer. Those that are not valid are dropped: anyone can send them.
    pub(crate) fn handle_request(&mut self, bytes: &[u8]) {
        if let Some(request) = ConnectionRequest::parse(bytes, &self.own.secret)
            && !request.kind.is_answer()
            && request.receiver == self.own.identity
            && request.sender.identity != self.own.identity
        {
            return self.handle_connect(&request);
        }
        let claimed = ConnectionRequest::claimed_sender(bytes).and_then(|identity| self.known_peer(identity));
        if let Some(peer) = claimed
            && self.peers[peer as usize].address.has_secret()
            && let Some(answer) = ConnectionRequest::parse(bytes, &self.peers[peer as usize].address.secret)
            && answer.receiver == self.own.identity
        {
            match answer.kind {
                RequestKind::Accept => self.handle_accept(peer, &answer),
                RequestKind::MemoryShared => self.handle_memory_shared(peer, &answer),
                RequestKind::MemoryRefused => self.handle_memory_refused(peer, &answer),
                RequestKind::Connect | RequestKind::ShareMemory => {}
            }
        }
    }

    fn handle_connect(&mut self, request: &ConnectionRequest) {
        let peer = self.peer_at(&request.sender);
        match &self.peers[peer as usize].state {
            PeerState::Connected { attempt, answer: Some(answer) } if *attempt == request.attempt => {
                let answer = answer.clone();
                return self.send_request(peer, &answer);
            }
            PeerState::Connected { .. } | PeerState::Lost(_) => return,
            // Both asked: the lower identity's request counts.
            PeerState::Connecting(_) if self.own.identity < request.sender.identity => return,
            PeerState::Connecting(_) | PeerState::Unconnected => {}
        }
        if let Err(why) = self.find_paths(peer) {
            return self.lose(peer, &why);
        }
        if request.kind == RequestKind::ShareMemory {
            return self.join_memory(peer, request);
        }
        if let Err(why) = self.create_rails(peer) {
            return self.lose(peer, &why);
        }
        let own_psn = psn_of_attempt(request);
        let link = self.link_bytes_to(peer).min(request.link_bytes);
        let offer = self.security_offer(peer);
        let answer = ConnectionRequest {
            kind: RequestKind::Accept,
            attempt: request.attempt,
            pairs: self.peers[peer as usize].queue_pairs.clone(),
            psn: own_psn,
            link_bytes: link,
            security: offer,
            sender: self.own.clone(),
            rank: launch_rank(),
            receiver: request.sender.identity,
        };
        // The answer goes out even if the ends do not agree: then the other one knows why as well.
        let bytes = answer.to_bytes(&self.own.secret).to_vec();
        let key = connection_key(&self.own.secret, request.attempt, request.sender.identity, self.own.identity);
        let security = match offer.agree(request.security) {
            Ok(mode) => mode.packets(key),
            Err(why) => {
                self.send_request(peer, &bytes);
                return self.lose(peer, &why);
            }
        };
        if self.connect_rails(peer, request, (own_psn, link), &security) {
            self.send_request(peer, &bytes);
            self.finish_connecting(peer, request.attempt, Some(bytes));
        }
    }

    fn handle_accept(&mut self, peer: PeerIndex, answer: &ConnectionRequest) {
        let PeerState::Connecting(attempt) = &self.peers[peer as usize].state else { return };
        if attempt.number != answer.attempt {
            return;
        }
        let (psn, link) = (attempt.psn, answer.link_bytes.min(attempt.link_bytes));
        let secret = &self.peers[peer as usize].address.secret;
        let key = connection_key(secret, answer.attempt, self.own.identity, answer.sender.identity);
        let security = match self.security_offer(peer).agree(answer.security) {
            Ok(mode) => mode.packets(key),
            Err(why) => return self.lose(peer, &why),
        };
        if self.connect_rails(peer, answer, (psn, link), &security) {
            self.finish_connecting(peer, answer.attempt, None);
        }
    }

    pub(crate) fn finish_connecting(&mut self, peer: PeerIndex, attempt: u64, answer: Option<Vec<u8>>) {
        let connected = &mut self.peers[peer as usize];
        connected.state = PeerState::Connected { attempt, answer };
        let rails = connected.queue_pairs.len().max(1) as u8; // Memory is one rail.
        self.messenger.add_peer(Rank(peer), rails);
        self.flush_waiting(peer);
    }

    /// Finds the paths to a peer.
    fn find_paths(&mut self, peer: PeerIndex) -> Result<(), String> {
        let remote = &self.peers[peer as usize].address;
        if remote.is_checked != self.own.is_checked {
            return Err("PLEACH_MESSAGES_CHECKSUM differs between it and this process".into());
        }
        let is_leader = self.own.identity < remote.identity;
        let mut pairs = if is_leader {
            common_paths(&self.own, remote)
        } else {
            common_paths(remote, &self.own).into_iter().map(|(theirs, own)| (own, theirs)).collect()
        };
        pairs.truncate(MAX_RAILS);
        if pairs.is_empty() {
            return Err("it has no address that this host's addresses can reach".into());
        }
        self.peers[peer as usize].pairs = pairs;
        Ok(())
    }

    /// Creates a queue pair for each path to a peer, unless they are there.
    fn create_rails(&mut self, peer: PeerIndex) -> Result<(), String> {
        let found = &self.peers[peer as usize];
        if !found.queue_pairs.is_empty() {
            return Ok(());
        }
        let mut numbers = Vec::new();
        for rail in 0..found.pairs.len() {
            let created = self.messenger.transport().udp().create(Rank(peer), RailIndex(rail as u8));
            numbers.push(created.map_err(|error| format!("cannot create a queue pair: {error}"))?);
        }
        self.peers[peer as usize].queue_pairs = numbers;
        Ok(())
    }

    /// Connects the queue pairs to those of the peer; false if they do not fit each other.
    fn connect_rails(
        &mut self,
        peer: PeerIndex,
        remote: &ConnectionRequest,
        (psn, link): (Psn, u32),
        security: &PacketSecurity,
    ) -> bool {
        let found = &self.peers[peer as usize];
        let (pairs, numbers) = (found.pairs.clone(), found.queue_pairs.clone());
        let addresses = found.address.paths.clone();
        self.peers[peer as usize].rank = remote.rank;
        if remote.pairs.len() != numbers.len() {
            return false; // The ends do not see the same paths: this request is not from the address that we know.
        }
        let role =
            if self.own.identity < remote.sender.identity { MigrationRole::Leader } else { MigrationRole::Follower };
        for (rail, number) in numbers.iter().enumerate() {
            let route = |path: usize| {
                let (own, theirs) = pairs[path];
                UdpRoute::new(UdpPortIndex(own as u8), addresses[theirs].address)
            };
            let routes = (0..pairs.len()).map(|path| route((rail + path) % pairs.len())).collect();
            let setup = QueuePairSetup::new(remote.pairs[rail], psn, remote.psn, routes, role);
            let setup = QueuePairSetup { policy: ConnectionPolicy::conversation(), ..setup }
                .with_security(security.clone())
                .with_long_packets(link);
            if let Err(error) = self.messenger.transport().udp().connect(*number, setup) {
                self.lose(peer, &format!("cannot connect a queue pair: {error}"));
                return false;
            }
        }
        true
    }

    /// What this end wants on the connection to a peer.
    pub(crate) fn security_offer(&self, peer: PeerIndex) -> SecurityOffer {
        let found = &self.peers[peer as usize];
        let mut remote = found.pairs.iter().map(|(_, theirs)| found.address.paths[*theirs].address.ip());
        let default = if remote.all(is_here) { SecurityMode::Off } else { SecurityMode::Authenticate };
        SecurityOffer { mode: self.security.unwrap_or(default), is_set: self.security.is_some() }
    }

    /// The longest packets that all paths to a peer carry, as far as this end knows.
    fn link_bytes_to(&self, peer: PeerIndex) -> u32 {
        let found = &self.peers[peer as usize];
        let ip = |(own, theirs): &(usize, usize)| -> (IpAddr, IpAddr) {
            (self.own.paths[*own].address.ip(), found.address.paths[*theirs].address.ip())
        };
        found.pairs.iter().map(ip).map(|(own, remote)| link_bytes(own, remote)).min().unwrap_or(1500)
    }
}

/// The first packet number of the end that is asked: from the number of the attempt, which is random.
fn psn_of_attempt(request: &ConnectionRequest) -> Psn {
    Psn::new((request.attempt >> 20) as u32 & 0xff_ffff)
}
