//! A slot collects one operation's contributions from the children of a node, and keeps the result for those who
//! missed it.
//!
//! In: contributions, in any order, perhaps twice. Out: one folded result, once. Rules: P-14 to P-20; claim SH-3.
//!
//! Slots form a ring: the slot of operation `n` is next used by operation `n + window`. A member starts that one only
//! when it has the result of `n`, so when all children have contributed to it, nobody can ask for the old result any
//! more. Until then the slot keeps it, if it has it, beside the new collection (P-19).

use reduce::{ElementType, Operator, ReductionKind};
use units::{ChildIndex, OpId, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind as MessageKind};

use super::{AbortCause, AggregationMessage, ContributionRole, EdgeIndex, ResultDisposition};
use crate::Payload;

/// What the caller must do next. Every variant is a duty, never a hint.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ContributionOutcome {
    /// More children are missing.
    Keep,
    /// All are here: fold, then send on.
    Fold,
    /// The child repeated itself, or the operation is over.
    Duplicate,
    /// Not an operation that can be in flight now.
    OutOfWindow,
}

/// What an operation is to a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    Current,
    Past,
    Foreign,
}

/// What is known of an operation whose slot holds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotHistory {
    /// It may be yet to come.
    Unknown,
    /// Its result has been handed to reliable connections.
    Delivered,
}

/// What the node knows of an operation.
#[derive(Debug)]
enum SlotState {
    /// Nobody has contributed yet.
    Vacant,
    Collecting(Collection),
    /// Folded and sent up; the result has not come down.
    Awaiting {
        sample: AggregationMessage,
    },
    /// The result (or the abort that stands for it).
    Done {
        result: AggregationMessage,
    },
    /// The result is on reliable connections to everyone below, and no longer here.
    Delivered,
}

#[derive(Debug)]
struct Collection {
    /// The first contribution: the others must agree with it.
    sample: AggregationHeader,
    operands: Vec<Option<Operand>>,
    missing: u16,
    /// Children below which nobody wants the result (P-64).
    content: Vec<ChildIndex>,
    abort: Option<AbortCause>,
}

/// What a child contributed.
#[derive(Clone, Debug)]
enum Operand {
    /// Something to fold.
    Given(Payload),
    /// Nothing: it only waits for the result (P-61).
    Silent,
}

#[derive(Debug)]
pub(super) struct Slot {
    op: OpId,
    stage: SlotState,
    /// The result of the operation that used this slot before.
    earlier: Option<AggregationMessage>,
    /// Children that asked for the result before it was here.
    pub wanted_by: Vec<EdgeIndex>,
    /// Until when an answer to what was last asked may come.
    asked_until: Time,
    /// The result has gone down over the children's connections.
    handed_down: bool,
    /// Children that need to hear no more of it than that it is there (P-64).
    content: Vec<ChildIndex>,
    /// Who was late for the last test.
    late: Option<LateChildren>,
    /// Somebody has asked for what was cast.
    sought: bool,
}

/// Answers to a test of those who have not come (P-97).
#[derive(Debug)]
struct LateChildren {
    test: u32,
    children: Vec<ChildIndex>,
    told: bool,
}

/// A deliberately broken slot, which the oracle must catch.
#[cfg(feature = "sabotage")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotMutation {
    /// Folds the last child's operand twice.
    FoldTwice,
    /// Leaves the first child's operand out.
    FoldEarly,
    /// Folds from the last child to the first.
    FoldBackwards,
}

impl Slot {
    pub(super) fn new(op: OpId, past: SlotHistory) -> Self {
        let stage = match past {
            SlotHistory::Unknown => SlotState::Vacant,
            SlotHistory::Delivered => SlotState::Delivered,
        };
        Self {
            op,
            stage,
            earlier: None,
            wanted_by: Vec::new(),
            asked_until: Time::ZERO,
            handed_down: false,
            content: Vec::new(),
            late: None,
            sought: false,
        }
    }

