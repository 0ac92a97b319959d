//! Hosts that exchange messages over queue pairs in the simulated fabric.
//!
//! In: a fabric, its constants, a fault plan, connections and what their ends say. Out: every message that was sent and
//! that came, handed to a [`QueuePairObserver`] that may judge it; what became of each end. The machines are those of
//! `protocol::queue_pair`; rules P-27 to P-40.

mod application;
mod driver;
mod parameters;
mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::connection::path::{MigrationCause, PathEvent, PathState};
use protocol::queue_pair::{QpError, QpState};
use topology::{Fabric, FlowPath, NodeId};
use units::{PathId, SimSpan, SimTime};

pub use parameters::{
    ConnectionEndPlan, ConnectionPlan, LinkNotification, MAX_MESSAGE_BYTES, MessagePlan, MessageVerb,
    QueuePairRunParameters,
};
pub use program::{HostProgram, ProgramReport, ProgramStep};

use crate::counters::FabricCounters;
use crate::fault::{FaultPlan, FaultPlanError};
use crate::network::{LinkParameters, SimulatedNetwork};
use driver::QueuePairDriver;

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u32);

impl StreamId {
    /// What an end says; ends are numbered, two for each connection.
    pub fn from(end: usize) -> Self {
        Self(end as u32)
    }

    /// What an end hears.
    pub fn to(end: usize) -> Self {
        Self(end as u32 ^ 1)
    }

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Sees what goes in and what comes out.
pub trait QueuePairObserver {
    /// An application has posted a message.
    fn sent(&mut self, stream: StreamId, message: &[u8]);
    /// A message has come.
    fn delivered(&mut self, stream: StreamId, message: &[u8]);
    /// An end of the stream was told that it is broken.
    fn failed(&mut self, stream: StreamId, cause: &str);
}

/// Why an exchange cannot be set up.
#[derive(Debug)]
pub enum TransportSetupError {
    /// The fault plan does not fit the fabric.
    Plan(FaultPlanError),
    /// The fabric does not join these hosts.
    NoWay {
        /// From here.
        from: NodeId,
        /// To there.
        to: NodeId,
    },
    /// A number is outside its range.
    OutOfRange(&'static str),
}

impl fmt::Display for TransportSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => write!(f, "fault plan: {error}"),
            Self::NoWay { from, to } => write!(f, "no way leads from {from:?} to {to:?}"),
            Self::OutOfRange(what) => write!(f, "out of range: {what}"),
        }
    }
}

impl std::error::Error for TransportSetupError {}

/// What became of one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionEndReport {
    /// The state of its queue pair.
    pub state: QpState,
    /// The state of migration.
    pub path_state: PathState,
    /// The path that it sends on.
    pub path: PathId,
    /// How often it moved, by cause.
    pub migrations: BTreeMap<MigrationCause, u32>,
    /// How often an alternate was armed, a path lost, a path found again, and nowhere was left to go.
    pub armed: u32,
    /// See [`Self::armed`].
    pub lost: u32,
    /// See [`Self::armed`].
    pub recovered: u32,
    /// See [`Self::armed`].
    pub stranded: u32,
    /// Messages that are known to have come.
    pub sent: u64,
    /// Messages that came.
    pub received: u64,
    /// When the last of both was.
    pub last: SimTime,
    /// When and why it failed.
    pub failed_at: Option<SimTime>,
    /// See [`Self::failed_at`].
    pub failure: Option<QpError>,
}

impl Default for ConnectionEndReport {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            path_state: PathState::Migrated,
            path: PathId(0),
            migrations: BTreeMap::new(),
            armed: 0,
            lost: 0,
            recovered: 0,
            stranded: 0,
            sent: 0,
            received: 0,
            last: SimTime::ZERO,
            failed_at: None,
            failure: None,
        }
    }
}

impl ConnectionEndReport {
    fn note(&mut self, event: PathEvent) {
        match event {
            PathEvent::Armed(_) => self.armed += 1,
            PathEvent::Migrated { cause, .. } => *self.migrations.entry(cause).or_default() += 1,
            PathEvent::MigrationFailed(_) => self.stranded += 1,
            PathEvent::Recovered(_) => self.recovered += 1,
            PathEvent::Lost(_) => self.lost += 1,
        }
    }
}

