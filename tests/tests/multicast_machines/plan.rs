//! A plan: the tree, the calls of all members, and the faults, all determined by a seed.

use units::{Span, Time};

/// A seeded generator (SplitMix64, Steele 2014). A generator of its own keeps the seeds of found defects valid.
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with this probability, in thousandths.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Call {
    Broadcast { root: usize, folded: bool },
    Barrier,
    Sum,
}

#[derive(Clone, Debug)]
pub(crate) struct MulticastPlan {
    pub(crate) seed: u64,
    pub(crate) members: usize,
    /// Members of each leaf; a single leaf is the root.
    pub(crate) leaves: Vec<usize>,
    pub(crate) calls: Vec<Call>,
    pub(crate) loss: u64,
    pub(crate) duplicates: u64,
    pub(crate) late: u64,
    /// The most operations of a member in flight.
    pub(crate) depth: usize,
    /// A node that fails, and when.
    pub(crate) failure: Option<(usize, Time)>,
}

impl MulticastPlan {
    pub(crate) fn new(seed: u64, fails: bool) -> Self {
        let mut rng = TestRng(seed);
        let leaves: Vec<usize> = match rng.below(3) {
            0 => vec![2 + rng.below(7) as usize],
            _ => (0..2 + rng.below(2)).map(|_| 2 + rng.below(4) as usize).collect(),
        };
        let members = leaves.iter().sum();
        let mostly_multicasts = rng.chance(500);
        let call = |rng: &mut TestRng| match rng.below(if mostly_multicasts { 20 } else { 5 }) {
            0 => Call::Barrier,
            1 => Call::Sum,
            2 => Call::Broadcast { root: rng.below(members as u64) as usize, folded: true },
            _ => Call::Broadcast { root: rng.below(members as u64) as usize, folded: false },
        };
        let calls = (0..30 + rng.below(90)).map(|_| call(&mut rng)).collect();
        let nodes = if leaves.len() == 1 { 1 } else { leaves.len() + 1 };
        let loss = [0, 0, 10, 100, 300][rng.below(5) as usize];
        let duplicates = [0, 20, 200][rng.below(3) as usize];
        let late = [0, 50, 400][rng.below(3) as usize];
        let depth = 1 + rng.below(6) as usize;
        let failure = Time::ZERO + Span::from_micros(100 + rng.below(20_000));
        let failure = fails.then(|| (rng.below(nodes as u64) as usize, failure));
        Self { seed, members, leaves, calls, loss, duplicates, late, depth, failure }
    }
}

pub(crate) fn payload_of(call: usize) -> Vec<u8> {
    (0..8 + call % 5).map(|byte| (byte * 31 + call * 7) as u8).collect()
}

pub(crate) fn addend(rank: usize, call: usize) -> u64 {
    (rank as u64 + 1) * 1_000_003 + call as u64 * 17
}
