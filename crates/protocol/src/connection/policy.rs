//! How a connection behaves.

use units::Span;

/// How a connection behaves. Both ends use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionPolicy {
    /// How many times a frame is sent in a row the first time (1: no replication).
    pub copies: u8,
    /// How many times it is sent in answer to a NAK or a timeout.
    pub resend_copies: u8,
    /// Frames that may be unacknowledged at once; more wait.
    pub window: u16,
    /// Whether fewer than the window are sent when the network shows signs of congestion.
    pub pace: CongestionControl,
    /// An acknowledgement is asked for with every so many unacknowledged frames.
    pub acknowledge_every: u16,
    /// What was not asked for is acknowledged after so long, if nothing was before: then a message of one frame need not ask. None:
    /// only what asks is acknowledged, and the end of every message asks.
    pub acknowledge_after: Option<Span>,
    /// A frame unacknowledged for so long is sent again; with [`RetransmitTimer::Measured`], never earlier than this.
    pub timeout: Span,
    /// Where the time to wait for an acknowledgement comes from.
    pub timer: RetransmitTimer,
    /// Timeouts in a row without a sign of life after which the other end counts as lost.
    pub retry_limit: u8,
    /// Timeouts in a row after which the path is given up, if there is another.
    pub path_retries: u8,
    /// NAKs in a row for one frame after which it counts as lost too: it lives, but nothing gets through to it.
    pub refusal_limit: u16,
    /// Times in a row that the other end may say that it is not ready; none: as often as it likes.
    pub not_ready_limit: Option<u8>,
    /// What is sent again when frames are missing.
    pub repair: LossRecovery,
}

/// What bounds the frames in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionControl {
    /// The window alone: the network has flow control of its own.
    Fixed,
    /// A congestion window within it, as losses and round trips suggest.
    Adaptive,
}

/// How long an acknowledgement is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetransmitTimer {
    /// As long as the policy says.
    Fixed,
    /// As long as measured round trips make likely, and at least as long as the policy says.
    Measured,
}

/// What is sent again when a frame is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossRecovery {
    /// It and everything after it: what InfiniBand receivers expect, since they keep nothing that comes early.
    GoBackN,
    /// What is missing, as the receiver tells: between two ends of ours.
    Selective,
}

impl Default for ConnectionPolicy {
    /// For the edges of trees in fabrics with link-level flow control.
    fn default() -> Self {
        Self {
            copies: 1,
            resend_copies: 1,
            window: 64,
            pace: CongestionControl::Fixed,
            acknowledge_every: 16,
            acknowledge_after: None,
            timeout: Span::from_micros(20),
            timer: RetransmitTimer::Fixed,
            retry_limit: 7,
            path_retries: 2,
            refusal_limit: 1_000,
            not_ready_limit: None,
            repair: LossRecovery::GoBackN,
        }
    }
}

impl ConnectionPolicy {
    /// For two ends of ours on a network that drops what it cannot carry.
    pub fn datagram() -> Self {
        Self {
            window: 128,
            pace: CongestionControl::Adaptive,
            acknowledge_every: 16,
            timeout: Span::from_micros(5_000),
            timer: RetransmitTimer::Measured,
            retry_limit: 30,
            repair: LossRecovery::Selective,
            ..Self::default()
        }
    }

    /// For two ends of ours whose short messages are answered by messages: their acknowledgements can wait. They come well before
    /// the other end is reminded (P-41).
    pub fn conversation() -> Self {
        Self { acknowledge_after: Some(Span::from_micros(100)), ..Self::datagram() }
    }

    /// For a verbs peer on such a network.
    pub fn verbs() -> Self {
        Self { repair: LossRecovery::GoBackN, ..Self::datagram() }
    }
}
