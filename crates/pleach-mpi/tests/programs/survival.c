/* Many collectives whose results are known beforehand, in which a rank's packets may stop to come through.
 *
 * Each round differs from the one before, so that a result of the wrong round is a wrong result. Ends with "survival: N rounds" on rank 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 100 };

static void check(long got, long expected, const char *what, int round)
{
    if (got != expected) {
        fprintf(stderr, "%s of round %d: %ld instead of %ld\n", what, round, got, expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 500, rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    long of_ranks = (long)size * (size - 1) / 2, in[LENGTH], out[LENGTH];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LENGTH; i++)
            in[i] = rank + round + i;
        MPI_Allreduce(in, out, LENGTH, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < LENGTH; i++)
            check(out[i], of_ranks + (long)size * (round + i), "allreduce", round);
        for (int i = 0; i < LENGTH; i++)
            out[i] = rank * round + i;
        MPI_Allreduce(MPI_IN_PLACE, out, LENGTH, MPI_LONG, MPI_MAX, reversed);
        for (int i = 0; i < LENGTH; i++)
            check(out[i], (long)(size - 1) * round + i, "allreduce in place", round);
        int root = round % size;
        long word = rank == root ? round * 7L : -1;
        MPI_Bcast(&word, 1, MPI_LONG, root, MPI_COMM_WORLD);
        check(word, round * 7L, "broadcast", round);
        long sum = -1, one = round;
        MPI_Reduce(&one, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root)
            check(sum, (long)round * size, "reduce", round);
        MPI_Scan(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(sum, (long)round * (rank + 1), "scan", round);
        if (round % 8 == 0)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("survival: %d rounds\n", rounds);
    MPI_Comm_free(&reversed);
    return MPI_Finalize();
}
