//! The driver of queue pairs: delivers packets and timers to them, sends their packets, and runs their applications and programs.

use std::rc::Rc;

use protocol::connection::Paths;
use protocol::connection::path::PathState;
use protocol::queue_pair::{QpAttributes, QpError, QpState, QueuePair, Transmit};
use topology::NodeId;
use units::{PathId, QpNumber, SimTime, Time};
use wire::{IcrcCoverage, PartitionKey, RemoteKey};

use super::application::{ApplicationEvent, EndApplication, EndMemory};
use super::observer::{QueuePairObserver, StreamId};
use super::parameters::{ConnectionPlan, LinkNotification, QueuePairRunParameters};
use super::program::{ProgramAction, ProgramReport, ProgramRun};
use super::program_step::ProgramStep;
use super::report::ConnectionEndReport;
use super::setup_error::{TransportSetupError, check_connection};
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, PacketTarget, SimulatedPacket};
use crate::packet_body::{PacketBody, PacketFraming};
use crate::packet_check::{EndToEndCheck, check_end_to_end};
use crate::path_channels::PathChannels;

/// The purpose of a timer, in its highest bits; a timer without one belongs to a queue pair.
const APPLICATION_TIMER: u32 = 1 << 31;
const PROGRAM_TIMER: u32 = 1 << 30;

/// One end of a connection.
struct ConnectionEnd {
    pair: QueuePair,
    application: EndApplication,
    paths: Vec<PathChannels>,
    far: NodeId,
    /// The earliest timers that are set, of the queue pair and of the application.
    timer: SimTime,
    application_timer: SimTime,
    report: ConnectionEndReport,
    /// Programs that use this end.
    programs: Vec<usize>,
}

pub(super) struct QueuePairDriver<W> {
    ends: Vec<ConnectionEnd>,
    notice: LinkNotification,
    pub(super) observer: W,
    outbox: Vec<Transmit>,
    /// Messages not yet acknowledged, plus messages not yet delivered.
    missing: usize,
    broken: usize,
    programs: Vec<ProgramRun>,
    /// Programs that may be able to continue.
    runnable: Vec<usize>,
}

