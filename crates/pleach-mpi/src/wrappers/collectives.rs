//! Barriers, broadcasts and reductions, in which all ranks have vectors of one length.

use std::ffi::c_int;

use super::{blocking, if_short, large, plain, starting};
use crate::collective_call::{CollectiveCall, MpiCollective};
use crate::native_mpi::{invoke, mpi};
use crate::profiler::ProfilerFunction;

fn barrier(communicator: usize) -> CollectiveCall {
    CollectiveCall::of(MpiCollective::Barrier, communicator)
}

fn broadcast(receive: usize, count: i64, datatype: usize, root: usize, communicator: usize) -> CollectiveCall {
    let call = CollectiveCall::of(MpiCollective::Broadcast, communicator);
    CollectiveCall { receive, count, datatype, root: root as i32, ..call }
}

fn reduction(
    collective: MpiCollective,
    (send, receive): (usize, usize),
    count: i64,
    (datatype, operator): (usize, usize),
    root: usize,
    communicator: usize,
) -> CollectiveCall {
    let call = CollectiveCall::of(collective, communicator);
    CollectiveCall { send, receive, count, datatype, operator, root: root as i32, ..call }
}

collective!("MPI_Barrier", "PMPI_Barrier", mpi().real.Barrier, (comm), barrier(comm));
non_blocking!("MPI_Ibarrier", "PMPI_Ibarrier", mpi().real.Ibarrier, (comm), barrier(comm));

four_forms!(
    ("MPI_Bcast", "PMPI_Bcast", Bcast),
    ("MPI_Bcast_c", "PMPI_Bcast_c", Bcast_c),
    ("MPI_Ibcast", "PMPI_Ibcast", Ibcast),
    ("MPI_Ibcast_c", "PMPI_Ibcast_c", Ibcast_c),
    (buffer, count, datatype, root, comm),
    (count),
    measure,
    broadcast(buffer, measure(count), datatype, root, comm)
);
four_forms!(
    ("MPI_Reduce", "PMPI_Reduce", Reduce),
    ("MPI_Reduce_c", "PMPI_Reduce_c", Reduce_c),
    ("MPI_Ireduce", "PMPI_Ireduce", Ireduce),
    ("MPI_Ireduce_c", "PMPI_Ireduce_c", Ireduce_c),
    (send, receive, count, datatype, operator, root, comm),
    (count),
    measure,
    reduction(MpiCollective::Reduce, (send, receive), measure(count), (datatype, operator), root, comm)
);
four_forms!(
    ("MPI_Allreduce", "PMPI_Allreduce", Allreduce),
    ("MPI_Allreduce_c", "PMPI_Allreduce_c", Allreduce_c),
    ("MPI_Iallreduce", "PMPI_Iallreduce", Iallreduce),
    ("MPI_Iallreduce_c", "PMPI_Iallreduce_c", Iallreduce_c),
    (send, receive, count, datatype, operator, comm),
    (count),
    measure,
    reduction(MpiCollective::AllReduce, (send, receive), measure(count), (datatype, operator), 0, comm)
);
four_forms!(
    ("MPI_Reduce_scatter_block", "PMPI_Reduce_scatter_block", Reduce_scatter_block),
    ("MPI_Reduce_scatter_block_c", "PMPI_Reduce_scatter_block_c", Reduce_scatter_block_c),
    ("MPI_Ireduce_scatter_block", "PMPI_Ireduce_scatter_block", Ireduce_scatter_block),
    ("MPI_Ireduce_scatter_block_c", "PMPI_Ireduce_scatter_block_c", Ireduce_scatter_block_c),
    (send, receive, count, datatype, operator, comm),
    (count),
    measure,
    reduction(MpiCollective::ReduceScatter, (send, receive), measure(count), (datatype, operator), 0, comm)
);
four_forms!(
    ("MPI_Scan", "PMPI_Scan", Scan),
    ("MPI_Scan_c", "PMPI_Scan_c", Scan_c),
    ("MPI_Iscan", "PMPI_Iscan", Iscan),
    ("MPI_Iscan_c", "PMPI_Iscan_c", Iscan_c),
    (send, receive, count, datatype, operator, comm),
    (count),
    measure,
    reduction(MpiCollective::Scan, (send, receive), measure(count), (datatype, operator), 0, comm)
);
four_forms!(
    ("MPI_Exscan", "PMPI_Exscan", Exscan),
    ("MPI_Exscan_c", "PMPI_Exscan_c", Exscan_c),
    ("MPI_Iexscan", "PMPI_Iexscan", Iexscan),
    ("MPI_Iexscan_c", "PMPI_Iexscan_c", Iexscan_c),
    (send, receive, count, datatype, operator, comm),
    (count),
    measure,
    reduction(MpiCollective::ExclusiveScan, (send, receive), measure(count), (datatype, operator), 0, comm)
);
