//! The paper's cluster as discrete events: hosts whose adapter has two ports and one firmware processor, and connections between them.
//!
//! In: messages that ranks post, transitions that they request, a cable that is pulled. Out: messages in order, and the time of each
//! transition's asynchronous event. A message waits for the sender's adapter, then for the receiver's.

use std::collections::{BTreeMap, VecDeque};

use super::connection::{AdapterPathState, ConnectionEnd, EndNumber, FirmwareJob};
use super::packet::{MpiPacket, Nanos, NumberedPacket};
use super::rank::RankState;
use crate::reproduce::path_migration::simulated::MigrationParameters;

/// Bytes of headers and checksums of a message.
const HEADER_BYTES: u64 = 60;

/// The constants of the model in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct AdapterTimes {
    /// From port to port, and through an adapter.
    pub crossing: Nanos,
    pub adapter: Nanos,
    /// Firmware: to load an alternate path, to change over to it.
    pub load: Nanos,
    pub switch: Nanos,
    /// AdapterHost: a command, an asynchronous event, the hand-over to the main thread after the last migration.
    pub command: Nanos,
    pub event: Nanos,
    pub handover: Nanos,
    /// From the first packet without an answer until the firmware leaves the path.
    pub give_up: Nanos,
    /// Between ranks of a host.
    pub local: Nanos,
    pub eager_bytes: u64,
}

impl AdapterTimes {
    pub(super) fn of(parameters: &MigrationParameters) -> Self {
        let MigrationParameters { link, adapter, mpi, .. } = parameters;
        let nanos = |value: f64| value.round() as Nanos;
        Self {
            crossing: nanos(2.0 * link.wire_ns + link.switch_ns),
            adapter: nanos(link.adapter_ns),
            load: nanos(1e3 * adapter.load_us),
            switch: nanos(1e3 * adapter.load_us * adapter.switch_by_load),
            command: nanos(1e3 * adapter.command_us),
            event: nanos(1e3 * adapter.event_us),
            handover: nanos(1e3 * adapter.load_us * adapter.handover_by_load),
            give_up: nanos(1e6 * adapter.give_up_ms),
            local: nanos(mpi.local_ns),
            eager_bytes: u64::from(mpi.eager_bytes),
        }
    }
}

pub(super) enum AdapterEvent {
    /// The driver has passed a command to the firmware.
    Command {
        end: EndNumber,
        job: FirmwareJob,
    },
    FirmwareDone {
        end: EndNumber,
        job: FirmwareJob,
    },
    /// The other end has loaded its path.
    Probe {
        end: EndNumber,
    },
    Arrival {
        end: EndNumber,
        port: usize,
        message: NumberedPacket,
    },
    Acknowledged {
        end: EndNumber,
        accepted: u64,
    },
    GiveUp {
        end: EndNumber,
    },
    /// The asynchronous thread has handled the event of an end that is armed or has migrated.
    Handled {
        end: EndNumber,
        job: FirmwareJob,
    },
    /// A rank has computed, or a message of a rank of the same host is there.
    Computed {
        rank: usize,
    },
    Local {
        packet: MpiPacket,
    },
}

/// An adapter and the host's asynchronous thread: each does one thing at a time.
#[derive(Default)]
pub(super) struct AdapterHost {
    firmware_free: Nanos,
    thread_free: Nanos,
    /// When everything so far has been sent and received: both ports share the PCI-X bus, which is as fast as one of them (PM-4).
    egress_free: Nanos,
    ingress_free: Nanos,
    /// Handled events: how many, and the time of the last one.
    pub armed: (usize, Nanos),
    pub migrated: (usize, Nanos),
}

/// The first cable of a host is pulled.
#[derive(Clone, Copy)]
pub(super) struct PulledCable {
    pub host: usize,
    pub at: Nanos,
}

pub(super) struct AdapterCluster {
    pub now: Nanos,
    pub times: AdapterTimes,
    pub hosts: Vec<AdapterHost>,
    pub ends: Vec<ConnectionEnd>,
    pub ranks: Vec<RankState>,
    cable: Option<PulledCable>,
    events: BTreeMap<(Nanos, u64), AdapterEvent>,
    scheduled: u64,
    /// A connection that lost its path without an alternate.
    pub broken: Option<EndNumber>,
}

