//! A reliable connection between two hosts: two ends with neighbouring numbers.
//!
//! In: parts of messages; frames of the peer; time. Out: frames for the network, and parts that arrived, once and in order.

use std::collections::BTreeMap;

use protocol::connection::{
    AckRequest, Connection, ConnectionPolicy, Frame, FramePath, OutgoingFrame, RetryExceeded,
};
use units::{PathId, Rank, SimTime, Time};

/// A part of a message. Its bytes stay with the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessagePart {
    /// The number of the message.
    pub(crate) message: u32,
    /// Bytes on the wire.
    pub(crate) bytes: u32,
}

/// The number of a connection's end. The other end has the same number with the lowest bit flipped.
pub(super) type EndIndex = u32;

/// One end of a connection between two hosts.
pub(super) struct HostLinkEnd {
    pub(super) host: Rank,
    pub(super) peer: Rank,
    connection: Connection<MessagePart>,
    window: usize,
    /// The route in use: its number among the equal routes. Both ends use the higher of theirs.
    pub(super) route: PathId,
    /// The earliest timer that is set for this end.
    pub(super) timer: SimTime,
}

impl HostLinkEnd {
    fn new(policy: ConnectionPolicy, host: Rank, peer: Rank) -> Self {
        let (connection, window) = (Connection::new(policy), usize::from(policy.window));
        Self { host, peer, connection, window, route: PathId(0), timer: SimTime::NEVER }
    }

    /// Sends a part, if the window has room for it.
    pub(super) fn send(
        &mut self,
        now: Time,
        part: MessagePart,
        ask: AckRequest,
        out: &mut Vec<OutgoingFrame<MessagePart>>,
    ) -> bool {
        let has_room = self.connection.outstanding() < self.window;
        if has_room {
            self.connection.send(now, part, ask, &mut |frame| out.push(frame));
        }
        has_room
    }

    /// Handles an intact frame; returns the part that it delivers, if any.
    pub(super) fn handle_frame(
        &mut self,
        now: Time,
        route: PathId,
        frame: &Frame<MessagePart>,
        out: &mut Vec<OutgoingFrame<MessagePart>>,
    ) -> Option<MessagePart> {
        self.route = self.route.max(route);
        self.connection.handle_frame(now, FramePath::ONLY_PATH, frame, &mut |frame| out.push(frame)).copied()
    }

    /// Retransmits what is overdue, over another route.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        out: &mut Vec<OutgoingFrame<MessagePart>>,
    ) -> Result<(), RetryExceeded> {
        if self.connection.deadline().is_none_or(|deadline| deadline > now) {
            return Ok(());
        }
        self.connection.handle_timeout(now, &mut |frame| out.push(frame))?;
        if !out.is_empty() {
            self.route = PathId(self.route.0.saturating_add(1));
        }
        Ok(())
    }

    /// Parts that the peer has not acknowledged.
    fn unacknowledged(&self) -> usize {
        self.connection.outstanding()
    }

    pub(super) fn deadline(&self) -> Option<SimTime> {
        self.connection.deadline().map(SimTime::from)
    }
}

/// All connections, created when the first message needs them.
#[derive(Default)]
pub(super) struct HostLinks {
    ends: Vec<HostLinkEnd>,
    /// The end of a host towards a peer.
    index: BTreeMap<(Rank, Rank), EndIndex>,
}

impl HostLinks {
    /// The end of `host` towards `peer`.
    pub(super) fn end_towards(&mut self, policy: ConnectionPolicy, host: Rank, peer: Rank) -> EndIndex {
        if let Some(end) = self.index.get(&(host, peer)) {
            return *end;
        }
        let end = self.ends.len() as EndIndex;
        self.ends.extend([HostLinkEnd::new(policy, host, peer), HostLinkEnd::new(policy, peer, host)]);
        self.index.extend([((host, peer), end), ((peer, host), end + 1)]);
        end
    }

    pub(super) fn get_mut(&mut self, end: EndIndex) -> Option<&mut HostLinkEnd> {
        self.ends.get_mut(end as usize)
    }

    /// Parts that were not acknowledged, on all connections.
    pub(super) fn unacknowledged(&self) -> usize {
        self.ends.iter().map(HostLinkEnd::unacknowledged).sum()
    }

    /// Closes all connections.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
