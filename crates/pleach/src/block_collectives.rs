//! Collectives in which ranks contribute or get different parts of a vector: reduce-scatter, scans, gathers, scatters and alltoall.
//!
//! Counts are elements, one per rank, and the same at all ranks. Aggregation nodes do not do these operations: hosts do them among
//! themselves, and the ranks of a host in shared memory.

use protocol::collective::{CollectiveOperation, ScanExtent};
use reduce::{Operator, ReductionKind};
use units::Rank;

use crate::block_operation::BlockCall;
use crate::block_operation::BlockLengths::{self, Equal};
use crate::communicator::{Communicator, check_multiple, explained_kind, plain_kind};
use crate::datatype::Datatype;
use crate::error::Error;

impl Communicator {
    /// Reduces the vectors of all ranks element by element; each rank gets one of as many equal blocks of the result.
    ///
    /// Floats are reduced in an order that is the same in every run on the same hosts, and so are the bits of the result.
    ///
    /// # Errors
    /// If the operator is undefined for the type, the input is not as long as the results of all ranks, a rank is lost, or the ranks call
    /// different operations.
    pub fn reduce_scatter<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
    ) -> Result<(), Error> {
        let (kind, bytes) = (plain_kind::<T>(operator)?, size_of_val(output));
        self.reduce_scatter_bytes(bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output), &Equal(bytes), kind)
    }

    /// [`Self::reduce_scatter`] with blocks of different lengths: rank `r` gets `counts[r]` elements.
    ///
    /// # Errors
    /// As [`Self::reduce_scatter`], and if there is not one count per rank.
    pub fn reduce_scatter_v<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        operator: Operator,
    ) -> Result<(), Error> {
        let (kind, lengths) = (plain_kind::<T>(operator)?, self.lengths::<T>(counts)?);
        self.reduce_scatter_bytes(bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output), &lengths, kind)
    }

    /// Each rank gets the reduction of its own vector and those of the ranks before it.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn scan<T: Datatype>(&self, vector: &mut [T], operator: Operator) -> Result<(), Error> {
        self.scan_bytes(bytemuck::cast_slice_mut(vector), plain_kind::<T>(operator)?)
    }

    /// Each rank gets the reduction of the vectors of the ranks before it. The vector of rank 0 stays unchanged.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn exclusive_scan<T: Datatype>(&self, vector: &mut [T], operator: Operator) -> Result<(), Error> {
        self.exclusive_scan_bytes(bytemuck::cast_slice_mut(vector), plain_kind::<T>(operator)?)
    }

    /// Copies the vectors of all ranks to all ranks, one after the other.
    ///
    /// # Errors
    /// If the output is not as long as the inputs of all ranks, a rank is lost, or the ranks call different operations.
    pub fn all_gather<T: Datatype>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.all_gather_blocks(input, output, Equal(size_of_val(input)))
    }

    /// [`Self::all_gather`] of vectors of different lengths: rank `r` contributes `counts[r]` elements.
    ///
    /// # Errors
    /// As [`Self::all_gather`], and if there is not one count per rank.
    pub fn all_gather_v<T: Datatype>(&self, input: &[T], output: &mut [T], counts: &[usize]) -> Result<(), Error> {
        self.all_gather_blocks(input, output, self.lengths::<T>(counts)?)
    }

    /// Copies the vectors of all ranks to the root, one after the other. The output of other ranks stays unchanged, and may be empty.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn gather<T: Datatype>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Error> {
        self.gather_blocks(input, output, Equal(size_of_val(input)), root)
    }

    /// [`Self::gather`] of vectors of different lengths: rank `r` contributes `counts[r]` elements.
    ///
    /// # Errors
    /// As [`Self::all_gather_v`].
    pub fn gather_v<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<(), Error> {
        self.gather_blocks(input, output, self.lengths::<T>(counts)?, root)
    }

    /// Copies to each rank one of as many equal blocks of the root's input. The input of other ranks is not used, and may be empty.
    ///
    /// # Errors
    /// If the root's input is not as long as the outputs of all ranks, a rank is lost, or the ranks call different operations.
    pub fn scatter<T: Datatype>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Error> {
        let bytes = size_of_val(output);
        self.scatter_blocks(input, output, Equal(bytes), root)
    }

    /// [`Self::scatter`] of blocks of different lengths: rank `r` gets `counts[r]` elements.
    ///
    /// # Errors
    /// As [`Self::scatter`], and if there is not one count per rank.
    pub fn scatter_v<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<(), Error> {
        self.scatter_blocks(input, output, self.lengths::<T>(counts)?, root)
    }

    /// Copies the `r`-th of equal blocks of the input to rank `r`; the output gets the blocks of all ranks for this one, in rank order.
    ///
    /// # Errors
    /// If input and output differ in length, or the ranks do not divide it, a rank is lost, or the ranks call different operations.
    pub fn all_to_all<T: Datatype>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let ranks = self.size() as usize;
        if input.len() != output.len() || !input.len().is_multiple_of(ranks) {
            let (input, output) = (input.len(), output.len());
            return Err(Error::invalid(format!(
                "input of {input} and output of {output} elements are not {ranks} equal blocks"
            )));
        }
        let call =
            BlockCall { collective: CollectiveOperation::AllToAll, lengths: Equal(size_of_val(input) / ranks) };
        let result = self.inner().run_blocks(call, bytemuck::cast_slice(input).to_vec())?;
        store(&result, output)
    }

    /// [`Self::scan`] with element type and operator chosen at run time.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn scan_bytes(&self, bytes: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        let result = self.inner().run_blocks(scan_call(bytes, kind, ScanExtent::Inclusive)?, bytes.to_vec())?;
        store(&result, bytes)
    }

    /// [`Self::exclusive_scan`] with element type and operator chosen at run time.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn exclusive_scan_bytes(&self, bytes: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        let result = self.inner().run_blocks(scan_call(bytes, kind, ScanExtent::Exclusive)?, bytes.to_vec())?;
        if self.rank() == 0 { Ok(()) } else { store(&result, bytes) }
    }

    /// [`Self::reduce_scatter_v`] with element type and operator chosen at run time, and counts in bytes.
    ///
    /// # Errors
    /// As [`Self::reduce_scatter_v`].
    pub fn reduce_scatter_v_bytes(
        &self,
        input: &[u8],
        output: &mut [u8],
        byte_counts: &[usize],
        kind: ReductionKind,
    ) -> Result<(), Error> {
        self.reduce_scatter_bytes(input, output, &self.lengths::<u8>(byte_counts)?, kind)
    }

    fn reduce_scatter_bytes(
        &self,
        input: &[u8],
        output: &mut [u8],
        lengths: &BlockLengths,
        kind: ReductionKind,
    ) -> Result<(), Error> {
        self.expect("output", output.len(), lengths.of(self.rank()))?;
        let call = self.reduce_scatter_call(input, lengths.clone(), kind)?;
        let result = self.inner().run_blocks(call, input.to_vec())?;
        store(&result, output)
    }

    /// A reduce-scatter, after its arguments were checked.
    pub(crate) fn reduce_scatter_call(
        &self,
        input: &[u8],
        lengths: BlockLengths,
        kind: ReductionKind,
    ) -> Result<BlockCall, Error> {
        self.expect("input", input.len(), lengths.total(self.size() as usize))?;
        for rank in 0..self.size() {
            check_multiple(lengths.of(rank), kind)?;
        }
        Ok(BlockCall { collective: CollectiveOperation::ReduceScatter { kind }, lengths })
    }

    fn all_gather_blocks<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        lengths: BlockLengths,
    ) -> Result<(), Error> {
        self.expect("input", size_of_val(input), lengths.of(self.rank()))?;
        self.expect("output", size_of_val(output), lengths.total(self.size() as usize))?;
        let call = BlockCall { collective: CollectiveOperation::AllGather, lengths };
        let result = self.inner().run_blocks(call, bytemuck::cast_slice(input).to_vec())?;
        store(&result, output)
    }

    fn gather_blocks<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        lengths: BlockLengths,
        root: u32,
    ) -> Result<(), Error> {
        self.expect("input", size_of_val(input), lengths.of(self.rank()))?;
        if root == self.rank() {
            self.expect("output", size_of_val(output), lengths.total(self.size() as usize))?;
        }
        let call = BlockCall { collective: CollectiveOperation::Gather { root: Rank(root) }, lengths };
        let result = self.inner().run_blocks(call, bytemuck::cast_slice(input).to_vec())?;
        if root == self.rank() { store(&result, output) } else { Ok(()) }
    }

    fn scatter_blocks<T: Datatype>(
        &self,
        input: &[T],
        output: &mut [T],
        lengths: BlockLengths,
        root: u32,
    ) -> Result<(), Error> {
        self.expect("output", size_of_val(output), lengths.of(self.rank()))?;
        let input = if root == self.rank() { input } else { &[] };
        if root == self.rank() {
            self.expect("input", size_of_val(input), lengths.total(self.size() as usize))?;
        }
        let call = BlockCall { collective: CollectiveOperation::Scatter { root: Rank(root) }, lengths };
        let result = self.inner().run_blocks(call, bytemuck::cast_slice(input).to_vec())?;
        store(&result, output)
    }

    /// One length per rank, in bytes.
    pub(crate) fn lengths<T: Datatype>(&self, counts: &[usize]) -> Result<BlockLengths, Error> {
        let size = self.size() as usize;
        if counts.len() != size {
            return Err(Error::invalid(format!("{} counts for {size} ranks", counts.len())));
        }
        let bytes = |count: &usize| count.checked_mul(size_of::<T>());
        let lengths: Option<Vec<usize>> = counts.iter().map(bytes).collect();
        let total = |lengths: &Vec<usize>| lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
        let lengths = lengths.filter(|lengths| total(lengths).is_some());
        Ok(BlockLengths::Each(lengths.ok_or_else(|| Error::invalid("the counts are too large"))?.into()))
    }

    pub(crate) fn expect(&self, what: &str, found: usize, expected: usize) -> Result<(), Error> {
        if found == expected {
            return Ok(());
        }
        Err(Error::invalid(format!("{what} of {found} bytes, expected {expected} bytes")))
    }

    /// Explains how a reduce-scatter of vectors of so many bytes would be done between hosts, and why.
    pub fn explain_reduce_scatter(&self, bytes: usize, operator: Operator) -> String {
        self.inner().explain(CollectiveOperation::ReduceScatter { kind: explained_kind(operator) }, bytes)
    }

    /// Explains how a scan of vectors of so many bytes would be done between hosts, and why.
    pub fn explain_scan(&self, bytes: usize, operator: Operator) -> String {
        let (kind, extent) = (explained_kind(operator), ScanExtent::Exclusive);
        self.inner().explain(CollectiveOperation::Scan { kind, extent }, bytes)
    }

    /// Explains how an allgather of so many bytes of all ranks together would be done between hosts, and why.
    pub fn explain_all_gather(&self, bytes: usize) -> String {
        self.inner().explain(CollectiveOperation::AllGather, bytes)
    }

    /// Explains how a gather of so many bytes of all ranks together would be done between hosts, and why.
    pub fn explain_gather(&self, bytes: usize) -> String {
        self.inner().explain(CollectiveOperation::Gather { root: Rank(0) }, bytes)
    }

    /// Explains how a scatter of so many bytes of all ranks together would be done between hosts, and why.
    pub fn explain_scatter(&self, bytes: usize) -> String {
        self.inner().explain(CollectiveOperation::Scatter { root: Rank(0) }, bytes)
    }

    /// Explains how an alltoall of so many bytes per rank would be done between hosts, and why.
    pub fn explain_all_to_all(&self, bytes: usize) -> String {
        self.inner().explain(CollectiveOperation::AllToAll, bytes)
    }
}

/// A scan, after its arguments were checked.
pub(crate) fn scan_call(bytes: &[u8], kind: ReductionKind, extent: ScanExtent) -> Result<BlockCall, Error> {
    check_multiple(bytes.len(), kind)?;
    Ok(BlockCall { collective: CollectiveOperation::Scan { kind, extent }, lengths: Equal(bytes.len()) })
}

/// Copies a result, whose length the stages have preserved.
fn store<T: Datatype>(result: &[u8], output: &mut [T]) -> Result<(), Error> {
    let output = bytemuck::cast_slice_mut::<T, u8>(output);
    if result.len() != output.len() {
        return Err(Error::internal(format!("a result of {} bytes, expected {}", result.len(), output.len())));
    }
    output.copy_from_slice(result);
    Ok(())
}
