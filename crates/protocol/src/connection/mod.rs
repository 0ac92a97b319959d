//! A reliable connection: numbers, acknowledges, repeats, replicates, and moves to another path when its own fails.
//!
//! In: messages to send; frames, reports of damage and time from the driver. Out: frames to transmit, each so many
//! times over some path, and every message of the other end exactly once and in order. Rules: docs/protocol.md P-1 to
//! P-9 and P-27 to P-38.
//!
//! It is the transport of an InfiniBand reliable connection (24-bit numbers, cumulative acknowledgement, NAK on a
//! sequence error, go-back-N) with additions. *Temporal replication* (SE-9): a frame is sent `copies` times in
//! a row, and damage is reported to the sender only when no copy came through. *Confirmation*: an answer at a higher
//! layer that proves arrival stands in for an acknowledgement, so that the usual case sends none. *Selective repair*
//! between two ends of ours, *measured timers* and a *congestion window* for networks that drop. *Paths* ([`path`]).
//!
//! The edges of aggregation trees use it as it is; [`crate::queue_pair`] builds the verbs' queue pairs on it.

mod congestion;
mod frame;
mod frame_headers;
pub mod path;
mod policy;
mod receiver;
mod rtt;
mod sender;
#[cfg(test)]
mod tests;

use units::{PathId, Psn, Span, Time};

pub use frame::{FatalNak, Frame, FramePath, FramePurpose, MigrationBit, OutgoingFrame};
pub use frame_headers::{control_frame, control_headers, migration_bit};
pub use path::Paths;
pub use policy::{CongestionControl, ConnectionPolicy, LossRecovery, RetransmitTimer};
pub use receiver::PsnPosition;
pub use sender::{AckRequest, RetryExceeded};

use path::{FollowDecision, InvalidPathTransition, LoadPathError, MigrationCause, PathActivity, ProbeRequest};
use receiver::Receiver;
use sender::Sender;

/// How a packet was found to be beyond use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// By a check on this very link: the neighbour at the other end can repair it.
    Here,
    /// It came marked: someone further up knows already and repairs it (SE-5).
    Marked,
}

/// What the receiver made of a report of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageOutcome {
    /// A copy of something that came through, or another copy is still to come.
    Harmless,
    /// No copy came through; the sender has been told.
    Reported,
}

/// One end of a connection that carries messages of type `M`.
#[derive(Debug)]
pub struct Connection<M> {
    policy: ConnectionPolicy,
    sender: Sender<M>,
    receiver: Receiver,
    /// When what was not asked for is to be acknowledged; never, if nothing is.
    acknowledge_at: Time,
    /// None if there is but one way, as for most edges of a simulated tree.
    paths: Option<Box<Paths>>,
}

impl<M: Clone> Connection<M> {
    /// A connection with one path whose two directions start at number zero.
    pub fn new(policy: ConnectionPolicy) -> Self {
        Self::starting_at(policy, Psn::new(0), Psn::new(0))
    }

    /// A connection with one path: what it sends is numbered from `send` on, what it receives from `receive` on.
    pub fn starting_at(policy: ConnectionPolicy, send: Psn, receive: Psn) -> Self {
        let (sender, receiver) = (Sender::new(send), Receiver::new(receive));
        Self { policy, sender, receiver, acknowledge_at: Time::NEVER, paths: None }
    }

    /// Gives it several paths.
    pub fn set_paths(&mut self, paths: Paths) {
        self.paths = Some(Box::new(paths));
    }

    /// Its paths, if it has several.
    pub fn paths(&self) -> Option<&Paths> {
        self.paths.as_deref()
    }

    /// Its paths, to hear their events.
    pub fn paths_mut(&mut self) -> Option<&mut Paths> {
        self.paths.as_deref_mut()
    }

    /// The path on which it sends now, and what headers say of its state.
    fn way(&self) -> FramePath {
        match &self.paths {
            Some(paths) => FramePath { path: paths.current(), migration: paths.bit() },
            None => FramePath::ONLY_PATH,
        }
    }

    /// Sends a message, now or when the window allows. Returns its number if it went out now.
    pub fn send(
        &mut self,
        now: Time,
        message: M,
        ask: AckRequest,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Option<Psn> {
        let way = self.way();
        self.sender.send(&self.policy, now, message, ask, &mut on(way, out))
    }

    /// The answer to the frame of this number has come some other way (P-5): it need not be acknowledged.
    pub fn confirm(&mut self, now: Time, psn: Psn, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let way = self.way();
        self.sender.confirm(&self.policy, now, psn, &mut on(way, out));
    }

    /// Takes a sound frame; returns the message that it delivers, if it does. What comes early is dropped.
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
        let place = match self.place(now, arrival, *psn, out) {
            PsnPosition::Ahead(_) => PsnPosition::Beyond,
            place => place,
        };
        if place != PsnPosition::Next {
            self.turn_away(arrival, place, *wants_ack, out);
            return None;
        }
        self.take_next();
        if *wants_ack {
            self.acknowledge(arrival, out);
        }
        Some(message)
    }

