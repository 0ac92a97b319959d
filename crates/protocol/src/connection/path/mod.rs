//! The ways that a connection may take, and the choice between them: automatic path migration.
//!
//! In: orders (load, migrate), reports (path down, path up, damage, silence), probes and their answers, time. Out: the
//! path to send on, probes to send, events for the user. Rules: docs/protocol.md P-31 to P-38; claims PM-1 to PM-3, PM-8.
//!
//! A path's number is its rank. Every path but the present one is probed, so that a dead one is never armed, and one that
//! has been healthy for a while is gone back to if it ranks higher. Loading, arming and migration are three steps that
//! know nothing of each other, as in the paper: each can be done by hand, and each is done by itself if nobody does.

mod monitor;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use units::limits::MAX_PATHS;
use units::{PathId, Span, Time};

use super::frame::MigrationBit;
pub use monitor::PathHealth;
use monitor::PathMonitor;
pub use state::{InvalidPathTransition, PATH_TRANSITIONS, PathState, PathTransition};

/// Events that wait for the user at most; the oldest are forgotten first.
const MAX_EVENTS: usize = 64;

/// How paths are watched and chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPolicy {
    /// From one probe of a path to the next.
    pub probe_every: Span,
    /// How long an answer to a probe is waited for.
    pub probe_timeout: Span,
    /// Unanswered probes in a row after which a path is dead.
    pub misses: u8,
    /// How long a better path must have been healthy before it is gone back to. Doubles each time it fails again soon.
    pub failback_after: Span,
    /// A path on which more than one packet in so many comes damaged is left; none: damage is borne.
    pub damage_limit: Option<u16>,
    /// Who loads alternates.
    pub loading: AlternateLoading,
}

/// Who loads alternates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlternateLoading {
    /// The connection: after set-up and after every migration, the best path that answers.
    Automatic,
    /// The user, through the connection. An order stands until the next one or a migration: an alternate that dies is
    /// armed again when it answers.
    ByHand,
}

impl Default for PathPolicy {
    fn default() -> Self {
        Self {
            probe_every: Span::from_micros(250_000),
            probe_timeout: Span::from_micros(20_000),
            misses: 2,
            failback_after: Span::from_micros(1_000_000),
            damage_limit: Some(50),
            loading: AlternateLoading::Automatic,
        }
    }
}

/// Which end this is: when both move at once to different paths, one of them must not follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationRole {
    /// Stays where it went.
    Leader,
    /// Follows.
    Follower,
}

/// Why traffic moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MigrationCause {
    /// The user asked.
    ByHand,
    /// Nothing came back for too long.
    Silence,
    /// The driver says that the path is down.
    Down,
    /// Too much came damaged.
    Damage,
    /// The other end moved.
    Followed,
    /// A path that ranks higher has been healthy for a while.
    Failback,
}

/// What the user hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathEvent {
    /// Both ends have this alternate loaded.
    Armed(PathId),
    /// Traffic has moved.
    Migrated {
        /// From here.
        from: PathId,
        /// To there.
        to: PathId,
        /// For this reason.
        cause: MigrationCause,
    },
    /// The path has failed and there is no other.
    MigrationFailed(PathId),
    /// A path that was dead answers again.
    Recovered(PathId),
    /// A path does not answer any more.
    Lost(PathId),
}

/// A probe to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProbeRequest {
    pub path: PathId,
    pub migration: MigrationBit,
    pub token: u64,
}

/// The paths of one end of a connection.
#[derive(Debug)]
pub struct Paths {
    policy: PathPolicy,
    role: MigrationRole,
    records: Vec<PathMonitor>,
    current: PathId,
    alternate: Option<PathId>,
    state: PathState,
    /// A probe of the present path has been answered since traffic moved to it. Until then the migration bit stays set, or
    /// the other end might never hear that it should follow (P-36, P-44).
    answered: bool,
    /// The path that the user asked for before that.
    ordered: Option<PathId>,
    /// When a new request last came over the present path.
    served_at: Time,
    /// The driver doubts the present path, and nothing has come back on it since.
    doubted: bool,
    tokens: u64,
    /// No probe is due or overdue before then. Answers put probes off, and that is not followed: every packet may bring one,
    /// and an early look costs little.
    due: Time,
    events: VecDeque<PathEvent>,
    migrations: u32,
}

