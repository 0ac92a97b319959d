//! The progress of ranks: short messages are sent at once, long ones after a rendezvous, each on the next queue pair of its pair.
//!
//! In: programs and the packets of other ranks. Out: packets, transition requests, marks. Only a rank within a call makes progress.

use super::cluster::{AdapterCluster, AdapterEvent};
use super::connection::FirmwareJob;
use super::packet::{MpiPacket, PacketKind};
use super::rank::RankStep;

impl AdapterCluster {
    /// Lets a rank go on until it has to wait.
    pub(super) fn advance(&mut self, rank: usize) {
        loop {
            if self.ranks[rank].is_computing {
                return;
            }
            self.progress(rank);
            let state = &mut self.ranks[rank];
            let Some(step) = state.steps.get(state.next).copied() else { return };
            let may_pass = match step {
                RankStep::Receive { peer } => state.peers[peer].received > 0,
                RankStep::WaitSent => state.sending == 0,
                _ => true,
            };
            if !may_pass {
                return;
            }
            state.next += 1;
            self.execute(rank, step);
        }
    }

    fn execute(&mut self, rank: usize, step: RankStep) {
        let state = &mut self.ranks[rank];
        match step {
            RankStep::Compute(span) => {
                state.is_computing = true;
                self.schedule(self.now + span, AdapterEvent::Computed { rank });
            }
            RankStep::Send { peer, bytes } => self.start_send(rank, peer, bytes),
            RankStep::Post { peer } => state.peers[peer].posted += 1,
            RankStep::Receive { peer } => state.peers[peer].received -= 1,
            RankStep::WaitSent => {}
            RankStep::Request(job) => {
                // The lower rank of a pair migrates a connection; both load the path of their end.
                let is_own = |peer: usize| job == FirmwareJob::Load || rank < peer;
                let peers = state.peers.iter().enumerate().filter(|(peer, _)| is_own(*peer));
                let ends: Vec<usize> = peers.flat_map(|(_, peer)| peer.ends.iter().copied()).collect();
                self.request(ends.into_iter(), job);
            }
            RankStep::Mark => state.marks.push(self.now),
        }
    }

    fn start_send(&mut self, rank: usize, peer: usize, bytes: u64) {
        let is_long = bytes > self.times.eager_bytes && !self.ranks[rank].peers[peer].ends.is_empty();
        let kind = if is_long { PacketKind::Rts } else { PacketKind::Eager };
        self.ranks[rank].sending += usize::from(is_long);
        let number = self.ranks[rank].peers[peer].sent;
        self.ranks[rank].peers[peer].sent += 1;
        self.send_packet(MpiPacket { from: rank, to: peer, number, kind, bytes });
    }

    /// On the next queue pair in turn, or through the memory of the host.
    fn send_packet(&mut self, packet: MpiPacket) {
        let peer = &mut self.ranks[packet.from].peers[packet.to];
        if peer.ends.is_empty() {
            let local = self.now + self.times.local + packet.wire_bytes();
            return self.schedule(local, AdapterEvent::Local { packet });
        }
        let end = peer.ends[peer.used % peer.ends.len()];
        peer.used += 1;
        self.post(end, packet);
    }

    /// A packet has arrived at a rank.
    pub(super) fn deliver(&mut self, packet: MpiPacket) {
        let state = &mut self.ranks[packet.to];
        match packet.kind {
            PacketKind::Eager | PacketKind::Rts => {
                state.peers[packet.from].early.insert(packet.number, packet);
            }
            PacketKind::Cts => state.clear.push_back(packet),
            PacketKind::Data => state.peers[packet.from].received += 1,
        }
        self.advance(packet.to);
    }

    /// A packet of a rank has been acknowledged.
    pub(super) fn sent(&mut self, packet: MpiPacket) {
        if packet.kind == PacketKind::Data {
            self.ranks[packet.from].sending -= 1;
            self.advance(packet.from);
        }
    }

    /// Matches posted receives in order, answers those that are long, and sends what is clear to be sent.
    fn progress(&mut self, rank: usize) {
        for from in 0..self.ranks[rank].peers.len() {
            loop {
                let peer = &mut self.ranks[rank].peers[from];
                if peer.posted == 0 {
                    break;
                }
                let Some(packet) = peer.early.remove(&peer.expected) else { break };
                peer.expected += 1;
                peer.posted -= 1;
                if packet.kind == PacketKind::Eager {
                    peer.received += 1;
                } else {
                    self.send_packet(MpiPacket { from: rank, to: from, kind: PacketKind::Cts, ..packet });
                }
            }
        }
        while let Some(packet) = self.ranks[rank].clear.pop_front() {
            self.send_packet(MpiPacket { from: rank, to: packet.from, kind: PacketKind::Data, ..packet });
        }
    }
}
