//! Points in time and spans between them: nanoseconds for the protocol machines, picoseconds for the simulator.
//!
//! Machines never read a clock; every call passes the time. 64 bits of nanoseconds last 584 years. The simulator needs a finer
//! unit, because a bit at 800 Gb/s lasts 1.25 ps; 64 bits of picoseconds last 213 days of simulated time. A simulated driver
//! converts at its boundary: the time it passes to a machine is rounded down to nanoseconds ([`SimTime::to_nanos`]), and a
//! machine's deadline is an exact simulated time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time and the span between two of them, both counted in one unit.
macro_rules! time_types {
    ($(#[$point_doc:meta])* $point:ident, $(#[$span_doc:meta])* $span:ident, per_nano: $per_nano:literal, picos: $picos:literal, $unit:literal) => {
        $(#[$point_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $point(u64);

        $(#[$span_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $span(u64);

        impl $point {
            /// The start of the driver's clock.
            pub const ZERO: Self = Self(0);
            /// Later than every event.
            pub const NEVER: Self = Self(u64::MAX);

            /// The span since `earlier`; zero if `earlier` is later.
            pub const fn since(self, earlier: Self) -> $span {
                $span(self.0.saturating_sub(earlier.0))
            }
        }

        impl $span {
            /// No time.
            pub const ZERO: Self = Self(0);

            /// A span of nanoseconds, saturating.
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos.saturating_mul($per_nano))
            }

            /// A span of microseconds, saturating.
            pub const fn from_micros(micros: u64) -> Self {
                Self(micros.saturating_mul($per_nano * 1_000))
            }

            /// The span in nanoseconds, with its fraction: for reports and plots, never for comparisons.
            pub fn as_nanos_f64(self) -> f64 {
                self.0 as f64 / f64::from($per_nano as u32)
            }

            /// The span multiplied by `factor`, saturating.
            pub const fn times(self, factor: u64) -> Self {
                Self(self.0.saturating_mul(factor))
            }

            /// The span divided by a whole number, rounded down.
            pub const fn divided_by(self, parts: u64) -> Self {
                Self(self.0 / parts)
            }
        }

        impl Add<$span> for $point {
            type Output = Self;
            fn add(self, span: $span) -> Self {
                Self(self.0.saturating_add(span.0))
            }
        }

        impl AddAssign<$span> for $point {
            fn add_assign(&mut self, span: $span) {
                *self = *self + span;
            }
        }

        impl Add for $span {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Sub for $span {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl fmt::Display for $span {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_picos(u128::from(self.0) * $picos, $unit, f)
            }
        }

        impl fmt::Debug for $span {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Debug for $point {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("@{} ", $unit), self.0)
            }
        }
    };
}

time_types!(
    /// A point in a machine's time: nanoseconds since the start of its driver's clock.
    Time,
    /// A span of a machine's time in nanoseconds.
    Span,
    per_nano: 1, picos: 1_000, "ns"
);
time_types!(
    /// A point in simulated time: picoseconds since the start of the run.
    SimTime,
    /// A span of simulated time in picoseconds.
    SimSpan,
    per_nano: 1_000, picos: 1, "ps"
);

impl Time {
    /// The point this many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Span {
    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl SimTime {
    /// The point this many picoseconds after the start.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Picoseconds since the start.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// The time that a driver passes to a machine: rounded down to nanoseconds, so that it never runs ahead of the simulation.
    pub const fn to_nanos(self) -> Time {
        Time(self.0 / 1_000)
    }
}

/// The simulated time of a machine's deadline: exact, and [`SimTime::NEVER`] for [`Time::NEVER`] and beyond the end of simulated time.
impl From<Time> for SimTime {
    fn from(time: Time) -> Self {
        Self(time.0.saturating_mul(1_000))
    }
}

impl SimSpan {
    /// A span of picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// The span in picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }
}

impl From<Span> for SimSpan {
    fn from(span: Span) -> Self {
        Self(span.0.saturating_mul(1_000))
    }
}

/// Writes a span in the largest unit that leaves a whole part: `1.168 us`, `256 ns`, `3.2 ms`.
fn write_picos(picos: u128, unit_of_zero: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (unit, size) = match picos {
        0 => return write!(f, "0 {unit_of_zero}"),
        1..1_000 => return write!(f, "{picos} ps"),
        1_000..1_000_000 => ("ns", 1e3),
        1_000_000..1_000_000_000 => ("us", 1e6),
        1_000_000_000..1_000_000_000_000 => ("ms", 1e9),
        _ => ("s", 1e12),
    };
    let text = format!("{:.3}", picos as f64 / size);
    write!(f, "{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_in_the_unit_that_fits() {
        assert_eq!(SimSpan::from_picos(999).to_string(), "999 ps");
        assert_eq!(Span::ZERO.to_string(), "0 ns");
        assert_eq!(Span::from_nanos(256).to_string(), "256 ns");
        assert_eq!(SimSpan::from_nanos(256).to_string(), "256 ns");
        assert_eq!(Span::from_nanos(1_168).to_string(), "1.168 us");
        assert_eq!(Span::from_micros(2_500).to_string(), "2.5 ms");
    }

    #[test]
    fn time_never_wraps() {
        assert_eq!(Time::NEVER + Span::from_nanos(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::NEVER), Span::ZERO);
        assert_eq!(SimTime::NEVER + SimSpan::from_nanos(1), SimTime::NEVER);
    }

    #[test]
    fn a_deadline_is_due_when_the_simulation_reaches_it_and_not_before() {
        let deadline = Time::from_nanos(7);
        assert_eq!(SimTime::from(deadline), SimTime::from_picos(7_000));
        assert!(SimTime::from_picos(6_999).to_nanos() < deadline);
        assert_eq!(SimTime::from_picos(7_999).to_nanos(), deadline);
        assert_eq!(SimTime::from(Time::NEVER), SimTime::NEVER);
    }
}