impl Paths {
    /// So many paths, the first of them in use.
    ///
    /// # Panics
    /// If there are none, or more than [`MAX_PATHS`].
    pub fn new(policy: PathPolicy, role: MigrationRole, count: usize, now: Time) -> Self {
        assert!((1..=MAX_PATHS).contains(&count), "a connection has 1 to {MAX_PATHS} paths, not {count}");
        Self {
            policy,
            role,
            records: (0..count).map(|_| PathMonitor::new(now, policy.failback_after)).collect(),
            current: PathId(0),
            alternate: None,
            state: PathState::Migrated,
            answered: false,
            ordered: None,
            served_at: Time::ZERO,
            doubted: false,
            tokens: 0,
            due: now,
            events: VecDeque::new(),
            migrations: 0,
        }
    }

    /// The path to send on.
    pub fn current(&self) -> PathId {
        self.current
    }

    /// The alternate that is loaded, if one is.
    pub fn alternate(&self) -> Option<PathId> {
        self.alternate
    }

    /// The state of migration.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// How a path is doing.
    pub fn health(&self, path: PathId) -> Option<PathHealth> {
        self.records.get(path.index()).map(PathMonitor::health)
    }

    /// How often traffic has moved.
    pub fn migrations(&self) -> u32 {
        self.migrations
    }

    /// What has happened since it was last asked, one at a time.
    pub fn poll_event(&mut self) -> Option<PathEvent> {
        self.events.pop_front()
    }

    pub(super) fn bit(&self) -> MigrationBit {
        if self.state == PathState::Migrated { MigrationBit::Migrated } else { MigrationBit::Loaded }
    }

    /// What a probe says. One of another path than the present asks nobody to follow, whatever the state (P-32).
    fn probe_bit(&self, path: PathId) -> MigrationBit {
        if path == self.current { self.bit() } else { MigrationBit::Loaded }
    }

