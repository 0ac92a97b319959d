//! Opens circuits: a head takes one link after the other.
//!
//! A head that finds no free channel waits in the queue of its link or, if its tag names several ports, in that of its switch.
//! Queues serve by priority, then by age; after [`QsnetParameters::ageing`] all heads are equal (QN-2).

use units::{SimSpan, SimTime};

use super::super::packet::{CircuitDestination, CircuitPacket, CircuitPriority, MulticastRule, QsnetParameters};
use super::super::quaternary_tree::{ARITY, EliteSwitch, TreeLink, TreeLinkEnd};
use super::super::source_route::{RouteTag, SourceRoute};
use super::{
    Circuit, CircuitPhase, MAX_CHANNELS, NONE, VirtualChannel, WaitQueue, Waiter, WormholeEvent, WormholeNetwork,
};

impl WormholeNetwork {
    /// Sends a packet now, or once its node's link has a free channel.
    pub(crate) fn send(&mut self, packet: CircuitPacket) {
        let tree = self.tree;
        let (route, links) = match packet.to {
            CircuitDestination::Node(to) => {
                let route = SourceRoute::new(tree, packet.from, to);
                (route, route.links())
            }
            CircuitDestination::Range { .. } => {
                (SourceRoute::new(tree, packet.from, packet.from), 2 * tree.dimension())
            }
            CircuitDestination::Link(_) => (SourceRoute::new(tree, 0, 0), 1),
        };
        let number = self.free_circuits.pop().unwrap_or_else(|| {
            self.circuits.push(Circuit {
                phase: CircuitPhase::Unused,
                packet,
                route,
                channels: Vec::new(),
                heads: 0,
                links,
                cut_at: None,
                streaming_since: SimTime::ZERO,
                remaining: 0,
                since: SimTime::ZERO,
                lag: SimSpan::ZERO,
                sharing: 1,
                stretch: 0,
                generation: 0,
            });
            self.circuits.len() as u32 - 1
        });
        let circuit = &mut self.circuits[number as usize];
        circuit.phase = CircuitPhase::Opening;
        (circuit.packet, circuit.route, circuit.links) = (packet, route, links);
        (circuit.heads, circuit.sharing, circuit.cut_at) = (1, 1, None);
        let first = match packet.to {
            CircuitDestination::Link(link) => link,
            _ => tree.injection(packet.from),
        };
        self.advance(number, first, None);
    }

    /// A head has crossed a link.
    pub(super) fn handle_head(&mut self, number: u32, link: TreeLink) {
        match (self.tree.end(link), self.circuits[number as usize].packet.to) {
            (TreeLinkEnd::Node(_), _) | (_, CircuitDestination::Link(_)) => self.head_arrived(number),
            (TreeLinkEnd::Switch(switch), CircuitDestination::Node(_)) => self.route(number, switch),
            (TreeLinkEnd::Switch(switch), CircuitDestination::Range { root, .. }) if self.tree.leads_up(link) => {
                self.climb(number, switch, root);
            }
            (TreeLinkEnd::Switch(switch), CircuitDestination::Range { .. }) => self.branch(number, switch, self.now),
        }
    }

    pub(super) fn head_arrived(&mut self, number: u32) {
        let circuit = &mut self.circuits[number as usize];
        circuit.heads -= 1;
        if circuit.heads == 0 {
            self.start_stream(number);
        }
    }

    fn route(&mut self, number: u32, switch: EliteSwitch) {
        let tag = self.circuits[number as usize].route.take().expect("a route ends at a node");
        if tag.first == tag.last {
            let link = self.tree.out(switch, u32::from(tag.first));
            return self.advance(number, link, None);
        }
        if let Some(link) = self.dead_end(switch, tag) {
            return self.end_head(number, link);
        }
        match self.least_loaded(number, switch, tag) {
            Some(link) => self.advance(number, link, None),
            None => self.wait_at_switch(number, switch, tag),
        }
    }

    /// The link with the most free channels among the ports of a tag; the source and its attempt break ties, so that sources spread
    /// and repeated packets take other ways. None if no channel is free, or others wait already.
    fn least_loaded(&self, number: u32, switch: EliteSwitch, tag: RouteTag) -> Option<TreeLink> {
        if self.switch_queues[self.tree.index(switch) as usize].first != NONE {
            return None;
        }
        let ports = u32::from(tag.last - tag.first) + 1;
        let packet = &self.circuits[number as usize].packet;
        let start = ((packet.from >> (2 * switch.level)) + packet.attempt) % ports;
        let mut best = (0, None);
        for step in 0..ports {
            let port = u32::from(tag.first) + (start + step) % ports;
            let link = self.tree.out(switch, port);
            let free = self.free_channels(link);
            if free > best.0 && self.link_queues[link.0 as usize].first == NONE && !self.is_down(link) {
                best = (free, Some(link));
            }
        }
        best.1
    }

