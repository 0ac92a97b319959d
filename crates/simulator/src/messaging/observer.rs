//! What an observer of a run sees.

use units::{Rank, SimTime};

/// Receives the messages of a run.
pub trait MessagingObserver {
    /// A rank has sent a message.
    fn sent(&mut self, from: Rank, to: Rank, tag: u64, message: &[u8]);
    /// A rank has received a message; `receive` is the number of the matching receive.
    fn received(&mut self, now: SimTime, at: Rank, receive: u64, source: Rank, tag: u64, message: &[u8]);
    /// A send or a receive of a rank has failed.
    fn failed(&mut self, at: Rank, why: &str);
}
