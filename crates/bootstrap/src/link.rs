//! A reliable link to another rank over one or more TCP connections, one for each path.
//!
//! Every message is sent on all connections and counted; the receiver takes the first copy. So a path may fail without a gap. A
//! connection that replaces a failed one starts with the first message that the other end lacks. The link has ended when no
//! connection is left. Memory is bounded: if more is queued than the kernel takes, the link is full. Where paths may be opened again,
//! messages are kept until they are acknowledged: what the kernels of both ends hold, and what is queued. Rule: P-93.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::framing::{FramedStream, ReadOutcome};
use super::membership::LinkEnd;
use super::rank_event::SEND_QUEUE_LIMIT_BYTES;
use super::rendezvous_message::{MalformedMessage, RendezvousMessageKind, encode_message, peek_message};

/// After so many messages or bytes the receiver acknowledges: well before the sender's log is full.
const MESSAGES_PER_ACKNOWLEDGEMENT: u64 = 32;
const BYTES_PER_ACKNOWLEDGEMENT: usize = SEND_QUEUE_LIMIT_BYTES / 8;
/// A connection with so much to send, beside one with less, has stopped moving.
const MAX_CONNECTION_BYTES: usize = 2 * SEND_QUEUE_LIMIT_BYTES;
/// The path of the rendezvous connection, which is not opened again.
pub(super) const NO_PATH: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct LinkConnection {
    pub(super) stream: FramedStream,
    /// Which path it takes; [`NO_PATH`] for the connection of the rendezvous.
    pub(super) path: usize,
    /// The number of the next message on this connection.
    next: u64,
    /// Set when nothing more arrives. What has arrived is still to be read.
    end: Option<LinkEnd>,
}

#[derive(Debug)]
pub(super) struct Link {
    connections: BTreeMap<u64, LinkConnection>,
    /// Messages that the other end may lack, and the number of the first one; nothing if no connection can be added.
    log: VecDeque<Arc<[u8]>>,
    first: u64,
    keeps_log: bool,
    /// Messages that were taken from this link, and how many of them the other end knows of.
    received: u64,
    acknowledged: u64,
    unacknowledged_bytes: usize,
    /// How the last connection ended.
    end: LinkEnd,
}

impl Link {
    /// A link without connections. `has_paths`: connections may be added later, because there are several paths.
    pub(super) fn new(has_paths: bool) -> Self {
        Self {
            connections: BTreeMap::new(),
            log: VecDeque::new(),
            first: 0,
            keeps_log: has_paths,
            received: 0,
            acknowledged: 0,
            unacknowledged_bytes: 0,
            end: LinkEnd::Closed,
        }
    }

    /// How many messages were received: what a new connection must tell the other end.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Adds a connection. `told` is how many messages this end said it had received, `lacks` what the other end said. False if the
    /// other end lacks messages that are not in the log: it said something impossible.
    pub(super) fn attach(&mut self, id: u64, path: usize, mut stream: FramedStream, told: u64, lacks: u64) -> bool {
        let Some(known) = lacks.checked_sub(self.first).map(|count| count as usize) else { return false };
        if known > self.log.len() || told > self.received {
            return false;
        }
        self.log.iter().skip(known).for_each(|frame| stream.queue(Arc::clone(frame)));
        self.connections.insert(id, LinkConnection { stream, path, next: told, end: None });
        true
    }

    pub(super) fn connection(&mut self, id: u64) -> Option<&mut LinkConnection> {
        self.connections.get_mut(&id)
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }

    /// True if a connection takes this path.
    pub(super) fn has_path(&self, path: usize) -> bool {
        self.connections.values().any(|connection| connection.path == path)
    }

    /// True if a message must wait.
    pub(super) fn is_full(&self) -> bool {
        self.least_queued() >= SEND_QUEUE_LIMIT_BYTES
    }

    /// What the connection that moves best has queued.
    fn least_queued(&self) -> usize {
        let live = self.connections.values().filter(|connection| connection.end.is_none());
        live.map(|connection| connection.stream.queued_bytes()).min().unwrap_or(0)
    }

    /// True if everything was written.
    pub(super) fn is_flushed(&self) -> bool {
        self.connections.values().any(|connection| connection.end.is_none() && connection.stream.queued_bytes() == 0)
    }

    /// Queues a message on all connections.
    pub(super) fn queue(&mut self, frame: &Arc<[u8]>) {
        if self.keeps_log {
            self.log.push_back(Arc::clone(frame));
        } else {
            self.first += 1;
        }
        let least = self.least_queued();
        for connection in self.connections.values_mut() {
            connection.stream.queue(Arc::clone(frame));
            if connection.stream.queued_bytes() > MAX_CONNECTION_BYTES && least < SEND_QUEUE_LIMIT_BYTES {
                connection.fail(LinkEnd::Silent);
            }
        }
    }

