/* Every operation, type, operator, root, count and kind of communicator, checked against what the definition says.
 *
 * The reference is computed here, from everybody's input, which messages bring: the library takes nothing of that over, so
 * that the judge shares no code with the judged. Integers, truth values, minima and maxima must come out bit by bit; sums and products
 * of floats within rounding, and with the same bits on every rank.
 *
 * Usage: conformance [brief|quick|full]. Ends with "conformance: N checks" on rank 0, or with what differs and exit status 1.
 */
#include <mpi.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long checks;
static int full, brief;

#define MUST(call) must((call), #call, __LINE__)
static void must(int status, const char *what, int line)
{
    if (status != MPI_SUCCESS) {
        fprintf(stderr, "line %d: %s gave %d\n", line, what, status);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void wrong(const char *what, const char *type, const char *op, long count, int root, long place, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    fprintf(stderr, "%s of %ld %s with %s, root %d: element %ld is wrong at rank %d of %d\n", what, count, type, op, root, place,
            rank, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Operators by number, so that the reference can switch on them. */
enum { SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, OPS };
static const char *op_names[OPS] = { "sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "minloc", "maxloc" };
static MPI_Op op_of(int op)
{
    switch (op) {
    case SUM: return MPI_SUM;
    case PROD: return MPI_PROD;
    case MIN: return MPI_MIN;
    case MAX: return MPI_MAX;
    case BAND: return MPI_BAND;
    case BOR: return MPI_BOR;
    case BXOR: return MPI_BXOR;
    case LAND: return MPI_LAND;
    case LOR: return MPI_LOR;
    case LXOR: return MPI_LXOR;
    case MINLOC: return MPI_MINLOC;
    default: return MPI_MAXLOC;
    }
}

static uint64_t state;
static uint64_t next_random(void)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* What a type can do: how it is filled, folded and compared. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    size_t extent;
    unsigned ops; /* a bit for each */
    bool rounds;  /* sums and products */
    void (*fill)(void *place, long index);
    void (*fold)(int op, void *left, const void *right);
    bool (*same)(const void *one, const void *other);
    bool (*near)(const void *one, const void *other);
} Type;

#define BIT(op) (1u << (op))
#define NUMBERS (BIT(SUM) | BIT(PROD) | BIT(MIN) | BIT(MAX))
#define BITS (BIT(BAND) | BIT(BOR) | BIT(BXOR))
#define TRUTHS (BIT(LAND) | BIT(LOR) | BIT(LXOR))
#define PLACES (BIT(MINLOC) | BIT(MAXLOC))

/* Integers wrap: calculated without sign. Some zeroes, for the truth values. */
#define INTEGER(T, U, name)                                                                                                  \
    static void fill_##name(void *place, long index)                                                                         \
    {                                                                                                                        \
        (void)index;                                                                                                         \
        uint64_t random = next_random();                                                                                     \
        *(T *)place = random % 5 == 0 ? 0 : (T)random;                                                                       \
    }                                                                                                                        \
    static void fold_##name(int op, void *left, const void *right)                                                           \
    {                                                                                                                        \
        T a = *(T *)left, b = *(const T *)right;                                                                             \
        switch (op) {                                                                                                        \
        case SUM: a = (T)(U)((U)a + (U)b); break;                                                                            \
        case PROD: a = (T)(U)((uint64_t)(U)a * (uint64_t)(U)b); break;                                                       \
        case MIN: a = a < b ? a : b; break;                                                                                  \
        case MAX: a = a > b ? a : b; break;                                                                                  \
        case BAND: a = a & b; break;                                                                                         \
        case BOR: a = a | b; break;                                                                                          \
        case BXOR: a = a ^ b; break;                                                                                         \
        case LAND: a = a && b; break;                                                                                        \
        case LOR: a = a || b; break;                                                                                         \
        case LXOR: a = !a != !b; break;                                                                                      \
        }                                                                                                                    \
        *(T *)left = a;                                                                                                      \
    }                                                                                                                        \
    static bool same_##name(const void *one, const void *other) { return *(const T *)one == *(const T *)other; }
INTEGER(int8_t, uint8_t, i8)
INTEGER(uint8_t, uint8_t, u8)
INTEGER(int16_t, uint16_t, i16)
INTEGER(uint16_t, uint16_t, u16)
INTEGER(int32_t, uint32_t, i32)
INTEGER(uint32_t, uint32_t, u32)
INTEGER(int64_t, uint64_t, i64)
INTEGER(uint64_t, uint64_t, u64)

static void fill_bool(void *place, long index)
{
    (void)index;
    *(bool *)place = next_random() % 2;
}

#define FLOATING(T, name, epsilon)                                                                                           \
    static void fill_##name(void *place, long index)                                                                         \
    {                                                                                                                        \
        (void)index;                                                                                                         \
        *(T *)place = (T)(0.5 + (double)(next_random() >> 11) / 9007199254740992.0);                                         \
    }                                                                                                                        \
    static void fold_##name(int op, void *left, const void *right)                                                           \
    {                                                                                                                        \
        T a = *(T *)left, b = *(const T *)right;                                                                             \
        switch (op) {                                                                                                        \
        case SUM: a = a + b; break;                                                                                          \
        case PROD: a = a * b; break;                                                                                         \
        case MIN: a = a < b ? a : b; break;                                                                                  \
        case MAX: a = a > b ? a : b; break;                                                                                  \
        }                                                                                                                    \
        *(T *)left = a;                                                                                                      \
    }                                                                                                                        \
    static bool same_##name(const void *one, const void *other) { return memcmp(one, other, sizeof(T)) == 0; }               \
    static bool near_##name(const void *one, const void *other)                                                              \
    {                                                                                                                        \
        T a = *(const T *)one, b = *(const T *)other;                                                                        \
        return fabsl((long double)(a - b)) <= 32 * epsilon * fabsl((long double)a);                                          \
    }
FLOATING(float, f32, 1.1920929e-7L)
FLOATING(double, f64, 2.220446049250313e-16L)
static bool same_long_double(const void *one, const void *other)
{
    return *(const long double *)one == *(const long double *)other;
}
static void fill_long_double(void *place, long index)
{
    (void)index;
    *(long double *)place = (long double)(next_random() % 1000);
}
static void fold_long_double(int op, void *left, const void *right)
{
    long double a = *(long double *)left, b = *(const long double *)right;
    *(long double *)left = op == SUM ? a + b : op == MIN ? (a < b ? a : b) : (a > b ? a : b);
}

/* Few different values, so that many are equal and the index decides. */
#define PAIR(T, name)                                                                                                        \
    typedef struct {                                                                                                         \
        T value;                                                                                                             \
        int index;                                                                                                           \
    } name;                                                                                                                  \
    static void fill_##name(void *place, long index)                                                                         \
    {                                                                                                                        \
        (void)index;                                                                                                         \
        ((name *)place)->value = (T)(next_random() % 3);                                                                     \
        ((name *)place)->index = (int)(next_random() % 100);                                                                 \
    }                                                                                                                        \
    static void fold_##name(int op, void *left, const void *right)                                                           \
    {                                                                                                                        \
        name *a = left;                                                                                                      \
        const name *b = right;                                                                                               \
        if (a->value == b->value)                                                                                            \
            a->index = a->index < b->index ? a->index : b->index;                                                            \
        else if (op == MINLOC ? b->value < a->value : b->value > a->value)                                                   \
            a->value = b->value, a->index = b->index;                                                                        \
    }                                                                                                                        \
    static bool same_##name(const void *one, const void *other)                                                              \
    {                                                                                                                        \
        const name *a = one, *b = other;                                                                                     \
        return a->value == b->value && a->index == b->index;                                                                 \
    }
PAIR(float, float_int)
PAIR(double, double_int)
PAIR(long, long_int)
PAIR(short, short_int)
PAIR(int, two_int)

#define INTEGER_TYPE(mpi, name, ops) { #mpi, mpi, sizeof_##name, ops, false, fill_##name, fold_##name, same_##name, NULL }
enum { sizeof_i8 = 1, sizeof_u8 = 1, sizeof_i16 = 2, sizeof_u16 = 2, sizeof_i32 = 4, sizeof_u32 = 4, sizeof_i64 = 8, sizeof_u64 = 8 };
#define PAIR_TYPE(mpi, name) { #mpi, mpi, sizeof(name), PLACES, false, fill_##name, fold_##name, same_##name, NULL }

static Type types[40];
static int type_count;
static void add(Type type) { types[type_count++] = type; }

static void make_types(void)
{
    const unsigned of_c = NUMBERS | BITS | TRUTHS, of_both = NUMBERS | BITS;
    add((Type)INTEGER_TYPE(MPI_INT, i32, of_c));
    add((Type){ "MPI_DOUBLE", MPI_DOUBLE, 8, NUMBERS, true, fill_f64, fold_f64, same_f64, near_f64 });
    add((Type){ "MPI_FLOAT", MPI_FLOAT, 4, NUMBERS, true, fill_f32, fold_f32, same_f32, near_f32 });
    add((Type)INTEGER_TYPE(MPI_LONG, i64, of_c));
    add((Type)INTEGER_TYPE(MPI_UINT16_T, u16, of_c));
    add((Type)PAIR_TYPE(MPI_DOUBLE_INT, double_int));
    add((Type)PAIR_TYPE(MPI_2INT, two_int));
    add((Type){ "MPI_C_BOOL", MPI_C_BOOL, 1, TRUTHS, false, fill_bool, fold_u8, same_u8, NULL });
    add((Type)INTEGER_TYPE(MPI_BYTE, u8, BITS));
    if (!full)
        return;
    add((Type)INTEGER_TYPE(MPI_SIGNED_CHAR, i8, of_c));
    add((Type)INTEGER_TYPE(MPI_UNSIGNED_CHAR, u8, of_c));
    add((Type)INTEGER_TYPE(MPI_SHORT, i16, of_c));
    add((Type)INTEGER_TYPE(MPI_UNSIGNED_SHORT, u16, of_c));
    add((Type)INTEGER_TYPE(MPI_UNSIGNED, u32, of_c));
    add((Type)INTEGER_TYPE(MPI_UNSIGNED_LONG, u64, of_c));
    add((Type)INTEGER_TYPE(MPI_LONG_LONG, i64, of_c));
    add((Type)INTEGER_TYPE(MPI_UNSIGNED_LONG_LONG, u64, of_c));
    add((Type)INTEGER_TYPE(MPI_INT8_T, i8, of_c));
    add((Type)INTEGER_TYPE(MPI_UINT8_T, u8, of_c));
    add((Type)INTEGER_TYPE(MPI_INT16_T, i16, of_c));
    add((Type)INTEGER_TYPE(MPI_INT32_T, i32, of_c));
    add((Type)INTEGER_TYPE(MPI_UINT32_T, u32, of_c));
    add((Type)INTEGER_TYPE(MPI_INT64_T, i64, of_c));
    add((Type)INTEGER_TYPE(MPI_UINT64_T, u64, of_c));
    add((Type)INTEGER_TYPE(MPI_AINT, i64, of_both));
    add((Type)INTEGER_TYPE(MPI_OFFSET, i64, of_both));
    add((Type)INTEGER_TYPE(MPI_COUNT, i64, of_both));
    add((Type)PAIR_TYPE(MPI_FLOAT_INT, float_int));
    add((Type)PAIR_TYPE(MPI_LONG_INT, long_int));
    add((Type)PAIR_TYPE(MPI_SHORT_INT, short_int));
    /* Not Pleach's: must come out right all the same. Short ones only: MPICH 4.0.2 crashes in an in-place MPI_Reduce of 129. */
    add((Type){ "MPI_LONG_DOUBLE", MPI_LONG_DOUBLE, sizeof(long double), BIT(SUM) | BIT(MIN) | BIT(MAX), false, fill_long_double,
                fold_long_double, same_long_double, NULL });
}

/* One rank's buffers, and everybody's input. */
typedef struct {
    char *input, *output, *all, *expected;
    size_t bytes;
} Buffers;

static void *room(size_t bytes)
{
    void *place = calloc(bytes + 1, 1);
    if (!place)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return place;
}

/* Everybody's bytes, as many of each, in the order of ranks: by messages alone. */
static void everybodys(const void *mine, size_t bytes, void *all, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    MPI_Request *requests = room(sizeof(MPI_Request) * 2 * (size_t)size);
    MPI_Status *statuses = room(sizeof(MPI_Status) * 2 * (size_t)size);
    for (int rank = 0; rank < size; rank++)
        MUST(MPI_Irecv((char *)all + (size_t)rank * bytes, (int)bytes, MPI_BYTE, rank, 77, comm, &requests[rank]));
    for (int rank = 0; rank < size; rank++)
        MUST(MPI_Isend((void *)(uintptr_t)mine, (int)bytes, MPI_BYTE, rank, 77, comm, &requests[size + rank]));
    MUST(MPI_Waitall(2 * size, requests, statuses));
    free(requests);
    free(statuses);
}

static Buffers buffers_of(const Type *type, long count, MPI_Comm comm, int factor)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    Buffers made;
    made.bytes = (size_t)count * type->extent * (size_t)factor;
    made.input = room(made.bytes);
    made.output = room(made.bytes);
    made.all = room(made.bytes * (size_t)size);
    made.expected = room(made.bytes);
    static uint64_t round;
    state = ++round * 1000003u + (uint64_t)rank * 7919u;
    for (long i = 0; i < count * factor; i++)
        type->fill(made.input + (size_t)i * type->extent, i);
    everybodys(made.input, made.bytes, made.all, comm);
    memset(made.output, 0x5a, made.bytes);
    return made;
}

static void free_buffers(Buffers *buffers)
{
    free(buffers->input);
    free(buffers->output);
    free(buffers->all);
    free(buffers->expected);
}

/* The fold of the first `ranks` vectors, in the order of ranks. */
static void expect(Buffers *buffers, const Type *type, int op, int ranks)
{
    memcpy(buffers->expected, buffers->all, buffers->bytes);
    for (int rank = 0; rank < ranks; rank++)
        for (size_t at = 0; at < buffers->bytes; at += type->extent) {
            if (rank > 0)
                type->fold(op, buffers->expected + at, buffers->all + (size_t)rank * buffers->bytes + at);
            else if (BIT(op) & TRUTHS && ranks > 1)
                type->fold(LOR, buffers->expected + at, buffers->expected + at); /* zero or one */
        }
}

static void compare(const char *what, const Type *type, int op, const char *expected, const char *got, long count, int root,
                    MPI_Comm comm)
{
    bool rounds = type->rounds && (op == SUM || op == PROD);
    for (long i = 0; i < count; i++) {
        const char *a = expected + (size_t)i * type->extent, *b = got + (size_t)i * type->extent;
        if (!(rounds ? type->near(a, b) : type->same(a, b)))
            wrong(what, type->name, op_names[op], count, root, i, comm);
    }
    checks++;
}

/* All ranks have the same bits. */
static void compare_ranks(const char *what, const Type *type, int op, const char *got, long count, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    size_t bytes = (size_t)count * type->extent;
    char *all = room(bytes * (size_t)size);
    everybodys(got, bytes, all, comm);
    for (int rank = 1; rank < size; rank++)
        for (long i = 0; i < count; i++)
            if (!type->same(all + (size_t)i * type->extent, all + (size_t)rank * bytes + (size_t)i * type->extent))
                wrong(what, type->name, op_names[op], count, rank, i, comm);
    free(all);
    checks++;
}

enum Manner { BLOCKING, NON_BLOCKING, LARGE_COUNT, LARGE_NON_BLOCKING, MANNERS };
static void finish(MPI_Request *request) { MUST(MPI_Wait(request, MPI_STATUS_IGNORE)); }

/* Calls one reduction in one of its forms. */
static void call(char verb, enum Manner manner, const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, int root,
                 MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (manner == NON_BLOCKING) {
        switch (verb) {
        case 'a': MUST(MPI_Iallreduce(send, receive, count, type, op, comm, &request)); break;
        case 'r': MUST(MPI_Ireduce(send, receive, count, type, op, root, comm, &request)); break;
        case 's': MUST(MPI_Iscan(send, receive, count, type, op, comm, &request)); break;
        case 'x': MUST(MPI_Iexscan(send, receive, count, type, op, comm, &request)); break;
        case 'b': MUST(MPI_Ireduce_scatter_block(send, receive, count, type, op, comm, &request)); break;
        }
        finish(&request);
        return;
    }
#ifdef LARGE_COUNTS
    if (manner == LARGE_COUNT) {
        switch (verb) {
        case 'a': MUST(MPI_Allreduce_c(send, receive, count, type, op, comm)); break;
        case 'r': MUST(MPI_Reduce_c(send, receive, count, type, op, root, comm)); break;
        case 's': MUST(MPI_Scan_c(send, receive, count, type, op, comm)); break;
        case 'x': MUST(MPI_Exscan_c(send, receive, count, type, op, comm)); break;
        case 'b': MUST(MPI_Reduce_scatter_block_c(send, receive, count, type, op, comm)); break;
        }
        return;
    }
    if (manner == LARGE_NON_BLOCKING) {
        switch (verb) {
        case 'a': MUST(MPI_Iallreduce_c(send, receive, count, type, op, comm, &request)); break;
        case 'r': MUST(MPI_Ireduce_c(send, receive, count, type, op, root, comm, &request)); break;
        case 's': MUST(MPI_Iscan_c(send, receive, count, type, op, comm, &request)); break;
        case 'x': MUST(MPI_Iexscan_c(send, receive, count, type, op, comm, &request)); break;
        case 'b': MUST(MPI_Ireduce_scatter_block_c(send, receive, count, type, op, comm, &request)); break;
        }
        finish(&request);
        return;
    }
#endif
    switch (verb) {
    case 'a': MUST(MPI_Allreduce(send, receive, count, type, op, comm)); break;
    case 'r': MUST(MPI_Reduce(send, receive, count, type, op, root, comm)); break;
    case 's': MUST(MPI_Scan(send, receive, count, type, op, comm)); break;
    case 'x': MUST(MPI_Exscan(send, receive, count, type, op, comm)); break;
    case 'b': MUST(MPI_Reduce_scatter_block(send, receive, count, type, op, comm)); break;
    }
}

/* Counts of a reduce-scatter that sum up to `count` per rank: nothing for the first, twice as much for the last. */
static void make_counts(int *counts, long count, int size)
{
    for (int rank = 0; rank < size; rank++)
        counts[rank] = (int)(size == 1 ? count : rank == 0 ? 0 : rank == size - 1 ? 2 * count : count);
}

#ifdef LARGE_COUNTS
static MPI_Count *large_counts(const int *counts, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    MPI_Count *large = room(sizeof(MPI_Count) * (size_t)size);
    for (int rank = 0; rank < size; rank++)
        large[rank] = counts[rank];
    return large;
}
#endif

static void reduce_scatter(enum Manner manner, const void *send, void *receive, const int *counts, MPI_Datatype type, MPI_Op op,
                           MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (manner == NON_BLOCKING) {
        MUST(MPI_Ireduce_scatter(send, receive, counts, type, op, comm, &request));
        finish(&request);
        return;
    }
#ifdef LARGE_COUNTS
    if (manner == LARGE_COUNT || manner == LARGE_NON_BLOCKING) {
        MPI_Count *large = large_counts(counts, comm);
        if (manner == LARGE_COUNT) {
            MUST(MPI_Reduce_scatter_c(send, receive, large, type, op, comm));
        } else {
            MUST(MPI_Ireduce_scatter_c(send, receive, large, type, op, comm, &request));
            finish(&request);
        }
        free(large);
        return;
    }
#endif
    MUST(MPI_Reduce_scatter(send, receive, counts, type, op, comm));
}

static void check_reduce_scatter(const Type *type, int op, Buffers *b, long count, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *counts = room(sizeof(int) * (size_t)size);
    make_counts(counts, count, size);
    long before = 0;
    for (int other = 0; other < rank; other++)
        before += counts[other];
    const char *expected = b->expected + (size_t)before * type->extent;
    memset(b->output, 0x5a, b->bytes);
    reduce_scatter(manner, b->input, counts[rank] ? b->output : NULL, counts, type->type, op_of(op), comm);
    compare("reduce_scatter", type, op, expected, b->output, counts[rank], -1, comm);
    memcpy(b->output, b->input, b->bytes);
    reduce_scatter(manner, MPI_IN_PLACE, b->output, counts, type->type, op_of(op), comm);
    compare("reduce_scatter in place", type, op, expected, b->output, counts[rank], -1, comm);
    free(counts);
}

static void check_reductions(const Type *type, int op, long count, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    Buffers b = buffers_of(type, count, comm, 1);
    expect(&b, type, op, size);
    call('a', manner, b.input, b.output, (int)count, type->type, op_of(op), 0, comm);
    compare("allreduce", type, op, b.expected, b.output, count, -1, comm);
    compare_ranks("allreduce", type, op, b.output, count, comm);
    memcpy(b.output, b.input, b.bytes);
    call('a', manner, MPI_IN_PLACE, b.output, (int)count, type->type, op_of(op), 0, comm);
    compare("allreduce in place", type, op, b.expected, b.output, count, -1, comm);
    for (int root = 0; root < size; root++) {
        if (!full && root != 0 && root != size - 1)
            continue;
        memset(b.output, 0x5a, b.bytes);
        call('r', manner, b.input, rank == root ? b.output : NULL, (int)count, type->type, op_of(op), root, comm);
        if (rank == root)
            compare("reduce", type, op, b.expected, b.output, count, root, comm);
        memcpy(b.output, b.input, b.bytes);
        call('r', manner, rank == root ? MPI_IN_PLACE : b.output, rank == root ? b.output : NULL, (int)count, type->type, op_of(op),
             root, comm);
        if (rank == root)
            compare("reduce in place", type, op, b.expected, b.output, count, root, comm);
    }
    /* Long scans that the MPI does itself are not judged here but for the most common types: some MPIs mistake the sign of others (Open MPI 4.1.4
     * that of MPI_UNSIGNED_LONG, MPI_OFFSET and, with AVX, unsigned shorts; MPICH 4.0.2 that of unsigned shorts). */
    if (count <= 5000 && (type < types + 4 || (size_t)count * type->extent * (size_t)size <= 65536)) {
        expect(&b, type, op, rank + 1);
        bool is_raw = rank == 0 && BIT(op) & TRUTHS; /* one vector alone: its truth values may come as they went in */
        memset(b.output, 0x5a, b.bytes);
        call('s', manner, b.input, b.output, (int)count, type->type, op_of(op), 0, comm);
        if (!is_raw)
            compare("scan", type, op, b.expected, b.output, count, -1, comm);
        memcpy(b.output, b.input, b.bytes);
        call('s', manner, MPI_IN_PLACE, b.output, (int)count, type->type, op_of(op), 0, comm);
        if (!is_raw)
            compare("scan in place", type, op, b.expected, b.output, count, -1, comm);
        memset(b.output, 0x5a, b.bytes);
        is_raw = rank < 2 && BIT(op) & TRUTHS;
        call('x', manner, b.input, b.output, (int)count, type->type, op_of(op), 0, comm);
        expect(&b, type, op, rank);
        if (rank > 0 && !is_raw)
            compare("exscan", type, op, b.expected, b.output, count, -1, comm);
        memcpy(b.output, b.input, b.bytes);
        call('x', manner, MPI_IN_PLACE, b.output, (int)count, type->type, op_of(op), 0, comm);
        if (rank > 0 && !is_raw)
            compare("exscan in place", type, op, b.expected, b.output, count, -1, comm);
        free_buffers(&b);
        b = buffers_of(type, count, comm, size);
        expect(&b, type, op, size);
        size_t part = (size_t)count * type->extent;
        call('b', manner, b.input, b.output, (int)count, type->type, op_of(op), 0, comm);
        compare("reduce_scatter_block", type, op, b.expected + (size_t)rank * part, b.output, count, -1, comm);
        memcpy(b.output, b.input, b.bytes);
        call('b', manner, MPI_IN_PLACE, b.output, (int)count, type->type, op_of(op), 0, comm);
        compare("reduce_scatter_block in place", type, op, b.expected + (size_t)rank * part, b.output, count, -1, comm);
        check_reduce_scatter(type, op, &b, count, manner, comm);
    }
    free_buffers(&b);
}

static void broadcast(enum Manner manner, void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request request;
    if (manner == NON_BLOCKING) {
        MUST(MPI_Ibcast(buffer, count, type, root, comm, &request));
        finish(&request);
        return;
    }
#ifdef LARGE_COUNTS
    if (manner == LARGE_COUNT) {
        MUST(MPI_Bcast_c(buffer, count, type, root, comm));
        return;
    }
    if (manner == LARGE_NON_BLOCKING) {
        MUST(MPI_Ibcast_c(buffer, count, type, root, comm, &request));
        finish(&request);
        return;
    }
#endif
    MUST(MPI_Bcast(buffer, count, type, root, comm));
}

/* Ways to have ints in memory: as they are; x _ _ x; without gaps, but the other way round; two at a time. */
enum { LAYOUTS = 4 };
static MPI_Datatype layouts[LAYOUTS];
static const int per_element[LAYOUTS] = { 1, 2, 2, 2 }, ints[LAYOUTS] = { 1, 4, 2, 2 };
static const int order[LAYOUTS][2] = { { 0, 0 }, { 0, 3 }, { 1, 0 }, { 0, 1 } };

static void make_layouts(void)
{
    int lengths[2] = { 1, 1 }, places[2] = { 1, 0 };
    layouts[0] = MPI_INT;
    MUST(MPI_Type_vector(2, 1, 3, MPI_INT, &layouts[1]));
    MUST(MPI_Type_indexed(2, lengths, places, MPI_INT, &layouts[2]));
    MUST(MPI_Type_contiguous(2, MPI_INT, &layouts[3]));
    for (int layout = 1; layout < LAYOUTS; layout++)
        MUST(MPI_Type_commit(&layouts[layout]));
}

static void free_layouts(void)
{
    for (int layout = 1; layout < LAYOUTS; layout++)
        MUST(MPI_Type_free(&layouts[layout]));
}

/* Layouts differ between root and others; only the number of elements is the same. */
static void check_broadcasts(long count, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int root = 0; root < size; root++)
        for (int roots = 0; roots < 4; roots++)
            for (int others = 0; others < 4; others++) {
                if (!full && roots != 0 && others != roots)
                    continue;
                int mine = rank == root ? roots : others;
                long elements = 2 * count / per_element[mine], words = elements * ints[mine];
                int *buffer = room((size_t)(words + 1) * sizeof(int));
                for (long i = 0; i < words; i++)
                    buffer[i] = -1;
                for (long i = 0; i < 2 * count; i++) {
                    long at = mine == 0 ? i : i / 2 * ints[mine] + order[mine][i % 2];
                    buffer[at] = rank == root ? (int)(i * 31 + root) : -2;
                }
                broadcast(manner, buffer, (int)elements, layouts[mine], root, comm);
                for (long i = 0; i < 2 * count; i++) {
                    long at = mine == 0 ? i : i / 2 * ints[mine] + order[mine][i % 2];
                    if (buffer[at] != (int)(i * 31 + root))
                        wrong("broadcast", "ints in a layout", "none", count, root, i, comm);
                    buffer[at] = -1;
                }
                for (long i = 0; i < words; i++)
                    if (buffer[i] != -1)
                        wrong("broadcast between", "ints in a layout", "none", count, root, i, comm);
                free(buffer);
                checks++;
            }
}

/* Ints in a layout, in a buffer of so many elements: each element has two or one. */
typedef struct {
    int layout;
    long elements;
    int *words;
} Vector;

static Vector vector_of(int layout, long elements)
{
    Vector made = { layout, elements, room((size_t)(elements * ints[layout] + 1) * sizeof(int)) };
    for (long i = 0; i < elements * ints[layout]; i++)
        made.words[i] = -1;
    return made;
}

/* Where the i-th int after some elements is. */
static int *word(Vector *vector, long after, long i)
{
    int per = per_element[vector->layout];
    return &vector->words[(after + i / per) * ints[vector->layout] + order[vector->layout][per == 1 ? 0 : i % per]];
}

/* What rank `from` has for rank `to`. */
static int value(int from, int to, long i) { return (int)(i * 31 + from * 1009 + to * 17 + 5); }

static void give(Vector *vector, long after, int from, int to, long words)
{
    for (long i = 0; i < words; i++)
        *word(vector, after, i) = value(from, to, i);
}

/* Takes a block away that must be there. */
static void demand(const char *what, Vector *vector, long after, int from, int to, long words, int root, MPI_Comm comm)
{
    for (long i = 0; i < words; i++) {
        if (*word(vector, after, i) != value(from, to, i))
            wrong(what, "ints in a layout", "none", words, root, i, comm);
        *word(vector, after, i) = -1;
    }
}

/* Nothing else may be there. */
static void demand_nothing(const char *what, Vector *vector, int root, MPI_Comm comm)
{
    for (long i = 0; i < vector->elements * ints[vector->layout]; i++)
        if (vector->words[i] != -1)
            wrong(what, "ints in a layout, between", "none", vector->elements, root, i, comm);
    free(vector->words);
    checks++;
}

enum Copy { ALLGATHER, GATHER, SCATTER, ALLTOALL };

/* Copies blocks in one of the forms. */
static void copy(enum Copy what, enum Manner manner, const void *send, int sent, MPI_Datatype sent_type, void *receive, int received,
                 MPI_Datatype received_type, int root, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
#define SIDES send, sent, sent_type, receive, received, received_type
    if (manner == NON_BLOCKING) {
        switch (what) {
        case ALLGATHER: MUST(MPI_Iallgather(SIDES, comm, &request)); break;
        case GATHER: MUST(MPI_Igather(SIDES, root, comm, &request)); break;
        case SCATTER: MUST(MPI_Iscatter(SIDES, root, comm, &request)); break;
        case ALLTOALL: MUST(MPI_Ialltoall(SIDES, comm, &request)); break;
        }
        finish(&request);
        return;
    }
#ifdef LARGE_COUNTS
    if (manner == LARGE_COUNT) {
        switch (what) {
        case ALLGATHER: MUST(MPI_Allgather_c(SIDES, comm)); break;
        case GATHER: MUST(MPI_Gather_c(SIDES, root, comm)); break;
        case SCATTER: MUST(MPI_Scatter_c(SIDES, root, comm)); break;
        case ALLTOALL: MUST(MPI_Alltoall_c(SIDES, comm)); break;
        }
        return;
    }
    if (manner == LARGE_NON_BLOCKING) {
        switch (what) {
        case ALLGATHER: MUST(MPI_Iallgather_c(SIDES, comm, &request)); break;
        case GATHER: MUST(MPI_Igather_c(SIDES, root, comm, &request)); break;
        case SCATTER: MUST(MPI_Iscatter_c(SIDES, root, comm, &request)); break;
        case ALLTOALL: MUST(MPI_Ialltoall_c(SIDES, comm, &request)); break;
        }
        finish(&request);
        return;
    }
#endif
    switch (what) {
    case ALLGATHER: MUST(MPI_Allgather(SIDES, comm)); break;
    case GATHER: MUST(MPI_Gather(SIDES, root, comm)); break;
    case SCATTER: MUST(MPI_Scatter(SIDES, root, comm)); break;
    case ALLTOALL: MUST(MPI_Alltoall(SIDES, comm)); break;
    }
#undef SIDES
}

static void allgatherv(enum Manner manner, const void *send, int sent, MPI_Datatype sent_type, void *receive, const int *counts,
                       const int *places, MPI_Datatype received_type, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (manner == NON_BLOCKING) {
        MUST(MPI_Iallgatherv(send, sent, sent_type, receive, counts, places, received_type, comm, &request));
        finish(&request);
        return;
    }
#ifdef LARGE_COUNTS
    if (manner == LARGE_COUNT || manner == LARGE_NON_BLOCKING) {
        int size;
        MPI_Comm_size(comm, &size);
        MPI_Count *large = large_counts(counts, comm);
        MPI_Aint *far = room(sizeof(MPI_Aint) * (size_t)size);
        for (int rank = 0; rank < size; rank++)
            far[rank] = places[rank];
        if (manner == LARGE_COUNT) {
            MUST(MPI_Allgatherv_c(send, sent, sent_type, receive, large, far, received_type, comm));
        } else {
            MUST(MPI_Iallgatherv_c(send, sent, sent_type, receive, large, far, received_type, comm, &request));
            finish(&request);
        }
        free(large);
        free(far);
        return;
    }
#endif
    MUST(MPI_Allgatherv(send, sent, sent_type, receive, counts, places, received_type, comm));
}

/* Blocks of 2 * count ints. Both sides have a layout of their own, another one at each rank. */
static void check_equal_blocks(long count, int turn, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int out = (rank + turn) % LAYOUTS, in = (rank + turn / LAYOUTS) % LAYOUTS;
    long words = 2 * count, sent = words / per_element[out], received = words / per_element[in];
    for (int in_place = 0; in_place < 2; in_place++) {
        Vector from = vector_of(out, sent), to = vector_of(in, received * size);
        give(&from, 0, rank, 0, words);
        if (in_place)
            give(&to, received * rank, rank, 0, words);
        copy(ALLGATHER, manner, in_place ? MPI_IN_PLACE : from.words, in_place ? -7 : (int)sent,
             in_place ? MPI_DATATYPE_NULL : layouts[out], to.words, (int)received, layouts[in], 0, comm);
        for (int other = 0; other < size; other++)
            demand("allgather", &to, received * other, other, 0, words, in_place, comm);
        demand_nothing("allgather", &to, in_place, comm);
        free(from.words);
        from = vector_of(out, sent * size), to = vector_of(in, received * size);
        for (int other = 0; other < size; other++) {
            give(&from, sent * other, rank, other, words);
            if (in_place)
                give(&to, received * other, rank, other, words);
        }
        copy(ALLTOALL, manner, in_place ? MPI_IN_PLACE : from.words, in_place ? -7 : (int)sent,
             in_place ? MPI_DATATYPE_NULL : layouts[out], to.words, (int)received, layouts[in], 0, comm);
        for (int other = 0; other < size; other++)
            demand("alltoall", &to, received * other, other, rank, words, in_place, comm);
        demand_nothing("alltoall", &to, in_place, comm);
        free(from.words);
    }
}

/* What only the root has to pass is nonsense elsewhere. */
static void check_rooted_blocks(long count, int turn, int root, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    bool is_root = rank == root;
    int out = (rank + turn) % LAYOUTS, in = (rank + turn / LAYOUTS) % LAYOUTS;
    long words = 2 * count, sent = words / per_element[out], received = words / per_element[in];
    for (int in_place = 0; in_place < 2; in_place++) {
        bool here = in_place && is_root;
        Vector from = vector_of(out, sent), to = vector_of(in, received * size);
        give(&from, 0, rank, 0, words);
        if (here)
            give(&to, received * rank, rank, 0, words);
        copy(GATHER, manner, here ? MPI_IN_PLACE : from.words, here ? -7 : (int)sent, here ? MPI_DATATYPE_NULL : layouts[out],
             is_root ? to.words : NULL, is_root ? (int)received : -7, is_root ? layouts[in] : MPI_DATATYPE_NULL, root, comm);
        for (int other = 0; is_root && other < size; other++)
            demand("gather", &to, received * other, other, 0, words, root, comm);
        demand_nothing("gather", &to, root, comm);
        free(from.words);
        from = vector_of(out, sent * size), to = vector_of(in, received);
        for (int other = 0; is_root && other < size; other++)
            give(&from, sent * other, rank, other, words);
        copy(SCATTER, manner, is_root ? from.words : NULL, is_root ? (int)sent : -7, is_root ? layouts[out] : MPI_DATATYPE_NULL,
             here ? MPI_IN_PLACE : to.words, here ? -7 : (int)received, here ? MPI_DATATYPE_NULL : layouts[in], root, comm);
        if (here)
            demand("scatter in place", &from, sent * rank, rank, rank, words, root, comm);
        else
            demand("scatter", &to, 0, root, rank, words, root, comm);
        demand_nothing("scatter", &to, root, comm);
        free(from.words);
    }
}

/* Blocks of different lengths, some of them empty, in the reverse order of ranks and with a gap after each. The elements of all layouts in
 * a call have one size: Open MPI 4.1 chooses its algorithm by the size of the sent type and the counts of the received one, and hangs by itself
 * if the ranks choose differently. */
static void check_allgatherv(long count, int turn, enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int out = turn ? 1 + (rank + turn) % (LAYOUTS - 1) : 0, in = turn ? 1 + (rank + turn / LAYOUTS) % (LAYOUTS - 1) : 0;
    int *counts = room(sizeof(int) * (size_t)size), *places = room(sizeof(int) * (size_t)size);
    long elements = 0;
    for (int other = size - 1; other >= 0; other--) {
        counts[other] = (int)((other * 5 + 3 + turn) % 4 * 2 * count / per_element[in]);
        places[other] = (int)elements;
        elements += counts[other] + 1;
    }
    long words = (rank * 5 + 3 + turn) % 4 * 2 * count, sent = words / per_element[out];
    for (int in_place = 0; in_place < 2; in_place++) {
        Vector from = vector_of(out, sent), to = vector_of(in, elements);
        give(&from, 0, rank, 0, words);
        if (in_place)
            give(&to, places[rank], rank, 0, words);
        allgatherv(manner, in_place ? MPI_IN_PLACE : words ? from.words : NULL, in_place ? 0 : (int)sent,
                   in_place ? MPI_DATATYPE_NULL : layouts[out], to.words, counts, places, layouts[in], comm);
        for (int other = 0; other < size; other++)
            demand("allgatherv", &to, places[other], other, 0, (long)counts[other] * per_element[in], in_place, comm);
        demand_nothing("allgatherv", &to, in_place, comm);
        free(from.words);
    }
    free(counts);
    free(places);
}

/* Elements of a type, without derived types: every bit of the data arrives. */
static void check_copies_of(const Type *type, long count, enum Manner manner, MPI_Comm comm)
{
    int rank, size, elements = (int)count;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    Buffers b = buffers_of(type, count, comm, size);
    size_t part = (size_t)count * type->extent;
    copy(ALLTOALL, manner, b.input, elements, type->type, b.output, elements, type->type, 0, comm);
    for (int from = 0; from < size; from++)
        compare("alltoall", type, MIN, b.all + (size_t)from * b.bytes + (size_t)rank * part, b.output + (size_t)from * part, count, from,
                comm);
    memset(b.output, 0x5a, b.bytes);
    copy(ALLGATHER, manner, b.input, elements, type->type, b.output, elements, type->type, 0, comm);
    for (int from = 0; from < size; from++)
        compare("allgather", type, MIN, b.all + (size_t)from * b.bytes, b.output + (size_t)from * part, count, from, comm);
    memset(b.output, 0x5a, b.bytes);
    int root = size - 1;
    copy(SCATTER, manner, b.input, elements, type->type, b.output, elements, type->type, root, comm);
    compare("scatter", type, MIN, b.all + (size_t)root * b.bytes + (size_t)rank * part, b.output, count, root, comm);
    memset(b.output, 0x5a, b.bytes);
    copy(GATHER, manner, b.input, elements, type->type, b.output, elements, type->type, root, comm);
    for (int from = 0; rank == root && from < size; from++)
        compare("gather", type, MIN, b.all + (size_t)from * b.bytes, b.output + (size_t)from * part, count, from, comm);
    free_buffers(&b);
}

static void check_copies(long count, enum Manner manner, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    for (int turn = 0; turn < LAYOUTS * LAYOUTS; turn += full ? 1 : 7) {
        check_equal_blocks(count, turn, manner, comm);
        check_allgatherv(count, turn, manner, comm);
        for (int root = 0; root < size; root++)
            if (full || root == 0 || root == size - 1)
                check_rooted_blocks(count, turn, root, manner, comm);
    }
}

/* All ranks are on one machine, and have this clock together. MPI_Wtime may begin at zero in each. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Nobody leaves a barrier before all have come, the late one too. */
static void check_barrier(enum Manner manner, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int late = 0; late < size; late++) {
        double came, left, latest;
        MPI_Request request;
        if (rank == late)
            for (double began = now(); now() < began + 0.002;)
                ;
        came = now();
        if (manner == NON_BLOCKING || manner == LARGE_NON_BLOCKING) {
            MUST(MPI_Ibarrier(comm, &request));
            finish(&request);
        } else {
            MUST(MPI_Barrier(comm));
        }
        left = now();
        double *all = room(sizeof(double) * (size_t)size);
        everybodys(&came, sizeof came, all, comm);
        latest = all[late];
        if (left < latest)
            wrong("barrier", "nothing", "none", 0, late, 0, comm);
        free(all);
        checks++;
    }
}

static void check_communicator(MPI_Comm comm, bool thorough)
{
    static const long few[] = { 0, 1, 5, 1000 }, many[] = { 0, 1, 2, 3, 7, 8, 9, 64, 129, 1000, 4096, 5000, 70000, 300000 };
    const long *counts = full && thorough ? many : few;
    int count_count = full && thorough ? 14 : thorough ? 4 : 3;
    int manners = MANNERS;
#ifndef LARGE_COUNTS
    manners = LARGE_COUNT;
#endif
    int most_types = thorough ? type_count : 3;
    if (brief)
        count_count = 2, most_types = 2;
    for (int manner = 0; manner < manners; manner++) {
        check_barrier((enum Manner)manner, comm);
        for (int c = 0; c < count_count; c++) {
            if (counts[c] <= 5000) {
                check_broadcasts(counts[c], (enum Manner)manner, comm);
                check_copies(counts[c], (enum Manner)manner, comm);
            }
            for (int t = 0; t < most_types; t++) {
                if (counts[c] <= 5000 || t < 2)
                    check_copies_of(&types[t], counts[c], (enum Manner)manner, comm);
                for (int op = 0; op < (brief ? PROD : OPS); op++)
                    if (types[t].ops & BIT(op) && (counts[c] <= (types[t].extent == 16 && op < MINLOC ? 64 : 5000) || t < 4))
                        check_reductions(&types[t], op, counts[c], (enum Manner)manner, comm);
            }
        }
    }
}

static void user_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void check_users_operator(MPI_Comm comm)
{
    int size, one = 1, sum = 0;
    MPI_Op op;
    MPI_Comm_size(comm, &size);
    MUST(MPI_Op_create(user_sum, 1, &op));
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, op, comm));
    MUST(MPI_Op_free(&op));
    if (sum != size)
        wrong("allreduce", "MPI_INT", "a user's operator", 1, -1, 0, comm);
    checks++;
}

