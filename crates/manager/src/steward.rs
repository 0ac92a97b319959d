//! The steward keeps a node's seats: takes orders from the manager or from the node above, has the seats below taken
//! too, and answers when all of it is done (P-53, P-54).
//!
//! In: orders, answers of the nodes below, what came of taking a seat, connections that failed, time. Out: duties.
//! Every order is answered once, within the time that it allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use units::{Span, Time};

use super::check;
use super::duty::PeerId;
use super::limits::{MAX_GROUPS, MAX_WORDS_BYTES};
use super::message::{Answer, GroupKey, HeldSeat, Order, Spread};
use super::numbers::runs;
use super::refusal::Refusal;
use super::spec::SeatSpec;

/// Who gave an order, and gets the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The manager, over whatever connection there is to it.
    Manager,
    /// The node above, over the connection that it made.
    Node(PeerId),
}

/// What a node's driver must do.
#[derive(Clone, PartialEq, Debug)]
pub enum StewardDuty {
    /// Take this seat, then call [`Steward::handle_installed`].
    Install(Box<SeatSpec>),
    /// Give up this seat.
    Remove(GroupKey),
    /// Answer an order.
    Answer {
        /// To whom.
        to: Source,
        /// What.
        answer: Answer,
    },
    /// Pass an order on to a node below. If it cannot be reached, call [`Steward::handle_unreachable`].
    Order {
        /// Its control side.
        to: SocketAddr,
        /// What.
        order: Box<Order>,
    },
}

/// Removals of seats that were not there are remembered, so many of them: an order to take such a seat, overtaken by
/// its removal, must not be obeyed any more.
const MAX_REMEMBERED: usize = 1_024;

#[derive(Debug)]
struct Entry {
    held: HeldSeat,
    /// Nodes with a seat below: where they take orders, and their names.
    below: BTreeMap<SocketAddr, String>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The data plane has been asked.
    Taking {
        from: Source,
        spec: Box<SeatSpec>,
        deadline: Time,
    },
    /// Ours is taken; these have not yet answered.
    Spreading {
        from: Source,
        waiting: BTreeSet<SocketAddr>,
        deadline: Time,
    },
    Seated,
    /// Ours is given up; these have not yet answered.
    Leaving {
        then: Then,
        waiting: BTreeSet<SocketAddr>,
        leftover: Vec<String>,
        deadline: Time,
    },
}

/// What is said when all is given up.
#[derive(Debug)]
enum Then {
    Refuse { to: Source, refusal: Refusal },
    Confirm { to: Vec<Source> },
}

/// The machine.
#[derive(Debug)]
pub struct Steward {
    name: String,
    most_seats: usize,
    entries: BTreeMap<GroupKey, Entry>,
    removed: VecDeque<GroupKey>,
    duties: VecDeque<StewardDuty>,
    wake_at: Time,
}