impl<W: QueuePairObserver> QueuePairDriver<W> {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: &QueuePairRunParameters,
        seed: u64,
        observer: W,
    ) -> Result<Self, TransportSetupError> {
        let mut ends = Vec::new();
        let programs = parameters.programs.iter().map(|program| ProgramRun::new(program, &parameters.connections));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        for (number, plan) in parameters.connections.iter().enumerate() {
            check_connection(network.topology(), plan)?;
            for side in 0..2 {
                let far = 2 * number + 1 - side;
                let longest = programs.iter().map(|program| program.longest_from(far)).max().unwrap_or(0);
                ends.push(ConnectionEnd::new(network, plan, number, side, seed, longest)?);
            }
        }
        for (number, program) in programs.iter().enumerate() {
            program.ends().for_each(|end| ends[end].programs.push(number));
        }
        let missing = 2 * ends.iter().map(|end| end.application.messages()).sum::<usize>();
        let runnable = (0..programs.len()).collect();
        Ok(Self {
            ends,
            notice: parameters.notice,
            observer,
            outbox: Vec::new(),
            missing,
            broken: 0,
            programs,
            runnable,
        })
    }

    /// Lets every application post and every program start.
    pub(super) fn start(&mut self, network: &mut SimulatedNetwork) {
        for end in 0..self.ends.len() {
            self.drive_end(network, end);
        }
        self.run_programs(network);
    }

    /// Runs the programs that may be able to continue.
    fn run_programs(&mut self, network: &mut SimulatedNetwork) {
        while let Some(number) = self.runnable.pop() {
            let now = network.now();
            let ends = &self.ends;
            let is_reached = |end: usize, step: ProgramStep| {
                let paths = ends[end].pair.connection().paths();
                match step {
                    ProgramStep::WaitArmed { .. } => paths.is_some_and(|paths| paths.state() == PathState::Armed),
                    ProgramStep::WaitMigrations { times, .. } => {
                        paths.is_some_and(|paths| paths.migrations() >= times)
                    }
                    _ => true,
                }
            };
            match self.programs[number].poll(now, is_reached) {
                ProgramAction::Do(end, step) => {
                    self.perform_step(network, number, end, step);
                    self.runnable.push(number);
                }
                ProgramAction::WaitUntil(time) => network.set_timer(time, PROGRAM_TIMER | number as u32),
                ProgramAction::Wait => {}
            }
        }
    }

    fn perform_step(&mut self, network: &mut SimulatedNetwork, program: usize, end: usize, step: ProgramStep) {
        let now = network.now();
        let ConnectionEnd { pair, application, .. } = &mut self.ends[end];
        let outbox = &mut self.outbox;
        match step {
            ProgramStep::Send { length, .. } if pair.state() == QpState::ReadyToSend => {
                application.add(now, length);
                self.missing += 2;
            }
            ProgramStep::Load { path, .. } => self.programs[program].note(&pair.load_path(now.to_nanos(), path)),
            ProgramStep::Migrate { .. } => {
                let migrated = pair.migrate(now.to_nanos(), &mut |transmit| outbox.push(transmit));
                self.programs[program].note(&migrated);
            }
            _ => {}
        }
        self.drive_end(network, end);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.missing == 0 && self.programs.iter().all(ProgramRun::is_finished)
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = &ProgramReport> {
        self.programs.iter().map(|program| &program.report)
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken == self.ends.len()
    }

    pub(super) fn is_armed(&self, connection: usize) -> bool {
        let armed = |end: usize| self.paths(end).is_some_and(|paths| paths.state() == PathState::Armed);
        armed(2 * connection) && armed(2 * connection + 1)
    }

    fn paths(&self, end: usize) -> Option<&Paths> {
        self.ends[end].pair.connection().paths()
    }

    pub(super) fn report(&self, end: usize) -> ConnectionEndReport {
        let mut report = self.ends[end].report.clone();
        report.state = self.ends[end].pair.state();
        if let Some(paths) = self.paths(end) {
            (report.path_state, report.path) = (paths.state(), paths.current());
        }
        report
    }

    #[cfg(feature = "sabotage")]
    pub(super) fn sabotage(&mut self, end: usize, sabotage: protocol::queue_pair::QpSabotage) {
        self.ends[end].pair.set_sabotage(sabotage);
    }

    /// Calls a queue pair, then handles the consequences.
    fn act(
        &mut self,
        network: &mut SimulatedNetwork,
        end: usize,
        act: impl FnOnce(&mut QueuePair, &mut EndMemory, Time, &mut dyn FnMut(Transmit)),
    ) {
        let ConnectionEnd { pair, application, .. } = &mut self.ends[end];
        let outbox = &mut self.outbox;
        act(pair, &mut application.store, network.machine_time(), &mut |transmit| outbox.push(transmit));
        self.drive_end(network, end);
    }

    /// Sends the pending packets, handles completions, posts what the application has, and sets the timers.
    fn drive_end(&mut self, network: &mut SimulatedNetwork, end: usize) {
        loop {
            self.transmit(network, end);
            let has_completions = self.handle_completions(network.now(), end);
            if !self.post(network.now(), end) && !has_completions {
                break;
            }
        }
        let this = &self.ends[end];
        if this.pair.state() == QpState::Error && this.report.failed_at.is_none() {
            self.fail(network.now(), end, QpError::Flushed); // Without posted requests there is no completion to report the failure.
        }
        let ConnectionEnd { pair, application, timer, application_timer, report, programs, .. } = &mut self.ends[end];
        while let Some(event) = pair.poll_path_event() {
            report.note(event);
            self.runnable.extend(programs.iter());
        }
        let timers = [
            (pair.deadline().map(SimTime::from), timer, 0),
            (application.next_post_at(), application_timer, APPLICATION_TIMER),
        ];
        for (wanted, set, kind) in timers {
            if let Some(wanted) = wanted.filter(|wanted| *wanted < *set) {
                *set = wanted;
                network.set_timer(wanted.max(network.now()), kind | end as u32);
            }
        }
    }

    fn transmit(&mut self, network: &mut SimulatedNetwork, end: usize) {
        let this = &self.ends[end];
        let ready = network.now() + network.parameters().adapter_delay;
        for Transmit { headers, segment, path, .. } in self.outbox.drain(..) {
            let payload = segment.map_or(Box::default(), |segment| this.application.segment(&segment));
            // An unknown path comes from a corrupted packet that passed every check.
            let Some(channels) = this.paths.get(path.index()) else { continue };
            let body = PacketBody::Transport {
                to: headers.bth.destination.0,
                path,
                framing: PacketFraming::InfiniBand,
                headers,
                payload,
            };
            let bytes = body.framed_bytes();
            let packet = SimulatedPacket::new(PacketTarget::Node, this.far.0, bytes, ready, Some(Rc::new(body)));
            network.inject(channels.leaves, SimulatedPacket { flow: channels.flow, ..packet });
        }
    }

    /// Passes completions to the application and the observer; true if there were any.
    fn handle_completions(&mut self, now: SimTime, end: usize) -> bool {
        let mut any = false;
        while let Some(completion) = self.ends[end].pair.poll_completion() {
            any = true;
            let this = &mut self.ends[end];
            match this.application.handle_completion(now, completion) {
                ApplicationEvent::Sent => {
                    this.report.sent += 1;
                    this.report.last = now;
                    self.missing = self.missing.saturating_sub(1);
                }
                ApplicationEvent::Received(bytes) => {
                    this.report.received += 1;
                    this.report.last = now;
                    for program in &this.programs {
                        self.programs[*program].deliver(end / 2);
                    }
                    self.runnable.extend(&this.programs);
                    self.missing = self.missing.saturating_sub(1);
                    self.observer.delivered(StreamId::to(end), &bytes);
                }
                ApplicationEvent::Failed(failure) => self.fail(now, end, failure),
            }
        }
        any
    }

    fn fail(&mut self, now: SimTime, end: usize, failure: QpError) {
        let report = &mut self.ends[end].report;
        if report.failed_at.is_none() {
            report.failed_at = Some(now);
            self.broken += 1;
        }
        // Sends and receives may fail for different reasons; keep the first that is more specific than "flushed".
        if report.failure.is_none_or(|known| known == QpError::Flushed) {
            report.failure = Some(failure);
        }
        self.ends[end].application.stop();
        self.observer.failed(StreamId::from(end), &failure.to_string());
        self.observer.failed(StreamId::to(end), &failure.to_string());
    }

    /// Posts the requests of the application; true if it sent anything.
    fn post(&mut self, now: SimTime, end: usize) -> bool {
        let ConnectionEnd { pair, application, .. } = &mut self.ends[end];
        if pair.state() != QpState::ReadyToSend {
            return false;
        }
        let mut any = false;
        while let Some((id, length)) = application.poll_receive(now) {
            pair.post_receive(id, length).expect("the application stays within the queue pair's limits");
        }
        while let Some((id, length, operation, observed)) = application.poll_send(now, remote_key(end ^ 1)) {
            any = true;
            self.observer.sent(StreamId::from(end), &observed);
            let outbox = &mut self.outbox;
            pair.post_send(now.to_nanos(), id, length, operation, &mut |transmit| outbox.push(transmit))
                .expect("the application stays within the queue pair's limits");
        }
        any
    }

    fn deliver_body(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        let PacketBody::Transport { to, path, headers, payload, .. } = body else {
            unreachable!("queue pairs exchange only transport packets")
        };
        // The number of the queue pair may be corrupted in a packet that passed every check: drop it if it is not of this host.
        let here = network.destination(channel);
        let end = *to as usize;
        if self.ends.get(end ^ 1).is_some_and(|far| far.far == here) {
            self.act(network, end, |pair, store, now, mut out| {
                pair.handle_packet(now, *path, headers, payload, store, &mut out);
            });
        }
    }

    /// Of a damaged packet only the channel is reliable: notifies every path that enters there.
    fn deliver_damage(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].paths.len() {
                if self.ends[end].paths[path].enters == channel {
                    let path = PathId(path as u8);
                    self.act(network, end, |pair, _, now, mut out| pair.handle_damage(now, path, &mut out));
                }
            }
        }
    }
}

