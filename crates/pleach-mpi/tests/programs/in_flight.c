/* Many non-blocking calls in flight at once, also on a communicator that is freed meanwhile.
 *
 * With "keep" as second argument no communicator is freed: Open MPI 4.1 by itself crashes in such a call. Ends with "in flight: N rounds"
 * on rank 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALLS = 16, MANY = 40000 };

static void check(long got, long expected, const char *what, int round)
{
    if (got != expected) {
        fprintf(stderr, "%s of round %d: %ld instead of %ld\n", what, round, got, expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Rank 0 comes late, so that all of them are in flight elsewhere. */
static void many_at_once(int rank, int size, int round)
{
    long in[CALLS], out[CALLS], of_ranks = (long)size * (size - 1) / 2;
    MPI_Request requests[CALLS];
    MPI_Status statuses[CALLS];
    for (int i = 0; i < CALLS; i++) {
        in[i] = rank + round + i;
        MPI_Iallreduce(&in[i], &out[i], 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0)
        usleep(300);
    MPI_Waitall(CALLS, requests, statuses);
    for (int i = 0; i < CALLS; i++)
        check(out[i], of_ranks + (long)size * (round + i), "allreduce", round);
}

/* The last rank waits for its call before it frees the communicator, the others afterwards. */
static void freed_meanwhile(int rank, int size, int round)
{
    static long in[MANY], out[MANY];
    long mine = rank, sum = 0, of_ranks = (long)size * (size - 1) / 2;
    MPI_Comm other;
    MPI_Request on_world, on_other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Barrier(other);
    for (int i = 0; i < MANY; i++)
        in[i] = rank + i;
    MPI_Iallreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &on_world);
    MPI_Iallreduce(in, out, MANY, MPI_LONG, MPI_SUM, other, &on_other);
    if (rank < size - 1)
        MPI_Comm_free(&other);
    MPI_Wait(&on_world, MPI_STATUS_IGNORE);
    if (rank == size - 1)
        MPI_Comm_free(&other);
    MPI_Wait(&on_other, MPI_STATUS_IGNORE);
    check(sum, of_ranks, "allreduce before a communicator is freed", round);
    for (int i = 0; i < MANY; i++)
        check(out[i], of_ranks + (long)size * i, "allreduce on a communicator that is freed", round);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 100, rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        many_at_once(rank, size, round);
        if (argc < 3)
            freed_meanwhile(rank, size, round);
    }
    if (rank == 0)
        printf("in flight: %d rounds\n", rounds);
    return MPI_Finalize();
}
