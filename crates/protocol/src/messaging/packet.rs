//! How a parcel is laid out: a header of 64 bytes, then a body.
//!
//! ```text
//!  0  code of all 64, itself zero (CRC-32C)   32  letter: number of the first, or of the transfer
//!  4  version   5  kind   6  code of the body  40  taken: letters that the writer has had, in order
//!  7  1: an answer is wanted                   48  granted: bytes of messages that the reader may have sent in all
//!  8  number of the parcel on its rail         56  of a message its tag, of a piece where it begins
//! 16  seal: the body's value
//! 24  bytes of the body    28  letters in it
//! ```
//! A message of at most 64 bytes goes in a *brief* parcel, which with the word before it fits a cache line if the message has up to 24:
//!
//! ```text
//!  0  code of all, itself zero (CRC-32C)       8  number of the parcel   12  letter   16  taken   20  granted
//!  4  version   5  kind   6  0   7  length    24  tag                    32  the message
//! ```
//! Of the four counts it has the lowest 32 bits: the reader knows about where they stand.
//!
//! Numbers are little-endian. The header has a code of its own because it says where the body belongs, and a body is copied
//! there while it is checked: a spoiled offset would spoil what had come intact (P-82).

use super::checksum_policy::ChecksumPolicy;
use super::rails::RailIndex;

/// Bytes of a parcel's header.
pub const MESSAGE_HEADER_BYTES: usize = 64;
const VERSION: u8 = 2;
/// Bytes before the message in a brief parcel, and the most bytes of such a message.
pub(super) const INLINE_HEADER_BYTES: usize = 32;
pub(super) const MAX_INLINE_BYTES: usize = 64;
const BARE: u8 = 1;
const BRIEF: u8 = 5;
const WANTS_ANSWER: u8 = 1;
/// Bytes before the data of a letter in a gathered body.
pub(super) const CONTROL_HEADER_BYTES: usize = 24;

/// What a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyKind {
    /// Nothing: only the header counts.
    Bare,
    /// One message.
    Message,
    /// Several letters.
    Letters,
    /// A piece of a long message.
    Piece,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageHeader {
    pub(super) kind: BodyKind,
    pub(super) algorithm: u8,
    pub(super) wants_answer: bool,
    pub(super) number: u64,
    pub(super) seal: u64,
    pub(super) length: u32,
    pub(super) letters: u32,
    pub(super) letter: u64,
    pub(super) taken: u64,
    pub(super) granted: u64,
    pub(super) detail: u64,
}

/// The header of a brief parcel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InlineHeader {
    pub(super) number: u32,
    pub(super) letter: u32,
    pub(super) taken: u32,
    pub(super) granted: u32,
    pub(super) tag: u64,
}

/// Whether a parcel says that it is a brief one; that must still be checked.
#[inline]
pub(super) fn is_inline(parcel: &[u8]) -> bool {
    parcel.get(5) == Some(&BRIEF)
}

/// Whether a sound parcel carries anything but news of what has come.
pub fn has_body(parcel: &[u8]) -> bool {
    parcel.get(5) != Some(&BARE)
}

/// The count whose lowest bits these are, given one that is not far from it.
#[inline]
pub(super) fn expand_count(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(ahead))
}

impl InlineHeader {
    /// The header's words before this message.
    #[inline]
    pub(super) fn words(&self, sealing: &ChecksumPolicy, message: &[u8]) -> [u64; INLINE_HEADER_BYTES / 8] {
        let kind = u32::from_le_bytes([VERSION, BRIEF, 0, message.len() as u8]);
        let words = [pair(0, kind), pair(self.number, self.letter), pair(self.taken, self.granted), self.tag];
        let code = if sealing.is_on() { checksum::crc32c_words(words, message) } else { 0 };
        [pair(code, kind), words[1], words[2], words[3]]
    }

