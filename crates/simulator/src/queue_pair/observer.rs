//! What an observer of a run sees: every message that is sent, delivered or lost with its connection.

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The stream that an end sends; ends are numbered, two for each connection.
    pub fn from(end: usize) -> Self {
        Self(end as u32)
    }

    /// The stream that an end receives.
    pub fn to(end: usize) -> Self {
        Self(end as u32 ^ 1)
    }

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Receives the messages of a run.
pub trait QueuePairObserver {
    /// An application has posted a message.
    fn sent(&mut self, stream: StreamId, message: &[u8]);
    /// A message was delivered.
    fn delivered(&mut self, stream: StreamId, message: &[u8]);
    /// A connection of the stream has failed.
    fn failed(&mut self, stream: StreamId, cause: &str);
}
