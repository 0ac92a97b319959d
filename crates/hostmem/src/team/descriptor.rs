//! What a rank posts about an operation: which one, with what arguments, and its payload.
//!
//! ```text
//! word 0   number of the operation, 48 bits | root, 16 bits          published last, observed first
//! word 1   lag, 8 bits | operator, 4 | element, 4 | verb, 8 | length in bytes, 40
//! words 2 to 7   payload if it fits, otherwise where it is
//! word 7         history, if the payload leaves space
//! ```
//! The first two words are a *signature record*. Every rank writes one for every operation, four to a cache line; as a rule
//! no rank reads it soon, and so it costs next to nothing. A rank that others wait for also posts a *descriptor*, a cache
//! line that begins with the same record.
//!
//! The history is a digest of all broadcasts and reductions that the rank has posted. Not every rank compares all signatures
//! of those; equal histories show that all ranks agreed. The lag is the number of operations, this one included, that the
//! rank has not settled yet: records carry what the [`super::window`] needs, so that it seldom reads other lines.

use reduce::{ElementType, Operator, ReductionKind};

use crate::shared_word::SharedWord;

/// Payload that fits into the descriptor.
pub(super) const INLINE_BYTES: usize = 48;
/// Payload that leaves space for the history.
pub(super) const MAX_INLINE_WITH_HISTORY: usize = INLINE_BYTES - 8;
/// Lengths have 40 bits.
pub(super) const MAX_BYTES: u64 = (1 << 40) - 1;

const LAG_SHIFT: u32 = 56;
const OPERATOR_SHIFT: u32 = 52;
const ELEMENT_SHIFT: u32 = 48;
const VERB_SHIFT: u32 = 40;

/// The signature of a rank's operation.
#[repr(C, align(16))]
#[derive(Default)]
pub(super) struct SignatureRecord<W> {
    words: [W; 2],
}

/// The signature of a rank's operation, and its payload if that is short.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct OperationDescriptor<W> {
    note: SignatureRecord<W>,
    payload: [W; INLINE_BYTES / 8],
}

/// The collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TeamVerb {
    /// Blocks until every rank has entered.
    Barrier = 1,
    /// Copies the bytes of one rank to all.
    Broadcast = 2,
    /// Folds the bytes of all ranks for one rank.
    Reduce = 3,
    /// Folds the bytes of all ranks for all ranks.
    AllReduce = 4,
    /// Each rank reads a part of every rank's bytes.
    Exchange = 5,
}

/// The operation that a rank called, with its arguments. All ranks must call the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSignature {
    root: u16,
    word: u64,
}

impl CallSignature {
    pub(super) const NONE: Self = Self { root: 0, word: 0 };

    pub(super) fn new(verb: TeamVerb, root: u16, kind: Option<ReductionKind>, length: u64) -> Self {
        debug_assert!(length <= MAX_BYTES);
        let (element, operator) = kind.map_or((0, 0), |kind| (kind.element().code(), kind.operator().code()));
        let word = u64::from(operator) << OPERATOR_SHIFT
            | u64::from(element) << ELEMENT_SHIFT
            | (verb as u64) << VERB_SHIFT
            | length;
        Self { root, word }
    }

    /// The operation; none if its code is unknown.
    pub fn verb(&self) -> Option<TeamVerb> {
        use TeamVerb::{AllReduce, Barrier, Broadcast, Exchange, Reduce};
        [Barrier, Broadcast, Reduce, AllReduce, Exchange]
            .into_iter()
            .find(|verb| *verb as u64 == (self.word >> VERB_SHIFT) & 0xff)
    }

    /// The root, for operations that have one.
    pub fn root(&self) -> u16 {
        self.root
    }

    /// The bytes that the rank contributed or expected.
    pub fn length(&self) -> u64 {
        self.word & MAX_BYTES
    }

    /// The type of the elements, for reductions.
    pub fn element(&self) -> Option<ElementType> {
        ElementType::from_code((self.word >> ELEMENT_SHIFT) as u8 & 0xf)
    }