impl ConnectionEnd {
    fn new(
        network: &SimulatedNetwork,
        plan: &ConnectionPlan,
        number: usize,
        side: usize,
        seed: u64,
        longest: u32,
    ) -> Result<Self, TransportSetupError> {
        let (here, there) = (&plan.ends[side], &plan.ends[1 - side]);
        let index = 2 * number + side;
        let mut pair = QueuePair::new(QpNumber(index as u32));
        let contract = QpAttributes {
            remote: QpNumber(index as u32 ^ 1),
            send_psn: here.first_psn,
            receive_psn: there.first_psn,
            mtu: plan.mtu,
            coverage: IcrcCoverage::Full,
            partition: PartitionKey::DEFAULT,
            policy: plan.policy,
        };
        let paths = (plan.paths > 1)
            .then(|| Paths::new(plan.path_policy, here.role, usize::from(plan.paths), network.machine_time()));
        pair.initialise(contract.partition)
            .and_then(|()| pair.connect(contract, paths))
            .and_then(|()| pair.open())
            .expect("a new queue pair can be connected");
        let longest = there.messages.iter().map(|message| message.length).max().unwrap_or(0).max(longest);
        let channels = (0..plan.paths).map(|path| {
            PathChannels::new(network, here.host, there.host, PathId(path))
                .ok_or(TransportSetupError::NoRoute { from: here.host, to: there.host })
        });
        Ok(Self {
            pair,
            application: EndApplication::new(here.clone(), seed, index as u64, remote_key(index), longest),
            paths: channels.collect::<Result<_, _>>()?,
            far: there.host,
            timer: SimTime::NEVER,
            application_timer: SimTime::NEVER,
            report: ConnectionEndReport::default(),
            programs: Vec::new(),
        })
    }
}

