//! The paths of a connection, and the choice between them: automatic path migration.
//!
//! In: commands (load, migrate), reports (path down, path up, damage, timeouts), probes and their replies, time. Out: the path to send
//! on, probes to send, events for the user. Rules: docs/protocol.md P-15 to P-25; claims PM-1 to PM-3, PM-8.
//!
//! A path's number is its rank; a lower number is better. Every path is probed, so that a dead one is never armed; the connection fails
//! back to a better path that has been healthy for a while. Loading, arming and migrating are three independent steps, as in the
//! paper: the user can do each of them, and the connection does those that the user leaves to it.

mod event;
mod flap_history;
mod monitor;
mod policy;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use units::limits::MAX_PATHS;
use units::{PathId, Time};

use super::frame::MigrationBit;
pub use event::{LoadPathError, MigrationCause, PathEvent};
use flap_history::FlapHistory;
pub use monitor::PathHealth;
use monitor::PathMonitor;
pub use policy::{AlternateLoading, MigrationRole, PathPolicy};
pub use state::{InvalidPathTransition, PATH_TRANSITIONS, PathState, PathTransition};

/// Events that wait for the user at most; the oldest are dropped first.
const MAX_EVENTS: usize = 64;

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
    monitors: Vec<PathMonitor>,
    current: PathId,
    alternate: Option<PathId>,
    state: PathState,
    /// A probe of the current path was answered since traffic moved to it. Until then the migration bit stays set, or the peer might
    /// never learn that it should follow (P-21, P-23).
    confirmed: bool,
    /// The path that the user loaded before that.
    deferred_load: Option<PathId>,
    /// When a new request last arrived over the current path.
    last_request_at: Time,
    /// The driver suspects the current path, and nothing has arrived on it since.
    suspected: bool,
    /// The current path failed, and there was no better one: the first path that answers is taken.
    is_stranded: bool,
    last_token: u64,
    /// No probe is due or overdue before then. Replies defer probes, but do not update this: every packet may bring one, and an early
    /// check costs little.
    due: Time,
    events: VecDeque<PathEvent>,
    migrations: u32,
    flap_history: FlapHistory,
}

impl Paths {
    /// This many paths; the first one is in use.
    ///
    /// # Panics
    /// If there are none, or more than [`MAX_PATHS`].
    pub fn new(policy: PathPolicy, role: MigrationRole, count: usize, now: Time) -> Self {
        assert!((1..=MAX_PATHS).contains(&count), "a connection has 1 to {MAX_PATHS} paths, not {count}");
        Self {
            policy,
            role,
            monitors: (0..count).map(|_| PathMonitor::new(now, policy.failback_after)).collect(),
            current: PathId(0),
            alternate: None,
            state: PathState::Migrated,
            confirmed: false,
            deferred_load: None,
            last_request_at: Time::ZERO,
            suspected: false,
            is_stranded: false,
            last_token: 0,
            due: now,
            events: VecDeque::new(),
            migrations: 0,
            flap_history: FlapHistory::default(),
        }
    }

    /// The path to send on.
    pub fn current(&self) -> PathId {
        self.current
    }

    /// The loaded alternate, if any.
    pub fn alternate(&self) -> Option<PathId> {
        self.alternate
    }

    /// The migration state.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// The health of a path.
    pub fn health(&self, path: PathId) -> Option<PathHealth> {
        self.monitors.get(path.index()).map(PathMonitor::health)
    }

    /// How often traffic moved.
    pub fn migrations(&self) -> u32 {
        self.migrations
    }

