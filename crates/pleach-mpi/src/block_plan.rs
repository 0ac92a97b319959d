//! Calls on blocks: how long the block of each rank is, whether Pleach can do the call, and where the blocks are in the user's memory.
//!
//! In: the arguments of the call. Out: a plan, or the reason why the native MPI does the call. The reason is the same on all ranks,
//! because it follows only from what the standard requires to be the same on all of them: the bytes of a block, the counts of all ranks,
//! the root. Types may differ between ranks, and between the two sides of a call, so every type is taken. What only the root of a gather
//! or a scatter knows decides nothing: the other ranks could not decide alike.

use pleach::BlockLengths;

use crate::abort::abort;
use crate::collective_call::{CollectiveCall, FallbackReason, MpiCollective, RankAndSize};
use crate::mpi_job::MpiJob;
use crate::typed_buffer::TypedBuffer;

/// The leaders of the hosts have the blocks of all their ranks for all ranks in an alltoall: at most so many bytes.
const MAX_ALL_TO_ALL_BYTES: usize = 1 << 30;

/// The blocks of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPlan {
    /// Bytes of a block; the mean, rounded up, if they differ. Zero if all are empty.
    pub(crate) bytes: usize,
    /// Bytes of one element of the receive side, if there is a count for each rank.
    element_bytes: usize,
}

/// The counts of all ranks.
pub(crate) struct BlockCounts {
    pub(crate) blocks: BlockPlan,
    /// Elements of all blocks.
    pub(crate) total: usize,
}

impl BlockPlan {
    /// The plan of a call that copies blocks. No argument is read that does not count at this rank.
    pub(crate) fn of_copies(
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
    ) -> Result<Self, FallbackReason> {
        let sides = CallSides::of(job, call, position)?;
        if call.collective == MpiCollective::AllGatherV {
            return Self::of_all_gather_v(job, call, &sides, position);
        }
        let bytes = sides.decisive()?.bytes();
        let total = bytes.saturating_mul(position.size as usize);
        let most = match call.collective {
            MpiCollective::AllToAll => job.max_bytes.min(MAX_ALL_TO_ALL_BYTES / position.size as usize),
            _ => job.max_bytes,
        };
        if total > most {
            return Err(FallbackReason::TooLarge);
        }
        for other in [sides.send()?, sides.receive()?].into_iter().flatten() {
            if other.bytes() != bytes {
                return Err(sides.contradiction(job, other.bytes(), bytes));
            }
            if other.is_null() {
                return Err(FallbackReason::Argument);
            }
        }
        Ok(Self { bytes, element_bytes: 0 })
    }

    fn of_all_gather_v(
        job: &MpiJob,
        call: &CollectiveCall,
        sides: &CallSides<'_>,
        position: RankAndSize,
    ) -> Result<Self, FallbackReason> {
        if call.counts.displacements == 0 {
            return Err(FallbackReason::Argument);
        }
        let any = sides.received()?;
        let BlockCounts { blocks, .. } = Self::of_counts(job, call, position, any.element_bytes())?;
        if let Some(send) = sides.send()? {
            let own = blocks.length(call, position.rank);
            if send.bytes() != own {
                return Err(sides.contradiction(job, send.bytes(), own));
            }
            if send.is_null() {
                return Err(FallbackReason::Argument);
            }
        }
        if blocks.bytes > 0 && any.is_nowhere() {
            return Err(FallbackReason::Argument);
        }
        Ok(blocks)
    }

    /// The plan of a call with a count for each rank, in elements of so many bytes.
    pub(crate) fn of_counts(
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
        element_bytes: usize,
    ) -> Result<BlockCounts, FallbackReason> {
        if call.counts.counts == 0 {
            return Err(FallbackReason::Argument);
        }
        let mut total = 0_usize;
        for rank in 0..position.size as usize {
            // SAFETY: the user guarantees a count for each rank.
            let count = usize::try_from(unsafe { call.counts.count(rank) }).map_err(|_| FallbackReason::Argument)?;
            total = total.saturating_add(count);
        }
        let bytes = total.saturating_mul(element_bytes);
        if bytes > job.max_bytes {
            return Err(FallbackReason::TooLarge);
        }
        let blocks = Self { bytes: bytes.div_ceil(position.size as usize), element_bytes };
        Ok(BlockCounts { blocks, total })
    }

    /// Bytes of a rank's block.
    pub(crate) fn length(&self, call: &CollectiveCall, rank: u32) -> usize {
        match call.collective.has_counts() {
            // SAFETY: the user guarantees a count for each rank, until the call is complete. None is negative.
            true => (unsafe { call.counts.count(rank as usize) }) as usize * self.element_bytes,
            false => self.bytes,
        }
    }

    /// The lengths of all blocks.
    pub(crate) fn lengths(&self, call: &CollectiveCall, position: RankAndSize) -> BlockLengths {
        match call.collective.has_counts() {
            true => BlockLengths::Each((0..position.size).map(|rank| self.length(call, rank)).collect()),
            false => BlockLengths::Equal(self.bytes),
        }
    }
}

/// Appends this rank's input of a call that copies blocks.
pub(crate) fn load_into(
    job: &MpiJob,
    call: &CollectiveCall,
    position: RankAndSize,
    into: &mut Vec<u8>,
) -> Result<(), pleach::Error> {
    let ranks = position.size as usize;
    let sides = CallSides::of(job, call, position).map_err(internal)?;
    let input = match (call.collective, sides.send().map_err(internal)?) {
        (MpiCollective::Scatter, None) => return Ok(()),
        (MpiCollective::Scatter | MpiCollective::AllToAll, Some(send)) => send.blocks(ranks),
        (_, Some(send)) => send,
        (MpiCollective::AllToAll, None) => sides.received().map_err(internal)?.blocks(ranks),
        (_, None) => sides.received_block(position.rank)?,
    };
    // SAFETY: the user guarantees that the elements are there.
    unsafe { input.load_into(job, into) }
}