    /// Reads from a connection and handles what concerns the link itself.
    pub(super) fn fill(&mut self, id: u64, max_bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.stream.fill(max_bytes) {
            Ok(ReadOutcome::Received | ReadOutcome::WouldBlock) => {}
            Ok(ReadOutcome::Closed) => connection.fail(LinkEnd::Closed),
            Err(error) => connection.fail(end_of(&error)),
        }
    }

    /// Writes what the kernel accepts. After an error, what has arrived is still to be read.
    pub(super) fn flush(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Err(error) = connection.stream.flush() {
            // Bounded by the kernel's buffer: nothing arrives over a broken connection.
            while matches!(connection.stream.fill(usize::MAX), Ok(ReadOutcome::Received)) {}
            connection.fail(end_of(&error));
        }
    }

    /// The connection that has the next message, if one has arrived. Skips copies of messages that were taken.
    ///
    /// # Errors
    /// The other end sent something that is not a message.
    pub(super) fn next_ready(&mut self, max_bytes: usize) -> Result<Option<u64>, MalformedMessage> {
        for (id, connection) in &mut self.connections {
            loop {
                match peek_message(&connection.stream, max_bytes)? {
                    None => break,
                    Some((RendezvousMessageKind::Received, body)) => {
                        let count = u64::from_le_bytes(body.try_into().map_err(|_| MalformedMessage)?);
                        while self.first < count {
                            self.log.pop_front().ok_or(MalformedMessage)?;
                            self.first += 1;
                        }
                    }
                    Some(_) if connection.next == self.received => return Ok(Some(*id)),
                    Some(_) => connection.next += 1,
                }
                connection.stream.consume_frame();
            }
        }
        Ok(None)
    }

    /// The message that [`Self::next_ready`] found.
    pub(super) fn peek(&self, id: u64, max_bytes: usize) -> Option<(RendezvousMessageKind, &[u8])> {
        peek_message(&self.connections.get(&id)?.stream, max_bytes).ok().flatten()
    }

    /// Takes the message that [`Self::next_ready`] found; acknowledges from time to time.
    pub(super) fn consume(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let before = connection.stream.unread_bytes();
        connection.stream.consume_frame();
        connection.next += 1;
        self.received += 1;
        self.unacknowledged_bytes += before - connection.stream.unread_bytes();
        let is_due = self.received - self.acknowledged >= MESSAGES_PER_ACKNOWLEDGEMENT
            || self.unacknowledged_bytes >= BYTES_PER_ACKNOWLEDGEMENT;
        if self.keeps_log && is_due {
            (self.acknowledged, self.unacknowledged_bytes) = (self.received, 0);
            let frame = encode_message(RendezvousMessageKind::Received, &[&self.received.to_le_bytes()]);
            for connection in self.connections.values_mut().filter(|connection| connection.end.is_none()) {
                connection.stream.queue(Arc::clone(&frame));
            }
        }
    }

    /// Removes connections that have ended, once everything that arrived on them was taken; returns them. Call it after
    /// [`Self::next_ready`] returned none.
    pub(super) fn remove_ended(&mut self) -> Vec<(u64, LinkConnection)> {
        let ended: Vec<u64> =
            self.connections.iter().filter(|(_, found)| found.end.is_some()).map(|(id, _)| *id).collect();
        let mut removed = Vec::new();
        for id in ended {
            if let Some(connection) = self.connections.remove(&id) {
                self.end = connection.end.unwrap_or(self.end);
                removed.push((id, connection));
            }
        }
        removed
    }

    /// How the link ended, if no connection is left.
    pub(super) fn end(&self) -> Option<LinkEnd> {
        self.connections.is_empty().then_some(self.end)
    }

    /// Takes all connections out of the link.
    pub(super) fn into_connections(self) -> impl Iterator<Item = (u64, FramedStream)> {
        self.connections.into_iter().map(|(id, connection)| (id, connection.stream))
    }
}

impl LinkConnection {
    /// True if nothing more arrives.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn fail(&mut self, end: LinkEnd) {
        self.end.get_or_insert(end);
        self.stream.drop_outbox();
    }
}