    /// Notes a contribution, or the abort that stands for one.
    pub(super) fn contribute(
        &mut self,
        message: &AggregationMessage,
        child: ChildIndex,
        children: usize,
        window: u32,
    ) -> ContributionOutcome {
        match self.admit(message.op(), window) {
            Admission::Current => {}
            Admission::Past => return ContributionOutcome::Duplicate,
            Admission::Foreign => return ContributionOutcome::OutOfWindow,
        }
        if matches!(self.stage, SlotState::Vacant) {
            self.stage = SlotState::Collecting(Collection::new(message.header, children));
        }
        let SlotState::Collecting(collection) = &mut self.stage else {
            return ContributionOutcome::Duplicate;
        };
        collection.add(message, child)
    }

    /// Finds out what an operation is to this slot; the next one takes it over. That someone speaks of the next one
    /// proves that this one is over, whether or not its result has come by here.
    fn admit(&mut self, op: OpId, window: u32) -> Admission {
        match op.steps_from(self.op) {
            0 => Admission::Current,
            steps if steps == window as i32 => {
                self.earlier = match std::mem::replace(&mut self.stage, SlotState::Vacant) {
                    SlotState::Done { result } => Some(result),
                    _ => None,
                };
                self.op = op;
                self.wanted_by.clear();
                self.asked_until = Time::ZERO;
                self.handed_down = false;
                self.content.clear();
                self.late = None;
                self.sought = false;
                Admission::Current
            }
            steps if steps == -(window as i32) => Admission::Past,
            _ => Admission::Foreign,
        }
    }

    /// Somebody speaks of an operation without contributing: if it is the next of this slot, it is the present one now.
    pub(super) fn come_to(&mut self, op: OpId, window: u32) {
        self.admit(op, window);
    }

    /// Folds all contributions in child order (P-16). The slot then awaits the result.
    pub(super) fn fold(&mut self) -> AggregationMessage {
        let SlotState::Collecting(collection) = std::mem::replace(&mut self.stage, SlotState::Vacant) else {
            unreachable!("the caller was told to fold")
        };
        self.earlier = None; // P-19: everyone who contributed has it.
        let (folded, content) = collection.fold();
        self.content = content;
        self.stage = SlotState::Awaiting { sample: folded.clone() };
        folded
    }

    /// Notes the result; false if it is known already or not of this slot.
    pub(super) fn finish(&mut self, result: &AggregationMessage, window: u32) -> bool {
        if self.admit(result.op(), window) != Admission::Current || self.is_over() {
            return false;
        }
        self.stage = SlotState::Done { result: result.clone() };
        true
    }

