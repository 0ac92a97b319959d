//! The layout of a message packet: a header of 64 bytes, then a body.
//!
//! ```text
//!  0  CRC-32C of all 64, computed with 0 here  32  sequence: of the first message in the body, or the transfer
//!  4  version   5  kind   6  body's algorithm   40  acked: messages that the writer received, in order
//!  7  1: an acknowledgement is wanted          48  granted: credit of the reader, in bytes since the start
//!  8  number of the packet on its rail         56  detail: a message's tag, or a fragment's offset
//! 16  checksum of the body
//! 24  bytes of the body    28  control messages in it
//! ```
//! A message of at most 64 bytes travels in an *inline* packet. With the word before it, it fits a cache line if the message has up to
//! 24 bytes:
//!
//! ```text
//!  0  CRC-32C of all, computed with 0 here     8  packet number   12  sequence   16  acked   20  granted
//!  4  version   5  kind   6  0   7  length    24  tag            32  the message
//! ```
//! It holds the low 32 bits of the four counts; the reader knows roughly where they stand ([`expand_count`]).
//!
//! Numbers are little-endian. The header has a CRC of its own because it says where the body belongs, and the body is copied there
//! while it is checked: a corrupt offset would overwrite bytes that arrived intact (P-64).

use super::checksum_policy::ChecksumPolicy;

/// Bytes of a packet's header.
pub const MESSAGE_HEADER_BYTES: usize = 64;
const VERSION: u8 = 2;
/// Bytes before the message in an inline packet.
pub(super) const INLINE_HEADER_BYTES: usize = 32;
/// The longest message of an inline packet.
pub(super) const MAX_INLINE_BYTES: usize = 64;
const KIND_ACK: u8 = 1;
const KIND_EAGER: u8 = 2;
const KIND_CONTROL: u8 = 3;
const KIND_FRAGMENT: u8 = 4;
const KIND_INLINE: u8 = 5;
const FLAG_WANTS_ACK: u8 = 1;

/// What a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyKind {
    /// Empty: the header acknowledges and grants credit.
    Ack,
    /// One eager message.
    Eager,
    /// Several control messages.
    Control,
    /// A fragment of a long message.
    Fragment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageHeader {
    pub(super) kind: BodyKind,
    pub(super) algorithm: u8,
    pub(super) wants_ack: bool,
    pub(super) number: u64,
    pub(super) checksum: u64,
    pub(super) length: u32,
    pub(super) messages: u32,
    pub(super) sequence: u64,
    pub(super) acked: u64,
    pub(super) granted: u64,
    pub(super) detail: u64,
}

/// The header of an inline packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InlineHeader {
    pub(super) number: u32,
    pub(super) sequence: u32,
    pub(super) acked: u32,
    pub(super) granted: u32,
    pub(super) tag: u64,
}

/// Whether a packet claims to be an inline packet; its CRC must still be verified.
#[inline]
pub(super) fn is_inline(packet: &[u8]) -> bool {
    packet.get(5) == Some(&KIND_INLINE)
}

/// Whether a valid packet carries more than an acknowledgement.
pub fn has_body(packet: &[u8]) -> bool {
    packet.get(5) != Some(&KIND_ACK)
}

/// The count with these low bits that is nearest to `near`.
#[inline]
pub(super) fn expand_count(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(ahead))
}

impl InlineHeader {
    /// The words of the header before this message.
    #[inline]
    pub(super) fn words(&self, policy: &ChecksumPolicy, message: &[u8]) -> [u64; INLINE_HEADER_BYTES / 8] {
        let kind = u32::from_le_bytes([VERSION, KIND_INLINE, 0, message.len() as u8]);
        let words = [pair(0, kind), pair(self.number, self.sequence), pair(self.acked, self.granted), self.tag];
        let crc = if policy.is_on() { checksum::crc32c_words(words, message) } else { 0 };
        [pair(crc, kind), words[1], words[2], words[3]]
    }

    /// Parses the header before this message.
    #[inline]
    pub(super) fn read(
        policy: &ChecksumPolicy,
        words: [u64; INLINE_HEADER_BYTES / 8],
        message: &[u8],
    ) -> Result<Self, MessageHeaderError> {
        let (crc, kind) = halves(words[0]);
        let covered = [words[0] ^ u64::from(crc), words[1], words[2], words[3]];
        if policy.is_on() && checksum::crc32c_words(covered, message) != crc {
            return Err(MessageHeaderError::Corrupted);
        }
        let [version, _, zero, length] = kind.to_le_bytes();
        let fits = usize::from(length) == message.len() && message.len() <= MAX_INLINE_BYTES;
        if version != VERSION || zero != 0 || !fits {
            return Err(MessageHeaderError::Malformed);
        }
        let ((number, sequence), (acked, granted)) = (halves(words[1]), halves(words[2]));
        Ok(Self { number, sequence, acked, granted, tag: words[3] })
    }
}

