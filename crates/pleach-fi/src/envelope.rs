//! What travels with a message besides its bytes: its tag and the sender's completion data (P-121).
//!
//! The tag word of Pleach's message has flags, and the data if 32 bits hold it. The tag, and longer data, come before the bytes of
//! a short message, and in the note of a long one.

use protocol::messaging::MessageArrival;

/// A sign of life: no message of the user.
pub(crate) const PING_TAG: u64 = 1 << 63;
/// The numbers of sends that are signs of life have this bit.
pub(crate) const PING_TOKEN: u64 = 1 << 63;
/// The numbers of sends that serve a read, or ask for one, have this bit: nobody waits for their completion.
pub(crate) const REPLY_TOKEN: u64 = 1 << 62;
/// A read of memory: the request, its answer, and its refusal. None of them has the bits of a user's message.
pub(crate) const READ_REQUEST: u64 = 1 << 59;
pub(crate) const READ_DATA: u64 = READ_REQUEST | 1;
pub(crate) const READ_REFUSED: u64 = READ_REQUEST | 2;
const TAGGED: u64 = 1 << 62;
const HAS_DATA: u64 = 1 << 61;
const WIDE_DATA: u64 = 1 << 60;
const NARROW: u64 = u32::MAX as u64;
/// The most bytes before a short message.
pub(crate) const MAX_PREFIX_BYTES: usize = 16;
/// The longest message that a call may copy and return.
pub(crate) const INJECT_BYTES: usize = (16 << 10) - MAX_PREFIX_BYTES;

/// Tag and completion data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    /// None for an untagged message.
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
}

impl Envelope {
    fn word(&self) -> u64 {
        let tagged = if self.tag.is_some() { TAGGED } else { 0 };
        tagged
            | match self.data {
                None => 0,
                Some(data) if data <= NARROW => HAS_DATA | data,
                Some(_) => HAS_DATA | WIDE_DATA,
            }
    }

    /// The tag word and the start of a short message of this many bytes.
    pub(crate) fn short(&self, length: usize) -> (u64, Vec<u8>) {
        let mut bytes = Vec::with_capacity(MAX_PREFIX_BYTES + length);
        self.tag.iter().for_each(|tag| bytes.extend_from_slice(&tag.to_le_bytes()));
        let wide = self.data.filter(|data| *data > NARROW);
        wide.iter().for_each(|data| bytes.extend_from_slice(&data.to_le_bytes()));
        (self.word(), bytes)
    }

    /// The tag word and the note of a long message.
    pub(crate) fn long(&self) -> (u64, u128) {
        (self.word(), u128::from(self.data.unwrap_or(0)) << 64 | u128::from(self.tag.unwrap_or(0)))
    }

    /// Whether the tag of a message is lost: its bytes were corrupted in the memory of its sender, and the tag is among them.
    pub(crate) fn is_lost(arrival: &MessageArrival) -> bool {
        arrival.note().is_none() && arrival.eager_bytes().is_none() && arrival.tag() & TAGGED != 0
    }

    /// The envelope of a message that arrived, and the bytes before the user's; none if it is malformed.
    pub(crate) fn of(arrival: &MessageArrival) -> Option<(Self, usize)> {
        let word = arrival.tag();
        let (is_tagged, is_wide) = (word & TAGGED != 0, word & WIDE_DATA != 0);
        let narrow = (word & HAS_DATA != 0).then_some(word & NARROW);
        if let Some(note) = arrival.note() {
            let data = if is_wide { Some((note >> 64) as u64) } else { narrow };
            return Some((Self { tag: is_tagged.then_some(note as u64), data }, 0));
        }
        // An untagged message whose sender lost the bytes has no prefix either; its receive fails.
        let bytes = arrival.eager_bytes().unwrap_or(&[0; MAX_PREFIX_BYTES]);
        let mut at = 0;
        let mut next = || {
            let word = bytes.get(at..at + 8)?;
            at += 8;
            Some(u64::from_le_bytes(word.try_into().expect("eight bytes")))
        };
        let tag = if is_tagged { Some(next()?) } else { None };
        let data = if is_wide { Some(next()?) } else { narrow };
        Some((Self { tag, data }, at))
    }
}
