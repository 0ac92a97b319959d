/* The MPI counterpart of rank.rs: the same sizes, batches and processors, the same output format. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 7, WARM_UP = 20, TAG_CONTINUE = 0, TAG_STOP = 1 };

/* On hosts made of namespaces no launcher binds its rank. Each has its own processor if there are two. */
static void pin_to_cpu(int rank)
{
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    CPU_ZERO(&own);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank)
            CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

/* Rank 1 echoes every message until one with the stop tag ends the batch. */
static void echo(char *buffer, int bytes)
{
    MPI_Status status;
    for (;;) {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == TAG_STOP)
            return;
        MPI_Send(buffer, bytes, MPI_BYTE, 0, TAG_CONTINUE, MPI_COMM_WORLD);
    }
}

static double round_trips(char *buffer, int bytes, int times)
{
    double began = MPI_Wtime();
    for (int i = 0; i < times; i++) {
        MPI_Send(buffer, bytes, MPI_BYTE, 1, TAG_CONTINUE, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_BYTE, 1, TAG_CONTINUE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    double seconds = MPI_Wtime() - began;
    MPI_Send(buffer, 0, MPI_BYTE, 1, TAG_STOP, MPI_COMM_WORLD);
    return seconds;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pin_to_cpu(rank);
    double seconds = atof(argv[1]);
    for (int place = 2; place < argc; place++) {
        int bytes = atoi(argv[place]);
        char *buffer = malloc(bytes);
        memset(buffer, place, bytes);
        if (rank == 1) {
            for (int batch = 0; batch < BATCHES + 1; batch++)
                echo(buffer, bytes);
        } else {
            double once = round_trips(buffer, bytes, WARM_UP) / WARM_UP;
            int times = once > 0 ? (int)(seconds / once) : 1;
            if (times < 2)
                times = 2;
            printf("{\"bytes\":%d,\"checksum\":\"mpi\",\"micros\":[", bytes);
            for (int batch = 0; batch < BATCHES; batch++)
                printf("%s%.4f", batch ? "," : "", round_trips(buffer, bytes, times) / times / 2 * 1e6);
            printf("]}\n");
            fflush(stdout);
        }
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}