    fn tell(&mut self, event: PathEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn go(&mut self, asked: PathTransition) -> Result<(), InvalidPathTransition> {
        self.state = self.state.after(asked)?;
        Ok(())
    }

    fn others(&self) -> impl Iterator<Item = PathId> + use<> {
        let current = self.current;
        (0..self.records.len()).map(|index| PathId(index as u8)).filter(move |path| *path != current)
    }

    fn is_another_alive(&self) -> bool {
        self.others().any(|other| self.records[other.index()].health() == PathHealth::Alive)
    }

    /// Loads an alternate: it is probed at once, and armed when the other end answers and has loaded one too.
    pub(super) fn load(&mut self, now: Time, path: PathId) -> Result<(), LoadPathError> {
        if path == self.current {
            return Err(LoadPathError::InUse(path));
        }
        let record = self.records.get_mut(path.index()).ok_or(LoadPathError::Unknown(path))?;
        if self.migrations > 0 && !self.answered {
            // P-36: an order has to wait until the other end has been told of the migration.
            self.ordered = Some(path);
            return Ok(());
        }
        record.probe_now(now);
        self.look_at(path);
        self.alternate = Some(path);
        self.go(PathTransition::Load).map_err(LoadPathError::State)
    }

    /// Moves traffic to the armed alternate.
    pub(super) fn migrate(&mut self, now: Time) -> Result<(), InvalidPathTransition> {
        match (self.state, self.alternate) {
            (PathState::Armed, Some(path)) => self.move_to(now, path, MigrationCause::ByHand),
            _ => return Err(InvalidPathTransition { state: self.state, asked: PathTransition::Migrate }),
        }
        Ok(())
    }

    fn move_to(&mut self, now: Time, to: PathId, cause: MigrationCause) {
        let from = std::mem::replace(&mut self.current, to);
        // P-36: whoever leaves a path has a reason, and the end that follows shares it. A dead one has its pause already.
        if matches!(cause, MigrationCause::ByHand | MigrationCause::Damage | MigrationCause::Followed) {
            self.records[from.index()].disfavour(now, &self.policy);
        }
        self.go(PathTransition::Migrate).expect("every state allows it");
        self.alternate = None;
        self.answered = false;
        self.ordered = None;
        self.doubted = false;
        self.migrations = self.migrations.saturating_add(1);
        // The probe tells the other end, should there be nothing else to send, and whether the new path carries.
        self.records[to.index()].take_over(now);
        self.look_at(to);
        self.tell(PathEvent::Migrated { from, to, cause });
    }

    /// The present path has failed. True if there was somewhere to go.
    pub(super) fn fail_over(&mut self, now: Time, cause: MigrationCause) -> bool {
        let failed = self.current;
        let news = self.records[failed.index()].fail(now, &self.policy);
        self.look_at(failed);
        if news {
            self.tell(PathEvent::Lost(failed));
        }
        let Some(next) = self.best_other() else {
            if news {
                self.tell(PathEvent::MigrationFailed(failed));
            }
            return false;
        };
        self.move_to(now, next, cause);
        true
    }

    /// The armed alternate, or else the healthiest; of those alike, the one that was left longest ago.
    fn best_other(&self) -> Option<PathId> {
        if let (PathState::Armed, Some(path)) = (self.state, self.alternate)
            && self.records[path.index()].may_carry()
        {
            return Some(path);
        }
        let usable = self.others().filter(|path| self.records[path.index()].may_carry());
        usable.min_by_key(|path| (self.records[path.index()].preference(), *path))
    }

    /// A sound packet came over a path. True if traffic has moved after it.
    pub(super) fn heard(&mut self, now: Time, path: PathId, bit: MigrationBit, leads: FollowDecision) -> bool {
        let Some(record) = self.records.get_mut(path.index()) else { return false };
        record.note_sound();
        if path == self.current || bit == MigrationBit::Loaded {
            return false;
        }
        // It has just gone elsewhere, be it after the other end: two that follow each other would change places for ever.
        let stays = self.role == MigrationRole::Leader && self.migrations > 0 && !self.answered;
        // What is known to be down here, or was left for what came over it, was used before that was known there.
        if leads == FollowDecision::Yes && !stays && record.may_lead(now) {
            self.move_to(now, path, MigrationCause::Followed);
            return true;
        }
        false
    }

    /// What was sent has come, and the answer came back on this path: it carries both ways (P-31).
    pub(super) fn proven(&mut self, now: Time, path: PathId) {
        let Some(record) = self.records.get(path.index()) else { return };
        // What came over a path that is down was under way before it was.
        if !record.may_carry() {
            return;
        }
        // Nearly every acknowledgement: what it would change is as it should be.
        if path == self.current && self.answered && record.is_fresh(now, &self.policy) {
            self.doubted = false;
            return;
        }
        if path == self.current && !self.answered {
            // P-44: perhaps it knew what was repeated, so nothing has told it that traffic moved. The probe will.
            self.doubted = false;
            if self.records[path.index()].proven(now) {
                self.tell(PathEvent::Recovered(path));
            }
            return;
        }
        self.note_answer(now, path);
    }

    /// A new request came over a path: its sender would notice if our answers did not come back.
    pub(super) fn served(&mut self, now: Time, path: PathId) {
        if path == self.current {
            self.served_at = now;
            self.doubted = false;
        }
    }

    fn note_answer(&mut self, now: Time, path: PathId) {
        self.answered |= path == self.current;
        self.doubted &= path != self.current;
        if self.records[path.index()].answered(now, &self.policy) {
            self.tell(PathEvent::Recovered(path));
        }
        self.look_at(path);
        if self.answered
            && let Some(ordered) = self.ordered.take()
        {
            let _ = self.load(now, ordered);
        }
        self.load_best(now);
    }

    /// A packet came over a path and was beyond use. True if traffic has moved because of it.
    pub(super) fn damaged(&mut self, now: Time, path: PathId) -> bool {
        if path != self.current || !self.records[path.index()].note_damage(self.policy.damage_limit) {
            return false;
        }
        // Out of the frying pan only if there is no fire: another path must be known to carry, and not have been left of
        // late. Where all are noisy, going round among them would only repeat everything each time.
        let fit = |path: &PathId| self.records[path.index()].is_fit(now);
        let armed = self.alternate.filter(|_| self.state == PathState::Armed).filter(fit);
        let Some(next) = armed.or_else(|| self.others().filter(fit).min()) else { return false };
        self.move_to(now, next, MigrationCause::Damage);
        self.records[path.index()].shun(now, &self.policy);
        true
    }

    /// The driver knows that a path is down. True if traffic has moved because of it.
    pub(super) fn down(&mut self, now: Time, path: PathId) -> bool {
        let Some(record) = self.records.get_mut(path.index()) else { return false };
        record.set_down(true);
        if path == self.current {
            return self.fail_over(now, MigrationCause::Down);
        }
        self.lose(now, path);
        false
    }

    /// The driver knows that a path is up again; whether it carries, a probe will tell.
    pub(super) fn up(&mut self, now: Time, path: PathId) {
        if let Some(record) = self.records.get_mut(path.index()) {
            record.set_down(false);
            record.probe_now(now);
            self.look_at(path);
        }
    }

    /// The driver has reason to doubt a path: another connection over it has just left it. It is probed at once, and idle
    /// traffic leaves it as soon as the probes stay unanswered (P-42).
    pub(super) fn suspect(&mut self, now: Time, path: PathId) {
        if let Some(record) = self.records.get_mut(path.index()) {
            record.probe_now(now);
            self.look_at(path);
            self.doubted |= path == self.current;
        }
    }

    /// A path that is not in use is dead.
    fn lose(&mut self, now: Time, path: PathId) {
        if self.records[path.index()].fail(now, &self.policy) {
            self.tell(PathEvent::Lost(path));
        }
        self.look_at(path);
        if self.alternate != Some(path) {
            return;
        }
        // P-33: what the user loaded stays loaded, or nobody would load it again.
        let asked = match self.policy.loading {
            AlternateLoading::ByHand => PathTransition::Load,
            AlternateLoading::Automatic => {
                self.alternate = None;
                PathTransition::Unload
            }
        };
        self.go(asked).expect("an alternate is loaded");
    }

    /// The other end asks whether a path carries; it does.
    pub(super) fn probed(&mut self, now: Time, path: PathId, bit: MigrationBit) {
        // P-32: it wants this one as its alternate. Without one of our own there is no reason to disagree.
        let wanted = bit == MigrationBit::Loaded && path != self.current;
        // But one that we know to be dead carries one way only.
        let lives = self.health(path).is_some_and(|health| health != PathHealth::Dead);
        let may_load = self.state == PathState::Migrated && self.policy.loading == AlternateLoading::Automatic;
        if wanted && lives && may_load && self.answered {
            let _ = self.load(now, path);
        } else if wanted && self.state == PathState::Rearm && self.alternate == Some(path) {
            // Perhaps it has loaded since it last answered.
            self.records[path.index()].probe_again(now);
            self.look_at(path);
        }
    }

    /// An answer to one of our probes.
    pub(super) fn replied(&mut self, now: Time, path: PathId, token: u64, bit: MigrationBit) {
        if self.records.get(path.index()).is_none_or(|record| !record.is_asking(token)) {
            return;
        }
        self.note_answer(now, path);
        if self.alternate == Some(path) && bit == MigrationBit::Loaded && self.state == PathState::Rearm {
            self.go(PathTransition::Agree).expect("an alternate is loaded");
            self.tell(PathEvent::Armed(path));
        }
    }

    /// What is known of a path has changed: perhaps something is due earlier.
    fn look_at(&mut self, path: PathId) {
        self.due = self.due.min(self.records[path.index()].deadline(&self.policy));
    }

    fn look_at_all(&mut self) {
        let deadlines = self.records.iter().map(|record| record.deadline(&self.policy));
        self.due = deadlines.min().expect("there is a path");
    }

    /// When to look at the probes, at the latest.
    pub(super) fn deadline(&self) -> Option<Time> {
        debug_assert!(
            self.records.iter().all(|record| self.due <= record.deadline(&self.policy)),
            "one is overlooked"
        );
        (self.records.len() > 1).then_some(self.due)
    }

    /// Sends the probes that are due, counts those that were not answered, loads and goes back. True if traffic moved.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        traffic: PathActivity,
        out: &mut impl FnMut(ProbeRequest),
    ) -> bool {
        self.look_at_all();
        if self.records.len() < 2 || self.due > now {
            return false;
        }
        let mut moved = false;
        for index in 0..self.records.len() {
            let path = PathId(index as u8);
            if !self.records[index].has_missed(now, &self.policy) {
                continue;
            }
            if path != self.current {
                self.lose(now, path);
            } else if traffic == PathActivity::Idle
                && (self.doubted || now >= self.served_at + self.policy.probe_every)
                && self.is_another_alive()
            {
                // P-34: nothing is under way either way that would time out, so nobody else would notice.
                moved |= self.fail_over(now, MigrationCause::Silence);
            }
        }
        moved |= self.reconsider(now);
        for index in 0..self.records.len() {
            if !self.records[index].is_due(now) {
                continue;
            }
            let path = PathId(index as u8);
            self.tokens += 1;
            let token = self.tokens << 8 | index as u64;
            self.records[index].ask(now, token, &self.policy);
            out(ProbeRequest { path, migration: self.probe_bit(path), token });
        }
        self.look_at_all();
        moved
    }