/// Why a packet is unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageHeaderError {
    /// The CRC does not match: no field can be trusted.
    Corrupted,
    /// The CRC matches, but the contents violate the protocol.
    Malformed,
}

impl MessageHeader {
    /// Writes it to the start of a packet.
    pub(super) fn write(&self, policy: &ChecksumPolicy, packet: &mut [u8]) {
        let kind = match self.kind {
            BodyKind::Ack => KIND_ACK,
            BodyKind::Eager => KIND_EAGER,
            BodyKind::Control => KIND_CONTROL,
            BodyKind::Fragment => KIND_FRAGMENT,
        };
        let flags = if self.wants_ack { FLAG_WANTS_ACK } else { 0 };
        let what = u32::from_le_bytes([VERSION, kind, self.algorithm, flags]);
        let size = pair(self.length, self.messages);
        let rest = [self.number, self.checksum, size, self.sequence, self.acked, self.granted, self.detail];
        let words = |crc| [pair(crc, what), rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6]];
        let crc = if policy.is_on() { checksum::crc32c_words(words(0), &[]) } else { 0 };
        let (places, _) = packet[..MESSAGE_HEADER_BYTES].as_chunks_mut::<8>();
        places.iter_mut().zip(words(crc)).for_each(|(place, word)| *place = word.to_le_bytes());
    }

    /// Parses the start of a packet.
    pub(super) fn read(policy: &ChecksumPolicy, packet: &[u8]) -> Result<Self, MessageHeaderError> {
        let (head, body) = packet.split_first_chunk::<MESSAGE_HEADER_BYTES>().ok_or(MessageHeaderError::Corrupted)?;
        let (places, _) = head.as_chunks::<8>();
        let mut words: [u64; MESSAGE_HEADER_BYTES / 8] =
            std::array::from_fn(|index| u64::from_le_bytes(places[index]));
        let (crc, what) = halves(words[0]);
        words[0] = pair(0, what);
        if policy.is_on() && checksum::crc32c_words(words, &[]) != crc {
            return Err(MessageHeaderError::Corrupted);
        }
        let [_, number, checksum, size, sequence, acked, granted, detail] = words;
        let [version, kind, algorithm, flags] = what.to_le_bytes();
        let kind = match kind {
            KIND_ACK => BodyKind::Ack,
            KIND_EAGER => BodyKind::Eager,
            KIND_CONTROL => BodyKind::Control,
            KIND_FRAGMENT => BodyKind::Fragment,
            _ => return Err(MessageHeaderError::Malformed),
        };
        let (length, messages) = halves(size);
        if version != VERSION || flags > FLAG_WANTS_ACK || length as usize != body.len() {
            return Err(MessageHeaderError::Malformed);
        }
        let wants_ack = flags == FLAG_WANTS_ACK;
        Ok(Self { kind, algorithm, wants_ack, number, checksum, length, messages, sequence, acked, granted, detail })
    }
}

/// A word of two halves, the lower first.
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[inline]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> MessageHeader {
        MessageHeader {
            kind: BodyKind::Fragment,
            algorithm: 11,
            wants_ack: true,
            number: 1,
            checksum: 2,
            length: 8,
            messages: 0,
            sequence: 4,
            acked: 5,
            granted: 6,
            detail: 7,
        }
    }

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_is_detected() {
        let policy = ChecksumPolicy::default();
        let mut packet = vec![0; MESSAGE_HEADER_BYTES + 8];
        header().write(&policy, &mut packet);
        assert_eq!(MessageHeader::read(&policy, &packet), Ok(header()));
        for bit in 0..MESSAGE_HEADER_BYTES * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(MessageHeader::read(&policy, &packet), Err(MessageHeaderError::Corrupted), "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        let short = &packet[..MESSAGE_HEADER_BYTES + 7];
        assert_eq!(MessageHeader::read(&policy, short), Err(MessageHeaderError::Malformed));
        assert_eq!(MessageHeader::read(&policy, &packet[..10]), Err(MessageHeaderError::Corrupted));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MessageHeader::read(&ChecksumPolicy::Off, &bytes);
        }
    }
}
