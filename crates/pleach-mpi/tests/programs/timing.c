/* How long collectives take: a line per operation and size, with the median of batches in microseconds.
 *
 * Roots of broadcasts take turns, so that no root runs ahead. Usage: timing [seconds per line]. To be run with and without the library,
 * by turns; only ratios within one session mean anything.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 21 };
enum Verb { BARRIER, ALLREDUCE, BCAST, LEFT, VERBS };
static const char *names[VERBS] = { "barrier", "allreduce", "bcast", "left" };
static double *input, *output;
static MPI_Op users;

static void user_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((double *)inout)[i] += ((double *)in)[i];
}

static void call(enum Verb verb, int bytes, int round, int size)
{
    switch (verb) {
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case ALLREDUCE: MPI_Allreduce(input, output, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case BCAST: MPI_Bcast(output, bytes, MPI_CHAR, round % size, MPI_COMM_WORLD); break;
    default: MPI_Allreduce(input, output, 1, MPI_DOUBLE, users, MPI_COMM_SELF); break; /* nothing for Pleach */
    }
}

static int ascending(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(enum Verb verb, int bytes, double seconds)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double began = MPI_Wtime();
    for (int i = 0; i < 10; i++)
        call(verb, bytes, i, size);
    double each = (MPI_Wtime() - began) / 10;
    int calls = (int)(seconds / BATCHES / each);
    calls = calls < 2 ? 2 : calls > 200000 ? 200000 : calls;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double times[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        began = MPI_Wtime();
        for (int i = 0; i < calls; i++)
            call(verb, bytes, i, size);
        times[batch] = (MPI_Wtime() - began) / calls * 1e6;
    }
    qsort(times, BATCHES, sizeof *times, ascending);
    if (rank == 0)
        printf("%s %d %.4f\n", names[verb], bytes, times[BATCHES / 2]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    int most = argc > 2 ? atoi(argv[2]) : 16 << 20;
    input = calloc((size_t)most, 1);
    output = calloc((size_t)most, 1);
    MPI_Op_create(user_sum, 1, &users);
    measure(BARRIER, 0, seconds);
    for (int bytes = 8; bytes <= most; bytes = bytes < 64 ? 64 : bytes * 4)
        measure(ALLREDUCE, bytes, seconds);
    for (int bytes = 8; bytes <= most; bytes = bytes < 64 ? 64 : bytes * 4)
        measure(BCAST, bytes, seconds);
    measure(LEFT, 8, seconds);
    MPI_Op_free(&users);
    free(input);
    free(output);
    return MPI_Finalize();
}
