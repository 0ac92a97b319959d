//! Tagged messages between the ranks of a communicator, with every byte checksummed from the sender's memory to the receiver's.
//!
//! In: sends and receives, which return at once. Out: completions, which return the buffers. Ranks of one host exchange messages in
//! shared memory, others over UDP. There is no progress thread: messages move only inside calls of this endpoint
//! ([`TaggedEndpoint::wait_receive`], [`TaggedEndpoint::progress`]). docs/messaging.md states the guarantees.

mod connect;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use engine::messaging::{MessageTransport, Messenger};
pub use protocol::messaging::{
    MessageCompletion, MessageFailure, MessagePostError, MessageSelector, ProbedMessage, ReceiveId, RejectedPost,
    SendId,
};
pub use units::Rank;

/// How long one turn of a blocking wait sleeps at most.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// Sends and receives tagged messages for one rank ([`crate::Communicator::open_tagged_endpoint`]).
///
/// ```
/// use std::time::Duration;
///
/// use pleach::tagged_endpoint::{MessageSelector, Rank};
///
/// let world = pleach::join()?;
/// let mut endpoint = world.open_tagged_endpoint()?;
/// const GREETING: u64 = 7;
/// if world.rank() > 0 {
///     endpoint.send(0, GREETING, b"hello".to_vec()).map_err(|rejected| rejected.error)?;
/// } else {
///     for source in 1..world.size() {
///         let selector = MessageSelector::exact(Rank(source), GREETING);
///         let receive = endpoint.receive(selector, vec![0; 64]).map_err(|rejected| rejected.error)?;
///         let (message, ..) = endpoint.wait_receive(receive)?;
///         assert_eq!(message, b"hello");
///     }
/// }
/// assert!(endpoint.drain(Duration::from_secs(10))?, "every message was received");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaggedEndpoint {
    messenger: Messenger<Box<dyn MessageTransport + Send>>,
    /// Completions that arrived while another transfer was waited for.
    completed: BTreeMap<TransferId, MessageCompletion>,
}

/// A send or a receive that was posted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TransferId {
    Send(SendId),
    Receive(ReceiveId),
}

impl TaggedEndpoint {
    /// Sends a message; its buffer comes back with [`MessageCompletion::Sent`].
    ///
    /// # Errors
    /// If the message cannot be sent; the error returns the buffer.
    pub fn send(&mut self, to: u32, tag: u64, message: Vec<u8>) -> Result<SendId, RejectedPost> {
        self.messenger.send(Rank(to), tag, message)
    }

    /// Posts a receive for a message that is at most as long as the buffer.
    ///
    /// # Errors
    /// If no such message can arrive; the error returns the buffer.
    pub fn receive(&mut self, selector: MessageSelector, buffer: Vec<u8>) -> Result<ReceiveId, RejectedPost> {
        self.messenger.receive(selector, buffer)
    }

    /// The first message that has arrived and that such a receive would match.
    pub fn probe(&self, selector: &MessageSelector) -> Option<ProbedMessage> {
        self.messenger.probe(selector)
    }

    /// Cancels a send of which nothing has been sent; returns its buffer.
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        self.messenger.cancel_send(id)
    }

    /// Cancels a receive that no message has matched; returns its buffer.
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.messenger.cancel_receive(id)
    }

    /// Makes progress; without a completion to return, blocks for at most `timeout`.
    ///
    /// # Errors
    /// If waiting on the sockets fails.
    pub fn progress(&mut self, timeout: Duration) -> io::Result<()> {
        self.messenger.turn(timeout)
    }

    /// The next completion, if there is one.
    pub fn next_completion(&mut self) -> Option<MessageCompletion> {
        self.completed.pop_first().map(|(_, completion)| completion).or_else(|| self.messenger.next_completion())
    }

    /// Blocks until a receive is complete; the message, its source and its tag.
    ///
    /// # Errors
    /// If the message cannot be received.
    pub fn wait_receive(&mut self, id: ReceiveId) -> Result<(Vec<u8>, Rank, u64), TaggedEndpointError> {
        match self.wait(TransferId::Receive(id))? {
            MessageCompletion::Received { source, tag, length, mut buffer, .. } => {
                buffer.truncate(length);
                Ok((buffer, source, tag))
            }
            MessageCompletion::ReceiveFailed { failure, .. } | MessageCompletion::SendFailed { failure, .. } => {
                Err(TaggedEndpointError::Failed(failure))
            }
            MessageCompletion::Sent { .. } => unreachable!("a receive was waited for"),
        }
    }

    /// Blocks until a send is complete; its buffer.
    ///
    /// # Errors
    /// If the message cannot be delivered.
    pub fn wait_send(&mut self, id: SendId) -> Result<Vec<u8>, TaggedEndpointError> {
        match self.wait(TransferId::Send(id))? {
            MessageCompletion::Sent { buffer, .. } => Ok(buffer),
            MessageCompletion::ReceiveFailed { failure, .. } | MessageCompletion::SendFailed { failure, .. } => {
                Err(TaggedEndpointError::Failed(failure))
            }
            MessageCompletion::Received { .. } => unreachable!("a send was waited for"),
        }
    }

    fn wait(&mut self, id: TransferId) -> Result<MessageCompletion, TaggedEndpointError> {
        if let Some(completion) = self.completed.remove(&id) {
            return Ok(completion);
        }
        loop {
            while let Some(completion) = self.messenger.next_completion() {
                let completed = transfer_of(&completion);
                if completed == id {
                    return Ok(completion);
                }
                self.completed.insert(completed, completion);
            }
            self.messenger.turn(WAIT_SLICE).map_err(TaggedEndpointError::Io)?;
        }
    }

    /// Blocks until every message sent has been received, before this rank ends. False if that takes longer than `timeout`.
    ///
    /// # Errors
    /// If waiting on the sockets fails.
    pub fn drain(&mut self, timeout: Duration) -> io::Result<bool> {
        self.messenger.drain(timeout)
    }
}

fn transfer_of(completion: &MessageCompletion) -> TransferId {
    match completion {
        MessageCompletion::Sent { id, .. } | MessageCompletion::SendFailed { id, .. } => TransferId::Send(*id),
        MessageCompletion::Received { id, .. } | MessageCompletion::ReceiveFailed { id, .. } => {
            TransferId::Receive(*id)
        }
    }
}

/// Why a message was not delivered.
pub enum TaggedEndpointError {
    /// The transfer failed.
    Failed(MessageFailure),
    /// Waiting on the sockets failed.
    Io(io::Error),
}

impl fmt::Display for TaggedEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Io(error) => write!(f, "cannot wait for messages: {error}"),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for TaggedEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TaggedEndpointError {}