impl Steward {
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
    pub fn poll_duty(&mut self) -> Option<StewardDuty> {
        self.duties.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called; [`Time::NEVER`] if it need not be.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// Every seat that is held.
    pub fn seats(&self) -> Vec<GroupKey> {
        let held = |entry: &Entry| matches!(entry.phase, Phase::Spreading { .. } | Phase::Seated);
        self.entries.iter().filter(|(_, entry)| held(entry)).map(|(group, _)| *group).collect()
    }

    /// The same, as a manager must know them that has begun anew.
    pub fn held(&self) -> Vec<HeldSeat> {
        let held = |entry: &&Entry| matches!(entry.phase, Phase::Spreading { .. } | Phase::Seated);
        self.entries.values().filter(held).map(|entry| entry.held.clone()).collect()
    }

    /// An order came.
    pub fn handle_order(&mut self, now: Time, from: Source, order: Order) {
        match order {
            Order::Install { spec, budget_ms } => {
                let group = spec.key_of_group();
                if let Err(refusal) = self.install(now, from, spec, budget_ms) {
                    self.answer(from, Answer::Refused { group, refusal, leftover: Vec::new() });
                }
            }
            Order::Remove { group, spread, budget_ms } => self.remove(now, from, group, spread, budget_ms),
        }
    }

    fn install(&mut self, now: Time, from: Source, spec: SeatSpec, budget_ms: u32) -> Result<(), Refusal> {
        check::spec(&spec)?;
        let group = spec.key_of_group();
        if spec.name != self.name {
            let why = format!("it was asked for a seat of node {}", spec.name);
            return Err(Refusal::NodeFailed { node: self.name.clone(), why });
        }
        if self.removed.contains(&group) {
            return Err(Refusal::Withdrawn);
        }
        if self.entries.contains_key(&group) {
            return Err(Refusal::malformed("the seat is taken already"));
        }
        if self.entries.len() >= self.most_seats {
            return Err(Refusal::too_many("seats", self.most_seats));
        }
        let edges =
            spec.children.iter().map(|child| child.edge.0).chain(spec.parent.iter().map(|parent| parent.edge.0));
        let held = HeldSeat {
            group: spec.group,
            epoch: spec.epoch,
            ticket: spec.ticket,
            operations: spec.window,
            bytes: spec.reserved_bytes(),
            edges: runs(edges),
        };
        let below = spec.seats_below().map(|(control, spec)| (control, spec.name.clone())).collect();
        self.duties.push_back(StewardDuty::Install(Box::new(spec.clone())));
        let phase = Phase::Taking { from, spec: Box::new(spec), deadline: now + budget(budget_ms) };
        self.entries.insert(group, Entry { held, below, phase });
        Ok(())
    }

    /// What came of [`StewardDuty::Install`].
    pub fn handle_installed(&mut self, now: Time, group: GroupKey, outcome: Result<(), Refusal>) {
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let Phase::Taking { from, spec, deadline } = &entry.phase else {
            return; // It was removed meanwhile.
        };
        let (from, deadline) = (*from, *deadline);
        if let Err(refusal) = outcome {
            self.entries.remove(&group);
            return self.answer(from, Answer::Refused { group, refusal, leftover: Vec::new() });
        }
        // Those below get less time than we have, so that their reason reaches us before ours runs out.
        let budget_ms = shorter(deadline.since(now));
        for (control, spec) in spec.seats_below() {
            let order = Order::Install { spec: spec.clone(), budget_ms };
            self.duties.push_back(StewardDuty::Order { to: control, order: Box::new(order) });
        }
        let waiting: BTreeSet<SocketAddr> = entry.below.keys().copied().collect();
        if waiting.is_empty() {
            entry.phase = Phase::Seated;
            return self.answer(from, Answer::Installed { group });
        }
        entry.phase = Phase::Spreading { from, waiting, deadline };
        self.wake_at = self.wake_at.min(deadline);
    }

    /// A node below answered.
    pub fn handle_answer(&mut self, now: Time, from: SocketAddr, answer: Answer) {
        let group = answer.group();
        let Some(entry) = self.entries.get_mut(&group) else {
            if let Answer::Installed { .. } = answer {
                self.order_removal(from, group, 1_000); // Nobody waits for it any more.
            }
            return;
        };
        match (&mut entry.phase, answer) {
            (Phase::Spreading { from: above, waiting, .. }, Answer::Installed { .. }) => {
                waiting.remove(&from);
                if waiting.is_empty() {
                    let above = *above;
                    entry.phase = Phase::Seated;
                    self.answer(above, Answer::Installed { group });
                }
            }
            (Phase::Spreading { .. }, Answer::Refused { refusal, leftover, .. }) => {
                entry.below.remove(&from); // It holds nothing.
                self.give_up(now, group, tame(refusal), leftover);
            }
            (Phase::Leaving { waiting, leftover, .. }, Answer::Removed { leftover: more, .. }) => {
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
                Phase::Spreading { .. } => {
                    // Perhaps it took the seat before the connection broke: the manager must make sure.
                    entry.below.remove(&node);
                    let why = format!("node {} cannot reach it at {node}", self.name);
                    self.give_up(now, group, Refusal::NodeFailed { node: name.clone(), why }, vec![name]);
                }
                Phase::Leaving { waiting, leftover, .. } => {
                    waiting.remove(&node);
                    leftover.push(name);
                    self.left_if_done(group);
                }
                Phase::Taking { .. } | Phase::Seated => {}
            }
        }
    }

    /// Gives up on whoever is overdue.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_at = Time::NEVER;
        let mut overdue = Vec::new();
        for (group, entry) in &self.entries {
            match entry.phase {
                Phase::Spreading { deadline, .. } | Phase::Leaving { deadline, .. } if deadline <= now => {
                    overdue.push(*group);
                }
                Phase::Spreading { deadline, .. } | Phase::Leaving { deadline, .. } => {
                    self.wake_at = self.wake_at.min(deadline);
                }
                Phase::Taking { .. } | Phase::Seated => {}
            }
        }
        for group in overdue {
            let Some(entry) = self.entries.get_mut(&group) else { continue };
            match &mut entry.phase {
                Phase::Spreading { waiting, .. } => {
                    let slow = waiting.first().and_then(|node| entry.below.get(node)).cloned().unwrap_or_default();
                    let why = format!("it did not answer node {} in time", self.name);
                    self.give_up(now, group, Refusal::NodeFailed { node: slow, why }, Vec::new());
                }
                Phase::Leaving { waiting, leftover, .. } => {
                    let silent = std::mem::take(waiting);
                    leftover.extend(silent.iter().filter_map(|node| entry.below.get(node)).cloned());
                    self.left_if_done(group);
                }
                Phase::Taking { .. } | Phase::Seated => {}
            }
        }
    }

