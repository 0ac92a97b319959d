//! The drivers of all groups: each packet and timer goes to the driver that sent or set it.
//!
//! Drivers are never removed, so that a late packet of a driver that is no longer used finds it and nobody else.

use protocol::connection::Damage;

use super::run_defect::RunDefect;
use crate::arrival_check::{ArrivalCheck, check_arrival};
use crate::collective::CollectiveDriver;
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, DriverIndex};
use crate::residue::FabricResidue;
use crate::segmented::SegmentedDriver;

/// Sets timers that only let time pass.
pub(super) const WAKE_UP: DriverIndex = DriverIndex::MAX;

/// A driver of one group.
pub(super) enum GroupDriver {
    Tree(Box<CollectiveDriver>),
    Hosts(Box<SegmentedDriver>),
}

struct DriverEntry {
    group: usize,
    driver: GroupDriver,
    is_in_use: bool,
}

#[derive(Default)]
pub(super) struct DriverSet {
    entries: Vec<DriverEntry>,
    /// A driver that is in use has something to report.
    pub(super) needs_attention: bool,
    pub(super) defect: RunDefect,
}

impl DriverSet {
    /// The number that the next driver gets.
    pub(super) fn next_index(&self) -> DriverIndex {
        let index = self.entries.len() as DriverIndex;
        assert!(index < WAKE_UP, "a run has fewer drivers than numbers");
        index
    }

    /// Adds a driver of a group; the number under which it sends and sets timers.
    pub(super) fn add(&mut self, group: usize, driver: GroupDriver) -> DriverIndex {
        let index = self.next_index();
        self.entries.push(DriverEntry { group, driver, is_in_use: true });
        index
    }

    /// Stops using a driver: nobody waits for its machines any more.
    pub(super) fn retire(&mut self, index: DriverIndex) {
        self.entries[usize::from(index)].is_in_use = false;
    }

    pub(super) fn tree(&mut self, index: DriverIndex) -> &mut CollectiveDriver {
        match &mut self.entries[usize::from(index)].driver {
            GroupDriver::Tree(driver) => driver,
            GroupDriver::Hosts(_) => unreachable!("the group knows its drivers"),
        }
    }

    pub(super) fn hosts(&mut self, index: DriverIndex) -> &mut SegmentedDriver {
        match &mut self.entries[usize::from(index)].driver {
            GroupDriver::Hosts(driver) => driver,
            GroupDriver::Tree(_) => unreachable!("the group knows its drivers"),
        }
    }

    /// What the drivers in use of a group hold.
    pub(super) fn residue_of(&self, group: usize) -> FabricResidue {
        let in_use = self.entries.iter().filter(|entry| entry.is_in_use && entry.group == group);
        in_use.fold(FabricResidue::default(), |sum, entry| {
            sum.plus(match &entry.driver {
                GroupDriver::Tree(driver) => driver.residue(),
                GroupDriver::Hosts(driver) => driver.residue(),
            })
        })
    }

    fn note_events(&mut self, index: DriverIndex) {
        let entry = &self.entries[usize::from(index)];
        let has_events = match &entry.driver {
            GroupDriver::Tree(driver) => driver.has_events(),
            GroupDriver::Hosts(driver) => driver.has_pending(),
        };
        self.needs_attention |= entry.is_in_use && has_events;
    }

    /// A damaged packet tells nobody whose it was: the machines of every group at the end of the channel are told.
    fn handle_damage(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, damage: Damage) {
        for index in 0..self.entries.len() as DriverIndex {
            network.set_driver(index);
            if let GroupDriver::Tree(driver) = &mut self.entries[usize::from(index)].driver {
                driver.handle_damage(network, channel, damage);
            }
            self.note_events(index);
        }
    }
}

impl NetworkHandler for DriverSet {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let (index, channel, bytes) = (network.driver(), arrival.channel, arrival.bytes);
        let body = match check_arrival(network, self.defect.in_arrival(arrival)) {
            None => return,
            Some(ArrivalCheck::Damaged(damage)) => return self.handle_damage(network, channel, damage),
            Some(ArrivalCheck::Intact(body)) => body,
        };
        match &mut self.entries[usize::from(index)].driver {
            GroupDriver::Tree(driver) => driver.admit(network, channel, bytes, body),
            GroupDriver::Hosts(driver) => driver.handle_body(network, &body),
        }
        self.note_events(index);
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("groups have no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let index = network.driver();
        if index == WAKE_UP {
            return;
        }
        match &mut self.entries[usize::from(index)].driver {
            GroupDriver::Tree(driver) => driver.handle_timer(network, number),
            GroupDriver::Hosts(driver) => driver.handle_timer(network, number),
        }
        self.note_events(index);
    }

    fn handle_link_change(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        for index in 0..self.entries.len() as DriverIndex {
            network.set_driver(index);
            if let GroupDriver::Tree(driver) = &mut self.entries[usize::from(index)].driver {
                driver.handle_link_change(network, channels);
            }
            self.note_events(index);
        }
    }
}
