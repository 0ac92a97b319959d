//! Connections between the processes of a job, created on first use.
//!
//! The connection to rank `r` has number [`FIRST_MESH_QP`]` + r` at every process: nothing is negotiated.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use manager::AuthKey;
use protocol::aggregation::{AggregationMessage, Damage};
use protocol::connection::path::{MigrationRole, PathPolicy};
use protocol::connection::{AckRequest, Connection, Frame, OutgoingFrame, Paths};
use units::{QpNumber, Rank, Span, Time};

use super::leader_message::{LeaderMessage, PartialLeaderMessage, ReassemblyResult};
use transport::edges::EdgeSide;

use crate::aggregation::{TreeEdge, TreeEdgeEvent, TreeEdges, edge_policy};

/// The manager assigns the numbers below.
const FIRST_MESH_QP: u32 = 0x80_0000;

/// The addresses and the key of the mesh.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// The rank of this process in the job.
    pub me: Rank,
    /// The addresses of every rank, one per path.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// The shared key of the job's processes.
    pub key: AuthKey,
    /// The most payload of one packet.
    pub fragment_bytes: usize,
    /// The largest packet that the links of all ranks carry.
    pub link_bytes: usize,
}

struct MeshPeer {
    connection: Connection<AggregationMessage>,
    partial: Option<PartialLeaderMessage>,
    lost: bool,
}

/// What arrived from other processes.
#[derive(Debug)]
pub(super) enum MeshEvent {
    Message {
        from: Rank,
        leader_message: LeaderMessage,
    },
    /// It has not answered for so long.
    Lost {
        rank: Rank,
        silence: Span,
    },
}

/// The connections of this process.
pub(super) struct Mesh {
    config: MeshConfig,
    peers: BTreeMap<Rank, MeshPeer>,
    frames: Vec<OutgoingFrame<AggregationMessage>>,
    /// Ranks whose connection may have an earlier deadline now.
    touched: Vec<Rank>,
    /// Messages that did not parse.
    pub malformed: u64,
}

impl Mesh {
    pub(super) fn new(config: MeshConfig) -> Self {
        Self { config, peers: BTreeMap::new(), frames: Vec::new(), touched: Vec::new(), malformed: 0 }
    }

    /// Adds an edge to every rank: each may send first.
    pub(super) fn add_edges(&self, tree_edges: &mut TreeEdges) {
        tree_edges.set_link_bytes(self.config.link_bytes);
        for rank in (0..self.config.addresses.len() as u32).map(Rank).filter(|rank| *rank != self.config.me) {
            let routes = tree_edges.routes_to(&self.config.addresses[rank.index()]);
            let remote = QpNumber(FIRST_MESH_QP + self.config.me.0);
            tree_edges
                .add_edge(mesh_qp(rank), TreeEdge { remote, routes, key: self.config.key, end: EdgeSide::Peer });
        }
    }

    /// The rank of a connection; none if the number is not of this mesh.
    pub(super) fn rank(&self, number: QpNumber) -> Option<Rank> {
        mesh_rank(number).filter(|rank| rank.index() < self.config.addresses.len())
    }

    /// Sends a message to a rank. Drops it if the rank is lost, which was reported before.
    pub(super) fn write(&mut self, tree_edges: &mut TreeEdges, to: Rank, leader_message: &LeaderMessage) {
        let now = tree_edges.clock().now();
        let most = self.config.fragment_bytes;
        let peer = self.peers.entry(to).or_insert_with(|| MeshPeer::new(&self.config, tree_edges, to));
        if peer.lost {
            return;
        }
        for fragment in leader_message.fragments(most) {
            peer.connection.send(now, fragment, AckRequest::Periodic, &mut |outgoing| self.frames.push(outgoing));
        }
        self.transmit(tree_edges, to);
    }