    fn free_channels(&self, link: TreeLink) -> usize {
        let first = (link.0 * MAX_CHANNELS) as usize;
        let channels = &self.channels[first..first + self.parameters.channels as usize];
        channels.iter().filter(|channel| channel.holder == NONE && channel.free_at <= self.now).count()
    }

    /// A multicast goes up by the ports that lead to its root (QN-6), where it must be alone.
    fn climb(&mut self, number: u32, switch: EliteSwitch, root: u32) {
        if switch.level + 1 < self.tree.dimension() {
            let port = ARITY + ((root >> (2 * switch.level)) & 3);
            let link = self.tree.out(switch, port);
            return self.advance(number, link, None);
        }
        if matches!(self.parameters.rule, MulticastRule::Unrestricted { .. }) {
            return self.branch(number, switch, self.now);
        }
        let slot = &mut self.roots[root as usize];
        if slot.holder == NONE && slot.free_at <= self.now && slot.waiting.is_empty() {
            slot.holder = number;
            return self.branch(number, switch, self.now);
        }
        slot.waiting.push_back((number, self.now));
        if slot.holder == NONE {
            self.queue.push(slot.free_at.max(self.now), WormholeEvent::RootFree { root }.encode());
        }
    }

    /// The root is free: the next multicast continues.
    pub(super) fn handle_root_free(&mut self, root: u32) {
        let slot = &mut self.roots[root as usize];
        if slot.holder != NONE || slot.free_at > self.now {
            return;
        }
        if let Some((number, since)) = slot.waiting.pop_front() {
            slot.holder = number;
            self.branch(number, EliteSwitch { word: root, level: self.tree.dimension() - 1 }, since);
        }
    }

    /// A multicast that reached a switch at `since` leaves it by all ports that lead to one of its destinations.
    fn branch(&mut self, number: u32, switch: EliteSwitch, since: SimTime) {
        let CircuitDestination::Range { first, last, root } = self.circuits[number as usize].packet.to else {
            return;
        };
        let only = match self.parameters.rule {
            MulticastRule::Serialised { roots } if roots > 1 => Some(root as u8),
            _ => None,
        };
        let reached = |below: &std::ops::RangeInclusive<u32>| *below.start() <= last && *below.end() >= first;
        let ports = (0..ARITY).filter(|port| reached(&self.tree.below(switch, *port)));
        let branches: u32 = ports.clone().map(|port| 1 << port).sum();
        self.circuits[number as usize].heads += branches.count_ones() - 1;
        for port in (0..ARITY).filter(|port| branches >> port & 1 == 1) {
            self.advance_from(number, self.tree.out(switch, port), only, since);
        }
    }

    /// A head that has just arrived tries to take a link.
    fn advance(&mut self, number: u32, link: TreeLink, only: Option<u8>) {
        self.advance_from(number, link, only, self.now);
    }

    /// A head that arrived at `since` tries to take a link.
    fn advance_from(&mut self, number: u32, link: TreeLink, only: Option<u8>, since: SimTime) {
        if self.is_down(link) {
            return self.end_head(number, link);
        }
        let no_waiters = self.link_queues[link.0 as usize].first == NONE;
        if let Some(channel) = self.free_channel(link, only).filter(|_| no_waiters) {
            return self.take(number, channel, since);
        }
        let waiter = self.waiter(number, only);
        push_back(&mut self.link_queues[link.0 as usize], &mut self.waiters, waiter);
        self.schedule_grants(link);
    }

    fn wait_at_switch(&mut self, number: u32, switch: EliteSwitch, tag: RouteTag) {
        let waiter = self.waiter(number, None);
        let index = self.tree.index(switch) as usize;
        push_back(&mut self.switch_queues[index], &mut self.waiters, waiter);
        for port in tag.first..=tag.last {
            self.schedule_grants(self.tree.out(switch, u32::from(port)));
        }
    }

    fn waiter(&mut self, circuit: u32, only: Option<u8>) -> u32 {
        self.counters.waits += 1;
        let waiter = Waiter { circuit, next: NONE, since: self.now, only };
        match self.free_waiters.pop() {
            Some(index) => {
                self.waiters[index as usize] = waiter;
                index
            }
            None => {
                self.waiters.push(waiter);
                self.waiters.len() as u32 - 1
            }
        }
    }

    /// A channel becomes free at a known time without an event of its own, so waiting heads need one.
    fn schedule_grants(&mut self, link: TreeLink) {
        let first = (link.0 * MAX_CHANNELS) as usize;
        for index in first..first + self.parameters.channels as usize {
            let VirtualChannel { holder, free_at, grant_scheduled } = self.channels[index];
            if holder == NONE && !(grant_scheduled && free_at > self.now) {
                self.channels[index].grant_scheduled = true;
                self.queue.push(free_at.max(self.now), WormholeEvent::Grant { link }.encode());
            }
        }
    }

    #[inline]
    fn free_channel(&self, link: TreeLink, only: Option<u8>) -> Option<u32> {
        let first = link.0 * MAX_CHANNELS;
        let mut channels = match only {
            Some(channel) => first + u32::from(channel)..first + u32::from(channel) + 1,
            None => first..first + self.parameters.channels,
        };
        channels.find(|channel| {
            let channel = &self.channels[*channel as usize];
            channel.holder == NONE && channel.free_at <= self.now
        })
    }

