/* A rank dies in the middle of many collectives: "exit" with status 7, "signal" by a segmentation fault. With "lengths", the root of a
 * gather wants twice as much of each rank as they have. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1 && strcmp(argv[1], "lengths") == 0) {
        long mine = rank, all[128];
        MPI_Gather(&mine, 1, MPI_LONG, all, 2, MPI_LONG, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        return MPI_Finalize();
    }
    for (int round = 0; round < 1000000; round++) {
        long in = round, out;
        if (rank == 1 && round == 1000) {
            if (argc > 1 && strcmp(argv[1], "signal") == 0)
                raise(SIGSEGV);
            _exit(7);
        }
        MPI_Allreduce(&in, &out, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    printf("no rank died\n");
    return MPI_Finalize();
}
