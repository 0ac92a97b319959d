//! Collectives among hosts alone, on the same fabric and with the same host model as in-network collectives.
//!
//! In: an algorithm, the host model ([`HostCosts`]) and a number of calls. Out: the latency of a call, as the mean over hosts and
//! calls. Every host runs a [`ScheduleExecutor`], the machine of the runtime; this module only transports its messages. A message
//! costs its sender's processor the time to post it and its receiver's the time to receive it, and travels in packets of the path
//! MTU with a datagram's headers. Nothing is lost, so nothing is retransmitted.

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

/// A collective among hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostCollectiveParameters {
    /// The algorithm.
    pub algorithm: CollectiveAlgorithm,
    /// The operation.
    pub collective: CollectiveOperation,
    /// Bytes of each host's vector.
    pub bytes: u32,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// The host model.
    pub costs: HostCosts,
    /// The transport service of the messages.
    pub service: TransportService,
}

/// Why the collective cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCollectiveSetupError {
    /// The schedule is invalid.
    Plan(ScheduleError),
    /// The MTU is 0.
    NoMtu,
}

impl fmt::Display for HostCollectiveSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::NoMtu => f.write_str("the MTU is 0 bytes; it must be at least 1"),
        }
    }
}

impl std::error::Error for HostCollectiveSetupError {}

/// A collective over all hosts of a fabric. Rank `n` is host `n`.
pub struct HostCollective {
    network: SimulatedNetwork,
    parameters: HostCollectiveParameters,
}

impl HostCollective {
    /// Sets up the hosts.
    ///
    /// # Errors
    /// If the schedule is invalid, for example because the algorithm does not support the operation.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: HostCollectiveParameters,
    ) -> Result<Self, HostCollectiveSetupError> {
        if parameters.mtu == 0 {
            return Err(HostCollectiveSetupError::NoMtu);
        }
        parameters.executor(Rank(0), fabric.hosts()).map_err(HostCollectiveSetupError::Plan)?;
        Ok(Self { network: SimulatedNetwork::new(fabric, link), parameters })
    }

    /// Runs the calls of a workload on all hosts (vectors are not segmented: `segments` is ignored); none if a call did not end.
    pub fn measure(&mut self, calls: CallWorkload, seed: u64) -> Option<CallLatency> {
        HostCollectiveDriver::new(&self.network, self.parameters, calls, seed).run(&mut self.network)
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}

impl HostCollectiveParameters {
    fn executor(&self, rank: Rank, ranks: u32) -> Result<ScheduleExecutor, ScheduleError> {
        let plan = CollectiveSchedule::new(self.algorithm, self.collective, rank, ranks, self.bytes)?;
        ScheduleExecutor::new(plan, Payload::SizeOnly { bytes: self.bytes })
    }
}