    /// The operator, for reductions.
    pub fn operator(&self) -> Option<Operator> {
        Operator::from_code((self.word >> OPERATOR_SHIFT) as u8 & 0xf)
    }

    /// A rank completes this operation without the descriptors of all others.
    #[inline]
    pub(super) fn is_rooted(&self) -> bool {
        let verb = (self.word >> VERB_SHIFT) as u8;
        verb == TeamVerb::Broadcast as u8 || verb == TeamVerb::Reduce as u8
    }

    /// The history of a rank after it has posted this.
    #[inline]
    pub(super) fn after(&self, history: u64, number: u64) -> u64 {
        let mixed = (history ^ self.word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 16 ^ u64::from(self.root);
        mixed.rotate_left(32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

impl<W: SharedWord> SignatureRecord<W> {
    /// Publishes the record, and with it all earlier writes of this rank.
    #[inline]
    pub(super) fn publish(&self, number: u64, lag: u64, signature: CallSignature) {
        debug_assert!(lag <= 0xff && number < 1 << 48);
        self.words[1].write(lag << LAG_SHIFT | signature.word);
        self.words[0].publish(number << 16 | u64::from(signature.root));
    }

    /// The signature and the lag of this operation, once the rank has recorded it.
    #[inline]
    pub(super) fn observe(&self, number: u64) -> Option<(CallSignature, u64)> {
        let first = self.words[0].observe();
        if first >> 16 != number {
            return None;
        }
        let second = self.words[1].read();
        let signature = CallSignature { root: first as u16, word: second & !(0xff << LAG_SHIFT) };
        Some((signature, second >> LAG_SHIFT))
    }
}

impl<W: SharedWord> OperationDescriptor<W> {
    /// Publishes the descriptor, and with it all earlier writes of this rank.
    #[inline]
    pub(super) fn publish(&self, number: u64, lag: u64, signature: CallSignature, payload: &[u8], history: u64) {
        debug_assert!(payload.len() <= INLINE_BYTES);
        if payload.len() <= MAX_INLINE_WITH_HISTORY {
            self.payload[INLINE_BYTES / 8 - 1].write(history);
        }
        let (whole, rest) = payload.as_chunks();
        for (word, bytes) in self.payload.iter().zip(whole) {
            word.write(u64::from_le_bytes(*bytes));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.payload[whole.len()].write(u64::from_le_bytes(last));
        }
        self.note.publish(number, lag, signature);
    }

    /// As [`SignatureRecord::observe`].
    #[inline]
    pub(super) fn observe(&self, number: u64) -> Option<(CallSignature, u64)> {
        self.note.observe(number)
    }

    /// The first eight bytes of the payload.
    #[inline]
    pub(super) fn first_word(&self) -> u64 {
        self.payload[0].read()
    }

    /// The history in an observed descriptor, if its payload leaves space for it.
    #[inline]
    pub(super) fn history(&self) -> u64 {
        self.payload[INLINE_BYTES / 8 - 1].read()
    }

    /// The payload of an observed descriptor.
    #[inline]
    pub(super) fn payload(&self) -> [u8; INLINE_BYTES] {
        let mut payload = [0; INLINE_BYTES];
        for (word, bytes) in self.payload.iter().zip(payload.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.read().to_le_bytes());
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_signature_reads_as_it_was_written() {
        let kind = ReductionKind::new(ElementType::F64, Operator::MaxLoc).expect("a valid kind");
        let signature = CallSignature::new(TeamVerb::Reduce, 517, Some(kind), MAX_BYTES);
        assert_eq!(
            (signature.verb(), signature.root(), signature.length()),
            (Some(TeamVerb::Reduce), 517, MAX_BYTES)
        );
        assert_eq!((signature.element(), signature.operator()), (Some(ElementType::F64), Some(Operator::MaxLoc)));
        let post = OperationDescriptor::<AtomicU64>::default();
        assert_eq!(post.observe(3), None);
        post.publish(3, 0xff, signature, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 77);
        assert_eq!(post.observe(3), Some((signature, 0xff)));
        assert_eq!(post.observe(2), None);
        assert_eq!(post.history(), 77);
        assert_eq!(&post.payload()[..12], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]);
    }
}