    /// The path for copies of short messages, while traffic moves often (P-132): the armed alternate, or else the healthiest path.
    pub(super) fn copy_path(&self, now: Time) -> Option<PathId> {
        if !self.flap_history.is_flapping(now, self.policy.failback_after) {
            return None;
        }
        let is_usable = |path: &PathId| self.monitors[path.index()].is_usable();
        let others = || self.others().filter(is_usable);
        self.alternate
            .filter(is_usable)
            .or_else(|| others().min_by_key(|path| (self.monitors[path.index()].preference(), *path)))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<PathEvent> {
        self.events.pop_front()
    }

    pub(super) fn bit(&self) -> MigrationBit {
        if self.state == PathState::Migrated { MigrationBit::Migrated } else { MigrationBit::Loaded }
    }

    /// The migration bit of a probe. A probe of another path than the current one never asks the peer to follow, in any state (P-16).
    fn probe_bit(&self, path: PathId) -> MigrationBit {
        if path == self.current { self.bit() } else { MigrationBit::Loaded }
    }

    fn push_event(&mut self, event: PathEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn transition(&mut self, asked: PathTransition) -> Result<(), InvalidPathTransition> {
        self.state = self.state.after(asked)?;
        Ok(())
    }

    fn others(&self) -> impl Iterator<Item = PathId> + use<> {
        let current = self.current;
        (0..self.monitors.len()).map(|index| PathId(index as u8)).filter(move |path| *path != current)
    }

    fn is_another_alive(&self) -> bool {
        self.others()
            .map(|other| &self.monitors[other.index()])
            .any(|other| other.health() == PathHealth::Alive && other.is_trusted())
    }

    /// Loads an alternate: it is probed at once, and armed when the peer replies and has loaded one too.
    pub(super) fn load(&mut self, now: Time, path: PathId) -> Result<(), LoadPathError> {
        if path == self.current {
            return Err(LoadPathError::InUse(path));
        }
        let monitor = self.monitors.get_mut(path.index()).ok_or(LoadPathError::Unknown(path))?;
        if self.migrations > 0 && !self.confirmed {
            // P-21: the load waits until the peer knows of the migration.
            self.deferred_load = Some(path);
            return Ok(());
        }
        monitor.probe_now(now);
        self.update_due(path);
        self.alternate = Some(path);
        self.transition(PathTransition::Load).map_err(LoadPathError::State)
    }

    /// Moves traffic to the armed alternate.
    pub(super) fn migrate(&mut self, now: Time) -> Result<(), InvalidPathTransition> {
        match (self.state, self.alternate) {
            (PathState::Armed, Some(path)) => self.move_to(now, path, MigrationCause::Manual),
            _ => return Err(InvalidPathTransition { state: self.state, asked: PathTransition::Migrate }),
        }
        Ok(())
    }

    fn move_to(&mut self, now: Time, to: PathId, cause: MigrationCause) {
        let from = std::mem::replace(&mut self.current, to);
        // P-21: an end leaves a path for a reason, and the end that follows shares it. A dead path has its delay already.
        if matches!(cause, MigrationCause::Manual | MigrationCause::Damage | MigrationCause::Followed) {
            self.monitors[from.index()].penalize(now, &self.policy);
        }
        self.monitors[from.index()].note_left();
        self.transition(PathTransition::Migrate).expect("every state allows a migration");
        self.alternate = None;
        self.confirmed = false;
        self.deferred_load = None;
        self.suspected = false;
        self.is_stranded = false;
        self.migrations = self.migrations.saturating_add(1);
        if cause != MigrationCause::Manual {
            self.flap_history.note_move(now);
        }
        // The probe informs the peer if there is nothing else to send, and tests the new path.
        self.monitors[to.index()].note_selected(now);
        self.update_due(to);
        self.push_event(PathEvent::Migrated { from, to, cause });
    }

    /// The current path failed. True if traffic moved. If every other path is dead too, or was left and has not answered since, traffic
    /// stays: a silence may be the peer's, and to go back to a path that was left costs a timeout each time (P-25).
    pub(super) fn fail_over(&mut self, now: Time, cause: MigrationCause) -> bool {
        let failed = self.current;
        let is_new = self.monitors[failed.index()].fail(now, &self.policy);
        self.update_due(failed);
        if is_new {
            self.push_event(PathEvent::Lost(failed));
        }
        let Some(next) = self.best_other(cause) else {
            self.is_stranded = true;
            for index in 0..self.monitors.len() {
                self.monitors[index].probe_again(now);
                self.update_due(PathId(index as u8));
            }
            if is_new {
                self.push_event(PathEvent::MigrationFailed(failed));
            }
            return false;
        };
        self.move_to(now, next, cause);
        true
    }

    /// The armed alternate, or else the healthiest path; among equals, the one that failed longest ago. One that is not trusted only if the
    /// current path is down: then nothing can be lost.
    fn best_other(&self, cause: MigrationCause) -> Option<PathId> {
        if let (PathState::Armed, Some(path)) = (self.state, self.alternate)
            && self.monitors[path.index()].is_usable()
        {
            return Some(path);
        }
        let may_be_dead = cause == MigrationCause::Down;
        let usable = self.others().filter(|path| {
            let monitor = &self.monitors[path.index()];
            monitor.is_trusted() || (may_be_dead && monitor.is_usable())
        });
        usable.min_by_key(|path| (self.monitors[path.index()].preference(), *path))
    }

    /// An intact packet arrived over a path. True if traffic followed the peer.
    pub(super) fn note_arrival(
        &mut self,
        now: Time,
        path: PathId,
        bit: MigrationBit,
        follow: FollowDecision,
    ) -> bool {
        let Some(monitor) = self.monitors.get_mut(path.index()) else { return false };
        monitor.note_intact();
        if path == self.current || bit == MigrationBit::Loaded {
            return false;
        }
        // It has just moved, perhaps after the peer: two ends that follow each other would swap paths forever.
        let keeps_path = self.role == MigrationRole::Leader && self.migrations > 0 && !self.confirmed;
        // The peer sent this before it could know that the path is down here, or was left because of damage.
        if follow == FollowDecision::Follow && !keeps_path && monitor.may_follow(now) {
            self.move_to(now, path, MigrationCause::Followed);
            return true;
        }
        false
    }

    /// The peer acknowledged new frames over this path: it works in both directions (P-15). True if traffic moved to it.
    pub(super) fn note_acknowledged(&mut self, now: Time, path: PathId) -> bool {
        let Some(monitor) = self.monitors.get(path.index()) else { return false };
        // The packet was in flight before the path went down.
        if !monitor.is_usable() {
            return false;
        }
        // The common case: nothing changes.
        if path == self.current && self.confirmed && monitor.is_recently_confirmed(now, &self.policy) {
            self.suspected = false;
            return false;
        }
        if path == self.current && !self.confirmed {
            // P-23: the peer may have had the retransmitted frames already, so nothing told it that traffic moved. The probe will.
            self.suspected = false;
            self.is_stranded = false;
            if self.monitors[path.index()].mark_alive(now) {
                self.push_event(PathEvent::Recovered(path));
            }
            return false;
        }
        self.note_reply(now, path)
    }

    /// A new request arrived over a path: its sender would notice if our replies did not arrive.
    pub(super) fn note_request(&mut self, now: Time, path: PathId) {
        if path == self.current {
            self.last_request_at = now;
            self.suspected = false;
        }
    }

    /// A path works in both directions. True if traffic moved to it, because the current one is dead (P-25).
    fn note_reply(&mut self, now: Time, path: PathId) -> bool {
        self.confirmed |= path == self.current;
        self.suspected &= path != self.current;
        self.is_stranded &= path != self.current;
        if self.monitors[path.index()].confirm(now, &self.policy) || self.is_stranded {
            self.push_event(PathEvent::Recovered(path));
        }
        self.update_due(path);
        if self.confirmed
            && let Some(path) = self.deferred_load.take()
        {
            let _ = self.load(now, path);
        }
        if self.is_stranded {
            self.move_to(now, path, MigrationCause::Timeout);
            return true;
        }
        self.load_best(now);
        false
    }

    /// A packet arrived over a path and was unusable. True if traffic moved because of it.
    pub(super) fn handle_damage(&mut self, now: Time, path: PathId) -> bool {
        if path != self.current || !self.monitors[path.index()].note_damage(self.policy.damage_limit) {
            return false;
        }
        // Move only to a path that is known to work and was not left recently. Where all paths are noisy, cycling through them would only
        // retransmit everything each time.
        let fit = |path: &PathId| self.monitors[path.index()].is_failover_candidate(now);
        let armed = self.alternate.filter(|_| self.state == PathState::Armed).filter(fit);
        let Some(next) = armed.or_else(|| self.others().filter(fit).min()) else { return false };
        self.move_to(now, next, MigrationCause::Damage);
        self.monitors[path.index()].block_following(now, &self.policy);
        true
    }

    /// The driver reports that a path is down. True if traffic moved because of it.
    pub(super) fn handle_down(&mut self, now: Time, path: PathId) -> bool {
        let Some(monitor) = self.monitors.get_mut(path.index()) else { return false };
        monitor.set_down(true);
        if path == self.current {
            return self.fail_over(now, MigrationCause::Down);
        }
        self.lose(now, path);
        false
    }

    /// The driver reports that a path is up again; a probe tests whether it works.
    pub(super) fn handle_up(&mut self, now: Time, path: PathId) {
        if let Some(monitor) = self.monitors.get_mut(path.index()) {
            monitor.set_down(false);
            monitor.probe_now(now);
            self.update_due(path);
        }
    }

    /// The driver suspects a path, because another connection has just left it. The path is probed at once, and an idle connection leaves
    /// it as soon as the probes time out (P-19).
    pub(super) fn suspect(&mut self, now: Time, path: PathId) {
        if let Some(monitor) = self.monitors.get_mut(path.index()) {
            monitor.probe_now(now);
            self.update_due(path);
            self.suspected |= path == self.current;
        }
    }

    /// A path that is not in use is dead.
    fn lose(&mut self, now: Time, path: PathId) {
        if self.monitors[path.index()].fail(now, &self.policy) {
            self.push_event(PathEvent::Lost(path));
        }
        self.update_due(path);
        if self.alternate != Some(path) {
            return;
        }
        // P-17: a path that the user loaded stays loaded, since the connection would not load it again.
        let asked = match self.policy.loading {
            AlternateLoading::Manual => PathTransition::Load,
            AlternateLoading::Automatic => {
                self.alternate = None;
                PathTransition::Unload
            }
        };
        self.transition(asked).expect("an alternate is loaded");
    }

    /// The peer probes a path.
    pub(super) fn handle_probe(&mut self, now: Time, path: PathId, bit: MigrationBit) {
        // P-16: the peer wants this path as its alternate. Without an alternate of its own this end agrees.
        let wanted = bit == MigrationBit::Loaded && path != self.current;
        // But a path that is dead here works in one direction only.
        let is_alive = self.health(path).is_some_and(|health| health != PathHealth::Dead);
        let may_load = self.state == PathState::Migrated && self.policy.loading == AlternateLoading::Automatic;
        if wanted && is_alive && may_load && self.confirmed {
            let _ = self.load(now, path);
        } else if wanted && self.state == PathState::Rearm && self.alternate == Some(path) {
            // The peer may have loaded the path since its last reply.
            self.monitors[path.index()].probe_again(now);
            self.update_due(path);
        }
    }

    /// A reply to a probe of this end. True if traffic moved to that path.
    pub(super) fn handle_probe_reply(&mut self, now: Time, path: PathId, token: u64, bit: MigrationBit) -> bool {
        if self.monitors.get(path.index()).is_none_or(|monitor| !monitor.awaits_reply(token)) {
            return false;
        }
        self.monitors[path.index()].note_answer();
        if self.note_reply(now, path) {
            return true;
        }
        if self.alternate == Some(path) && bit == MigrationBit::Loaded && self.state == PathState::Rearm {
            self.transition(PathTransition::Agree).expect("an alternate is loaded");
            self.push_event(PathEvent::Armed(path));
        }
        false
    }

    /// The state of a path changed: something may be due earlier.
    fn update_due(&mut self, path: PathId) {
        self.due = self.due.min(self.monitors[path.index()].deadline(&self.policy));
    }

    fn recompute_due(&mut self) {
        let deadlines = self.monitors.iter().map(|monitor| monitor.deadline(&self.policy));
        self.due = deadlines.min().expect("there is a path");
    }

    /// When to check the probes, at the latest.
    pub(super) fn deadline(&self) -> Option<Time> {
        debug_assert!(
            self.monitors.iter().all(|monitor| self.due <= monitor.deadline(&self.policy)),
            "due is later than a deadline"
        );
        (self.monitors.len() > 1).then_some(self.due)
    }

    /// Sends probes that are due, counts those that timed out, loads alternates and fails back. True if traffic moved.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        activity: PathActivity,
        out: &mut impl FnMut(ProbeRequest),
    ) -> bool {
        self.recompute_due();
        if self.monitors.len() < 2 || self.due > now {
            return false;
        }
        let mut moved = false;
        for index in 0..self.monitors.len() {
            let path = PathId(index as u8);
            if !self.monitors[index].check_probe_timeout(now, &self.policy) {
                continue;
            }
            if path != self.current {
                self.lose(now, path);
            } else if activity == PathActivity::Idle
                && (self.suspected || now >= self.last_request_at + self.policy.probe_every)
                && self.is_another_alive()
            {
                // P-18: nothing is in flight in either direction that would time out.
                moved |= self.fail_over(now, MigrationCause::Timeout);
            }
        }
        moved |= self.reconsider(now);
        for index in 0..self.monitors.len() {
            if !self.monitors[index].is_due(now) {
                continue;
            }
            let path = PathId(index as u8);
            self.last_token += 1;
            let token = self.last_token << 8 | index as u64;
            self.monitors[index].note_probe_sent(now, token, &self.policy);
            out(ProbeRequest { path, migration: self.probe_bit(path), token });
        }
        self.recompute_due();
        moved
    }

    /// Loads the best live path if no alternate is loaded, unless loading is manual.
    fn load_best(&mut self, now: Time) {
        if self.alternate.is_some() || self.policy.loading == AlternateLoading::Manual || !self.confirmed {
            return;
        }
        let alive = |path: &PathId| self.monitors[path.index()].health() == PathHealth::Alive;
        if let Some(next) = self.others().filter(alive).min() {
            let _ = self.load(now, next);
        }
    }

    /// Fails back to a better path that has proven itself, or loads the best alternate if none is loaded.
    fn reconsider(&mut self, now: Time) -> bool {
        if self.policy.loading == AlternateLoading::Manual || !self.confirmed {
            return false;
        }
        let alive = |path: &PathId| self.monitors[path.index()].health() == PathHealth::Alive;
        let candidate = self.others().filter(|path| *path < self.current).filter(alive).min();
        let Some(better) = candidate.filter(|path| self.monitors[path.index()].may_fail_back(now)) else {
            self.load_best(now);
            return false;
        };
        if self.alternate != Some(better) {
            let _ = self.load(now, better);
            return false;
        }
        if self.state == PathState::Armed {
            self.move_to(now, better, MigrationCause::Failback);
            return true;
        }
        false
    }
}

/// Whether a packet may make this end follow its sender to another path: new requests and probes may, acknowledgements and old packets
/// may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FollowDecision {
    Follow,
    Stay,
}

/// Whether frames are in flight on the current path whose loss a timeout would detect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathActivity {
    Outstanding,
    Idle,
}
