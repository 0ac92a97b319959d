//! The flow engine: all flows, the adapters that send them, and the classes and workloads that start them.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use faults::RandomStream;
use topology::{NodeId, NodePort};
use units::{AdapterLane, SimSpan, SimTime};

use super::class::{FlowStart, TrafficClass};
use super::dcqcn::{DcqcnParameters, DcqcnRate};
use super::flow::{FlowPacket, FlowPacketKind, FlowPurpose, FlowService, HostFlow};
use crate::arrival_check::{ArrivalCheck, check_arrival};
use crate::network::{BesideHandler, DeliveredPacket, SimulatedNetwork};
use crate::packet::{ChannelId, PacketTarget, SimulatedPacket};
use crate::packet_body::PacketBody;
use crate::slab::Slab;
use crate::workload::{MessageRequest, WorkloadExecutor};

/// The purpose of a timer, in its two highest bits.
const FLOW_TIMEOUT: u32 = 0;
const CLASS_ARRIVAL: u32 = 1 << 30;
const CLASS_END: u32 = 2 << 30;
const WORKLOAD: u32 = 3 << 30;
const TIMER_KIND: u32 = 3 << 30;
/// Of a workload's timer: the number is a message's that has passed the receiving adapter, not an operation's.
const MESSAGE: u32 = 1 << 29;

/// Failures that are listed; all are counted.
const MAX_LISTED_FAILURES: usize = 64;
/// The most records of a class; the flows beyond it are counted.
const MAX_RECORDS: usize = 1 << 20;

/// The constants of all flows.
#[derive(Clone, Debug)]
pub struct FlowParameters {
    /// Largest payload of a packet.
    pub mtu: u32,
    /// Packets of a flow that may be unacknowledged.
    pub window: u32,
    /// The receiver answers every so many packets.
    pub acknowledge_every: u32,
    /// A sender without an answer for this long sends again over another route; doubles each time.
    pub timeout: SimSpan,
    /// Timeouts in a row after which a flow fails.
    pub retry_limit: u32,
    /// Packets may overtake each other by so many: routes differ by packet.
    pub reordering: u32,
    /// Rate control, if there is one.
    pub dcqcn: Option<DcqcnParameters>,
    /// The host of each rank of a workload.
    pub placement: Vec<u32>,
}

/// A completed flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// Payload.
    pub bytes: u64,
    /// From its start until the receiver has it all.
    pub time: SimSpan,
}

/// What became of the flows of a class.
#[derive(Clone, Default, Debug)]
pub struct ClassRecord {
    /// The name of the class.
    pub name: String,
    /// Flows that started.
    pub started: u64,
    /// Flows that completed.
    pub completed: u64,
    /// Flows that gave up.
    pub failed: u64,
    /// Payload that arrived, once each.
    pub bytes: u64,
    /// Packets sent again.
    pub repairs: u64,
    /// The completed flows, or the first of very many.
    pub records: Vec<FlowRecord>,
    /// Bytes of each flow without an end, in the order of their start.
    pub endless: Vec<u64>,
    /// When the first flow started and when the last payload arrived.
    pub span: Option<(SimTime, SimTime)>,
}

/// A flow that gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowFailure {
    /// The sender.
    pub from: NodeId,
    /// The receiver, which does not answer over any route.
    pub to: NodeId,
    /// When.
    pub at: SimTime,
}

/// An adapter's flows.
#[derive(Default)]
struct AdapterQueue {
    /// Flows that may send now, in turn.
    ready: VecDeque<u32>,
    /// Answers and notices with the time at which the adapter has made them; they go first.
    replies: VecDeque<(SimTime, SimulatedPacket)>,
    /// Flows that wait for their rate.
    paced: BinaryHeap<Reverse<(SimTime, u32)>>,
}

pub(crate) struct FlowEngine {
    parameters: FlowParameters,
    flows: Slab<HostFlow>,
    /// For each place, when its earliest timer expires.
    timer_at: Vec<SimTime>,
    adapters: Vec<AdapterQueue>,
    classes: Vec<TrafficClass>,
    records: Vec<ClassRecord>,
    /// Poisson flows so far, by class.
    drawn: Vec<u64>,
    /// Classes that may still start flows.
    open_classes: usize,
    streams: Vec<RandomStream>,
    pub(crate) workload: Option<WorkloadExecutor>,
    failures: Vec<FlowFailure>,
    failed: u64,
    next_id: u32,
    picos_per_byte: f64,
    /// The lane of answers and notices.
    control_lane: u8,
    requests: Vec<MessageRequest>,
    last_arrival: SimTime,
}

