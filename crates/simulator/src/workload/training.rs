//! A training step of a large model: data-, tensor- and pipeline-parallel.
//!
//! In: the model's size, its layers, the ranks in each dimension, the time of a layer. Out: a [`Workload`]. Ranks of one tensor group
//! are neighbours; then come the data groups, then the stages of the pipeline. Every stage computes its layers forward for all
//! micro-batches, then backward; tensor groups add up activations after each layer; stages pass activations on; data groups add up
//! the gradients of each layer, while later layers still compute, or at the end.

use std::fmt;

use units::SimSpan;

use super::group_step::WorkloadCollective;
use super::{MAX_OPERATIONS, Workload, WorkloadAction, WorkloadOperation};

/// When gradients are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GradientOverlap {
    /// Layer by layer, while the layers before it still compute.
    WithBackward,
    /// When the backward pass is over.
    AtTheEnd,
}

/// A training step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainingParameters {
    /// Parameters of the model.
    pub parameters: u64,
    /// Bytes of a gradient.
    pub gradient_bytes: u32,
    /// Layers of the model; a multiple of the pipeline's stages.
    pub layers: u32,
    /// Ranks with the same parameters.
    pub data: u32,
    /// Ranks that share each layer.
    pub tensor: u32,
    /// Stages.
    pub pipeline: u32,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// Activations of one micro-batch between two layers.
    pub activation_bytes: u64,
    /// Time of a layer for one micro-batch, forward.
    pub forward: SimSpan,
    /// Backward.
    pub backward: SimSpan,
    /// When gradients are added up.
    pub overlap: GradientOverlap,
    /// Steps, one after the other.
    pub steps: u32,
}

/// Why the numbers do not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrainingError {
    /// The layers cannot be divided among the stages.
    UnevenStages {
        /// Layers.
        layers: u32,
        /// Stages.
        pipeline: u32,
    },
    /// More operations than a workload may have.
    TooLarge {
        /// How many.
        operations: u128,
    },
}

impl fmt::Display for TrainingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnevenStages { layers, pipeline } => {
                write!(f, "{layers} layers cannot be divided among {pipeline} stages; choose a multiple")
            }
            Self::TooLarge { operations } => {
                write!(
                    f,
                    "the step has {operations} operations, and at most {MAX_OPERATIONS} are possible; choose fewer layers or micro-batches"
                )
            }
        }
    }
}

impl std::error::Error for TrainingError {}

impl TrainingParameters {
    /// Ranks of the job.
    pub fn ranks(&self) -> u64 {
        u64::from(self.data) * u64::from(self.tensor) * u64::from(self.pipeline)
    }

    /// Bytes of the gradients of one layer on one rank.
    pub fn layer_gradient_bytes(&self) -> u64 {
        let of_layer = self.parameters / u64::from(self.layers) / u64::from(self.tensor);
        of_layer * u64::from(self.gradient_bytes)
    }

    fn operations(&self) -> u128 {
        let layers = u128::from(self.layers / self.pipeline);
        let per_layer = 2 * u128::from(self.micro_batches) * (1 + u128::from(self.tensor > 1));
        let per_rank = layers * (per_layer + 1) + 4 * u128::from(self.micro_batches);
        per_rank * u128::from(self.ranks()) * u128::from(self.steps)
    }
}

/// The workload of a training step.
///
/// # Errors
/// If the layers cannot be divided, or there are too many operations.
pub fn training_workload(step: &TrainingParameters) -> Result<Workload, TrainingError> {
    let (layers, pipeline) = (step.layers, step.pipeline);
    if !layers.is_multiple_of(pipeline) {
        return Err(TrainingError::UnevenStages { layers, pipeline });
    }
    let operations = step.operations();
    if operations > MAX_OPERATIONS as u128 {
        return Err(TrainingError::TooLarge { operations });
    }
    let groups = TrainingGroups { tensor: step.tensor, data: step.data };
    let mut workload = Workload::default();
    for stage in 0..pipeline {
        for replica in 0..step.data {
            workload.groups.push((0..step.tensor).map(|shard| groups.rank(stage, replica, shard)).collect());
        }
        for shard in 0..step.tensor {
            workload.groups.push((0..step.data).map(|replica| groups.rank(stage, replica, shard)).collect());
        }
    }
    for stage in 0..pipeline {
        for replica in 0..step.data {
            for shard in 0..step.tensor {
                let mut rank =
                    TrainingRank { step, groups, stage, replica, shard, operations: Vec::new(), last: None };
                (0..step.steps).for_each(|number| rank.step(number));
                workload.ranks.push(rank.operations);
            }
        }
    }
    Ok(workload)
}

/// The numbering of ranks and groups.
#[derive(Clone, Copy)]
struct TrainingGroups {
    tensor: u32,
    data: u32,
}

impl TrainingGroups {
    fn rank(self, stage: u32, replica: u32, shard: u32) -> u32 {
        (stage * self.data + replica) * self.tensor + shard
    }

    fn tensor_group(self, stage: u32, replica: u32) -> u32 {
        stage * (self.data + self.tensor) + replica
    }

    fn data_group(self, stage: u32, shard: u32) -> u32 {
        stage * (self.data + self.tensor) + self.data + shard
    }
}