    /// Reads a header before this message.
    #[inline]
    pub(super) fn read(
        sealing: &ChecksumPolicy,
        words: [u64; INLINE_HEADER_BYTES / 8],
        message: &[u8],
    ) -> Result<Self, MessageHeaderError> {
        let (code, kind) = halves(words[0]);
        let covered = [words[0] ^ u64::from(code), words[1], words[2], words[3]];
        if sealing.is_on() && checksum::crc32c_words(covered, message) != code {
            return Err(MessageHeaderError::Spoiled);
        }
        let [version, _, zero, length] = kind.to_le_bytes();
        if version != VERSION || zero != 0 || usize::from(length) != message.len() || message.len() > MAX_INLINE_BYTES
        {
            return Err(MessageHeaderError::Senseless);
        }
        let ((number, letter), (taken, granted)) = (halves(words[1]), halves(words[2]));
        Ok(Self { number, letter, taken, granted, tag: words[3] })
    }
}

/// Why a parcel is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageHeaderError {
    /// The code does not fit: nothing in it can be believed.
    Spoiled,
    /// The code fits, but nobody who keeps the rules writes this.
    Senseless,
}

impl MessageHeader {
    /// Writes it to the front of a parcel.
    pub(super) fn write(&self, sealing: &ChecksumPolicy, parcel: &mut [u8]) {
        let kind = match self.kind {
            BodyKind::Bare => BARE,
            BodyKind::Message => 2,
            BodyKind::Letters => 3,
            BodyKind::Piece => 4,
        };
        let flags = if self.wants_answer { WANTS_ANSWER } else { 0 };
        let what = u32::from_le_bytes([VERSION, kind, self.algorithm, flags]);
        let size = pair(self.length, self.letters);
        let rest = [self.number, self.seal, size, self.letter, self.taken, self.granted, self.detail];
        let words = |code| [pair(code, what), rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6]];
        let code = if sealing.is_on() { checksum::crc32c_words(words(0), &[]) } else { 0 };
        let (places, _) = parcel[..MESSAGE_HEADER_BYTES].as_chunks_mut::<8>();
        places.iter_mut().zip(words(code)).for_each(|(place, word)| *place = word.to_le_bytes());
    }

    /// Reads the front of a parcel.
    pub(super) fn read(sealing: &ChecksumPolicy, parcel: &[u8]) -> Result<Self, MessageHeaderError> {
        let (head, body) = parcel.split_first_chunk::<MESSAGE_HEADER_BYTES>().ok_or(MessageHeaderError::Spoiled)?;
        let (places, _) = head.as_chunks::<8>();
        let mut words: [u64; MESSAGE_HEADER_BYTES / 8] =
            std::array::from_fn(|index| u64::from_le_bytes(places[index]));
        let (code, what) = halves(words[0]);
        words[0] = pair(0, what);
        if sealing.is_on() && checksum::crc32c_words(words, &[]) != code {
            return Err(MessageHeaderError::Spoiled);
        }
        let [_, number, seal, size, letter, taken, granted, detail] = words;
        let [version, kind, algorithm, flags] = what.to_le_bytes();
        let kind = match kind {
            BARE => BodyKind::Bare,
            2 => BodyKind::Message,
            3 => BodyKind::Letters,
            4 => BodyKind::Piece,
            _ => return Err(MessageHeaderError::Senseless),
        };
        let (length, letters) = halves(size);
        if version != VERSION || flags > WANTS_ANSWER || length as usize != body.len() {
            return Err(MessageHeaderError::Senseless);
        }
        let wants_answer = flags == WANTS_ANSWER;
        Ok(Self { kind, algorithm, wants_answer, number, seal, length, letters, letter, taken, granted, detail })
    }
}

/// Two halves of a word, the lower first.
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[inline]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Something that a peer is told exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage<'a> {
    /// A message.
    Message { tag: u64, data: &'a [u8] },
    /// A message of so many bytes is here; its transfer has the number of this letter.
    Announce { tag: u64, length: u64 },
    /// The buffer for a transfer is there.
    Ready { transfer: u64 },
    /// A transfer is complete, or need not be.
    Done { transfer: u64 },
    /// This parcel came spoiled.
    Again { rail: RailIndex, number: u64 },
    /// This rail is of no use any more.
    Closed { rail: RailIndex },
    /// A message of so many bytes was here, and is no more what was sent.
    Lost { tag: u64, length: u64 },
}

