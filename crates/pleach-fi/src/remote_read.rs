//! Reads of a peer's registered memory, over messages (P-128): a request names key, offset and length; the answer is a long message from
//! that memory.
//!
//! The provider does not offer FI_RMA, so that MPIs send one-sided operations as messages. Intel MPI does that too, but reads what is
//! longer than 16 KiB from the sender's memory all the same.

use std::sync::Arc;

use protocol::messaging::{MessageArrival, MessagePostError};
use units::Rank;

use crate::abi::{FI_READ, FI_RMA};
use crate::endpoint_state::{EAGAIN, EHOSTUNREACH, EINVAL, EIO, EndpointState, ErrorNumbers};
use crate::envelope::{READ_DATA, READ_REFUSED, READ_REQUEST, REPLY_TOKEN};
use crate::match_lists::MessageSource;
use crate::message_port::{PeerIndex, PortSend, PortSendBody};
use crate::queues::{CompletionEntry, ErrorEntry, Queues};
use crate::user_memory::MemoryLoan;

/// Reads without an answer, and answers that wait for space, beyond which no more are taken.
const MAX_READS: usize = 1 << 16;
const REQUEST_BYTES: usize = 32;

/// A read, as the call describes it.
#[derive(Debug)]
pub(crate) struct RemoteRead {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
    pub(crate) context: usize,
    pub(crate) wants_completion: bool,
    pub(crate) from: MessageSource,
    pub(crate) key: u64,
    pub(crate) offset: u64,
}

// SAFETY: the memory is plain bytes; the application does not use it while it is lent, whichever thread makes progress.
unsafe impl Send for RemoteRead {}

impl EndpointState {
    /// Starts a read.
    ///
    /// # Safety
    /// The memory is valid until the read completes.
    pub(crate) unsafe fn read_remote(&mut self, queues: &mut Queues, read: RemoteRead) -> isize {
        if self.reads.len() >= MAX_READS || queues.is_full(self.send_targets.queue) {
            return -(EAGAIN as isize);
        }
        let peer = match read.from {
            MessageSource::Peer(peer) => peer,
            MessageSource::Own => {
                let found = queues.regions.get(&read.key);
                let Some(from) = found.and_then(|memory| memory.readable(read.offset, read.length as u64)) else {
                    return -(EINVAL as isize);
                };
                // SAFETY: the one was registered, the other is the caller's; they may overlap.
                unsafe { std::ptr::copy(from, read.start, read.length) };
                self.finish_read(queues, &read, None);
                return 0;
            }
        };
        let number = self.next_token();
        let words = [number, read.key, read.offset, read.length as u64];
        let body = PortSendBody::Copied(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        match self.port.send(peer, PortSend { token: REPLY_TOKEN | number, tag: READ_REQUEST, body }) {
            Ok(()) => {
                self.reads.insert(number, read);
                0
            }
            Err(MessagePostError::Full) => -(EAGAIN as isize),
            Err(_) => -(EHOSTUNREACH as isize),
        }
    }

    /// Handles a message that belongs to a read; returns any other.
    pub(crate) fn handle_read_message(
        &mut self,
        queues: &mut Queues,
        arrival: MessageArrival,
    ) -> Option<MessageArrival> {
        match arrival.tag() {
            READ_REQUEST => self.answer_read(queues, arrival),
            READ_DATA => self.receive_read(queues, arrival),
            READ_REFUSED => {
                let number = arrival.eager_bytes().and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
                let Rank(peer) = arrival.source();
                self.port.discard(arrival);
                if let Some(read) = number.and_then(|number| self.take_read(number, peer)) {
                    let detail = queues.note_loss("the peer has not registered the memory that was to be read");
                    self.finish_read(queues, &read, Some((EIO, detail)));
                }
            }
            _ => return Some(arrival),
        }
        None
    }

    fn answer_read(&mut self, queues: &Queues, arrival: MessageArrival) {
        let Rank(peer) = arrival.source();
        let words = arrival.eager_bytes().and_then(|bytes| {
            let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
            let (words, _) = bytes.as_chunks::<8>();
            Some([0, 1, 2, 3].map(|index| u64::from_le_bytes(words[index])))
        });
        self.port.discard(arrival);
        let Some([number, key, offset, length]) = words else { return };
        let memory = queues.regions.get(&key).and_then(|memory| memory.readable(offset, length));
        let (tag, body) = match memory {
            Some(start) => {
                // SAFETY: the application registered it, and keeps it until its peers have read it.
                let loan = Arc::new(unsafe { MemoryLoan::new(start, length as usize) });
                (READ_DATA, PortSendBody::Lent { note: u128::from(number), loan })
            }
            None => (READ_REFUSED, PortSendBody::Copied(number.to_le_bytes().to_vec())),
        };
        // Its queue is as long as the peer's list of reads: only a peer that exceeds it, or is lost, gets no answer.
        let token = REPLY_TOKEN | self.next_token();
        let _ = self.port.send(peer, PortSend { token, tag, body });
    }

    fn receive_read(&mut self, queues: &mut Queues, arrival: MessageArrival) {
        let Rank(peer) = arrival.source();
        let read = arrival.note().and_then(|number| self.take_read(number as u64, peer));
        let Some(read) = read.filter(|read| read.length as u64 == arrival.length()) else {
            return self.port.discard(arrival);
        };
        // SAFETY: the memory belongs to the read, which completes only after the loan has ended.
        let loan = Box::new(unsafe { MemoryLoan::new(read.start, read.length) });
        let token = self.next_token();
        match self.port.accept_transfer(arrival, loan, token) {
            Ok(()) => {
                self.arriving_reads.insert(token, read);
            }
            Err(_) => self.finish_read(queues, &read, Some((EHOSTUNREACH, 0))),
        }
    }

    fn take_read(&mut self, number: u64, peer: PeerIndex) -> Option<RemoteRead> {
        let is_its = self.reads.get(&number).is_some_and(|read| read.from == MessageSource::Peer(peer));
        if is_its { self.reads.remove(&number) } else { None }
    }

    /// Reports a read, with the failure if there is one.
    pub(crate) fn finish_read(&mut self, queues: &mut Queues, read: &RemoteRead, failure: Option<ErrorNumbers>) {
        let flags = FI_RMA | FI_READ;
        let entry =
            CompletionEntry { context: read.context, flags, length: 0, buffer: 0, data: 0, tag: 0, source: None };
        let (queue, counter) = (self.send_targets.queue, self.send_targets.counter);
        match failure {
            None => queues.complete(queue, counter, read.wants_completion.then_some(entry)),
            Some((error, detail)) => queues.fail(queue, counter, ErrorEntry { entry, excess: 0, error, detail }),
        }
    }

    /// A peer is gone: its answers never come.
    pub(crate) fn lose_reads(&mut self, queues: &mut Queues, peer: PeerIndex, detail: i32) {
        let numbers: Vec<u64> =
            self.reads.iter().filter(|(_, read)| read.from == MessageSource::Peer(peer)).map(|(n, _)| *n).collect();
        for number in numbers {
            if let Some(read) = self.reads.remove(&number) {
                self.finish_read(queues, &read, Some((EHOSTUNREACH, detail)));
            }
        }
    }
}