impl BesideHandler for FlowEngine {
    /// Takes the adapters of all hosts and schedules what starts.
    fn start(&mut self, network: &mut SimulatedNetwork) {
        let channels = network.host_channels();
        self.adapters.resize_with(channels as usize, AdapterQueue::default);
        (0..channels).for_each(|channel| network.make_source(channel));
        self.picos_per_byte = network.parameters().byte_time.picos_per_byte();
        self.control_lane = network.parameters().virtual_lanes - 1;
        for (number, class) in self.classes.iter().enumerate() {
            network.set_timer(SimTime::ZERO + class.start, CLASS_ARRIVAL | number as u32);
            if let Some(duration) = class.duration {
                network.set_timer(SimTime::ZERO + class.start + duration, CLASS_END | number as u32);
            }
        }
        if let Some(workload) = &mut self.workload {
            workload.start(&mut self.requests);
            self.perform_requests(network);
        }
    }

    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        // A damaged packet is dropped: the next one shows the gap.
        let Some(ArrivalCheck::Intact(body)) = check_arrival(network, arrival) else { return };
        let PacketBody::Flow(packet) = &*body else { return };
        if self.flows.get(packet.place).is_none_or(|flow| flow.id != packet.id) {
            return; // Late: the flow has ended and its place may be another's.
        }
        match &packet.kind {
            FlowPacketKind::Data { number, bytes, asks } => {
                self.handle_data(network, packet, *number, *bytes, *asks);
            }
            FlowPacketKind::Answer { next, missing } => self.handle_answer(network, packet.place, *next, missing),
            FlowPacketKind::Notice => {
                let now = network.now();
                if let Some(flow) = self.flows.get_mut(packet.place)
                    && let (Some(rate), Some(dcqcn)) = (&mut flow.rate, &self.parameters.dcqcn)
                {
                    rate.handle_notice(now, dcqcn);
                }
            }
        }
    }

    /// An adapter's link is free: sends one packet, if a flow may send.
    fn handle_idle_source(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
        let now = network.now();
        let replies = &mut self.adapters[channel as usize].replies;
        if replies.front().is_some_and(|(ready, _)| *ready <= now)
            && let Some((_, packet)) = replies.pop_front()
        {
            return network.inject(channel, packet);
        }
        if network.has_pause(channel) {
            // The resume frame wakes the link for data.
            if let Some((ready, _)) = self.adapters[channel as usize].replies.front() {
                network.wake_source(channel, *ready);
            }
            return;
        }
        loop {
            let adapter = &mut self.adapters[channel as usize];
            while let Some(Reverse((at, place))) = adapter.paced.peek().copied().filter(|Reverse((at, _))| *at <= now)
            {
                debug_assert!(at <= now);
                adapter.paced.pop();
                adapter.ready.push_back(place);
            }
            let Some(place) = adapter.ready.pop_front() else { break };
            // A flow that failed while it waited leaves its entry; its place may be another host's by now.
            let host = network.host_of(channel).0;
            let Some(flow) = self.flows.get_mut(place).filter(|flow| flow.from == host) else { continue };
            flow.is_queued = false;
            if self.send_next(network, channel, place) {
                return;
            }
        }
        let adapter = &self.adapters[channel as usize];
        let paced = adapter.paced.peek().map(|Reverse((at, _))| *at);
        let reply = adapter.replies.front().map(|(ready, _)| *ready);
        if let Some(at) = paced.into_iter().chain(reply).min() {
            network.wake_source(channel, at);
        }
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let index = number & !TIMER_KIND;
        match number & TIMER_KIND {
            FLOW_TIMEOUT => self.handle_timeout(network, index),
            CLASS_ARRIVAL => self.handle_class_start(network, index as usize),
            CLASS_END => self.handle_class_end(network, index as usize),
            _ => {
                if let Some((workload, requests)) = self.workload_at(network) {
                    if index & MESSAGE != 0 {
                        workload.handle_received(index & !MESSAGE, requests);
                    } else {
                        workload.handle_timer(index, requests);
                    }
                    self.perform_requests(network);
                }
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FlowEngine {
    pub(crate) fn new(
        parameters: FlowParameters,
        classes: Vec<TrafficClass>,
        workload: Option<WorkloadExecutor>,
        seed: u64,
    ) -> Self {
        let records =
            classes.iter().map(|class| ClassRecord { name: class.name.clone(), ..ClassRecord::default() }).collect();
        let streams = (0..classes.len() as u64).map(|class| RandomStream::new(seed, 0xf10 + (class << 16))).collect();
        Self {
            parameters,
            flows: Slab::default(),
            timer_at: Vec::new(),
            adapters: Vec::new(),
            drawn: vec![0; classes.len()],
            open_classes: classes.len(),
            classes,
            records,
            streams,
            workload,
            failures: Vec::new(),
            failed: 0,
            next_id: 0,
            picos_per_byte: 1.0,
            control_lane: 0,
            requests: Vec::new(),
            last_arrival: SimTime::ZERO,
        }
    }

    /// Whether every flow with an end has ended, and no other will start.
    pub(crate) fn is_done(&self) -> bool {
        self.open_classes == 0
            && self.flows.is_empty()
            && self.workload.as_ref().is_none_or(WorkloadExecutor::is_done)
    }

    /// The share of the workload, or of the traffic that takes longest, that is over at this time, from 0 to 1.
    pub(crate) fn share_over(&self, now: SimTime) -> f64 {
        let classes = self.classes.iter().zip(&self.records).zip(&self.drawn);
        let classes = classes.map(|((class, record), drawn)| class.share_over(now, record.bytes, *drawn));
        classes.chain(self.workload.as_ref().map(WorkloadExecutor::share_over)).fold(1.0, f64::min)
    }

    /// Ends the record: flows that are still under way are counted as they are.
    pub(crate) fn finished_records(&self) -> Vec<ClassRecord> {
        let mut records = self.records.clone();
        for flow in self.flows.values() {
            if let FlowPurpose::Traffic(class) = flow.purpose {
                let record = &mut records[class as usize];
                record.repairs += flow.repair_count;
                if flow.is_endless {
                    record.endless.push(flow.received_bytes);
                }
            }
        }
        records
    }

    /// Flows that gave up: the first of them, and how many.
    pub(crate) fn failures(&self) -> (&[FlowFailure], u64) {
        (&self.failures, self.failed)
    }

    /// When the last payload arrived, or the last operation of the workload completed.
    pub(crate) fn end_time(&self) -> SimTime {
        let workload = self.workload.as_ref().map_or(SimTime::ZERO, WorkloadExecutor::end_time);
        self.last_arrival.max(workload)
    }

    /// Starts the flows of a class that are due; of a Poisson class the next one.
    fn handle_class_start(&mut self, network: &mut SimulatedNetwork, class: usize) {
        let stream = self.streams[class];
        let starts = match self.classes[class].mean_gap(self.picos_per_byte) {
            None => self.classes[class].starts(stream),
            Some(mean_gap) => {
                let end = self.classes[class]
                    .duration
                    .map_or(SimTime::NEVER, |duration| SimTime::ZERO + self.classes[class].start + duration);
                let number = self.drawn[class];
                self.drawn[class] += 1;
                let (gap, next) = self.classes[class].draw(stream, number, mean_gap);
                let at = network.now() + gap;
                let is_over = at > end || self.drawn[class] > super::class::MAX_FLOWS;
                if !is_over {
                    network.set_timer(at, CLASS_ARRIVAL | class as u32);
                }
                // The first call only starts the clock; a flow starts at each later one.
                let due = if number == 0 { Vec::new() } else { vec![next] };
                self.open_classes -= usize::from(is_over);
                due
            }
        };
        if self.classes[class].mean_gap(self.picos_per_byte).is_none() {
            let is_endless = self.classes[class].bytes.is_none();
            self.open_classes -= usize::from(!is_endless || self.classes[class].duration.is_none());
        }
        for start in starts {
            self.start_traffic(network, class, start);
        }
    }

    /// Flows without an end stop sending.
    fn handle_class_end(&mut self, network: &mut SimulatedNetwork, class: usize) {
        if self.classes[class].bytes.is_some() || self.classes[class].mean_gap(1.0).is_some() {
            return;
        }
        self.open_classes -= 1;
        let places: Vec<u32> = self.flows.places().collect();
        for place in places {
            let Some(flow) = self.flows.get_mut(place) else { continue };
            if flow.purpose == FlowPurpose::Traffic(class as u32) && flow.is_endless {
                // One more packet asks for the last answer, unless the last one did.
                flow.packets = if flow.is_flood || flow.next <= flow.asked { flow.next } else { flow.next + 1 };
                if flow.is_flood || flow.is_acknowledged() {
                    self.finish(place);
                } else {
                    self.queue(network, place);
                }
            }
        }
    }

    fn start_traffic(&mut self, network: &mut SimulatedNetwork, class: usize, start: FlowStart) {
        let record = &mut self.records[class];
        record.started += 1;
        record.span.get_or_insert((network.now(), network.now()));
        let service = match self.classes[class].shape {
            super::TrafficShape::Flood => FlowService::Flood,
            _ => FlowService::Reliable,
        };
        let lane = self.classes[class].lane;
        let bytes = start.bytes.unwrap_or(u64::MAX);
        let purpose = FlowPurpose::Traffic(class as u32);
        let place = self.open_flow(network, purpose, (start.from, start.to), bytes, lane, service);
        if let Some(flow) = self.flows.get_mut(place) {
            flow.is_endless = start.bytes.is_none();
        }
    }

    fn open_flow(
        &mut self,
        network: &mut SimulatedNetwork,
        purpose: FlowPurpose,
        ends: (u32, u32),
        bytes: u64,
        lane: u8,
        service: FlowService,
    ) -> u32 {
        let now = network.now();
        let is_flood = service == FlowService::Flood;
        let rate = self.parameters.dcqcn.filter(|_| !is_flood).map(|_| DcqcnRate::new(now));
        self.next_id = self.next_id.wrapping_add(1);
        let mut flow = HostFlow::new(self.next_id, purpose, ends, bytes, self.parameters.mtu, lane, now, rate);
        flow.is_flood = is_flood;
        flow.eligible_at = now + network.parameters().adapter_delay;
        let place = self.flows.insert(flow);
        if self.timer_at.len() <= place as usize {
            self.timer_at.resize(place as usize + 1, SimTime::NEVER);
        }
        self.queue(network, place);
        place
    }

    /// Lets a flow wait for its adapter, if it has something to send and does not wait already.
    fn queue(&mut self, network: &mut SimulatedNetwork, place: u32) {
        let window = self.parameters.window;
        let Some(flow) = self.flows.get_mut(place).filter(|flow| !flow.is_queued && flow.can_send(window)) else {
            return;
        };
        flow.is_queued = true;
        let (from, to, route, at) = (NodeId(flow.from), NodeId(flow.to), flow.route, flow.eligible_at);
        let port = network.topology().next_hop(from, to, route).expect("two hosts differ").port;
        let channel = network.channel(NodePort { node: from, port }, AdapterLane(0));
        let adapter = &mut self.adapters[channel as usize];
        if at > network.now() {
            adapter.paced.push(Reverse((at, place)));
        } else {
            adapter.ready.push_back(place);
        }
        network.wake_source(channel, at.max(network.now()));
    }

    /// Sends the next packet of a flow; false if it has none.
    fn send_next(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, place: u32) -> bool {
        let FlowParameters { mtu, window, acknowledge_every, .. } = self.parameters;
        let now = network.now();
        let Some(flow) = self.flows.get_mut(place) else { return false };
        let Some((number, is_repair)) = flow.take_next(now, window) else { return false };
        let bytes = flow.payload(number, mtu);
        let is_last = number + 1 == flow.packets || !flow.can_send(window);
        let asks = !flow.is_flood && (is_last || is_repair || (number + 1).is_multiple_of(acknowledge_every));
        if asks {
            flow.asked = flow.asked.max(number + 1);
        }
        let kind = FlowPacketKind::Data { number, bytes, asks };
        let body = PacketBody::Flow(FlowPacket { place, id: flow.id, kind, is_marked: false });
        let wire_bytes = body.framed_bytes();
        if let (Some(rate), Some(dcqcn)) = (&mut flow.rate, &self.parameters.dcqcn) {
            let link_bytes = network.link_bytes(wire_bytes);
            rate.note_sent(now, link_bytes, dcqcn);
            let picos = f64::from(link_bytes) * self.picos_per_byte / rate.share();
            flow.eligible_at = flow.eligible_at.max(now) + SimSpan::from_picos(picos as u64);
        }
        let label = network.flow_label(flow.id, flow.route);
        let packet = SimulatedPacket::new(PacketTarget::Node, flow.to, wire_bytes, now, Some(Rc::new(body)));
        let packet = SimulatedPacket { flow: label, lane: flow.lane, ..packet };
        let all_sent = flow.next == flow.packets && !flow.is_sent;
        flow.is_sent |= all_sent;
        let purpose = flow.purpose;
        network.inject(channel, packet);
        if is_repair && let Some(telemetry) = network.telemetry_mut() {
            telemetry.note_repair();
        }
        self.arm(network, place);
        self.queue(network, place);
        if all_sent {
            self.note_sent(network, place, purpose);
        }
        true
    }

    /// The last packet of a flow has been passed to the link.
    fn note_sent(&mut self, network: &mut SimulatedNetwork, place: u32, purpose: FlowPurpose) {
        if let FlowPurpose::Message(number) = purpose
            && let Some((workload, requests)) = self.workload_at(network)
        {
            workload.handle_sent(number, requests);
            self.perform_requests(network);
        }
        if self.flows.get(place).is_some_and(|flow| flow.is_flood) {
            self.finish(place);
        }
    }

    /// Sets the timer of a flow that waits for an answer.
    fn arm(&mut self, network: &mut SimulatedNetwork, place: u32) {
        let timeout = self.parameters.timeout;
        let Some(flow) = self.flows.get_mut(place).filter(|flow| flow.awaits_answer()) else { return };
        if flow.deadline == SimTime::NEVER {
            flow.deadline = network.now() + timeout;
        }
        let at = flow.deadline.max(network.now());
        // A timer that was set for a longer wait does not serve a nearer deadline.
        if at < self.timer_at[place as usize] {
            self.timer_at[place as usize] = at;
            network.set_timer(at, FLOW_TIMEOUT | place);
        }
    }

    fn handle_timeout(&mut self, network: &mut SimulatedNetwork, place: u32) {
        if self.timer_at[place as usize] != network.now() {
            return; // An earlier timer has taken its place.
        }
        self.timer_at[place as usize] = SimTime::NEVER;
        let (timeout, limit) = (self.parameters.timeout, self.parameters.retry_limit);
        let Some(flow) = self.flows.get_mut(place).filter(|flow| flow.awaits_answer()) else { return };
        if flow.deadline > network.now() {
            return self.arm(network, place);
        }
        if flow.retries >= limit {
            let failure = FlowFailure { from: NodeId(flow.from), to: NodeId(flow.to), at: network.now() };
            return self.fail(place, failure);
        }
        flow.handle_timeout();
        flow.deadline = network.now() + timeout.times(1 << flow.retries.min(16));
        self.arm(network, place);
        self.queue(network, place);
    }

    fn fail(&mut self, place: u32, failure: FlowFailure) {
        self.failed += 1;
        if self.failures.len() < MAX_LISTED_FAILURES {
            self.failures.push(failure);
        }
        if let Some(flow) = self.flows.remove(place) {
            match flow.purpose {
                FlowPurpose::Traffic(class) => {
                    self.records[class as usize].failed += 1;
                    self.records[class as usize].repairs += flow.repair_count;
                }
                FlowPurpose::Message(number) => {
                    if let Some(workload) = &mut self.workload {
                        workload.handle_failed(number);
                    }
                }
            }
        }
    }

    fn handle_data(
        &mut self,
        network: &mut SimulatedNetwork,
        packet: &FlowPacket,
        number: u32,
        bytes: u32,
        asks: bool,
    ) {
        let now = network.now();
        let reordering = self.parameters.reordering;
        let Some(flow) = self.flows.get_mut(packet.place) else { return };
        let before = flow.received_bytes;
        let answers = flow.receive(number, bytes, asks, reordering) && !flow.is_flood;
        if flow.received_bytes > before {
            self.last_arrival = now;
            if let FlowPurpose::Traffic(class) = flow.purpose {
                let record = &mut self.records[class as usize];
                record.bytes += flow.received_bytes - before;
                if let Some((_, last)) = &mut record.span {
                    *last = now;
                }
            }
        }
        if let Some(dcqcn) = self.parameters.dcqcn.filter(|_| packet.is_marked && flow.rate.is_some())
            && flow.noticed_at.is_none_or(|at| now >= at + dcqcn.notice_period)
        {
            flow.noticed_at = Some(now);
            self.reply(network, packet.place, FlowPacketKind::Notice);
        }
        let Some(flow) = self.flows.get_mut(packet.place) else { return };
        let is_complete = flow.is_whole() && !flow.is_received && !flow.is_endless;
        if answers || is_complete && !flow.is_flood {
            let answer = flow.answer(reordering);
            self.reply(network, packet.place, answer);
        }
        if is_complete {
            self.note_received(network, packet.place);
        }
    }

    /// The receiver has the whole flow.
    fn note_received(&mut self, network: &mut SimulatedNetwork, place: u32) {
        let now = network.now() + network.parameters().adapter_delay;
        let Some(flow) = self.flows.get_mut(place) else { return };
        flow.is_received = true;
        match flow.purpose {
            FlowPurpose::Traffic(class) => {
                let record = &mut self.records[class as usize];
                record.completed += 1;
                if record.records.len() < MAX_RECORDS {
                    record.records.push(FlowRecord { bytes: flow.bytes, time: now.since(flow.started) });
                }
            }
            FlowPurpose::Message(number) => network.set_timer(now, WORKLOAD | MESSAGE | number),
        }
    }

    /// A receiver sends an answer or a notice back.
    fn reply(&mut self, network: &mut SimulatedNetwork, place: u32, kind: FlowPacketKind) {
        let Some(flow) = self.flows.get(place) else { return };
        let (from, to, route) = (NodeId(flow.to), flow.from, flow.route);
        let label = network.flow_label(flow.id, route);
        let body = PacketBody::Flow(FlowPacket { place, id: flow.id, kind, is_marked: false });
        let port = network.topology().next_hop(from, NodeId(to), route).expect("two hosts differ").port;
        let channel = network.channel(NodePort { node: from, port }, AdapterLane(0));
        let ready = network.now() + network.parameters().adapter_delay;
        let packet = SimulatedPacket::new(PacketTarget::Node, to, body.framed_bytes(), ready, Some(Rc::new(body)));
        // On links with credits lanes are the routes' own (a torus needs them); only Ethernet has priorities.
        let lane = if network.is_ethernet() { self.control_lane } else { 0 };
        // It waits here and not in the link's queue, where a packet that is not ready yet would hold up those that are.
        self.adapters[channel as usize].replies.push_back((ready, SimulatedPacket { flow: label, lane, ..packet }));
        network.wake_source(channel, ready);
    }

    fn handle_answer(&mut self, network: &mut SimulatedNetwork, place: u32, next: u32, missing: &[(u32, u32)]) {
        let (now, timeout) = (network.now(), self.parameters.timeout);
        let guard = SimSpan::from_picos(timeout.as_picos() / 8);
        let Some(flow) = self.flows.get_mut(place) else { return };
        if flow.handle_answer(now, next, missing, guard) {
            flow.deadline = if flow.awaits_answer() { now + timeout } else { SimTime::NEVER };
        }
        if flow.is_acknowledged() && (flow.is_received || flow.is_endless) {
            return self.finish(place);
        }
        self.arm(network, place);
        self.queue(network, place);
    }

    fn finish(&mut self, place: u32) {
        let Some(flow) = self.flows.remove(place) else { return };
        if let FlowPurpose::Traffic(class) = flow.purpose {
            let record = &mut self.records[class as usize];
            record.repairs += flow.repair_count;
            if flow.is_endless {
                record.endless.push(flow.received_bytes);
            }
        }
    }

    /// Sends the messages and sets the timers that the workload asks for.
    fn perform_requests(&mut self, network: &mut SimulatedNetwork) {
        let mut batch = std::mem::take(&mut self.requests);
        while !batch.is_empty() {
            for request in batch.drain(..) {
                match request {
                    MessageRequest::Send { number, from, to, bytes } => {
                        let ends = (self.parameters.placement[from as usize], self.parameters.placement[to as usize]);
                        self.open_flow(network, FlowPurpose::Message(number), ends, bytes, 0, FlowService::Reliable);
                    }
                    MessageRequest::Timer { number, at } => network.set_timer(at, WORKLOAD | number),
                    MessageRequest::Local { number } => {
                        // A message to the own host takes no time.
                        if let Some(workload) = &mut self.workload {
                            workload.handle_sent(number, &mut self.requests);
                            workload.handle_received(number, &mut self.requests);
                        }
                    }
                }
            }
            std::mem::swap(&mut batch, &mut self.requests);
        }
    }

    /// The workload, at the present time.
    fn workload_at(
        &mut self,
        network: &SimulatedNetwork,
    ) -> Option<(&mut WorkloadExecutor, &mut Vec<MessageRequest>)> {
        let workload = self.workload.as_mut()?;
        workload.set_time(network.now());
        Some((workload, &mut self.requests))
    }
}
