//! Several groups in one fabric: each does a list of operations of different kinds and sizes, all at the same time.
//!
//! In: a fabric, its constants, a fault plan, and groups of hosts with their operations. Out: every result and failure, passed to a
//! [`SharedFabricObserver`], and what is left in the fabric at the end. Operations use an aggregation tree or the algorithms among
//! hosts, as in [`crate::collective`] and [`crate::segmented`]; a group may use both in turn.
//!
//! A group does what its leaders do in the runtime. If its tree fails, the hosts finish the operation in the order of the tree (P-59),
//! and the next operation that wants a tree gets a new one, which avoids what is down. If hosts cannot reach each other, the operation
//! fails at every host that lacks its result, and the next one starts over new connections.
//!
//! `group` has what a group does, `group_run` lets it do so, `tree_setup` translates its operations, `reporters` pass its events to the observer, and `driver_set` gives each
//! packet and timer to the driver that sent or set it.

mod driver_set;
mod group;
mod group_run;
mod reporters;
mod run_defect;
#[cfg(test)]
mod tests;
mod tree_setup;

use std::sync::Arc;

use topology::Fabric;
use units::{SimSpan, SimTime};

pub use group::{
    AfterFailure, FabricGroup, FoldReference, GroupMethod, GroupOperation, GroupSegment, SharedFabricObserver,
};

use crate::counters::FabricCounters;
use crate::fault::{FaultPlan, FaultPlanError};
use crate::network::{LinkParameters, SimulatedNetwork};
use crate::residue::FabricResidue;
use driver_set::{DriverSet, WAKE_UP};
use group::NoFabricObserver;
use group_run::{GroupRun, GroupRunState};

/// A fabric and the groups that share it.
pub struct SharedFabric {
    network: SimulatedNetwork,
    drivers: DriverSet,
    groups: Vec<GroupRun>,
    /// The run stops after so many packet hops.
    max_hops: u64,
    /// The last timer that only lets time pass.
    wake_up: Option<SimTime>,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedFabricEnd {
    /// Every operation of every group has completed or failed.
    Finished,
    /// An operation of this group did not end in time, or no event could end it.
    Hung {
        /// The group.
        group: usize,
        /// The position of the operation.
        operation: usize,
    },
    /// More packet hops than allowed: packets multiply.
    PacketStorm,
}

/// What is left when every operation of every group is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedResidue {
    /// In the machines of each group.
    pub groups: Vec<FabricResidue>,
    /// In the fabric.
    pub network: FabricResidue,
}

impl SharedResidue {
    /// Whether nothing leaked.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().chain([&self.network]).all(|residue| *residue == FabricResidue::default())
    }
}