/// The remote key of an end's memory.
fn remote_key(end: usize) -> RemoteKey {
    RemoteKey(0x1000 + end as u32)
}

impl<W: QueuePairObserver> NetworkHandler for QueuePairDriver<W> {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        self.check_and_deliver(network, arrival);
        self.run_programs(network);
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("queue pairs have no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        if number & PROGRAM_TIMER != 0 {
            self.runnable.push((number & !PROGRAM_TIMER) as usize);
        } else {
            self.handle_end_timer(network, number);
        }
        self.run_programs(network);
    }

    fn handle_link_change(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.notice == LinkNotification::Notified {
            self.notify_link_change(network, channels);
        }
        self.run_programs(network);
    }
}

impl<W: QueuePairObserver> QueuePairDriver<W> {
    fn check_and_deliver(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(body) = arrival.body else { return };
        let Some(corruption) = arrival.corruption else {
            return self.deliver_body(network, arrival.channel, &body);
        };
        if corruption.detected_at == SimTime::NEVER {
            match check_end_to_end(&body, arrival.bytes, &corruption) {
                EndToEndCheck::Passed(body) => return self.deliver_body(network, arrival.channel, &body),
                EndToEndCheck::Bad => network.counters.end_to_end += 1,
            }
        }
        self.deliver_damage(network, arrival.channel);
    }

    fn handle_end_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let end = (number & !APPLICATION_TIMER) as usize;
        let this = &mut self.ends[end];
        let is_application = number & APPLICATION_TIMER != 0;
        let set = if is_application { &mut this.application_timer } else { &mut this.timer };
        // A timer that was later set to an earlier time expires twice; ignore the second time.
        if *set > network.now() {
            return;
        }
        *set = SimTime::NEVER;
        if is_application {
            return self.drive_end(network, end);
        }
        self.act(network, end, |pair, _, now, mut out| pair.handle_timeout(now, &mut out));
    }

    /// Notifies the queue pairs whose own cables went down or came up.
    fn notify_link_change(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].paths.len() {
                let PathChannels { leaves, reverse, .. } = self.ends[end].paths[path];
                if !channels.contains(&leaves) && !channels.contains(&reverse) {
                    continue;
                }
                let path = PathId(path as u8);
                if network.is_down(leaves) || network.is_down(reverse) {
                    self.act(network, end, |pair, _, now, mut out| pair.handle_path_down(now, path, &mut out));
                } else {
                    self.act(network, end, |pair, _, now, _| pair.handle_path_up(now, path));
                }
            }
        }
    }
}