/* Many under way, on communicators that share ranks, among blocking calls. */
static void check_outstanding(void)
{
    enum { MANY = 24 };
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm twin, part;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    MUST(MPI_Comm_split(MPI_COMM_WORLD, rank < (size + 1) / 2, -rank, &part));
    MUST(MPI_Barrier(twin));
    MUST(MPI_Barrier(part));
    int part_size, part_rank;
    MPI_Comm_size(part, &part_size);
    MPI_Comm_rank(part, &part_rank);
    for (int round = 0; round < (full ? 50 : brief ? 2 : 10); round++) {
        MPI_Request requests[MANY];
        MPI_Status statuses[MANY];
        long sums[MANY], given[MANY], blocking = 0, one = 1;
        for (int i = 0; i < MANY; i++) {
            given[i] = rank + i;
            sums[i] = i % 4 == 2 ? (part_rank == 0 ? 1000 + i : -1) : -1;
            switch (i % 4) {
            case 0: MUST(MPI_Iallreduce(&given[i], &sums[i], 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[i])); break;
            case 1: MUST(MPI_Iallreduce(&given[i], &sums[i], 1, MPI_LONG, MPI_SUM, twin, &requests[i])); break;
            case 2: MUST(MPI_Ibcast(&sums[i], 1, MPI_LONG, 0, part, &requests[i])); break;
            case 3: MUST(MPI_Ibarrier(twin, &requests[i])); break;
            }
            if (i == MANY / 2)
                MUST(MPI_Allreduce(&one, &blocking, 1, MPI_LONG, MPI_SUM, twin));
        }
        if (round % 2) {
            for (int left = MANY; left > 0; left--) {
                int which;
                MUST(MPI_Waitany(MANY, requests, &which, MPI_STATUS_IGNORE));
            }
        } else {
            MUST(MPI_Waitall(MANY, requests, statuses));
        }
        for (int i = 0; i < MANY; i++) {
            long expected = i % 4 < 2 ? (long)size * (size - 1) / 2 + (long)i * size : i % 4 == 2 ? 1000 + i : -1;
            if (sums[i] != expected)
                wrong("outstanding", "MPI_LONG", "sum", 1, -1, i, MPI_COMM_WORLD);
        }
        if (blocking != size)
            wrong("allreduce among others", "MPI_LONG", "sum", 1, -1, 0, MPI_COMM_WORLD);
        checks++;
    }
    MUST(MPI_Comm_free(&twin));
    MUST(MPI_Comm_free(&part));
}