impl SharedFabric {
    /// Sets up a fabric with groups.
    ///
    /// # Errors
    /// If the plan does not match the fabric.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        groups: Vec<FabricGroup>,
        plan: &FaultPlan,
        seed: u64,
    ) -> Result<Self, FaultPlanError> {
        let mut network = SimulatedNetwork::new(fabric, link);
        network.set_faults(plan, seed)?;
        let groups = (0..).zip(groups).map(|(index, group)| GroupRun::new(index, group, seed)).collect();
        Ok(Self { network, drivers: DriverSet::default(), groups, max_hops: u64::MAX, wake_up: None })
    }

    /// Stops the run after so many packet hops.
    pub fn limit_hops(&mut self, max_hops: u64) {
        self.max_hops = max_hops;
    }

    /// Breaks all machines on purpose, to test that the oracle detects it.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: crate::sabotage::FabricSabotage) {
        self.drivers.defect.sabotage = Some(sabotage);
    }

    /// Runs all operations of all groups; stops if one hangs, or if there are too many packets.
    pub fn run(&mut self, observer: &mut dyn SharedFabricObserver) -> SharedFabricEnd {
        loop {
            self.drivers.needs_attention = false;
            for group in &mut self.groups {
                group.advance(&mut self.network, &mut self.drivers, observer);
            }
            if self.groups.iter().all(|group| group.state() == GroupRunState::Finished) {
                return SharedFabricEnd::Finished;
            }
            let waiting = self.groups.iter().map(GroupRun::wake_at).min().unwrap_or(SimTime::NEVER);
            self.wake_at(waiting.max(self.network.now()));
            let max_hops = self.max_hops;
            self.network.run(&mut self.drivers, |drivers, network| {
                drivers.needs_attention || network.now() >= waiting || network.counters.hops > max_hops
            });
            if self.network.counters.hops > max_hops {
                return SharedFabricEnd::PacketStorm;
            }
            let now = self.network.now();
            if let Some(hung) = self.groups.iter().find(|group| group.is_hung(now)) {
                return SharedFabricEnd::Hung { group: hung.index(), operation: hung.operation() };
            }
        }
    }

    /// Sets the timer that lets time pass until then; the timer of an earlier call may do.
    fn wake_at(&mut self, time: SimTime) {
        if self.wake_up != Some(time) {
            self.wake_up = Some(time);
            self.network.set_driver(WAKE_UP);
            self.network.set_timer(time, 0);
        }
    }

    /// After the run: waits until nothing is in flight and everything is acknowledged, at most for `patience`, and returns what is
    /// left in the fabric and in the machines of each group.
    pub fn settle(&mut self, patience: SimSpan) -> SharedResidue {
        self.wait_until_idle(patience);
        let has_slots = |group: &&mut GroupRun| self.drivers.residue_of(group.index()).slots > 0;
        let with_slots: Vec<&mut GroupRun> = self.groups.iter_mut().filter(has_slots).collect();
        if !with_slots.is_empty() {
            for group in with_slots {
                group.begin_flush(&mut self.network, &mut self.drivers);
            }
            // A flush that hangs leaves its slots behind.
            self.run(&mut NoFabricObserver);
            self.wait_until_idle(patience);
        }
        let groups = (0..self.groups.len()).map(|group| self.drivers.residue_of(group)).collect();
        SharedResidue { groups, network: self.network.residue() }
    }

    fn wait_until_idle(&mut self, patience: SimSpan) {
        let end = self.network.now() + patience;
        self.network.set_driver(WAKE_UP);
        self.network.set_timer(end, 0);
        let groups = self.groups.len();
        let is_idle =
            |drivers: &DriverSet| (0..groups).all(|group| drivers.residue_of(group) == FabricResidue::default());
        let max_hops = self.max_hops;
        let is_settled = |drivers: &DriverSet, network: &SimulatedNetwork| {
            network.now() >= end
                || network.counters.hops > max_hops
                || network.packets_in_flight() == 0 && is_idle(drivers)
        };
        while !is_settled(&self.drivers, &self.network) {
            self.drivers.needs_attention = false;
            self.network
                .run(&mut self.drivers, |drivers, network| drivers.needs_attention || is_settled(drivers, network));
            for group in &mut self.groups {
                group.drop_lost_connections(&mut self.drivers);
            }
        }
    }

    /// Members of all groups.
    pub fn members(&self) -> u32 {
        self.groups.iter().map(GroupRun::ranks).sum()
    }

    pub(crate) fn network(&self) -> &SimulatedNetwork {
        &self.network
    }

    pub(crate) fn network_mut(&mut self) -> &mut SimulatedNetwork {
        &mut self.network
    }

    /// The present time.
    pub fn now(&self) -> SimTime {
        self.network.now()
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// Trees that failed and were replaced, or left.
    pub fn failed_trees(&self) -> u32 {
        self.groups.iter().map(GroupRun::failed_trees).sum()
    }

    /// Operations that wanted a tree while none could be placed around what was down.
    pub fn operations_without_tree(&self) -> u32 {
        self.groups.iter().map(GroupRun::operations_without_tree).sum()
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}
