//! A communicator: ranks that do things together.

use std::sync::Arc;

use protocol::collective::CollectiveOperation;
use reduce::{Operator, ReductionKind, WideFloat};
use units::Rank;

use crate::communicator_inner::CommunicatorInner;
use crate::hierarchical_operation::nothing;
use crate::{Datatype, Error, PacketCounters, Request, ValueLoc};

/// Ranks that do things together. Cheap to clone; all clones are the same communicator.
///
/// Every rank calls the same operations in the same order, as in MPI. An error that comes from others reaches every rank.
#[derive(Clone)]
pub struct Communicator {
    comm: Arc<CommunicatorInner>,
}

/// What a communicator has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommunicatorStatistics {
    /// Operations that ended well.
    pub operations: u64,
    /// Of them within this host alone.
    pub within_host: u64,
    /// Of them through aggregation nodes.
    pub aggregated: u64,
    /// Of them by one who spoke to all at once, with nodes that combined the answers.
    pub multicast: u64,
}

impl Communicator {
    pub(crate) fn new(comm: CommunicatorInner) -> Self {
        Self { comm: Arc::new(comm) }
    }

    pub(crate) fn comm(&self) -> &CommunicatorInner {
        &self.comm
    }

    /// This process's rank, from zero.
    pub fn rank(&self) -> u32 {
        self.comm.me()
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.comm.world_ranks().len() as u32
    }

    /// How many hosts they are on.
    pub fn hosts(&self) -> u32 {
        self.comm.hosts().len() as u32
    }

    /// What it has done so far.
    pub fn statistics(&self) -> CommunicatorStatistics {
        self.comm.statistics()
    }

    /// What this process has seen of packets so far, by cause; of all its communicators.
    pub fn packets(&self) -> PacketCounters {
        self.comm.process().shared.engine().network.counters()
    }

    /// Nobody leaves before all have come.
    ///
    /// # Errors
    /// If a rank is lost, or the ranks do not all call this.
    pub fn barrier(&self) -> Result<(), Error> {
        self.comm.run(CollectiveOperation::Barrier, &mut [])
    }

    /// All get what the root has.
    ///
    /// # Errors
    /// If a rank is lost, or the ranks do not call the same.
    pub fn broadcast<T: Datatype>(&self, vector: &mut [T], root: u32) -> Result<(), Error> {
        self.comm.run(CollectiveOperation::Broadcast { root: Rank(root) }, bytemuck::cast_slice_mut(vector))
    }

    /// All get the fold of all vectors, element by element.
    ///
    /// Floats are folded in an order that is the same in every run on the same hosts, so that the bits are too.
    ///
    /// # Errors
    /// If type and operator do not go together, a rank is lost, or the ranks do not call the same.
    pub fn all_reduce<T: Datatype>(&self, vector: &mut [T], operator: Operator) -> Result<(), Error> {
        let kind = plain_kind::<T>(operator)?;
        self.all_reduce_bytes(bytemuck::cast_slice_mut(vector), kind)
    }

