/* Two ranks: latencies, bandwidth and message rate, or with "cut" round trips while a path is cut. More ranks: memory per peer, and an
 * exchange of all with all. Prints "NAME VALUE" on rank 0: microseconds of one operation, or KiB. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;
static double seconds;

/* Runs an operation in batches for about the given time; the median of the batches in microseconds. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void ping(char *bytes, int length)
{
    if (rank == 0) {
        MPI_Send(bytes, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(bytes, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bytes, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void window(char *bytes, int length, int count)
{
    MPI_Request requests[64];
    char end;
    for (int i = 0; i < count; i++) {
        char *place = bytes + (size_t)i * length;
        if (rank == 0)
            MPI_Isend(place, length, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(place, length, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(&end, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&end, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

/* Everyone sends to everyone. */
static void exchange(char *bytes, int length)
{
    static MPI_Request requests[256];
    int count = 0;
    for (int shift = 1; shift < ranks; shift++) {
        int from = (rank + ranks - shift) % ranks, to = (rank + shift) % ranks;
        char *target = bytes + (size_t)from * length, *source = bytes + (size_t)(ranks + to) * length;
        MPI_Irecv(target, length, MPI_BYTE, from, 4, MPI_COMM_WORLD, &requests[count++]);
        MPI_Isend(source, length, MPI_BYTE, to, 4, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* Memory of this process that is not code: the program's text is not there for the sake of a peer. */
static double resident_kib(void)
{
    char line[256];
    double sum = 0, kib;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %lf", &kib) == 1 || sscanf(line, "RssShmem: %lf", &kib) == 1)
            sum += kib;
    if (!file || sum == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    fclose(file);
    return sum;
}

/* The MPI keeps its requests for later ones. Messages to itself make as many as an exchange needs. */
static void make_requests(char *bytes)
{
    static MPI_Request requests[256];
    int count = 0;
    for (int i = 1; i < ranks; i++) {
        MPI_Irecv(bytes, 8, MPI_BYTE, rank, 5, MPI_COMM_WORLD, &requests[count++]);
        MPI_Isend(bytes + 64, 8, MPI_BYTE, rank, 5, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* Round trips with a number in each, while a path is cut: prints how much longer the longest was than the median, whether all numbers
 * were right, and the median of the last quarter over that of the first. */
static void survive_cut(void)
{
    enum { MOST = 1 << 22 };
    double *times = malloc(MOST * sizeof(double));
    int count = 0, right = 1, more = 1;
    double began = MPI_Wtime(), before = began;
    if (rank == 0) {
        printf("begin\n");
        fflush(stdout);
    }
    while (more) {
        long sent[2] = {count, 1}, got[2] = {0, 0};
        if (rank == 0) {
            more = before - began < seconds && count + 1 < MOST;
            sent[1] = more;
            MPI_Send(sent, 2, MPI_LONG, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(got, 2, MPI_LONG, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(got, 2, MPI_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(got, 2, MPI_LONG, 0, 1, MPI_COMM_WORLD);
            more = got[1] != 0;
        }
        right = right && got[0] == count;
        double now = MPI_Wtime();
        times[count++] = now - before;
        before = now;
    }
    int every = 0, quarter = count / 4;
    MPI_Reduce(&right, &every, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0 && quarter > 0) {
        double longest = 0;
        for (int i = 0; i < count; i++)
            longest = times[i] > longest ? times[i] : longest;
        qsort(times, quarter, sizeof(double), compare);
        qsort(times + count - quarter, quarter, sizeof(double), compare);
        double first = times[quarter / 2], last = times[count - quarter + quarter / 2];
        printf("took %.6f %s %.3f\n", longest - first, every ? "right" : "WRONG", last / first);
        fflush(stdout);
    }
    free(times);
}

enum { PAIR_PING = 0, ALL_EXCHANGE = -1 };

static void measure(const char *name, char *bytes, int length, int count)
{
    enum { BATCHES = 15 };
    double times[BATCHES];
    int runs = 1;
    for (int batch = -1; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (int run = 0; run < runs; run++) {
            if (count == ALL_EXCHANGE)
                exchange(bytes, length);
            else if (count)
                window(bytes, length, count);
            else
                ping(bytes, length);
        }
        double took = MPI_Wtime() - began;
        if (batch < 0) {
            double wanted = seconds / BATCHES / (took > 1e-7 ? took : 1e-7);
            runs = wanted < 1 ? 1 : wanted > 100000 ? 100000 : (int)wanted;
            if (runs < 20 && took < 0.05)
                runs = 20;
            MPI_Bcast(&runs, 1, MPI_INT, 0, MPI_COMM_WORLD);
        } else {
            times[batch] = took * 1e6 / runs / (count > 0 ? count : count == PAIR_PING ? 2 : 1);
        }
    }
    qsort(times, BATCHES, sizeof(double), compare);
    if (rank == 0) {
        printf("%s %.4f\n", name, times[BATCHES / 2]);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seconds = argc > 1 ? atof(argv[1]) : 0.5;
    char *bytes = malloc(64 << 20);
    memset(bytes, 1, 64 << 20);
    if (ranks > 2) {
        make_requests(bytes);
        double before = resident_kib(), grown, most;
        for (int i = 0; i < 200; i++)
            exchange(bytes, 8);
        grown = (resident_kib() - before) / (ranks - 1);
        MPI_Reduce(&grown, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("memory-per-peer %.2f\n", most);
        measure("exchange-4096", bytes, 4096, ALL_EXCHANGE);
        MPI_Finalize();
        return 0;
    }
    for (int i = 0; i < 2000; i++)
        ping(bytes, 8);
    if (argc > 2 && !strcmp(argv[2], "cut")) {
        survive_cut();
        MPI_Finalize();
        return 0;
    }
    measure("latency-8", bytes, 8, 0);
    measure("latency-4096", bytes, 4096, 0);
    measure("bandwidth-1MiB", bytes, 1 << 20, 16);
    measure("rate-8", bytes, 8, 64);
    MPI_Finalize();
    return 0;
}
