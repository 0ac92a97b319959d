//! The format of a fault plan: TOML, one table per rule.
//!
//! ```toml
//! [[fault]]
//! kind = "flip"           # flip, memory, lose, duplicate, delay, reorder, malform, misroute, overrun, down, kill
//! link = "S0>S8"          # one direction; "S0-S8" for both, "*" for all, "level 1-2" for all between two levels
//! nth = 1                 # the first packet; or: mean-us, probability, bit-error-rate
//! ```

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;

/// All rules of a run.
#[derive(Clone, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultPlan {
    /// Overrides the seed of the run for the faults.
    pub seed: Option<u64>,
    /// The rules, in the order in which they are applied.
    #[serde(default, rename = "fault")]
    pub rules: Vec<FaultRule>,
}

/// The fault of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Bits flip on the wire.
    Flip,
    /// Bits flip in the sending device's buffer, before it computes the VCRC.
    Memory,
    /// The packet is dropped.
    Lose,
    /// The packet arrives twice.
    Duplicate,
    /// The packet arrives later; others may overtake it.
    Delay,
    /// Later packets overtake the packet: it arrives up to three packet times later.
    Reorder,
    /// The packet's header contradicts itself.
    Malform,
    /// The packet has a destination that does not exist.
    Misroute,
    /// The packet is sent into a full buffer.
    Overrun,
    /// The cable is down for a time.
    Down,
    /// A node with all its cables is down, for a time or permanently.
    Kill,
}

impl FaultKind {
    /// The faults of single packets, as random plans draw them: the two that networks have most are there twice.
    pub const PACKET_FAULTS: [Self; 11] = [
        Self::Flip,
        Self::Flip,
        Self::Memory,
        Self::Lose,
        Self::Lose,
        Self::Duplicate,
        Self::Delay,
        Self::Reorder,
        Self::Malform,
        Self::Misroute,
        Self::Overrun,
    ];

    /// Whether the fault is of single packets, not of a cable or a node. A new one belongs into [`Self::PACKET_FAULTS`] too.
    pub fn is_of_packets(self) -> bool {
        match self {
            Self::Flip
            | Self::Memory
            | Self::Lose
            | Self::Duplicate
            | Self::Delay
            | Self::Reorder
            | Self::Malform
            | Self::Misroute
            | Self::Overrun => true,
            Self::Down | Self::Kill => false,
        }
    }
}

/// The packets to which a rule applies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseFilter {
    /// Contributions on their way up.
    Reduce,
    /// Results on their way down.
    Broadcast,
    /// All packets.
    #[default]
    All,
}

/// One rule. At most one of `nth`, `mean-us`, `probability` and `bit-error-rate` triggers it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultRule {
    /// The fault.
    pub kind: Spanned<FaultKind>,
    /// The link: `"S0>S8"`, `"S0-S8"`, `"*"`, `"level 1-2"`, `"level 1>2"`.
    pub link: Option<Spanned<String>>,
    /// The node, for `kill`.
    pub node: Option<Spanned<String>>,
    /// Only on this lane of a split adapter.
    pub lane: Option<u8>,
    /// The packets to which it applies.
    #[serde(default)]
    pub phase: PhaseFilter,
    /// The n-th packet on each channel, from 1.
    pub nth: Option<Spanned<u64>>,
    /// The number of packets from the n-th on (default 1).
    pub count: Option<u64>,
    /// Random errors on each channel, with this mean time between them in microseconds (SE-12).
    pub mean_us: Option<Spanned<f64>>,
    /// How long a packet is exposed to them, in nanoseconds (default: its time on the wire).
    pub exposure_ns: Option<Spanned<f64>>,
    /// Every packet with this probability.
    pub probability: Option<Spanned<f64>>,
    /// Every bit with this probability.
    pub bit_error_rate: Option<Spanned<f64>>,
    /// How many bits flip (default 1).
    pub bits: Option<Spanned<u32>>,
    /// The longest delay, for `delay`; the delay is random.
    pub delay_ns: Option<Spanned<f64>>,
    /// When the rule starts to apply; for `down` and `kill`, when the cables go down. Simulated fabrics only, except for `down`.
    pub at_us: Option<Spanned<f64>>,
    /// How long it applies; for `down` and `kill`, until the cables come up (default: permanent).
    pub for_us: Option<Spanned<f64>>,
}

impl FaultPlan {
    /// Parses a plan.
    ///
    /// # Errors
    /// If the text is not a plan; the error says where and why.
    pub fn parse(text: &str) -> Result<Self, FaultPlanError> {
        toml::from_str(text)
            .map_err(|error| FaultPlanError::new(error.span().unwrap_or(0..0), error.message().to_owned()))
    }
}

/// An error in a plan, and its place in the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlanError {
    /// The byte range of the error.
    pub span: Range<usize>,
    /// The error, and what is allowed.
    pub message: String,
}

impl FaultPlanError {
    /// An error in a byte range.
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }
}

impl fmt::Display for FaultPlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FaultPlanError {}

impl FaultRule {
    /// A rule with this fault for every packet on every link; its fields narrow it.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind: without_span(kind),
            link: None,
            node: None,
            lane: None,
            phase: PhaseFilter::All,
            nth: None,
            count: None,
            mean_us: None,
            exposure_ns: None,
            probability: None,
            bit_error_rate: None,
            bits: None,
            delay_ns: None,
            at_us: None,
            for_us: None,
        }
    }

    /// On this link (see [`FaultRule::link`]).
    pub fn on(self, link: impl Into<String>) -> Self {
        Self { link: Some(without_span(link.into())), ..self }
    }

    /// Only packets of this phase.
    pub fn during(self, phase: PhaseFilter) -> Self {
        Self { phase, ..self }
    }

    /// The n-th packet of each channel.
    pub fn nth(self, nth: u64) -> Self {
        Self { nth: Some(without_span(nth)), ..self }
    }

    /// This node, for `kill`.
    pub fn at_node(self, node: impl Into<String>) -> Self {
        Self { node: Some(without_span(node.into())), ..self }
    }

    /// From `at_us` on, for a time or permanently.
    pub fn lasting(self, at_us: f64, for_us: Option<f64>) -> Self {
        Self { at_us: Some(without_span(at_us)), for_us: for_us.map(without_span), ..self }
    }

    /// Delayed by up to this much, for `delay`.
    pub fn up_to_ns(self, delay_ns: f64) -> Self {
        Self { delay_ns: Some(without_span(delay_ns)), ..self }
    }

    /// At random, with this mean time between errors.
    pub fn with_mean_us(self, mean: f64) -> Self {
        Self { mean_us: Some(without_span(mean)), ..self }
    }

    /// Each packet with this probability.
    pub fn with_probability(self, probability: f64) -> Self {
        Self { probability: Some(without_span(probability)), ..self }
    }
}

/// A value that does not come from a text.
fn without_span<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
