/* Pleach for C: barrier, broadcast, reduce, allreduce, reduce-scatter, scans, gathers, scatters and alltoall among the processes of a
 * job.
 *
 * With the package installed:
 *
 *     cc program.c $(pkg-config --cflags --libs pleach)
 *     pleach launch -n 8 -- ./a.out
 *
 * In a checkout of the sources:
 *
 *     cargo build --release
 *     cc program.c -Icrates/pleach-c/include target/release/libpleach_c.a -lm
 *     target/release/pleach launch -n 8 -- ./a.out
 *
 * A program:
 *
 *     #include <pleach.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         pleach_communicator *world;
 *         double sum = 1.0;
 *         if (pleach_join(&world) != PLEACH_OK || pleach_all_reduce(world, &sum, 1, PLEACH_F64, PLEACH_SUM) != PLEACH_OK) {
 *             fprintf(stderr, "%s\n", pleach_message());
 *             return 1;
 *         }
 *         printf("rank %u of %u: %.0f ranks take part\n", pleach_rank(world), pleach_size(world), sum);
 *         pleach_free(world);
 *         return 0;
 *     }
 *
 * All ranks call the same operations in the same order, as in MPI. Functions return PLEACH_OK or an error; pleach_message()
 * then describes it. An error caused by another rank reaches every rank. Any thread may call; the calls on one communicator
 * must still be in the same order on all ranks. The vector of a non-blocking operation must stay valid until pleach_wait.
 */
#ifndef PLEACH_H
#define PLEACH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleach_status {
    PLEACH_OK = 0,
    PLEACH_RANK_LOST = 1, /* ranks of the job are lost or cannot be reached; pleach_lost_ranks() returns them */
    PLEACH_MISMATCH = 2,  /* the ranks called different operations */
    PLEACH_INVALID_ARGUMENT = 3, /* nothing has happened; the communicator still works */
    PLEACH_INTERNAL = 4,  /* a bug in Pleach, or a system call that failed unexpectedly */
    PLEACH_NO_JOB = 5,    /* this process could not join its job */
    PLEACH_CUT_OFF = 6,   /* most ranks of the job do not answer; pleach_lost_ranks() returns them */
    PLEACH_REVOKED = 7    /* a rank has revoked the communicator */
} pleach_status;

/* Names of earlier versions. */
#define PLEACH_DISAGREE PLEACH_MISMATCH
#define PLEACH_ARGUMENT PLEACH_INVALID_ARGUMENT
#define PLEACH_BROKEN PLEACH_INTERNAL

typedef enum pleach_type {
    PLEACH_I8 = 1,
    PLEACH_U8 = 2,
    PLEACH_I16 = 3,
    PLEACH_U16 = 4,
    PLEACH_I32 = 5,
    PLEACH_U32 = 6,
    PLEACH_I64 = 7,
    PLEACH_U64 = 8,
    PLEACH_F16 = 9,
    PLEACH_BF16 = 10,
    PLEACH_F32 = 11,
    PLEACH_F64 = 12
} pleach_type;

typedef enum pleach_operator {
    PLEACH_SUM = 1,    /* integers wrap */
    PLEACH_PROD = 2,   /* integers wrap */
    PLEACH_MIN = 3,    /* NaN wins; -0 is below +0 */
    PLEACH_MAX = 4,
    PLEACH_MINLOC = 5, /* of pairs: struct { T value; int32_t index; } */
    PLEACH_MAXLOC = 6,
    PLEACH_AND = 7,    /* integers only, as the next two */
    PLEACH_OR = 8,
    PLEACH_XOR = 9
} pleach_operator;

/* A group of ranks. */
typedef struct pleach_communicator pleach_communicator;
/* A non-blocking operation that was not yet waited for. */
typedef struct pleach_request pleach_request;

/* Joins the job that the environment describes. Free the communicator of all its ranks with pleach_free. */
pleach_status pleach_join(pleach_communicator **world);
/* Frees a communicator. A process leaves its job when its last communicator is freed. NULL is allowed. */
void pleach_free(pleach_communicator *communicator);

uint32_t pleach_rank(const pleach_communicator *communicator);
uint32_t pleach_size(const pleach_communicator *communicator);

/* A communicator of the same ranks, with operations of its own. */
pleach_status pleach_dup(const pleach_communicator *communicator, pleach_communicator **copy);
/* One communicator per colour, ordered by key and then by rank. A rank with a negative colour gets NULL. */
pleach_status pleach_split(const pleach_communicator *communicator, int32_t colour, int32_t key,
                           pleach_communicator **part);

/* After PLEACH_RANK_LOST: a communicator of the ranks that are not lost, in the same order. Collective over them. */
pleach_status pleach_shrink(const pleach_communicator *communicator, pleach_communicator **survivors);
/* Replaces the bits by those that all ranks that are not lost have set. Collective over them, also after PLEACH_RANK_LOST. */
pleach_status pleach_agree(const pleach_communicator *communicator, uint64_t *bits);
/* Every operation in the communicator fails with PLEACH_REVOKED, at every rank; pleach_agree and pleach_shrink still work. */
pleach_status pleach_revoke(const pleach_communicator *communicator);