    /// Handles what arrived from a rank.
    pub(super) fn handle(
        &mut self,
        tree_edges: &mut TreeEdges,
        from: Rank,
        input: TreeEdgeEvent,
        events: &mut Vec<MeshEvent>,
    ) {
        let now = tree_edges.clock().now();
        let peer = self.peers.entry(from).or_insert_with(|| MeshPeer::new(&self.config, tree_edges, from));
        if peer.lost {
            return;
        }
        let out = &mut |outgoing| self.frames.push(outgoing);
        match input {
            TreeEdgeEvent::Frame { frame: Frame::Data { message, .. }, .. } if !message.is_intact() => {
                peer.connection.handle_damage(Damage::Here, out);
            }
            TreeEdgeEvent::Frame { frame_path, frame, .. } => {
                if let Some(message) = peer.connection.handle_frame(now, frame_path, &frame, out) {
                    match PartialLeaderMessage::read(peer.partial.take(), message) {
                        ReassemblyResult::More(partial) => peer.partial = Some(partial),
                        ReassemblyResult::Whole(leader_message) => {
                            events.push(MeshEvent::Message { from, leader_message })
                        }
                        ReassemblyResult::Malformed => self.malformed += 1,
                    }
                }
            }
            TreeEdgeEvent::Damage { .. } => {
                peer.connection.handle_damage(Damage::Here, out);
            }
            TreeEdgeEvent::Multicast { .. } => {} // The mesh does not use multicast.
            TreeEdgeEvent::PathDown { path, .. } => peer.connection.handle_path_down(now, path, out),
            TreeEdgeEvent::PathUp { path, .. } => peer.connection.handle_path_up(now, path),
        }
        self.transmit(tree_edges, from);
    }

    /// The deadline of a rank's connection; [`Time::NEVER`] if it has none.
    fn deadline(&self, rank: Rank) -> Time {
        let peer = self.peers.get(&rank).filter(|peer| !peer.lost);
        peer.and_then(|peer| peer.connection.deadline()).unwrap_or(Time::NEVER)
    }

    /// Retransmits what is overdue; reports a rank that does not answer as lost.
    pub(super) fn handle_timeout(&mut self, tree_edges: &mut TreeEdges, rank: Rank, events: &mut Vec<MeshEvent>) {
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| !peer.lost) else { return };
        let now = tree_edges.clock().now();
        if peer.connection.handle_timeout(now, &mut |outgoing| self.frames.push(outgoing)).is_err() {
            let silence = peer.connection.silence(now);
            peer.lose();
            events.push(MeshEvent::Lost { rank, silence });
        }
        self.transmit(tree_edges, rank);
    }

    /// True if every rank that is not lost has acknowledged all messages.
    pub(super) fn is_drained(&self) -> bool {
        self.peers.values().all(|peer| peer.lost || peer.connection.outstanding() == 0)
    }

    /// The caller knows that a rank is lost.
    pub(super) fn lose(&mut self, rank: Rank) {
        self.peers.entry(rank).or_insert_with(MeshPeer::silent).lose();
    }

    /// A rank has left: nothing is retransmitted to it. Its earlier messages may still arrive.
    pub(super) fn release(&mut self, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(&rank) {
            peer.connection.abandon();
            self.touched.push(rank);
        }
    }

    /// A rank whose connection was used since the last call, and its deadline.
    pub(super) fn next_touched(&mut self) -> Option<(Rank, Time)> {
        let rank = self.touched.pop()?;
        Some((rank, self.deadline(rank)))
    }

    fn transmit(&mut self, tree_edges: &mut TreeEdges, to: Rank) {
        if self.touched.last() != Some(&to) {
            self.touched.push(to);
        }
        for outgoing in self.frames.drain(..) {
            tree_edges.transmit(mesh_qp(to), &outgoing);
        }
    }
}

/// The number of the connection to a rank.
pub(super) fn mesh_qp(rank: Rank) -> QpNumber {
    QpNumber(FIRST_MESH_QP + rank.0)
}

/// The rank of a connection; none if the number is below those of meshes.
pub(super) fn mesh_rank(number: QpNumber) -> Option<Rank> {
    number.0.checked_sub(FIRST_MESH_QP).map(Rank)
}

impl MeshPeer {
    fn silent() -> Self {
        Self { connection: Connection::new(edge_policy()), partial: None, lost: false }
    }

    /// A peer that is reached over all common paths.
    fn new(config: &MeshConfig, tree_edges: &TreeEdges, rank: Rank) -> Self {
        let mut peer = Self::silent();
        let paths = config.addresses.get(rank.index()).map_or(0, |addresses| tree_edges.routes_to(addresses).len());
        if paths > 1 {
            let role = if config.me < rank { MigrationRole::Leader } else { MigrationRole::Follower };
            let paths = Paths::new(PathPolicy::default(), role, paths, tree_edges.clock().now());
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
