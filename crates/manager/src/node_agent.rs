//! The control agent of a node: installs and removes the node's seats on command of the manager or of the parent node, has the
//! subtree installed and removed too, and replies when all of it is done (P-79, P-80).
//!
//! In: commands, replies of child nodes, results of the data plane, connection failures, time. Out: actions.
//! Every command gets one reply, within the time that the command allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use units::{Span, Time};

use super::PeerId;
use super::control_error::ControlError;
use super::edge_number_allocator::to_runs;
use super::group_spec::SeatSpec;
use super::limits::{MAX_GROUPS, MAX_TEXT_BYTES};
use super::message::{GroupKey, HeldSeat, NodeCommand, NodeReply, RemovalScope};
use super::validate;

/// Sender of a command, who gets the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommandSource {
    /// The manager, over its current connection.
    Manager,
    /// The parent node, over the connection that it made.
    Node(PeerId),
}

/// What the driver must do next.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeAgentAction {
    /// Install this seat in the data plane, then call [`NodeAgent::handle_installed`].
    Install(Box<SeatSpec>),
    /// Remove this seat from the data plane.
    Remove(GroupKey),
    /// Reply to a command.
    Reply {
        /// The sender of the command.
        to: CommandSource,
        /// The reply.
        reply: NodeReply,
    },
    /// Forward a command to a child node. If it cannot be reached, call [`NodeAgent::handle_unreachable`].
    Command {
        /// Control address of the child node.
        to: SocketAddr,
        /// The command.
        command: Box<NodeCommand>,
    },
}

/// The agent remembers this many removals of seats that it did not have: an install command that arrives after its removal
/// must not take effect.
const MAX_REMEMBERED_REMOVALS: usize = 1_024;

#[derive(Debug)]
struct SeatEntry {
    held: HeldSeat,
    /// Child nodes: control address and name.
    children: BTreeMap<SocketAddr, String>,
    state: SeatState,
}

#[derive(Debug)]
enum SeatState {
    /// The data plane has the request to install the seat.
    Installing {
        from: CommandSource,
        spec: Box<SeatSpec>,
        deadline: Time,
    },
    /// The own seat is installed; these child nodes have not replied.
    AwaitingChildren {
        from: CommandSource,
        waiting: BTreeSet<SocketAddr>,
        deadline: Time,
    },
    Installed,
    /// The own seat is removed; these child nodes have not replied.
    Removing {
        then: AfterRemoval,
        waiting: BTreeSet<SocketAddr>,
        leftover: Vec<String>,
        deadline: Time,
    },
}

/// The reply that follows when the subtree is removed.
#[derive(Debug)]
enum AfterRemoval {
    Reject { to: CommandSource, error: ControlError },
    Confirm { to: Vec<CommandSource> },
}

/// The agent's state machine.
#[derive(Debug)]
pub struct NodeAgent {
    name: String,
    max_seats: usize,
    entries: BTreeMap<GroupKey, SeatEntry>,
    removed: VecDeque<GroupKey>,
    actions: VecDeque<NodeAgentAction>,
    wake_at: Time,
}

impl NodeAgent {
    /// The agent of the node of this name, with this limit of seats.
    pub fn new(name: &str, max_seats: u32) -> Self {
        Self {
            name: name.to_owned(),
            max_seats: (max_seats as usize).min(MAX_GROUPS),
            entries: BTreeMap::new(),
            removed: VecDeque::new(),
            actions: VecDeque::new(),
            wake_at: Time::NEVER,
        }
    }

    /// The next action for the driver.
    pub fn poll_action(&mut self) -> Option<NodeAgentAction> {
        self.actions.pop_front()
    }

    /// When to call [`Self::handle_timeout`]; [`Time::NEVER`] if nothing is due.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// The groups of all installed seats.
    pub fn seats(&self) -> Vec<GroupKey> {
        let held =
            |entry: &SeatEntry| matches!(entry.state, SeatState::AwaitingChildren { .. } | SeatState::Installed);
        self.entries.iter().filter(|(_, entry)| held(entry)).map(|(group, _)| *group).collect()
    }

    /// The installed seats, as a restarted manager needs them.
    pub fn held_seats(&self) -> Vec<HeldSeat> {
        let held =
            |entry: &&SeatEntry| matches!(entry.state, SeatState::AwaitingChildren { .. } | SeatState::Installed);
        self.entries.values().filter(held).map(|entry| entry.held.clone()).collect()
    }