/* Blocks until every rank has entered the barrier. */
pleach_status pleach_barrier(const pleach_communicator *communicator);
/* Copies the root's buffer to all ranks. */
pleach_status pleach_broadcast(const pleach_communicator *communicator, void *buffer, size_t bytes, uint32_t root);
/* Reduces the vectors of all ranks in place; all ranks get the result. The same inputs give the same bits in every run. */
pleach_status pleach_all_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                                pleach_operator op);
/* The same; only the root gets the result, the other vectors stay unchanged. */
pleach_status pleach_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                            pleach_operator op, uint32_t root);
/* Sums, rounded once: the bits do not depend on the placement of the ranks either. */
pleach_status pleach_all_reduce_exact_f32(const pleach_communicator *communicator, float *vector, size_t count);
pleach_status pleach_all_reduce_exact_f64(const pleach_communicator *communicator, double *vector, size_t count);

/* Reduces the vectors of all ranks; each rank gets a block of `count` elements, in rank order. The input has as many per rank. Input and
 * output do not overlap, as in all functions that have both. */
pleach_status pleach_reduce_scatter(const pleach_communicator *communicator, const void *input, void *output,
                                    size_t count, pleach_type type, pleach_operator op);
/* Each rank gets the reduction of its own vector and those of the ranks before it, in place. */
pleach_status pleach_scan(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                          pleach_operator op);
/* The same without its own vector; that of rank 0 stays unchanged. */
pleach_status pleach_exclusive_scan(const pleach_communicator *communicator, void *vector, size_t count,
                                    pleach_type type, pleach_operator op);
/* Copies `bytes` bytes of every rank to all ranks, in rank order. */
pleach_status pleach_all_gather(const pleach_communicator *communicator, const void *input, void *output, size_t bytes);
/* The same; only the root gets them. The output of other ranks is not used, and may be NULL. */
pleach_status pleach_gather(const pleach_communicator *communicator, const void *input, void *output, size_t bytes,
                            uint32_t root);
/* Copies `bytes` bytes of the root's input to each rank, in rank order. The input of other ranks is not used, and may be NULL. */
pleach_status pleach_scatter(const pleach_communicator *communicator, const void *input, void *output, size_t bytes,
                             uint32_t root);
/* Copies `bytes` bytes of every rank's input to each rank: block r of the input goes to rank r, block r of the output is from it. */
pleach_status pleach_all_to_all(const pleach_communicator *communicator, const void *input, void *output, size_t bytes);
/* The same for blocks of different lengths: one count per rank, in elements or bytes, the same at all ranks. */
pleach_status pleach_reduce_scatter_v(const pleach_communicator *communicator, const void *input, void *output,
                                      const size_t *counts, pleach_type type, pleach_operator op);
pleach_status pleach_all_gather_v(const pleach_communicator *communicator, const void *input, void *output,
                                  const size_t *byte_counts);
pleach_status pleach_gather_v(const pleach_communicator *communicator, const void *input, void *output,
                              const size_t *byte_counts, uint32_t root);
pleach_status pleach_scatter_v(const pleach_communicator *communicator, const void *input, void *output,
                               const size_t *byte_counts, uint32_t root);

/* Non-blocking forms: started now, waited for with pleach_wait. They work in the vector itself: until then the caller neither reads nor
 * changes it. */
pleach_status pleach_start_barrier(const pleach_communicator *communicator, pleach_request **request);
pleach_status pleach_start_broadcast(const pleach_communicator *communicator, void *buffer, size_t bytes, uint32_t root,
                                     pleach_request **request);
pleach_status pleach_start_all_reduce(const pleach_communicator *communicator, void *vector, size_t count,
                                      pleach_type type, pleach_operator op, pleach_request **request);
pleach_status pleach_start_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                                  pleach_operator op, uint32_t root, pleach_request **request);
/* 1 if the operation is complete, otherwise 0. Does not block. */
int pleach_test(const pleach_request *request);
/* Blocks until the operation is complete and frees the request. The result is in the vector; after an error what it holds is unspecified.
 * NULL is allowed. */
pleach_status pleach_wait(pleach_request *request);

/* The message of the last error of this thread; valid until its next call. */
const char *pleach_message(void);
/* The first rank of the last PLEACH_RANK_LOST of this thread, in the communicator of all ranks. */
uint32_t pleach_lost_rank(void);
/* Writes the ranks of the last PLEACH_RANK_LOST or PLEACH_CUT_OFF of this thread, at most so many, in the communicator of all ranks;
 * returns how many there are. Every rank that is left gets the same ranks. */
size_t pleach_lost_ranks(uint32_t *ranks, size_t capacity);
/* Bytes of one element; 0 if the type is unknown or the operator undefined for it. */
size_t pleach_element_size(pleach_type type, pleach_operator op);

#ifdef __cplusplus
}
#endif
#endif
