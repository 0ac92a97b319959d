//! Messages over TCP without blocking: a length, a kind, a body.
//!
//! What is read is kept only as it arrives, whatever length was announced; what waits to be written is shared between the
//! streams to which it goes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

/// One read takes at most this.
const READ_CHUNK_BYTES: usize = 65_536;
const HEADER_BYTES: usize = 5;

/// What a message is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RendezvousMessageKind {
    /// Rank 0 asks for a proof.
    Challenge = 0,
    /// A rank presents itself.
    Hello = 1,
    /// Its card is taken.
    Welcome = 2,
    /// It may not join, or nobody may.
    Refused = 3,
    /// All cards.
    Cards = 4,
    /// For rank 0 to pass on.
    Say = 5,
    /// Passed on by rank 0.
    Said = 6,
    /// A rank is lost.
    Lost = 7,
    /// A rank has left as it should.
    Left = 8,
    /// The sender leaves.
    Goodbye = 9,
}

impl RendezvousMessageKind {
    fn of(byte: u8) -> Option<Self> {
        use RendezvousMessageKind::*;
        [Challenge, Hello, Welcome, Refused, Cards, Say, Said, Lost, Left, Goodbye]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A message as it goes over the wire.
pub(super) fn encode_message(kind: RendezvousMessageKind, parts: &[&[u8]]) -> Arc<[u8]> {
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend(u32::try_from(length).expect("messages are short").to_le_bytes());
    bytes.push(kind as u8);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.into()
}

/// What one read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadOutcome {
    /// Something, and there may be more.
    Heard,
    /// Nothing at present.
    Quiet,
    /// Nothing, and nothing will come.
    Ended,
}

/// The other end sent something that is no message of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MalformedMessage;

#[derive(Debug)]
pub(super) struct MessageStream {
    tcp: TcpStream,
    inbox: Vec<u8>,
    /// What of the inbox is dealt with already; cut off at the next read, not at every message.
    taken: usize,
    outbox: VecDeque<Arc<[u8]>>,
    /// What of the first message in the outbox is written already.
    written: usize,
    queued_bytes: usize,
}

impl MessageStream {
    /// Notices within `silence` if the other host is gone without a word.
    pub(super) fn new(tcp: TcpStream, silence: Duration) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let stream = Self { tcp, inbox: Vec::new(), taken: 0, outbox: VecDeque::new(), written: 0, queued_bytes: 0 };
        stream.set_silence(silence)?;
        Ok(stream)
    }