    fn remove(&mut self, now: Time, from: Source, group: GroupKey, spread: Spread, budget_ms: u32) {
        let Some(entry) = self.entries.get_mut(&group) else {
            if self.removed.len() == MAX_REMEMBERED {
                self.removed.pop_front();
            }
            self.removed.push_back(group);
            return self.answer(from, Answer::Removed { group, leftover: Vec::new() });
        };
        if spread == Spread::Alone {
            entry.below.clear();
        }
        match &mut entry.phase {
            Phase::Leaving { then: Then::Confirm { to }, waiting, .. } => {
                to.push(from);
                if spread == Spread::Alone {
                    waiting.clear();
                }
                self.left_if_done(group);
            }
            Phase::Leaving { .. } if spread == Spread::Alone => {
                self.answer(from, Answer::Removed { group, leftover: Vec::new() }); // Ours is given up already.
            }
            Phase::Leaving { then, .. } => {
                // Whoever removes it hears what is left below when that is known, and does not need the refusal.
                let before = std::mem::replace(then, Then::Confirm { to: vec![from] });
                if let Then::Refuse { to, refusal } = before
                    && to != from
                {
                    self.answer(to, Answer::Refused { group, refusal, leftover: Vec::new() });
                }
            }
            Phase::Taking { from: above, .. } | Phase::Spreading { from: above, .. } => {
                let above = *above;
                if above != from {
                    self.answer(above, Answer::Refused { group, refusal: Refusal::Withdrawn, leftover: Vec::new() });
                }
                self.leave(now, group, Then::Confirm { to: vec![from] }, Vec::new(), budget(budget_ms));
            }
            Phase::Seated => self.leave(now, group, Then::Confirm { to: vec![from] }, Vec::new(), budget(budget_ms)),
        }
    }

    /// The seats below cannot all be taken: everything is given up again.
    fn give_up(&mut self, now: Time, group: GroupKey, refusal: Refusal, leftover: Vec<String>) {
        let Some(Entry { phase: Phase::Spreading { from, deadline, .. }, .. }) = self.entries.get(&group) else {
            return;
        };
        // Whoever ordered it waits a little longer than the deadline says, and there must be time to clean up.
        let time = deadline.since(now).times(4).divided_by(5) + Span::from_micros(50_000);
        let then = Then::Refuse { to: *from, refusal };
        self.leave(now, group, then, leftover, time);
    }

    fn leave(&mut self, now: Time, group: GroupKey, then: Then, leftover: Vec<String>, time: Span) {
        let deadline = now + time;
        let Some(entry) = self.entries.get_mut(&group) else { return };
        let waiting: BTreeSet<SocketAddr> = entry.below.keys().copied().collect();
        entry.phase = Phase::Leaving { then, waiting: waiting.clone(), leftover, deadline };
        self.wake_at = self.wake_at.min(deadline);
        self.duties.push_back(StewardDuty::Remove(group));
        for node in waiting {
            self.order_removal(node, group, shorter(time));
        }
        self.left_if_done(group);
    }

    fn order_removal(&mut self, to: SocketAddr, group: GroupKey, budget_ms: u32) {
        let order = Order::Remove { group, spread: Spread::Below, budget_ms };
        self.duties.push_back(StewardDuty::Order { to, order: Box::new(order) });
    }

    fn left_if_done(&mut self, group: GroupKey) {
        match self.entries.get(&group) {
            Some(Entry { phase: Phase::Leaving { waiting, .. }, .. }) if waiting.is_empty() => {}
            _ => return,
        }
        let Some(Entry { phase: Phase::Leaving { then, leftover, .. }, .. }) = self.entries.remove(&group) else {
            return;
        };
        match then {
            Then::Refuse { to, refusal } => self.answer(to, Answer::Refused { group, refusal, leftover }),
            Then::Confirm { to } => {
                for source in to {
                    self.answer(source, Answer::Removed { group, leftover: leftover.clone() });
                }
            }
        }
    }

    fn answer(&mut self, to: Source, answer: Answer) {
        self.duties.push_back(StewardDuty::Answer { to, answer });
    }
}

impl Entry {
    fn awaits(&self, node: SocketAddr) -> bool {
        match &self.phase {
            Phase::Spreading { waiting, .. } | Phase::Leaving { waiting, .. } => waiting.contains(&node),
            Phase::Taking { .. } | Phase::Seated => false,
        }
    }
}

/// Longer than that nobody waits.
const MOST_BUDGET_MS: u32 = 600_000;

fn budget(millis: u32) -> Span {
    Span::from_micros(u64::from(millis.min(MOST_BUDGET_MS)) * 1_000)
}

/// Four fifths, in milliseconds.
fn shorter(time: Span) -> u32 {
    (time.times(4).divided_by(5).as_picos() / 1_000_000_000).clamp(1, MOST_BUDGET_MS.into()) as u32
}

/// A reason from another node, cut to a bearable length.
fn tame(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NodeFailed { node, why } if why.len() > MAX_WORDS_BYTES => {
            Refusal::NodeFailed { node, why: check::words(&why) }
        }
        other => other,
    }
}