    /// Processes a command.
    pub fn handle_command(&mut self, now: Time, from: CommandSource, command: NodeCommand) {
        match command {
            NodeCommand::Install { spec, budget_ms } => {
                let group = spec.group_key();
                if let Err(error) = self.install(now, from, spec, budget_ms) {
                    self.reply(from, NodeReply::Rejected { group, error, leftover: Vec::new() });
                }
            }
            NodeCommand::Remove { group, scope, budget_ms } => self.remove(now, from, group, scope, budget_ms),
        }
    }

    fn install(
        &mut self,
        now: Time,
        from: CommandSource,
        spec: SeatSpec,
        budget_ms: u32,
    ) -> Result<(), ControlError> {
        validate::seat_spec(&spec)?;
        let group = spec.group_key();
        if spec.name != self.name {
            let why = format!("it got a command for a seat of node {}", spec.name);
            return Err(ControlError::NodeFailed { node: self.name.clone(), why });
        }
        if self.removed.contains(&group) {
            return Err(ControlError::Withdrawn);
        }
        if self.entries.contains_key(&group) {
            return Err(ControlError::malformed("the seat is already installed"));
        }
        if self.entries.len() >= self.max_seats {
            return Err(ControlError::too_many("seats", self.max_seats));
        }
        let edges =
            spec.children.iter().map(|child| child.edge.0).chain(spec.parent.iter().map(|parent| parent.edge.0));
        let held = HeldSeat {
            group: spec.group,
            epoch: spec.epoch,
            ticket: spec.ticket,
            operations: spec.window,
            bytes: spec.reserved_bytes(),
            edges: to_runs(edges),
        };
        let children = spec.seats_below().map(|(control, spec)| (control, spec.name.clone())).collect();
        self.actions.push_back(NodeAgentAction::Install(Box::new(spec.clone())));
        let state = SeatState::Installing { from, spec: Box::new(spec), deadline: now + budget(budget_ms) };
        self.entries.insert(group, SeatEntry { held, children, state });
        Ok(())
    }

    /// Processes the result of [`NodeAgentAction::Install`].
    pub fn handle_installed(&mut self, now: Time, group: GroupKey, outcome: Result<(), ControlError>) {
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let SeatState::Installing { from, spec, deadline } = &entry.state else {
            return; // A removal came in between.
        };
        let (from, deadline) = (*from, *deadline);
        if let Err(error) = outcome {
            self.entries.remove(&group);
            return self.reply(from, NodeReply::Rejected { group, error, leftover: Vec::new() });
        }
        // Children get less time than this node has, so that their reason arrives before the own deadline.
        let budget_ms = child_budget_ms(deadline.since(now));
        for (control, spec) in spec.seats_below() {
            let command = NodeCommand::Install { spec: spec.clone(), budget_ms };
            self.actions.push_back(NodeAgentAction::Command { to: control, command: Box::new(command) });
        }
        let waiting: BTreeSet<SocketAddr> = entry.children.keys().copied().collect();
        if waiting.is_empty() {
            entry.state = SeatState::Installed;
            return self.reply(from, NodeReply::Installed { group });
        }
        entry.state = SeatState::AwaitingChildren { from, waiting, deadline };
        self.wake_at = self.wake_at.min(deadline);
    }

    /// Processes the reply of a child node.
    pub fn handle_reply(&mut self, now: Time, from: SocketAddr, reply: NodeReply) {
        let group = reply.group();
        let Some(entry) = self.entries.get_mut(&group) else {
            if let NodeReply::Installed { .. } = reply {
                self.command_removal(from, group, 1_000); // The group is gone, so the child's seat must go too.
            }
            return;
        };
        match (&mut entry.state, reply) {
            (SeatState::AwaitingChildren { from: above, waiting, .. }, NodeReply::Installed { .. }) => {
                waiting.remove(&from);
                if waiting.is_empty() {
                    let above = *above;
                    entry.state = SeatState::Installed;
                    self.reply(above, NodeReply::Installed { group });
                }
            }
            (SeatState::AwaitingChildren { .. }, NodeReply::Rejected { error, leftover, .. }) => {
                entry.children.remove(&from); // It holds no seat.
                self.undo_install(now, group, truncate_reason(error), leftover);
            }
            (SeatState::Removing { waiting, leftover, .. }, NodeReply::Removed { leftover: more, .. }) => {
                if waiting.remove(&from) {
                    leftover.extend(more);
                }
                self.finish_removal_if_done(group);
            }
            _ => {} // It crossed with a later command of this node, whose reply will come.
        }
    }

