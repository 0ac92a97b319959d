//! Connections between the processes of a job, each made when it is first used.
//!
//! The number of the connection to rank `r` is [`FIRST_MESH_QP`]` + r` here, and so is ours there: nothing is negotiated.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use manager::AuthKey;
use protocol::aggregation::{AggregationMessage, Damage};
use protocol::connection::path::{MigrationRole, PathPolicy};
use protocol::connection::{AckRequest, Connection, Frame, OutgoingFrame, Paths};
use units::{QpNumber, Rank, Time};

use super::leader_message::{LeaderMessage, PartialLeaderMessage, ReassemblyResult};
use crate::aggregation::{TreeEdge, TreeEdgeEvent, TreeEdges, edge_policy};

/// Numbers below are the manager's to give.
const FIRST_MESH_QP: u32 = 0x80_0000;

/// Who is where, and how they know each other.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// Our rank in the job.
    pub me: Rank,
    /// The addresses of every rank, one per path.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// What only the job's processes know.
    pub key: AuthKey,
    /// Most payload of one packet.
    pub piece_bytes: usize,
}

struct MeshPeer {
    connection: Connection<AggregationMessage>,
    partial: Option<PartialLeaderMessage>,
    lost: bool,
}

/// What happened between processes.
#[derive(Debug)]
pub(super) enum MeshEvent {
    Letter { from: Rank, letter: LeaderMessage },
    Lost { rank: Rank },
}

/// The connections of this process.
pub(super) struct Mesh {
    plan: MeshConfig,
    peers: BTreeMap<Rank, MeshPeer>,
    frames: Vec<OutgoingFrame<AggregationMessage>>,
    /// Ranks whose connections may want to be called sooner than before.
    touched: Vec<Rank>,
    /// Letters that made no sense.
    pub nonsense: u64,
}

impl Mesh {
    pub(super) fn new(plan: MeshConfig) -> Self {
        Self { plan, peers: BTreeMap::new(), frames: Vec::new(), touched: Vec::new(), nonsense: 0 }
    }

    /// Strings an edge to everyone: they may write first.
    pub(super) fn string(&self, wires: &mut TreeEdges) {
        for rank in (0..self.plan.addresses.len() as u32).map(Rank).filter(|rank| *rank != self.plan.me) {
            let routes = wires.routes_to(&self.plan.addresses[rank.index()]);
            let remote = QpNumber(FIRST_MESH_QP + self.plan.me.0);
            wires.string(mesh_qp(rank), TreeEdge { remote, routes, key: self.plan.key });
        }
    }

    /// The rank behind a number, if it is a connection of this mesh.
    pub(super) fn rank(&self, number: QpNumber) -> Option<Rank> {
        number.0.checked_sub(FIRST_MESH_QP).map(Rank).filter(|rank| rank.index() < self.plan.addresses.len())
    }

    /// Writes to a rank. What is written to a lost one is forgotten: its loss has been told.
    pub(super) fn write(&mut self, wires: &mut TreeEdges, to: Rank, letter: &LeaderMessage) {
        let now = wires.clock().now();
        let most = self.plan.piece_bytes;
        let peer = self.peers.entry(to).or_insert_with(|| MeshPeer::new(&self.plan, wires, to));
        if peer.lost {
            return;
        }
        for piece in letter.pieces(most) {
            peer.connection.send(now, piece, AckRequest::InTurn, &mut |outgoing| self.frames.push(outgoing));
        }
        self.transmit(wires, to);
    }

