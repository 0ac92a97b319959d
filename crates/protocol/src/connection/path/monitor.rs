//! The state of one path: health, probes, damage, failback delay.

use units::{Span, Time};

use super::policy::PathPolicy;

/// The health of a path, from replies on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathHealth {
    /// It replies.
    Alive,
    /// Not known yet.
    Unknown,
    /// It does not reply, or its link is down.
    Dead,
}

/// The number of packets over which damage is counted, and the least damage that counts.
const DAMAGE_SPAN: u16 = 512;
const DAMAGE_FLOOR: u16 = 8;
/// Dead paths are probed this much more rarely.
const DEAD_SLOWDOWN: u64 = 2;
/// The failback delay grows to this many times the initial one.
const MAX_FAILBACK_FACTOR: u64 = 64;

#[derive(Debug)]
pub(super) struct PathMonitor {
    health: PathHealth,
    /// The time of the last change of health.
    since: Time,
    /// The driver reported its link down.
    is_down: bool,
    /// The unanswered probe, and when it was sent.
    probe: Option<(u64, Time)>,
    /// The first probe since the last reply: a late reply to an earlier probe counts too, as long as the path is not dead.
    first_unanswered: u64,
    misses: u8,
    next_probe: Time,
    /// Recent intact and damaged packets.
    intact: u16,
    damaged: u16,
    /// How long the path must be healthy before failback, and until when it is not chosen.
    failback_delay: Span,
    penalized_until: Time,
    /// Until when the peer is not followed to it: packets on it were sent before the peer could know that this end left it.
    follow_blocked_until: Time,
    failed_at: Time,
    /// Traffic left it, and no probe of it has been answered since.
    is_unproven: bool,
}

impl PathMonitor {
    pub(super) fn new(now: Time, failback_delay: Span) -> Self {
        Self {
            health: PathHealth::Unknown,
            since: now,
            is_down: false,
            probe: None,
            first_unanswered: 0,
            misses: 0,
            next_probe: now,
            intact: 0,
            damaged: 0,
            failback_delay,
            penalized_until: Time::ZERO,
            follow_blocked_until: Time::ZERO,
            failed_at: Time::ZERO,
            is_unproven: false,
        }
    }

    pub(super) fn health(&self) -> PathHealth {
        self.health
    }

