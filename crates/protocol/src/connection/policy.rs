//! The parameters of a connection.

use units::Span;

/// The parameters of a connection. Both ends use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionPolicy {
    /// How many times a frame is sent in a row at first (1: no replication).
    pub copies: u8,
    /// Whether more copies are sent where errors are frequent.
    pub replication: CopyPolicy,
    /// How many times it is sent after a NAK or a timeout.
    pub resend_copies: u8,
    /// Unacknowledged frames; further messages wait.
    pub window: u16,
    /// Whether congestion reduces the frames in flight below the window.
    pub congestion_control: CongestionControl,
    /// An acknowledgement is requested every this many unacknowledged frames.
    pub acknowledge_every: u16,
    /// Frames that request no acknowledgement are acknowledged after this delay; then a message of one frame need not request one. None:
    /// the receiver acknowledges only on request, and the end of every message requests it.
    pub acknowledge_after: Option<Span>,
    /// The retransmission timeout; with [`RetransmitTimer::Measured`], its lower bound.
    pub timeout: Span,
    /// How the retransmission timeout is determined.
    pub timer: RetransmitTimer,
    /// Timeouts in a row without a response after which the peer counts as lost.
    pub retry_limit: u8,
    /// Timeouts in a row after which the connection leaves the path, if there is another.
    pub path_retries: u8,
    /// NAKs in a row for one frame after which the peer counts as lost: it responds, but the frame never arrives.
    pub refusal_limit: u16,
    /// RNR NAKs in a row after which the peer counts as lost; none for no limit.
    pub not_ready_limit: Option<u8>,
    /// What is retransmitted when frames are missing.
    pub loss_recovery: LossRecovery,
    /// A deliberate defect of every machine with this policy.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::sabotage::MachineSabotage>,
}

/// How the number of copies is determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyPolicy {
    /// It is the policy's `copies`.
    Fixed,
    /// At least the policy's `copies`, and more while the peer reports errors (P-126).
    Measured,
}

/// What bounds the frames in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionControl {
    /// The window alone: the network has flow control.
    Off,
    /// A congestion window within it, driven by losses and round trips.
    Adaptive,
}

/// How the retransmission timeout is determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetransmitTimer {
    /// It is the policy's `timeout`.
    Fixed,
    /// From measured round trips, and at least the policy's `timeout`.
    Measured,
}

/// What is retransmitted when a frame is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossRecovery {
    /// The frame and everything after it: InfiniBand receivers expect that, since they buffer nothing out of order.
    GoBackN,
    /// What the receiver reports as missing: between two Pleach ends.
    Selective,
}

impl Default for ConnectionPolicy {
    /// For the edges of trees in fabrics with link-level flow control.
    fn default() -> Self {
        Self {
            copies: 1,
            replication: CopyPolicy::Fixed,
            resend_copies: 1,
            window: 64,
            congestion_control: CongestionControl::Off,
            acknowledge_every: 16,
            acknowledge_after: None,
            timeout: Span::from_micros(20),
            timer: RetransmitTimer::Fixed,
            retry_limit: 7,
            path_retries: 2,
            refusal_limit: 1_000,
            not_ready_limit: None,
            loss_recovery: LossRecovery::GoBackN,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}

#[cfg(feature = "sabotage")]
impl ConnectionPolicy {
    pub(super) fn never_retransmits(&self) -> bool {
        self.sabotage == Some(crate::sabotage::MachineSabotage::NeverRetransmit)
    }

    pub(crate) fn never_requests_results(&self) -> bool {
        self.sabotage == Some(crate::sabotage::MachineSabotage::NeverRequestResult)
    }
}

#[cfg(not(feature = "sabotage"))]
impl ConnectionPolicy {
    pub(super) fn never_retransmits(&self) -> bool {
        false
    }

    pub(crate) fn never_requests_results(&self) -> bool {
        false
    }
}

impl ConnectionPolicy {
    /// For two Pleach ends on a network that drops packets.
    pub fn datagram() -> Self {
        Self {
            window: 128,
            congestion_control: CongestionControl::Adaptive,
            acknowledge_every: 16,
            timeout: Span::from_micros(5_000),
            timer: RetransmitTimer::Measured,
            retry_limit: 30,
            loss_recovery: LossRecovery::Selective,
            ..Self::default()
        }
    }

    /// For two Pleach ends whose short messages are answered by messages: acknowledgements can be delayed. They arrive well before the
    /// sender's tail probe (P-12).
    pub fn conversation() -> Self {
        Self { acknowledge_after: Some(Span::from_micros(100)), ..Self::datagram() }
    }

    /// For a verbs peer on a network that drops packets.
    pub fn verbs() -> Self {
        Self { loss_recovery: LossRecovery::GoBackN, ..Self::datagram() }
    }
}