/* Messages and collectives wait for each other; each must go on while a rank waits in the other. */
static void check_progress(void)
{
    enum { LONG_MESSAGE = 1 << 20 };
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2)
        return;
    char *message = room(LONG_MESSAGE), *vector = room(LONG_MESSAGE), *sum = room(LONG_MESSAGE);
    MPI_Comm twin;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    MUST(MPI_Barrier(twin));
    for (int round = 0; round < (brief ? 1 : 5); round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        /* A long message is on its way while its sender is in a barrier. */
        if (rank == 0)
            MUST(MPI_Isend(message, LONG_MESSAGE, MPI_CHAR, size - 1, 1, MPI_COMM_WORLD, &request));
        if (rank == size - 1)
            MUST(MPI_Recv(message, LONG_MESSAGE, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MUST(MPI_Barrier(MPI_COMM_WORLD));
        finish(&request);
        /* A collective is under way while one of its ranks waits for a message that comes after it. */
        MUST(MPI_Iallreduce(vector, sum, LONG_MESSAGE, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD, &request));
        if (rank == 0)
            MUST(MPI_Recv(message, 1, MPI_CHAR, size - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        finish(&request);
        if (rank == size - 1)
            MUST(MPI_Send(message, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD));
        /* And while one of its ranks is in a collective of another communicator. */
        MUST(MPI_Iallreduce(vector, sum, LONG_MESSAGE, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD, &request));
        if (rank == 0)
            MUST(MPI_Barrier(twin));
        finish(&request);
        if (rank != 0)
            MUST(MPI_Barrier(twin));
        checks++;
    }
    MUST(MPI_Comm_free(&twin));
    free(message);
    free(vector);
    free(sum);
}

/* Handles are used again for other communicators: none may be mistaken for one that is gone. */
static void check_handles(void)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < (full ? 60 : brief ? 4 : 12); round++) {
        MPI_Comm comm;
        int colour = (rank >> round % 3) & 1, one = 1, sum = 0, members;
        MUST(MPI_Comm_split(MPI_COMM_WORLD, round % 4 == 3 ? 0 : colour, round % 2 ? -rank : rank, &comm));
        MPI_Comm_size(comm, &members);
        MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        if (sum != members)
            wrong("allreduce", "MPI_INT", "sum", 1, -1, round, comm);
        MUST(MPI_Comm_free(&comm));
        checks++;
    }
}

/* Between two groups everything is the MPI's: roots are not ranks, and arguments that do not count are nonsense. */
static void check_copies_between(MPI_Comm between, int side, int others)
{
    int rank, size;
    MPI_Comm_rank(between, &rank);
    MPI_Comm_size(between, &size);
    int mine = 10 * rank + side, *theirs = room(sizeof(int) * (size_t)others), block = -1;
    MUST(MPI_Allgather(&mine, 1, MPI_INT, theirs, 1, MPI_INT, between));
    for (int other = 0; other < others; other++)
        if (theirs[other] != 10 * other + !side)
            wrong("allgather between groups", "MPI_INT", "none", 1, -1, other, between);
    int root = side ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    bool is_root = root == MPI_ROOT;
    MPI_Datatype if_root = is_root ? MPI_INT : MPI_DATATYPE_NULL, if_other = side ? MPI_INT : MPI_DATATYPE_NULL;
    MUST(MPI_Gather(side ? &mine : NULL, side ? 1 : -7, if_other, is_root ? theirs : NULL, is_root ? 1 : -7, if_root, root, between));
    for (int other = 0; is_root && other < others; other++)
        if (theirs[other] != 10 * other + 1)
            wrong("gather between groups", "MPI_INT", "none", 1, -1, other, between);
    MUST(MPI_Scatter(is_root ? theirs : NULL, is_root ? 1 : -7, if_root, side ? &block : NULL, side ? 1 : -7, if_other, root, between));
    if (side && block != mine)
        wrong("scatter between groups", "MPI_INT", "none", 1, -1, 0, between);
    free(theirs);
    checks += 3;
}

static void check_between_groups(void)
{
    int rank, size, one = 1, sum = 0, others;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2)
        return;
    MPI_Comm half, between, merged;
    int side = rank >= size / 2;
    MUST(MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half));
    MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : size / 2, 7, &between));
    MUST(MPI_Barrier(between));
    MUST(MPI_Comm_remote_size(between, &others));
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between));
    if (sum != others)
        wrong("allreduce between groups", "MPI_INT", "sum", 1, -1, 0, between);
    check_copies_between(between, side, others);
    MUST(MPI_Intercomm_merge(between, side, &merged));
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged));
    if (sum != size)
        wrong("allreduce merged", "MPI_INT", "sum", 1, -1, 0, merged);
    MUST(MPI_Comm_free(&merged));
    MUST(MPI_Comm_free(&between));
    MUST(MPI_Comm_free(&half));
    checks += 2;
}