    /// True if the result has been here.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, SlotState::Done { .. } | SlotState::Delivered)
    }

    /// True once, when an operation's result is there and has not yet gone down over the connections.
    pub(super) fn take_turn_down(&mut self, op: OpId) -> bool {
        let due = self.op == op && matches!(self.stage, SlotState::Done { .. }) && !self.handed_down;
        self.handed_down |= due;
        due
    }

    /// The children that need to hear no more of the result than that it is there; asked once.
    pub(super) fn take_content(&mut self) -> Vec<ChildIndex> {
        std::mem::take(&mut self.content)
    }

    /// The result of an operation, if this slot still has it.
    pub(super) fn result_of(&self, op: OpId) -> Option<&AggregationMessage> {
        match &self.stage {
            SlotState::Done { result } if op == self.op => Some(result),
            _ => self.earlier.as_ref().filter(|earlier| earlier.op() == op),
        }
    }

    pub(super) fn op(&self) -> OpId {
        self.op
    }

    /// What was sent up, if the result has not come down.
    pub(super) fn awaiting(&self) -> Option<&AggregationMessage> {
        match &self.stage {
            SlotState::Awaiting { sample } => Some(sample),
            _ => None,
        }
    }

    /// Notes who wants what somebody casts, and gives it if it is here. False if that cannot be wanted now, or if it was
    /// asked for too short a time ago.
    pub(super) fn seek(&mut self, op: OpId, from: EdgeIndex, window: u32, now: Time, patience: Span) -> bool {
        if self.admit(op, window) != Admission::Current || self.is_over() {
            return false;
        }
        if !self.wanted_by.contains(&from) {
            self.wanted_by.push(from);
        }
        self.sought = true;
        self.may_ask(now, patience)
    }

    /// Whether somebody has asked for what was cast as this operation.
    pub(super) fn is_sought(&self, op: OpId) -> bool {
        self.op == op && self.sought
    }

    /// Notes that a child has not come to what is tested.
    pub(super) fn note_late(&mut self, op: OpId, child: ChildIndex, test: u32, window: u32) {
        if self.admit(op, window) != Admission::Current {
            return;
        }
        let late = match &mut self.late {
            // Tests are counted, so that a late answer to an earlier one says nothing.
            Some(late) if (late.test.wrapping_sub(test) as i32) > 0 => return,
            Some(late) if late.test == test => late,
            place => place.insert(LateChildren { test, children: Vec::new(), told: false }),
        };
        if !late.children.contains(&child) {
            late.children.push(child);
        }
    }

    /// The last test, once all children have answered it and somebody has not come; told once.
    pub(super) fn take_verdict(&mut self, children: usize, window: u32) -> Option<u32> {
        self.late.as_ref().filter(|late| !late.told)?;
        let missing = self.missing(self.op, children, window);
        let late = self.late.as_mut()?;
        late.told = !missing.is_empty() && missing.iter().all(|child| late.children.contains(child));
        late.told.then_some(late.test)
    }

    /// The bytes that are kept for the operation, if it is in flight.
    pub(super) fn held(&self) -> Option<u64> {
        match &self.stage {
            SlotState::Collecting(collection) => Some(collection.bytes()),
            SlotState::Awaiting { sample } => Some(sample.payload.len().into()),
            SlotState::Vacant | SlotState::Done { .. } | SlotState::Delivered => None,
        }
    }

    /// The children that have not contributed to an operation: none once it has been folded, all if nobody has yet.
    pub(super) fn missing(&mut self, op: OpId, children: usize, window: u32) -> Vec<ChildIndex> {
        if self.admit(op, window) != Admission::Current {
            return Vec::new();
        }
        let is_missing = |position: &usize| match &self.stage {
            SlotState::Vacant => true,
            SlotState::Collecting(collection) => collection.operands[*position].is_none(),
            SlotState::Awaiting { .. } | SlotState::Done { .. } | SlotState::Delivered => false,
        };
        (0..children).filter(is_missing).map(ChildIndex::from_position).collect()
    }

    /// True if the neighbours may be asked about this operation: not again before an answer had time to come (P-20),
    /// or every damaged answer would bring more questions.
    pub(super) fn may_ask(&mut self, now: Time, patience: Span) -> bool {
        let may = now >= self.asked_until;
        if may {
            self.asked_until = now + patience;
        }
        may
    }

    /// Ends a collection for good: its result will be this abort. A slot to which nobody contributed needs a message
    /// about the operation to know what to abort.
    pub(super) fn abort(
        &mut self,
        cause: AbortCause,
        about: Option<&AggregationMessage>,
    ) -> Option<AggregationMessage> {
        let sample = match &self.stage {
            SlotState::Collecting(collection) => AggregationMessage::new(collection.sample, Payload::EMPTY),
            SlotState::Awaiting { sample } => sample.clone(),
            SlotState::Vacant => about?.clone(),
            SlotState::Done { .. } | SlotState::Delivered => return None,
        };
        let abort = sample.aborted(cause);
        self.stage = SlotState::Awaiting { sample: abort.clone() };
        Some(abort)
    }
}

impl Collection {
    fn new(sample: AggregationHeader, children: usize) -> Self {
        Self { sample, operands: vec![None; children], missing: children as u16, content: Vec::new(), abort: None }
    }

