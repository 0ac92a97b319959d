/* The MPI counterpart of rank.rs: the same sizes and batches, the same output format. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 7, WARM_UP = 20, TAG_CONTINUE = 0, TAG_STOP = 1 };

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
            printf("{\"bytes\":%d,\"checksum\":\"open-mpi\",\"micros\":[", bytes);
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
