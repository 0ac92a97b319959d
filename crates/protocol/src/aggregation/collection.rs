//! The contributions of one operation at one node: checked against each other, counted, and folded in child order.
//!
//! In: contributions, in any order, perhaps twice. Out: one folded message. Rules: P-34, P-35, P-48, P-49; claim
//! SH-3.

use reduce::{ElementType, Operator, ReductionKind};
use units::ChildIndex;
use wire::aggregation::{AggregationHeader, AggregationMessageKind};

use super::{AbortCause, AggregationMessage, ContributionRole, ResultDisposition};
use crate::Payload;
#[cfg(feature = "sabotage")]
use crate::sabotage::SlotSabotage;

/// What the caller must do with a contribution.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ContributionOutcome {
    /// Wait: more children are missing.
    Keep,
    /// All children have contributed: fold, then forward.
    Fold,
    /// Drop it: the child has contributed already, or the operation is over.
    Duplicate,
    /// Drop it: the operation cannot be in flight now.
    OutOfWindow,
}

/// The contributions of an operation, one place per child.
#[derive(Debug)]
pub(super) struct Collection {
    /// The header with which the other contributions must agree.
    pub(super) sample: AggregationHeader,
    operands: Vec<Option<Operand>>,
    missing: u16,
    /// Children whose members need only the completion (P-49).
    completion_only: Vec<ChildIndex>,
    abort: Option<AbortCause>,
}

/// The contribution of one child.
#[derive(Clone, Debug)]
enum Operand {
    /// A payload to fold.
    Given(Payload),
    /// None: the child only waits for the result (P-48).
    None,
}

impl Collection {
    pub(super) fn new(sample: AggregationHeader, children: usize) -> Self {
        Self {
            sample,
            operands: vec![None; children],
            missing: children as u16,
            completion_only: Vec::new(),
            abort: None,
        }
    }

    /// Adds a contribution, or the abort that replaces one.
    pub(super) fn add(&mut self, message: &AggregationMessage, child: ChildIndex) -> ContributionOutcome {
        let is_first = usize::from(self.missing) == self.operands.len();
        let operand = &mut self.operands[child.index()];
        if operand.is_some() {
            return ContributionOutcome::Duplicate; // P-34: detected before any arithmetic, so never folded twice.
        }
        let header = &message.header;
        if header.kind == AggregationMessageKind::Abort {
            self.abort = self.abort.or(Some(AbortCause::from_code(header.detail)));
        } else if !is_first && self.sample.kind != AggregationMessageKind::Abort && !agree(header, &self.sample) {
            self.abort = self.abort.or(Some(AbortCause::Mismatch));
        } else if self.sample.kind == AggregationMessageKind::Abort
            || role_of(&self.sample) == ContributionRole::ReceiveOnly
        {
            self.sample = *header; // The first contribution with an operand becomes the reference.
        }
        *operand = Some(match role_of(header) {
            ContributionRole::ReceiveOnly => Operand::None,
            ContributionRole::Operand | ContributionRole::Sole => Operand::Given(message.payload.clone()),
        });
        if header.kind != AggregationMessageKind::Abort
            && ResultDisposition::from_code(header.detail) == ResultDisposition::CompletionOnly
        {
            self.completion_only.push(child);
        }
        self.missing -= 1;
        if self.missing == 0 { ContributionOutcome::Fold } else { ContributionOutcome::Keep }
    }

    /// Payload bytes held.
    pub(super) fn bytes(&self) -> u64 {
        let given = |operand: &Option<Operand>| match operand {
            Some(Operand::Given(payload)) => u64::from(payload.len()),
            Some(Operand::None) | None => 0,
        };
        self.operands.iter().map(given).sum()
    }

    /// True if a child has not contributed.
    pub(super) fn is_missing(&self, position: usize) -> bool {
        self.operands[position].is_none()
    }

    /// The children that have not contributed.
    pub(super) fn missing_children(&self) -> impl Iterator<Item = ChildIndex> + '_ {
        let missing = self.operands.iter().enumerate().filter(|(_, operand)| operand.is_none());
        missing.map(|(position, _)| ChildIndex::from_position(position))
    }

    /// Folds all operands in child order (P-35). Returns the fold, which wants the result if any child does, and the
    /// children that need only the completion.
    pub(super) fn fold(self) -> (AggregationMessage, Vec<ChildIndex>) {
        let all_completion_only = self.completion_only.len() == self.operands.len();
        let disposition =
            if all_completion_only { ResultDisposition::CompletionOnly } else { ResultDisposition::Deliver };
        let sample = AggregationHeader { detail: role_of(&self.sample).code() | disposition.code(), ..self.sample };
        let folded = match self.abort {
            Some(cause) => Err(cause),
            None => fold_payloads(&sample, &self.operands),
        };
        let folded = match folded {
            Ok(Operand::Given(payload)) => AggregationMessage::new(sample, payload),
            Ok(Operand::None) => AggregationMessage::new(sample, Payload::EMPTY),
            Err(cause) => AggregationMessage::new(sample, Payload::EMPTY).aborted(cause),
        };
        (folded, self.completion_only)
    }
}

fn role_of(header: &AggregationHeader) -> ContributionRole {
    ContributionRole::from_code(header.detail)
}

/// True if two contributions can be folded. The length of a receive-only contribution is unknown, and at most one
/// contribution may be the sole one (P-48).
fn agree(a: &AggregationHeader, b: &AggregationHeader) -> bool {
    let same_operation = (a.element, a.operator, a.segment) == (b.element, b.operator, b.segment);
    same_operation
        && match (role_of(a), role_of(b)) {
            (ContributionRole::ReceiveOnly, _) | (_, ContributionRole::ReceiveOnly) => true,
            (ContributionRole::Operand, ContributionRole::Operand) => a.element_count == b.element_count,
            (ContributionRole::Sole, _) | (_, ContributionRole::Sole) => false,
        }
}

fn fold_payloads(sample: &AggregationHeader, operands: &[Option<Operand>]) -> Result<Operand, AbortCause> {
    let present = || {
        operands.iter().flatten().filter_map(|operand| match operand {
            Operand::Given(payload) => Some(payload),
            Operand::None => None,
        })
    };
    if present().next().is_none() {
        return Ok(Operand::None);
    }
    if let Some(Payload::SizeOnly { bytes }) = present().find(|payload| payload.bytes().is_none()) {
        return Ok(Operand::Given(Payload::SizeOnly { bytes: *bytes }));
    }
    if role_of(sample) == ContributionRole::Sole {
        return present().next().cloned().map(Operand::Given).ok_or(AbortCause::Unfoldable);
    }
    let element = ElementType::from_code(sample.element.0).ok_or(AbortCause::Unfoldable)?;
    let operator = Operator::from_code(sample.operator.0).ok_or(AbortCause::Unfoldable)?;
    let kind = ReductionKind::new(element, operator).map_err(|_| AbortCause::Unfoldable)?;
    let folded = kind.fold_all(present().filter_map(Payload::bytes)).map_err(|_| AbortCause::Unfoldable)?;
    Ok(Operand::Given(folded.into()))
}

#[cfg(feature = "sabotage")]
impl Collection {
    /// Spoils the operands just before they are folded.
    pub(super) fn sabotage(&mut self, sabotage: SlotSabotage) {
        match sabotage {
            SlotSabotage::FoldTwice => {
                let last = self.operands.last().cloned().flatten();
                self.operands.push(last);
            }
            SlotSabotage::FoldEarly => self.operands[0] = None,
            SlotSabotage::FoldBackwards => self.operands.reverse(),
        }
    }
}
