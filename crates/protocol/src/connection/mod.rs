//! A reliable connection: sequence numbers, acknowledgements, retransmission, replication, and migration between paths.
//!
//! In: messages to send; from the driver, frames, reports of damage, and the time. Out: frames to transmit, each `copies` times over
//! a path, and every message of the peer exactly once and in order. Rules: docs/protocol.md P-1 to P-9 and P-10 to P-25.
//!
//! It is the transport of an InfiniBand reliable connection (24-bit sequence numbers, cumulative acknowledgement, NAK on a
//! sequence error, go-back-N) with additions. *Temporal replication* (SE-9): a frame is sent `copies` times in a row, and the
//! receiver sends a NAK only if every copy was damaged. *Confirmation*: a reply at a higher layer that proves arrival replaces the
//! acknowledgement, so that the common case sends none. *Selective repair* between two Pleach ends, *measured timers* and a
//! *congestion window* for networks that drop packets. *Paths* ([`path`]).
//!
//! The edges of aggregation trees use it directly; [`crate::queue_pair`] builds verbs queue pairs on it.

mod congestion;
mod damage;
mod frame;
mod frame_headers;
mod link_errors;
pub mod path;
mod policy;
mod receiver;
mod rtt;
mod sender;
#[cfg(test)]
mod tests;

use units::{PathId, Psn, Span, Time};

pub use damage::{Damage, DamageOutcome};
pub use frame::{FatalNak, Frame, FramePath, FramePurpose, MigrationBit, OutgoingFrame};
pub use frame_headers::{control_frame, control_headers, migration_bit};
pub use path::Paths;
pub use policy::{CongestionControl, ConnectionPolicy, CopyPolicy, LossRecovery, RetransmitTimer};
pub use receiver::PsnPosition;
pub use sender::{AckRequest, RetryExceeded};

pub(crate) use congestion::CongestionWindow;
pub(crate) use rtt::RttEstimator;

#[cfg(feature = "sabotage")]
use crate::sabotage::MachineSabotage;
use path::{FollowDecision, InvalidPathTransition, LoadPathError, MigrationCause, PathActivity, ProbeRequest};
use receiver::Receiver;
use sender::Sender;

/// One end of a connection that carries messages of type `M`.
#[derive(Debug)]
pub struct Connection<M> {
    policy: ConnectionPolicy,
    sender: Sender<M>,
    receiver: Receiver,
    /// When to acknowledge frames that did not request it; `NEVER` if there are none.
    acknowledge_at: Time,
    /// None with a single path, as for most edges of a simulated tree.
    paths: Option<Box<Paths>>,
}

impl<M: Clone> Connection<M> {
    /// A connection with one path whose two directions start at sequence number zero.
    pub fn new(policy: ConnectionPolicy) -> Self {
        Self::starting_at(policy, Psn::new(0), Psn::new(0))
    }

    /// A connection with one path that sends from number `send` on, and receives from number `receive` on.
    pub fn starting_at(policy: ConnectionPolicy, send: Psn, receive: Psn) -> Self {
        let (sender, receiver) = (Sender::new(send), Receiver::new(receive));
        Self { policy, sender, receiver, acknowledge_at: Time::NEVER, paths: None }
    }

    /// Gives the connection several paths.
    pub fn set_paths(&mut self, paths: Paths) {
        self.paths = Some(Box::new(paths));
    }

    /// The paths, if there are several.
    pub fn paths(&self) -> Option<&Paths> {
        self.paths.as_deref()
    }

    /// The paths, to poll their events.
    pub fn paths_mut(&mut self) -> Option<&mut Paths> {
        self.paths.as_deref_mut()
    }

    /// The path to send on, and the migration bit for headers.
    fn current_path(&self) -> FramePath {
        match &self.paths {
            Some(paths) => FramePath { path: paths.current(), migration: paths.bit() },
            None => FramePath::ONLY_PATH,
        }
    }