impl AdapterCluster {
    pub(super) fn new(times: AdapterTimes, hosts: usize, ranks: Vec<RankState>, cable: Option<PulledCable>) -> Self {
        Self {
            now: 0,
            times,
            hosts: (0..hosts).map(|_| AdapterHost::default()).collect(),
            ends: Vec::new(),
            ranks,
            cable,
            events: BTreeMap::new(),
            scheduled: 0,
            broken: None,
        }
    }

    /// Adds a connection between two hosts; its ends are `2n` and `2n + 1`.
    pub(super) fn connect(&mut self, hosts: [usize; 2], state: AdapterPathState) -> usize {
        self.ends.extend(hosts.map(|host| ConnectionEnd::new(host, state)));
        self.ends.len() / 2 - 1
    }

    pub(super) fn schedule(&mut self, at: Nanos, event: AdapterEvent) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    /// Runs until nothing is left to happen.
    pub(super) fn run(&mut self) {
        for rank in 0..self.ranks.len() {
            self.advance(rank);
        }
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: AdapterEvent) {
        match event {
            AdapterEvent::Command { end, job } => self.handle_command(end, job),
            AdapterEvent::FirmwareDone { end, job: FirmwareJob::Load } => self.handle_loaded(end),
            AdapterEvent::FirmwareDone { end, job: FirmwareJob::Switch } => self.handle_switched(end),
            AdapterEvent::Probe { end } => {
                self.ends[end].peer_loaded = true;
                self.arm_if_both_loaded(end);
            }
            AdapterEvent::Arrival { end, port, message } => self.handle_arrival(end, port, message),
            AdapterEvent::Acknowledged { end, accepted } => self.handle_acknowledged(end, accepted),
            AdapterEvent::GiveUp { end } => self.handle_give_up(end),
            AdapterEvent::Handled { end, job } => {
                let host = &mut self.hosts[self.ends[end].host];
                let handled = if job == FirmwareJob::Load { &mut host.armed } else { &mut host.migrated };
                *handled = (handled.0 + 1, self.now);
            }
            AdapterEvent::Computed { rank } => {
                self.ranks[rank].is_computing = false;
                self.advance(rank);
            }
            AdapterEvent::Local { packet } => self.deliver(packet),
        }
    }

    /// A rank requests a transition of these ends. It does not wait: the commands follow each other in the driver.
    pub(super) fn request(&mut self, ends: impl Iterator<Item = EndNumber>, job: FirmwareJob) {
        for (place, end) in ends.enumerate() {
            // The send queue stops until the firmware is done with it.
            self.ends[end].is_stopped = true;
            self.schedule(self.now + (place as u64 + 1) * self.times.command, AdapterEvent::Command { end, job });
        }
    }

    fn handle_command(&mut self, end: EndNumber, job: FirmwareJob) {
        // The other end, or a timeout, may have been first.
        if job == FirmwareJob::Switch && self.ends[end].state == AdapterPathState::Migrated {
            self.ends[end].is_stopped = false;
            return self.send_waiting(end);
        }
        self.start_firmware(end, job);
    }

    /// The firmware serves all connections of a host one after the other.
    fn start_firmware(&mut self, end: EndNumber, job: FirmwareJob) {
        if std::mem::replace(&mut self.ends[end].is_in_firmware, true) {
            return;
        }
        self.ends[end].is_stopped = true;
        let service = if job == FirmwareJob::Load { self.times.load } else { self.times.switch };
        let host = &mut self.hosts[self.ends[end].host];
        host.firmware_free = host.firmware_free.max(self.now) + service;
        let done = host.firmware_free;
        self.schedule(done, AdapterEvent::FirmwareDone { end, job });
    }

    fn release(&mut self, end: EndNumber) {
        self.ends[end].is_in_firmware = false;
        self.ends[end].is_stopped = false;
    }

    fn handle_loaded(&mut self, end: EndNumber) {
        self.release(end);
        self.ends[end].state = AdapterPathState::Rearm;
        self.schedule(self.now + 2 * self.times.adapter + self.times.crossing, AdapterEvent::Probe { end: end ^ 1 });
        self.arm_if_both_loaded(end);
        self.send_waiting(end);
    }

