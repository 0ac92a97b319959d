/* Many collectives whose results are known beforehand, in which a rank's packets may stop to come through.
 *
 * Each round differs from the one before, so that a result of the wrong round is a wrong result. With "mixed" as second argument, each
 * collective is followed by other functions of the MPI in which a rank blocks, while others may lack its result. With "receive", rank 0
 * broadcasts and then waits for an answer of each other rank; with "long", all vectors are long; with "blocks", ranks have different
 * parts of a vector, in 64 ranks at most. Ends with "survival: N rounds" on rank 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 100 };

static void check(long got, long expected, const char *what, int round)
{
    if (got != expected) {
        fprintf(stderr, "%s of round %d: %ld instead of %ld\n", what, round, got, expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* A ring of messages, as a program exchanges boundaries. */
static void ring(int rank, int size, int round)
{
    long mine = rank * 1000L + round, theirs = -1;
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    if (round % 3 == 0) {
        MPI_Sendrecv(&mine, 1, MPI_LONG, next, 5, &theirs, 1, MPI_LONG, previous, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (round % 3 == 1) {
        MPI_Request request;
        MPI_Isend(&mine, 1, MPI_LONG, next, 6, MPI_COMM_WORLD, &request);
        MPI_Recv(&theirs, 1, MPI_LONG, previous, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Request requests[2];
        MPI_Status statuses[2];
        MPI_Irecv(&theirs, 1, MPI_LONG, previous, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&mine, 1, MPI_LONG, next, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, statuses);
    }
    check(theirs, previous * 1000L + round, "message", round);
}

/* With counts, which the library does not take over. */
static void all_to_all(int rank, int size, int round, MPI_Comm comm)
{
    long out[64] = {0}, in[64];
    int ones[64] = {0}, places[64] = {0};
    for (int i = 0; i < size && i < 64; i++) {
        out[i] = rank * 100L + i + round;
        ones[i] = 1, places[i] = i;
    }
    MPI_Alltoallv(out, ones, places, MPI_LONG, in, ones, places, MPI_LONG, comm);
    for (int i = 0; i < size && i < 64; i++)
        check(in[i], i * 100L + rank + round, "alltoall", round);
}

/* Each rank has a block; one of them is empty in allgatherv and in reduce_scatter. In place in every other round. */
static void blocks(int rank, int size, int round, MPI_Comm comm)
{
    enum { MOST = 64, LENGTH_OF_BLOCK = 10 };
    static long in[MOST * LENGTH_OF_BLOCK], out[MOST * LENGTH_OF_BLOCK];
    int in_place = round % 2, root = round % size, n = LENGTH_OF_BLOCK, counts[MOST] = {0}, places[MOST] = {0}, total = 0;
    for (int i = 0; i < n * size; i++)
        in[i] = rank * 1000L + i + round;
    for (int i = 0; in_place && i < n; i++)
        out[rank * n + i] = in[i];
    MPI_Allgather(in_place ? MPI_IN_PLACE : in, n, MPI_LONG, out, n, MPI_LONG, comm);
    for (int i = 0; i < n * size; i++)
        check(out[i], i / n * 1000L + i % n + round, "allgather", round);
    for (int i = 0; in_place && i < n * size; i++)
        out[i] = in[i];
    MPI_Alltoall(in_place ? MPI_IN_PLACE : in, n, MPI_LONG, out, n, MPI_LONG, comm);
    for (int i = 0; i < n * size; i++)
        check(out[i], i / n * 1000L + rank * n + i % n + round, "alltoall", round);
    for (int i = 0; rank == root && in_place && i < n; i++)
        out[rank * n + i] = in[i];
    MPI_Gather(rank == root && in_place ? MPI_IN_PLACE : in, n, MPI_LONG, out, n, MPI_LONG, root, comm);
    for (int i = 0; rank == root && i < n * size; i++)
        check(out[i], i / n * 1000L + i % n + round, "gather", round);
    MPI_Scatter(in, n, MPI_LONG, rank == root && in_place ? MPI_IN_PLACE : out, n, MPI_LONG, root, comm);
    for (int i = 0; !(rank == root && in_place) && i < n; i++)
        check(out[i], root * 1000L + rank * n + i + round, "scatter", round);
    for (int i = 0; i < size; i++) {
        counts[i] = i == (round + 1) % size ? 0 : n, places[i] = total;
        total += counts[i];
    }
    for (int i = 0; in_place && i < counts[rank]; i++)
        out[places[rank] + i] = in[i];
    MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, counts[rank], MPI_LONG, out, counts, places, MPI_LONG, comm);
    for (int other = 0; other < size; other++)
        for (int i = 0; i < counts[other]; i++)
            check(out[places[other] + i], other * 1000L + i + round, "allgatherv", round);
    for (int i = 0; in_place && i < total; i++)
        out[i] = in[i];
    MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : in, out, counts, MPI_LONG, MPI_SUM, comm);
    for (int i = 0; i < counts[rank]; i++)
        check(out[i], 500L * size * (size - 1) + (long)size * (places[rank] + i + round), "reduce_scatter", round);
}

/* Non-blocking ones in flight together. */
static void blocks_in_flight(int rank, int size, int round, MPI_Comm comm)
{
    enum { MOST = 64 };
    long mine = rank * 7L + round, all[MOST], gathered[MOST], reversed[MOST], out[MOST] = {0}, in[MOST], part = -1, sum = -1;
    int root = (round + 1) % size, ones[MOST] = {0}, places[MOST] = {0};
    MPI_Request requests[6];
    MPI_Status statuses[6];
    for (int i = 0; i < size; i++) {
        out[i] = rank * 100L + i + round;
        ones[i] = 1, places[i] = size - 1 - i;
    }
    MPI_Iallgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, comm, &requests[0]);
    MPI_Ialltoall(out, 1, MPI_LONG, in, 1, MPI_LONG, comm, &requests[1]);
    MPI_Igather(&mine, 1, MPI_LONG, gathered, 1, MPI_LONG, root, comm, &requests[2]);
    MPI_Iscatter(out, 1, MPI_LONG, &part, 1, MPI_LONG, root, comm, &requests[3]);
    MPI_Iallgatherv(&mine, 1, MPI_LONG, reversed, ones, places, MPI_LONG, comm, &requests[4]);
    MPI_Ireduce_scatter(out, &sum, ones, MPI_LONG, MPI_SUM, comm, &requests[5]);
    if (round % 2)
        ring(rank, size, round);
    MPI_Waitall(6, requests, statuses);
    for (int i = 0; i < size; i++) {
        check(all[i], i * 7L + round, "non-blocking allgather", round);
        check(in[i], i * 100L + rank + round, "non-blocking alltoall", round);
        check(reversed[size - 1 - i], i * 7L + round, "non-blocking allgatherv", round);
        if (rank == root)
            check(gathered[i], i * 7L + round, "non-blocking gather", round);
    }
    check(part, root * 100L + rank + round, "non-blocking scatter", round);
    check(sum, 50L * size * (size - 1) + (long)size * (rank + round), "non-blocking reduce_scatter", round);
}

