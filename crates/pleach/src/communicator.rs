//! A communicator: a group of ranks, and the collective operations on it.

use std::sync::Arc;

use bootstrap::JobEnvironment;
use engine::aggregation::TreeEdgeCounters;
use hostmem::team::CollectiveBuffers;
use protocol::collective::CollectiveOperation;
use reduce::{ElementType, Operator, ReductionKind, WideFloat};
use units::{GroupId, Rank};

use crate::communicator_inner::CommunicatorInner;
use crate::datatype::{Datatype, ValueLoc};
use crate::error::{Error, JoinError};
use crate::formation::form;
use crate::hierarchical_operation::barrier_kind;
use crate::job_process::JobProcess;
use crate::settings::Settings;
use crate::statistics::CommunicatorStatistics;

/// A group of ranks. Cheap to clone; all clones are the same communicator.
///
/// All ranks call the same operations in the same order, as in MPI. An error caused by another rank reaches every rank.
///
/// ```
/// use pleach::Operator;
///
/// let world = pleach::join()?;
/// let mut largest = [world.rank()];
/// world.all_reduce(&mut largest, Operator::Max)?;
/// assert_eq!(largest, [world.size() - 1]);
///
/// let mut from_rank_0 = [if world.rank() == 0 { 2.5 } else { 0.0 }; 1000];
/// world.broadcast(&mut from_rank_0, 0)?;
/// assert_eq!(from_rank_0[999], 2.5);
///
/// println!("{}", world.explain(8, Operator::Sum)); // Which algorithm sums 8 bytes, and why.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Communicator {
    inner: Arc<CommunicatorInner>,
}

impl Communicator {
    pub(crate) fn new(inner: CommunicatorInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Joins a job; the communicator of all its ranks.
    pub(crate) fn join(place: JobEnvironment, settings: Settings) -> Result<Self, JoinError> {
        let process = Arc::new(JobProcess::join(place, settings)?);
        let all_ranks = (0..process.table.size()).collect();
        Ok(Self::new(form(&process, GroupId(0), all_ranks)?))
    }

    pub(crate) fn inner(&self) -> &Arc<CommunicatorInner> {
        &self.inner
    }

    /// This process's rank, from zero.
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.inner.world_ranks().len() as u32
    }

    /// The number of hosts that the ranks are on.
    pub fn hosts(&self) -> u32 {
        self.inner.hosts().len() as u32
    }

    /// Counters of this communicator.
    pub fn statistics(&self) -> CommunicatorStatistics {
        self.inner.statistics()
    }

    /// Counters of this process's packets, for all its communicators.
    pub fn packets(&self) -> TreeEdgeCounters {
        self.inner.process().shared.engine().network.counters()
    }

    /// Blocks until every rank has entered the barrier.
    ///
    /// # Errors
    /// If a rank is lost, or the ranks call different operations.
    pub fn barrier(&self) -> Result<(), Error> {
        self.inner.run(CollectiveOperation::Barrier, &mut [])
    }

    /// Copies the root's vector to all ranks.
    ///
    /// # Errors
    /// If a rank is lost, or the ranks call different operations.
    pub fn broadcast<T: Datatype>(&self, vector: &mut [T], root: u32) -> Result<(), Error> {
        self.inner.run(CollectiveOperation::Broadcast { root: Rank(root) }, bytemuck::cast_slice_mut(vector))
    }

    /// Reduces the vectors of all ranks element by element; all ranks get the result.
    ///
    /// Floats are reduced in an order that is the same in every run on the same hosts, and so are the bits of the result.
    ///
    /// # Errors
    /// If the operator is undefined for the type, a rank is lost, or the ranks call different operations.
    pub fn all_reduce<T: Datatype>(&self, vector: &mut [T], operator: Operator) -> Result<(), Error> {
        let kind = plain_kind::<T>(operator)?;
        self.all_reduce_bytes(bytemuck::cast_slice_mut(vector), kind)
    }