/// Stores the result of a call that copies blocks in the user's memory.
pub(crate) fn store(
    job: &MpiJob,
    call: &CollectiveCall,
    position: RankAndSize,
    bytes: &[u8],
) -> Result<(), pleach::Error> {
    let sides = CallSides::of(job, call, position).map_err(internal)?;
    let Some(receive) = sides.receive().map_err(internal)? else { return Ok(()) };
    match call.collective {
        // SAFETY: the user guarantees room for the elements.
        MpiCollective::Scatter => unsafe { receive.store(job, bytes) },
        MpiCollective::AllGatherV => {
            let mut rest = bytes;
            for rank in 0..position.size {
                let block = sides.received_block(rank)?;
                let (own, after) = rest.split_at(block.bytes());
                // SAFETY: as above.
                unsafe { block.store(job, own) }?;
                rest = after;
            }
            Ok(())
        }
        // SAFETY: as above.
        _ => unsafe { receive.blocks(position.size as usize).store(job, bytes) },
    }
}

/// The arguments of a call that were valid when it began.
fn internal(_: FallbackReason) -> pleach::Error {
    pleach::Error::Internal { what: "the arguments of a call have changed before it was complete".to_owned() }
}

/// The two sides of a call at this rank. A side that does not count here, or is in place, is none.
struct CallSides<'a> {
    job: &'a MpiJob,
    call: &'a CollectiveCall,
    is_root: bool,
    sends_in_place: bool,
    receives_in_place: bool,
}

impl<'a> CallSides<'a> {
    fn of(job: &'a MpiJob, call: &'a CollectiveCall, position: RankAndSize) -> Result<Self, FallbackReason> {
        let has_root = call.collective.has_root();
        if has_root && !u32::try_from(call.root).is_ok_and(|root| root < position.size) {
            return Err(FallbackReason::Argument);
        }
        let is_root = has_root && call.root as u32 == position.rank;
        let (sends_in_place, receives_in_place) = (call.send == job.abi.in_place, call.receive == job.abi.in_place);
        let is_valid = match call.collective {
            MpiCollective::Scatter if is_root => !sends_in_place,
            MpiCollective::Scatter => !receives_in_place,
            MpiCollective::Gather if !is_root => !sends_in_place,
            _ => !receives_in_place,
        };
        let sides = Self { job, call, is_root, sends_in_place, receives_in_place };
        if is_valid { Ok(sides) } else { Err(FallbackReason::Argument) }
    }

    fn sent(&self) -> Result<TypedBuffer, FallbackReason> {
        let CollectiveCall { send, count, datatype, communicator, .. } = *self.call;
        TypedBuffer::of(self.job, send, count, datatype, communicator)
    }

    /// The receive side; without elements if there is a count for each rank.
    fn received(&self) -> Result<TypedBuffer, FallbackReason> {
        let CollectiveCall { receive, receive_count, receive_datatype, communicator, .. } = *self.call;
        let count = if self.call.collective.has_counts() { 0 } else { receive_count };
        TypedBuffer::of(self.job, receive, count, receive_datatype, communicator)
    }

    /// The block of a rank in the receive buffer.
    fn received_block(&self, rank: u32) -> Result<TypedBuffer, pleach::Error> {
        let (job, rank, all) = (self.job, rank as usize, self.received().map_err(internal)?);
        let block = match self.call.collective.has_counts() {
            true => {
                // SAFETY: the user guarantees a count and a displacement for each rank.
                let (count, displacement) =
                    unsafe { (self.call.counts.count(rank), self.call.counts.displacement(rank)) };
                usize::try_from(count).ok().and_then(|count| all.at(job, displacement, count))
            }
            false => all.block(job, rank),
        };
        block.ok_or_else(|| internal(FallbackReason::Type))
    }

    fn send(&self) -> Result<Option<TypedBuffer>, FallbackReason> {
        let counts = !self.sends_in_place && (self.call.collective != MpiCollective::Scatter || self.is_root);
        counts.then(|| self.sent()).transpose()
    }

    fn receive(&self) -> Result<Option<TypedBuffer>, FallbackReason> {
        let counts = !self.receives_in_place && (self.call.collective != MpiCollective::Gather || self.is_root);
        counts.then(|| self.received()).transpose()
    }

    /// The side that every rank has, so that all decide alike: what a rank gets of a scatter, and what it gives otherwise.
    fn decisive(&self) -> Result<TypedBuffer, FallbackReason> {
        let is_sent = match self.call.collective {
            MpiCollective::Scatter => self.receives_in_place,
            _ => !self.sends_in_place,
        };
        if is_sent { self.sent() } else { self.received() }
    }

    /// This rank gives other lengths than it gets. Ranks that all see both leave such a call to the native MPI, which reports it. If others
    /// cannot know, they wait in Pleach for this rank, which can only end the job.
    #[cold]
    fn contradiction(&self, job: &MpiJob, found: usize, expected: usize) -> FallbackReason {
        let name = match self.call.collective {
            MpiCollective::Gather => "MPI_Gather",
            MpiCollective::Scatter => "MPI_Scatter",
            MpiCollective::AllGatherV => "MPI_Allgatherv",
            _ => return FallbackReason::Argument,
        };
        abort(
            job,
            &format!(
                "send and receive arguments of {name} at one rank describe blocks of {found} and {expected} bytes; the standard requires \
                 equal lengths"
            ),
        )
    }
}
