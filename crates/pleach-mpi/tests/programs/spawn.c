/* A job that starts another: two worlds, each with collectives of its own, and communicators with ranks of both.
 *
 * Ends with "spawn: N ranks" on the first rank of the parents.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void sum_of_ones(MPI_Comm comm, int expected, const char *what)
{
    for (int round = 0; round < 20; round++) {
        int one = 1, sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (sum != expected) {
            fprintf(stderr, "%s: %d instead of %d\n", what, sum, expected);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, total;
    MPI_Comm others, merged;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&others);
    int is_child = others != MPI_COMM_NULL;
    sum_of_ones(MPI_COMM_WORLD, size, "own world, before");
    if (!is_child)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE);
    MPI_Barrier(others);
    MPI_Intercomm_merge(others, is_child, &merged);
    MPI_Comm_size(merged, &total);
    sum_of_ones(merged, total, "both worlds");
    sum_of_ones(MPI_COMM_WORLD, size, "own world, after");
    if (!is_child && rank == 0)
        printf("spawn: %d ranks\n", total);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&others);
    return MPI_Finalize();
}
