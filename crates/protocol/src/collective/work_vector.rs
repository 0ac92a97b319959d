//! The vector that a rank works on: real bytes, or only their number.
//!
//! Real bytes are shared with the driver that still sends them and with the application; a change copies them first
//! if they are still shared.

use reduce::ReductionKind;

use super::step::VectorRange;
use crate::Payload;

#[derive(Debug)]
pub(super) struct WorkVector(Payload);

impl WorkVector {
    pub(super) fn new(contribution: Payload) -> Self {
        Self(contribution)
    }

    /// Takes the whole vector.
    pub(super) fn take(&mut self) -> Payload {
        std::mem::replace(&mut self.0, Payload::EMPTY)
    }

    /// A range to send: shared if it is the whole vector, otherwise a copy.
    pub(super) fn part(&self, part: VectorRange) -> Payload {
        match &self.0 {
            Payload::Bytes(bytes) if part.len() as usize == bytes.len() => Payload::Bytes(bytes.clone()),
            Payload::Bytes(bytes) => Payload::Bytes(bytes[part.range()].into()),
            Payload::SizeOnly { .. } => Payload::SizeOnly { bytes: part.len() },
        }
    }

    /// Replaces a range. Real bytes make the whole vector real.
    pub(super) fn replace(&mut self, part: VectorRange, payload: Payload) {
        if part.is_empty() {
            return;
        }
        let length = self.0.len();
        if part.len() == length {
            self.0 = payload;
            return;
        }
        match payload.bytes() {
            Some(bytes) => self.make_real()[part.range()].copy_from_slice(bytes),
            None => self.0 = Payload::SizeOnly { bytes: length },
        }
    }

    /// Folds a payload into a range, as the right operand.
    pub(super) fn fold_right(&mut self, kind: ReductionKind, part: VectorRange, operand: &Payload) {
        match (&mut self.0, operand.bytes()) {
            _ if part.is_empty() => {}
            (Payload::Bytes(bytes), Some(operand)) => {
                fold(kind, &mut bytes.make_mut()[part.range()], operand);
            }
            (mine, _) => *mine = Payload::SizeOnly { bytes: mine.len() },
        }
    }

    /// As [`WorkVector::fold_right`], but the payload is the left operand.
    pub(super) fn fold_left(&mut self, kind: ReductionKind, part: VectorRange, operand: Payload) {
        let mine = match &self.0 {
            _ if part.is_empty() => return,
            Payload::Bytes(bytes) => &bytes[part.range()],
            Payload::SizeOnly { .. } => return,
        };
        let folded = match operand {
            Payload::Bytes(mut sum) => {
                fold(kind, sum.make_mut(), mine);
                Payload::Bytes(sum)
            }
            absent => absent,
        };
        self.replace(part, folded);
    }

    fn make_real(&mut self) -> &mut [u8] {
        if let Payload::SizeOnly { bytes } = self.0 {
            self.0 = vec![0; bytes as usize].into();
        }
        match &mut self.0 {
            Payload::Bytes(bytes) => bytes.make_mut(),
            Payload::SizeOnly { .. } => unreachable!("replaced by real bytes above"),
        }
    }
}

/// Folds two payloads of equal length; size-only if either is.
pub(super) fn fold_payloads(kind: ReductionKind, left: Payload, right: &Payload) -> Payload {
    let length = left.len();
    match (left, right.bytes()) {
        (Payload::Bytes(mut sum), Some(right)) => {
            fold(kind, sum.make_mut(), right);
            Payload::Bytes(sum)
        }
        _ => Payload::SizeOnly { bytes: length },
    }
}

fn fold(kind: ReductionKind, left: &mut [u8], right: &[u8]) {
    kind.fold(left, right).expect("lengths are checked on receive, and ranges end between elements");
}
