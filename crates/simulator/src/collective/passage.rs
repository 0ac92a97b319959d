//! What happens beside the links: messages inside a switch, the passage of a unit's port, and the software of hosts.
//!
//! In: a packet for a node that sits behind an internal port, or one that it sends. Out: the same, after it had its turn at
//! the port ([`super::unit`]). Everything that waits is mail: it has a number, and the alarm of that number opens it.

use std::rc::Rc;

use protocol::Payload;
use protocol::aggregation::{EdgeIndex, Message};
use protocol::connection::{Arrival, Frame, Outgoing};
use units::{Rank, Span};
use wire::aggregation::Kind;

use super::drive::{Driver, Input, NO_QUEUE_PAIRS};
use super::measure::HostEvent;
use super::unit::{Passage, Turn, Units};
use super::wiring::{End, PartyIndex};
use crate::body::Body;
use crate::network::{ChannelId, Network};

/// Something that will happen beside the links.
pub(super) enum Mail {
    /// A machine hears of something.
    Beside { to: End, body: Rc<Body> },
    /// A packet for a node could be through its port, were that idle.
    AtPort { node: PartyIndex, coming: Coming },
    /// A packet has come through.
    Passed { coming: Coming },
    /// A node has something to send.
    Leaving { node: PartyIndex, departure: Departure },
    /// A node's port is free, and something waits there.
    PortFree { node: PartyIndex },
    /// A member comes late to the operation that is running.
    Comes { rank: Rank, own: Option<Payload> },
    /// A host's software comes to this.
    Host { rank: Rank, event: HostEvent },
}

/// A packet on its way to a node.
pub(super) struct Coming {
    channel: ChannelId,
    bytes: u32,
    body: Rc<Body>,
}

/// What a node sends.
pub(super) enum Departure {
    /// A frame over an edge.
    Over { edge: EdgeIndex, outgoing: Outgoing<Message> },
    /// A multicast to all below.
    Down { message: Message, copies: u8 },
}

/// The ports of all nodes.
pub(super) type Ports = Units<Coming, Departure>;

impl Departure {
    fn message(&self) -> Option<&Message> {
        match self {
            Self::Over { outgoing: Outgoing { frame: Frame::Data { message, .. }, .. }, .. } => Some(message),
            Self::Over { .. } => None,
            Self::Down { message, .. } => Some(message),
        }
    }
}

impl Driver {
    /// Whether a machine is a node behind an internal port.
    pub(super) fn is_behind_port(&self, party: PartyIndex) -> bool {
        self.units.is_some() && (party as usize) < self.wiring.nodes.len()
    }

    /// What a host's message takes to reach the adapter.
    pub(super) fn sending(&self, frame: &Frame<Message>) -> Span {
        match (&self.parameters.host, frame) {
            (Some(costs), Frame::Data { message, .. }) => costs.sending(message.payload.len()),
            _ => Span::ZERO,
        }
    }

    /// A sound packet has come: it goes to whom it is for, through the port if there is one.
    pub(super) fn admit(&mut self, network: &mut Network, channel: ChannelId, bytes: u32, body: Rc<Body>) {
        let party = match &*body {
            Body::Edge { to, .. } => Some(to.party),
            Body::Multicast { root, .. } => self.wiring.hearer(channel, *root).map(|end| end.party),
            Body::Transport { .. } => None,
        };
        match party.filter(|party| self.is_behind_port(*party)) {
            Some(node) => {
                let at = network.now() + network.parameters().switch_delay;
                self.send_mail(network, at, Mail::AtPort { node, coming: Coming { channel, bytes, body } });
            }
            None => self.hand_in(network, channel, &body),
        }
    }

    /// A node wants to send: folding takes its time, then the packet waits for the port.
    pub(super) fn leave(&mut self, network: &mut Network, node: PartyIndex, departure: Departure) {
        let folded = match departure.message().map(|message| message.header.kind) {
            Some(Kind::Contribution) => true,
            Some(Kind::Result) => self.wiring.is_root(node),
            _ => false,
        };
        let fold = self.units.as_ref().map_or(Span::ZERO, |units| units.parameters.fold);
        let at = network.now() + if folded { fold } else { Span::ZERO };
        self.send_mail(network, at, Mail::Leaving { node, departure });
    }

    /// The time of a piece of mail has come.
    pub(super) fn open_mail(&mut self, network: &mut Network, mail: Mail) {
        match mail {
            Mail::Beside { to, body } => match &*body {
                Body::Edge { to, came, frame } => self.hand_in_frame(network, *to, *came, frame),
                Body::Multicast { message, .. } => self.feed(network, to, Input::Multicast(message)),
                Body::Transport { .. } => unreachable!("{NO_QUEUE_PAIRS}"),
            },
            Mail::AtPort { node, coming } => {
                let (channel, bytes) = (coming.channel, coming.bytes);
                self.at_port(network, node, |units| units.wait_in(node as usize, channel, coming, bytes));
            }
            Mail::Passed { coming: Coming { channel, body, .. } } => self.hand_in(network, channel, &body),
            Mail::Leaving { node, departure } => self.queue_up(network, node, departure),
            Mail::PortFree { node } => self.at_port(network, node, |units| units.is_asked(node as usize)),
            Mail::Comes { rank, own } => self.begin(network, rank, own),
            Mail::Host { rank, event } => self.host_event(network, rank, event),
        }
    }

    /// A packet takes its place at the port.
    fn queue_up(&mut self, network: &mut Network, node: PartyIndex, departure: Departure) {
        let bytes = self.size_of(node, &departure);
        let passage = match (&departure, departure.message()) {
            (Departure::Over { .. }, Some(message)) if message.header.kind == Kind::Result => {
                Passage::HandedDown(message.op())
            }
            _ => Passage::Packet,
        };
        self.at_port(network, node, |units| units.wait_out(node as usize, departure, bytes, passage));
    }

    /// Something changes at a port; then whoever may pass does.
    fn at_port(&mut self, network: &mut Network, node: PartyIndex, change: impl FnOnce(&mut Ports)) {
        let Some(units) = &mut self.units else { return };
        change(units);
        let receive = units.parameters.receive;
        while let Some(turn) = self.units.as_mut().and_then(|units| units.next(node as usize, network.now())) {
            match turn {
                Turn::In(coming, passed) => self.send_mail(network, passed + receive, Mail::Passed { coming }),
                Turn::Out(departure) => self.depart(network, node, departure),
            }
        }
        if let Some(at) = self.units.as_mut().and_then(|units| units.ask_again_at(node as usize)) {
            self.send_mail(network, at, Mail::PortFree { node });
        }
    }

    /// Its head enters the switch, which passes it on.
    fn depart(&mut self, network: &mut Network, node: PartyIndex, departure: Departure) {
        let ready = network.now() + network.parameters().switch_delay;
        match departure {
            Departure::Over { edge, outgoing } => self.inject_frame(network, node, edge, outgoing, ready),
            Departure::Down { message, copies } => self.inject_multicast(network, node, message, copies, ready),
        }
    }

    fn size_of(&self, node: PartyIndex, departure: &Departure) -> u32 {
        let body = match departure {
            Departure::Over { edge, outgoing } => Body::Edge {
                to: self.wiring.wire(node, *edge).far,
                came: Arrival { path: outgoing.path, migration: outgoing.migration },
                frame: outgoing.frame.clone(),
            },
            Departure::Down { message, .. } => {
                Body::Multicast { root: self.wiring.root_of[node as usize], message: message.clone() }
            }
        };
        self.size(&body)
    }
}
