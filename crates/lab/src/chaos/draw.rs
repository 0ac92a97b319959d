//! Draws a round from a seed: first a cluster, then what the case does to it.

use std::time::Duration;

use faults::RandomStream;
use namespaces::hosts::Direction;

use super::plan::{ChaosAction, ChaosPlan, ClusterShape, ExpectedOutcome, LinkChange, TimedAction};
use super::rank::AfterLoss;

/// The workload runs alone for at least so long.
const CALM_MILLIS: u64 = 400;
/// The first action of each fault comes within this time after that.
const FAULT_WINDOW_MILLIS: u64 = 1_200;
/// From the last action to the end of the workload.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Ranks of a round: more would wait for the processors of a small machine.
const MAX_RANKS: u32 = 6;

/// A round that is being drawn.
pub(super) struct RoundDraw {
    pub shape: ClusterShape,
    pub expectation: ExpectedOutcome,
    pub settle: Duration,
    pub returns_to: Option<u32>,
    case: &'static str,
    seed: u64,
    after_loss: AfterLoss,
    actions: Vec<TimedAction>,
    stream: RandomStream,
    drawn: u64,
}

impl RoundDraw {
    /// A cluster to which nothing happens.
    pub(super) fn new(case: &'static str, seed: u64) -> Self {
        let purpose = case.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
        let shape = ClusterShape {
            hosts: 2,
            ranks_per_host: 1,
            nodes: 0,
            links: 1,
            mtu_bytes: 9_000,
            algorithm: None,
            small_shm: None,
            few_descriptors: None,
        };
        let mut round = Self {
            shape,
            expectation: ExpectedOutcome::Completes,
            settle: SETTLE,
            returns_to: None,
            case,
            seed,
            after_loss: AfterLoss::End,
            actions: Vec::new(),
            stream: RandomStream::new(seed, purpose),
            drawn: 0,
        };
        round.draw_shape();
        round
    }

    fn draw_shape(&mut self) {
        self.shape.hosts = 2 + self.below(3) as u32;
        self.shape.ranks_per_host = 1 + self.below(u64::from(MAX_RANKS / self.shape.hosts)) as u32;
        self.shape.nodes = self.pick(&[0, 1, 2, 3]);
        self.shape.links = self.pick(&[1, 2]);
        self.shape.mtu_bytes = self.pick(&[1_500, 9_000]);
        self.shape.algorithm = self.pick(&[None, None, Some("aggregation"), Some("hosts")]);
        self.after_loss = self.pick(&[AfterLoss::End, AfterLoss::Shrink]);
    }

    /// The plan, with its actions in order.
    pub(super) fn finish(mut self) -> ChaosPlan {
        if self.shape.nodes == 0 && self.shape.algorithm == Some("aggregation") {
            self.shape.algorithm = None;
        }
        self.actions.sort_by_key(|timed| timed.at);
        ChaosPlan {
            case: self.case,
            seed: self.seed,
            shape: self.shape,
            actions: self.actions,
            expectation: self.expectation,
            after_loss: self.after_loss,
            settle: self.settle,
            returns_to: self.returns_to,
        }
    }

    /// In `0..bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        self.stream.below(self.drawn, bound)
    }

    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// True once in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A moment at which something may begin.
    pub(super) fn moment(&mut self) -> Duration {
        Duration::from_millis(CALM_MILLIS + self.below(FAULT_WINDOW_MILLIS))
    }

    pub(super) fn duration(&mut self, least_millis: u64, most_millis: u64) -> Duration {
        between_millis(least_millis, most_millis, self.below(u64::MAX))
    }

    /// At least so many nodes, which are used.
    pub(super) fn with_nodes(&mut self, least: u32) {
        self.shape.nodes = self.shape.nodes.max(least);
        self.shape.algorithm = self.pick(&[None, Some("aggregation"), Some("aggregation")]);
    }

    pub(super) fn with_two_links(&mut self) {
        self.shape.links = 2;
    }

    /// At least so many hosts with so many ranks each, and not many more.
    pub(super) fn at_least_hosts(&mut self, hosts: u32, ranks_per_host: u32) {
        self.shape.hosts = self.shape.hosts.max(hosts);
        let room = (MAX_RANKS / self.shape.hosts).max(1);
        self.shape.ranks_per_host = self.shape.ranks_per_host.min(room).max(ranks_per_host);
    }

    pub(super) fn at_least_ranks(&mut self, ranks: u32) {
        if self.shape.ranks() < ranks {
            self.shape.ranks_per_host = ranks.div_ceil(self.shape.hosts);
        }
    }

    /// A host of ranks.
    pub(super) fn host(&mut self) -> u32 {
        self.below(u64::from(self.shape.hosts)) as u32
    }

    /// A host of ranks or of a node.
    pub(super) fn any_data_host(&mut self) -> usize {
        let drawn = self.below(u64::from(self.shape.hosts + self.shape.nodes)) as u32;
        if drawn < self.shape.hosts { drawn as usize } else { self.shape.node_host(drawn - self.shape.hosts) }
    }

    pub(super) fn link(&mut self) -> u32 {
        self.below(u64::from(self.shape.links)) as u32
    }

    pub(super) fn one_direction(&mut self) -> Direction {
        self.pick(&[Direction::In, Direction::Out])
    }

    /// At some moment.
    pub(super) fn soon(&mut self, action: ChaosAction) {
        let at = self.moment();
        self.act(at, action);
    }

    pub(super) fn act(&mut self, at: Duration, action: ChaosAction) {
        self.actions.push(TimedAction { at, action });
    }

    pub(super) fn change(&mut self, at: Duration, host: usize, link: u32, change: LinkChange) {
        self.act(at, ChaosAction::Link { host, link, change });
    }

    /// The same change of all links of a host.
    pub(super) fn every_link(&mut self, host: u32, at: Duration, change: &LinkChange) {
        (0..self.shape.links).for_each(|link| self.change(at, host as usize, link, change.clone()));
    }

    /// A change of a link that is undone after a time.
    pub(super) fn transient(&mut self, host: usize, link: u32, cut: LinkChange, heal: LinkChange) {
        let at = self.moment();
        self.change(at, host, link, cut);
        let back = at + self.duration(500, 3_000);
        self.change(back, host, link, heal);
    }
}

/// A duration between these, chosen by a random number.
pub(super) fn between_millis(least: u64, most: u64, random: u64) -> Duration {
    Duration::from_millis(least + random % (most - least + 1))
}
