/* Messages of an MPI program, checked byte by byte: all lengths, wildcards, probes, cancellation, many at once.
 * Prints "messages: right" on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(i * 31 + seed * 7 + (i >> 8));
}

static void check(const char *what, int holds)
{
    if (!holds) {
        printf("rank %d: %s is wrong\n", rank, what);
        wrong = 1;
    }
}

static void check_bytes(const char *what, const unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char)(i * 31 + seed * 7 + (i >> 8))) {
            check(what, 0);
            return;
        }
}

static void ring(unsigned char *out, unsigned char *in, size_t longest)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (size_t length = 0; length <= longest; length = length ? length * 4 + 1 : 1) {
        MPI_Status status;
        int count;
        fill(out, length, rank);
        memset(in, 0, length);
        MPI_Sendrecv(out, (int)length, MPI_BYTE, to, 5, in, (int)length, MPI_BYTE, from, 5, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        check("the count of a ring message", count == (int)length && status.MPI_SOURCE == from);
        check_bytes("a ring message", in, length, from);
    }
}

static void wildcards(void)
{
    const int each = 500;
    if (rank == 0) {
        int *next = calloc(size, sizeof(int));
        for (int i = 0; i < each * (size - 1); i++) {
            int value;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            check("a wildcard message", value == status.MPI_SOURCE * 100000 + status.MPI_TAG);
            check("the order of a sender", status.MPI_TAG == next[status.MPI_SOURCE]++);
        }
        free(next);
    } else {
        for (int i = 0; i < each; i++) {
            int value = rank * 100000 + i;
            MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void probes(unsigned char *out, unsigned char *in)
{
    if (size < 2)
        return;
    if (rank == 1) {
        fill(out, 12345, 9);
        MPI_Send(out, 12345, MPI_BYTE, 0, 77, MPI_COMM_WORLD);
        fill(out, 300000, 3);
        MPI_Send(out, 300000, MPI_BYTE, 0, 78, MPI_COMM_WORLD);
        MPI_Ssend(out, 100, MPI_BYTE, 0, 79, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Status status;
        MPI_Message message;
        int count, flag;
        MPI_Iprobe(1, 12, MPI_COMM_WORLD, &flag, &status);
        check("a probe without message", !flag);
        MPI_Probe(1, 77, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        check("a probed length", count == 12345);
        MPI_Recv(in, count, MPI_BYTE, 1, 77, MPI_COMM_WORLD, &status);
        check_bytes("a probed message", in, count, 9);
        MPI_Mprobe(MPI_ANY_SOURCE, 78, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        check("a matched probe", count == 300000);
        MPI_Mrecv(in, count, MPI_BYTE, &message, &status);
        check_bytes("a matched message", in, count, 3);
        MPI_Recv(in, 100, MPI_BYTE, 1, 79, MPI_COMM_WORLD, &status);
    }
}

static void many(void)
{
    enum { MANY = 300, LENGTH = 3000 };
    int peers = size;
    MPI_Request *requests = malloc(2 * MANY * peers * sizeof(MPI_Request));
    int *out = malloc((size_t)MANY * peers * LENGTH), *in = malloc((size_t)MANY * peers * LENGTH);
    int words = LENGTH / 4, used = 0;
    for (int i = 0; i < MANY * peers; i++)
        MPI_Irecv(in + (size_t)i * words, words, MPI_INT, i % peers, i / peers, MPI_COMM_WORLD, &requests[used++]);
    for (int i = 0; i < MANY * peers; i++) {
        for (int k = 0; k < words; k++)
            out[(size_t)i * words + k] = rank * 1000003 + i * 17 + k;
        MPI_Isend(out + (size_t)i * words, words, MPI_INT, i % peers, i / peers, MPI_COMM_WORLD, &requests[used++]);
    }
    MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY * peers; i++)
        for (int k = 0; k < words; k++) {
            int sender = i % peers, index = i / peers * peers + rank;
            if (in[(size_t)i * words + k] != sender * 1000003 + index * 17 + k) {
                check("one of many messages", 0);
                i = MANY * peers;
                break;
            }
        }
    free(requests);
    free(out);
    free(in);
}

static void cancellation(unsigned char *in)
{
    MPI_Request request;
    MPI_Status status;
    int canceled;
    MPI_Irecv(in, 10, MPI_BYTE, MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &canceled);
    check("a canceled receive", canceled);
}

static void collectives(void)
{
    double value = rank + 1, sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check("a sum", sum == size * (size + 1) / 2.0);
    enum { EACH = 4096 };
    int *out = malloc((size_t)size * EACH * sizeof(int)), *in = malloc((size_t)size * EACH * sizeof(int));
    for (int i = 0; i < size * EACH; i++)
        out[i] = rank * 1000000 + i;
    MPI_Alltoall(out, EACH, MPI_INT, in, EACH, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < EACH; i++)
            if (in[from * EACH + i] != from * 1000000 + rank * EACH + i) {
                check("an alltoall", 0);
                i = EACH;
            }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t longest = argc > 1 ? (size_t)atol(argv[1]) : 8 << 20;
    unsigned char *out = malloc(longest + 400000), *in = malloc(longest + 400000);
    ring(out, in, longest);
    wildcards();
    probes(out, in);
    many();
    cancellation(in);
    collectives();
    int all;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("messages: %s\n", all ? "wrong" : "right");
    MPI_Finalize();
    return all;
}