    /// Takes a sound frame that is not data.
    pub fn handle_control(
        &mut self,
        now: Time,
        arrival: FramePath,
        frame: &Frame<M>,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let leads = if matches!(frame, Frame::Probe { .. }) { FollowDecision::Yes } else { FollowDecision::No };
        self.heard(now, arrival, leads, out);
        let way = self.way();
        let before = self.sender.first_unacknowledged();
        match frame {
            Frame::Ack { psn } => self.sender.acknowledged(&self.policy, now, *psn, &mut on(way, out)),
            Frame::Nak { expected } => self.sender.refused(&self.policy, now, *expected, &mut on(way, out)),
            Frame::Gaps { expected, arrived } => {
                self.sender.gaps(&self.policy, now, *expected, *arrived, &mut on(way, out));
            }
            Frame::NotReady { expected, wait } => self.sender.not_ready(&self.policy, now, *expected, *wait),
            Frame::Probe { token } => {
                if let Some(paths) = &mut self.paths {
                    paths.probed(now, arrival.path, arrival.migration);
                }
                let reply = OutgoingFrame::control(Frame::ProbeReply { token: *token });
                on(self.back(arrival), out)(reply);
            }
            Frame::ProbeReply { token } => {
                if let Some(paths) = &mut self.paths {
                    paths.replied(now, arrival.path, *token, arrival.migration);
                }
            }
            Frame::Refusal { psn, .. } => self.sender.refused_for_good(&self.policy, now, *psn),
            Frame::Data { .. } => {}
        }
        if self.sender.first_unacknowledged() != before
            && let Some(paths) = &mut self.paths
        {
            paths.proven(now, arrival.path);
        }
    }