    /// Sends a message, now or when the window allows. Returns its number if it was sent now.
    pub fn send(
        &mut self,
        now: Time,
        message: M,
        ask: AckRequest,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Option<Psn> {
        let (path, copy) = (self.current_path(), self.copy_path(now));
        self.sender.send(&self.policy, now, message, ask, &mut on_paths(path, copy, out))
    }

    /// The second path of short messages, if the present one is not to be relied on (P-132).
    fn copy_path(&self, now: Time) -> Option<PathId> {
        let paths = self.paths.as_ref().filter(|_| self.policy.replication == CopyPolicy::Measured)?;
        paths.copy_path(now).filter(|_| self.sender.is_short_operation())
    }

    /// A reply at a higher layer proves that the frame with this number arrived (P-5): it needs no acknowledgement.
    pub fn confirm(&mut self, now: Time, psn: Psn, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let path = self.current_path();
        self.sender.confirm(&self.policy, now, psn, &mut on_path(path, out));
    }

    /// Handles an intact frame; returns the message that it delivers, if any. Early frames are dropped.
    pub fn handle_frame<'f>(
        &mut self,
        now: Time,
        arrival: FramePath,
        frame: &'f Frame<M>,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Option<&'f M> {
        let Frame::Data { psn, wants_ack, message } = frame else {
            self.handle_control(now, arrival, frame, out);
            return None;
        };
        let position = match self.classify(now, arrival, *psn, out) {
            PsnPosition::Ahead(_) => PsnPosition::OutOfWindow,
            position => position,
        };
        #[cfg(feature = "sabotage")]
        if position == PsnPosition::Duplicate && self.policy.sabotage == Some(MachineSabotage::AcceptDuplicates) {
            return Some(message);
        }
        if position != PsnPosition::Expected {
            self.discard(arrival, position, *wants_ack, out);
            return None;
        }
        self.accept_expected();
        if *wants_ack {
            self.acknowledge(arrival, out);
        }
        Some(message)
    }

    /// Handles an intact frame that is not data.
    pub fn handle_control(
        &mut self,
        now: Time,
        arrival: FramePath,
        frame: &Frame<M>,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let follow = if matches!(frame, Frame::Probe { .. }) { FollowDecision::Follow } else { FollowDecision::Stay };
        self.note_arrival(now, arrival, follow, out);
        let path = self.current_path();
        let before = self.sender.first_unacknowledged();
        let mut moved = false;
        match frame {
            Frame::Ack { psn } => self.sender.handle_ack(&self.policy, now, *psn, &mut on_path(path, out)),
            Frame::Nak { expected } => self.sender.handle_nak(&self.policy, now, *expected, &mut on_path(path, out)),
            Frame::SelectiveAck { expected, arrived } => {
                self.sender.handle_selective_ack(&self.policy, now, *expected, *arrived, &mut on_path(path, out));
            }
            Frame::RnrNak { expected, wait } => self.sender.handle_rnr_nak(&self.policy, now, *expected, *wait),
            Frame::Probe { token } => {
                if let Some(paths) = &mut self.paths {
                    paths.handle_probe(now, arrival.path, arrival.migration);
                }
                let reply = OutgoingFrame::control(Frame::ProbeReply { token: *token });
                on_path(self.reply_path(arrival), out)(reply);
            }
            Frame::ProbeReply { token } => {
                if let Some(paths) = &mut self.paths {
                    moved = paths.handle_probe_reply(now, arrival.path, *token, arrival.migration);
                }
            }
            Frame::FatalNak { psn, .. } => self.sender.handle_fatal_nak(&self.policy, now, *psn),
            Frame::Data { .. } => {}
        }
        if self.sender.first_unacknowledged() != before
            && let Some(paths) = &mut self.paths
        {
            moved |= paths.note_acknowledged(now, arrival.path);
        }
        if moved {
            self.change_path(now, out);
        }
    }

    /// Where a data frame stands. An expected frame can be accepted ([`Self::accept_expected`]), deferred ([`Self::send_rnr_nak`]) or
    /// rejected ([`Self::send_fatal_nak`]); one that is ahead can be buffered ([`Self::hold_early`]).
    pub fn classify(
        &mut self,
        now: Time,
        arrival: FramePath,
        psn: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> PsnPosition {
        self.receiver.note_intact_data();
        let position = self.receiver.classify(&self.policy, psn);
        let follow = if position == PsnPosition::Duplicate { FollowDecision::Stay } else { FollowDecision::Follow };
        self.note_arrival(now, arrival, follow, out);
        if follow == FollowDecision::Follow
            && let Some(paths) = &mut self.paths
        {
            paths.note_request(now, arrival.path);
        }
        position
    }

    /// An intact packet arrived; the peer may have migrated.
    fn note_arrival(
        &mut self,
        now: Time,
        arrival: FramePath,
        follow: FollowDecision,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        if let Some(paths) = &mut self.paths
            && paths.note_arrival(now, arrival.path, arrival.migration, follow)
        {
            self.change_path(now, out);
        }
    }

    /// The expected frame was delivered.
    pub fn accept_expected(&mut self) {
        self.receiver.accept_expected(&self.policy);
    }

    /// Whether the expected frame arrived early and is buffered.
    pub fn holds_expected(&self) -> bool {
        self.receiver.holds_expected()
    }

    /// Makes the receiver expect a wrong number, for tests with deliberately broken machines.
    #[cfg(feature = "sabotage")]
    pub(crate) fn expect_wrongly(&mut self, psn: Psn) {
        self.receiver = Receiver::new(psn);
    }

    /// The expected sequence number.
    pub fn expected(&self) -> Psn {
        self.receiver.expected()
    }

    /// The caller buffered a frame that is `distance` ahead; this reports the gap to the sender.
    pub fn hold_early(
        &mut self,
        arrival: FramePath,
        distance: u32,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.receiver.hold_early(distance, wants_ack, &mut on_path(self.reply_path(arrival), out));
    }

    /// Drops a duplicate, or a frame that is too far ahead.
    pub fn discard(
        &mut self,
        arrival: FramePath,
        position: PsnPosition,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.receiver.discard(&self.policy, position, wants_ack, &mut on_path(self.reply_path(arrival), out));
    }

    /// Schedules a delayed acknowledgement for delivered frames that did not request one.
    pub fn acknowledge_later(&mut self, now: Time) {
        if let Some(after) = self.policy.acknowledge_after {
            self.acknowledge_at = self.acknowledge_at.min(now + after);
        }
    }

    /// Acknowledges all delivered frames.
    pub fn acknowledge(&mut self, arrival: FramePath, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.acknowledge_at = Time::NEVER;
        self.receiver.send_ack(&mut on_path(self.reply_path(arrival), out));
    }

    /// Defers the expected frame: no receive is posted for it.
    pub fn send_rnr_nak(&mut self, arrival: FramePath, wait: Span, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.receiver.send_rnr_nak(wait, &mut on_path(self.reply_path(arrival), out));
    }

    /// Rejects the expected frame for good.
    pub fn send_fatal_nak(&mut self, arrival: FramePath, cause: FatalNak, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.receiver.send_fatal_nak(cause, &mut on_path(self.reply_path(arrival), out));
    }

    /// Replies take the path of the request (P-15): it worked in one direction, the current path may not work at all.
    fn reply_path(&self, arrival: FramePath) -> FramePath {
        FramePath { path: arrival.path, ..self.current_path() }
    }

    /// A packet arrived over this edge and was unusable.
    pub fn handle_damage(&mut self, damage: Damage, out: &mut impl FnMut(OutgoingFrame<M>)) -> DamageOutcome {
        let path = self.current_path();
        self.receiver.handle_damage(&self.policy, damage, &mut on_path(path, out))
    }

    /// A packet arrived over a path and was unusable. Its number is unknown, so there is no NAK.
    pub fn handle_path_damage(&mut self, now: Time, path: PathId, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if self.paths.as_mut().is_some_and(|paths| paths.handle_damage(now, path)) {
            self.change_path(now, out);
        }
    }

    /// The driver reports that a path is down.
    pub fn handle_path_down(&mut self, now: Time, path: PathId, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if self.paths.as_mut().is_some_and(|paths| paths.handle_down(now, path)) {
            self.change_path(now, out);
        }
    }

    /// The driver reports that a path is up again.
    pub fn handle_path_up(&mut self, now: Time, path: PathId) {
        if let Some(paths) = &mut self.paths {
            paths.handle_up(now, path);
        }
    }

    /// The driver suspects a path: probe it at once.
    pub fn suspect_path(&mut self, now: Time, path: PathId) {
        if let Some(paths) = &mut self.paths {
            paths.suspect(now, path);
        }
    }

    /// Loads an alternate path; [`path::PathEvent::Armed`] follows when it is ready.
    ///
    /// # Errors
    /// If there is no such path, or it is the current one.
    pub fn load_path(&mut self, now: Time, path: PathId) -> Result<(), LoadPathError> {
        self.paths.as_mut().map_or(Err(LoadPathError::Unknown(path)), |paths| paths.load(now, path))
    }

    /// Moves traffic to the armed alternate.
    ///
    /// # Errors
    /// If none is armed.
    pub fn migrate(
        &mut self,
        now: Time,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Result<(), InvalidPathTransition> {
        let wrong = InvalidPathTransition { state: path::PathState::Migrated, asked: path::PathTransition::Migrate };
        self.paths.as_mut().map_or(Err(wrong), |paths| paths.migrate(now))?;
        self.change_path(now, out);
        Ok(())
    }

    /// Retransmits everything unacknowledged on the new path; the peer discards what it has.
    fn change_path(&mut self, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let path = self.current_path();
        self.sender.change_path(&self.policy, now, &mut on_path(path, out));
    }

    /// Replicated packets that are not frames of this connection (multicasts) share its edge: after the first intact one, this many
    /// further copies are due, and damage among them is harmless.
    pub fn expect_copies(&mut self, echoes: u8) {
        self.receiver.expect_copies(echoes);
    }

    /// One of those copies arrived.
    pub fn note_copy(&mut self) {
        self.receiver.note_copy();
    }

    /// When [`Self::handle_timeout`] is due; none if nothing is pending.
    pub fn deadline(&self) -> Option<Time> {
        let sender = self.sender.deadline(&self.policy).unwrap_or(Time::NEVER);
        let paths = self.paths.as_ref().and_then(|paths| paths.deadline()).unwrap_or(Time::NEVER);
        let earliest = sender.min(paths).min(self.acknowledge_at);
        (earliest < Time::NEVER).then_some(earliest)
    }

    /// Retransmits overdue frames, moves to another path if this one times out, and probes the others.
    ///
    /// # Errors
    /// If the peer has not responded for too long.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) -> Result<(), RetryExceeded> {
        let path = self.current_path();
        if self.acknowledge_at <= now {
            self.acknowledge(path, out);
        }
        let before = self.sender.timeouts();
        let timeouts = if self.policy.never_retransmits() {
            self.sender.handle_timeout(&self.policy, now, &mut |_| ())?
        } else {
            let copy = self.copy_path(now);
            self.sender.handle_timeout(&self.policy, now, &mut on_paths(path, copy, out))?
        };
        let Some(paths) = &mut self.paths else { return Ok(()) };
        let mut probes = Vec::new();
        let has_timed_out = timeouts > before && timeouts >= self.policy.path_retries;
        let silent = has_timed_out && paths.fail_over(now, MigrationCause::Timeout);
        let activity = if self.sender.outstanding() > 0 { PathActivity::Outstanding } else { PathActivity::Idle };
        let moved = paths.handle_timeout(now, activity, &mut |probe| probes.push(probe));
        for ProbeRequest { path, migration, token } in probes {
            on_path(FramePath { path, migration }, out)(OutgoingFrame::control(Frame::Probe { token }));
        }
        if silent || moved {
            self.change_path(now, out);
        }
        Ok(())
    }

    /// If a timeout is due that need not count towards the retry limit, as long as the peer has responded elsewhere since the returned time: then
    /// call [`Self::extend_retries`] before [`Self::handle_timeout`].
    pub fn may_extend_retries(&self, now: Time) -> Option<Time> {
        self.sender.may_extend_retries(&self.policy, now)
    }

    /// The timeout that is due does not count, and the next one is later: the peer answers others, so it is busy and not lost (P-131).
    pub fn extend_retries(&mut self) {
        self.sender.extend_retries();
    }

    /// Whether a message of this kind was sent and is unacknowledged: then it need not be sent again.
    pub fn is_unacknowledged(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.sender.is_unacknowledged(kind)
    }

    /// Messages that are unacknowledged or wait for the window.
    pub fn outstanding(&self) -> usize {
        self.sender.outstanding()
    }

    /// Timeouts in a row without a sign of life, on all paths.
    pub fn timeouts(&self) -> u8 {
        self.sender.total_timeouts()
    }

    /// How long the peer has not responded to what is unacknowledged; zero before the first timeout.
    pub fn silence(&self, now: Time) -> Span {
        self.sender.silence(now)
    }

    /// The number of the first unacknowledged frame.
    pub fn first_unacknowledged(&self) -> Psn {
        self.sender.first_unacknowledged()
    }

    /// The smoothed round trip; zero before the first measurement.
    pub fn round_trip(&self) -> Span {
        self.sender.round_trip()
    }

    /// Drops all unacknowledged messages: the peer is lost.
    pub fn abandon(&mut self) {
        self.sender.abandon();
    }
}

/// Sends data over a path, and a copy over another one. The copy asks nobody to follow (P-16).
fn on_paths<M: Clone>(
    path: FramePath,
    copy: Option<PathId>,
    out: &mut impl FnMut(OutgoingFrame<M>),
) -> impl FnMut(OutgoingFrame<M>) {
    move |outgoing| {
        if let (Some(copy), Frame::Data { .. }) = (copy, &outgoing.frame) {
            out(OutgoingFrame { path: copy, migration: MigrationBit::Loaded, copies: 1, ..outgoing.clone() });
        }
        out(OutgoingFrame { path: path.path, migration: path.migration, ..outgoing });
    }
}

/// Sends frames over a path.
fn on_path<M>(path: FramePath, out: &mut impl FnMut(OutgoingFrame<M>)) -> impl FnMut(OutgoingFrame<M>) {
    move |outgoing| out(OutgoingFrame { path: path.path, migration: path.migration, ..outgoing })
}
