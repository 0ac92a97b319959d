/* A rank dies in the middle of many collectives: "exit" with status 7, "signal" by a segmentation fault. */
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
