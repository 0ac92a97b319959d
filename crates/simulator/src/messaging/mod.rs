//! Hosts that send each other tagged, checksummed messages over several rails in the simulated fabric.
//!
//! In: a fabric, its constants, a fault plan, and the commands of each host. Out: every sent and received message, passed to a
//! [`MessagingObserver`]. The machines are those of `protocol::messaging` on queue pairs of `protocol::queue_pair`. Besides the faults
//! of the plan, packets are corrupted where no frame's CRC can detect it: in the sender's adapter before the CRC is computed, and in
//! the receiver's memory after it was checked (rules P-62 to P-75).

mod driver;
mod observer;
mod parameters;
mod processor_schedule;
mod rail;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use protocol::messaging::MessagingCounters;
use topology::Fabric;
use units::{SimSpan, SimTime};

pub use observer::MessagingObserver;
pub use parameters::{CorruptionPoint, MessagingCommand, MessagingCosts, MessagingOperation, MessagingRunParameters};

pub use crate::packet_body::PacketFraming;
pub use crate::queue_pair::{LinkNotification, TransportSetupError};

use crate::counters::FabricCounters;
use crate::fault::FaultPlan;
use crate::network::{LinkParameters, SimulatedNetwork};
use driver::MessagingDriver;

/// A messaging run, ready to start.
pub struct SimulatedMessaging<W> {
    network: SimulatedNetwork,
    driver: MessagingDriver<W>,
}

impl<W: MessagingObserver> SimulatedMessaging<W> {
    /// Sets up the hosts, their endpoints and the rails between them.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan contradict each other.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: &MessagingRunParameters,
        plan: &FaultPlan,
        seed: u64,
        observer: W,
    ) -> Result<Self, TransportSetupError> {
        let mut network = SimulatedNetwork::new(fabric, LinkParameters { adapter_lanes: 1, ..link });
        network.set_faults(plan, seed).map_err(TransportSetupError::Plan)?;
        let mut driver = MessagingDriver::new(&network, parameters, seed, observer)?;
        driver.start(&mut network);
        Ok(Self { network, driver })
    }

    /// Runs until every command has run and every send and receive has ended; false if that takes longer than `limit`.
    pub fn run(&mut self, limit: SimSpan) -> bool {
        let end = self.network.now() + limit;
        self.network.run(&mut self.driver, |driver, network| driver.is_finished() || network.now() > end);
        self.driver.is_finished()
    }

    /// The present simulated time.
    pub fn now(&self) -> SimTime {
        self.network.now()
    }

    /// Packets that were corrupted on purpose.
    pub fn corrupted_packets(&self) -> u64 {
        self.driver.corrupted
    }

    /// The counters of each rank's endpoint.
    pub fn ports(&self) -> impl Iterator<Item = MessagingCounters> {
        self.driver.ports()
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
}
