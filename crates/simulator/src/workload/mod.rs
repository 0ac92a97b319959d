//! Workloads: what each rank computes, sends and receives, and in which order.
//!
//! In: a GOAL schedule, Chakra execution traces, or the description of a training step. Out: a [`Workload`], which an executor runs
//! on the flows of the simulated fabric. An operation starts when those that it requires have completed, and those that it
//! requires to have started have started. Parsers accept any text: they return a workload or an error with its line, and need no
//! more memory than [`MAX_OPERATIONS`] operations.

mod chakra;
mod chakra_node;
mod chakra_protobuf;
mod executor;
mod goal;
mod group_step;
mod training;

use std::collections::BTreeMap;
use std::fmt;

use units::SimSpan;

pub use chakra::parse_chakra;
pub(crate) use executor::{MessageRequest, WorkloadExecutor};
pub use executor::{RankFinish, StalledOperation, WorkloadSummary};
pub use goal::parse_goal;
pub use group_step::WorkloadCollective;
pub use training::{GradientOverlap, TrainingError, TrainingParameters, training_workload};

/// The most operations of a workload, of all ranks together.
pub const MAX_OPERATIONS: usize = 1 << 24;
/// The most ranks.
pub const MAX_RANKS: u32 = 1 << 20;
/// The most bytes of a message.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 38;
/// The longest computation.
pub const MAX_COMPUTE_PICOS: u64 = 1 << 60;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadAction {
    /// Computes; computations of one rank on one processor follow each other.
    Compute {
        /// For so long.
        time: SimSpan,
        /// The processor.
        processor: u32,
    },
    /// Sends a message; completes when the adapter has sent it.
    Send {
        /// The receiver.
        to: u32,
        /// Its length.
        bytes: u64,
        /// Its tag.
        tag: u32,
    },
    /// Receives a message; messages of one sender and tag match in the order of their sends.
    Receive {
        /// The sender.
        from: u32,
        /// Its tag.
        tag: u32,
        /// The most bytes that it may have, if the file says so.
        bytes: Option<u64>,
    },
    /// Takes part in an operation of a group. The `n`-th operation of a rank on a group is the same as every other member's.
    Group {
        /// The operation.
        operation: WorkloadCollective,
        /// The group's number.
        group: u32,
        /// Bytes that each member contributes: its whole vector, or its part of an all-gather.
        bytes: u64,
    },
}

/// One operation of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadOperation {
    /// What it does.
    pub action: WorkloadAction,
    /// Where it was read: a line of the file, or its number.
    pub line: u32,
    /// Operations of the same rank that must have completed.
    pub after: Vec<u32>,
    /// Operations of the same rank that must have started.
    pub after_start: Vec<u32>,
}

impl WorkloadOperation {
    /// An operation that waits for nothing.
    pub fn new(action: WorkloadAction, line: u32) -> Self {
        Self { action, line, after: Vec::new(), after_start: Vec::new() }
    }
}

/// The operations of all ranks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Workload {
    /// By rank.
    pub ranks: Vec<Vec<WorkloadOperation>>,
    /// Groups: their members, in the order of the group.
    pub groups: Vec<Vec<u32>>,
}

impl Workload {
    /// Operations of all ranks.
    pub fn operations(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// Bytes of all messages that are written out; those of group operations are not.
    pub fn message_bytes(&self) -> u128 {
        let bytes = |operation: &WorkloadOperation| match operation.action {
            WorkloadAction::Send { bytes, .. } => u128::from(bytes),
            _ => 0,
        };
        self.ranks.iter().flatten().map(bytes).sum()
    }

    /// Rejects operations of a group that differ among its members. The `n`-th of a rank is the `n`-th in its file.
    fn check_groups(&self) -> Result<(), (usize, WorkloadError)> {
        let mut known: BTreeMap<(u32, u32), (WorkloadCollective, u64, usize, u32)> = BTreeMap::new();
        for (rank, operations) in self.ranks.iter().enumerate() {
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for own in operations {
                let WorkloadAction::Group { operation, group, bytes } = own.action else { continue };
                let number = counts.entry(group).or_insert(0);
                let first = *known.entry((group, *number)).or_insert((operation, bytes, rank, own.line));
                *number += 1;
                if (first.0, first.1) != (operation, bytes) {
                    let message = format!(
                        "operation {number} of this process group is {operation:?} of {bytes} bytes here, and {:?} of {} bytes \
                         in line {} of rank {}",
                        first.0, first.1, first.3, first.2
                    );
                    return Err((rank, WorkloadError::new(own.line, message)));
                }
            }
        }
        Ok(())
    }

    /// Rejects operations that wait for each other in a circle.
    fn check_order(&self) -> Result<(), WorkloadError> {
        for operations in &self.ranks {
            if let Some(line) = first_in_circle(operations) {
                return Err(WorkloadError::new(
                    line,
                    "this operation waits for itself, through others that require it",
                ));
            }
        }
        Ok(())
    }
}

/// The line of an operation that can never start; none if all can.
fn first_in_circle(operations: &[WorkloadOperation]) -> Option<u32> {
    let mut waiting: Vec<u32> = operations.iter().map(|op| (op.after.len() + op.after_start.len()) as u32).collect();
    let mut dependents = vec![Vec::new(); operations.len()];
    for (at, operation) in operations.iter().enumerate() {
        for on in operation.after.iter().chain(&operation.after_start) {
            dependents[*on as usize].push(at as u32);
        }
    }
    let mut free: Vec<u32> = (0..operations.len() as u32).filter(|at| waiting[*at as usize] == 0).collect();
    let mut done = 0;
    while let Some(at) = free.pop() {
        done += 1;
        for dependent in &dependents[at as usize] {
            waiting[*dependent as usize] -= 1;
            if waiting[*dependent as usize] == 0 {
                free.push(*dependent);
            }
        }
    }
    if done == operations.len() {
        return None;
    }
    waiting.iter().position(|count| *count > 0).map(|at| operations[at].line)
}

/// Why a text is not a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError {
    /// The line, or the message of a file in protobuf form, from 1.
    pub line: u32,
    /// What is wrong.
    pub message: String,
    /// What is counted: `line` or `message`.
    counted: &'static str,
}

impl WorkloadError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into(), counted: "line" }
    }

    /// The same in a file whose messages are counted.
    fn in_message(self) -> Self {
        Self { counted: "message", ..self }
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.counted, self.line, self.message)
    }
}

impl std::error::Error for WorkloadError {}
