/* Kernels in the shape of the NAS parallel benchmarks (IS, FT, LU, CG, MG, EP): small, and each verifies its own result.
 *
 * kernels NAME REPETITIONS [spoil]: runs one. Rank 0 prints "begin", then "took SECONDS right|WRONG". The number of ranks is a power of
 * two up to 32. With "spoil", something that was received is changed: the verification must notice. Nothing here knows of Pleach. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, spoil;
static const double PI = 3.14159265358979323846;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double unit(uint64_t x)
{
    return (double)(mix(x) >> 11) / 9007199254740992.0;
}

static void *room(size_t bytes)
{
    void *found = calloc(bytes + 64, 1);
    if (!found) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
    return found;
}

static int all(int right)
{
    int every;
    MPI_Allreduce(&right, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return every;
}

/* IS: sorts integers by buckets; one bucket for each rank. Order and the multiset of keys are verified. */
static int is(int round)
{
    enum { KEYS = 1 << 15, LIMIT = 1 << 19 };
    uint32_t *keys = room(KEYS * 4), *sorted = room(KEYS * 4);
    int *count = room(ranks * 4), *from = room(ranks * 4), *got = room(ranks * 4), *to = room(ranks * 4);
    uint64_t before[2] = {0, 0}, after[2] = {0, 0}, sums[4], totals[4];
    for (int i = 0; i < KEYS; i++) {
        keys[i] = mix(((uint64_t)round << 40) + (uint64_t)rank * KEYS + i) % LIMIT;
        before[0] += keys[i];
        before[1] += mix(keys[i]);
        count[(uint64_t)keys[i] * ranks / LIMIT]++;
    }
    for (int r = 1; r < ranks; r++)
        from[r] = from[r - 1] + count[r - 1];
    int *next = room(ranks * 4);
    memcpy(next, from, ranks * 4);
    for (int i = 0; i < KEYS; i++)
        sorted[next[(uint64_t)keys[i] * ranks / LIMIT]++] = keys[i];
    MPI_Alltoall(count, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
    int total = got[0];
    for (int r = 1; r < ranks; r++) {
        to[r] = to[r - 1] + got[r - 1];
        total += got[r];
    }
    uint32_t *mine = room((size_t)total * 4);
    MPI_Alltoallv(sorted, count, from, MPI_UNSIGNED, mine, got, to, MPI_UNSIGNED, MPI_COMM_WORLD);
    if (total)
        mine[0] ^= spoil;
    /* By counting, as the original does. */
    uint32_t low = ((uint64_t)rank * LIMIT + ranks - 1) / ranks, high = ((uint64_t)(rank + 1) * LIMIT + ranks - 1) / ranks;
    int *times = room((size_t)(high - low) * 4), right = 1;
    for (int i = 0; i < total; i++) {
        after[0] += mine[i];
        after[1] += mix(mine[i]);
        if (mine[i] < low || mine[i] >= high)
            right = 0;
        else
            times[mine[i] - low]++;
    }
    int place = 0;
    for (uint32_t key = low; key < high; key++)
        for (int t = 0; t < times[key - low]; t++)
            mine[place++] = key;
    memcpy(sums, before, 16);
    memcpy(sums + 2, after, 16);
    MPI_Allreduce(sums, totals, 4, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    right = right && place == total && totals[0] == totals[2] && totals[1] == totals[3];
    /* The largest key of each rank is below the smallest of the next. */
    uint32_t last = total ? mine[total - 1] : low, first = 0;
    int left = rank ? rank - 1 : MPI_PROC_NULL, beyond = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&last, 1, MPI_UNSIGNED, beyond, 5, &first, 1, MPI_UNSIGNED, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    right = right && (left == MPI_PROC_NULL || !total || first < mine[0]);
    free(keys), free(sorted), free(count), free(from), free(got), free(to), free(next), free(mine), free(times);
    return right;
}

static void fft(double *x, int n, int sign)
{
    for (int i = 1, j = 0; i < n; i++) {
        int bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j)
            for (int part = 0; part < 2; part++) {
                double swap = x[2 * i + part];
                x[2 * i + part] = x[2 * j + part];
                x[2 * j + part] = swap;
            }
    }
    for (int half = 1; half < n; half *= 2)
        for (int k = 0; k < half; k++) {
            double a = cos(PI * k / half), b = sign * sin(PI * k / half);
            for (int i = k; i < n; i += 2 * half) {
                double *low = x + 2 * i, *high = x + 2 * (i + half);
                double re = high[0] * a - high[1] * b, im = high[0] * b + high[1] * a;
                high[0] = low[0] - re, high[1] = low[1] - im;
                low[0] += re, low[1] += im;
            }
        }
}

/* Transposes a square of n x n complex numbers, distributed by rows. */
static void transpose(double *x, double *work, int n)
{
    int rows = n / ranks;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rows; i++)
            memcpy(work + 2 * ((size_t)(r * rows + i) * rows), x + 2 * ((size_t)i * n + r * rows), 16 * rows);
    double *got = room(16 * (size_t)rows * n);
    MPI_Alltoall(work, 2 * rows * rows, MPI_DOUBLE, got, 2 * rows * rows, MPI_DOUBLE, MPI_COMM_WORLD);
    got[0] += 0.001 * spoil;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                memcpy(x + 2 * ((size_t)j * n + r * rows + i), got + 2 * ((size_t)(r * rows + i) * rows + j), 16);
    free(got);
}

