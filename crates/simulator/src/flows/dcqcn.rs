//! The rate control of RoCEv2 senders: DCQCN.
//!
//! In: congestion notices and the time. Out: the rate at which a flow may send. A notice cuts the rate in proportion to `alpha`, the
//! estimated share of marked packets, which fades while no notice comes. Afterwards the rate returns halfway to where it was, period
//! by period, and then probes for more. Timers are evaluated when the flow sends, so they cost no events.

use units::{SimSpan, SimTime};

/// The constants of DCQCN. Names as in the paper (Zhu et al., SIGCOMM 2015).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DcqcnParameters {
    /// `g`: how fast alpha follows the marks.
    pub gain: f64,
    /// Time without a notice after which alpha fades.
    pub alpha_period: SimSpan,
    /// The period of the rate timer.
    pub rate_period: SimSpan,
    /// `B`: the byte counter.
    pub byte_counter: u64,
    /// `F`: periods of fast recovery.
    pub fast_recoveries: u32,
    /// `R_AI`: the additive increase, as a share of the line rate.
    pub additive_share: f64,
    /// `R_HAI`: the hyper increase, as a share of the line rate.
    pub hyper_share: f64,
    /// A receiver sends a notice of a flow at most once in this time.
    pub notice_period: SimSpan,
}

impl Default for DcqcnParameters {
    fn default() -> Self {
        Self {
            gain: 1.0 / 256.0,
            alpha_period: SimSpan::from_picos(55_000_000),
            rate_period: SimSpan::from_picos(55_000_000),
            byte_counter: 10_000_000,
            fast_recoveries: 5,
            additive_share: 1.0 / 400.0,
            hyper_share: 1.0 / 40.0,
            notice_period: SimSpan::from_picos(50_000_000),
        }
    }
}

/// The least rate, as a share of the line rate: a flow at it still sends a packet within a millisecond.
const LEAST_SHARE: f64 = 1.0 / 1_000.0;

/// The rate of one flow. Rates are shares of the line rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct DcqcnRate {
    current: f64,
    target: f64,
    alpha: f64,
    alpha_at: SimTime,
    timer_at: SimTime,
    bytes: u64,
    timer_rounds: u32,
    byte_rounds: u32,
    /// No notice has come yet: the flow sends at line rate.
    is_untouched: bool,
}

impl DcqcnRate {
    pub(super) fn new(now: SimTime) -> Self {
        Self {
            current: 1.0,
            target: 1.0,
            alpha: 1.0,
            alpha_at: now,
            timer_at: now,
            bytes: 0,
            timer_rounds: 0,
            byte_rounds: 0,
            is_untouched: true,
        }
    }

    /// The rate, as a share of the line rate.
    pub(super) fn share(&self) -> f64 {
        self.current
    }

    /// A notice of congestion has arrived.
    pub(super) fn handle_notice(&mut self, now: SimTime, parameters: &DcqcnParameters) {
        if self.is_untouched {
            // Alpha is an estimate only from the first notice on: before it, there is nothing to fade.
            (self.is_untouched, self.alpha_at, self.timer_at) = (false, now, now);
        }
        self.advance(now, parameters);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(LEAST_SHARE);
        self.alpha = (1.0 - parameters.gain) * self.alpha + parameters.gain;
        (self.alpha_at, self.timer_at, self.bytes) = (now, now, 0);
        (self.timer_rounds, self.byte_rounds) = (0, 0);
    }

    /// The flow sends so many bytes.
    pub(super) fn note_sent(&mut self, now: SimTime, bytes: u32, parameters: &DcqcnParameters) {
        if self.is_untouched {
            return;
        }
        self.advance(now, parameters);
        self.bytes += u64::from(bytes);
        if self.bytes >= parameters.byte_counter {
            self.bytes = 0;
            self.byte_rounds += 1;
            self.increase(parameters);
        }
    }

    /// Applies the periods that have passed.
    fn advance(&mut self, now: SimTime, parameters: &DcqcnParameters) {
        while now >= self.alpha_at + parameters.alpha_period && self.alpha > 1e-6 {
            self.alpha *= 1.0 - parameters.gain;
            self.alpha_at += parameters.alpha_period;
        }
        while now >= self.timer_at + parameters.rate_period && self.current < 1.0 {
            self.timer_at += parameters.rate_period;
            self.timer_rounds += 1;
            self.increase(parameters);
        }
        if self.current >= 1.0 {
            self.timer_at = now;
        }
    }

    fn increase(&mut self, parameters: &DcqcnParameters) {
        let (most, least) = (self.timer_rounds.max(self.byte_rounds), self.timer_rounds.min(self.byte_rounds));
        if least > parameters.fast_recoveries {
            self.target += parameters.hyper_share;
        } else if most > parameters.fast_recoveries {
            self.target += parameters.additive_share;
        }
        self.target = self.target.min(1.0);
        self.current = ((self.target + self.current) / 2.0).min(1.0);
        if self.current > 0.9999 {
            self.current = 1.0; // Halving the distance would never close it.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_halves_a_fresh_flow_and_recovery_returns_to_the_target() {
        let parameters = DcqcnParameters::default();
        let mut rate = DcqcnRate::new(SimTime::ZERO);
        rate.handle_notice(SimTime::ZERO, &parameters);
        assert!((rate.share() - 0.5).abs() < 1e-9);
        let mut now = SimTime::ZERO;
        for _ in 0..5 {
            now += parameters.rate_period;
            rate.note_sent(now, 1, &parameters);
        }
        // Five halvings of the distance to the old rate.
        assert!((rate.share() - (1.0 - 0.5 / 32.0)).abs() < 1e-3, "{}", rate.share());
    }

    #[test]
    fn the_first_notice_halves_a_flow_however_long_it_has_sent() {
        let parameters = DcqcnParameters::default();
        let mut rate = DcqcnRate::new(SimTime::ZERO);
        let late = SimTime::ZERO + parameters.alpha_period.times(500);
        rate.note_sent(late, 4_096, &parameters);
        rate.handle_notice(late, &parameters);
        assert!((rate.share() - 0.5).abs() < 1e-9, "{}", rate.share());
    }

    #[test]
    fn notices_never_stop_a_flow_and_silence_always_restores_it() {
        let parameters = DcqcnParameters::default();
        let mut rate = DcqcnRate::new(SimTime::ZERO);
        let mut now = SimTime::ZERO;
        for _ in 0..10_000 {
            now += SimSpan::from_nanos(1);
            rate.handle_notice(now, &parameters);
        }
        assert!(rate.share() >= LEAST_SHARE);
        now += SimSpan::from_nanos(10_000_000_000);
        rate.note_sent(now, 1, &parameters);
        assert_eq!(rate.share(), 1.0);
    }
}
