/* The MPI counterpart of rank.rs: the same measures, the same output format. Two more measures are for `pleach bench mpi`: bcast,
 * whose root rotates, so that no rank runs ahead; and left, a reduction of one rank with a user-defined operator, which Pleach
 * leaves to the MPI. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 50 };

enum Kind { BARRIER, ALLREDUCE, BROADCAST, REDUCE, BCAST, LEFT };
static const char *names[] = { "barrier", "allreduce", "broadcast", "reduce", "bcast", "left" };

static enum Kind kind;
static double *vector;
static int count, rank, size;
static MPI_Op users;

static void user_sum(void *in, void *inout, int *length, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *length; i++)
        ((double *)inout)[i] += ((double *)in)[i];
}

static double processor_micros(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1e6 + usage.ru_stime.tv_usec;
}

static void once(int round)
{
    switch (kind) {
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case ALLREDUCE:
        MPI_Allreduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(vector, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        break;
    case REDUCE:
        if (rank == 0)
            MPI_Reduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        else
            MPI_Reduce(vector, NULL, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
    case BCAST:
        MPI_Bcast(vector, count, MPI_DOUBLE, round % size, MPI_COMM_WORLD);
        break;
    case LEFT:
        MPI_Allreduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE, users, MPI_COMM_SELF);
        break;
    }
}

static double batch(int iterations)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < iterations; i++)
        once(i);
    /* A root may return long before the other ranks: the batch ends when all have returned. */
    if (kind == BROADCAST || kind == REDUCE)
        MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - began) * 1e6 / iterations;
}

/* Runs the operation once with values whose result is known. */
static void check(void)
{
    double own = rank + 1, expected = size * (size + 1) / 2.0;
    if (kind == BROADCAST || kind == BCAST)
        expected = 1;
    if (kind == LEFT || (kind == REDUCE && rank != 0))
        expected = own;
    for (int i = 0; i < count; i++)
        vector[i] = own;
    once(0);
    for (int i = 0; i < count; i++) {
        if (vector[i] != expected) {
            fprintf(stderr, "%s: %g instead of %g at rank %d\n", names[kind], vector[i], expected, rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        vector[i] = 0;
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op_create(user_sum, 1, &users);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int batches = atoi(argv[1]);
    double seconds = atof(argv[2]);
    double *times = malloc(batches * sizeof *times);
    for (int which = 3; which < argc; which++) {
        const char *name = argv[which], *colon = strchr(name, ':');
        size_t length = colon ? (size_t)(colon - name) : strlen(name);
        kind = BARRIER;
        while (kind <= LEFT && (strlen(names[kind]) != length || strncmp(names[kind], name, length) != 0))
            kind++;
        if (kind > LEFT)
            MPI_Abort(MPI_COMM_WORLD, 2);
        count = colon ? atoi(colon + 1) / 8 : 0;
        vector = calloc(count ? count : 1, sizeof *vector);
        check();
        batch(WARM_UP);
        double micros = batch(WARM_UP);
        double wanted = seconds * 1e6 / micros;
        int iterations = wanted < 10 ? 10 : wanted > 1e6 ? 1000000 : (int)wanted;
        MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("begin %s\n", name), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
        double cpu = processor_micros(), total;
        for (int i = 0; i < batches; i++)
            times[i] = batch(iterations);
        cpu = processor_micros() - cpu;
        MPI_Reduce(&cpu, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("end {\"measure\":\"%s\",\"iterations\":%d,\"micros\":[", name, iterations);
            for (int i = 0; i < batches; i++)
                printf("%s%.6f", i ? "," : "", times[i]);
            printf("],\"cpu_micros\":%.6f}\n", total / batches / iterations), fflush(stdout);
        }
        check();
        free(vector);
    }
    free(times);
    MPI_Op_free(&users);
    MPI_Finalize();
    return 0;
}
