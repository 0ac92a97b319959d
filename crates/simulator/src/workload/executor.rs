//! Runs a workload: starts operations when what they require has happened, and matches messages.
//!
//! In: the time, timers, messages that were sent or received. Out: messages to send and timers to set ([`MessageRequest`]). It
//! knows neither hosts nor links.

use std::collections::{BTreeMap, VecDeque};

use units::{SimSpan, SimTime};

use super::{Workload, WorkloadAction, WorkloadOperation};
use crate::slab::Slab;

/// Operations that are listed if a workload cannot go on.
const MAX_LISTED: usize = 8;

/// What the engine must do for the executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageRequest {
    /// Send a message between two ranks.
    Send { number: u32, from: u32, to: u32, bytes: u64 },
    /// A message of a rank to itself.
    Local { number: u32 },
    /// Call back at this time.
    Timer { number: u32, at: SimTime },
}

/// When a rank has completed its last operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankFinish {
    /// The time.
    pub at: SimTime,
    /// Of it, the time spent in computations.
    pub computing: SimSpan,
}

/// An operation that has not completed although nothing more can happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StalledOperation {
    /// The rank.
    pub rank: u32,
    /// The line.
    pub line: u32,
    /// What it waits for.
    pub waits_for: String,
}

/// What became of a workload.
#[derive(Clone, Default, Debug)]
pub struct WorkloadSummary {
    /// Operations of all ranks.
    pub operations: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// By rank.
    pub ranks: Vec<RankFinish>,
    /// The first operations that wait in vain.
    pub stalled: Vec<StalledOperation>,
}

/// Who waits for a message, or for its being sent.
type MessageKey = (u32, u32, u64);

struct Message {
    key: MessageKey,
    /// Its number among the messages with the same key, in the order of their sends.
    sequence: u64,
    /// The operation whose send or step this is.
    owner: u32,
    is_sent: bool,
    is_received: bool,
}

/// A message that was sent and that no receive has taken.
#[derive(Clone, Copy)]
struct UnmatchedMessage {
    bytes: u64,
    has_arrived: bool,
}

/// The messages of one key and those who wait for them. Messages match in the order of their sends: a short one may arrive before a
/// long one that was sent earlier, and then waits for it.
#[derive(Default)]
struct MatchQueue {
    /// The sequence number of the first message in `messages`.
    first: u64,
    messages: VecDeque<UnmatchedMessage>,
    /// Operations that wait.
    posted: VecDeque<u32>,
}

impl MatchQueue {
    /// Numbers a message that is sent now.
    fn add(&mut self, bytes: u64) -> u64 {
        self.messages.push_back(UnmatchedMessage { bytes, has_arrived: false });
        self.first + self.messages.len() as u64 - 1
    }

    fn note_arrival(&mut self, sequence: u64) {
        let index = sequence.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(message) = index.and_then(|index| self.messages.get_mut(index)) {
            message.has_arrived = true;
        }
    }

    /// The first operation that waits and the bytes of the first message, if both are there.
    fn take(&mut self) -> Option<(u32, u64)> {
        let bytes = self.messages.front().filter(|message| message.has_arrived)?.bytes;
        let waiting = self.posted.pop_front()?;
        self.messages.pop_front();
        self.first += 1;
        Some((waiting, bytes))
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.posted.is_empty()
    }
}

/// A member's progress in an operation of a group.
#[derive(Clone, Copy)]
struct GroupProgress {
    step: u32,
    instance: u32,
    position: u32,
    /// The step's message was sent, or there is none; the same for the receive.
    is_sent: bool,
    is_received: bool,
}

pub(crate) struct WorkloadExecutor {
    workload: Workload,
    /// The number of each rank's first operation.
    first: Vec<u32>,
    rank_of: Vec<u32>,
    /// Conditions that are not yet met, by operation.
    waiting: Vec<u32>,
    dependents: Vec<Vec<u32>>,
    start_dependents: Vec<Vec<u32>>,
    is_complete: Vec<bool>,
    is_started: Vec<bool>,
    messages: Slab<Message>,
    matches: BTreeMap<MessageKey, MatchQueue>,
    progress: BTreeMap<u32, GroupProgress>,
    /// The number of each operation among those of its rank on its group, in the order of the file; 0 for others.
    instances: Vec<u32>,
    /// When each processor of a rank is free.
    processors: BTreeMap<(u32, u32), SimTime>,
    runnable: VecDeque<u32>,
    now: SimTime,
    has_failed: bool,
    /// Receives whose message is longer than they allow, with its bytes.
    too_long: BTreeMap<u32, u64>,
    /// Operations, and steps of group operations: how many there are and how many are over.
    steps: u64,
    steps_over: u64,
    summary: WorkloadSummary,
}

