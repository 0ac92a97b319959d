//! Collectives among hosts alone, on the same fabric and with the same hosts as those in the network.
//!
//! In: an algorithm, what hosts take ([`HostCosts`]) and how many calls. Out: how long a call takes, as the mean over hosts
//! and calls. Every host plays its part with a [`ScheduleExecutor`], the machine that the runtime plays with; this module only brings
//! the messages. A message costs its sender's processor the time to post it and its receiver's the time to take it, and
//! travels in packets of the path MTU, with a datagram's headers. Nothing is lost here, so nothing is repeated.

mod driver;

use std::fmt;
use std::sync::Arc;

use protocol::Payload;
use protocol::collective::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, ScheduleError, ScheduleExecutor,
};
use topology::Fabric;
use units::Rank;

use crate::collective::{CallLatency, CallWorkload};
use crate::network::{LinkParameters, SimulatedNetwork};
use crate::processor::{HostCosts, TransportService};
use driver::HostCollectiveDriver;

/// What hosts do among themselves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostCollectiveParameters {
    /// How.
    pub algorithm: CollectiveAlgorithm,
    /// What.
    pub collective: CollectiveOperation,
    /// Bytes of each host's vector.
    pub bytes: u32,
    /// Most payload of one packet.
    pub mtu: u32,
    /// What a host takes.
    pub costs: HostCosts,
    /// How messages reach it.
    pub way: TransportService,
}

/// Why hosts cannot do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCollectiveSetupError {
    /// The parts of the plan do not go together.
    Plan(ScheduleError),
    /// Packets without payload would never carry anything.
    NoMtu,
}

impl fmt::Display for HostCollectiveSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::NoMtu => f.write_str("an MTU of 0 bytes"),
        }
    }
}

impl std::error::Error for HostCollectiveSetupError {}

/// All hosts of a fabric, ready to call. Rank `n` is host `n`.
pub struct HostCollective {
    network: SimulatedNetwork,
    parameters: HostCollectiveParameters,
}

impl HostCollective {
    /// Sets it up.
    ///
    /// # Errors
    /// If the algorithm does not suit the collective, or the like.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: HostCollectiveParameters,
    ) -> Result<Self, HostCollectiveSetupError> {
        if parameters.mtu == 0 {
            return Err(HostCollectiveSetupError::NoMtu);
        }
        parameters.player(Rank(0), fabric.hosts()).map_err(HostCollectiveSetupError::Plan)?;
        Ok(Self { network: SimulatedNetwork::new(fabric, link), parameters })
    }

    /// Runs so many calls by all hosts (vectors are not cut: `segments` is not looked at); none if one never ended.
    pub fn measure(&mut self, calls: CallWorkload, seed: u64) -> Option<CallLatency> {
        HostCollectiveDriver::new(&self.network, self.parameters, calls, seed).run(&mut self.network)
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}

impl HostCollectiveParameters {
    fn player(&self, rank: Rank, ranks: u32) -> Result<ScheduleExecutor, ScheduleError> {
        let plan = CollectiveSchedule::new(self.algorithm, self.collective, rank, ranks, self.bytes)?;
        ScheduleExecutor::new(plan, Payload::Absent { bytes: self.bytes })
    }
}