    /// Loads the best alternate that lives if none is loaded, unless that is left to the user.
    fn load_best(&mut self, now: Time) {
        if self.alternate.is_some() || self.policy.loading == AlternateLoading::ByHand || !self.answered {
            return;
        }
        let alive = |path: &PathId| self.records[path.index()].health() == PathHealth::Alive;
        if let Some(next) = self.others().filter(alive).min() {
            let _ = self.load(now, next);
        }
    }

    /// Loads the best alternate if none is, and goes back to a better path that has proven itself.
    fn reconsider(&mut self, now: Time) -> bool {
        if self.policy.loading == AlternateLoading::ByHand || !self.answered {
            return false;
        }
        let alive = |path: &PathId| self.records[path.index()].health() == PathHealth::Alive;
        let better = self.others().filter(|path| *path < self.current).filter(alive).min();
        let Some(home) = better.filter(|path| self.records[path.index()].has_settled(now)) else {
            self.load_best(now);
            return false;
        };
        if self.alternate != Some(home) {
            let _ = self.load(now, home);
            return false;
        }
        if self.state == PathState::Armed {
            self.move_to(now, home, MigrationCause::Failback);
            return true;
        }
        false
    }
}

/// Whether a packet may make this end follow its sender to another path: new requests and probes do, acknowledgements
/// and old packets do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FollowDecision {
    Yes,
    No,
}

/// Whether anything is under way on the present path whose loss would be noticed by a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathActivity {
    UnderWay,
    Idle,
}

/// Why an alternate cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadPathError {
    /// Traffic is on it already.
    InUse(PathId),
    /// There is no such path.
    Unknown(PathId),
    /// Not in this state.
    State(InvalidPathTransition),
}

impl std::fmt::Display for LoadPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(path) => write!(f, "{path} is in use: an alternate must be another"),
            Self::Unknown(path) => write!(f, "the connection has no {path}"),
            Self::State(wrong) => wrong.fmt(f),
        }
    }
}

impl std::error::Error for LoadPathError {}