/// The operations of one rank while they are written.
struct TrainingRank<'t> {
    step: &'t TrainingParameters,
    groups: TrainingGroups,
    stage: u32,
    replica: u32,
    shard: u32,
    operations: Vec<WorkloadOperation>,
    /// The operation that the next computation waits for.
    last: Option<u32>,
}

impl TrainingRank<'_> {
    fn step(&mut self, number: u32) {
        let batches = self.step.micro_batches;
        let layers = self.step.layers / self.step.pipeline;
        let tag = |batch: u32, way: u32| ((number * batches + batch) << 1) | way;
        for batch in 0..batches {
            self.receive(self.stage.checked_sub(1), tag(batch, 0));
            (0..layers).for_each(|_| self.layer(self.step.forward));
            self.send(Some(self.stage + 1).filter(|next| *next < self.step.pipeline), tag(batch, 0));
        }
        let mut gradients = Vec::new();
        for batch in (0..batches).rev() {
            self.receive(Some(self.stage + 1).filter(|next| *next < self.step.pipeline), tag(batch, 1));
            for _ in 0..layers {
                self.layer(self.step.backward);
                if batch == 0 {
                    gradients.extend(self.last);
                }
            }
            self.send(self.stage.checked_sub(1), tag(batch, 1));
        }
        self.add_up(&gradients);
    }

    fn push(&mut self, action: WorkloadAction, after: Option<u32>) -> u32 {
        let number = self.operations.len() as u32;
        let mut operation = WorkloadOperation::new(action, number + 1);
        operation.after.extend(after);
        self.operations.push(operation);
        number
    }

    /// One layer of one micro-batch.
    fn layer(&mut self, time: SimSpan) {
        self.last = Some(self.push(WorkloadAction::Compute { time, processor: 0 }, self.last));
        if self.step.tensor > 1 {
            let group = self.groups.tensor_group(self.stage, self.replica);
            let action = WorkloadAction::Group {
                operation: WorkloadCollective::AllReduce,
                group,
                bytes: self.step.activation_bytes,
            };
            self.last = Some(self.push(action, self.last));
        }
    }

    /// Waits for the activations or their gradients from another stage.
    fn receive(&mut self, stage: Option<u32>, tag: u32) {
        let Some(stage) = stage else { return };
        let from = self.groups.rank(stage, self.replica, self.shard);
        let received = self.push(WorkloadAction::Receive { from, tag, bytes: None }, None);
        // The next computation waits for the message and for the last computation.
        let before = self.last;
        let joined = self.push(WorkloadAction::Compute { time: SimSpan::ZERO, processor: 0 }, Some(received));
        self.operations[joined as usize].after.extend(before);
        self.last = Some(joined);
    }

    fn send(&mut self, stage: Option<u32>, tag: u32) {
        let Some(stage) = stage else { return };
        let to = self.groups.rank(stage, self.replica, self.shard);
        let bytes = self.step.activation_bytes / u64::from(self.step.tensor);
        self.push(WorkloadAction::Send { to, bytes: bytes.max(1), tag }, self.last);
    }

    /// Adds up the gradients of each layer, one layer after the other, as a communication stream does.
    fn add_up(&mut self, gradients: &[u32]) {
        let (group, bytes) = (self.groups.data_group(self.stage, self.shard), self.step.layer_gradient_bytes());
        if self.step.data < 2 {
            return;
        }
        let end = self.last;
        let mut previous = None;
        for computed in gradients {
            let after = match self.step.overlap {
                GradientOverlap::WithBackward => Some(*computed),
                GradientOverlap::AtTheEnd => end,
            };
            let action = WorkloadAction::Group { operation: WorkloadCollective::AllReduce, group, bytes };
            let added = self.push(action, after);
            self.operations[added as usize].after.extend(previous);
            previous = Some(added);
        }
        // The next step needs the new parameters.
        let joined = self.push(WorkloadAction::Compute { time: SimSpan::ZERO, processor: 0 }, previous);
        self.operations[joined as usize].after.extend(end);
        self.last = Some(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn small() -> TrainingParameters {
        TrainingParameters {
            parameters: 8_000_000,
            gradient_bytes: 2,
            layers: 8,
            data: 2,
            tensor: 2,
            pipeline: 2,
            micro_batches: 3,
            activation_bytes: 65_536,
            forward: SimSpan::from_nanos(10_000),
            backward: SimSpan::from_nanos(20_000),
            overlap: GradientOverlap::WithBackward,
            steps: 2,
        }
    }

    #[test]
    fn every_rank_has_its_groups_and_nothing_waits_in_a_circle() {
        let workload = training_workload(&small()).expect("it fits");
        assert_eq!(workload.ranks.len(), 8);
        assert!(workload.check_order().is_ok());
        for (rank, operations) in workload.ranks.iter().enumerate() {
            for operation in operations {
                if let WorkloadAction::Group { group, .. } = operation.action {
                    assert!(workload.groups[group as usize].contains(&(rank as u32)));
                }
            }
        }
        assert!(workload.operations() as u128 <= small().operations());
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let uneven = TrainingParameters { layers: 7, ..small() };
        assert!(training_workload(&uneven).expect_err("7 of 2").to_string().contains("multiple"));
        let huge = TrainingParameters { micro_batches: 1 << 30, ..small() };
        assert!(matches!(training_workload(&huge), Err(TrainingError::TooLarge { .. })));
    }
}
