/* Several threads, each with a communicator of its own, all at once: made, used and freed again and again.
 *
 * Ends with "threads: N allreduces" on rank 0.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 3, ROUNDS = 20, CALLS = 50 };
static MPI_Comm bases[THREADS];

static void *work(void *which)
{
    MPI_Comm base = bases[*(int *)which];
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm comm;
        int rank, size;
        MPI_Comm_dup(base, &comm);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        for (int call = 0; call < CALLS; call++) {
            long given = (long)*(int *)which * 1000 + rank + call, sum = 0, later = 0;
            long expected = (long)size * (*(int *)which * 1000 + call) + (long)size * (size - 1) / 2;
            MPI_Request request;
            MPI_Allreduce(&given, &sum, 1, MPI_LONG, MPI_SUM, comm);
            MPI_Iallreduce(&given, &later, 1, MPI_LONG, MPI_SUM, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (sum != expected || later != expected) {
                fprintf(stderr, "thread %d: %ld and %ld instead of %ld\n", *(int *)which, sum, later, expected);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        MPI_Comm_free(&comm);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE) {
        printf("threads: none, the MPI has none\n");
        return MPI_Finalize();
    }
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &bases[i]);
        numbers[i] = i;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&bases[i]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("threads: %d allreduces\n", 2 * THREADS * ROUNDS * CALLS);
    return MPI_Finalize();
}
