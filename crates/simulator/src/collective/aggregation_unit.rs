//! Aggregation units: a node behind one internal port of its switch (SH-1, and the paper's Figure 4).
//!
//! In: packets to the node and from it. Out: when each has passed the port. The unit is a target adapter inside the switch: the
//! packets of its children reach it through one port, one after another, and its own packets leave through the same port. Without a
//! unit ([`super::CollectiveParameters::unit`]) a node receives immediately what reaches its switch, as the soft-error paper assumes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use units::{OpId, SimSpan, SimTime};

use crate::link_rate::ByteTime;
use crate::packet::ChannelId;

/// The times of an aggregation unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationUnitParameters {
    /// The time of a byte at the internal port.
    pub port: ByteTime,
    /// The time of a byte of each further copy of a result that goes down over several connections.
    pub copy: ByteTime,
    /// From a packet's passage of the port to the machine.
    pub receive: SimSpan,
    /// From the last contribution to the sending of the reduced contribution, or at a root of the result.
    pub fold: SimSpan,
}

/// The kind of a packet that leaves through a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EgressKind {
    /// A single packet.
    Packet,
    /// An operation's result for one of the children.
    ResultCopy(OpId),
}

/// The packet that the port's arbiter grants next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum PortGrant<I, O> {
    /// An incoming packet, which has passed at this time.
    In(I, SimTime),
    /// An outgoing packet; its head leaves now.
    Out(O),
}

/// The internal ports, one for each node. `I` is an incoming packet, `O` an outgoing one.
pub(super) struct UnitPorts<I, O> {
    pub parameters: AggregationUnitParameters,
    ports: Vec<Port<I, O>>,
}

struct Port<I, O> {
    free_at: SimTime,
    /// Waiting incoming packets, by the channel on which they arrived.
    incoming: BTreeMap<ChannelId, VecDeque<(I, u32)>>,
    /// The channel of the last incoming packet: the next channel in turn follows.
    last: ChannelId,
    outgoing: VecDeque<(O, u32, EgressKind)>,
    /// The last packet that passed was an outgoing one.
    last_was_egress: bool,
    /// The operation whose result the last outgoing packet was.
    last_result: Option<OpId>,
    /// A wake-up for the next grant is scheduled.
    is_wake_up_set: bool,
}

impl<I, O> UnitPorts<I, O> {
    pub(super) fn new(parameters: AggregationUnitParameters, nodes: usize) -> Self {
        let port = || Port {
            free_at: SimTime::ZERO,
            incoming: BTreeMap::new(),
            last: ChannelId::MAX,
            outgoing: VecDeque::new(),
            last_was_egress: false,
            last_result: None,
            is_wake_up_set: false,
        };
        Self { parameters, ports: std::iter::repeat_with(port).take(nodes).collect() }
    }

    /// Queues an incoming packet whose tail would have passed an idle port by now.
    pub(super) fn queue_ingress(&mut self, node: usize, channel: ChannelId, packet: I, bytes: u32) {
        self.ports[node].incoming.entry(channel).or_default().push_back((packet, bytes));
    }

    /// Queues an outgoing packet.
    pub(super) fn queue_egress(&mut self, node: usize, packet: O, bytes: u32, passage: EgressKind) {
        self.ports[node].outgoing.push_back((packet, bytes, passage));
    }

    /// The packet that may pass now. If both directions wait, they alternate; otherwise a full queue of contributions to later
    /// operations would delay every result.
    pub(super) fn next(&mut self, node: usize, now: SimTime) -> Option<PortGrant<I, O>> {
        let (port, unit) = (&mut self.ports[node], &self.parameters);
        if port.free_at > now {
            return None;
        }
        let outs_turn = port.incoming.is_empty() || !port.last_was_egress;
        if let Some((packet, bytes, passage)) = outs_turn.then(|| port.outgoing.pop_front()).flatten() {
            port.last_was_egress = true;
            let result = if let EgressKind::ResultCopy(op) = passage { Some(op) } else { None };
            let is_copy = result.is_some() && port.last_result == result;
            port.last_result = result.or(port.last_result);
            port.free_at = now + if is_copy { unit.copy } else { unit.port }.serialise(bytes);
            return Some(PortGrant::Out(packet));
        }
        // Channels take turns, as in a switch's arbiter: the packets of a slow sender do not wait behind those of a fast one.
        let following = (Bound::Excluded(port.last), Bound::Unbounded);
        let after = port.incoming.range(following).next().or_else(|| port.incoming.iter().next());
        let channel = *after?.0;
        let queue = port.incoming.get_mut(&channel)?;
        let (packet, bytes) = queue.pop_front()?;
        if queue.is_empty() {
            port.incoming.remove(&channel);
        }
        port.last = channel;
        port.last_was_egress = false;
        // Cut-through: the packet's time at the port started when the port became free.
        port.free_at = now.max(port.free_at + unit.port.serialise(bytes));
        Some(PortGrant::In(packet, port.free_at))
    }

