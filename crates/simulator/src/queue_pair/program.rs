//! The program of a host, one step after another: compute, send, wait for messages, load and migrate paths. It models applications, and
//! users who manage paths by hand.
//!
//! In: messages delivered to the host, and the time. Out: the next step, as soon as it can be done.

use std::collections::BTreeMap;

use units::SimTime;

use super::parameters::{ConnectionPlan, MAX_MESSAGE_BYTES};
use super::program_step::{HostProgram, ProgramStep};
use super::setup_error::TransportSetupError;

/// The report of a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProgramReport {
    /// When the last step was done.
    pub finished_at: Option<SimTime>,
    /// The times of the marks.
    pub marks: Vec<SimTime>,
    /// Path commands that the queue pair accepted.
    pub accepted: u32,
    /// Path commands that it rejected with an error.
    pub rejected: u32,
}

/// A running program.
pub(super) struct ProgramRun {
    steps: Vec<ProgramStep>,
    next: usize,
    /// The next step starts no earlier.
    ready_at: SimTime,
    /// Delivered messages that no step has waited for, by connection.
    inbox: BTreeMap<usize, u64>,
    /// The program's own end of each connection.
    ends: BTreeMap<usize, usize>,
    /// The longest message that it sends from each end.
    longest: BTreeMap<usize, u32>,
    pub(super) report: ProgramReport,
}

impl ProgramRun {
    /// # Errors
    /// If a step names a connection that does not end at the host.
    pub(super) fn new(program: &HostProgram, connections: &[ConnectionPlan]) -> Result<Self, TransportSetupError> {
        let (mut ends, mut longest) = (BTreeMap::new(), BTreeMap::new());
        for step in &program.steps {
            let Some(number) = step.connection() else { continue };
            let plan = connections
                .get(number)
                .ok_or(TransportSetupError::OutOfRange("programs: every step must name an existing connection"))?;
            let side = plan.ends.iter().position(|end| end.host == program.host);
            let side = side.ok_or(TransportSetupError::OutOfRange(
                "programs: every step must name a connection of its own host",
            ))?;
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

    /// The ends that the program uses.
    pub(super) fn ends(&self) -> impl Iterator<Item = usize> + '_ {
        self.ends.values().copied()
    }

    /// The longest message that it sends from an end.
    pub(super) fn longest_from(&self, end: usize) -> u32 {
        self.longest.get(&end).copied().unwrap_or(0)
    }

    /// A message was delivered over a connection.
    pub(super) fn deliver(&mut self, connection: usize) {
        *self.inbox.entry(connection).or_default() += 1;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.report.finished_at.is_some()
    }

    /// The next step, with its end; `is_reached` tells whether an end has reached the state that a step waits for.
    pub(super) fn poll(&mut self, now: SimTime, is_reached: impl Fn(usize, ProgramStep) -> bool) -> ProgramAction {
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
                ProgramStep::WaitArmed { .. } | ProgramStep::WaitMigrations { .. } => {
                    if !is_reached(end, step) {
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

    /// Counts the outcome of a path command.
    pub(super) fn note<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.report.accepted += 1,
            Err(_) => self.report.rejected += 1,
        }
    }
}

/// What the driver must do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgramAction {
    /// Do this step at this end.
    Do(usize, ProgramStep),
    /// Poll again at this time.
    WaitUntil(SimTime),
    /// Poll again after an event at one of the program's ends.
    Wait,
}
