/* Calls functions with arrays of large counts that are found at run time, as mpi4py does: with Pleach they exist even if the MPI lacks
 * them, and must work there. Both ways: done by Pleach, and left to the MPI. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int Scatter(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm);
typedef int StartScatter(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
typedef int Gather(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
typedef int StartGather(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm,
                        MPI_Request *);

static void *find(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function) {
        fprintf(stderr, "there is no %s\n", name);
        exit(1);
    }
    return function;
}

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Rank r gets r + 1 sums; then all get them all. */
static void check(MPI_Comm comm, int starts)
{
    int rank, size, total = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Count counts[64];
    MPI_Aint places[64];
    for (int other = 0; other < size; other++) {
        counts[other] = other + 1;
        places[other] = total;
        total += other + 1;
    }
    int64_t send[4096], sums[64], all[4096];
    for (int index = 0; index < total; index++)
        send[index] = index + rank;
    MPI_Request request;
    if (starts) {
        StartScatter *scatter = (StartScatter *)find("MPI_Ireduce_scatter_c");
        must(scatter(send, sums, counts, MPI_INT64_T, MPI_SUM, comm, &request) == MPI_SUCCESS, "Ireduce_scatter_c");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        StartGather *gather = (StartGather *)find("MPI_Iallgatherv_c");
        must(gather(sums, rank + 1, MPI_INT64_T, all, counts, places, MPI_INT64_T, comm, &request) == MPI_SUCCESS, "Iallgatherv_c");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        Scatter *scatter = (Scatter *)find("MPI_Reduce_scatter_c");
        must(scatter(send, sums, counts, MPI_INT64_T, MPI_SUM, comm) == MPI_SUCCESS, "Reduce_scatter_c");
        Gather *gather = (Gather *)find("MPI_Allgatherv_c");
        must(gather(sums, rank + 1, MPI_INT64_T, all, counts, places, MPI_INT64_T, comm) == MPI_SUCCESS, "Allgatherv_c");
    }
    for (int index = 0; index < total; index++)
        must(all[index] == (int64_t)size * index + size * (size - 1) / 2, "a sum");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < 20; round++)
        for (int starts = 0; starts < 2; starts++) {
            check(MPI_COMM_WORLD, starts);
            check(MPI_COMM_SELF, starts);
        }
    if (rank == 0)
        printf("large counts: right\n");
    MPI_Finalize();
    return 0;
}