impl WorkloadExecutor {
    pub(crate) fn new(workload: Workload) -> Self {
        let total = workload.operations();
        let (mut first, mut rank_of) = (Vec::new(), Vec::with_capacity(total));
        let (mut waiting, mut instances) = (Vec::with_capacity(total), Vec::with_capacity(total));
        let (mut dependents, mut start_dependents) = (vec![Vec::new(); total], vec![Vec::new(); total]);
        let mut steps = total as u64;
        for (rank, operations) in workload.ranks.iter().enumerate() {
            let base = rank_of.len() as u32;
            first.push(base);
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for (at, operation) in operations.iter().enumerate() {
                rank_of.push(rank as u32);
                instances.push(match operation.action {
                    WorkloadAction::Group { group, operation, .. } => {
                        steps += u64::from(operation.steps(workload.groups[group as usize].len() as u32));
                        let count = counts.entry(group).or_insert(0);
                        *count += 1;
                        *count - 1
                    }
                    _ => 0,
                });
                waiting.push((operation.after.len() + operation.after_start.len()) as u32);
                for on in &operation.after {
                    dependents[(base + on) as usize].push(base + at as u32);
                }
                for on in &operation.after_start {
                    start_dependents[(base + on) as usize].push(base + at as u32);
                }
            }
        }
        let ranks = vec![RankFinish { at: SimTime::ZERO, computing: SimSpan::ZERO }; workload.ranks.len()];
        let summary = WorkloadSummary { operations: total as u64, ranks, ..WorkloadSummary::default() };
        Self {
            workload,
            first,
            rank_of,
            waiting,
            dependents,
            start_dependents,
            is_complete: vec![false; total],
            is_started: vec![false; total],
            messages: Slab::default(),
            matches: BTreeMap::new(),
            progress: BTreeMap::new(),
            instances,
            processors: BTreeMap::new(),
            runnable: VecDeque::new(),
            now: SimTime::ZERO,
            has_failed: false,
            too_long: BTreeMap::new(),
            steps,
            steps_over: 0,
            summary,
        }
    }

    /// Starts every operation that waits for nothing.
    pub(crate) fn start(&mut self, requests: &mut Vec<MessageRequest>) {
        self.runnable.extend((0..self.waiting.len() as u32).filter(|at| self.waiting[*at as usize] == 0));
        self.run(requests);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.has_failed || self.summary.completed == self.summary.operations
    }

    /// The share of its operations and their steps that are over, from 0 to 1.
    pub(crate) fn share_over(&self) -> f64 {
        self.steps_over as f64 / self.steps.max(1) as f64
    }

    /// When the last rank completed its last operation.
    pub(crate) fn end_time(&self) -> SimTime {
        self.summary.ranks.iter().map(|rank| rank.at).max().unwrap_or(SimTime::ZERO)
    }

    /// The result, with the operations that wait in vain.
    pub(crate) fn summary(&self) -> WorkloadSummary {
        let waits = |at: &u32| !self.is_complete[*at as usize] && self.waiting[*at as usize] == 0;
        let others = (0..self.is_complete.len() as u32).filter(|at| waits(at) && !self.too_long.contains_key(at));
        // Receives that are too short come first: they are the cause.
        let stalled = self.too_long.keys().copied().chain(others).take(MAX_LISTED);
        WorkloadSummary { stalled: stalled.map(|at| self.stalled(at)).collect(), ..self.summary.clone() }
    }

    fn operation(&self, at: u32) -> &WorkloadOperation {
        let rank = self.rank_of[at as usize] as usize;
        &self.workload.ranks[rank][(at - self.first[rank]) as usize]
    }