/* The MPI's own error handlers have the word. Debian's MPICH does not look at counts and types. Intel's library of the standard ABI ends
 * the program all the same, with Pleach or without (ERRORS_ARE_FATAL). */
static void check_errors(void)
{
    int one = 1, sum = 0, size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int statuses[3] = {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL),
        MPI_Bcast(&one, 1, MPI_INT, size, MPI_COMM_WORLD),
        MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, -5, MPI_COMM_WORLD),
    };
    for (int i = 0; i < 3; i++)
        if (statuses[i] == MPI_SUCCESS)
            wrong("an error", "MPI_INT", "sum", 1, -1, i, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    checks += 3;
}

int main(int argc, char **argv)
{
    MUST(MPI_Init(&argc, &argv));
    full = argc > 1 && strcmp(argv[1], "full") == 0;
    brief = argc > 1 && strcmp(argv[1], "brief") == 0;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    make_types();
    make_layouts();
    check_communicator(MPI_COMM_WORLD, true);
    check_communicator(MPI_COMM_SELF, false);
    MPI_Comm twin, parity, reversed, grid;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    MUST(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &parity));
    MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed));
    int dimensions[1] = { size }, periods[1] = { 1 };
    MUST(MPI_Cart_create(MPI_COMM_WORLD, 1, dimensions, periods, 1, &grid));
    check_communicator(twin, false);
    check_communicator(parity, false);
    check_communicator(reversed, false);
    check_communicator(grid, false);
    check_users_operator(twin);
    MUST(MPI_Comm_free(&twin));
    MUST(MPI_Comm_free(&parity));
    MUST(MPI_Comm_free(&reversed));
    MUST(MPI_Comm_free(&grid));
    check_outstanding();
    check_progress();
    check_handles();
    check_between_groups();
    if (!getenv("ERRORS_ARE_FATAL"))
        check_errors();
    long most = 0;
    MUST(MPI_Allreduce(&checks, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD));
    free_layouts();
    if (rank == 0)
        printf("conformance: %ld checks\n", most);
    MUST(MPI_Finalize());
    return 0;
}
