/* The MPI counterpart of rank.rs: the same measures, the same output format. More measures are for `pleach bench mpi`: bcast, whose
 * root rotates, so that no rank runs ahead; reduce-scatter and allgather, whose bytes are those of the whole vector, at least one
 * element for each rank; and left, a reduction of one rank with a user-defined operator, which Pleach leaves to the MPI.
 *
 * All operations of all sizes are measured in one run, each for a bounded time, and every result is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A measure with slow operations takes about MOST_MICROS, but never fewer than LEAST_BATCHES batches. */
enum { WARM_UP_BATCHES = 3, LEAST_BATCHES = 3, MOST_MICROS = 1000000 };

enum Kind { BARRIER, ALLREDUCE, BROADCAST, REDUCE, BCAST, REDUCE_SCATTER, ALLGATHER, LEFT };
static const char *names[] = { "barrier", "allreduce", "broadcast", "reduce", "bcast", "reduce-scatter", "allgather", "left" };

static enum Kind kind;
static double *vector;
/* Elements of the vector, and of each rank's share of it. */
static int count, share;
static int rank, size;
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
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(MPI_IN_PLACE, vector, share, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALLGATHER:
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, vector, share, MPI_DOUBLE, MPI_COMM_WORLD);
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

/* What a rank contributes: another value for each rank and for neighbouring elements. */
static double contribution(int of, int element)
{
    return of + 1 + element % 1009;
}

/* The result of the operation on the contributions of all ranks. */
static double expected(int element)
{
    double sums = size * (size + 1) / 2.0;
    switch (kind) {
    case ALLREDUCE:
        return sums + size * (element % 1009);
    case REDUCE:
        return rank == 0 ? sums + size * (element % 1009) : contribution(rank, element);
    case BROADCAST:
    case BCAST:
        return contribution(0, element);
    case REDUCE_SCATTER:
        return sums + size * ((rank * share + element) % 1009);
    case ALLGATHER:
        return contribution(element / share, element);
    default:
        return contribution(rank, element);
    }
}

static void compare(int element, double wanted)
{
    if (vector[element] == wanted)
        return;
    fprintf(stderr, "%s of %d bytes: wrong result at rank %d: element %d is %g instead of %g\n", names[kind], count * 8, rank,
            element, vector[element], wanted);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Runs the operation once with values whose result is known. */
static void check(void)
{
    /* The rest of the vector is undefined after a reduce-scatter. */
    int defined = kind == REDUCE_SCATTER ? share : count;
    for (int i = 0; i < count; i++)
        vector[i] = kind != ALLGATHER || i / share == rank ? contribution(rank, i) : 0;
    once(0);
    for (int i = 0; i < defined; i++)
        compare(i, expected(i));
    memset(vector, 0, count * sizeof *vector);
}

/* The batches operate on zeros: anything else is left from another operation. */
static void check_zeros(void)
{
    for (int i = 0; i < count; i++)
        compare(i, 0);
}

/* Warms up, and sets how many operations a batch of so many seconds has, and how many batches there are. Other processes may delay some
 * of the operations, so it needs several batches, each of at least a quarter of that time, and takes the fastest. */
static void prepare(double seconds, int *iterations, int *batches)
{
    double fastest = 0, total = 0;
    int repeated = 1, timed = 0, is_warm = 0;
    while (!is_warm) {
        double micros = batch(repeated);
        total += micros * repeated;
        if (micros * repeated < seconds * 1e6 / 4) {
            repeated *= 2;
        } else {
            timed++;
            fastest = timed == 1 || micros < fastest ? micros : fastest;
        }
        is_warm = timed == WARM_UP_BATCHES || (timed > 0 && total > MOST_MICROS);
        /* The clock of rank 0 decides for all. */
        int decided[2] = { repeated, is_warm };
        MPI_Bcast(decided, 2, MPI_INT, 0, MPI_COMM_WORLD);
        repeated = decided[0];
        is_warm = decided[1];
    }
    double wanted = seconds * 1e6 / fastest;
    int plan[2] = { wanted < 1 ? 1 : wanted > 1e6 ? 1000000 : (int)wanted, *batches };
    while (plan[1] > LEAST_BATCHES && plan[0] * fastest * plan[1] > MOST_MICROS)
        plan[1]--;
    MPI_Bcast(plan, 2, MPI_INT, 0, MPI_COMM_WORLD);
    *iterations = plan[0];
    *batches = plan[1];
}

/* Measures one operation, which rank 0 reports. */
static void measure(const char *name, double seconds, int most_batches)
{
    int iterations, batches = most_batches;
    prepare(seconds, &iterations, &batches);
    double *times = malloc(batches * sizeof *times);
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
    free(times);
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
    for (int which = 3; which < argc; which++) {
        const char *name = argv[which], *colon = strchr(name, ':');
        size_t length = colon ? (size_t)(colon - name) : strlen(name);
        kind = BARRIER;
        while (kind <= LEFT && (strlen(names[kind]) != length || strncmp(names[kind], name, length) != 0))
            kind++;
        if (kind > LEFT)
            MPI_Abort(MPI_COMM_WORLD, 2);
        count = colon ? atoi(colon + 1) / 8 : 0;
        share = count < size ? 1 : count / size;
        if (kind == REDUCE_SCATTER || kind == ALLGATHER)
            count = share * size;
        vector = calloc(count ? count : 1, sizeof *vector);
        check();
        measure(name, seconds, batches);
        check_zeros();
        check();
        free(vector);
    }
    MPI_Op_free(&users);
    MPI_Finalize();
    return 0;
}