    fn stalled(&self, at: u32) -> StalledOperation {
        let operation = self.operation(at);
        let waits_for = match operation.action {
            WorkloadAction::Compute { .. } => "its computation".to_owned(),
            WorkloadAction::Send { to, tag, .. } => format!("its message to rank {to} with tag {tag}"),
            WorkloadAction::Receive { from, tag, bytes } => match (self.too_long.get(&at), bytes) {
                (Some(found), Some(room)) => format!(
                    "a message of at most {room} bytes from rank {from} with tag {tag}, and the next one has {found} bytes"
                ),
                _ => format!("a message from rank {from} with tag {tag}"),
            },
            WorkloadAction::Group { operation, group, .. } => {
                format!("the other members of group {group} in {operation:?}")
            }
        };
        StalledOperation { rank: self.rank_of[at as usize], line: operation.line, waits_for }
    }

    pub(crate) fn set_time(&mut self, now: SimTime) {
        self.now = now;
    }

    /// A computation has ended.
    pub(crate) fn handle_timer(&mut self, at: u32, requests: &mut Vec<MessageRequest>) {
        self.complete(at);
        self.run(requests);
    }

    /// A message has left its sender.
    pub(crate) fn handle_sent(&mut self, number: u32, requests: &mut Vec<MessageRequest>) {
        let Some(message) = self.messages.get_mut(number) else { return };
        message.is_sent = true;
        let (owner, is_over) = (message.owner, message.is_received);
        if is_over {
            self.messages.remove(number);
        }
        match self.progress.get_mut(&owner) {
            Some(progress) => {
                progress.is_sent = true;
                self.advance_group(owner, requests);
            }
            None => self.complete(owner),
        }
        self.run(requests);
    }

    /// A message has arrived.
    pub(crate) fn handle_received(&mut self, number: u32, requests: &mut Vec<MessageRequest>) {
        let Some(message) = self.messages.get_mut(number) else { return };
        message.is_received = true;
        let (key, sequence, is_over) = (message.key, message.sequence, message.is_sent);
        if is_over {
            self.messages.remove(number);
        }
        self.matches.entry(key).or_default().note_arrival(sequence);
        self.match_messages(key, requests);
        self.run(requests);
    }

    /// Gives the messages of a key that have arrived in order to those who wait for them.
    fn match_messages(&mut self, key: MessageKey, requests: &mut Vec<MessageRequest>) {
        while let Some((waiting, bytes)) = self.matches.get_mut(&key).and_then(MatchQueue::take) {
            self.receive(waiting, bytes, requests);
        }
        // A key without messages under way may number them from zero again.
        if self.matches.get(&key).is_some_and(MatchQueue::is_empty) {
            self.matches.remove(&key);
        }
    }

    /// A message could not be delivered: the workload cannot complete.
    pub(crate) fn handle_failed(&mut self, _: u32) {
        self.has_failed = true;
    }

    /// An operation has the message that it waited for.
    fn receive(&mut self, at: u32, bytes: u64, requests: &mut Vec<MessageRequest>) {
        if let WorkloadAction::Receive { bytes: Some(room), .. } = self.operation(at).action
            && bytes > room
        {
            self.too_long.insert(at, bytes);
            self.has_failed = true;
            return;
        }
        match self.progress.get_mut(&at) {
            Some(progress) => {
                progress.is_received = true;
                self.advance_group(at, requests);
            }
            None => self.complete(at),
        }
    }

    fn complete(&mut self, at: u32) {
        if std::mem::replace(&mut self.is_complete[at as usize], true) {
            return;
        }
        self.summary.completed += 1;
        self.steps_over += 1;
        let rank = self.rank_of[at as usize];
        self.summary.ranks[rank as usize].at = self.now;
        for dependent in std::mem::take(&mut self.dependents[at as usize]) {
            self.release(dependent);
        }
    }

    fn release(&mut self, at: u32) {
        self.waiting[at as usize] -= 1;
        if self.waiting[at as usize] == 0 {
            self.runnable.push_back(at);
        }
    }

    /// Starts everything that can start.
    fn run(&mut self, requests: &mut Vec<MessageRequest>) {
        while let Some(at) = self.runnable.pop_front() {
            if std::mem::replace(&mut self.is_started[at as usize], true) {
                continue;
            }
            for dependent in std::mem::take(&mut self.start_dependents[at as usize]) {
                self.release(dependent);
            }
            self.start_operation(at, requests);
        }
    }

