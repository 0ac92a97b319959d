/* A profiler as a shared library: counts the allreduces of a program and prints their number on rank 0. */
#include <mpi.h>
#include <stdio.h>

static int allreduces;

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op operator, MPI_Comm comm)
{
    allreduces++;
    return PMPI_Allreduce(send, receive, count, type, operator, comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("profiler: %d allreduces\n", allreduces);
    return PMPI_Finalize();
}
