//! Hosts that exchange messages over queue pairs in the simulated fabric.
//!
//! In: a fabric, its constants, a fault plan, connections and the messages of their ends. Out: every sent and delivered message,
//! passed to a [`QueuePairObserver`], and a report of each end. The machines are those of `protocol::queue_pair`; rules P-10 to P-27.

mod application;
mod driver;
mod observer;
mod parameters;
mod program;
mod program_step;
mod report;
mod setup_error;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use topology::Fabric;
use units::{SimSpan, SimTime};

pub use crate::path_channels::path_route;
pub use observer::{QueuePairObserver, StreamId};
pub use parameters::{
    ConnectionEndPlan, ConnectionPlan, LinkNotification, MAX_MESSAGE_BYTES, MessagePlan, MessageVerb,
    QueuePairRunParameters,
};
pub use program::ProgramReport;
pub use program_step::{HostProgram, ProgramStep};
pub use report::ConnectionEndReport;
pub use setup_error::TransportSetupError;

use crate::counters::FabricCounters;
use crate::fault::FaultPlan;
use crate::network::{LinkParameters, SimulatedNetwork};
use driver::QueuePairDriver;

/// A run of connections, ready to start.
pub struct SimulatedQueuePairs<W> {
    network: SimulatedNetwork,
    driver: QueuePairDriver<W>,
    connections: usize,
}

impl<W: QueuePairObserver> SimulatedQueuePairs<W> {
    /// Sets up the hosts and their queue pairs.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan contradict each other.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: &QueuePairRunParameters,
        plan: &FaultPlan,
        seed: u64,
        observer: W,
    ) -> Result<Self, TransportSetupError> {
        let mut network = SimulatedNetwork::new(fabric, LinkParameters { adapter_lanes: 1, ..link });
        network.set_faults(plan, seed).map_err(TransportSetupError::Plan)?;
        let mut driver = QueuePairDriver::new(&network, parameters, seed, observer)?;
        driver.start(&mut network);
        Ok(Self { network, driver, connections: parameters.connections.len() })
    }

    /// Runs until every message is delivered and acknowledged; false if that takes longer than `limit`.
    pub fn run_until_delivered(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_delivered)
    }

    /// Runs until every program has finished and every message is delivered; false if that takes longer than `limit`.
    pub fn run_until_finished(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_finished)
    }

    /// Runs until both ends of a connection have armed an alternate path; false if that takes longer than `limit`.
    pub fn run_until_armed(&mut self, connection: usize, limit: SimSpan) -> bool {
        self.run(limit, |driver| driver.is_armed(connection))
    }

    /// Runs until every end has failed; false if that takes longer than `limit`.
    pub fn run_until_broken(&mut self, limit: SimSpan) -> bool {
        self.run(limit, QueuePairDriver::is_broken)
    }

    fn run(&mut self, limit: SimSpan, done: impl Fn(&QueuePairDriver<W>) -> bool) -> bool {
        let end = self.network.now() + limit;
        self.network.run(&mut self.driver, |driver, network| done(driver) || network.now() > end);
        done(&self.driver)
    }

    /// The present simulated time.
    pub fn now(&self) -> SimTime {
        self.network.now()
    }

    /// The reports of each connection's two ends.
    pub fn reports(&self) -> impl Iterator<Item = [ConnectionEndReport; 2]> + '_ {
        (0..self.connections).map(|number| [self.driver.report(2 * number), self.driver.report(2 * number + 1)])
    }

    /// The report of each program.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramReport> {
        self.driver.programs()
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }

    /// Ends the run and returns the observer.
    pub fn into_observer(self) -> W {
        self.driver.observer
    }

    /// Breaks one end on purpose, to test that the oracle detects it.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, end: usize, sabotage: protocol::queue_pair::QpSabotage) {
        self.driver.sabotage(end, sabotage);
    }
}
