//! The arguments with which this rank does a call again that it has completed: its logged input, and memory for a result that it discards.
//!
//! The ranks that lack the result do the call with the user's own arguments. So a replayed call has the same root, the same bytes in
//! each block, and is in place where the original was: some MPIs have another algorithm for that. Its types are bytes, unless it reduces.

use crate::collective_call::{CollectiveCall, CountArrays, CountWidth, MpiCollective, RankAndSize};
use crate::mpi_job::MpiJob;
use crate::replay_log::{LoggedInput, ReplayBuffers};

/// The call with arguments that refer to the buffers, which must outlive it.
pub(crate) fn of(
    job: &MpiJob,
    call: &CollectiveCall,
    position: RankAndSize,
    input: &LoggedInput,
) -> (CollectiveCall, ReplayBuffers) {
    if call.collective.copies_blocks() {
        return of_copies((job.abi.byte, job.abi.in_place), call, position, input);
    }
    let mut call = *call;
    let mut buffers =
        ReplayBuffers { input: input.bytes.clone(), output: vec![0; input.bytes.len()], ..Default::default() };
    let place = buffers.input.as_mut_ptr() as usize;
    if call.collective == MpiCollective::Broadcast {
        (call.count, call.datatype) = (input.bytes.len() as i64, job.abi.byte);
        call.receive = place;
    } else if call.send == job.abi.in_place {
        // In place again: all ranks must do the same, and Open MPI has another algorithm for it.
        call.receive = place;
    } else {
        (call.send, call.receive) = (place, buffers.output.as_mut_ptr() as usize);
    }
    if call.collective.has_counts() {
        buffers.counts.clone_from(&input.counts);
        call.counts = counts_in(&buffers);
    }
    (call, buffers)
}

fn counts_in(buffers: &ReplayBuffers) -> CountArrays {
    let (counts, displacements) = (buffers.counts.as_ptr() as usize, buffers.displacements.as_ptr() as usize);
    CountArrays { counts, displacements, width: CountWidth::Plain }
}