    fn start_operation(&mut self, at: u32, requests: &mut Vec<MessageRequest>) {
        let rank = self.rank_of[at as usize];
        let action = self.operation(at).action;
        match action {
            WorkloadAction::Compute { time, processor } => {
                let free = self.processors.entry((rank, processor)).or_insert(SimTime::ZERO);
                *free = self.now.max(*free) + time;
                let finish = &mut self.summary.ranks[rank as usize];
                finish.computing = finish.computing + time;
                requests.push(MessageRequest::Timer { number: at, at: *free });
            }
            WorkloadAction::Send { to, bytes, tag } => {
                self.send(at, (to, rank, u64::from(tag)), bytes, requests);
            }
            WorkloadAction::Receive { from, tag, .. } => self.post(at, (rank, from, u64::from(tag)), requests),
            WorkloadAction::Group { operation, group, bytes: _ } => {
                let members = &self.workload.groups[group as usize];
                let position = members.iter().position(|member| *member == rank);
                let instance = self.instances[at as usize];
                match position {
                    Some(position) if operation.steps(members.len() as u32) > 0 => {
                        let position = position as u32;
                        let progress =
                            GroupProgress { step: 0, instance, position, is_sent: false, is_received: false };
                        self.progress.insert(at, progress);
                        self.begin_step(at, requests);
                    }
                    _ => self.complete(at),
                }
            }
        }
    }

    fn send(&mut self, owner: u32, key: MessageKey, bytes: u64, requests: &mut Vec<MessageRequest>) {
        let (to, from, _) = key;
        let sequence = self.matches.entry(key).or_default().add(bytes);
        let number = self.messages.insert(Message { key, sequence, owner, is_sent: false, is_received: false });
        self.summary.messages += 1;
        self.summary.bytes += bytes;
        requests.push(if to == from {
            MessageRequest::Local { number }
        } else {
            MessageRequest::Send { number, from, to, bytes }
        });
    }

    /// Waits for a message, or takes one that is there.
    fn post(&mut self, at: u32, key: MessageKey, requests: &mut Vec<MessageRequest>) {
        self.matches.entry(key).or_default().posted.push_back(at);
        self.match_messages(key, requests);
    }

    /// Sends and awaits the messages of the present step.
    fn begin_step(&mut self, at: u32, requests: &mut Vec<MessageRequest>) {
        let Some(progress) = self.progress.get(&at).copied() else { return };
        let rank = self.rank_of[at as usize];
        let action = self.operation(at).action;
        let WorkloadAction::Group { operation, group, bytes } = action else { return };
        let members = &self.workload.groups[group as usize];
        let step = operation.step(members.len() as u32, progress.position, progress.step, bytes);
        // Beyond every tag of a user; group, instance and step in fields of their own.
        let tag = 1 << 63
            | u64::from(group) << 43
            | u64::from(progress.instance & 0xf_ffff) << 23
            | u64::from(progress.step & 0x7f_ffff);
        let send = step.send.map(|(position, bytes)| ((members[position as usize], rank, tag), bytes));
        let receive = step.receive.map(|position| (rank, members[position as usize], tag));
        if let Some(progress) = self.progress.get_mut(&at) {
            (progress.is_sent, progress.is_received) = (send.is_none(), receive.is_none());
        }
        if let Some((key, bytes)) = send {
            self.send(at, key, bytes, requests);
        }
        match receive {
            Some(key) => self.post(at, key, requests),
            None => self.advance_group(at, requests),
        }
    }

    /// Goes to the next step of a group operation, if the present one is over.
    fn advance_group(&mut self, at: u32, requests: &mut Vec<MessageRequest>) {
        let Some(progress) = self.progress.get_mut(&at).filter(|progress| progress.is_sent && progress.is_received)
        else {
            return;
        };
        progress.step += 1;
        self.steps_over += 1;
        let step = progress.step;
        let action = self.operation(at).action;
        let WorkloadAction::Group { operation, group, .. } = action else { return };
        if step < operation.steps(self.workload.groups[group as usize].len() as u32) {
            self.begin_step(at, requests);
        } else {
            self.progress.remove(&at);
            self.complete(at);
        }
    }
}