    /// Reduces the vectors of all ranks; the root gets the result, the other vectors stay unchanged.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce<T: Datatype>(&self, vector: &mut [T], operator: Operator, root: u32) -> Result<(), Error> {
        let kind = plain_kind::<T>(operator)?;
        self.reduce_bytes(bytemuck::cast_slice_mut(vector), kind, root)
    }

    /// Sums the vectors of all ranks and rounds once: the bits depend neither on the order nor on the placement of the ranks.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if the type is not `f32` or `f64`.
    pub fn all_reduce_exact<T: Datatype>(&self, vector: &mut [T]) -> Result<(), Error> {
        let float = WideFloat::of(T::TYPE).ok_or_else(|| Error::invalid("exact sums exist for f32 and f64 only"))?;
        let kind =
            ReductionKind::new(float.wide(), Operator::Sum).map_err(|error| Error::invalid(error.to_string()))?;
        let mut wide = vec![0; vector.len() * kind.element_size()];
        float.widen(bytemuck::cast_slice(vector), &mut wide).map_err(Error::internal)?;
        self.all_reduce_bytes(&mut wide, kind)?;
        float.round(&wide, bytemuck::cast_slice_mut(vector)).map_err(Error::internal)
    }

    /// Finds, element by element, the smallest or largest value and its index, and the smallest index of equal values; all ranks get
    /// the result.
    ///
    /// # Errors
    /// As [`Self::all_reduce`]; the operator must be `MinLoc` or `MaxLoc`.
    pub fn all_reduce_loc<T: Datatype>(&self, vector: &mut [ValueLoc<T>], operator: Operator) -> Result<(), Error> {
        if !operator.is_located() {
            return Err(Error::invalid(format!("{operator} has no index; use all_reduce")));
        }
        let kind = ReductionKind::new(T::TYPE, operator).map_err(|error| Error::invalid(error.to_string()))?;
        let mut bytes = vec![0; vector.len() * ValueLoc::<T>::SIZE];
        for (pair, bytes) in vector.iter().zip(bytes.chunks_exact_mut(ValueLoc::<T>::SIZE)) {
            pair.store(bytes);
        }
        self.all_reduce_bytes(&mut bytes, kind)?;
        for (pair, bytes) in vector.iter_mut().zip(bytes.chunks_exact(ValueLoc::<T>::SIZE)) {
            *pair = ValueLoc::load(bytes);
        }
        Ok(())
    }

    /// [`Self::all_reduce`] with element type and operator chosen at run time.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_reduce_bytes(&self, bytes: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check_multiple(bytes.len(), kind)?;
        self.inner.run(CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// [`Self::reduce`] with element type and operator chosen at run time.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce_bytes(&self, bytes: &mut [u8], kind: ReductionKind, root: u32) -> Result<(), Error> {
        check_multiple(bytes.len(), kind)?;
        let collective = CollectiveOperation::Reduce { root: Rank(root), kind };
        if root == self.rank() {
            self.inner.run(collective, bytes)
        } else {
            self.inner.run_on(collective, &mut CollectiveBuffers::InputOnly(bytes))
        }
    }

    /// Explains how a broadcast of so many bytes would be done between hosts, and why.
    pub fn explain_broadcast(&self, bytes: usize) -> String {
        self.inner.explain(CollectiveOperation::Broadcast { root: Rank(0) }, bytes)
    }

    /// Explains how a barrier would be done between hosts, and why.
    pub fn explain_barrier(&self) -> String {
        self.inner.explain(CollectiveOperation::Barrier, 0)
    }

    /// Explains how an allreduce of so many bytes would be done between hosts, and why.
    pub fn explain(&self, bytes: usize, operator: Operator) -> String {
        self.inner.explain(CollectiveOperation::AllReduce { kind: explained_kind(operator) }, bytes)
    }
}

/// The kind of a reduction that is only explained.
pub(crate) fn explained_kind(operator: Operator) -> ReductionKind {
    ReductionKind::new(ElementType::F64, operator).unwrap_or(barrier_kind())
}

pub(crate) fn plain_kind<T: Datatype>(operator: Operator) -> Result<ReductionKind, Error> {
    if operator.is_located() {
        return Err(Error::invalid(format!("{operator} needs values with an index; use all_reduce_loc")));
    }
    ReductionKind::new(T::TYPE, operator).map_err(|error| Error::invalid(error.to_string()))
}

pub(crate) fn check_multiple(bytes: usize, kind: ReductionKind) -> Result<(), Error> {
    if kind.is_whole(bytes) {
        return Ok(());
    }
    let size = kind.element_size();
    Err(Error::invalid(format!("{bytes} bytes are not a multiple of the element size of {size} bytes")))
}
