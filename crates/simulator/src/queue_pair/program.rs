//! What a host does, one thing after another: computes, sends, waits for messages, orders its connections to load and to
//! migrate. Applications are modelled with it, and users that meddle with paths.
//!
//! In: what has come over the host's connections, and the time. Out: the next thing to do, as soon as it can be done.

use std::collections::BTreeMap;

use topology::NodeId;
use units::{PathId, SimSpan, SimTime};

use super::parameters::MAX_MESSAGE_BYTES;
use super::{ConnectionPlan, TransportSetupError};

/// What a host does.
#[derive(Clone, Debug)]
pub struct HostProgram {
    /// Where.
    pub host: NodeId,
    /// In this order.
    pub steps: Vec<ProgramStep>,
}

/// One thing. Connections are counted in the order in which the exchange has them; the host is one of their ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramStep {
    /// Does nothing else for so long.
    Compute(SimSpan),
    /// Waits until then.
    Until(SimTime),
    /// Posts a send, and does not wait for it.
    Send {
        /// Over this connection.
        connection: usize,
        /// So many bytes.
        length: u32,
    },
    /// Waits for the next message.
    Receive {
        /// Of this connection.
        connection: usize,
    },
    /// Orders an alternate to be loaded; that it cannot be is noted.
    Load {
        /// At this end of this connection.
        connection: usize,
        /// This one.
        path: PathId,
    },
    /// Orders traffic to the armed alternate; that it cannot go there is noted.
    Migrate {
        /// Of this connection.
        connection: usize,
    },
    /// Waits until this end has an alternate armed.
    Armed {
        /// Of this connection.
        connection: usize,
    },
    /// Waits until this end has moved to other paths so often.
    Moved {
        /// Of this connection.
        connection: usize,
        /// Since the beginning.
        times: u32,
    },
    /// Takes note of the time.
    Mark,
}

impl ProgramStep {
    pub(super) fn connection(&self) -> Option<usize> {
        match self {
            Self::Send { connection, .. }
            | Self::Receive { connection }
            | Self::Load { connection, .. }
            | Self::Migrate { connection }
            | Self::Armed { connection }
            | Self::Moved { connection, .. } => Some(*connection),
            Self::Compute(_) | Self::Until(_) | Self::Mark => None,
        }
    }
}

/// What became of a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProgramReport {
    /// When its last step was done.
    pub finished_at: Option<SimTime>,
    /// The times of its marks.
    pub marks: Vec<SimTime>,
    /// Orders that were carried out, and those that were answered with a typed error.
    pub obeyed: u32,
    /// See [`Self::obeyed`].
    pub refused: u32,
}

/// A program that runs.
pub(super) struct ProgramRun {
    steps: Vec<ProgramStep>,
    next: usize,
    /// Nothing is done before.
    ready_at: SimTime,
    /// Messages that have come and were not yet waited for, by connection.
    inbox: BTreeMap<usize, u64>,
    /// The end of each of its connections that is its own.
    ends: BTreeMap<usize, usize>,
    /// The longest message that it sends from each of them.
    longest: BTreeMap<usize, u32>,
    pub(super) report: ProgramReport,
}

impl ProgramRun {
    /// # Errors
    /// If it speaks of connections that do not end at its host.
    pub(super) fn new(program: &HostProgram, connections: &[ConnectionPlan]) -> Result<Self, TransportSetupError> {
        let (mut ends, mut longest) = (BTreeMap::new(), BTreeMap::new());
        for step in &program.steps {
            let Some(number) = step.connection() else { continue };
            let plan = connections
                .get(number)
                .ok_or(TransportSetupError::OutOfRange("programs: connections that there are"))?;
            let side = plan.ends.iter().position(|end| end.host == program.host);
            let side = side.ok_or(TransportSetupError::OutOfRange("programs: connections of their own host"))?;
            let end = 2 * number + side;
            ends.insert(number, end);
            if let ProgramStep::Send { length, .. } = *step {
                if length > MAX_MESSAGE_BYTES {
                    return Err(TransportSetupError::OutOfRange("length: at most 1 MiB"));
                }
                let longest: &mut u32 = longest.entry(end).or_default();
                *longest = length.max(*longest);
            }
        }
        Ok(Self {
            steps: program.steps.clone(),
            next: 0,
            ready_at: SimTime::ZERO,
            inbox: BTreeMap::new(),
            ends,
            longest,
            report: ProgramReport::default(),
        })
    }

    /// The ends that it has to do with.
    pub(super) fn ends(&self) -> impl Iterator<Item = usize> + '_ {
        self.ends.values().copied()
    }

    /// The longest message that it sends from an end.
    pub(super) fn longest_from(&self, end: usize) -> u32 {
        self.longest.get(&end).copied().unwrap_or(0)
    }

    /// A message has come over a connection.
    pub(super) fn deliver(&mut self, connection: usize) {
        *self.inbox.entry(connection).or_default() += 1;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.report.finished_at.is_some()
    }

    /// What is to be done now, with the end that it concerns; `is_so` tells whether an end is as it is waited for.
    pub(super) fn poll(&mut self, now: SimTime, is_so: impl Fn(usize, ProgramStep) -> bool) -> ProgramAction {
        loop {
            if self.ready_at > now {
                return ProgramAction::WaitUntil(self.ready_at);
            }
            let Some(step) = self.steps.get(self.next).copied() else {
                self.report.finished_at.get_or_insert(now);
                return ProgramAction::Wait;
            };
            let end = step.connection().map_or(0, |connection| self.ends[&connection]);
            match step {
                ProgramStep::Compute(span) => self.ready_at = now + span,
                ProgramStep::Until(time) => self.ready_at = time,
                ProgramStep::Mark => self.report.marks.push(now),
                ProgramStep::Receive { connection } => {
                    let Some(waiting) = self.inbox.get_mut(&connection).filter(|waiting| **waiting > 0) else {
                        return ProgramAction::Wait;
                    };
                    *waiting -= 1;
                }
                ProgramStep::Armed { .. } | ProgramStep::Moved { .. } => {
                    if !is_so(end, step) {
                        return ProgramAction::Wait;
                    }
                }
                ProgramStep::Send { .. } | ProgramStep::Load { .. } | ProgramStep::Migrate { .. } => {
                    self.next += 1;
                    return ProgramAction::Do(end, step);
                }
            }
            self.next += 1;
        }
    }

    /// How an order went.
    pub(super) fn note<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.report.obeyed += 1,
            Err(_) => self.report.refused += 1,
        }
    }
}

/// What the driver of a program must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgramAction {
    /// This, at this end.
    Do(usize, ProgramStep),
    /// Wake it then.
    WaitUntil(SimTime),
    /// Wake it when something happens at one of its ends.
    Wait,
}
