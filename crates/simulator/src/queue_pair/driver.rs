//! The driver: gives queue pairs what arrives, sends what they ask, and does what their applications want.

use std::rc::Rc;

use protocol::connection::Paths;
use protocol::connection::path::PathState;
use protocol::queue_pair::{QpAttributes, QpError, QpState, QueuePair, Transmit};
use topology::{Fabric, NodeId};
use units::{Lane, PathId, QpNumber, SimTime};
use wire::{IcrcCoverage, PartitionKey, RemoteKey};

use super::application::{ApplicationEvent, EndApplication, EndMemory};
use super::parameters::{ConnectionPlan, LinkNotification, QueuePairRunParameters};
use super::program::{ProgramAction, ProgramReport, ProgramRun, ProgramStep};
use super::{ConnectionEndReport, QueuePairObserver, StreamId, TransportSetupError, way};
use crate::network::{
    ChannelId, DeliveredPacket, EndToEndCheck, NetworkHandler, PacketTarget, SimulatedNetwork, SimulatedPacket,
    check_end_to_end,
};
use crate::packet_body::PacketBody;

/// What an alarm is for, in its highest bits.
const APPLICATION: u32 = 1 << 31;
const PROGRAM: u32 = 1 << 30;

/// How one path begins and ends at an end.
struct Way {
    /// Packets leave here.
    leaves: ChannelId,
    /// The other direction of the same cable.
    reverse: ChannelId,
    /// Packets of the other end come in here.
    enters: ChannelId,
    flow: u32,
}

/// One end of a connection.
struct End {
    pair: QueuePair,
    application: EndApplication,
    ways: Vec<Way>,
    far: NodeId,
    /// When its alarms are set; later ones are ignored.
    timer: SimTime,
    errand: SimTime,
    report: ConnectionEndReport,
    /// Programs that have to do with it.
    listeners: Vec<usize>,
}

pub(super) struct QueuePairDriver<W> {
    ends: Vec<End>,
    notice: LinkNotification,
    pub(super) witness: W,
    outbox: Vec<Transmit>,
    /// Messages that are not known to have come, and those that have not come.
    missing: usize,
    broken: usize,
    programs: Vec<ProgramRun>,
    /// Programs at whose ends something has happened.
    woken: Vec<usize>,
}

