//! What is known of one path.

use units::{Span, Time};

use super::PathPolicy;

/// How a path is doing, as far as answers on it tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathHealth {
    /// It answers.
    Alive,
    /// Nothing is known yet.
    Unknown,
    /// It does not answer, or its link is down.
    Dead,
}

/// Packets over which damage is counted, and the least damage that counts.
const DAMAGE_SPAN: u16 = 512;
const DAMAGE_FLOOR: u16 = 8;
/// Probes of a dead path come so much rarer.
const DEAD_SLOWDOWN: u64 = 2;
/// The pause before a path is gone back to grows to so many times the first one.
const MOST_PATIENCE: u64 = 64;

#[derive(Debug)]
pub(super) struct PathMonitor {
    health: PathHealth,
    /// Since when.
    since: Time,
    /// The driver says that its link is down.
    is_down: bool,
    /// The probe that was not yet answered, and when it was sent.
    asked: Option<(u64, Time)>,
    /// The first of the probes since the last answer: a late answer to one that was missed counts too, as long as the path
    /// is not dead.
    asked_since: u64,
    misses: u8,
    next_probe: Time,
    /// Sound and damaged packets of late.
    sound: u16,
    damaged: u16,
    /// How long it must be healthy before it is gone back to, and until when it is out of favour.
    pause: Span,
    disfavoured_until: Time,
    /// Until when the other end is not followed to it: what comes over it was sent before that end could know that it was left.
    shunned_until: Time,
    failed_at: Time,
}

impl PathMonitor {
    pub(super) fn new(now: Time, pause: Span) -> Self {
        Self {
            health: PathHealth::Unknown,
            since: now,
            is_down: false,
            asked: None,
            asked_since: 0,
            misses: 0,
            next_probe: now,
            sound: 0,
            damaged: 0,
            pause,
            disfavoured_until: Time::ZERO,
            shunned_until: Time::ZERO,
            failed_at: Time::ZERO,
        }
    }

    pub(super) fn health(&self) -> PathHealth {
        self.health
    }

    /// Whether there is any sense in sending on it.
    pub(super) fn may_carry(&self) -> bool {
        !self.is_down
    }

    /// The lower, the better: healthy ones first, then those that failed longest ago.
    pub(super) fn preference(&self) -> (PathHealth, Time) {
        (self.health, self.failed_at)
    }

    pub(super) fn probe_now(&mut self, now: Time) {
        self.next_probe = now;
        self.asked = None;
        self.misses = 0;
    }

    /// Unless an answer is on its way.
    pub(super) fn probe_again(&mut self, now: Time) {
        if self.asked.is_none() {
            self.next_probe = now;
        }
    }

    pub(super) fn set_down(&mut self, down: bool) {
        self.is_down = down;
    }

    /// It failed. True if that is news.
    pub(super) fn fail(&mut self, now: Time, policy: &PathPolicy) -> bool {
        let news = self.health != PathHealth::Dead;
        if news {
            self.disfavour(now, policy);
            (self.health, self.since) = (PathHealth::Dead, now);
        }
        self.failed_at = now;
        self.asked = None;
        self.misses = 0;
        self.next_probe = now + policy.probe_every;
        news
    }

    /// It was left. P-36: one that is left again soon after it was gone back to must prove itself for longer each time.
    pub(super) fn disfavour(&mut self, now: Time, policy: &PathPolicy) {
        let soon = self.failed_at != Time::ZERO && now < self.failed_at + self.pause.times(4);
        let longer = self.pause.times(2).min(policy.failback_after.times(MOST_PATIENCE));
        self.pause = if soon { longer } else { policy.failback_after };
        self.disfavoured_until = now + self.pause;
        self.failed_at = now;
    }

    /// It was left because of what came over it, and the other end does not know yet.
    pub(super) fn shun(&mut self, now: Time, policy: &PathPolicy) {
        self.shunned_until = now + policy.probe_timeout.times(policy.misses.into());
    }

