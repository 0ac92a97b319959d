//! Operations of a group among the hosts: schedules of messages between the leaders.
//!
//! In: operations, messages of rounds, in any order. Out: messages, and results. The messages of operations that begin among the hosts
//! are transfers; those of a tree that has failed use the connections of the mesh.

use protocol::Payload;
use protocol::collective::{
    CollectiveAlgorithm, CollectiveSchedule, ScheduleAction, ScheduleError, ScheduleExecutor, ScheduledCollective,
};
use units::{Epoch, OpId, Rank};
use wire::transfer::TransferName;

use super::leader_group::{GroupIo, HOST_STREAM, LeaderGroup, RunningSchedule};
use super::leader_message::{LeaderMessage, LeaderMessageKind};
use super::tree_operation::{LeaderNetworkError, OperationHandle};
use super::tree_stream::TreeState;

/// Messages for operations that have not begun here. Peers of the same job never send more.
const MAX_EARLY_MESSAGES: usize = 1 << 14;
/// Schedules that are kept for operations that are alike.
const MAX_CACHED_SCHEDULES: usize = 4;
/// Completed operations whose fingerprint is remembered.
const MAX_RECENT_OPERATIONS: usize = 64;

impl LeaderGroup {
    /// Starts an operation among the hosts.
    pub(super) fn start_among_hosts(
        &mut self,
        handle: OperationHandle,
        algorithm: CollectiveAlgorithm,
        collective: &ScheduledCollective,
        data: Vec<u8>,
        group_io: &mut GroupIo<'_>,
    ) {
        if let Some(error) = self.broken {
            return group_io.results.push((handle, Err(error)));
        }
        let op = self.next_host_op;
        self.next_host_op = op.next();
        let contributes = collective.operation.is_contributor(self.me);
        let bytes = data.len() as u32;
        let payload = if contributes { Payload::Bytes(data.into()) } else { Payload::SizeOnly { bytes } };
        let executor =
            self.schedule(algorithm, collective, bytes).and_then(|plan| ScheduleExecutor::new(plan, payload));
        match executor {
            Ok(executor) => {
                let fingerprint = executor.schedule().fingerprint();
                group_io.streams.begin_whole(group_io.tree_edges, (self.context, op), fingerprint, bytes);
                self.run_schedule(HOST_STREAM, op, RunningSchedule { executor, handle: Some(handle) }, group_io)
            }
            Err(_) => self.fail(LeaderNetworkError::Mismatch, group_io),
        }
    }