    /// When to ask for the next grant, if packets wait and no wake-up is scheduled.
    pub(super) fn next_wake_up(&mut self, node: usize) -> Option<SimTime> {
        let port = &mut self.ports[node];
        let waits = !port.incoming.is_empty() || !port.outgoing.is_empty();
        (waits && !std::mem::replace(&mut port.is_wake_up_set, true)).then_some(port.free_at)
    }

    /// The scheduled wake-up has happened.
    pub(super) fn handle_wake_up(&mut self, node: usize) {
        self.ports[node].is_wake_up_set = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_rate::{LinkRate, LinkWidth};

    const EDR: ByteTime = ByteTime::of(LinkWidth::X4, LinkRate::Edr);

    fn units(copy: ByteTime) -> UnitPorts<&'static str, &'static str> {
        UnitPorts::new(AggregationUnitParameters { port: EDR, copy, receive: SimSpan::ZERO, fold: SimSpan::ZERO }, 1)
    }

    fn at(nanos: u64) -> SimTime {
        SimTime::ZERO + SimSpan::from_nanos(nanos)
    }

    #[test]
    fn packets_that_come_together_pass_one_after_the_other() {
        let mut units = units(EDR);
        for packet in ["a", "b", "c"] {
            units.queue_ingress(0, 1, packet, 250); // 250 bytes last 20 ns; the first cuts through.
        }
        assert_eq!(units.next(0, at(100)), Some(PortGrant::In("a", at(100))));
        assert_eq!(units.next(0, at(100)), Some(PortGrant::In("b", at(120))));
        assert_eq!(units.next(0, at(119)), None);
        assert_eq!(units.next_wake_up(0), Some(at(120)));
        assert_eq!(units.next_wake_up(0), None);
        units.handle_wake_up(0);
        assert_eq!(units.next(0, at(120)), Some(PortGrant::In("c", at(140))));
        assert_eq!(units.next_wake_up(0), None);
    }

    #[test]
    fn what_the_unit_sends_takes_turns_with_what_comes_in() {
        let mut units = units(EDR);
        units.queue_ingress(0, 1, "late contribution", 250);
        for result in ["first", "second"] {
            units.queue_egress(0, result, 250, EgressKind::Packet);
        }
        assert_eq!(units.next(0, at(100)), Some(PortGrant::Out("first")));
        assert_eq!(units.next(0, at(100)), None);
        assert_eq!(units.next(0, at(120)), Some(PortGrant::In("late contribution", at(140))));
        assert_eq!(units.next(0, at(140)), Some(PortGrant::Out("second")));
    }

    #[test]
    fn cables_take_turns() {
        let mut units = units(EDR);
        for (channel, packet) in [(5, "a"), (5, "b"), (5, "c"), (3, "x"), (9, "y"), (9, "z")] {
            units.queue_ingress(0, channel, packet, 250);
        }
        let mut order = Vec::new();
        for nanos in 0..200 {
            while let Some(PortGrant::In(packet, _)) = units.next(0, at(nanos)) {
                order.push(packet);
            }
        }
        assert_eq!(order, ["x", "a", "y", "b", "z", "c"]);
    }

    #[test]
    fn only_further_copies_of_the_same_result_are_cheaper() {
        let mut units = units(ByteTime::of(LinkWidth::X4, LinkRate::Hdr));
        for op in [7, 7, 7, 8, 8] {
            units.queue_egress(0, "result", 250, EgressKind::ResultCopy(OpId(op)));
        }
        let mut heads = Vec::new();
        for nanos in 0..100 {
            if units.next(0, at(nanos)).is_some() {
                heads.push(nanos);
            }
        }
        assert_eq!(heads, [0, 20, 30, 40, 60]);
    }
}
