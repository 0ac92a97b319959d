//! How a rank says that it takes part in an operation, in which one, and with what.
//!
//! ```text
//! word 0   number of the operation, 48 bits | root, 16 bits          published last, observed first
//! word 1   lag, 8 bits | operator, 4 | element, 4 | verb, 8 | length in bytes, 40
//! words 2 to 7   payload if it fits, otherwise where it is
//! word 7         history, if payload leaves room
//! ```
//! The first two words are a *note*. Every rank writes one for every operation, four to a cache line; as a rule nobody reads it
//! soon, and so it costs next to nothing. A rank whose word others wait for shows them a *post* as well, a cache line that
//! begins with the same note.
//!
//! The history is a digest of all broadcasts and reductions that the rank has posted: there, not every rank compares its claim
//! with everyone's, and equal histories tell that all agreed. The lag tells how many operations, this one included, the rank has not settled yet: notes carry what the
//! [`super::window`] needs to know, so that it seldom has to look elsewhere.

use reduce::{ElementType, Operator, ReductionKind};

use super::shared_word::SharedWord;

/// Payload that travels in the post itself.
pub(super) const INLINE_BYTES: usize = 48;
/// Payload that leaves room for the history.
pub(super) const MAX_INLINE_WITH_HISTORY: usize = INLINE_BYTES - 8;
/// Lengths have 40 bits.
pub(super) const MAX_BYTES: u64 = (1 << 40) - 1;

const LAG_SHIFT: u32 = 56;
const OPERATOR_SHIFT: u32 = 52;
const ELEMENT_SHIFT: u32 = 48;
const VERB_SHIFT: u32 = 40;

/// What a rank claims.
#[repr(C, align(16))]
#[derive(Default)]
pub(super) struct SignatureRecord<W> {
    words: [W; 2],
}

/// What a rank claims, and what it brings if that is little.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct OperationDescriptor<W> {
    note: SignatureRecord<W>,
    payload: [W; INLINE_BYTES / 8],
}

/// What the ranks do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TeamVerb {
    /// Nobody leaves before all have come.
    Barrier = 1,
    /// One rank's bytes go to all.
    Broadcast = 2,
    /// The fold of all goes to one rank.
    Reduce = 3,
    /// The fold of all goes to all.
    AllReduce = 4,
}

/// What a rank said about an operation. All ranks must say the same.
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

    /// What the rank wanted to do, if that is anything we know.
    pub fn verb(&self) -> Option<TeamVerb> {
        let verbs = [TeamVerb::Barrier, TeamVerb::Broadcast, TeamVerb::Reduce, TeamVerb::AllReduce];
        verbs.into_iter().find(|verb| *verb as u64 == (self.word >> VERB_SHIFT) & 0xff)
    }

    /// The root, for verbs that have one.
    pub fn root(&self) -> u16 {
        self.root
    }

    /// How many bytes the rank brought or expected.
    pub fn length(&self) -> u64 {
        self.word & MAX_BYTES
    }

    /// The type of the elements, for verbs that fold.
    pub fn element(&self) -> Option<ElementType> {
        ElementType::from_code((self.word >> ELEMENT_SHIFT) as u8 & 0xf)
    }

    /// How they are folded.
    pub fn operator(&self) -> Option<Operator> {
        Operator::from_code((self.word >> OPERATOR_SHIFT) as u8 & 0xf)
    }

    /// Some rank is through without having heard of every other.
    #[inline]
    pub(super) fn is_rooted(&self) -> bool {
        let verb = (self.word >> VERB_SHIFT) as u8;
        verb != TeamVerb::Barrier as u8 && verb != TeamVerb::AllReduce as u8
    }

    /// The history of a rank that has also claimed this.
    #[inline]
    pub(super) fn after(&self, history: u64, number: u64) -> u64 {
        let mixed = (history ^ self.word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 16 ^ u64::from(self.root);
        mixed.rotate_left(32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

impl<W: SharedWord> SignatureRecord<W> {
    /// Tells the others. They may use whatever was written before.
    #[inline]
    pub(super) fn publish(&self, number: u64, lag: u64, claim: CallSignature) {
        debug_assert!(lag <= 0xff && number < 1 << 48);
        self.words[1].write(lag << LAG_SHIFT | claim.word);
        self.words[0].publish(number << 16 | u64::from(claim.root));
    }

    /// What was said about this operation and how much of the past lags, once it has been said.
    #[inline]
    pub(super) fn observe(&self, number: u64) -> Option<(CallSignature, u64)> {
        let first = self.words[0].observe();
        if first >> 16 != number {
            return None;
        }
        let second = self.words[1].read();
        let claim = CallSignature { root: first as u16, word: second & !(0xff << LAG_SHIFT) };
        Some((claim, second >> LAG_SHIFT))
    }
}

impl<W: SharedWord> OperationDescriptor<W> {
    /// Tells the others. They may use whatever was written before.
    #[inline]
    pub(super) fn publish(&self, number: u64, lag: u64, claim: CallSignature, payload: &[u8], history: u64) {
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
        self.note.publish(number, lag, claim);
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

    /// The history in a post that was observed, if its payload leaves room for one.
    #[inline]
    pub(super) fn history(&self) -> u64 {
        self.payload[INLINE_BYTES / 8 - 1].read()
    }

    /// The payload of a post that was observed.
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
    fn a_claim_reads_as_it_was_made() {
        let kind = ReductionKind::new(ElementType::F64, Operator::MaxLoc).expect("they go together");
        let claim = CallSignature::new(TeamVerb::Reduce, 517, Some(kind), MAX_BYTES);
        assert_eq!((claim.verb(), claim.root(), claim.length()), (Some(TeamVerb::Reduce), 517, MAX_BYTES));
        assert_eq!((claim.element(), claim.operator()), (Some(ElementType::F64), Some(Operator::MaxLoc)));
        let post = OperationDescriptor::<AtomicU64>::default();
        assert_eq!(post.observe(3), None);
        post.publish(3, 0xff, claim, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 77);
        assert_eq!(post.observe(3), Some((claim, 0xff)));
        assert_eq!(post.observe(2), None);
        assert_eq!(post.history(), 77);
        assert_eq!(&post.payload()[..12], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]);
    }
}