    /// From now on, notices within this time.
    pub(super) fn set_silence(&self, silence: Duration) -> io::Result<()> {
        let socket = SockRef::from(&self.tcp);
        // Whole seconds are what the kernel takes: a third of the time quiet, then three probes.
        let third = Duration::from_secs((silence.as_secs() / 3).max(1));
        let probe = Duration::from_secs((silence.as_secs() * 2 / 9).max(1));
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(third).with_interval(probe).with_retries(3))?;
        socket.set_tcp_user_timeout(Some(silence))
    }

    /// Reads what is there, up to one chunk.
    pub(super) fn fill(&mut self) -> io::Result<ReadOutcome> {
        self.inbox.drain(..std::mem::take(&mut self.taken));
        if self.inbox.is_empty() && self.inbox.capacity() > 4 * READ_CHUNK_BYTES {
            self.inbox = Vec::new(); // The table was long; what follows is short.
        }
        // Mostly there is nothing, and whoever waits asks often: no room is made before there is something.
        let mut first = [0; 1];
        loop {
            match self.tcp.read(&mut first) {
                Ok(0) => return Ok(ReadOutcome::Ended),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(ReadOutcome::Quiet),
                Err(error) => return Err(error),
            }
        }
        let old = self.inbox.len();
        self.inbox.extend(first);
        self.inbox.resize(old + READ_CHUNK_BYTES, 0);
        let more = loop {
            match self.tcp.read(&mut self.inbox[old + 1..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The end, or what is wrong, is heard the next time.
                other => break other.unwrap_or(0),
            }
        };
        self.inbox.truncate(old + 1 + more);
        Ok(ReadOutcome::Heard)
    }

    /// The next whole message, left where it is; `most` bounds its body.
    pub(super) fn peek(&self, most: usize) -> Result<Option<(RendezvousMessageKind, &[u8])>, MalformedMessage> {
        let Some((head, rest)) = self.inbox[self.taken..].split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let body = length.checked_sub(1).filter(|&body| body <= most).ok_or(MalformedMessage)?;
        let kind = RendezvousMessageKind::of(head[4]).ok_or(MalformedMessage)?;
        Ok(rest.get(..body).map(|body| (kind, body)))
    }

    /// Forgets the message that `peek` showed, with a body of this length.
    pub(super) fn consume(&mut self, body: usize) {
        self.taken += HEADER_BYTES + body;
    }

    /// The next whole message, taken out.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<(RendezvousMessageKind, Vec<u8>)>, MalformedMessage> {
        let Some((kind, body)) = self.peek(most)? else { return Ok(None) };
        let body = body.to_vec();
        self.consume(body.len());
        Ok(Some((kind, body)))
    }

    pub(super) fn has_unread(&self) -> bool {
        self.taken < self.inbox.len()
    }

    /// Puts a message into the outbox; [`MessageStream::flush`] writes it.
    pub(super) fn queue(&mut self, message: Arc<[u8]>) {
        self.queued_bytes += message.len();
        self.outbox.push_back(message);
    }

    /// Forgets what was read.
    pub(super) fn drop_inbox(&mut self) {
        self.inbox.clear();
        self.taken = 0;
    }

    /// Forgets what is still to be written: nobody reads it.
    pub(super) fn drop_outbox(&mut self) {
        self.outbox.clear();
        (self.written, self.queued_bytes) = (0, 0);
    }

    /// What is still to be written.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Writes what the kernel takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(first) = self.outbox.front() {
            match self.tcp.write(&first[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.queued_bytes -= count;
                    if self.written == first.len() {
                        self.written = 0;
                        self.outbox.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be written.
    pub(super) fn close_mouth(&self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    /// Waits until there is something to do, at most until the deadline. True if there is.
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.queued_bytes > 0);
        let mut waiting = [PollFd::new(self.tcp.as_fd(), flags)];
        match poll(&mut waiting, poll_timeout_until(deadline)) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for MessageStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// In the kernel's milliseconds, rounded up: rounded down one would spin through the last.
pub(super) fn poll_timeout_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left.as_micros().div_ceil(1000).min(60_000)).unwrap_or(PollTimeout::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (MessageStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (far, _) = listener.accept().expect("it connects");
        (MessageStream::new(near, Duration::from_secs(10)).expect("options that Linux has"), far)
    }

    fn filled(stream: &mut MessageStream) -> ReadOutcome {
        stream.wait(Instant::now() + Duration::from_secs(5)).expect("poll");
        stream.fill().expect("it reads")
    }

    #[test]
    fn a_message_in_pieces_is_whole_only_at_its_end() {
        let (mut near, mut far) = pair();
        let bytes = encode_message(RendezvousMessageKind::Say, &[b"to", b"gether"]);
        for (index, byte) in bytes.iter().enumerate() {
            assert_eq!(near.next(100), Ok(None), "after {index} bytes");
            far.write_all(&[*byte]).expect("it is open");
            filled(&mut near);
        }
        assert_eq!(near.next(100), Ok(Some((RendezvousMessageKind::Say, b"together".to_vec()))));
        drop(far);
        assert_eq!(filled(&mut near), ReadOutcome::Ended);
    }

    #[test]
    fn strange_kinds_and_lengths_are_garbled_before_they_are_kept() {
        let cases: [(&[u8], usize); 4] = [
            (&[0, 0, 0, 0, 5], 100),          // No room for a kind.
            (&[1, 0, 0, 0, 77], 100),         // No such kind.
            (&[102, 0, 0, 0, 5], 100),        // One byte too long.
            (b"GET / HTTP/1.1\r\n\r\n", 100), // Another language.
        ];
        for (bytes, most) in cases {
            let (mut near, mut far) = pair();
            far.write_all(bytes).expect("it is open");
            filled(&mut near);
            assert_eq!(near.next(most), Err(MalformedMessage), "{bytes:?}");
        }
    }

    #[test]
    fn what_the_kernel_does_not_take_waits_in_the_outbox() {
        let (mut near, mut far) = pair();
        let large = encode_message(RendezvousMessageKind::Cards, &[&vec![7; 16 << 20]]);
        near.queue(Arc::clone(&large));
        near.flush().expect("it is open");
        assert!(near.queued_bytes() > 0);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; (16 << 20) + HEADER_BYTES];
            far.read_exact(&mut all).map(|()| all)
        });
        while near.queued_bytes() > 0 {
            assert!(near.wait(Instant::now() + Duration::from_secs(5)).expect("poll"));
            near.flush().expect("it is open");
        }
        assert_eq!(reader.join().expect("it returns").expect("all of it")[..], large[..]);
    }
}