/// What an error of a connection tells about the other end.
fn end_of(error: &io::Error) -> LinkEnd {
    match error.kind() {
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => LinkEnd::Closed,
        _ => LinkEnd::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::FramedStream;
    use super::super::rendezvous_message::MAX_READ_BYTES;
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    const MAX: usize = 1 << 20;

    fn pair() -> (FramedStream, FramedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (far, _) = listener.accept().expect("accepts");
        (FramedStream::new(near).expect("options"), FramedStream::new(far).expect("options"))
    }

    /// Two ends with this many connections.
    fn linked(connections: u64) -> (Link, Link) {
        let (mut one, mut other) = (Link::new(true), Link::new(true));
        for id in 0..connections {
            let (near, far) = pair();
            assert!(one.attach(id, id as usize, near, 0, 0) && other.attach(id, id as usize, far, 0, 0));
        }
        (one, other)
    }

    fn send(link: &mut Link, number: u32) {
        link.queue(&encode_message(RendezvousMessageKind::Deliver, &[&number.to_le_bytes()]));
        link.ids().into_iter().for_each(|id| link.flush(id));
    }

    /// Takes messages until there are this many.
    fn take(link: &mut Link, count: usize) -> Vec<u32> {
        let (mut taken, began) = (Vec::new(), Instant::now());
        while taken.len() < count {
            assert!(began.elapsed() < Duration::from_secs(10), "{taken:?}");
            link.ids().into_iter().for_each(|id| link.fill(id, MAX_READ_BYTES));
            while let Some(id) = link.next_ready(MAX).expect("well-formed") {
                let (_, body) = link.peek(id, MAX).expect("it is ready");
                taken.push(u32::from_le_bytes(body.try_into().expect("four bytes")));
                link.consume(id);
            }
            link.remove_ended();
            link.ids().into_iter().for_each(|id| link.flush(id));
        }
        taken
    }

    #[test]
    fn messages_arrive_once_and_in_order_over_several_connections() {
        let (mut one, mut other) = linked(3);
        (0..100).for_each(|number| send(&mut one, number));
        assert!(take(&mut other, 100).into_iter().eq(0..100));
        // Acknowledgements free the log.
        std::thread::sleep(Duration::from_millis(20));
        one.ids().into_iter().for_each(|id| one.fill(id, MAX_READ_BYTES));
        assert_eq!(one.next_ready(MAX), Ok(None));
        assert!(one.log.len() < 100, "{}", one.log.len());
    }

    #[test]
    fn without_other_paths_nothing_is_kept() {
        let (mut one, mut other) = (Link::new(false), Link::new(false));
        let (near, far) = pair();
        assert!(one.attach(0, 0, near, 0, 0) && other.attach(0, 0, far, 0, 0));
        (0..100).for_each(|number| send(&mut one, number));
        assert!(take(&mut other, 100).into_iter().eq(0..100));
        assert!(one.log.is_empty());
    }

    #[test]
    fn a_connection_that_breaks_in_the_middle_leaves_no_gap() {
        let (mut one, mut other) = linked(2);
        (0..10).for_each(|number| send(&mut one, number));
        drop(other.connections.remove(&0));
        (10..20).for_each(|number| send(&mut one, number));
        assert!(take(&mut other, 20).into_iter().eq(0..20));
        assert_eq!(other.end(), None);
        drop(one);
        other.fill(1, MAX_READ_BYTES);
        assert_eq!(other.next_ready(MAX), Ok(None));
        other.remove_ended();
        assert_eq!(other.end(), Some(LinkEnd::Closed));
    }

    #[test]
    fn a_new_connection_starts_with_what_the_other_end_lacks() {
        let (mut one, mut other) = linked(1);
        (0..5).for_each(|number| send(&mut one, number));
        assert_eq!(take(&mut other, 5), [0, 1, 2, 3, 4]);
        // The only connection of the sender breaks before the rest leaves; the receiver does not know yet.
        drop(one.connections.remove(&0));
        (5..8).for_each(|number| send(&mut one, number));
        let (near, far) = pair();
        let (told, lacks) = (one.received(), other.received());
        assert!(one.attach(7, 0, near, told, lacks) && other.attach(7, 0, far, lacks, told));
        one.flush(7);
        assert_eq!(take(&mut other, 3), [5, 6, 7]);
    }

    #[test]
    fn impossible_counts_are_rejected() {
        let (mut one, _other) = linked(1);
        (0..3).for_each(|number| send(&mut one, number));
        assert!(!one.attach(5, 0, pair().0, 0, 4), "it cannot have received four of three messages");
        assert!(!one.attach(5, 0, pair().0, 1, 0), "this end has received nothing");
        assert!(one.attach(5, 0, pair().0, 0, 2));
    }

    #[test]
    fn a_connection_that_does_not_move_is_given_up_for_one_that_does() {
        let (mut one, mut other) = linked(2);
        let frame = encode_message(RendezvousMessageKind::Deliver, &[&[7; 60_000]]);
        let mut sent = 0;
        while one.connections.contains_key(&0) && sent < 10_000 {
            one.queue(&frame);
            sent += 1;
            one.flush(0);
            one.flush(1);
            // Only the second connection is read.
            other.fill(1, MAX);
            while let Some(id) = other.next_ready(MAX).expect("well-formed") {
                other.consume(id);
            }
            other.flush(1);
            one.fill(1, MAX);
            assert_eq!(one.next_ready(MAX), Ok(None));
            one.remove_ended();
        }
        assert!(sent < 10_000 && one.end().is_none());
    }
}