impl ControlMessage<'_> {
    /// Bytes in a gathered body.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Message { data, .. } => CONTROL_HEADER_BYTES + data.len().next_multiple_of(8),
            _ => CONTROL_HEADER_BYTES,
        }
    }

    /// Appends it to a gathered body.
    pub(super) fn append_to(&self, body: &mut Vec<u8>) {
        let (kind, rail, data, a, b): (u8, u8, &[u8], u64, u64) = match *self {
            Self::Message { tag, data } => (1, 0, data, tag, 0),
            Self::Announce { tag, length } => (2, 0, &[], tag, length),
            Self::Ready { transfer } => (3, 0, &[], transfer, 0),
            Self::Done { transfer } => (4, 0, &[], transfer, 0),
            Self::Again { rail, number } => (5, rail.0, &[], number, 0),
            Self::Closed { rail } => (6, rail.0, &[], 0, 0),
            Self::Lost { tag, length } => (7, 0, &[], tag, length),
        };
        body.extend_from_slice(&[kind, rail, 0, 0]);
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(&a.to_le_bytes());
        body.extend_from_slice(&b.to_le_bytes());
        body.extend_from_slice(data);
        body.resize(body.len().next_multiple_of(8), 0);
    }
}

/// Takes the first letter off a gathered body.
pub(super) fn parse_control_message<'a>(body: &mut &'a [u8]) -> Result<ControlMessage<'a>, MessageHeaderError> {
    let senseless = MessageHeaderError::Senseless;
    let (head, rest) = body.split_at_checked(CONTROL_HEADER_BYTES).ok_or(senseless)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
    let data = rest.get(..length).ok_or(senseless)?;
    *body = rest.get(length.next_multiple_of(8)..).ok_or(senseless)?;
    let (rail, a, b) = (RailIndex(head[1]), word(8), word(16));
    if length > 0 && head[0] != 1 {
        return Err(senseless);
    }
    Ok(match head[0] {
        1 => ControlMessage::Message { tag: a, data },
        2 => ControlMessage::Announce { tag: a, length: b },
        3 => ControlMessage::Ready { transfer: a },
        4 => ControlMessage::Done { transfer: a },
        5 => ControlMessage::Again { rail, number: a },
        6 => ControlMessage::Closed { rail },
        7 => ControlMessage::Lost { tag: a, length: b },
        _ => return Err(senseless),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> MessageHeader {
        MessageHeader {
            kind: BodyKind::Piece,
            algorithm: 11,
            wants_answer: true,
            number: 1,
            seal: 2,
            length: 8,
            letters: 0,
            letter: 4,
            taken: 5,
            granted: 6,
            detail: 7,
        }
    }

    #[test]
    fn a_header_reads_back_and_no_bit_of_it_may_flip() {
        let sealing = ChecksumPolicy::default();
        let mut parcel = vec![0; MESSAGE_HEADER_BYTES + 8];
        header().write(&sealing, &mut parcel);
        assert_eq!(MessageHeader::read(&sealing, &parcel), Ok(header()));
        for bit in 0..MESSAGE_HEADER_BYTES * 8 {
            parcel[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(MessageHeader::read(&sealing, &parcel), Err(MessageHeaderError::Spoiled), "bit {bit}");
            parcel[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(
            MessageHeader::read(&sealing, &parcel[..MESSAGE_HEADER_BYTES + 7]),
            Err(MessageHeaderError::Senseless)
        );
        assert_eq!(MessageHeader::read(&sealing, &parcel[..10]), Err(MessageHeaderError::Spoiled));
    }

    #[test]
    fn letters_read_back_one_after_the_other() {
        let letters = [
            ControlMessage::Message { tag: 9, data: b"hello" },
            ControlMessage::Announce { tag: u64::MAX, length: 1 << 33 },
            ControlMessage::Ready { transfer: 3 },
            ControlMessage::Again { rail: RailIndex(2), number: 77 },
            ControlMessage::Message { tag: 0, data: b"" },
            ControlMessage::Closed { rail: RailIndex(1) },
            ControlMessage::Lost { tag: 5, length: 6 },
            ControlMessage::Done { transfer: 4 },
        ];
        let mut body = Vec::new();
        letters.iter().for_each(|letter| letter.append_to(&mut body));
        assert_eq!(body.len(), letters.iter().map(ControlMessage::size).sum::<usize>());
        let mut rest = body.as_slice();
        for letter in letters {
            assert_eq!(parse_control_message(&mut rest), Ok(letter));
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MessageHeader::read(&ChecksumPolicy::Off, &bytes);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && parse_control_message(&mut rest).is_ok() {}
        }
    }
}