    fn add(&mut self, message: &AggregationMessage, child: ChildIndex) -> ContributionOutcome {
        let is_first = usize::from(self.missing) == self.operands.len();
        let place = &mut self.operands[child.index()];
        if place.is_some() {
            return ContributionOutcome::Duplicate; // P-15: known before any arithmetic, so never folded twice.
        }
        let header = &message.header;
        if header.kind == MessageKind::Abort {
            self.abort = self.abort.or(Some(AbortCause::from_code(header.detail)));
        } else if !is_first && self.sample.kind != MessageKind::Abort && !agree(header, &self.sample) {
            self.abort = self.abort.or(Some(AbortCause::Mismatch));
        } else if self.sample.kind == MessageKind::Abort || role_of(&self.sample) == ContributionRole::Silent {
            self.sample = *header; // Whoever gives something says what the others are compared with.
        }
        *place = Some(match role_of(header) {
            ContributionRole::Silent => Operand::Silent,
            ContributionRole::Plain | ContributionRole::Sole => Operand::Given(message.payload.clone()),
        });
        if header.kind != MessageKind::Abort && ResultDisposition::from_code(header.detail) == ResultDisposition::End
        {
            self.content.push(child);
        }
        self.missing -= 1;
        if self.missing == 0 { ContributionOutcome::Fold } else { ContributionOutcome::Keep }
    }

    fn bytes(&self) -> u64 {
        let given = |operand: &Option<Operand>| match operand {
            Some(Operand::Given(payload)) => u64::from(payload.len()),
            Some(Operand::Silent) | None => 0,
        };
        self.operands.iter().map(given).sum()
    }

    /// The fold wants what any of those below wants.
    fn fold(self) -> (AggregationMessage, Vec<ChildIndex>) {
        let everyone_is_content = self.content.len() == self.operands.len();
        let wish = if everyone_is_content { ResultDisposition::End } else { ResultDisposition::Result };
        let sample = AggregationHeader { detail: role_of(&self.sample).code() | wish.code(), ..self.sample };
        let folded = match self.abort {
            Some(cause) => Err(cause),
            None => fold_payloads(&sample, &self.operands),
        };
        let folded = match folded {
            Ok(Operand::Given(payload)) => AggregationMessage::new(sample, payload),
            Ok(Operand::Silent) => AggregationMessage::new(sample, Payload::EMPTY),
            Err(cause) => AggregationMessage::new(sample, Payload::EMPTY).aborted(cause),
        };
        (folded, self.content)
    }
}

fn role_of(header: &AggregationHeader) -> ContributionRole {
    ContributionRole::from_code(header.detail)
}

/// Whether two contributions go together. Of those who are silent nobody knows how much they would have given, and of
/// those who want to be the only one there may be one (P-61).
fn agree(a: &AggregationHeader, b: &AggregationHeader) -> bool {
    let alike = (a.element, a.operator, a.segment) == (b.element, b.operator, b.segment);
    alike
        && match (role_of(a), role_of(b)) {
            (ContributionRole::Silent, _) | (_, ContributionRole::Silent) => true,
            (ContributionRole::Plain, ContributionRole::Plain) => a.element_count == b.element_count,
            (ContributionRole::Sole, _) | (_, ContributionRole::Sole) => false,
        }
}

fn fold_payloads(sample: &AggregationHeader, operands: &[Option<Operand>]) -> Result<Operand, AbortCause> {
    let present = || {
        operands.iter().flatten().filter_map(|operand| match operand {
            Operand::Given(payload) => Some(payload),
            Operand::Silent => None,
        })
    };
    if present().next().is_none() {
        return Ok(Operand::Silent);
    }
    if let Some(Payload::Absent { bytes }) = present().find(|payload| payload.bytes().is_none()) {
        return Ok(Operand::Given(Payload::Absent { bytes: *bytes }));
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
impl Slot {
    /// Spoils the operands as asked, just before they are folded.
    pub(super) fn sabotage(&mut self, sabotage: SlotMutation) {
        let SlotState::Collecting(collection) = &mut self.stage else {
            return;
        };
        match sabotage {
            SlotMutation::FoldTwice => {
                let last = collection.operands.last().cloned().flatten();
                collection.operands.push(last);
            }
            SlotMutation::FoldEarly => collection.operands[0] = None,
            SlotMutation::FoldBackwards => collection.operands.reverse(),
        }
    }
}
