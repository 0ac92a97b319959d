//! Messages of the rendezvous and of the failure detector: a frame whose first byte is the kind.

use std::sync::Arc;

use super::framing::{FramedStream, encode_frame};

/// One read takes at most this much, so that no connection delays the others.
pub(super) const MAX_READ_BYTES: usize = 65_536;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RendezvousMessageKind {
    /// With this, servers of versions before 3 begin. It is never sent, and names the mismatch.
    Challenge = 0,
    /// A rank asks to join.
    Hello = 1,
    /// Rank 0 accepts its request.
    Welcome = 2,
    /// Rank 0 rejects the rank, or the rendezvous failed.
    Rejected = 3,
    /// The table of all ranks.
    Table = 4,
    /// An out-of-band message for rank 0 to forward.
    Send = 5,
    /// An out-of-band message that rank 0 forwards.
    Deliver = 6,
    /// The coordinator's verdict about lost ranks.
    Lost = 7,
    /// Ranks have left cleanly.
    Left = 8,
    /// The sender leaves.
    Goodbye = 9,
    /// So many messages were received on this link.
    Received = 10,
    /// The coordinator asks whether a rank is there.
    Ping = 11,
    /// It is.
    Pong = 12,
    /// A rank asks to add a connection to its link, or to follow a new coordinator.
    Attach = 13,
    /// Its request is accepted.
    Attached = 14,
    /// One half of the handshake that encrypts the connection. The first half begins with the version, in all versions.
    Secure = 15,
    /// A rank cannot join, and says why.
    Withdraw = 16,
}

/// The peer sent something that is not a message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MalformedMessage;

impl RendezvousMessageKind {
    fn of(byte: u8) -> Option<Self> {
        use RendezvousMessageKind::*;
        let all =
            [Challenge, Hello, Welcome, Rejected, Table, Send, Deliver, Lost, Left, Goodbye, Received, Ping, Pong];
        all.into_iter().chain([Attach, Attached, Secure, Withdraw]).find(|kind| *kind as u8 == byte)
    }
}

/// Encodes a message whose body has these parts.
pub(super) fn encode_message(kind: RendezvousMessageKind, parts: &[&[u8]]) -> Arc<[u8]> {
    let kind = [kind as u8];
    let all: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
    encode_frame(&all)
}

/// The next whole message, which stays in the stream until `consume_frame`; `max_bytes` bounds its body.
pub(super) fn peek_message(
    stream: &FramedStream,
    max_bytes: usize,
) -> Result<Option<(RendezvousMessageKind, &[u8])>, MalformedMessage> {
    let Some(frame) = stream.peek_frame(max_bytes + 1).map_err(|_| MalformedMessage)? else { return Ok(None) };
    let (kind, body) = frame.split_first().ok_or(MalformedMessage)?;
    Ok(Some((RendezvousMessageKind::of(*kind).ok_or(MalformedMessage)?, body)))
}

/// Takes the next whole message.
pub(super) fn next_message(
    stream: &mut FramedStream,
    max_bytes: usize,
) -> Result<Option<(RendezvousMessageKind, Vec<u8>)>, MalformedMessage> {
    let Some((kind, body)) = peek_message(stream, max_bytes)?.map(|(kind, body)| (kind, body.to_vec())) else {
        return Ok(None);
    };
    stream.consume_frame();
    Ok(Some((kind, body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn received(bytes: &[u8]) -> FramedStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut far, _) = listener.accept().expect("accepts");
        far.write_all(bytes).expect("open");
        let mut near = FramedStream::new(near).expect("options that Linux has");
        near.wait(Instant::now() + Duration::from_secs(5)).expect("poll");
        near.fill(MAX_READ_BYTES).expect("reads");
        near
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut stream = received(&encode_message(RendezvousMessageKind::Send, &[b"to", b"gether"]));
        let expected = (RendezvousMessageKind::Send, b"together".to_vec());
        assert_eq!(next_message(&mut stream, 8), Ok(Some(expected)));
        assert_eq!(next_message(&mut stream, 8), Ok(None));
    }

    #[test]
    fn unknown_kinds_and_wrong_lengths_are_malformed() {
        let cases: [&[u8]; 4] = [
            &[0, 0, 0, 0, 5],          // No room for a kind.
            &[1, 0, 0, 0, 77],         // No such kind.
            &[102, 0, 0, 0, 5],        // One byte too long.
            b"GET / HTTP/1.1\r\n\r\n", // Another protocol.
        ];
        for bytes in cases {
            assert_eq!(next_message(&mut received(bytes), 100), Err(MalformedMessage), "{bytes:?}");
        }
    }
}
