//! Aggregation units: a node that sits behind one internal port of its switch (SH-1, and the paper's Figure 4).
//!
//! In: packets for the node and from it. Out: when each has passed the port. The unit is a target adapter inside the switch:
//! whatever its children send reaches it through one port, one packet after the other, and so does what it sends. Without a
//! unit ([`super::CollectiveParameters::unit`]) a node has what reaches its switch at once, as the soft-error paper assumes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use units::{OpId, SimSpan, SimTime};

use crate::link_rate::ByteTime;
use crate::network::ChannelId;

/// What an aggregation unit takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationUnitParameters {
    /// What a byte costs at the internal port.
    pub port: ByteTime,
    /// What a byte costs of each further copy of a result that goes down over several connections.
    pub copy: ByteTime,
    /// From a packet's passage of the port to the machine.
    pub receive: SimSpan,
    /// From the last contribution to the sending of the fold, or at a root of the result.
    pub fold: SimSpan,
}

/// What passes a port on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EgressKind {
    /// A packet on its own.
    Packet,
    /// An operation's result on its way to one of the children.
    HandedDown(OpId),
}

/// Whose turn it is at a port.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum PortGrant<I, O> {
    /// A packet comes in, and has passed by then.
    In(I, SimTime),
    /// A packet goes out; its head leaves now.
    Out(O),
}

/// The internal ports, one for each node. `I` is what comes in, `O` what goes out.
pub(super) struct UnitPorts<I, O> {
    pub parameters: AggregationUnitParameters,
    ports: Vec<Port<I, O>>,
}

struct Port<I, O> {
    free_at: SimTime,
    /// What waits to come in, by the cable on which it came.
    incoming: BTreeMap<ChannelId, VecDeque<(I, u32)>>,
    /// The cable from which the last packet came in: the next in turn follows.
    last: ChannelId,
    outgoing: VecDeque<(O, u32, EgressKind)>,
    /// The last that passed went out.
    sent_last: bool,
    /// The result of which the last packet out was a copy.
    copied: Option<OpId>,
    /// Somebody will ask for the next turn.
    is_watched: bool,
}

impl<I, O> UnitPorts<I, O> {
    pub(super) fn new(parameters: AggregationUnitParameters, nodes: usize) -> Self {
        let port = || Port {
            free_at: SimTime::ZERO,
            incoming: BTreeMap::new(),
            last: ChannelId::MAX,
            outgoing: VecDeque::new(),
            sent_last: false,
            copied: None,
            is_watched: false,
        };
        Self { parameters, ports: std::iter::repeat_with(port).take(nodes).collect() }
    }

    /// A packet comes, whose tail could be through now, had the port been idle.
    pub(super) fn wait_in(&mut self, node: usize, channel: ChannelId, packet: I, bytes: u32) {
        self.ports[node].incoming.entry(channel).or_default().push_back((packet, bytes));
    }

    /// A packet wants to leave.
    pub(super) fn wait_out(&mut self, node: usize, packet: O, bytes: u32, passage: EgressKind) {
        self.ports[node].outgoing.push_back((packet, bytes, passage));
    }

    /// Who may pass now. Where both wait, what the unit sends and what comes in take turns: or a full queue would hold up every
    /// result behind the contributions of later operations.
    pub(super) fn next(&mut self, node: usize, now: SimTime) -> Option<PortGrant<I, O>> {
        let (port, unit) = (&mut self.ports[node], &self.parameters);
        if port.free_at > now {
            return None;
        }
        let outs_turn = port.incoming.is_empty() || !port.sent_last;
        if let Some((packet, bytes, passage)) = outs_turn.then(|| port.outgoing.pop_front()).flatten() {
            port.sent_last = true;
            let result = if let EgressKind::HandedDown(op) = passage { Some(op) } else { None };
            let is_copy = result.is_some() && port.copied == result;
            port.copied = result.or(port.copied);
            port.free_at = now + if is_copy { unit.copy } else { unit.port }.serialise(bytes);
            return Some(PortGrant::Out(packet));
        }
        // Cables take turns, as a switch's arbiter has it: what few send does not wait behind what many do.
        let following = (Bound::Excluded(port.last), Bound::Unbounded);
        let after = port.incoming.range(following).next().or_else(|| port.incoming.iter().next());
        let channel = *after?.0;
        let queue = port.incoming.get_mut(&channel)?;
        let (packet, bytes) = queue.pop_front()?;
        if queue.is_empty() {
            port.incoming.remove(&channel);
        }
        port.last = channel;
        port.sent_last = false;
        // It cuts through: of its time at the port, what has passed since the port became free is over.
        port.free_at = now.max(port.free_at + unit.port.serialise(bytes));
        Some(PortGrant::In(packet, port.free_at))
    }

    /// When to ask again: once for each time that something waits at a busy port.
    pub(super) fn ask_again_at(&mut self, node: usize) -> Option<SimTime> {
        let port = &mut self.ports[node];
        let waits = !port.incoming.is_empty() || !port.outgoing.is_empty();
        (waits && !std::mem::replace(&mut port.is_watched, true)).then_some(port.free_at)
    }

    /// The moment has come at which somebody wanted to ask again.
    pub(super) fn is_asked(&mut self, node: usize) {
        self.ports[node].is_watched = false;
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
            units.wait_in(0, 1, packet, 250); // 250 bytes last 20 ns; the first cuts through.
        }
        assert_eq!(units.next(0, at(100)), Some(PortGrant::In("a", at(100))));
        assert_eq!(units.next(0, at(100)), Some(PortGrant::In("b", at(120))));
        assert_eq!(units.next(0, at(119)), None);
        assert_eq!(units.ask_again_at(0), Some(at(120)));
        assert_eq!(units.ask_again_at(0), None);
        units.is_asked(0);
        assert_eq!(units.next(0, at(120)), Some(PortGrant::In("c", at(140))));
        assert_eq!(units.ask_again_at(0), None);
    }

    #[test]
    fn what_the_unit_sends_takes_turns_with_what_comes_in() {
        let mut units = units(EDR);
        units.wait_in(0, 1, "late contribution", 250);
        for result in ["first", "second"] {
            units.wait_out(0, result, 250, EgressKind::Packet);
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
            units.wait_in(0, channel, packet, 250);
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
            units.wait_out(0, "result", 250, EgressKind::HandedDown(OpId(op)));
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