    /// Processes the loss of a child node: it cannot be reached, or its connection broke.
    pub fn handle_unreachable(&mut self, now: Time, node: SocketAddr) {
        let concerned: Vec<GroupKey> =
            self.entries.iter().filter(|(_, entry)| entry.awaits(node)).map(|(group, _)| *group).collect();
        for group in concerned {
            let Some(entry) = self.entries.get_mut(&group) else { continue };
            let name = entry.children.get(&node).cloned().unwrap_or_default();
            match &mut entry.state {
                SeatState::AwaitingChildren { .. } => {
                    // The child may have installed the seat before the connection broke: the manager must check it.
                    entry.children.remove(&node);
                    let why = format!("node {} cannot reach it at {node}", self.name);
                    self.undo_install(now, group, ControlError::NodeFailed { node: name.clone(), why }, vec![name]);
                }
                SeatState::Removing { waiting, leftover, .. } => {
                    waiting.remove(&node);
                    leftover.push(name);
                    self.finish_removal_if_done(group);
                }
                SeatState::Installing { .. } | SeatState::Installed => {}
            }
        }
    }

    /// Fails or finishes the seats whose deadline has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_at = Time::NEVER;
        let mut overdue = Vec::new();
        for (group, entry) in &self.entries {
            match entry.state {
                SeatState::AwaitingChildren { deadline, .. } | SeatState::Removing { deadline, .. }
                    if deadline <= now =>
                {
                    overdue.push(*group);
                }
                SeatState::AwaitingChildren { deadline, .. } | SeatState::Removing { deadline, .. } => {
                    self.wake_at = self.wake_at.min(deadline);
                }
                SeatState::Installing { .. } | SeatState::Installed => {}
            }
        }
        for group in overdue {
            let Some(entry) = self.entries.get_mut(&group) else { continue };
            match &mut entry.state {
                SeatState::AwaitingChildren { waiting, .. } => {
                    let slow = waiting.first().and_then(|node| entry.children.get(node)).cloned().unwrap_or_default();
                    let why = format!("no reply to node {} in time", self.name);
                    self.undo_install(now, group, ControlError::NodeFailed { node: slow, why }, Vec::new());
                }
                SeatState::Removing { waiting, leftover, .. } => {
                    let silent = std::mem::take(waiting);
                    leftover.extend(silent.iter().filter_map(|node| entry.children.get(node)).cloned());
                    self.finish_removal_if_done(group);
                }
                SeatState::Installing { .. } | SeatState::Installed => {}
            }
        }
    }

    fn remove(&mut self, now: Time, from: CommandSource, group: GroupKey, scope: RemovalScope, budget_ms: u32) {
        let Some(entry) = self.entries.get_mut(&group) else {
            if self.removed.len() == MAX_REMEMBERED_REMOVALS {
                self.removed.pop_front();
            }
            self.removed.push_back(group);
            return self.reply(from, NodeReply::Removed { group, leftover: Vec::new() });
        };
        if scope == RemovalScope::SeatOnly {
            entry.children.clear();
        }
        match &mut entry.state {
            SeatState::Removing { then: AfterRemoval::Confirm { to }, waiting, .. } => {
                to.push(from);
                if scope == RemovalScope::SeatOnly {
                    waiting.clear();
                }
                self.finish_removal_if_done(group);
            }
            SeatState::Removing { .. } if scope == RemovalScope::SeatOnly => {
                self.reply(from, NodeReply::Removed { group, leftover: Vec::new() }); // The own seat is removed already.
            }
            SeatState::Removing { then, .. } => {
                // The new sender gets the leftover nodes when they are known, and does not need the error.
                let before = std::mem::replace(then, AfterRemoval::Confirm { to: vec![from] });
                if let AfterRemoval::Reject { to, error } = before
                    && to != from
                {
                    self.reply(to, NodeReply::Rejected { group, error, leftover: Vec::new() });
                }
            }
            SeatState::Installing { from: above, .. } | SeatState::AwaitingChildren { from: above, .. } => {
                let above = *above;
                if above != from {
                    self.reply(
                        above,
                        NodeReply::Rejected { group, error: ControlError::Withdrawn, leftover: Vec::new() },
                    );
                }
                self.begin_removal(
                    now,
                    group,
                    AfterRemoval::Confirm { to: vec![from] },
                    Vec::new(),
                    budget(budget_ms),
                );
            }
            SeatState::Installed => self.begin_removal(
                now,
                group,
                AfterRemoval::Confirm { to: vec![from] },
                Vec::new(),
                budget(budget_ms),
            ),
        }
    }

    /// Undoes an installation: a child could not install its subtree.
    fn undo_install(&mut self, now: Time, group: GroupKey, error: ControlError, leftover: Vec<String>) {
        let Some(SeatEntry { state: SeatState::AwaitingChildren { from, deadline, .. }, .. }) =
            self.entries.get(&group)
        else {
            return;
        };
        // The sender waits a little longer than the deadline says; the clean-up needs that time.
        let time = deadline.since(now).times(4).divided_by(5) + Span::from_micros(50_000);
        let then = AfterRemoval::Reject { to: *from, error };
        self.begin_removal(now, group, then, leftover, time);
    }

    fn begin_removal(&mut self, now: Time, group: GroupKey, then: AfterRemoval, leftover: Vec<String>, time: Span) {
        let deadline = now + time;
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let waiting: BTreeSet<SocketAddr> = entry.children.keys().copied().collect();
        entry.state = SeatState::Removing { then, waiting: waiting.clone(), leftover, deadline };
        self.wake_at = self.wake_at.min(deadline);
        self.actions.push_back(NodeAgentAction::Remove(group));
        for node in waiting {
            self.command_removal(node, group, child_budget_ms(time));
        }
        self.finish_removal_if_done(group);
    }

    fn command_removal(&mut self, to: SocketAddr, group: GroupKey, budget_ms: u32) {
        let command = NodeCommand::Remove { group, scope: RemovalScope::Subtree, budget_ms };
        self.actions.push_back(NodeAgentAction::Command { to, command: Box::new(command) });
    }

    fn finish_removal_if_done(&mut self, group: GroupKey) {
        match self.entries.get(&group) {
            Some(SeatEntry { state: SeatState::Removing { waiting, .. }, .. }) if waiting.is_empty() => {}
            _ => return,
        }
        let Some(SeatEntry { state: SeatState::Removing { then, leftover, .. }, .. }) = self.entries.remove(&group)
        else {
            return;
        };
        match then {
            AfterRemoval::Reject { to, error } => self.reply(to, NodeReply::Rejected { group, error, leftover }),
            AfterRemoval::Confirm { to } => {
                for source in to {
                    self.reply(source, NodeReply::Removed { group, leftover: leftover.clone() });
                }
            }
        }
    }

    fn reply(&mut self, to: CommandSource, reply: NodeReply) {
        self.actions.push_back(NodeAgentAction::Reply { to, reply });
    }
}

impl SeatEntry {
    fn awaits(&self, node: SocketAddr) -> bool {
        match &self.state {
            SeatState::AwaitingChildren { waiting, .. } | SeatState::Removing { waiting, .. } => {
                waiting.contains(&node)
            }
            SeatState::Installing { .. } | SeatState::Installed => false,
        }
    }
}

/// Upper bound for the time of a command.
const MAX_BUDGET_MS: u32 = 600_000;

fn budget(millis: u32) -> Span {
    Span::from_micros(u64::from(millis.min(MAX_BUDGET_MS)) * 1_000)
}

/// Four fifths of the time, in milliseconds.
fn child_budget_ms(time: Span) -> u32 {
    (time.times(4).divided_by(5).as_nanos() / 1_000_000).clamp(1, MAX_BUDGET_MS.into()) as u32
}

/// Cuts the reason of another node to [`MAX_TEXT_BYTES`].
fn truncate_reason(error: ControlError) -> ControlError {
    match error {
        ControlError::NodeFailed { node, why } if why.len() > MAX_TEXT_BYTES => {
            ControlError::NodeFailed { node, why: validate::sanitize_text(&why) }
        }
        other => other,
    }
}
