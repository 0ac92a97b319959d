/* A program that outlives its ranks, as ULFM lets it: some die, the others revoke their communicator, shrink it and go on.
 *
 * Arguments: rounds, a mode, and for each rank that dies "rank:round". Modes: "blocking"; "requests", where all calls are non-blocking;
 * "messages", where ranks also pass a token around, so that they learn of a failure in different calls; "revoke", where no rank dies and rank 0
 * revokes the communicator while the others wait for it in a collective call.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi-ext.h> /* After mpi.h. */

#define LENGTH 1000

/* After a rank's death, the finalization of Open MPI 5.0.11 hangs in about a third of all runs, with and without the library. */
#define SECONDS_TO_FINALIZE 3

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

static const char *mode;
static int me;

static void check(int is_right, const char *what, int round) {
    if (!is_right) {
        fprintf(stderr, "rank %d: wrong: %s in round %d\n", me, what, round);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static int complete(int status, MPI_Request *request) {
    return status == MPI_SUCCESS ? MPI_Wait(request, MPI_STATUS_IGNORE) : status;
}

static int sum(const long *values, long *sums, MPI_Comm comm) {
    MPI_Request request;
    if (strcmp(mode, "requests") == 0)
        return complete(MPI_Iallreduce(values, sums, LENGTH, MPI_LONG, MPI_SUM, comm, &request), &request);
    return MPI_Allreduce(values, sums, LENGTH, MPI_LONG, MPI_SUM, comm);
}

static int broadcast(long *value, int root, MPI_Comm comm) {
    MPI_Request request;
    if (strcmp(mode, "requests") == 0)
        return complete(MPI_Ibcast(value, 1, MPI_LONG, root, comm, &request), &request);
    return MPI_Bcast(value, 1, MPI_LONG, root, comm);
}

/* One round; the status of the first call that fails. */
static int run_round(int round, MPI_Comm comm) {
    int rank, ranks, status;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    static long values[LENGTH], sums[LENGTH];
    for (int i = 0; i < LENGTH; i++) values[i] = (long)round * (rank + 1) + i;
    if ((status = sum(values, sums, comm)) != MPI_SUCCESS) return status;
    for (int i = 0; i < LENGTH; i++)
        check(sums[i] == (long)round * ranks * (ranks + 1) / 2 + (long)i * ranks, "a sum", round);
    if (strcmp(mode, "messages") == 0 && ranks > 1) {
        long token = round, found = -1;
        int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        status = MPI_Sendrecv(&token, 1, MPI_LONG, next, 7, &found, 1, MPI_LONG, previous, 7, comm, MPI_STATUS_IGNORE);
        if (status != MPI_SUCCESS) return status;
        check(found == round, "a token", round);
    }
    long word = rank == round % ranks ? 1000 + round : -1;
    if ((status = broadcast(&word, round % ranks, comm)) != MPI_SUCCESS) return status;
    check(word == 1000 + round, "a broadcast", round);
    return MPI_SUCCESS;
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rounds = atoi(arguments[1]), repairs = 0, ranks;
    mode = arguments[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Barrier(comm); /* Non-blocking calls are offloaded only after a blocking one. */
    for (int round = 0; round < rounds; round++) {
        for (int i = 3; i < count; i++) {
            int victim, when;
            sscanf(arguments[i], "%d:%d", &victim, &when);
            if (victim == me && when == round) raise(SIGKILL);
        }
        int status;
        if (strcmp(mode, "revoke") == 0 && me == 0 && round == rounds / 2 && repairs == 0) {
            usleep(300000); /* The others wait in the first call of the round. */
            MPIX_Comm_revoke(comm);
            status = MPI_ERR_REVOKED;
        } else {
            status = run_round(round, comm);
        }
        while (status != MPI_SUCCESS) {
            int class;
            MPI_Error_class(status, &class);
            check(class == MPI_ERR_PROC_FAILED || class == MPI_ERR_REVOKED, "an error's class", round);
            MPI_Comm survivors;
            MPIX_Comm_revoke(comm);
            MPIX_Comm_shrink(comm, &survivors);
            MPI_Comm_free(&comm);
            comm = survivors;
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
            repairs++;
            /* Some ranks have completed the round: all repeat it from the first that has not. */
            int first = 0;
            status = MPI_Allreduce(&round, &first, 1, MPI_INT, MPI_MIN, comm);
            int agrees = status == MPI_SUCCESS;
            MPIX_Comm_agree(comm, &agrees);
            if (agrees) round = first - 1;
            else if (status == MPI_SUCCESS) status = MPI_ERR_REVOKED;
        }
    }
    MPI_Comm_size(comm, &ranks);
    int rank;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0) printf("shrink: %d rounds, %d ranks, %s\n", rounds, ranks, repairs ? "repaired" : "never repaired");
    fflush(stdout);
    MPI_Comm_free(&comm);
    signal(SIGALRM, leave);
    alarm(SECONDS_TO_FINALIZE);
    MPI_Finalize();
    return 0;
}
