//! The steward keeps a node's seats: takes orders from the manager or from the node above, has the seats below taken
//! too, and answers when all of it is done (P-53, P-54).
//!
//! In: orders, answers of the nodes below, what came of taking a seat, connections that failed, time. Out: duties.
//! Every order is answered once, within the time that it allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use units::{Span, Time};

use super::action::PeerId;
use super::control_error::ControlError;
use super::edge_number_allocator::to_runs;
use super::group_spec::SeatSpec;
use super::limits::{MAX_GROUPS, MAX_TEXT_BYTES};
use super::message::{GroupKey, HeldSeat, NodeCommand, NodeReply, RemovalScope};
use super::validate;

/// Who gave an order, and gets the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommandSource {
    /// The manager, over whatever connection there is to it.
    Manager,
    /// The node above, over the connection that it made.
    Node(PeerId),
}

/// What a node's driver must do.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeAgentAction {
    /// Take this seat, then call [`NodeAgent::handle_installed`].
    Install(Box<SeatSpec>),
    /// Give up this seat.
    Remove(GroupKey),
    /// Answer an order.
    Answer {
        /// To whom.
        to: CommandSource,
        /// What.
        answer: NodeReply,
    },
    /// Pass an order on to a node below. If it cannot be reached, call [`NodeAgent::handle_unreachable`].
    Order {
        /// Its control side.
        to: SocketAddr,
        /// What.
        order: Box<NodeCommand>,
    },
}

/// Removals of seats that were not there are remembered, so many of them: an order to take such a seat, overtaken by
/// its removal, must not be obeyed any more.
const MAX_REMEMBERED_REMOVALS: usize = 1_024;

#[derive(Debug)]
struct SeatEntry {
    held: HeldSeat,
    /// Nodes with a seat below: where they take orders, and their names.
    below: BTreeMap<SocketAddr, String>,
    phase: SeatState,
}

#[derive(Debug)]
enum SeatState {
    /// The data plane has been asked.
    Taking {
        from: CommandSource,
        spec: Box<SeatSpec>,
        deadline: Time,
    },
    /// Ours is taken; these have not yet answered.
    Spreading {
        from: CommandSource,
        waiting: BTreeSet<SocketAddr>,
        deadline: Time,
    },
    Seated,
    /// Ours is given up; these have not yet answered.
    Leaving {
        then: AfterRemoval,
        waiting: BTreeSet<SocketAddr>,
        leftover: Vec<String>,
        deadline: Time,
    },
}

/// What is said when all is given up.
#[derive(Debug)]
enum AfterRemoval {
    Refuse { to: CommandSource, refusal: ControlError },
    Confirm { to: Vec<CommandSource> },
}

/// The machine.
#[derive(Debug)]
pub struct NodeAgent {
    name: String,
    most_seats: usize,
    entries: BTreeMap<GroupKey, SeatEntry>,
    removed: VecDeque<GroupKey>,
    duties: VecDeque<NodeAgentAction>,
    wake_at: Time,
}

impl NodeAgent {
    /// The steward of the node of this name, with at most so many seats.
    pub fn new(name: &str, most_seats: u32) -> Self {
        Self {
            name: name.to_owned(),
            most_seats: (most_seats as usize).min(MAX_GROUPS),
            entries: BTreeMap::new(),
            removed: VecDeque::new(),
            duties: VecDeque::new(),
            wake_at: Time::NEVER,
        }
    }