    /// Whether it makes sense to send on it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_down
    }

    /// Whether traffic may move to it after a silence, which may be the peer's: nothing says that it is dead, and if traffic left it, a
    /// probe was answered since (P-25).
    pub(super) fn is_trusted(&self) -> bool {
        !self.is_down && self.health != PathHealth::Dead && !self.is_unproven
    }

    /// Traffic leaves it.
    pub(super) fn note_left(&mut self) {
        self.is_unproven = true;
    }

    /// A probe of it was answered.
    pub(super) fn note_answer(&mut self) {
        self.is_unproven = false;
    }

    /// The lower, the better: healthy paths first, then those that failed longest ago.
    pub(super) fn preference(&self) -> (PathHealth, Time) {
        (self.health, self.failed_at)
    }

    pub(super) fn probe_now(&mut self, now: Time) {
        self.next_probe = now;
        self.probe = None;
        self.misses = 0;
    }

    /// Probes at once, unless a reply is outstanding.
    pub(super) fn probe_again(&mut self, now: Time) {
        if self.probe.is_none() {
            self.next_probe = now;
        }
    }

    pub(super) fn set_down(&mut self, down: bool) {
        self.is_down = down;
    }

    /// The path failed. True if it was not dead before.
    pub(super) fn fail(&mut self, now: Time, policy: &PathPolicy) -> bool {
        let is_new = self.health != PathHealth::Dead;
        if is_new {
            self.penalize(now, policy);
            (self.health, self.since) = (PathHealth::Dead, now);
        }
        self.failed_at = now;
        self.probe = None;
        self.misses = 0;
        self.next_probe = now + policy.probe_every;
        is_new
    }

    /// Traffic left it. P-21: a path that is left again soon after a failback must prove itself for longer each time.
    pub(super) fn penalize(&mut self, now: Time, policy: &PathPolicy) {
        let soon = self.failed_at != Time::ZERO && now < self.failed_at + self.failback_delay.times(4);
        let longer = self.failback_delay.times(2).min(policy.failback_after.times(MAX_FAILBACK_FACTOR));
        self.failback_delay = if soon { longer } else { policy.failback_after };
        self.penalized_until = now + self.failback_delay;
        self.failed_at = now;
    }

    /// Traffic left it because of damage, and the peer does not know yet.
    pub(super) fn block_following(&mut self, now: Time, policy: &PathPolicy) {
        self.follow_blocked_until = now + policy.probe_timeout.times(policy.misses.into());
    }

    /// Whether this end may follow the peer to it.
    pub(super) fn may_follow(&self, now: Time) -> bool {
        self.is_usable() && now >= self.follow_blocked_until
    }

    /// Traffic moves to it. Damage is counted from here on.
    pub(super) fn note_selected(&mut self, now: Time) {
        (self.intact, self.damaged) = (0, 0);
        self.probe_now(now);
    }

    /// It replies, and was not left recently.
    pub(super) fn is_failover_candidate(&self, now: Time) -> bool {
        self.health == PathHealth::Alive && !self.is_down && now >= self.penalized_until
    }

    /// It is known to be alive, and that was noted so recently that another reply changes nothing.
    pub(super) fn is_recently_confirmed(&self, now: Time, policy: &PathPolicy) -> bool {
        self.health == PathHealth::Alive
            && self.probe.is_none()
            && self.next_probe > now + Span::from_nanos(policy.probe_every.as_nanos() / 8 * 7)
    }

    /// A reply arrived: no probe is needed for a while. True if the path was dead.
    pub(super) fn confirm(&mut self, now: Time, policy: &PathPolicy) -> bool {
        self.probe = None;
        self.next_probe = now + policy.probe_every;
        self.is_down = false;
        self.mark_alive(now)
    }

    /// A response arrived, but the pending probe is still needed. True if the path was dead.
    pub(super) fn mark_alive(&mut self, now: Time) -> bool {
        let recovered = self.health == PathHealth::Dead;
        if self.health != PathHealth::Alive {
            (self.health, self.since) = (PathHealth::Alive, now);
        }
        self.misses = 0;
        recovered
    }

    /// It has been healthy for the failback delay.
    pub(super) fn may_fail_back(&self, now: Time) -> bool {
        self.health == PathHealth::Alive && now >= self.since + self.failback_delay && now >= self.penalized_until
    }

    pub(super) fn note_intact(&mut self) {
        self.intact += 1;
        self.decay_counts();
    }

    /// Counts a damaged packet; true if there were too many.
    pub(super) fn note_damage(&mut self, limit: Option<u16>) -> bool {
        self.damaged += 1;
        self.decay_counts();
        let total = u32::from(self.intact) + u32::from(self.damaged);
        limit.is_some_and(|limit| self.damaged >= DAMAGE_FLOOR && u32::from(self.damaged) * u32::from(limit) > total)
    }

    fn decay_counts(&mut self) {
        if self.intact + self.damaged >= DAMAGE_SPAN {
            self.intact /= 2;
            self.damaged /= 2;
        }
    }

    pub(super) fn awaits_reply(&self, token: u64) -> bool {
        self.probe
            .is_some_and(|(asked, _)| (self.first_unanswered..=asked).contains(&token) && token as u8 == asked as u8)
    }

    pub(super) fn deadline(&self, policy: &PathPolicy) -> Time {
        self.probe.map_or(self.next_probe, |(_, at)| at + policy.probe_timeout)
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.probe.is_none() && self.next_probe <= now
    }

    pub(super) fn note_probe_sent(&mut self, now: Time, token: u64, policy: &PathPolicy) {
        if self.misses == 0 {
            self.first_unanswered = token;
        }
        self.probe = Some((token, now));
        self.next_probe = now + policy.probe_every;
    }

    /// Handles the timeout of a probe; true if it makes the path dead.
    pub(super) fn check_probe_timeout(&mut self, now: Time, policy: &PathPolicy) -> bool {
        if self.probe.is_none_or(|(_, at)| at + policy.probe_timeout > now) {
            return false;
        }
        self.probe = None;
        self.misses = self.misses.saturating_add(1);
        if self.misses < policy.misses {
            self.next_probe = now; // Probe again at once: one lost probe does not mean a dead path.
            return false;
        }
        self.misses = 0;
        self.next_probe = now + policy.probe_every.times(DEAD_SLOWDOWN);
        true
    }
}
