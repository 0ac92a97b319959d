/* The measurement of main.rs, for an MPI library: operations and sizes on the command line, a line for each on standard output. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 15 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *operation, size_t bytes, size_t repeats, char *input, char *output, int rank) {
    double batch[BATCHES];
    int is_barrier = !strcmp(operation, "barrier"), is_broadcast = !strcmp(operation, "broadcast");
    for (int b = -1; b < BATCHES; b++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (size_t i = 0; i < repeats; i++) {
            if (is_barrier)
                MPI_Barrier(MPI_COMM_WORLD);
            else if (is_broadcast)
                MPI_Bcast(input, bytes / 8, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            else
                MPI_Allreduce(input, output, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        if (is_broadcast)
            MPI_Barrier(MPI_COMM_WORLD);
        if (b >= 0)
            batch[b] = (MPI_Wtime() - began) * 1e6 / repeats;
    }
    qsort(batch, BATCHES, sizeof batch[0], by_size);
    if (rank == 0)
        printf("%s %zu %f %f\n", operation, bytes, batch[BATCHES / 2], batch[0]);
}

/* Triples of operation, bytes and repeats. */
int main(int argc, char **argv) {
    int rank;
    size_t largest = 8;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i + 2 < argc; i += 3)
        if (strtoul(argv[i + 1], 0, 10) > largest)
            largest = strtoul(argv[i + 1], 0, 10);
    char *input = malloc(largest), *output = malloc(largest);
    memset(input, 0, largest);
    memset(output, 1, largest);
    for (int i = 1; i + 2 < argc; i += 3)
        measure(argv[i], strtoul(argv[i + 1], 0, 10), strtoul(argv[i + 2], 0, 10), input, output, rank);
    MPI_Finalize();
}