/* FT: a Fourier transform in two dimensions, there and back. Parseval's sum and the original numbers are verified. */
static int ft(int round)
{
    enum { N = 256 };
    int rows = N / ranks, right = 1;
    size_t bytes = 16 * (size_t)rows * N;
    double *x = room(bytes), *work = room(bytes), sums[2] = {0, 0}, totals[2];
    for (int i = 0; i < 2 * rows * N; i++) {
        x[i] = unit(((uint64_t)round << 40) + (uint64_t)rank * 2 * rows * N + i) - 0.5;
        sums[0] += x[i] * x[i];
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int turn = 0; turn < 2; turn++) {
            for (int i = 0; i < rows; i++)
                fft(x + 2 * (size_t)i * N, N, sign);
            transpose(x, work, N);
        }
        if (sign < 0)
            for (int i = 0; i < 2 * rows * N; i++)
                sums[1] += x[i] * x[i] / N / N;
    }
    MPI_Allreduce(sums, totals, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (fabs(totals[0] - totals[1]) > 1e-9 * totals[0])
        right = 0;
    for (int i = 0; i < 2 * rows * N; i++)
        if (fabs(x[i] / N / N - (unit(((uint64_t)round << 40) + (uint64_t)rank * 2 * rows * N + i) - 0.5)) > 1e-10)
            right = 0;
    free(x), free(work);
    return right;
}

static uint64_t step(uint64_t up, uint64_t left, uint64_t own)
{
    return (up * 3 + left * 5 + own) ^ (up >> 17) ^ (left << 9);
}

/* LU: sweeps of a triangular solver, pipelined through the ranks in many short messages. In whole numbers, so that every rank can verify
 * its last row against its own computation of all rows above. */
static int lu(int round)
{
    enum { COLUMNS = 2048, BLOCK = 16, ROWS = 4, SWEEPS = 3 };
    uint64_t *above = room(8 * COLUMNS), *row = room(8 * COLUMNS), *check = room(8 * COLUMNS);
    int right = 1;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        uint64_t seed = (uint64_t)(round * SWEEPS + sweep) << 32;
        uint64_t lefts[ROWS] = {0};
        for (int block = 0; block < COLUMNS; block += BLOCK) {
            if (rank > 0)
                MPI_Recv(above + block, BLOCK, MPI_UINT64_T, rank - 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                memset(above + block, 0, 8 * BLOCK);
            above[block] ^= spoil;
            memcpy(row + block, above + block, 8 * BLOCK);
            for (int i = 0; i < ROWS; i++)
                for (int j = block; j < block + BLOCK; j++)
                    row[j] = lefts[i] = step(row[j], lefts[i], seed + (uint64_t)(rank * ROWS + i) * COLUMNS + j);
            if (rank + 1 < ranks)
                MPI_Send(row + block, BLOCK, MPI_UINT64_T, rank + 1, 6, MPI_COMM_WORLD);
        }
        memset(check, 0, 8 * COLUMNS);
        for (int i = 0; i < (rank + 1) * ROWS; i++) {
            uint64_t left = 0;
            for (int j = 0; j < COLUMNS; j++)
                check[j] = left = step(check[j], left, seed + (uint64_t)i * COLUMNS + j);
        }
        right = right && !memcmp(check, row, 8 * COLUMNS);
    }
    free(above), free(row), free(check);
    return right;
}