    /// The next thing to do.
    pub fn poll_duty(&mut self) -> Option<NodeAgentAction> {
        self.duties.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called; [`Time::NEVER`] if it need not be.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// Every seat that is held.
    pub fn seats(&self) -> Vec<GroupKey> {
        let held = |entry: &SeatEntry| matches!(entry.phase, SeatState::Spreading { .. } | SeatState::Seated);
        self.entries.iter().filter(|(_, entry)| held(entry)).map(|(group, _)| *group).collect()
    }

    /// The same, as a manager must know them that has begun anew.
    pub fn held(&self) -> Vec<HeldSeat> {
        let held = |entry: &&SeatEntry| matches!(entry.phase, SeatState::Spreading { .. } | SeatState::Seated);
        self.entries.values().filter(held).map(|entry| entry.held.clone()).collect()
    }

    /// An order came.
    pub fn handle_order(&mut self, now: Time, from: CommandSource, order: NodeCommand) {
        match order {
            NodeCommand::Install { spec, budget_ms } => {
                let group = spec.key_of_group();
                if let Err(refusal) = self.install(now, from, spec, budget_ms) {
                    self.answer(from, NodeReply::Refused { group, refusal, leftover: Vec::new() });
                }
            }
            NodeCommand::Remove { group, spread, budget_ms } => self.remove(now, from, group, spread, budget_ms),
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
        let group = spec.key_of_group();
        if spec.name != self.name {
            let why = format!("it was asked for a seat of node {}", spec.name);
            return Err(ControlError::NodeFailed { node: self.name.clone(), why });
        }
        if self.removed.contains(&group) {
            return Err(ControlError::Withdrawn);
        }
        if self.entries.contains_key(&group) {
            return Err(ControlError::malformed("the seat is taken already"));
        }
        if self.entries.len() >= self.most_seats {
            return Err(ControlError::too_many("seats", self.most_seats));
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
        let below = spec.seats_below().map(|(control, spec)| (control, spec.name.clone())).collect();
        self.duties.push_back(NodeAgentAction::Install(Box::new(spec.clone())));
        let phase = SeatState::Taking { from, spec: Box::new(spec), deadline: now + budget(budget_ms) };
        self.entries.insert(group, SeatEntry { held, below, phase });
        Ok(())
    }

    /// What came of [`NodeAgentAction::Install`].
    pub fn handle_installed(&mut self, now: Time, group: GroupKey, outcome: Result<(), ControlError>) {
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let SeatState::Taking { from, spec, deadline } = &entry.phase else {
            return; // It was removed meanwhile.
        };
        let (from, deadline) = (*from, *deadline);
        if let Err(refusal) = outcome {
            self.entries.remove(&group);
            return self.answer(from, NodeReply::Refused { group, refusal, leftover: Vec::new() });
        }
        // Those below get less time than we have, so that their reason reaches us before ours runs out.
        let budget_ms = child_budget_ms(deadline.since(now));
        for (control, spec) in spec.seats_below() {
            let order = NodeCommand::Install { spec: spec.clone(), budget_ms };
            self.duties.push_back(NodeAgentAction::Order { to: control, order: Box::new(order) });
        }
        let waiting: BTreeSet<SocketAddr> = entry.below.keys().copied().collect();
        if waiting.is_empty() {
            entry.phase = SeatState::Seated;
            return self.answer(from, NodeReply::Installed { group });
        }
        entry.phase = SeatState::Spreading { from, waiting, deadline };
        self.wake_at = self.wake_at.min(deadline);
    }

    /// A node below answered.
    pub fn handle_answer(&mut self, now: Time, from: SocketAddr, answer: NodeReply) {
        let group = answer.group();
        let Some(entry) = self.entries.get_mut(&group) else {
            if let NodeReply::Installed { .. } = answer {
                self.order_removal(from, group, 1_000); // Nobody waits for it any more.
            }
            return;
        };
        match (&mut entry.phase, answer) {
            (SeatState::Spreading { from: above, waiting, .. }, NodeReply::Installed { .. }) => {
                waiting.remove(&from);
                if waiting.is_empty() {
                    let above = *above;
                    entry.phase = SeatState::Seated;
                    self.answer(above, NodeReply::Installed { group });
                }
            }
            (SeatState::Spreading { .. }, NodeReply::Refused { refusal, leftover, .. }) => {
                entry.below.remove(&from); // It holds nothing.
                self.give_up(now, group, truncate_reason(refusal), leftover);
            }
            (SeatState::Leaving { waiting, leftover, .. }, NodeReply::Removed { leftover: more, .. }) => {
                if waiting.remove(&from) {
                    leftover.extend(more);
                }
                self.left_if_done(group);
            }
            _ => {} // Crossed with an order of ours, whose answer will come.
        }
    }

    /// A node below cannot be reached, or the connection to it broke.
    pub fn handle_unreachable(&mut self, now: Time, node: SocketAddr) {
        let concerned: Vec<GroupKey> =
            self.entries.iter().filter(|(_, entry)| entry.awaits(node)).map(|(group, _)| *group).collect();
        for group in concerned {
            let Some(entry) = self.entries.get_mut(&group) else { continue };
            let name = entry.below.get(&node).cloned().unwrap_or_default();
            match &mut entry.phase {
                SeatState::Spreading { .. } => {
                    // Perhaps it took the seat before the connection broke: the manager must make sure.
                    entry.below.remove(&node);
                    let why = format!("node {} cannot reach it at {node}", self.name);
                    self.give_up(now, group, ControlError::NodeFailed { node: name.clone(), why }, vec![name]);
                }
                SeatState::Leaving { waiting, leftover, .. } => {
                    waiting.remove(&node);
                    leftover.push(name);
                    self.left_if_done(group);
                }
                SeatState::Taking { .. } | SeatState::Seated => {}
            }
        }
    }

    /// Gives up on whoever is overdue.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_at = Time::NEVER;
        let mut overdue = Vec::new();
        for (group, entry) in &self.entries {
            match entry.phase {
                SeatState::Spreading { deadline, .. } | SeatState::Leaving { deadline, .. } if deadline <= now => {
                    overdue.push(*group);
                }
                SeatState::Spreading { deadline, .. } | SeatState::Leaving { deadline, .. } => {
                    self.wake_at = self.wake_at.min(deadline);
                }
                SeatState::Taking { .. } | SeatState::Seated => {}
            }
        }
        for group in overdue {
            let Some(entry) = self.entries.get_mut(&group) else { continue };
            match &mut entry.phase {
                SeatState::Spreading { waiting, .. } => {
                    let slow = waiting.first().and_then(|node| entry.below.get(node)).cloned().unwrap_or_default();
                    let why = format!("it did not answer node {} in time", self.name);
                    self.give_up(now, group, ControlError::NodeFailed { node: slow, why }, Vec::new());
                }
                SeatState::Leaving { waiting, leftover, .. } => {
                    let silent = std::mem::take(waiting);
                    leftover.extend(silent.iter().filter_map(|node| entry.below.get(node)).cloned());
                    self.left_if_done(group);
                }
                SeatState::Taking { .. } | SeatState::Seated => {}
            }
        }
    }

    fn remove(&mut self, now: Time, from: CommandSource, group: GroupKey, spread: RemovalScope, budget_ms: u32) {
        let Some(entry) = self.entries.get_mut(&group) else {
            if self.removed.len() == MAX_REMEMBERED_REMOVALS {
                self.removed.pop_front();
            }
            self.removed.push_back(group);
            return self.answer(from, NodeReply::Removed { group, leftover: Vec::new() });
        };
        if spread == RemovalScope::Alone {
            entry.below.clear();
        }
        match &mut entry.phase {
            SeatState::Leaving { then: AfterRemoval::Confirm { to }, waiting, .. } => {
                to.push(from);
                if spread == RemovalScope::Alone {
                    waiting.clear();
                }
                self.left_if_done(group);
            }
            SeatState::Leaving { .. } if spread == RemovalScope::Alone => {
                self.answer(from, NodeReply::Removed { group, leftover: Vec::new() }); // Ours is given up already.
            }
            SeatState::Leaving { then, .. } => {
                // Whoever removes it hears what is left below when that is known, and does not need the refusal.
                let before = std::mem::replace(then, AfterRemoval::Confirm { to: vec![from] });
                if let AfterRemoval::Refuse { to, refusal } = before
                    && to != from
                {
                    self.answer(to, NodeReply::Refused { group, refusal, leftover: Vec::new() });
                }
            }
            SeatState::Taking { from: above, .. } | SeatState::Spreading { from: above, .. } => {
                let above = *above;
                if above != from {
                    self.answer(
                        above,
                        NodeReply::Refused { group, refusal: ControlError::Withdrawn, leftover: Vec::new() },
                    );
                }
                self.leave(now, group, AfterRemoval::Confirm { to: vec![from] }, Vec::new(), budget(budget_ms));
            }
            SeatState::Seated => {
                self.leave(now, group, AfterRemoval::Confirm { to: vec![from] }, Vec::new(), budget(budget_ms))
            }
        }
    }

    /// The seats below cannot all be taken: everything is given up again.
    fn give_up(&mut self, now: Time, group: GroupKey, refusal: ControlError, leftover: Vec<String>) {
        let Some(SeatEntry { phase: SeatState::Spreading { from, deadline, .. }, .. }) = self.entries.get(&group)
        else {
            return;
        };
        // Whoever ordered it waits a little longer than the deadline says, and there must be time to clean up.
        let time = deadline.since(now).times(4).divided_by(5) + Span::from_micros(50_000);
        let then = AfterRemoval::Refuse { to: *from, refusal };
        self.leave(now, group, then, leftover, time);
    }

    fn leave(&mut self, now: Time, group: GroupKey, then: AfterRemoval, leftover: Vec<String>, time: Span) {
        let deadline = now + time;
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let waiting: BTreeSet<SocketAddr> = entry.below.keys().copied().collect();
        entry.phase = SeatState::Leaving { then, waiting: waiting.clone(), leftover, deadline };
        self.wake_at = self.wake_at.min(deadline);
        self.duties.push_back(NodeAgentAction::Remove(group));
        for node in waiting {
            self.order_removal(node, group, child_budget_ms(time));
        }
        self.left_if_done(group);
    }

    fn order_removal(&mut self, to: SocketAddr, group: GroupKey, budget_ms: u32) {
        let order = NodeCommand::Remove { group, spread: RemovalScope::Below, budget_ms };
        self.duties.push_back(NodeAgentAction::Order { to, order: Box::new(order) });
    }

    fn left_if_done(&mut self, group: GroupKey) {
        match self.entries.get(&group) {
            Some(SeatEntry { phase: SeatState::Leaving { waiting, .. }, .. }) if waiting.is_empty() => {}
            _ => return,
        }
        let Some(SeatEntry { phase: SeatState::Leaving { then, leftover, .. }, .. }) = self.entries.remove(&group)
        else {
            return;
        };
        match then {
            AfterRemoval::Refuse { to, refusal } => self.answer(to, NodeReply::Refused { group, refusal, leftover }),
            AfterRemoval::Confirm { to } => {
                for source in to {
                    self.answer(source, NodeReply::Removed { group, leftover: leftover.clone() });
                }
            }
        }
    }

    fn answer(&mut self, to: CommandSource, answer: NodeReply) {
        self.duties.push_back(NodeAgentAction::Answer { to, answer });
    }
}

impl SeatEntry {
    fn awaits(&self, node: SocketAddr) -> bool {
        match &self.phase {
            SeatState::Spreading { waiting, .. } | SeatState::Leaving { waiting, .. } => waiting.contains(&node),
            SeatState::Taking { .. } | SeatState::Seated => false,
        }
    }
}

/// Longer than that nobody waits.
const MAX_BUDGET_MS: u32 = 600_000;

fn budget(millis: u32) -> Span {
    Span::from_micros(u64::from(millis.min(MAX_BUDGET_MS)) * 1_000)
}

/// Four fifths, in milliseconds.
fn child_budget_ms(time: Span) -> u32 {
    (time.times(4).divided_by(5).as_picos() / 1_000_000_000).clamp(1, MAX_BUDGET_MS.into()) as u32
}

/// A reason from another node, cut to a bearable length.
fn truncate_reason(refusal: ControlError) -> ControlError {
    match refusal {
        ControlError::NodeFailed { node, why } if why.len() > MAX_TEXT_BYTES => {
            ControlError::NodeFailed { node, why: validate::sanitize_text(&why) }
        }
        other => other,
    }
}
