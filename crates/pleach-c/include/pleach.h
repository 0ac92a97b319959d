/* Pleach for C: barrier, broadcast, reduce and allreduce among the processes of a job.
 *
 *     cc program.c -Icrates/pleach-c/include -Ltarget/release -lpleach_c
 *     pleach launch -n 8 -- ./a.out
 *
 * Every rank calls the same operations in the same order, as in MPI. Functions return PLEACH_OK or why not; pleach_message()
 * then says it in words. An error that comes from others reaches every rank. Any thread may call; of one communicator, the
 * ranks' calls must still come in one order. Vectors must stay where they are until an operation that was started is waited for.
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
    PLEACH_RANK_LOST = 1, /* a rank of the job is gone; pleach_lost_rank() says which */
    PLEACH_DISAGREE = 2,  /* the ranks do not call the same operation */
    PLEACH_ARGUMENT = 3,  /* this call makes no sense by itself; nothing has happened */
    PLEACH_BROKEN = 4,    /* something here does not work as it must */
    PLEACH_NO_JOB = 5     /* this process could not join its job */
} pleach_status;

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

/* Ranks that do things together. */
typedef struct pleach_communicator pleach_communicator;
/* An operation that was started and not yet waited for. */
typedef struct pleach_request pleach_request;

/* Joins the job that the environment describes. The communicator of all its ranks is freed with pleach_free. */
pleach_status pleach_join(pleach_communicator **world);
/* Leaves. When its last communicator is freed, a process leaves its job. NULL is fine. */
void pleach_free(pleach_communicator *communicator);

uint32_t pleach_rank(const pleach_communicator *communicator);
uint32_t pleach_size(const pleach_communicator *communicator);

/* The same ranks, apart from this communicator. */
pleach_status pleach_dup(const pleach_communicator *communicator, pleach_communicator **twin);
/* Ranks of one colour, by key and then by rank. A negative colour takes no part and gets NULL. */
pleach_status pleach_split(const pleach_communicator *communicator, int32_t colour, int32_t key,
                           pleach_communicator **part);

/* Nobody leaves before all have come. */
pleach_status pleach_barrier(const pleach_communicator *communicator);
/* All get what the root has. */
pleach_status pleach_broadcast(const pleach_communicator *communicator, void *buffer, size_t bytes, uint32_t root);
/* All get the fold of all vectors, in place. The same inputs give the same bits in every run. */
pleach_status pleach_all_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                                pleach_operator op);
/* The root gets it; the others' vectors stay as they are. */
pleach_status pleach_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                            pleach_operator op, uint32_t root);
/* All get the sum, rounded once: the bits do not depend on where the ranks are either. */
pleach_status pleach_all_reduce_exact_f32(const pleach_communicator *communicator, float *vector, size_t count);
pleach_status pleach_all_reduce_exact_f64(const pleach_communicator *communicator, double *vector, size_t count);

/* The same, started now and waited for later. */
pleach_status pleach_start_barrier(const pleach_communicator *communicator, pleach_request **request);
pleach_status pleach_start_broadcast(const pleach_communicator *communicator, void *buffer, size_t bytes, uint32_t root,
                                     pleach_request **request);
pleach_status pleach_start_all_reduce(const pleach_communicator *communicator, void *vector, size_t count,
                                      pleach_type type, pleach_operator op, pleach_request **request);
pleach_status pleach_start_reduce(const pleach_communicator *communicator, void *vector, size_t count, pleach_type type,
                                  pleach_operator op, uint32_t root, pleach_request **request);
/* 1 if it is over, 0 if not; nothing waits. */
int pleach_test(const pleach_request *request);
/* Waits until it is over, puts the result where the vector is, and frees the request. NULL is fine. */
pleach_status pleach_wait(pleach_request *request);

/* What went wrong last in this thread, in words; valid until its next call. */
const char *pleach_message(void);
/* The rank of the last PLEACH_RANK_LOST of this thread, in the communicator of all ranks. */
uint32_t pleach_lost_rank(void);
/* Bytes of one element; 0 for what is no type, or does not go with the operator. */
size_t pleach_element_size(pleach_type type, pleach_operator op);

#ifdef __cplusplus
}
#endif
#endif