    fn arm_if_both_loaded(&mut self, end: EndNumber) {
        if self.ends[end].state == AdapterPathState::Rearm && self.ends[end].peer_loaded {
            self.ends[end].state = AdapterPathState::Armed;
            self.raise(end, FirmwareJob::Load);
        }
    }

    fn handle_switched(&mut self, end: EndNumber) {
        self.release(end);
        let this = &mut self.ends[end];
        this.state = AdapterPathState::Migrated;
        this.port = 1;
        let held = std::mem::take(&mut this.held);
        this.queue_lost_again();
        self.raise(end, FirmwareJob::Switch);
        for message in held {
            self.handle_arrival(end, 1, message);
        }
        self.send_waiting(end);
    }

    /// The asynchronous thread of the host handles one event after the other.
    fn raise(&mut self, end: EndNumber, job: FirmwareJob) {
        let host = &mut self.hosts[self.ends[end].host];
        host.thread_free = host.thread_free.max(self.now) + self.times.event;
        let done = host.thread_free;
        self.schedule(done, AdapterEvent::Handled { end, job });
    }

    /// Posts a message at one end of a connection.
    pub(super) fn post(&mut self, end: EndNumber, packet: MpiPacket) {
        self.ends[end].post(packet);
        self.send_waiting(end);
    }

    fn send_waiting(&mut self, end: EndNumber) {
        while let Some(message) = self.ends[end].next_to_send() {
            self.transmit(end, message);
        }
    }

    fn transmit(&mut self, end: EndNumber, message: NumberedPacket) {
        let port = self.ends[end].port;
        let [from, to] = [self.ends[end].host, self.ends[end ^ 1].host];
        let span = message.packet.wire_bytes() + HEADER_BYTES; // 4X SDR: a byte each nanosecond.
        let start = (self.now + self.times.adapter).max(self.hosts[from].egress_free);
        self.hosts[from].egress_free = start + span;
        let head = (start + self.times.crossing).max(self.hosts[to].ingress_free);
        if self.is_cut([from, to], port, head + span) {
            self.lose(end, message.sequence, start + span);
        } else {
            self.hosts[to].ingress_free = head + span;
            let arrival = AdapterEvent::Arrival { end: end ^ 1, port, message };
            self.schedule(head + span + self.times.adapter, arrival);
        }
    }

    fn is_cut(&self, hosts: [usize; 2], port: usize, at: Nanos) -> bool {
        self.cable.is_some_and(|cable| port == 0 && at >= cable.at && hosts.contains(&cable.host))
    }

    /// Retries are not simulated one by one: only a path that is cut loses packets, and all of them.
    fn lose(&mut self, end: EndNumber, sequence: u64, at: Nanos) {
        if self.ends[end].mark_lost(sequence) {
            self.schedule(at + self.times.give_up, AdapterEvent::GiveUp { end });
        }
    }

    fn handle_arrival(&mut self, end: EndNumber, port: usize, message: NumberedPacket) {
        if port != self.ends[end].port && self.ends[end].state != AdapterPathState::Migrated {
            // The other end has migrated (MigReq): the firmware follows before the message is accepted.
            self.ends[end].held.push_back(message);
            return self.start_firmware(end, FirmwareJob::Switch);
        }
        let packets = self.ends[end].accept(message);
        let hosts = [self.ends[end].host, self.ends[end ^ 1].host];
        let back = self.now + 2 * self.times.adapter + self.times.crossing;
        if self.is_cut(hosts, port, back) {
            self.lose(end ^ 1, message.sequence, self.now);
        } else {
            self.schedule(back, AdapterEvent::Acknowledged { end: end ^ 1, accepted: self.ends[end].accepted() });
        }
        for packet in packets {
            self.deliver(packet);
        }
    }

    fn handle_acknowledged(&mut self, end: EndNumber, accepted: u64) {
        let acknowledged: VecDeque<NumberedPacket> = self.ends[end].acknowledge(accepted);
        for message in acknowledged {
            self.sent(message.packet);
        }
    }

    fn handle_give_up(&mut self, end: EndNumber) {
        self.ends[end].gives_up = false;
        if !self.ends[end].has_lost() {
            return; // The other end was first.
        }
        if self.ends[end].state == AdapterPathState::Armed {
            self.start_firmware(end, FirmwareJob::Switch);
        } else {
            self.broken = Some(end);
        }
    }
}
