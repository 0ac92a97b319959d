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
//! `group` has what a group does, `group_run` lets it do so, `reporters` pass its events to the observer, and `driver_set` gives each
//! packet and timer to the driver that sent or set it.

mod driver_set;
mod group;
mod group_run;
mod reporters;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use topology::Fabric;
use units::{SimSpan, SimTime};

pub use group::{FabricGroup, FoldReference, GroupMethod, GroupOperation, GroupSegment, SharedFabricObserver};

use crate::counters::FabricCounters;
use crate::fault::{FaultPlan, FaultPlanError};
use crate::network::{LinkParameters, SimulatedNetwork};
use crate::residue::FabricResidue;
use driver_set::{DriverSet, WAKE_UP};
use group_run::{GroupRun, GroupRunState};

/// A fabric and the groups that share it.
pub struct SharedFabric {
    network: SimulatedNetwork,
    drivers: DriverSet,
    groups: Vec<GroupRun>,
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
        Ok(Self { network, drivers: DriverSet::default(), groups })
    }

    /// Breaks all machines on purpose, to test that the oracle detects it.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: crate::sabotage::FabricSabotage) {
        self.drivers.sabotage = Some(sabotage);
    }

    /// Runs all operations of all groups; stops if one hangs.
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
            self.network.set_driver(WAKE_UP);
            self.network.set_timer(waiting.max(self.network.now()), 0);
            self.network
                .run(&mut self.drivers, |drivers, network| drivers.needs_attention || network.now() >= waiting);
            let now = self.network.now();
            if let Some(hung) = self.groups.iter().find(|group| group.is_hung(now)) {
                return SharedFabricEnd::Hung { group: hung.index(), operation: hung.operation() };
            }
        }
    }

    /// After the run: waits until nothing is in flight and everything is acknowledged, at most for `patience`, and returns what is
    /// left in the fabric and in the machines that groups use.
    pub fn settle(&mut self, patience: SimSpan) -> FabricResidue {
        let end = self.network.now() + patience;
        self.network.set_driver(WAKE_UP);
        self.network.set_timer(end, 0);
        let residue = |drivers: &DriverSet, network: &SimulatedNetwork| {
            drivers
                .residue()
                .plus(FabricResidue { packets: network.packets_in_flight() as u64, ..Default::default() })
        };
        let is_settled = |drivers: &DriverSet, network: &SimulatedNetwork| {
            network.now() >= end
                || network.packets_in_flight() == 0 && residue(drivers, network) == FabricResidue::default()
        };
        while !is_settled(&self.drivers, &self.network) {
            self.drivers.needs_attention = false;
            self.network
                .run(&mut self.drivers, |drivers, network| drivers.needs_attention || is_settled(drivers, network));
            for group in &mut self.groups {
                group.drop_lost_connections(&mut self.drivers);
            }
        }
        self.drivers.residue().plus(self.network.residue())
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

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}