impl<W: QueuePairObserver> QueuePairDriver<W> {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: &QueuePairRunParameters,
        seed: u64,
        witness: W,
    ) -> Result<Self, TransportSetupError> {
        let mut ends = Vec::new();
        let programs = parameters.programs.iter().map(|program| ProgramRun::new(program, &parameters.connections));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        for (number, plan) in parameters.connections.iter().enumerate() {
            super::check(network.topology(), plan)?;
            for side in 0..2 {
                let far = 2 * number + 1 - side;
                let longest = programs.iter().map(|program| program.longest_from(far)).max().unwrap_or(0);
                ends.push(End::new(network, plan, number, side, seed, longest)?);
            }
        }
        for (number, program) in programs.iter().enumerate() {
            program.ends().for_each(|end| ends[end].listeners.push(number));
        }
        let missing = 2 * ends.iter().map(|end| end.application.messages()).sum::<usize>();
        let woken = (0..programs.len()).collect();
        Ok(Self { ends, notice: parameters.notice, witness, outbox: Vec::new(), missing, broken: 0, programs, woken })
    }

    /// Every application posts what it can, every program begins.
    pub(super) fn start(&mut self, network: &mut SimulatedNetwork) {
        for end in 0..self.ends.len() {
            self.attend(network, end);
        }
        self.go_on(network);
    }

    /// Lets the programs go on at whose ends something has happened.
    fn go_on(&mut self, network: &mut SimulatedNetwork) {
        while let Some(number) = self.woken.pop() {
            let now = network.now();
            let ends = &self.ends;
            let is_so = |end: usize, step: ProgramStep| {
                let paths = ends[end].pair.connection().paths();
                match step {
                    ProgramStep::Armed { .. } => paths.is_some_and(|paths| paths.state() == PathState::Armed),
                    ProgramStep::Moved { times, .. } => paths.is_some_and(|paths| paths.migrations() >= times),
                    _ => true,
                }
            };
            match self.programs[number].poll(now, is_so) {
                ProgramAction::Do(end, step) => {
                    self.carry_out(network, number, end, step);
                    self.woken.push(number);
                }
                ProgramAction::WaitUntil(time) => network.set_alarm(time, PROGRAM | number as u32),
                ProgramAction::Wait => {}
            }
        }
    }

    fn carry_out(&mut self, network: &mut SimulatedNetwork, program: usize, end: usize, step: ProgramStep) {
        let now = network.now();
        let End { pair, application, .. } = &mut self.ends[end];
        let outbox = &mut self.outbox;
        match step {
            ProgramStep::Send { length, .. } if pair.state() == QpState::ReadyToSend => {
                application.add(now, length);
                self.missing += 2;
            }
            ProgramStep::Load { path, .. } => self.programs[program].note(&pair.load_path(now, path)),
            ProgramStep::Migrate { .. } => {
                let migrated = pair.migrate(now, &mut |transmit| outbox.push(transmit));
                self.programs[program].note(&migrated);
            }
            _ => {}
        }
        self.attend(network, end);
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

    /// Lets a queue pair do something, then carries out what comes of it.
    fn act(
        &mut self,
        network: &mut SimulatedNetwork,
        end: usize,
        act: impl FnOnce(&mut QueuePair, &mut EndMemory, SimTime, &mut dyn FnMut(Transmit)),
    ) {
        let End { pair, application, .. } = &mut self.ends[end];
        let outbox = &mut self.outbox;
        act(pair, &mut application.store, network.now(), &mut |transmit| outbox.push(transmit));
        self.attend(network, end);
    }

    /// Sends what is to be sent, tells the application what has ended, posts what it wants, sets the alarms.
    fn attend(&mut self, network: &mut SimulatedNetwork, end: usize) {
        loop {
            self.transmit(network, end);
            let told = self.tell(network.now(), end);
            if !self.post(network.now(), end) && !told {
                break;
            }
        }
        let this = &self.ends[end];
        if this.pair.state() == QpState::Error && this.report.failed_at.is_none() {
            self.fail(network.now(), end, QpError::Flushed); // With nothing posted there was nothing to give back.
        }
        let End { pair, application, timer, errand, report, listeners, .. } = &mut self.ends[end];
        while let Some(event) = pair.poll_path_event() {
            report.note(event);
            self.woken.extend(listeners.iter());
        }
        let alarms = [(pair.deadline(), timer, 0), (application.wants_at(), errand, APPLICATION)];
        for (wanted, set, kind) in alarms {
            if let Some(wanted) = wanted.filter(|wanted| *wanted < *set) {
                *set = wanted;
                network.set_alarm(wanted.max(network.now()), kind | end as u32);
            }
        }
    }

    fn transmit(&mut self, network: &mut SimulatedNetwork, end: usize) {
        let this = &self.ends[end];
        let ready = network.now() + network.parameters().adapter_delay;
        for Transmit { headers, segment, path, .. } in self.outbox.drain(..) {
            let payload = segment.map_or(Box::default(), |segment| this.application.segment(&segment));
            // A path that is unknown here came in a packet that got past every check.
            let Some(way) = this.ways.get(path.index()) else { continue };
            let body = PacketBody::Transport { to: headers.bth.destination.0, path, headers, payload };
            let bytes = body.framed_bytes();
            let packet = SimulatedPacket::new(PacketTarget::Node, this.far.0, bytes, ready, Some(Rc::new(body)));
            network.inject(way.leaves, SimulatedPacket { flow: way.flow, ..packet });
        }
    }

    /// Completions go to the application and to the witness. True if there were any.
    fn tell(&mut self, now: SimTime, end: usize) -> bool {
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
                    for program in &this.listeners {
                        self.programs[*program].deliver(end / 2);
                    }
                    self.woken.extend(&this.listeners);
                    self.missing = self.missing.saturating_sub(1);
                    self.witness.delivered(StreamId::to(end), &bytes);
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
        // Sends and receives may fail for different reasons; the first that says more than "flushed" is kept.
        if report.failure.is_none_or(|known| known == QpError::Flushed) {
            report.failure = Some(failure);
        }
        self.ends[end].application.give_up();
        self.witness.failed(StreamId::from(end), &failure.to_string());
        self.witness.failed(StreamId::to(end), &failure.to_string());
    }

    /// Posts what the application wants. True if that was anything.
    fn post(&mut self, now: SimTime, end: usize) -> bool {
        let End { pair, application, .. } = &mut self.ends[end];
        if pair.state() != QpState::ReadyToSend {
            return false;
        }
        let mut any = false;
        while let Some((id, length)) = application.poll_receive(now) {
            pair.post_receive(id, length).expect("an exchange keeps within the limits");
        }
        while let Some((id, length, operation, told)) = application.poll_send(now, key(end ^ 1)) {
            any = true;
            self.witness.sent(StreamId::from(end), &told);
            let outbox = &mut self.outbox;
            pair.post_send(now, id, length, operation, &mut |transmit| outbox.push(transmit))
                .expect("an exchange keeps within the limits");
        }
        any
    }

    fn hand_in(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        let PacketBody::Transport { to, path, headers, payload } = body else {
            unreachable!("an exchange has only queue pairs")
        };
        // The number of the queue pair may be what got past every check: nobody is there to take it.
        let here = network.destination(channel);
        let end = *to as usize;
        if self.ends.get(end ^ 1).is_some_and(|far| far.far == here) {
            self.act(network, end, |pair, store, now, mut out| {
                pair.handle_packet(now, *path, headers, payload, store, &mut out);
            });
        }
    }

    /// Nothing in a damaged packet can be believed but the cable it came on.
    fn hand_in_damage(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].ways.len() {
                if self.ends[end].ways[path].enters == channel {
                    let path = PathId(path as u8);
                    self.act(network, end, |pair, _, now, mut out| pair.handle_damage(now, path, &mut out));
                }
            }
        }
    }
}