    /// Takes what came from a rank.
    pub(super) fn handle(
        &mut self,
        wires: &mut TreeEdges,
        from: Rank,
        input: TreeEdgeEvent,
        events: &mut Vec<MeshEvent>,
    ) {
        let now = wires.clock().now();
        let peer = self.peers.entry(from).or_insert_with(|| MeshPeer::new(&self.plan, wires, from));
        if peer.lost {
            return;
        }
        let out = &mut |outgoing| self.frames.push(outgoing);
        match input {
            TreeEdgeEvent::Frame { frame: Frame::Data { message, .. }, .. } if !message.is_intact() => {
                peer.connection.handle_damage(Damage::Here, out);
            }
            TreeEdgeEvent::Frame { came, frame, .. } => {
                if let Some(message) = peer.connection.handle_frame(now, came, &frame, out) {
                    match PartialLeaderMessage::read(peer.partial.take(), message) {
                        ReassemblyResult::More(partial) => peer.partial = Some(partial),
                        ReassemblyResult::Whole(letter) => events.push(MeshEvent::Letter { from, letter }),
                        ReassemblyResult::Nonsense => self.nonsense += 1,
                    }
                }
            }
            TreeEdgeEvent::Damage { .. } => {
                peer.connection.handle_damage(Damage::Here, out);
            }
            TreeEdgeEvent::Multicast { .. } => {} // Nobody of the mesh speaks to everyone.
            TreeEdgeEvent::PathDown { path, .. } => peer.connection.handle_path_down(now, path, out),
            TreeEdgeEvent::PathUp { path, .. } => peer.connection.handle_path_up(now, path),
        }
        self.transmit(wires, from);
    }

    /// When a rank's connection wants to be called; [`Time::NEVER`] if it need not be.
    fn deadline(&self, rank: Rank) -> Time {
        let peer = self.peers.get(&rank).filter(|peer| !peer.lost);
        peer.and_then(|peer| peer.connection.deadline()).unwrap_or(Time::NEVER)
    }

    /// Repeats what is overdue, and gives up on who never answers.
    pub(super) fn handle_timeout(&mut self, wires: &mut TreeEdges, rank: Rank, events: &mut Vec<MeshEvent>) {
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| !peer.lost) else { return };
        let now = wires.clock().now();
        if peer.connection.handle_timeout(now, &mut |outgoing| self.frames.push(outgoing)).is_err() {
            peer.lose();
            events.push(MeshEvent::Lost { rank });
        }
        self.transmit(wires, rank);
    }

    /// True if everyone who is there has acknowledged all that was written.
    pub(super) fn is_drained(&self) -> bool {
        self.peers.values().all(|peer| peer.lost || peer.connection.outstanding() == 0)
    }

    /// Somebody knows that a rank is gone.
    pub(super) fn lose(&mut self, rank: Rank) {
        self.peers.entry(rank).or_insert_with(MeshPeer::silent).lose();
    }

    /// A rank has left: nothing need be repeated for it. What it said before may still come.
    pub(super) fn let_go(&mut self, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(&rank) {
            peer.connection.abandon();
            self.touched.push(rank);
        }
    }

    /// A rank that was dealt with since this was last asked, and when it wants to be called.
    pub(super) fn next_touched(&mut self) -> Option<(Rank, Time)> {
        let rank = self.touched.pop()?;
        Some((rank, self.deadline(rank)))
    }

    fn transmit(&mut self, wires: &mut TreeEdges, to: Rank) {
        if self.touched.last() != Some(&to) {
            self.touched.push(to);
        }
        for outgoing in self.frames.drain(..) {
            wires.transmit(mesh_qp(to), &outgoing);
        }
    }
}

fn mesh_qp(rank: Rank) -> QpNumber {
    QpNumber(FIRST_MESH_QP + rank.0)
}

impl MeshPeer {
    fn silent() -> Self {
        Self { connection: Connection::new(edge_policy()), partial: None, lost: false }
    }

    /// One with whom we speak over every path there is.
    fn new(plan: &MeshConfig, wires: &TreeEdges, rank: Rank) -> Self {
        let mut peer = Self::silent();
        let paths = plan.addresses.get(rank.index()).map_or(0, |addresses| wires.routes_to(addresses).len());
        if paths > 1 {
            let role = if plan.me < rank { MigrationRole::Leader } else { MigrationRole::Follower };
            let paths = Paths::new(PathPolicy::default(), role, paths, wires.clock().now());
            peer.connection.set_paths(paths);
        }
        peer
    }

    fn lose(&mut self) {
        self.lost = true;
        self.partial = None;
        self.connection.abandon();
    }
}
