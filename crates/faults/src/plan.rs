//! The fault plan as a person writes it: TOML, one table per rule.
//!
//! ```toml
//! [[fault]]
//! kind = "flip"           # flip, memory, lose, duplicate, delay, reorder, malform, misroute, overrun, down, kill
//! link = "S0>S8"          # one direction; "S0-S8" for both, "*" for all, "level 1-2" for all between two levels
//! nth = 1                 # the first packet; or: mean-us, probability, bit-error-rate
//! ```

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

/// All rules of a run.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultPlan {
    /// Overrides the run's seed for the faults.
    pub seed: Option<u64>,
    /// The rules, in the order in which they are asked.
    #[serde(default, rename = "fault")]
    pub rules: Vec<FaultRule>,
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Bits flip on the wire.
    Flip,
    /// Bits flip in the sending device's buffer, before it makes the VCRC.
    Memory,
    /// The packet vanishes.
    Lose,
    /// The packet comes twice.
    Duplicate,
    /// The packet comes later, and others may overtake it.
    Delay,
    /// The packet is overtaken by those behind it: it comes up to three packet times later.
    Reorder,
    /// The packet's header contradicts itself.
    Malform,
    /// The packet is for nobody.
    Misroute,
    /// The packet is sent into a full buffer.
    Overrun,
    /// The cable is down for a while.
    Down,
    /// A node, with all its cables, is down for a while or for good.
    Kill,
}

/// Which packets a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseFilter {
    /// Contributions on their way up.
    Reduce,
    /// Results on their way down.
    Broadcast,
    /// Everything.
    #[default]
    All,
}

/// One rule. At most one of `nth`, `mean-us`, `probability` and `bit-error-rate` says when it strikes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultRule {
    /// What it does.
    pub kind: Spanned<FaultKind>,
    /// Where: `"S0>S8"`, `"S0-S8"`, `"*"`, `"level 1-2"`, `"level 1>2"`.
    pub link: Option<Spanned<String>>,
    /// Which node, for `kill`.
    pub node: Option<Spanned<String>>,
    /// Only on this lane of a split adapter.
    pub lane: Option<u8>,
    /// Which packets.
    #[serde(default)]
    pub phase: PhaseFilter,
    /// The n-th packet on each channel, from 1.
    pub nth: Option<Spanned<u64>>,
    /// So many in a row from the n-th on (1 if not said).
    pub count: Option<u64>,
    /// Errors on each channel at random, on average so many microseconds apart (SE-12).
    pub mean_us: Option<Spanned<f64>>,
    /// How long a packet is exposed to them, in nanoseconds; its time on the wire if not said.
    pub exposure_ns: Option<Spanned<f64>>,
    /// Every packet with this probability.
    pub probability: Option<Spanned<f64>>,
    /// Every bit with this probability.
    pub bit_error_rate: Option<Spanned<f64>>,
    /// How many bits flip (1 if not said).
    pub bits: Option<Spanned<u32>>,
    /// How much later, for `delay`; at random up to so much.
    pub delay_ns: Option<Spanned<f64>>,
    /// From when, for `down` and `kill`.
    pub at_us: Option<Spanned<f64>>,
    /// For how long, for `down` and `kill`; for good if not said.
    pub for_us: Option<Spanned<f64>>,
}

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<Self, FaultPlanError> {
        toml::from_str(text)
            .map_err(|error| FaultPlanError::new(error.span().unwrap_or(0..0), error.message().to_owned()))
    }
}

/// What is wrong with a plan, and where in its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlanError {
    /// The bytes of the text that are to blame.
    pub span: Range<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl FaultPlanError {
    /// About these bytes.
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
    /// A rule that does this, everywhere and always: to be narrowed by its fields.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind: unplaced(kind),
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
        Self { link: Some(unplaced(link.into())), ..self }
    }

    /// Only packets of this phase.
    pub fn during(self, phase: PhaseFilter) -> Self {
        Self { phase, ..self }
    }

    /// The n-th packet of each channel.
    pub fn nth(self, nth: u64) -> Self {
        Self { nth: Some(unplaced(nth)), ..self }
    }

    /// This node, for `kill`.
    pub fn at_node(self, node: impl Into<String>) -> Self {
        Self { node: Some(unplaced(node.into())), ..self }
    }

    /// From `at_us` on, for so long or for good; for `down` and `kill`.
    pub fn lasting(self, at_us: f64, for_us: Option<f64>) -> Self {
        Self { at_us: Some(unplaced(at_us)), for_us: for_us.map(unplaced), ..self }
    }

    /// Later by up to so much, for `delay`.
    pub fn up_to_ns(self, delay_ns: f64) -> Self {
        Self { delay_ns: Some(unplaced(delay_ns)), ..self }
    }

    /// At random, with this mean between errors.
    pub fn with_mean_us(self, mean: f64) -> Self {
        Self { mean_us: Some(unplaced(mean)), ..self }
    }

    /// Each packet with this probability.
    pub fn with_probability(self, probability: f64) -> Self {
        Self { probability: Some(unplaced(probability)), ..self }
    }
}

/// A value that was not read from a text.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