/// The same for a call that copies blocks. `byte` and `in_place` are constants of the native MPI.
fn of_copies(
    (byte, in_place): (usize, usize),
    call: &CollectiveCall,
    position: RankAndSize,
    input: &LoggedInput,
) -> (CollectiveCall, ReplayBuffers) {
    let (rank, ranks) = (position.rank as usize, position.size as usize);
    let length = |rank: usize| input.counts.get(rank).or(input.counts.first()).map_or(0, |bytes| *bytes as usize);
    let start = |rank: usize| (0..rank).map(length).sum::<usize>();
    let (own, total) = (start(rank)..start(rank) + length(rank), start(ranks));
    let (sends_in_place, receives_in_place) = (call.send == in_place, call.receive == in_place);
    let mut buffers = ReplayBuffers { input: input.bytes.clone(), ..Default::default() };
    let mut call = CollectiveCall { datatype: byte, receive_datatype: byte, ..*call };
    (call.count, call.receive_count) = (length(rank) as i64, length(rank) as i64);
    buffers.output = match call.collective {
        MpiCollective::Scatter => vec![0; own.len()],
        MpiCollective::Gather if call.root as usize != rank => Vec::new(),
        // The input is the whole buffer.
        MpiCollective::AllToAll if sends_in_place => input.bytes.clone(),
        MpiCollective::AllToAll => vec![0; total],
        // The input is a block of the buffer.
        _ if sends_in_place => {
            let mut all = vec![0; total];
            all[own].copy_from_slice(&input.bytes);
            all
        }
        _ => vec![0; total],
    };
    if !sends_in_place {
        call.send = buffers.input.as_ptr() as usize;
    }
    if !receives_in_place {
        call.receive = buffers.output.as_mut_ptr() as usize;
    }
    if call.collective.has_counts() {
        buffers.counts.clone_from(&input.counts);
        buffers.displacements = (0..ranks).map(|rank| start(rank) as i32).collect();
        call.counts = counts_in(&buffers);
    }
    (call, buffers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatypes::slice;

    const BYTE: usize = 77;
    const IN_PLACE: usize = 1;

    /// What rank 1 of 3 does again: the call, and its buffers.
    fn replayed(call: CollectiveCall, counts: &[i32], bytes: &[u8]) -> (CollectiveCall, ReplayBuffers) {
        let input = LoggedInput { bytes: bytes.to_vec(), counts: counts.to_vec() };
        of_copies((BYTE, IN_PLACE), &call, RankAndSize { rank: 1, size: 3 }, &input)
    }

    fn call(collective: MpiCollective, root: i32) -> CollectiveCall {
        let (send, receive, count, datatype, receive_count, receive_datatype) = (0x1000, 0x2000, 5, 9, 6, 8);
        let plain = CollectiveCall::of(collective, 3);
        CollectiveCall { send, receive, count, datatype, root, receive_count, receive_datatype, ..plain }
    }

    #[test]
    fn copies_have_bytes_as_types_and_buffers_of_their_own() {
        let (call, buffers) = replayed(call(MpiCollective::AllGather, 0), &[4], &[1, 2, 3, 4]);
        assert_eq!((call.datatype, call.receive_datatype, call.count, call.receive_count), (BYTE, BYTE, 4, 4));
        assert_eq!((call.send, call.receive), (buffers.input.as_ptr() as usize, buffers.output.as_ptr() as usize));
        assert_eq!((buffers.input.len(), buffers.output.len(), call.communicator), (4, 12, 3));
    }

    #[test]
    fn the_block_of_a_call_in_place_is_at_its_place_in_the_result() {
        let gather = CollectiveCall { send: IN_PLACE, ..call(MpiCollective::Gather, 1) };
        let (call, buffers) = replayed(gather, &[2], &[5, 6]);
        assert_eq!((call.send, &buffers.output[..]), (IN_PLACE, &[0, 0, 5, 6, 0, 0][..]));
        let all_to_all = CollectiveCall { send: IN_PLACE, ..self::call(MpiCollective::AllToAll, 0) };
        let (call, buffers) = replayed(all_to_all, &[1], &[7, 8, 9]);
        assert_eq!((call.send, &buffers.output[..]), (IN_PLACE, &[7, 8, 9][..]));
    }

    #[test]
    fn counts_and_displacements_are_bytes_one_after_the_other() {
        let (call, buffers) = replayed(call(MpiCollective::AllGatherV, 0), &[3, 0, 2], &[]);
        assert_eq!((call.count, buffers.output.len()), (0, 5));
        // SAFETY: both arrays have a number for each of three ranks.
        let numbers = unsafe { [0, 1, 2].map(|rank| (call.counts.count(rank), call.counts.displacement(rank))) };
        assert_eq!(numbers, [(3, 0), (0, 3), (2, 3)]);
    }

    #[test]
    fn the_root_of_a_scatter_has_all_blocks_and_keeps_its_own_in_place() {
        let scatter = CollectiveCall { receive: IN_PLACE, ..call(MpiCollective::Scatter, 1) };
        let (at_root, buffers) = replayed(scatter, &[2], &[1, 2, 3, 4, 5, 6]);
        assert_eq!((at_root.receive, at_root.count), (IN_PLACE, 2));
        // SAFETY: the buffers are still there.
        assert_eq!(unsafe { slice(at_root.send as *const u8, 6) }, &buffers.input[..]);
        let (elsewhere, buffers) = replayed(call(MpiCollective::Scatter, 0), &[2], &[]);
        assert_eq!((elsewhere.receive_count, buffers.output.len()), (2, 2));
        let (elsewhere, buffers) = replayed(call(MpiCollective::Gather, 0), &[2], &[1, 2]);
        assert_eq!((elsewhere.count, buffers.output.len()), (2, 0));
    }
}
