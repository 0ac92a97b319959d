/* The MPI twin of rank.rs: the same measures, the same words on the standard output. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 50 };

static char kind;
static double *vector;
static int count;

static double processor_micros(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1e6 + usage.ru_stime.tv_usec;
}

static void once(int rank)
{
    switch (kind) {
    case 'b': /* barrier */
        if (count == 0)
            MPI_Barrier(MPI_COMM_WORLD);
        else /* broadcast */
            MPI_Bcast(vector, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        break;
    case 'a':
        MPI_Allreduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 'r':
        if (rank == 0)
            MPI_Reduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        else
            MPI_Reduce(vector, NULL, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
    }
}

static double batch(int rank, int iterations)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < iterations; i++)
        once(rank);
    return (MPI_Wtime() - began) * 1e6 / iterations;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int batches = atoi(argv[1]);
    double seconds = atof(argv[2]);
    double *times = malloc(batches * sizeof *times);
    for (int which = 3; which < argc; which++) {
        const char *name = argv[which], *colon = strchr(name, ':');
        kind = name[0];
        count = colon ? atoi(colon + 1) / 8 : 0;
        vector = calloc(count ? count : 1, sizeof *vector);
        batch(rank, WARM_UP);
        double micros = batch(rank, WARM_UP);
        double wanted = seconds * 1e6 / micros;
        int iterations = wanted < 10 ? 10 : wanted > 1e6 ? 1000000 : (int)wanted;
        MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("begin %s\n", name), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
        double cpu = processor_micros(), total;
        for (int i = 0; i < batches; i++)
            times[i] = batch(rank, iterations);
        cpu = processor_micros() - cpu;
        MPI_Reduce(&cpu, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("end {\"measure\":\"%s\",\"iterations\":%d,\"micros\":[", name, iterations);
            for (int i = 0; i < batches; i++)
                printf("%s%.6f", i ? "," : "", times[i]);
            printf("],\"cpu_micros\":%.6f}\n", total / batches / iterations), fflush(stdout);
        }
        free(vector);
    }
    free(times);
    MPI_Finalize();
    return 0;
}