impl End {
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
            coverage: IcrcCoverage::Whole,
            partition: PartitionKey::DEFAULT,
            policy: plan.policy,
        };
        let paths =
            (plan.paths > 1).then(|| Paths::new(plan.path_policy, here.role, usize::from(plan.paths), network.now()));
        pair.initialise(contract.partition)
            .and_then(|()| pair.connect(contract, paths))
            .and_then(|()| pair.open())
            .expect("a new queue pair goes this way");
        let longest = there.messages.iter().map(|message| message.length).max().unwrap_or(0).max(longest);
        let fabric = network.topology();
        let ways = (0..plan.paths).map(|path| Way::new(network, fabric, here.host, there.host, PathId(path)));
        Ok(Self {
            pair,
            application: EndApplication::new(here.clone(), seed, index as u64, key(index), longest),
            ways: ways.collect::<Result<_, _>>()?,
            far: there.host,
            timer: SimTime::NEVER,
            errand: SimTime::NEVER,
            report: ConnectionEndReport::default(),
            listeners: Vec::new(),
        })
    }
}

impl Way {
    fn new(
        network: &SimulatedNetwork,
        fabric: &Fabric,
        here: NodeId,
        there: NodeId,
        path: PathId,
    ) -> Result<Self, TransportSetupError> {
        let ways = way(fabric, here, there, path);
        let Some([out, back]) = &ways else {
            return Err(TransportSetupError::NoWay { from: here, to: there });
        };
        let (Some(first), Some(last)) = (out.hops.first(), back.hops.last()) else {
            return Err(TransportSetupError::NoWay { from: here, to: there });
        };
        let peer = fabric.peer(first.node, first.port).expect("a way uses cabled ports");
        let channel = |end| network.channel(end, Lane(0));
        Ok(Self { leaves: channel(*first), reverse: channel(peer), enters: channel(*last), flow: out.flow })
    }
}

/// The key to the memory of an end.
fn key(end: usize) -> RemoteKey {
    RemoteKey(0x1000 + end as u32)
}

impl<W: QueuePairObserver> NetworkHandler for QueuePairDriver<W> {
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        self.look_at(network, arrival);
        self.go_on(network);
    }

    fn refill(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("an exchange has no sources")
    }

    fn alarm(&mut self, network: &mut SimulatedNetwork, number: u32) {
        if number & PROGRAM != 0 {
            self.woken.push((number & !PROGRAM) as usize);
        } else {
            self.ring(network, number);
        }
        self.go_on(network);
    }

    fn channels_changed(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.notice == LinkNotification::Noticed {
            self.notice(network, channels);
        }
        self.go_on(network);
    }
}

impl<W: QueuePairObserver> QueuePairDriver<W> {
    fn look_at(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(body) = arrival.body else { return };
        let Some(harm) = arrival.harm else {
            return self.hand_in(network, arrival.channel, &body);
        };
        if harm.known_at == SimTime::NEVER {
            match check_end_to_end(&body, arrival.bytes, &harm) {
                EndToEndCheck::Passed(body) => return self.hand_in(network, arrival.channel, &body),
                EndToEndCheck::Bad => network.counters.end_to_end += 1,
            }
        }
        self.hand_in_damage(network, arrival.channel);
    }

    fn ring(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let end = (number & !APPLICATION) as usize;
        let this = &mut self.ends[end];
        let is_errand = number & APPLICATION != 0;
        let set = if is_errand { &mut this.errand } else { &mut this.timer };
        // An alarm that was since set earlier goes off twice; the second time there is nothing to do.
        if *set > network.now() {
            return;
        }
        *set = SimTime::NEVER;
        if is_errand {
            return self.attend(network, end);
        }
        self.act(network, end, |pair, _, now, mut out| pair.handle_timeout(now, &mut out));
    }

    /// Hosts hear that their own cables go down or come up.
    fn notice(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].ways.len() {
                let Way { leaves, reverse, .. } = self.ends[end].ways[path];
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
