//! One end of a reliable connection in the paper's adapter: its path state, and the messages that wait, travel or were lost.

use std::collections::{BTreeMap, VecDeque};

use super::packet::{MpiPacket, NumberedPacket};

/// Ends `2n` and `2n + 1` are one connection.
pub(super) type EndNumber = usize;

/// The path migration states of PM-1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdapterPathState {
    Migrated,
    Rearm,
    Armed,
}

/// What the firmware does for one end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirmwareJob {
    /// REARM: load the alternate path.
    Load,
    /// Change over to the alternate path.
    Switch,
}

/// A message that is not acknowledged yet.
struct Unacknowledged {
    message: NumberedPacket,
    is_lost: bool,
}

pub(super) struct ConnectionEnd {
    pub host: usize,
    pub state: AdapterPathState,
    pub port: usize,
    /// A transition was requested or is under way: nothing is sent.
    pub is_stopped: bool,
    pub is_in_firmware: bool,
    pub peer_loaded: bool,
    /// A timeout is running.
    pub gives_up: bool,
    /// Messages that arrived by the other path and wait for the firmware.
    pub held: VecDeque<NumberedPacket>,
    waiting: VecDeque<NumberedPacket>,
    unacknowledged: VecDeque<Unacknowledged>,
    next_sequence: u64,
    /// The next message to accept, and later ones that overtook it by the other path.
    expected: u64,
    early: BTreeMap<u64, MpiPacket>,
}

impl ConnectionEnd {
    pub(super) fn new(host: usize, state: AdapterPathState) -> Self {
        Self {
            host,
            state,
            port: 0,
            is_stopped: false,
            is_in_firmware: false,
            peer_loaded: false,
            gives_up: false,
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            next_sequence: 0,
            expected: 0,
            early: BTreeMap::new(),
        }
    }

    pub(super) fn post(&mut self, packet: MpiPacket) {
        self.waiting.push_back(NumberedPacket { sequence: self.next_sequence, packet });
        self.next_sequence += 1;
    }

    pub(super) fn next_to_send(&mut self) -> Option<NumberedPacket> {
        if self.is_stopped {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.unacknowledged.push_back(Unacknowledged { message, is_lost: false });
        Some(message)
    }

    /// Marks a message as lost; true if a timeout has to be started.
    pub(super) fn mark_lost(&mut self, sequence: u64) -> bool {
        for sent in self.unacknowledged.iter_mut().filter(|sent| sent.message.sequence == sequence) {
            sent.is_lost = true;
        }
        self.has_lost() && !std::mem::replace(&mut self.gives_up, true)
    }

    pub(super) fn has_lost(&self) -> bool {
        self.unacknowledged.iter().any(|sent| sent.is_lost)
    }

    /// The first lost message and all after it are sent again, before any other.
    pub(super) fn queue_lost_again(&mut self) {
        let first = self.unacknowledged.iter().position(|sent| sent.is_lost).unwrap_or(self.unacknowledged.len());
        let again = self.unacknowledged.split_off(first);
        for sent in again.into_iter().rev() {
            self.waiting.push_front(sent.message);
        }
    }

    /// Takes a message: what can be delivered in order now, each once.
    pub(super) fn accept(&mut self, message: NumberedPacket) -> Vec<MpiPacket> {
        if message.sequence >= self.expected {
            self.early.insert(message.sequence, message.packet);
        }
        let mut accepted = Vec::new();
        while let Some(packet) = self.early.remove(&self.expected) {
            self.expected += 1;
            accepted.push(packet);
        }
        accepted
    }

    /// The number of messages that were accepted: an acknowledgement names it.
    pub(super) fn accepted(&self) -> u64 {
        self.expected
    }

    /// The first so many messages are acknowledged: those that were not before.
    pub(super) fn acknowledge(&mut self, accepted: u64) -> VecDeque<NumberedPacket> {
        let count = self.unacknowledged.iter().take_while(|sent| sent.message.sequence < accepted).count();
        let rest = self.unacknowledged.split_off(count);
        std::mem::replace(&mut self.unacknowledged, rest).into_iter().map(|sent| sent.message).collect()
    }
}
