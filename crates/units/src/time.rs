//! Points in time and spans between them, in integer picoseconds.
//!
//! One resolution serves both worlds: a bit at 800 Gb/s lasts 1.25 ps, and 64 bits of picoseconds
//! last 213 days, longer than any run. Machines never read a clock; they are told the time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time: picoseconds since the driver's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A span of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The driver's start.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// A point this many picoseconds after the start.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Picoseconds since the start.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// The span since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// A span of nanoseconds, saturating.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos.saturating_mul(1_000))
    }

    /// A span of microseconds, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000_000))
    }

    /// The span in picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// The span in nanoseconds, with its fraction: for people and plots, never for comparing.
    pub fn as_nanos_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The span `times` over, saturating.
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// Divided by a whole number, rounded down.
    pub const fn divided_by(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Span {
    /// Picks the unit a person would: `1.168 us`, `256 ns`, `3.2 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = match self.0 {
            0..1_000 => return write!(f, "{} ps", self.0),
            1_000..1_000_000 => ("ns", 1e3),
            1_000_000..1_000_000_000 => ("us", 1e6),
            1_000_000_000..1_000_000_000_000 => ("ms", 1e9),
            _ => ("s", 1e12),
        };
        let text = format!("{:.3}", self.0 as f64 / size);
        write!(f, "{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} ps", self.0)
    }
}

/// A time of the simulator.
pub type SimTime = Time;
/// A stretch of simulated time.
pub type SimSpan = Span;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_as_a_person_would_say_it() {
        assert_eq!(Span::from_picos(999).to_string(), "999 ps");
        assert_eq!(Span::from_nanos(256).to_string(), "256 ns");
        assert_eq!(Span::from_nanos(1_168).to_string(), "1.168 us");
        assert_eq!(Span::from_micros(2_500).to_string(), "2.5 ms");
    }

    #[test]
    fn time_never_wraps() {
        assert_eq!(Time::NEVER + Span::from_nanos(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::NEVER), Span::ZERO);
    }
}