    /// Where a data frame stands. If it is the next, it may be taken ([`Self::take_next`]), be put off
    /// ([`Self::not_ready`]) or be refused ([`Self::refuse`]); if it is ahead, it may be kept ([`Self::keep`]).
    pub fn place(
        &mut self,
        now: Time,
        arrival: FramePath,
        psn: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> PsnPosition {
        let place = self.receiver.place(&self.policy, psn);
        let leads = if place == PsnPosition::Old { FollowDecision::No } else { FollowDecision::Yes };
        self.heard(now, arrival, leads, out);
        if leads == FollowDecision::Yes
            && let Some(paths) = &mut self.paths
        {
            paths.served(now, arrival.path);
        }
        place
    }

    /// A sound packet came; perhaps the other end has moved.
    fn heard(
        &mut self,
        now: Time,
        arrival: FramePath,
        leads: FollowDecision,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        if let Some(paths) = &mut self.paths
            && paths.heard(now, arrival.path, arrival.migration, leads)
        {
            self.change_path(now, out);
        }
    }

    /// The next frame has been delivered.
    pub fn take_next(&mut self) {
        self.receiver.take_next(&self.policy);
    }

    /// True if the frame that is expected now has been kept.
    pub fn has_next(&self) -> bool {
        self.receiver.has_next()
    }

    /// Makes the receiver forget what it has, for machines that are broken on purpose.
    #[cfg(feature = "sabotage")]
    pub(crate) fn expect_wrongly(&mut self, psn: Psn) {
        self.receiver = Receiver::new(psn);
    }

    /// The number that is expected.
    pub fn expected(&self) -> Psn {
        self.receiver.expected()
    }

    /// A frame that stands so far ahead has been kept; the sender is told what is missing.
    pub fn keep(
        &mut self,
        arrival: FramePath,
        distance: u32,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.receiver.keep(distance, wants_ack, &mut on(self.back(arrival), out));
    }

    /// A frame that is old or too far ahead is dropped.
    pub fn turn_away(
        &mut self,
        arrival: FramePath,
        place: PsnPosition,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.receiver.turn_away(&self.policy, place, wants_ack, &mut on(self.back(arrival), out));
    }

    /// What has been delivered was not asked to be acknowledged: it is in a while, together with what comes until then.
    pub fn acknowledge_later(&mut self, now: Time) {
        if let Some(after) = self.policy.acknowledge_after {
            self.acknowledge_at = self.acknowledge_at.min(now + after);
        }
    }

    /// Acknowledges everything that has been delivered.
    pub fn acknowledge(&mut self, arrival: FramePath, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.acknowledge_at = Time::NEVER;
        self.receiver.acknowledge(&mut on(self.back(arrival), out));
    }

    /// The next frame came too early for its receiver.
    pub fn not_ready(&mut self, arrival: FramePath, wait: Span, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.receiver.not_ready(wait, &mut on(self.back(arrival), out));
    }

    /// The next frame asks for what can never be done.
    pub fn refuse(&mut self, arrival: FramePath, cause: FatalNak, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.receiver.refuse_for_good(cause, &mut on(self.back(arrival), out));
    }

    /// Answers go back on the path on which the question came (P-31): it carried one way, the present one may not.
    fn back(&self, arrival: FramePath) -> FramePath {
        FramePath { path: arrival.path, ..self.way() }
    }

    /// A packet came over this edge and was beyond use.
    pub fn handle_damage(&mut self, damage: Damage, out: &mut impl FnMut(OutgoingFrame<M>)) -> DamageOutcome {
        let way = self.way();
        self.receiver.damaged(&self.policy, damage, &mut on(way, out))
    }

    /// A packet came over a path and was beyond use; its number is not known, so nobody is told.
    pub fn handle_path_damage(&mut self, now: Time, path: PathId, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if self.paths.as_mut().is_some_and(|paths| paths.damaged(now, path)) {
            self.change_path(now, out);
        }
    }

    /// The driver knows that a path is down.
    pub fn handle_path_down(&mut self, now: Time, path: PathId, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if self.paths.as_mut().is_some_and(|paths| paths.down(now, path)) {
            self.change_path(now, out);
        }
    }

    /// The driver knows that a path is up again.
    pub fn handle_path_up(&mut self, now: Time, path: PathId) {
        if let Some(paths) = &mut self.paths {
            paths.up(now, path);
        }
    }

    /// The driver has reason to doubt a path: it is probed at once.
    pub fn suspect_path(&mut self, now: Time, path: PathId) {
        if let Some(paths) = &mut self.paths {
            paths.suspect(now, path);
        }
    }

    /// Loads an alternate path; [`path::PathEvent::Armed`] tells when it is ready.
    ///
    /// # Errors
    /// If there is no such path, or it is the present one.
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

    /// Everything that is unacknowledged goes out again on the new path; the other end knows what it has.
    fn change_path(&mut self, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let way = self.way();
        self.sender.change_path(&self.policy, now, &mut on(way, out));
    }

    /// Replicated packets that are not frames of this connection (multicasts) share its edge: after the first good
    /// one, so many more copies are due, and damage among them is harmless.
    pub fn expect_echoes(&mut self, echoes: u8) {
        self.receiver.expect_echoes(echoes);
    }

    /// One of those copies has come.
    pub fn note_echo(&mut self) {
        self.receiver.note_echo();
    }

    /// When [`Self::handle_timeout`] is due, if ever.
    pub fn deadline(&self) -> Option<Time> {
        let sender = self.sender.deadline(&self.policy).unwrap_or(Time::NEVER);
        let paths = self.paths.as_ref().and_then(|paths| paths.deadline()).unwrap_or(Time::NEVER);
        let earliest = sender.min(paths).min(self.acknowledge_at);
        (earliest < Time::NEVER).then_some(earliest)
    }

    /// Sends again what is overdue, moves to another path if this one stays silent, and watches over the others.
    ///
    /// # Errors
    /// If the other end has given no sign of life for too long.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) -> Result<(), RetryExceeded> {
        let way = self.way();
        if self.acknowledge_at <= now {
            self.acknowledge(way, out);
        }
        let timeouts = self.sender.handle_timeout(&self.policy, now, &mut on(way, out))?;
        let Some(paths) = &mut self.paths else { return Ok(()) };
        let mut probes = Vec::new();
        let silent = timeouts >= self.policy.path_retries && paths.fail_over(now, MigrationCause::Silence);
        let traffic = if self.sender.outstanding() > 0 { PathActivity::UnderWay } else { PathActivity::Idle };
        let moved = paths.handle_timeout(now, traffic, &mut |probe| probes.push(probe));
        for ProbeRequest { path, migration, token } in probes {
            on(FramePath { path, migration }, out)(OutgoingFrame::control(Frame::Probe { token }));
        }
        if silent || moved {
            self.change_path(now, out);
        }
        Ok(())
    }

    /// Whether a message of this kind has been sent and not yet been acknowledged: it need not be sent again.
    pub fn is_carrying(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.sender.is_carrying(kind)
    }

    /// Messages that are not known to have come.
    pub fn outstanding(&self) -> usize {
        self.sender.outstanding()
    }

    /// The number of the first frame that is not known to have come.
    pub fn first_unacknowledged(&self) -> Psn {
        self.sender.first_unacknowledged()
    }

    /// The mean round trip of late; zero if none has been measured.
    pub fn round_trip(&self) -> Span {
        self.sender.round_trip()
    }

    /// Forgets everything that is unacknowledged: the other end is lost.
    pub fn abandon(&mut self) {
        self.sender.abandon();
    }
}

/// Puts frames on a path.
fn on<M>(way: FramePath, out: &mut impl FnMut(OutgoingFrame<M>)) -> impl FnMut(OutgoingFrame<M>) {
    move |outgoing| out(OutgoingFrame { path: way.path, migration: way.migration, ..outgoing })
}