/// An exchange, set up and ready to run.
pub struct SimulatedQueuePairs<W> {
    network: SimulatedNetwork,
    driver: QueuePairDriver<W>,
    connections: usize,
}

impl<W: QueuePairObserver> SimulatedQueuePairs<W> {
    /// Sets up the hosts and their queue pairs.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan do not go together.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: &QueuePairRunParameters,
        plan: &FaultPlan,
        seed: u64,
        witness: W,
    ) -> Result<Self, TransportSetupError> {
        let mut network = SimulatedNetwork::new(fabric, LinkParameters { adapter_lanes: 1, ..link });
        network.set_faults(plan, seed).map_err(TransportSetupError::Plan)?;
        let mut driver = QueuePairDriver::new(&network, parameters, seed, witness)?;
        driver.start(&mut network);
        Ok(Self { network, driver, connections: parameters.connections.len() })
    }

    /// Runs until every message has come and is known to have come. False if that takes longer than it may.
    pub fn run_until_delivered(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_delivered)
    }

    /// Runs until every program has done its last step and everything that was sent has come. False if that takes longer
    /// than it may.
    pub fn run_until_finished(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_finished)
    }

    /// Runs until both ends of a connection have an alternate path armed. False if that takes longer than it may.
    pub fn run_until_armed(&mut self, connection: usize, limit: SimSpan) -> bool {
        self.run(limit, |driver| driver.is_armed(connection))
    }

    /// Runs until every end has failed. False if that takes longer than it may.
    pub fn run_until_broken(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_broken)
    }

    fn run(&mut self, limit: SimSpan, done: impl Fn(&QueuePairDriver<W>) -> bool) -> bool {
        let end = self.network.now() + limit;
        self.network.run(&mut self.driver, |driver, network| done(driver) || network.now() > end);
        done(&self.driver)
    }

    /// Virtual time.
    pub fn now(&self) -> SimTime {
        self.network.now()
    }

    /// What became of each connection's two ends.
    pub fn reports(&self) -> impl Iterator<Item = [ConnectionEndReport; 2]> + '_ {
        (0..self.connections).map(|number| [self.driver.report(2 * number), self.driver.report(2 * number + 1)])
    }

    /// What became of each program.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramReport> {
        self.driver.programs()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }

    /// Who saw it all.
    pub fn into_witness(self) -> W {
        self.driver.witness
    }

    /// Breaks one end on purpose, for the test that the oracle notices.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, end: usize, sabotage: protocol::queue_pair::QpSabotage) {
        self.driver.sabotage(end, sabotage);
    }
}

/// The way that packets of a path take out of `from`, and the way back to it: those that the topology finds most disjoint
/// (P-31). Past the last there is, they come round again; none if no way leads there.
pub fn way(fabric: &Fabric, from: NodeId, to: NodeId, path: PathId) -> Option<[FlowPath; 2]> {
    let ways = fabric.ways(from, to, path.index() + 1);
    ways.get(path.index() % ways.len().max(1)).cloned()
}

fn check(fabric: &Fabric, plan: &ConnectionPlan) -> Result<(), TransportSetupError> {
    let [one, other] = &plan.ends;
    if !fabric.is_host(one.host) || !fabric.is_host(other.host) || one.host == other.host {
        return Err(TransportSetupError::OutOfRange("ends: two different hosts of the fabric"));
    }
    if !(1..=units::limits::MAX_PATHS).contains(&usize::from(plan.paths)) {
        return Err(TransportSetupError::OutOfRange("paths: 1 to 16"));
    }
    let mtus = units::limits::MIN_MTU..=units::limits::MAX_MTU;
    if !plan.mtu.is_power_of_two() || !mtus.contains(&plan.mtu) {
        return Err(TransportSetupError::OutOfRange("mtu: 256, 512, 1024, 2048 or 4096"));
    }
    for end in &plan.ends {
        if end.messages.iter().any(|message| message.length > MAX_MESSAGE_BYTES) {
            return Err(TransportSetupError::OutOfRange("length: at most 1 MiB"));
        }
        let most = protocol::queue_pair::MAX_POSTED_REQUESTS;
        if end.sends_at_once == 0 || end.sends_at_once > most || end.receives == 0 || end.receives as usize > most {
            return Err(TransportSetupError::OutOfRange("sends at once and receives: 1 to 16384"));
        }
    }
    Ok(())
}
