//! Numbered messages between two endpoints, and their layout in a control packet.
//!
//! ```text
//!  0  kind   1  rail   2  0   4  bytes of the data   8  first word   16  second word   24  data, padded to 8 bytes
//! ```

use super::packet::MessageHeaderError;
use super::rails::RailIndex;

/// Bytes before the data of a message in a control packet.
pub(super) const CONTROL_HEADER_BYTES: usize = 24;
/// Bytes of the note of an RTS.
const NOTE_BYTES: usize = 16;

/// A message that a peer processes exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage<'a> {
    /// An eager message of the user.
    Eager { tag: u64, data: &'a [u8] },
    /// A long message is ready to send. Its transfer has the sequence number of this RTS. A note of the user other than zero is
    /// the data of the control message.
    Rts { tag: u64, length: u64, note: u128 },
    /// The receiver has a buffer for a transfer.
    Cts { transfer: u64 },
    /// A transfer is complete, or its message is not wanted.
    Fin { transfer: u64 },
    /// This packet arrived corrupt.
    Nack { rail: RailIndex, number: u64 },
    /// This rail failed.
    RailClosed { rail: RailIndex },
    /// The sender's copy of an eager message was corrupted before it was acknowledged: the message is lost.
    Lost { tag: u64, length: u64 },
}

impl ControlMessage<'_> {
    /// Bytes in a control packet.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Eager { data, .. } => CONTROL_HEADER_BYTES + data.len().next_multiple_of(8),
            Self::Rts { note: 1.., .. } => CONTROL_HEADER_BYTES + NOTE_BYTES,
            _ => CONTROL_HEADER_BYTES,
        }
    }

    /// Appends it to the body of a control packet.
    pub(super) fn append_to(&self, body: &mut Vec<u8>) {
        let written_note;
        let (kind, rail, data, first, second): (u8, u8, &[u8], u64, u64) = match *self {
            Self::Eager { tag, data } => (1, 0, data, tag, 0),
            Self::Rts { tag, length, note: 0 } => (2, 0, &[], tag, length),
            Self::Rts { tag, length, note } => {
                written_note = note.to_le_bytes();
                (2, 0, &written_note, tag, length)
            }
            Self::Cts { transfer } => (3, 0, &[], transfer, 0),
            Self::Fin { transfer } => (4, 0, &[], transfer, 0),
            Self::Nack { rail, number } => (5, rail.0, &[], number, 0),
            Self::RailClosed { rail } => (6, rail.0, &[], 0, 0),
            Self::Lost { tag, length } => (7, 0, &[], tag, length),
        };
        body.extend_from_slice(&[kind, rail, 0, 0]);
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(&first.to_le_bytes());
        body.extend_from_slice(&second.to_le_bytes());
        body.extend_from_slice(data);
        body.resize(body.len().next_multiple_of(8), 0);
    }
}

/// Splits the first message off the body of a control packet.
pub(super) fn parse_control_message<'a>(body: &mut &'a [u8]) -> Result<ControlMessage<'a>, MessageHeaderError> {
    let malformed = MessageHeaderError::Malformed;
    let (head, rest) = body.split_at_checked(CONTROL_HEADER_BYTES).ok_or(malformed)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
    let data = rest.get(..length).ok_or(malformed)?;
    *body = rest.get(length.next_multiple_of(8)..).ok_or(malformed)?;
    let (rail, first, second) = (RailIndex(head[1]), word(8), word(16));
    let note = match (head[0], length) {
        (1, _) | (_, 0) => 0,
        (2, NOTE_BYTES) => u128::from_le_bytes(data.try_into().expect("sixteen bytes")),
        _ => return Err(malformed),
    };
    Ok(match head[0] {
        1 => ControlMessage::Eager { tag: first, data },
        2 => ControlMessage::Rts { tag: first, length: second, note },
        3 => ControlMessage::Cts { transfer: first },
        4 => ControlMessage::Fin { transfer: first },
        5 => ControlMessage::Nack { rail, number: first },
        6 => ControlMessage::RailClosed { rail },
        7 => ControlMessage::Lost { tag: first, length: second },
        _ => return Err(malformed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_messages_read_back_one_after_the_other() {
        let messages = [
            ControlMessage::Eager { tag: 9, data: b"hello" },
            ControlMessage::Rts { tag: u64::MAX, length: 1 << 33, note: 0 },
            ControlMessage::Rts { tag: 4, length: 5, note: u128::MAX - 7 },
            ControlMessage::Cts { transfer: 3 },
            ControlMessage::Nack { rail: RailIndex(2), number: 77 },
            ControlMessage::Eager { tag: 0, data: b"" },
            ControlMessage::RailClosed { rail: RailIndex(1) },
            ControlMessage::Lost { tag: 5, length: 6 },
            ControlMessage::Fin { transfer: 4 },
        ];
        let mut body = Vec::new();
        messages.iter().for_each(|message| message.append_to(&mut body));
        assert_eq!(body.len(), messages.iter().map(ControlMessage::size).sum::<usize>());
        let mut rest = body.as_slice();
        for message in messages {
            assert_eq!(parse_control_message(&mut rest), Ok(message));
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && parse_control_message(&mut rest).is_ok() {}
        }
    }
}