    /// Whether the other end may be followed to it.
    pub(super) fn may_lead(&self, now: Time) -> bool {
        self.may_carry() && now >= self.shunned_until
    }

    /// Traffic moves to it. How much comes damaged is counted from here on.
    pub(super) fn take_over(&mut self, now: Time) {
        (self.sound, self.damaged) = (0, 0);
        self.probe_now(now);
    }

    /// It answers, and has not been left of late.
    pub(super) fn is_fit(&self, now: Time) -> bool {
        self.health == PathHealth::Alive && !self.is_down && now >= self.disfavoured_until
    }

    /// It is known to live, and that was noted so lately that another answer tells nothing new.
    pub(super) fn is_fresh(&self, now: Time, policy: &PathPolicy) -> bool {
        self.health == PathHealth::Alive
            && self.asked.is_none()
            && self.next_probe > now + Span::from_picos(policy.probe_every.as_picos() / 8 * 7)
    }

    /// Something came back over it: it need not be probed for a while. True if it was dead.
    pub(super) fn answered(&mut self, now: Time, policy: &PathPolicy) -> bool {
        self.asked = None;
        self.next_probe = now + policy.probe_every;
        self.is_down = false;
        self.proven(now)
    }

    /// Something came back over it, but the probe that is due or under way has more to tell. True if it was dead.
    pub(super) fn proven(&mut self, now: Time) -> bool {
        let recovered = self.health == PathHealth::Dead;
        if self.health != PathHealth::Alive {
            (self.health, self.since) = (PathHealth::Alive, now);
        }
        self.misses = 0;
        recovered
    }

    /// It has been healthy for as long as it must be.
    pub(super) fn has_settled(&self, now: Time) -> bool {
        self.health == PathHealth::Alive && now >= self.since + self.pause && now >= self.disfavoured_until
    }

    pub(super) fn note_sound(&mut self) {
        self.sound += 1;
        self.forget();
    }

    /// Counts a damaged packet; true if they are too many.
    pub(super) fn note_damage(&mut self, limit: Option<u16>) -> bool {
        self.damaged += 1;
        self.forget();
        let total = u32::from(self.sound) + u32::from(self.damaged);
        limit.is_some_and(|limit| self.damaged >= DAMAGE_FLOOR && u32::from(self.damaged) * u32::from(limit) > total)
    }

    fn forget(&mut self) {
        if self.sound + self.damaged >= DAMAGE_SPAN {
            self.sound /= 2;
            self.damaged /= 2;
        }
    }

    pub(super) fn is_asking(&self, token: u64) -> bool {
        self.asked.is_some_and(|(asked, _)| (self.asked_since..=asked).contains(&token) && token as u8 == asked as u8)
    }

    pub(super) fn deadline(&self, policy: &PathPolicy) -> Time {
        self.asked.map_or(self.next_probe, |(_, at)| at + policy.probe_timeout)
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.asked.is_none() && self.next_probe <= now
    }

    pub(super) fn ask(&mut self, now: Time, token: u64, policy: &PathPolicy) {
        if self.misses == 0 {
            self.asked_since = token;
        }
        self.asked = Some((token, now));
        self.next_probe = now + policy.probe_every;
    }

    /// A probe was not answered in time; true if that makes the path dead.
    pub(super) fn has_missed(&mut self, now: Time, policy: &PathPolicy) -> bool {
        if self.asked.is_none_or(|(_, at)| at + policy.probe_timeout > now) {
            return false;
        }
        self.asked = None;
        self.misses = self.misses.saturating_add(1);
        if self.misses < policy.misses {
            self.next_probe = now; // Ask again at once: one lost probe is no dead path.
            return false;
        }
        self.misses = 0;
        self.next_probe = now + policy.probe_every.times(DEAD_SLOWDOWN);
        true
    }
}
