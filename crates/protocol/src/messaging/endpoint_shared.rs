//! What the peers of an endpoint share: settings, matching queues, output queues, counters and packet buffers.

use std::collections::VecDeque;

use units::{Rank, Time};

use super::action::MessagingAction;
use super::arrival::{MessageArrival, MessageMatching};
use super::completion::MessageCompletion;
use super::matching::MatchQueues;
use super::settings::MessagingSettings;

/// Counts of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MessagingCounters {
    /// Packets handed to rails, retransmissions included.
    pub packets: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Bytes of fragments that were copied before the CTS.
    pub prepared_bytes: u64,
    /// Messages that shared a packet with others.
    pub coalesced: u64,
    /// Packets that arrived corrupt.
    pub corrupted: u64,
    /// Messages and fragments that arrived a second time.
    pub duplicates: u64,
    /// Packets from peers that are unknown or lost.
    pub unknown_peer: u64,
}

/// What the peers of an endpoint share.
#[derive(Debug)]
pub(super) struct EndpointShared {
    pub(super) settings: MessagingSettings,
    pub(super) mode: MessageMatching,
    pub(super) matching: MatchQueues,
    /// With [`MessageMatching::ByUser`]: messages that the user has not seen.
    pub(super) arrivals: VecDeque<MessageArrival>,
    pub(super) completions: VecDeque<MessageCompletion>,
    pub(super) actions: VecDeque<MessagingAction>,
    pub(super) counters: MessagingCounters,
    /// The time of the last call with a time.
    pub(super) now: Time,
    /// Ranks with fragments to send.
    pub(super) pumping: VecDeque<Rank>,
    pool: PacketBufferPool,
}

/// Free buffers: small ones, and those of fragments.
#[derive(Debug, Default)]
struct PacketBufferPool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

const SMALL_BUFFER_BYTES: usize = 8 << 10;
const MAX_POOLED_BUFFERS: usize = 64;

impl EndpointShared {
    pub(super) fn new(settings: MessagingSettings) -> Self {
        Self {
            settings,
            mode: MessageMatching::default(),
            matching: MatchQueues::default(),
            arrivals: VecDeque::new(),
            completions: VecDeque::new(),
            actions: VecDeque::new(),
            counters: MessagingCounters::default(),
            now: Time::ZERO,
            pumping: VecDeque::new(),
            pool: PacketBufferPool::default(),
        }
    }

    /// A buffer of this length; its contents are undefined.
    pub(super) fn buffer(&mut self, length: usize) -> Vec<u8> {
        let pool = if length <= SMALL_BUFFER_BYTES { &mut self.pool.small } else { &mut self.pool.large };
        // `resize` zeroes what a buffer grows by, for nothing: prefer one that is long enough.
        let fits = |buffer: &Vec<u8>| buffer.len() >= length;
        let found = if length <= SMALL_BUFFER_BYTES { None } else { pool.iter().rposition(fits) };
        let mut buffer = match found {
            Some(index) => pool.swap_remove(index),
            None => pool.pop().unwrap_or_default(),
        };
        buffer.resize(length, 0);
        buffer
    }

    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        let pool = if buffer.capacity() <= SMALL_BUFFER_BYTES { &mut self.pool.small } else { &mut self.pool.large };
        if buffer.capacity() > 0 && pool.len() < MAX_POOLED_BUFFERS {
            pool.push(buffer);
        }
    }
}