    /// A head takes a channel; it arrived at the link at `since`.
    #[inline]
    fn take(&mut self, number: u32, channel: u32, since: SimTime) {
        self.channels[channel as usize].holder = number;
        let circuit = &mut self.circuits[number as usize];
        let QsnetParameters { switch_delay, wire, .. } = self.parameters;
        // The switch decodes the tag while the head waits.
        let ready = if circuit.channels.is_empty() { self.now } else { self.now.max(since + switch_delay) };
        circuit.channels.push(channel);
        self.counters.hops += 1;
        let bytes = circuit.packet.bytes;
        let link = self.link_of(channel);
        self.count_traffic(link, bytes);
        self.queue.push(ready + wire, WormholeEvent::Head { circuit: number, link }.encode());
    }

    /// Assigns the free channels of a link to the heads that wait for it.
    pub(super) fn grant(&mut self, link: TreeLink) {
        if self.is_down(link) {
            return self.turn_away(link);
        }
        loop {
            let group = self.tree.switch_of_up_link(link).map(|group| group as usize);
            let own = self.best(self.link_queues[link.0 as usize], link);
            let shared = group.and_then(|group| self.best(self.switch_queues[group], link));
            let (line, found) = match (own, shared) {
                (None, None) => return,
                (Some(own), Some(shared)) if shared.rank < own.rank => (group, shared),
                (Some(own), _) => (None, own),
                (None, Some(shared)) => (group, shared),
            };
            let line = match line {
                Some(group) => &mut self.switch_queues[group],
                None => &mut self.link_queues[link.0 as usize],
            };
            unlink(line, &mut self.waiters, found.before, found.waiter);
            self.free_waiters.push(found.waiter);
            let Waiter { circuit, since, .. } = self.waiters[found.waiter as usize];
            self.take(circuit, found.channel, since);
        }
    }

    /// A link is down: the heads that wait for it end, and so do those that wait for any up link of a switch if all are down.
    fn turn_away(&mut self, link: TreeLink) {
        self.end_waiting(WaitPlace::Link(link), link);
        let Some(number) = self.tree.switch_of_up_link(link) else { return };
        let words = self.tree.nodes() / ARITY;
        let switch = EliteSwitch { word: number % words, level: number / words };
        if let Some(first) = self.dead_end_up(switch) {
            self.end_waiting(WaitPlace::Switch(number), first);
        }
    }

    fn end_waiting(&mut self, place: WaitPlace, link: TreeLink) {
        loop {
            let line = match place {
                WaitPlace::Link(link) => &mut self.link_queues[link.0 as usize],
                WaitPlace::Switch(number) => &mut self.switch_queues[number as usize],
            };
            let waiter = line.first;
            if waiter == NONE {
                return;
            }
            unlink(line, &mut self.waiters, NONE, waiter);
            self.free_waiters.push(waiter);
            self.end_head(self.waiters[waiter as usize].circuit, link);
        }
    }

    /// The next head of a queue to serve, if there is a channel for it.
    fn best(&self, line: WaitQueue, link: TreeLink) -> Option<GrantCandidate> {
        let mut best: Option<GrantCandidate> = None;
        let (mut before, mut at) = (NONE, line.first);
        while at != NONE {
            let Waiter { circuit, next, since, only } = self.waiters[at as usize];
            if let Some(channel) = self.free_channel(link, only) {
                let aged = self.now.since(since) >= self.parameters.ageing;
                let urgent = aged || self.circuits[circuit as usize].packet.priority == CircuitPriority::High;
                let rank = (!urgent, since);
                if best.as_ref().is_none_or(|best| rank < best.rank) {
                    best = Some(GrantCandidate { before, waiter: at, channel, rank });
                }
            } else if only.is_none() {
                return best; // No channel at all.
            }
            (before, at) = (at, next);
        }
        best
    }
}

/// Where heads wait.
#[derive(Clone, Copy)]
enum WaitPlace {
    Link(TreeLink),
    /// For any up link of the switch of this number.
    Switch(u32),
}

/// A head in a queue, and its predecessor.
struct GrantCandidate {
    before: u32,
    waiter: u32,
    channel: u32,
    /// The smallest is served first.
    rank: (bool, SimTime),
}

fn push_back(line: &mut WaitQueue, waiters: &mut [Waiter], waiter: u32) {
    match line.last {
        NONE => line.first = waiter,
        last => waiters[last as usize].next = waiter,
    }
    line.last = waiter;
}

fn unlink(line: &mut WaitQueue, waiters: &mut [Waiter], before: u32, waiter: u32) {
    let next = waiters[waiter as usize].next;
    match before {
        NONE => line.first = next,
        before => waiters[before as usize].next = next,
    }
    if line.last == waiter {
        line.last = before;
    }
}
