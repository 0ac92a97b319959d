//! Collectives in which ranks contribute or get different parts of a vector: gathers, scatters, alltoall, and the reduce-scatter with counts.

use std::ffi::c_int;

use super::{blocking, if_short, large, plain, starting};
use crate::collective_call::{CollectiveCall, CountArrays, CountWidth, MpiCollective};
use crate::native_calls;
use crate::native_mpi::{invoke, mpi};
use crate::profiler::ProfilerFunction;

/// Buffer, count and datatype of one side of a call.
type SideArguments = (usize, i64, usize);

fn copy(
    collective: MpiCollective,
    (send, count, datatype): SideArguments,
    (receive, receive_count, receive_datatype): SideArguments,
    root: usize,
    communicator: usize,
) -> CollectiveCall {
    let (call, root) = (CollectiveCall::of(collective, communicator), root as i32);
    CollectiveCall { send, count, datatype, receive, receive_count, receive_datatype, root, ..call }
}

four_forms!(
    ("MPI_Allgather", "PMPI_Allgather", Allgather),
    ("MPI_Allgather_c", "PMPI_Allgather_c", Allgather_c),
    ("MPI_Iallgather", "PMPI_Iallgather", Iallgather),
    ("MPI_Iallgather_c", "PMPI_Iallgather_c", Iallgather_c),
    (send, sent, sent_type, receive, received, received_type, comm),
    (sent, received),
    measure,
    copy(
        MpiCollective::AllGather,
        (send, measure(sent), sent_type),
        (receive, measure(received), received_type),
        0,
        comm
    )
);
four_forms!(
    ("MPI_Gather", "PMPI_Gather", Gather),
    ("MPI_Gather_c", "PMPI_Gather_c", Gather_c),
    ("MPI_Igather", "PMPI_Igather", Igather),
    ("MPI_Igather_c", "PMPI_Igather_c", Igather_c),
    (send, sent, sent_type, receive, received, received_type, root, comm),
    (sent, received),
    measure,
    copy(
        MpiCollective::Gather,
        (send, measure(sent), sent_type),
        (receive, measure(received), received_type),
        root,
        comm
    )
);
four_forms!(
    ("MPI_Scatter", "PMPI_Scatter", Scatter),
    ("MPI_Scatter_c", "PMPI_Scatter_c", Scatter_c),
    ("MPI_Iscatter", "PMPI_Iscatter", Iscatter),
    ("MPI_Iscatter_c", "PMPI_Iscatter_c", Iscatter_c),
    (send, sent, sent_type, receive, received, received_type, root, comm),
    (sent, received),
    measure,
    copy(
        MpiCollective::Scatter,
        (send, measure(sent), sent_type),
        (receive, measure(received), received_type),
        root,
        comm
    )
);
four_forms!(
    ("MPI_Alltoall", "PMPI_Alltoall", Alltoall),
    ("MPI_Alltoall_c", "PMPI_Alltoall_c", Alltoall_c),
    ("MPI_Ialltoall", "PMPI_Ialltoall", Ialltoall),
    ("MPI_Ialltoall_c", "PMPI_Ialltoall_c", Ialltoall_c),
    (send, sent, sent_type, receive, received, received_type, comm),
    (sent, received),
    measure,
    copy(
        MpiCollective::AllToAll,
        (send, measure(sent), sent_type),
        (receive, measure(received), received_type),
        0,
        comm
    )
);

/// The four forms of a call with arrays of counts, which have two widths. Of a call with large ones, `native_calls` finds the function.
macro_rules! four_counted_forms {
    (
        ($mpi:literal, $pmpi:literal, $real:ident),
        ($mpi_i:literal, $pmpi_i:literal, $real_i:ident),
        ($mpi_c:literal, $pmpi_c:literal),
        ($mpi_ic:literal, $pmpi_ic:literal),
        ($($argument:ident),*), $width:ident, $call:expr
    ) => {
        collective!($mpi, $pmpi, mpi().real.$real, ($($argument),*), {
            let $width = CountWidth::Plain;
            $call
        });
        non_blocking!($mpi_i, $pmpi_i, mpi().real.$real_i, ($($argument),*), {
            let $width = CountWidth::Plain;
            $call
        });
        export!($mpi_c, $pmpi_c, ($($argument),*) {
            let $width = CountWidth::Large;
            let call = $call;
            // SAFETY: the user's own arguments.
            blocking(&call, || Some(unsafe { native_calls::run(mpi(), &call) }))
        });
        export!($mpi_ic, $pmpi_ic, ($($argument),*, request) {
            let $width = CountWidth::Large;
            let call = $call;
            // SAFETY: as above.
            starting(&call, request, || Some(unsafe { native_calls::start_at(mpi(), &call, request) }))
        });
    };
}

fn all_gather_v(
    (send, count, datatype): (usize, usize, usize),
    (receive, receive_datatype): (usize, usize),
    counts: CountArrays,
    communicator: usize,
) -> CollectiveCall {
    let count = match counts.width {
        CountWidth::Plain => plain(count),
        CountWidth::Large => large(count),
    };
    let call = CollectiveCall::of(MpiCollective::AllGatherV, communicator);
    CollectiveCall { send, count, datatype, receive, receive_datatype, counts, ..call }
}

fn reduce_scatter_v(
    (send, receive): (usize, usize),
    counts: CountArrays,
    (datatype, operator): (usize, usize),
    communicator: usize,
) -> CollectiveCall {
    let call = CollectiveCall::of(MpiCollective::ReduceScatterV, communicator);
    CollectiveCall { send, receive, datatype, operator, counts, ..call }
}

four_counted_forms!(
    ("MPI_Allgatherv", "PMPI_Allgatherv", Allgatherv),
    ("MPI_Iallgatherv", "PMPI_Iallgatherv", Iallgatherv),
    ("MPI_Allgatherv_c", "PMPI_Allgatherv_c"),
    ("MPI_Iallgatherv_c", "PMPI_Iallgatherv_c"),
    (send, sent, sent_type, receive, counts, displacements, received_type, comm),
    width,
    all_gather_v(
        (send, sent, sent_type),
        (receive, received_type),
        CountArrays { counts, displacements, width },
        comm
    )
);
four_counted_forms!(
    ("MPI_Reduce_scatter", "PMPI_Reduce_scatter", Reduce_scatter),
    ("MPI_Ireduce_scatter", "PMPI_Ireduce_scatter", Ireduce_scatter),
    ("MPI_Reduce_scatter_c", "PMPI_Reduce_scatter_c"),
    ("MPI_Ireduce_scatter_c", "PMPI_Ireduce_scatter_c"),
    (send, receive, counts, datatype, operator, comm),
    width,
    reduce_scatter_v((send, receive), CountArrays { counts, displacements: 0, width }, (datatype, operator), comm)
);