/* The rows beside those of this rank. `x` has `rows` rows of n, and one more before and behind. */
static void halo(double *x, int rows, int n, int tag)
{
    int up = rank ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Irecv(x, n, MPI_DOUBLE, up, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(x + (size_t)(rows + 1) * n, n, MPI_DOUBLE, down, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(x + n, n, MPI_DOUBLE, up, tag, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(x + (size_t)rows * n, n, MPI_DOUBLE, down, tag, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    if (spoil)
        x[0] += unit(tag + spoil++);
}

/* y = A x for the equation of Poisson on a grid, with zero outside. */
static void apply(double *x, double *y, int rows, int n)
{
    halo(x, rows, n, 7);
    for (int i = 1; i <= rows; i++)
        for (int j = 0; j < n; j++) {
            double *here = x + (size_t)i * n + j;
            y[(size_t)i * n + j] = 4 * here[0] - here[-n] - here[n] - (j ? here[-1] : 0) - (j + 1 < n ? here[1] : 0);
        }
}

static double dot(const double *x, const double *y, int rows, int n)
{
    double own = 0, total;
    for (int i = n; i < (rows + 1) * n; i++)
        own += x[i] * y[i];
    MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* CG: conjugate gradients. The residual is computed anew at the end. */
static int cg(int round)
{
    enum { N = 128 };
    int rows = N / ranks;
    size_t bytes = 8 * (size_t)(rows + 2) * N;
    double *x = room(bytes), *r = room(bytes), *p = room(bytes), *q = room(bytes), *b = room(bytes);
    for (int i = N; i < (rows + 1) * N; i++)
        b[i] = r[i] = p[i] = unit(((uint64_t)round << 40) + (uint64_t)rank * rows * N + i) - 0.5;
    double first = dot(r, r, rows, N), rho = first;
    for (int iteration = 0; iteration < 400 && rho > 1e-20 * first; iteration++) {
        apply(p, q, rows, N);
        double alpha = rho / dot(p, q, rows, N);
        for (int i = N; i < (rows + 1) * N; i++)
            x[i] += alpha * p[i], r[i] -= alpha * q[i];
        double before = rho;
        rho = dot(r, r, rows, N);
        for (int i = N; i < (rows + 1) * N; i++)
            p[i] = r[i] + rho / before * p[i];
    }
    apply(x, q, rows, N);
    for (int i = N; i < (rows + 1) * N; i++)
        q[i] -= b[i];
    int right = sqrt(dot(q, q, rows, N) / first) < 1e-8;
    free(x), free(r), free(p), free(q), free(b);
    return right;
}

/* A step of Jacobi's method, damped. */
static void smooth(double *x, double *b, double *y, int rows, int n)
{
    apply(x, y, rows, n);
    for (int i = n; i < (rows + 1) * n; i++)
        x[i] += 0.2 * (b[i] - y[i]);
}

/* A cycle of multigrid: the correction from a grid of half the size, while each rank keeps a row there. */
static void cycle(double *x, double *b, int rows, int n)
{
    size_t bytes = 8 * (size_t)(rows + 2) * n, small = 8 * (size_t)(rows / 2 + 2) * (n / 2);
    double *y = room(bytes);
    for (int s = 0; s < 3; s++)
        smooth(x, b, y, rows, n);
    if (rows >= 2) {
        double *coarse_b = room(small), *coarse_x = room(small);
        apply(x, y, rows, n);
        for (int i = 1; i <= rows / 2; i++)
            for (int j = 0; j < n / 2; j++)
                for (int di = 0; di < 2; di++)
                    for (int dj = 0; dj < 2; dj++) {
                        size_t from = (size_t)(2 * i - 1 + di) * n + 2 * j + dj;
                        coarse_b[(size_t)i * (n / 2) + j] += b[from] - y[from];
                    }
        /* Piecewise constant corrections are too small by half: so two cycles there. */
        cycle(coarse_x, coarse_b, rows / 2, n / 2);
        cycle(coarse_x, coarse_b, rows / 2, n / 2);
        for (int i = 1; i <= rows; i++)
            for (int j = 0; j < n; j++)
                x[(size_t)i * n + j] += 0.5 * coarse_x[(size_t)((i + 1) / 2) * (n / 2) + j / 2];
        free(coarse_b), free(coarse_x);
    }
    for (int s = 0; s < (rows >= 2 ? 3 : 20); s++)
        smooth(x, b, y, rows, n);
    free(y);
}

/* MG: multigrid. Every cycle must reduce the residual, and all together by much. */
static int mg(int round)
{
    enum { N = 128, CYCLES = 8 };
    int rows = N / ranks, right = 1;
    size_t bytes = 8 * (size_t)(rows + 2) * N;
    double *x = room(bytes), *b = room(bytes), *y = room(bytes);
    for (int i = N; i < (rows + 1) * N; i++)
        b[i] = unit(((uint64_t)round << 40) + (uint64_t)rank * rows * N + i) - 0.5;
    double first = sqrt(dot(b, b, rows, N)), last = first;
    for (int c = 0; c < CYCLES; c++) {
        cycle(x, b, rows, N);
        apply(x, y, rows, N);
        for (int i = N; i < (rows + 1) * N; i++)
            y[i] = b[i] - y[i];
        double now = sqrt(dot(y, y, rows, N));
        right = right && now < last;
        last = now;
    }
    right = right && last < 0.05 * first;
    free(x), free(b), free(y);
    return right;
}

/* EP: random numbers of normal distribution, counted by size; the counts must be those of one process alone. */
static void ep_part(int64_t *counts, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        double a = 2 * unit(2 * i) - 1, b = 2 * unit(2 * i + 1) - 1, square = a * a + b * b;
        if (square > 1 || square == 0)
            continue;
        double factor = sqrt(-2 * log(square) / square), size = fmax(fabs(a * factor), fabs(b * factor));
        counts[size >= 9 ? 9 : (int)size]++;
    }
}

static int ep(int round)
{
    enum { PAIRS = 1 << 16 };
    int64_t counts[10] = {0}, totals[10], alone[10] = {0};
    uint64_t base = (uint64_t)round * PAIRS * ranks;
    ep_part(counts, base + (uint64_t)rank * PAIRS, base + (uint64_t)(rank + 1) * PAIRS);
    MPI_Allreduce(counts, totals, 10, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    totals[0] += spoil;
    if (rank != round % ranks)
        return 1;
    ep_part(alone, base, base + (uint64_t)ranks * PAIRS);
    return !memcmp(alone, totals, sizeof alone);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int);
    } kernels[] = {{"IS", is}, {"FT", ft}, {"LU", lu}, {"CG", cg}, {"MG", mg}, {"EP", ep}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int repetitions = argc > 2 ? atoi(argv[2]) : 1, right = 0;
    spoil = argc > 3 && !strcmp(argv[3], "spoil");
    for (size_t k = 0; argc > 1 && k < sizeof kernels / sizeof *kernels; k++) {
        if (strcmp(argv[1], kernels[k].name))
            continue;
        right = kernels[k].run(0); /* Connections are made here. */
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        if (rank == 0) {
            printf("begin\n");
            fflush(stdout);
        }
        for (int round = 1; round <= repetitions; round++)
            right &= kernels[k].run(round);
        right = all(right);
        if (rank == 0) {
            printf("took %.6f %s\n", MPI_Wtime() - began, right ? "right" : "WRONG");
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return right ? 0 : 1;
}
