//! Hosts that send each other tagged, sealed messages over several rails in the simulated fabric.
//!
//! In: a fabric, its constants, a fault plan, and what each host sends and receives when. Out: every message that was sent and
//! that came, handed to a [`MessagingObserver`] that may judge it. The machines are those of `protocol::messaging` on queue pairs of
//! `protocol::queue_pair`. Besides what the plan does to packets, parcels are spoiled where no packet's check can see it: in
//! the sender's adapter before the check is made, and in the receiver's memory after it was looked at (rules P-80 to P-93).

mod driver;
mod processor_schedule;
mod rail;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{MessageSelector, MessagingCounters as PortCounters, MessagingSettings};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime};

pub use crate::queue_pair::{LinkNotification, TransportSetupError};

use crate::counters::FabricCounters;
use crate::fault::FaultPlan;
use crate::network::{LinkParameters, SimulatedNetwork};
use driver::MessagingDriver;

/// Who talks, over what, and what is said.
#[derive(Clone, Debug)]
pub struct MessagingRunParameters {
    /// The hosts, one rank on each.
    pub hosts: Vec<NodeId>,
    /// Rails between each two of them.
    pub rails: u8,
    /// Paths of each rail; the first of rail `r` is the `r`-th best way.
    pub paths: u8,
    /// How connections behave.
    pub policy: ConnectionPolicy,
    /// How their paths are watched.
    pub path_policy: PathPolicy,
    /// Most payload of a packet.
    pub mtu: u32,
    /// How ports behave.
    pub settings: MessagingSettings,
    /// Whether hosts hear of their own cables.
    pub notice: LinkNotification,
    /// What their processors take to copy and to check; none: no time.
    pub costs: Option<MessagingCosts>,
    /// What they do, sorted by time.
    pub orders: Vec<MessagingCommand>,
}

/// What processors take. Each host has one, which does one thing after the other while the network goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagingCosts {
    /// Copying a byte, with its code if there is one, at either end; in picoseconds.
    pub copy_picos: u64,
    /// Handing over a parcel.
    pub gap: SimSpan,
    /// Of a parcel that has come, at most so many bytes are still to be copied: the others were copied while they came.
    pub left_bytes: usize,
    /// Looking at a byte of a whole message before anything is sent, and after all has come; in picoseconds.
    pub apart_picos: u64,
}

/// Something that a rank does.
#[derive(Clone, Copy, Debug)]
pub struct MessagingCommand {
    /// When.
    pub at: SimTime,
    /// Who.
    pub rank: Rank,
    /// What.
    pub action: MessagingOperation,
}

/// See [`MessagingCommand`].
#[derive(Clone, Copy, Debug)]
pub enum MessagingOperation {
    /// Sends a message.
    Send {
        /// To this rank.
        to: Rank,
        /// With this tag.
        tag: u64,
        /// Of so many bytes, which follow from the seed and the order's number.
        length: usize,
        /// What befalls the next parcel with a body from here to there.
        spoil: CorruptionPoint,
    },
    /// Posts a receive.
    Receive {
        /// For this.
        wanted: MessageSelector,
        /// With room for so much.
        room: usize,
    },
}

/// Where one bit of a parcel flips, out of sight of every packet's check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorruptionPoint {
    /// Nowhere.
    Nowhere,
    /// On its way into the sender's adapter, before packets are made of it.
    BeforeTheCheck,
    /// In the receiver's memory, after its packets were checked.
    AfterTheCheck,
}

/// Sees what goes in and what comes out.
pub trait MessagingObserver {
    /// A rank has sent a message.
    fn sent(&mut self, from: Rank, to: Rank, tag: u64, message: &[u8]);
    /// A rank has received one now, by the so-manieth receive that it has posted.
    fn received(&mut self, now: SimTime, at: Rank, receive: u64, source: Rank, tag: u64, message: &[u8]);
    /// A send or a receive of a rank has failed.
    fn failed(&mut self, at: Rank, why: &str);
}

/// A conversation, set up and ready to run.
pub struct SimulatedMessaging<W> {
    network: SimulatedNetwork,
    driver: MessagingDriver<W>,
}

impl<W: MessagingObserver> SimulatedMessaging<W> {
    /// Sets up the hosts, their ports and the rails between them.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan do not go together.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: &MessagingRunParameters,
        plan: &FaultPlan,
        seed: u64,
        witness: W,
    ) -> Result<Self, TransportSetupError> {
        let mut network = SimulatedNetwork::new(fabric, LinkParameters { adapter_lanes: 1, ..link });
        network.set_faults(plan, seed).map_err(TransportSetupError::Plan)?;
        let mut driver = MessagingDriver::new(&network, parameters, seed, witness)?;
        driver.start(&mut network);
        Ok(Self { network, driver })
    }

    /// Runs until every order is carried out and every send and receive has ended. False if that takes longer than it may.
    pub fn run(&mut self, limit: SimSpan) -> bool {
        let end = self.network.now() + limit;
        self.network.run(&mut self.driver, |driver, network| driver.is_finished() || network.now() > end);
        self.driver.is_finished()
    }

    /// Virtual time.
    pub fn now(&self) -> SimTime {
        self.network.now()
    }

    /// Parcels that were spoiled on purpose.
    pub fn spoiled(&self) -> u64 {
        self.driver.spoiled
    }

    /// What each rank's port has seen.
    pub fn ports(&self) -> impl Iterator<Item = PortCounters> {
        self.driver.ports()
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
}
