//! Length-prefixed frames over TCP: four bytes of length in little-endian order, then the body.
//!
//! In: bytes, in any fragmentation. Out: whole frames. [`FramedStream`] never blocks and bounds its memory: it buffers only bytes
//! that have arrived, whatever length a peer announced, and shares queued frames between the streams that send them.
//! A stream may be encrypted ([`FramedStream::secure`]). [`read_frame`] and [`write_frame`] are the blocking form, for programs with one connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

use super::secure_channel::SecureChannel;

/// Bytes of the length before every frame.
pub const LENGTH_BYTES: usize = 4;
/// Size of the buffer of the first read call: most messages are shorter, and one that is polled in vain clears little.
const FIRST_READ_BYTES: usize = 2 << 10;
/// Size of the buffer of further read calls.
const READ_CHUNK_BYTES: usize = 16 << 10;
/// An idle stream keeps at most this much buffer.
const IDLE_BUFFER_BYTES: usize = 64 << 10;

/// What one read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// Some bytes; there may be more.
    Received,
    /// Nothing at present.
    WouldBlock,
    /// The end of the stream.
    Closed,
}

/// The peer announced a frame longer than the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameTooLong;

/// Makes a frame of several parts.
pub fn encode_frame(parts: &[&[u8]]) -> Arc<[u8]> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + length);
    bytes.extend(u32::try_from(length).expect("a frame is shorter than 4 GiB").to_le_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.into()
}

/// A TCP connection that sends and receives frames without blocking.
#[derive(Debug)]
pub struct FramedStream {
    tcp: TcpStream,
    inbox: Vec<u8>,
    /// Processed bytes of the inbox; removed at the next read, not at every frame.
    consumed: usize,
    outbox: VecDeque<Arc<[u8]>>,
    /// Bytes of the first queued frame that are already written, or encrypted.
    written: usize,
    queued_bytes: usize,
    secure: Option<Box<SecureState>>,
}

/// The state of an encrypted stream.
#[derive(Debug)]
struct SecureState {
    channel: SecureChannel,
    /// Received and not decrypted yet.
    sealed_inbox: Vec<u8>,
    /// The record that is being written, and how much of it is.
    record: Vec<u8>,
    record_written: usize,
}

impl FramedStream {
    /// Takes over a connection, which may still be in progress.
    ///
    /// # Errors
    /// The socket rejects an option.
    pub fn new(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let (inbox, outbox) = (Vec::new(), VecDeque::new());
        Ok(Self { tcp, inbox, consumed: 0, outbox, written: 0, queued_bytes: 0, secure: None })
    }

    /// From now on everything is encrypted, in both directions. What was queued before must have been written, or is sent encrypted; what
    /// was received and not consumed is taken as encrypted.
    ///
    /// # Errors
    /// What was received is not authentic.
    pub fn secure(&mut self, channel: SecureChannel) -> io::Result<()> {
        let sealed_inbox = self.inbox.split_off(self.consumed);
        self.drop_inbox();
        self.secure = Some(Box::new(SecureState { channel, sealed_inbox, record: Vec::new(), record_written: 0 }));
        self.decrypt()
    }