/* Non-blocking calls, waited for in another order and after a blocking one. */
static void non_blocking(int rank, int size, int round)
{
    long of_ranks = (long)size * (size - 1) / 2, in = rank + round, sum = -1, max = rank * (long)round, word = -1;
    int root = (round + 1) % size;
    MPI_Request requests[3];
    MPI_Status statuses[2];
    MPI_Iallreduce(&in, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(MPI_IN_PLACE, &max, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
    if (rank == root)
        word = round * 11L;
    MPI_Ibcast(&word, 1, MPI_LONG, root, MPI_COMM_WORLD, &requests[2]);
    MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    check(word, round * 11L, "non-blocking broadcast", round);
    if (round % 2)
        ring(rank, size, round);
    else
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitall(2, requests, statuses);
    check(sum, of_ranks + (long)size * round, "non-blocking allreduce", round);
    check(max, (size - 1) * (long)round, "non-blocking allreduce in place", round);
}

/* Vectors that are too long for one packet. */
static void long_vectors(int rank, int size, int round)
{
    enum { MANY = 40000 };
    static long in[MANY], out[MANY];
    long of_ranks = (long)size * (size - 1) / 2;
    for (int i = 0; i < MANY; i++)
        in[i] = rank + round + i;
    MPI_Allreduce(in, out, MANY, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        check(out[i], of_ranks + (long)size * (round + i), "long allreduce", round);
    MPI_Allreduce(MPI_IN_PLACE, in, MANY, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        check(in[i], of_ranks + (long)size * (round + i), "long allreduce in place", round);
    all_to_all(rank, size, round, MPI_COMM_WORLD);
}

/* Rank 0 is done with the broadcast before the others have it, and waits in another function until they do. */
static void broadcast_and_receive(int rank, int size, int round)
{
    long word = rank == 0 ? round * 5L : -1, answer = -1;
    MPI_Bcast(&word, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    check(word, round * 5L, "broadcast", round);
    if (rank > 0)
        MPI_Send(&word, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD);
    for (int from = 1; rank == 0 && from < size; from++) {
        MPI_Recv(&answer, 1, MPI_LONG, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(answer, round * 5L, "answer", round);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 500, rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int mixed = argc > 2 && strcmp(argv[2], "mixed") == 0;
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    long of_ranks = (long)size * (size - 1) / 2, in[LENGTH], out[LENGTH];
    int receive = argc > 2 && strcmp(argv[2], "receive") == 0, only_long = argc > 2 && strcmp(argv[2], "long") == 0;
    int only_blocks = argc > 2 && strcmp(argv[2], "blocks") == 0;
    for (int round = 0; round < rounds; round++) {
        if (receive) {
            broadcast_and_receive(rank, size, round);
            continue;
        }
        if (only_long) {
            long_vectors(rank, size, round);
            continue;
        }
        if (only_blocks) {
            blocks(rank, size, round, MPI_COMM_WORLD);
            if (round % 3 == 0)
                blocks(size - 1 - rank, size, round, reversed);
            ring(rank, size, round);
            blocks_in_flight(rank, size, round, MPI_COMM_WORLD);
            continue;
        }
        for (int i = 0; i < LENGTH; i++)
            in[i] = rank + round + i;
        MPI_Allreduce(in, out, LENGTH, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < LENGTH; i++)
            check(out[i], of_ranks + (long)size * (round + i), "allreduce", round);
        if (mixed)
            all_to_all(rank, size, round, MPI_COMM_WORLD);
        for (int i = 0; i < LENGTH; i++)
            out[i] = rank * round + i;
        MPI_Allreduce(MPI_IN_PLACE, out, LENGTH, MPI_LONG, MPI_MAX, reversed);
        for (int i = 0; i < LENGTH; i++)
            check(out[i], (long)(size - 1) * round + i, "allreduce in place", round);
        if (mixed)
            ring(rank, size, round);
        int root = round % size;
        long word = rank == root ? round * 7L : -1;
        MPI_Bcast(&word, 1, MPI_LONG, root, MPI_COMM_WORLD);
        check(word, round * 7L, "broadcast", round);
        if (mixed)
            ring(rank, size, round + 1);
        long sum = -1, one = round;
        MPI_Reduce(&one, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root)
            check(sum, (long)round * size, "reduce", round);
        MPI_Scan(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(sum, (long)round * (rank + 1), "scan", round);
        if (mixed)
            non_blocking(rank, size, round);
        if (mixed && round % 4 == 0)
            long_vectors(rank, size, round);
        if (round % 8 == 0)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("survival: %d rounds\n", rounds);
    MPI_Comm_free(&reversed);
    return MPI_Finalize();
}