    /// The number and schedule of the next operation among the hosts, which the caller runs as a stream.
    ///
    /// # Errors
    /// If the group has failed, or the ranks cannot have meant this operation.
    pub(super) fn begin_stream(
        &mut self,
        algorithm: CollectiveAlgorithm,
        collective: &ScheduledCollective,
        bytes: u32,
    ) -> Result<(OpId, CollectiveSchedule), LeaderNetworkError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let schedule = self.schedule(algorithm, collective, bytes).map_err(|_| LeaderNetworkError::Mismatch)?;
        let op = self.next_host_op;
        self.next_host_op = op.next();
        self.remember(HOST_STREAM, op, schedule.fingerprint());
        Ok((op, schedule))
    }

    /// The schedule of an operation among the hosts.
    fn schedule(
        &mut self,
        algorithm: CollectiveAlgorithm,
        collective: &ScheduledCollective,
        bytes: u32,
    ) -> Result<CollectiveSchedule, ScheduleError> {
        let is_alike = |last: &&CollectiveSchedule| {
            (last.algorithm(), last.collective(), last.bytes()) == (algorithm, collective.operation, bytes)
        };
        if collective.blocks.is_none()
            && let Some(last) = self.schedules.iter().find(is_alike)
        {
            return Ok(last.clone());
        }
        let schedule = CollectiveSchedule::of(algorithm, collective, self.me, self.size(), bytes)?;
        if collective.blocks.is_some() {
            return Ok(schedule);
        }
        if self.schedules.len() == MAX_CACHED_SCHEDULES {
            self.schedules.pop_front();
        }
        let schedule = schedule.compiled();
        self.schedules.push_back(schedule.clone());
        Ok(schedule)
    }

    /// Remembers the fingerprint of an operation: a late message with another one shows a mismatch.
    fn remember(&mut self, term: Epoch, op: OpId, fingerprint: u32) {
        self.recent.push_back(((term, op), fingerprint));
        if self.recent.len() > MAX_RECENT_OPERATIONS {
            self.recent.pop_front();
        }
    }

    /// True if an operation that has begun here is known to be another one than a peer means by its number.
    pub(super) fn contradicts(&self, op: OpId, fingerprint: u32) -> bool {
        let running = self.running.get(&(HOST_STREAM, op)).map(|running| running.executor.schedule().fingerprint());
        let mut recent = self.recent.iter().filter(|(name, _)| *name == (HOST_STREAM, op)).map(|(_, was)| *was);
        running.or_else(|| recent.next()).is_some_and(|was| was != fingerprint)
    }

    /// Runs an operation among the hosts, beginning with the messages that arrived early.
    pub(super) fn run_schedule(
        &mut self,
        term: Epoch,
        op: OpId,
        mut running: RunningSchedule,
        group_io: &mut GroupIo<'_>,
    ) {
        running.executor.start(&mut self.schedule_actions);
        self.running.insert((term, op), running);
        self.carry_out(term, op, group_io);
        let is_for = |leader_message: &LeaderMessage| (leader_message.term, leader_message.op) == (term, op);
        let mut waiting = std::mem::take(&mut self.early);
        waiting.retain(|(from, leader_message)| {
            let fits = is_for(leader_message);
            if fits {
                self.handle_round(*from, leader_message, group_io);
            }
            !fits
        });
        self.early.append(&mut waiting);
    }

    pub(super) fn carry_out(&mut self, term: Epoch, op: OpId, group_io: &mut GroupIo<'_>) {
        let Some(running) = self.running.get(&(term, op)) else { return };
        let fingerprint = running.executor.schedule().fingerprint();
        let mut actions = std::mem::take(&mut self.schedule_actions);
        for action in actions.drain(..) {
            match action {
                ScheduleAction::Send { to, round, payload } if term == HOST_STREAM => {
                    let name = TransferName { group: self.context, epoch: term, operation: op, round: round as u16 };
                    let to = self.leaders[to.index()];
                    group_io.streams.send_whole(group_io.tree_edges, to, name, fingerprint, payload);
                }
                ScheduleAction::Send { to, round, payload } => {
                    let kind = LeaderMessageKind::Round(round as u16);
                    let leader_message =
                        LeaderMessage { context: self.context, term, op, kind, fingerprint, payload };
                    group_io.mesh.write(group_io.tree_edges, self.leaders[to.index()], &leader_message);
                }
                ScheduleAction::Complete { result } => {
                    let Some(running) = self.running.remove(&(term, op)) else { continue };
                    self.remember(term, op, fingerprint);
                    if term == HOST_STREAM {
                        group_io.streams.end_whole((self.context, op));
                    }
                    match running.handle {
                        Some(handle) => {
                            let result = result.bytes().map(<[u8]>::to_vec).unwrap_or_default();
                            group_io.results.push((handle, Ok(result)));
                        }
                        None => self.finish_fragment(term, op, &result, group_io),
                    }
                }
                ScheduleAction::Failed { .. } => self.report_mismatch(term, op, group_io),
            }
        }
        if self.schedule_actions.is_empty() {
            self.schedule_actions = actions;
        }
    }

    pub(super) fn handle_round(&mut self, from: Rank, leader_message: &LeaderMessage, group_io: &mut GroupIo<'_>) {
        let LeaderMessageKind::Round(round) = leader_message.kind else { return };
        let (term, op) = (leader_message.term, leader_message.op);
        let Some(running) = self.running.get_mut(&(term, op)) else {
            if self.may_begin(term, op) && self.early.len() < MAX_EARLY_MESSAGES {
                self.early.push_back((from, leader_message.clone()));
            } else if self.recent.iter().any(|(name, was)| *name == (term, op) && *was != leader_message.fingerprint)
            {
                self.report_mismatch(term, op, group_io);
            }
            return;
        };
        if running.executor.schedule().fingerprint() != leader_message.fingerprint {
            return self.report_mismatch(term, op, group_io);
        }
        running.executor.handle_message(
            from,
            u32::from(round),
            leader_message.payload.clone(),
            &mut self.schedule_actions,
        );
        self.carry_out(term, op, group_io);
    }

    /// True if an operation may still begin here.
    pub(super) fn may_begin(&self, term: Epoch, op: OpId) -> bool {
        if term == HOST_STREAM {
            return op.steps_from(self.next_host_op) >= 0;
        }
        match &self.tree {
            Some(tree) if tree.term == term => {
                op.steps_from(tree.next) >= 0 || !matches!(tree.state, TreeState::FallenBack)
            }
            // A tree that the others have attached and this leader has not.
            _ => term.0 > self.trees,
        }
    }
}
