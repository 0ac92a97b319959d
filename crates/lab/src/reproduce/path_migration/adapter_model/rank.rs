//! A rank of the paper's MPI: its program, and what it knows of its peers. `mpi_progress` moves it on.

use std::collections::{BTreeMap, VecDeque};

use super::connection::FirmwareJob;
use super::packet::{MpiPacket, Nanos};

#[derive(Clone, Copy, Debug)]
pub(super) enum RankStep {
    Compute(Nanos),
    /// Starts a send, or a receive of the next message of a peer.
    Send {
        peer: usize,
        bytes: u64,
    },
    Post {
        peer: usize,
    },
    /// Waits for the next posted receive from a peer, and for all own sends.
    Receive {
        peer: usize,
    },
    WaitSent,
    /// Requests a transition of all own queue pairs.
    Request(FirmwareJob),
    Mark,
}

/// What a rank knows of a peer.
#[derive(Default)]
pub(super) struct RankPeer {
    /// Own ends of the queue pairs to it, used in turn; none if it is on the same host.
    pub ends: Vec<usize>,
    pub used: usize,
    pub sent: u64,
    /// Arrived out of order, and the next number to match.
    pub early: BTreeMap<u64, MpiPacket>,
    pub expected: u64,
    pub posted: usize,
    pub received: usize,
}

pub(super) struct RankState {
    pub peers: Vec<RankPeer>,
    pub steps: Vec<RankStep>,
    pub next: usize,
    pub is_computing: bool,
    /// CTS that wait for a call.
    pub clear: VecDeque<MpiPacket>,
    /// Long sends without an acknowledgement.
    pub sending: usize,
    pub marks: Vec<Nanos>,
}

impl RankState {
    pub(super) fn new(ranks: usize, steps: Vec<RankStep>) -> Self {
        Self {
            peers: (0..ranks).map(|_| RankPeer::default()).collect(),
            steps,
            next: 0,
            is_computing: false,
            clear: VecDeque::new(),
            sending: 0,
            marks: Vec::new(),
        }
    }

    pub(super) fn add_queue_pair(&mut self, peer: usize, end: usize) {
        self.peers[peer].ends.push(end);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.next == self.steps.len()
    }
}
