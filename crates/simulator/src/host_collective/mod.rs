//! Collectives among hosts alone, on the same fabric and with the same hosts as those in the network.
//!
//! In: an algorithm, what hosts take ([`HostCosts`]) and how many calls. Out: how long a call takes, as the mean over hosts
//! and calls. Every host plays its part with a [`Player`], the machine that the runtime plays with; this module only brings
//! the messages. A message costs its sender's processor the time to post it and its receiver's the time to take it, and
//! travels in packets of the path MTU, with a datagram's headers. Nothing is lost here, so nothing is repeated.

mod drive;

use std::fmt;
use std::sync::Arc;

use protocol::Payload;
use protocol::collective::{Algorithm, Collective, Plan, PlanError, Player};
use topology::Fabric;
use units::Rank;

use crate::collective::{Calls, Measured};
use crate::network::{LinkParameters, Network};
use crate::processor::{HostCosts, Way};
use drive::Driver;

/// What hosts do among themselves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostCollectiveParameters {
    /// How.
    pub algorithm: Algorithm,
    /// What.
    pub collective: Collective,
    /// Bytes of each host's vector.
    pub bytes: u32,
    /// Most payload of one packet.
    pub mtu: u32,
    /// What a host takes.
    pub costs: HostCosts,
    /// How messages reach it.
    pub way: Way,
}

/// Why hosts cannot do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostSetupError {
    /// The parts of the plan do not go together.
    Plan(PlanError),
    /// Packets without payload would never carry anything.
    NoMtu,
}

impl fmt::Display for HostSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::NoMtu => f.write_str("an MTU of 0 bytes"),
        }
    }
}

impl std::error::Error for HostSetupError {}

/// All hosts of a fabric, ready to call. Rank `n` is host `n`.
pub struct HostCollective {
    network: Network,
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
    ) -> Result<Self, HostSetupError> {
        if parameters.mtu == 0 {
            return Err(HostSetupError::NoMtu);
        }
        parameters.player(Rank(0), fabric.hosts()).map_err(HostSetupError::Plan)?;
        Ok(Self { network: Network::new(fabric, link), parameters })
    }

    /// Runs so many calls by all hosts (vectors are not cut: `segments` is not looked at); none if one never ended.
    pub fn measure(&mut self, calls: Calls, seed: u64) -> Option<Measured> {
        Driver::new(&self.network, self.parameters, calls, seed).run(&mut self.network)
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}

impl HostCollectiveParameters {
    fn player(&self, rank: Rank, ranks: u32) -> Result<Player, PlanError> {
        let plan = Plan::new(self.algorithm, self.collective, rank, ranks, self.bytes)?;
        Player::new(plan, Payload::Absent { bytes: self.bytes })
    }
}
