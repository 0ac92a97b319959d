//! The acknowledge extended transport header (AETH): the responder's reply to a request (IB specification, 9.3 and
//! 9.7).
//!
//! ```text
//! 0        syndrome: reserved 0 | kind, 2 bits | value, 5 bits
//! 1..4     message sequence number: messages completed so far, wrapping at 2^24
//! ```
//! Kinds: 0 ACK, value is a credit code; 1 receiver not ready (RNR NAK), value is a timer code; 2 reserved; 3 NAK,
//! value is the cause.

use units::Span;

use crate::ParseError;
use crate::bytes::{prefix, prefix_mut, read_24, write_24};

/// The acknowledge header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// The responder's message sequence number, below 2^24.
    pub message_sequence: u32,
}

/// The reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// This request and all before it are complete.
    Ack {
        /// How many more messages the responder has buffers for.
        credits: CreditCode,
    },
    /// The receiver has no buffer: send again later.
    RnrNak {
        /// How long to wait.
        timer: RnrTimer,
    },
    /// The request failed.
    Nak {
        /// Why.
        cause: NakCause,
    },
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCause {
    /// An earlier packet is missing: send again from the acknowledged one on.
    PsnSequence = 0,
    /// The request is invalid.
    InvalidRequest = 1,
    /// The request may not access the remote memory.
    RemoteAccess = 2,
    /// The responder cannot complete the request, through no fault of the requester.
    RemoteOperational = 3,
    /// Reliable datagrams only.
    InvalidRdRequest = 4,
}

/// A number of credits, as the five-bit code of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CreditCode(u8);

/// The wait that an RNR NAK asks for, as a five-bit code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

/// The steps that both five-bit codes share: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on.
const fn steps(code: u8) -> u32 {
    match code {
        0 | 1 => code as u32,
        _ if code.is_multiple_of(2) => 1 << (code / 2),
        _ => 3 << ((code - 3) / 2),
    }
}

impl CreditCode {
    /// The responder does not limit messages by credits.
    pub const UNLIMITED: Self = Self(31);

    /// Keeps the low five bits.
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The largest expressible number of credits that does not exceed `credits`.
    pub const fn at_most(credits: u32) -> Self {
        let mut code = 30;
        while steps(code) > credits {
            code -= 1;
        }
        Self(code)
    }

    /// The number of credits; none if unlimited.
    pub const fn credits(self) -> Option<u32> {
        if self.0 == Self::UNLIMITED.0 { None } else { Some(steps(self.0)) }
    }
}

impl RnrTimer {
    const STEP: Span = Span::from_micros(10);

    /// Keeps the low five bits.
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The shortest expressible wait of at least `wait`, or the longest one there is.
    pub fn at_least(wait: Span) -> Self {
        let longest = Self(0);
        (1..32).map(Self).find(|timer| timer.span() >= wait).unwrap_or(longest)
    }

    /// The wait: 10 us to 655.36 ms.
    pub const fn span(self) -> Span {
        // Code 0 means the longest wait.
        Self::STEP.times(if self.0 == 0 { 1 << 16 } else { steps(self.0) as u64 })
    }
}

impl Syndrome {
    /// The byte on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack { credits } => credits.0,
            Self::RnrNak { timer } => 0x20 | timer.0,
            Self::Nak { cause } => 0x60 | cause as u8,
        }
    }
}

impl TryFrom<u8> for Syndrome {
    type Error = ParseError;

    fn try_from(code: u8) -> Result<Self, ParseError> {
        let cause = match code {
            0x00..=0x1f => {
                return Ok(Self::Ack { credits: CreditCode::from_code(code) });
            }
            0x20..=0x3f => {
                return Ok(Self::RnrNak { timer: RnrTimer::from_code(code) });
            }
            0x60 => NakCause::PsnSequence,
            0x61 => NakCause::InvalidRequest,
            0x62 => NakCause::RemoteAccess,
            0x63 => NakCause::RemoteOperational,
            0x64 => NakCause::InvalidRdRequest,
            _ => return Err(ParseError::ReservedSyndrome(code)),
        };
        Ok(Self::Nak { cause })
    }
}

impl Aeth {
    /// Encoded size in bytes.
    pub const SIZE: usize = 4;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        Ok(Self { syndrome: Syndrome::try_from(bytes[0])?, message_sequence: read_24(bytes, 1) })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or the sequence number has more than 24 bits.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[0] = self.syndrome.code();
        write_24(bytes, 1, self.message_sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_codes_follow_the_table() {
        let credits: Vec<_> = (0..32).map(|code| CreditCode::from_code(code).credits()).collect();
        assert_eq!(credits[..10], [0, 1, 2, 3, 4, 6, 8, 12, 16, 24].map(Some));
        assert_eq!(credits[28..], [Some(16_384), Some(24_576), Some(32_768), None]);
        assert_eq!(CreditCode::at_most(0).code(), 0);
        assert_eq!(CreditCode::at_most(5).credits(), Some(4));
        assert_eq!(CreditCode::at_most(u32::MAX).credits(), Some(32_768));
    }

    #[test]
    fn timer_codes_follow_the_table() {
        let wait = |code| RnrTimer::from_code(code).span();
        assert_eq!(wait(0), Span::from_micros(655_360));
        assert_eq!(wait(1), Span::from_micros(10));
        assert_eq!(wait(14), Span::from_micros(1_280));
        assert_eq!(wait(31), Span::from_micros(491_520));
        for micros in [0, 10, 11, 1_280, 500_000, 900_000] {
            let timer = RnrTimer::at_least(Span::from_micros(micros));
            assert!(timer.span() >= Span::from_micros(micros.min(655_360)), "{micros} us");
        }
        assert_eq!(RnrTimer::at_least(Span::from_micros(1_280)).code(), 14);
    }

    #[test]
    fn waits_are_rounded_up() {
        let encoded = |micros| RnrTimer::at_least(Span::from_micros(micros)).span();
        assert_eq!(encoded(0), Span::from_micros(10));
        assert_eq!(encoded(10), Span::from_micros(10));
        assert_eq!(encoded(11), Span::from_micros(20));
        assert_eq!(encoded(491_521), Span::from_micros(655_360));
        assert_eq!(encoded(10_000_000), Span::from_micros(655_360));
        for code in 0..32 {
            let timer = RnrTimer::from_code(code);
            assert_eq!(RnrTimer::at_least(timer.span()), timer);
        }
    }

    #[test]
    fn reserved_syndromes_are_errors_and_the_others_round_trip() {
        for code in 0..=u8::MAX {
            match Syndrome::try_from(code) {
                Ok(syndrome) => assert_eq!(syndrome.code(), code),
                Err(error) => {
                    assert!(matches!(code, 0x40..=0x5f | 0x65..), "{code:#x} is not reserved");
                    assert_eq!(error, ParseError::ReservedSyndrome(code));
                }
            }
        }
    }
}
