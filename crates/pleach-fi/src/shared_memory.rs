//! Memory shared with a peer of this host, in place of rails over UDP (P-127).
//!
//! Who needs the peer first creates the memory and asks the peer to join. A peer that cannot, because it only seems to be on this
//! host, or may not, because it protects packets otherwise (P-124), refuses; then both connect over UDP.

use engine::messaging::{PairMemory, PeerEnd, WakeAddress};
use transport::udp::UdpPortIndex;
use units::{Psn, Rank};

use crate::connection_request::{ConnectionRequest, RequestKind};
use crate::message_port::{DATAGRAM_KEY, MessagePort, PeerIndex};
use crate::path_log::launch_rank;
use crate::peer_connection::PeerState;

impl MessagePort {
    /// Memory for a peer of this host; none if it must be reached over UDP.
    pub(crate) fn create_memory(&mut self, peer: PeerIndex, number: u64) -> Option<PairMemory> {
        let found = &self.peers[peer as usize];
        if self.own.host.is_none() || self.own.host != found.address.host || found.is_memory_refused {
            return None;
        }
        let created = PairMemory::create(number);
        created.map_err(|error| crate::log::log_once(&format!("no shared memory within this host: {error}"))).ok()
    }

    /// A peer has created memory: joins it, and answers.
    pub(crate) fn join_memory(&mut self, peer: PeerIndex, request: &ConnectionRequest) {
        // Ends with different settings connect over UDP, which tells both.
        let offer = self.security_offer(peer);
        let can_share = self.own.host.is_some() && offer.agree(request.security).is_ok();
        let joined = if can_share { PairMemory::join(request.attempt).ok() } else { None };
        let answer = ConnectionRequest {
            kind: if joined.is_some() { RequestKind::MemoryShared } else { RequestKind::MemoryRefused },
            attempt: request.attempt,
            pairs: Vec::new(),
            psn: Psn::new(0),
            link_bytes: 0,
            security: offer,
            sender: self.own.clone(),
            rank: launch_rank(),
            receiver: request.sender.identity,
        };
        let bytes = answer.to_bytes(&self.own.secret).to_vec();
        self.send_request(peer, &bytes);
        if let Some(memory) = joined {
            self.peers[peer as usize].rank = request.rank;
            self.use_memory(peer, memory);
            self.finish_connecting(peer, request.attempt, Some(bytes));
        }
    }

    /// A peer has joined memory of this process.
    pub(crate) fn handle_memory_shared(&mut self, peer: PeerIndex, answer: &ConnectionRequest) {
        let found = &mut self.peers[peer as usize];
        let PeerState::Connecting(attempt) = &mut found.state else { return };
        if attempt.number != answer.attempt {
            return;
        }
        let Some(memory) = attempt.memory.take() else { return };
        found.rank = answer.rank;
        self.use_memory(peer, memory);
        self.finish_connecting(peer, answer.attempt, None);
    }

    /// A peer cannot join: over UDP, then.
    pub(crate) fn handle_memory_refused(&mut self, peer: PeerIndex, answer: &ConnectionRequest) {
        let found = &mut self.peers[peer as usize];
        let PeerState::Connecting(attempt) = &found.state else { return };
        if attempt.number == answer.attempt && attempt.memory.is_some() {
            found.is_memory_refused = true;
            found.state = PeerState::Unconnected;
            self.connect(peer);
        }
    }

    fn use_memory(&mut self, peer: PeerIndex, memory: PairMemory) {
        let found = &mut self.peers[peer as usize];
        let (local, remote) = found.pairs[0];
        let wake = WakeAddress {
            from: self.datagrams,
            port: UdpPortIndex(local as u8),
            to: (found.address.paths[remote].address, found.address.datagrams, DATAGRAM_KEY),
        };
        // Rails that were made for a request that does not count any more.
        if !std::mem::take(&mut found.queue_pairs).is_empty() {
            engine::messaging::MessageTransport::drop_peer(self.messenger.transport(), Rank(peer));
        }
        self.messenger.transport().add_pair(Rank(peer), memory, wake);
    }

    /// Gives up a peer of this host whose process has ended. One that closed its endpoint in an orderly way is missed only if something
    /// waits for it.
    pub(crate) fn check_end(&mut self, peer: PeerIndex, is_awaited: bool) {
        let found = &self.peers[peer as usize];
        if !matches!(found.state, PeerState::Connected { .. }) {
            return;
        }
        let is_awaited = is_awaited || found.lent_sends > 0;
        match self.messenger.transport().pairs().peer_end(Rank(peer)) {
            Some(PeerEnd::Died) => self.lose(peer, "its process ended"),
            Some(PeerEnd::Closed) if is_awaited => self.lose(peer, "it closed its endpoint"),
            _ => {}
        }
    }
}