    /// The root gets the fold of all vectors; the others' stay as they are.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce<T: Datatype>(&self, vector: &mut [T], operator: Operator, root: u32) -> Result<(), Error> {
        let kind = plain_kind::<T>(operator)?;
        self.reduce_bytes(bytemuck::cast_slice_mut(vector), kind, root)
    }

    /// All get the sum of all vectors, rounded once: the bits depend neither on the order nor on where the ranks are.
    ///
    /// # Errors
    /// As [`Self::all_reduce`]; there are exact sums of `f32` and `f64`.
    pub fn all_reduce_exact<T: Datatype>(&self, vector: &mut [T]) -> Result<(), Error> {
        let float = WideFloat::of(T::TYPE).ok_or_else(|| Error::argument("exact sums are of f32 and f64"))?;
        let kind =
            ReductionKind::new(float.wide(), Operator::Sum).map_err(|error| Error::argument(error.to_string()))?;
        let mut wide = vec![0; vector.len() * kind.element_size()];
        float.widen(bytemuck::cast_slice(vector), &mut wide).map_err(Error::broken)?;
        self.all_reduce_bytes(&mut wide, kind)?;
        float.round(&wide, bytemuck::cast_slice_mut(vector)).map_err(Error::broken)
    }

    /// All get, element by element, the smallest or largest value and where it was found, with the smaller index if several are
    /// equal.
    ///
    /// # Errors
    /// As [`Self::all_reduce`]; the operator must be `MinLoc` or `MaxLoc`.
    pub fn all_reduce_located<T: Datatype>(
        &self,
        vector: &mut [ValueLoc<T>],
        operator: Operator,
    ) -> Result<(), Error> {
        if !operator.is_located() {
            return Err(Error::argument(format!("{operator} does not find places")));
        }
        let kind = ReductionKind::new(T::TYPE, operator).map_err(|error| Error::argument(error.to_string()))?;
        let mut bytes = vec![0; vector.len() * ValueLoc::<T>::SIZE];
        for (located, place) in vector.iter().zip(bytes.chunks_exact_mut(ValueLoc::<T>::SIZE)) {
            located.store(place);
        }
        self.all_reduce_bytes(&mut bytes, kind)?;
        for (located, place) in vector.iter_mut().zip(bytes.chunks_exact(ValueLoc::<T>::SIZE)) {
            *located = ValueLoc::load(place);
        }
        Ok(())
    }

    /// [`Self::all_reduce`] of a kind that is known at run time only.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_reduce_bytes(&self, bytes: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check_whole(bytes, kind)?;
        self.comm.run(CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// [`Self::reduce`] of a kind that is known at run time only.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce_bytes(&self, bytes: &mut [u8], kind: ReductionKind, root: u32) -> Result<(), Error> {
        check_whole(bytes, kind)?;
        let collective = CollectiveOperation::Reduce { root: Rank(root), kind };
        if root == self.rank() {
            self.comm.run(collective, bytes)
        } else {
            self.comm.run(collective, &mut bytes.to_vec())
        }
    }

    /// Starts an [`Self::all_reduce`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_all_reduce<'v, T: Datatype>(
        &self,
        vector: &'v mut [T],
        operator: Operator,
    ) -> Result<Request<'v, T>, Error> {
        let kind = plain_kind::<T>(operator)?;
        self.start(CollectiveOperation::AllReduce { kind }, vector)
    }

    /// Starts an [`Self::all_reduce_bytes`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_all_reduce_bytes<'v>(
        &self,
        bytes: &'v mut [u8],
        kind: ReductionKind,
    ) -> Result<Request<'v, u8>, Error> {
        check_whole(bytes, kind)?;
        self.start(CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// Starts a [`Self::reduce_bytes`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_reduce_bytes<'v>(
        &self,
        bytes: &'v mut [u8],
        kind: ReductionKind,
        root: u32,
    ) -> Result<Request<'v, u8>, Error> {
        check_whole(bytes, kind)?;
        let request = self.start(CollectiveOperation::Reduce { root: Rank(root), kind }, bytes)?;
        Ok(if root == self.rank() { request } else { request.without_result() })
    }

    /// Starts a [`Self::reduce`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_reduce<'v, T: Datatype>(
        &self,
        vector: &'v mut [T],
        operator: Operator,
        root: u32,
    ) -> Result<Request<'v, T>, Error> {
        let kind = plain_kind::<T>(operator)?;
        let request = self.start(CollectiveOperation::Reduce { root: Rank(root), kind }, vector)?;
        Ok(if root == self.rank() { request } else { request.without_result() })
    }

    /// Starts a [`Self::broadcast`].
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    pub fn start_broadcast<'v, T: Datatype>(&self, vector: &'v mut [T], root: u32) -> Result<Request<'v, T>, Error> {
        self.start(CollectiveOperation::Broadcast { root: Rank(root) }, vector)
    }

    /// Starts a [`Self::barrier`].
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn start_barrier(&self) -> Result<Request<'static, u8>, Error> {
        self.start(CollectiveOperation::Barrier, &mut [])
    }

    fn start<'v, T: Datatype>(
        &self,
        collective: CollectiveOperation,
        vector: &'v mut [T],
    ) -> Result<Request<'v, T>, Error> {
        let bytes = bytemuck::cast_slice::<T, u8>(vector).to_vec();
        let id = self.comm.start(collective, bytes)?;
        Ok(Request::new(self.clone(), id, vector))
    }

    pub(crate) fn is_over(&self, id: u64) -> bool {
        self.comm.is_over(id)
    }

    pub(crate) fn finish(&self, id: u64) -> Result<Vec<u8>, Error> {
        self.comm.finish(id)
    }

    /// How a broadcast of so many bytes would be done between hosts, and why.
    pub fn explain_broadcast(&self, bytes: usize) -> String {
        self.comm.explain(CollectiveOperation::Broadcast { root: Rank(0) }, bytes)
    }

    /// How a barrier would be done between hosts, and why.
    pub fn explain_barrier(&self) -> String {
        self.comm.explain(CollectiveOperation::Barrier, 0)
    }

    /// How an allreduce of so many bytes would be done between hosts, and why.
    pub fn explain(&self, bytes: usize, operator: Operator) -> String {
        let kind = ReductionKind::new(reduce::ElementType::F64, operator).unwrap_or(nothing());
        self.comm.explain(CollectiveOperation::AllReduce { kind }, bytes)
    }
}

fn plain_kind<T: Datatype>(operator: Operator) -> Result<ReductionKind, Error> {
    if operator.is_located() {
        return Err(Error::argument(format!("{operator} is for located values: use all_reduce_located")));
    }
    ReductionKind::new(T::TYPE, operator).map_err(|error| Error::argument(error.to_string()))
}

fn check_whole(bytes: &[u8], kind: ReductionKind) -> Result<(), Error> {
    if kind.is_whole(bytes.len()) {
        return Ok(());
    }
    let size = kind.element_size();
    Err(Error::argument(format!("{} bytes are no whole number of {size}-byte elements", bytes.len())))
}