    /// Decrypts all records that are complete.
    fn decrypt(&mut self) -> io::Result<()> {
        let Some(secure) = &mut self.secure else { return Ok(()) };
        let mut taken = 0;
        while let Some(length) = secure
            .channel
            .open(&secure.sealed_inbox[taken..], &mut self.inbox)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "the peer sent bytes that are not authentic"))?
        {
            taken += length;
        }
        secure.sealed_inbox.drain(..taken);
        Ok(())
    }

    /// Has the kernel probe an idle connection: after `idle`, then every `interval`; three lost probes close it.
    ///
    /// # Errors
    /// The socket rejects an option.
    pub fn set_keepalive(&self, idle: Duration, interval: Duration) -> io::Result<()> {
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3);
        SockRef::from(&self.tcp).set_tcp_keepalive(&keepalive)
    }

    /// Detects the loss of the peer's host within this time, whether the connection is idle or has unacknowledged data.
    ///
    /// # Errors
    /// The socket rejects an option.
    pub fn set_peer_timeout(&self, timeout: Duration) -> io::Result<()> {
        // The kernel takes whole seconds: a third of the time idle, then three probes.
        let idle = Duration::from_secs((timeout.as_secs() / 3).max(1));
        let interval = Duration::from_secs((timeout.as_secs() * 2 / 9).max(1));
        self.set_keepalive(idle, interval)?;
        SockRef::from(&self.tcp).set_tcp_user_timeout(Some(timeout))
    }

    /// Reads the available bytes, at most `max_bytes`.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn fill(&mut self, max_bytes: usize) -> io::Result<ReadOutcome> {
        self.inbox.drain(..std::mem::take(&mut self.consumed));
        if self.inbox.capacity() > 2 * IDLE_BUFFER_BYTES && self.inbox.len() < IDLE_BUFFER_BYTES {
            self.inbox.shrink_to(IDLE_BUFFER_BYTES);
        }
        let mut first = [0; FIRST_READ_BYTES];
        let wanted = max_bytes.clamp(1, FIRST_READ_BYTES);
        let count = loop {
            match self.tcp.read(&mut first[..wanted]) {
                Ok(0) => return Ok(ReadOutcome::Closed),
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_ready(&error) => return Ok(ReadOutcome::WouldBlock),
                Err(error) => return Err(error),
            }
        };
        self.received_bytes().extend_from_slice(&first[..count]);
        if count == wanted {
            self.read_more(max_bytes.saturating_sub(count));
        }
        self.decrypt()?;
        Ok(ReadOutcome::Received)
    }

    /// Where bytes go as they arrive.
    fn received_bytes(&mut self) -> &mut Vec<u8> {
        match &mut self.secure {
            Some(secure) => &mut secure.sealed_inbox,
            None => &mut self.inbox,
        }
    }

    fn read_more(&mut self, mut left: usize) {
        let mut chunk = [0; READ_CHUNK_BYTES];
        while left > 0 {
            let wanted = left.min(chunk.len());
            match self.tcp.read(&mut chunk[..wanted]) {
                Ok(count @ 1..) => {
                    self.received_bytes().extend_from_slice(&chunk[..count]);
                    left -= count;
                    if count < wanted {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The next call reports the end or the error.
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// The next whole frame, which stays in the buffer until [`Self::consume_frame`].
    ///
    /// # Errors
    /// Its length exceeds `max_bytes`.
    pub fn peek_frame(&self, max_bytes: usize) -> Result<Option<&[u8]>, FrameTooLong> {
        let Some((length, rest)) = self.inbox[self.consumed..].split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > max_bytes {
            return Err(FrameTooLong);
        }
        Ok(rest.get(..length))
    }

    /// Removes the frame that [`Self::peek_frame`] returned.
    pub fn consume_frame(&mut self) {
        let length = self.inbox[self.consumed..].first_chunk::<LENGTH_BYTES>().expect("a frame was peeked");
        self.consumed += LENGTH_BYTES + u32::from_le_bytes(*length) as usize;
        if self.consumed == self.inbox.len() {
            self.drop_inbox();
        }
    }

    /// Takes the next whole frame.
    ///
    /// # Errors
    /// Its length exceeds `max_bytes`.
    pub fn next_frame(&mut self, max_bytes: usize) -> Result<Option<Vec<u8>>, FrameTooLong> {
        let Some(frame) = self.peek_frame(max_bytes)?.map(<[u8]>::to_vec) else { return Ok(None) };
        self.consume_frame();
        Ok(Some(frame))
    }

    /// Bytes that are received and not yet consumed.
    pub fn unread_bytes(&self) -> usize {
        self.inbox.len() - self.consumed + self.secure.as_ref().map_or(0, |secure| secure.sealed_inbox.len())
    }

    /// Queues a frame made by [`encode_frame`]; [`Self::flush`] writes it.
    pub fn queue(&mut self, frame: Arc<[u8]>) {
        self.queued_bytes += frame.len();
        self.outbox.push_back(frame);
    }

    /// Bytes that are queued and not yet written.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Discards what was received.
    pub fn drop_inbox(&mut self) {
        self.inbox.clear();
        self.consumed = 0;
        if self.inbox.capacity() > IDLE_BUFFER_BYTES {
            self.inbox = Vec::new();
        }
    }

    /// Discards what is queued.
    pub fn drop_outbox(&mut self) {
        self.outbox.clear();
        (self.written, self.queued_bytes) = (0, 0);
        if let Some(secure) = &mut self.secure {
            secure.record.clear();
            secure.record_written = 0;
        }
    }

    /// Writes as much as the kernel accepts.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.secure.is_some() {
            return self.flush_records();
        }
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
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The same, encrypted.
    fn flush_records(&mut self) -> io::Result<()> {
        loop {
            let Some(secure) = &mut self.secure else { return Ok(()) };
            if secure.record_written == secure.record.len() {
                secure.record_written = 0;
                let Some(first) = self.outbox.front() else {
                    secure.record = Vec::new(); // An idle stream keeps little memory.
                    return Ok(());
                };
                let sealed = secure.channel.seal(&first[self.written..], &mut secure.record);
                self.written += sealed.map_err(|_| io::Error::other("the connection has sent too many records"))?;
                if self.written == first.len() {
                    self.queued_bytes -= first.len();
                    self.written = 0;
                    self.outbox.pop_front();
                }
                self.queued_bytes += secure.record.len();
            }
            match self.tcp.write(&secure.record[secure.record_written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    secure.record_written += count;
                    self.queued_bytes -= count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the sending direction.
    pub fn shutdown_write(&self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    /// The descriptor with the events that the stream waits for.
    pub fn poll_fd(&self) -> PollFd<'_> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.queued_bytes > 0);
        PollFd::new(self.tcp.as_fd(), flags)
    }

    /// Waits until the stream is ready, at most until the deadline. True if it is.
    ///
    /// # Errors
    /// `poll` failed.
    pub fn wait(&self, deadline: Instant) -> io::Result<bool> {
        match poll(&mut [self.poll_fd()], poll_timeout_until(deadline)) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for FramedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// A connection in progress reports `NotConnected`; if it fails, the error is another one.
fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// The time until a deadline in milliseconds, rounded up: rounded down, a caller would spin through the last millisecond.
pub fn poll_timeout_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left.as_micros().div_ceil(1000).min(60_000)).unwrap_or(PollTimeout::ZERO)
}

/// Writes a frame to a blocking stream.
///
/// # Errors
/// The connection is broken or the write timed out.
pub fn write_frame(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    stream.write_all(&encode_frame(&[body]))
}

/// Reads exactly one frame from a blocking stream.
///
/// # Errors
/// The connection is broken, the read timed out, or the frame is longer than `max_bytes`.
pub fn read_frame(stream: &mut impl Read, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max_bytes {
        let what = format!("the peer announced a frame of {length} bytes, the limit is {max_bytes}");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (FramedStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (far, _) = listener.accept().expect("accepts");
        let near = FramedStream::new(near).expect("options that Linux has");
        near.set_peer_timeout(Duration::from_secs(10)).expect("options that Linux has");
        (near, far)
    }

    fn fill(stream: &mut FramedStream) -> ReadOutcome {
        stream.wait(Instant::now() + Duration::from_secs(5)).expect("poll");
        stream.fill(1 << 16).expect("reads")
    }

    #[test]
    fn a_fragmented_frame_is_complete_only_at_its_last_byte() {
        let (mut near, mut far) = pair();
        for (index, byte) in encode_frame(&[b"to", b"gether"]).iter().enumerate() {
            assert_eq!(near.next_frame(100), Ok(None), "after {index} bytes");
            far.write_all(&[*byte]).expect("open");
            fill(&mut near);
        }
        assert_eq!(near.next_frame(100), Ok(Some(b"together".to_vec())));
        assert_eq!(near.unread_bytes(), 0);
        drop(far);
        assert_eq!(fill(&mut near), ReadOutcome::Closed);
    }

    #[test]
    fn a_long_frame_is_rejected_before_it_is_buffered() {
        let (mut near, mut far) = pair();
        far.write_all(&101_u32.to_le_bytes()).expect("open");
        fill(&mut near);
        assert_eq!((near.next_frame(100), near.next_frame(101)), (Err(FrameTooLong), Ok(None)));
        assert!(read_frame(&mut &101_u32.to_le_bytes()[..], 100).is_err());
    }

    #[test]
    fn frames_that_the_kernel_does_not_accept_stay_queued() {
        let (mut near, mut far) = pair();
        let large = encode_frame(&[&vec![7; 16 << 20]]);
        near.queue(Arc::clone(&large));
        near.flush().expect("open");
        assert!(near.queued_bytes() > 0);
        let reader = std::thread::spawn(move || read_frame(&mut far, 16 << 20));
        while near.queued_bytes() > 0 {
            assert!(near.wait(Instant::now() + Duration::from_secs(5)).expect("poll"));
            near.flush().expect("open");
        }
        assert_eq!(reader.join().expect("returns").expect("the whole frame")[..], large[LENGTH_BYTES..]);
    }

    #[test]
    fn a_secure_stream_carries_frames_of_any_length_in_both_directions() {
        use super::super::secure_channel::{answer, begin};
        let (mut near, far) = pair();
        let mut far = FramedStream::new(far).expect("options that Linux has");
        let (handshake, first) = begin(&[3; 32]).expect("random numbers");
        let (channel, second) = answer(&[3; 32], &first).expect("the same key");
        far.secure(channel).expect("nothing was received");
        let (short, long) = (encode_frame(&[b"short"]), encode_frame(&[&vec![9; 300_000]]));
        // The first record arrives before this end is secure.
        far.queue(Arc::clone(&short));
        far.flush().expect("open");
        fill(&mut near);
        near.secure(handshake.finish(&second).expect("the same key")).expect("authentic");
        assert_eq!(near.next_frame(100), Ok(Some(b"short".to_vec())));
        near.queue(Arc::clone(&long));
        near.queue(Arc::clone(&short));
        let began = Instant::now();
        let mut received = Vec::new();
        while received.len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(10));
            near.flush().expect("open");
            far.fill(1 << 16).expect("authentic");
            received.extend(far.next_frame(1 << 20).expect("short enough"));
        }
        assert_eq!((&received[0][..], &received[1][..]), (&long[LENGTH_BYTES..], &short[LENGTH_BYTES..]));
        assert_eq!((near.queued_bytes(), far.unread_bytes()), (0, 0));
    }

    #[test]
    fn an_idle_stream_keeps_little_memory() {
        let (mut near, mut far) = pair();
        let writer = std::thread::spawn(move || write_frame(&mut far, &vec![1; 1 << 20]).map(|()| far));
        while near.peek_frame(1 << 20).expect("short enough").is_none() {
            fill(&mut near);
        }
        near.consume_frame();
        assert!(near.inbox.capacity() <= IDLE_BUFFER_BYTES);
        drop(writer.join().expect("returns"));
    }
}
