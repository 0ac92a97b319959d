/* Calls everything in pleach.h; ends with status 0 if all is as it should be. */
#include <pleach.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, pleach_message());                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Operations in which ranks have different parts of a vector, among three ranks. */
static void check_blocks(const pleach_communicator *world, int32_t rank)
{
    const int32_t input[3] = {rank + 1, 10 * (rank + 1), 100 * (rank + 1)};
    const int32_t sums[3] = {6, 60, 600};
    int32_t block = 0, prefix = rank + 1, before = rank + 1, row[3] = {0}, all[6] = {0};
    DEMAND(pleach_reduce_scatter(world, input, &block, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_OK && block == sums[rank]);
    DEMAND(pleach_scan(world, &prefix, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_OK);
    DEMAND(prefix == (rank + 1) * (rank + 2) / 2);
    DEMAND(pleach_exclusive_scan(world, &before, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_OK);
    DEMAND(before == (rank == 0 ? 1 : rank * (rank + 1) / 2));
    DEMAND(pleach_all_gather(world, &input[0], row, sizeof row[0]) == PLEACH_OK);
    DEMAND(row[0] == 1 && row[1] == 2 && row[2] == 3);
    DEMAND(pleach_all_to_all(world, input, row, sizeof row[0]) == PLEACH_OK);
    DEMAND(row[2] == 3 * (sums[rank] / 6));
    DEMAND(pleach_gather(world, &input[1], rank == 2 ? row : NULL, sizeof row[0], 2) == PLEACH_OK);
    DEMAND(rank != 2 || (row[0] == 10 && row[1] == 20 && row[2] == 30));
    DEMAND(pleach_scatter(world, rank == 1 ? sums : NULL, &block, sizeof block, 1) == PLEACH_OK && block == sums[rank]);

    /* Rank r has r elements. */
    const size_t counts[3] = {0, 1, 2}, bytes[3] = {0, 4, 8};
    const int32_t own[2] = {rank, 10 * rank}, expected[3] = {1, 2, 20};
    DEMAND(pleach_all_gather_v(world, own, all, bytes) == PLEACH_OK && memcmp(all, expected, sizeof expected) == 0);
    DEMAND(pleach_gather_v(world, own, rank == 0 ? row : NULL, bytes, 0) == PLEACH_OK);
    DEMAND(rank != 0 || memcmp(row, expected, sizeof expected) == 0);
    DEMAND(pleach_scatter_v(world, rank == 0 ? expected : NULL, all, bytes, 0) == PLEACH_OK);
    DEMAND(memcmp(all, own, bytes[rank]) == 0);
    DEMAND(pleach_reduce_scatter_v(world, input, all, counts, PLEACH_I32, PLEACH_SUM) == PLEACH_OK);
    DEMAND(rank == 0 || all[0] == sums[rank - 1]);
    DEMAND(rank != 2 || all[1] == sums[2]);

    DEMAND(pleach_all_gather(world, NULL, all, 4) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_all_gather(world, own, all, SIZE_MAX / 2) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_gather_v(world, own, all, NULL, 0) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_scatter(world, all, &block, 4, 3) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_reduce_scatter(world, input, &block, 1, PLEACH_F32, PLEACH_XOR) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_scan(NULL, &prefix, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_INVALID_ARGUMENT);
}

int main(void)
{
    pleach_communicator *world, *twin, *part;
    DEMAND(pleach_join(&world) == PLEACH_OK);
    uint32_t rank = pleach_rank(world), size = pleach_size(world);
    DEMAND(size == 3 && rank < size);

    int32_t sum = (int32_t)rank + 1;
    DEMAND(pleach_all_reduce(world, &sum, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_OK && sum == 6);
    uint64_t bits = 1u << rank;
    DEMAND(pleach_reduce(world, &bits, 1, PLEACH_U64, PLEACH_OR, 2) == PLEACH_OK);
    DEMAND(bits == (rank == 2 ? 7 : 1u << rank));
    char word[6] = "";
    if (rank == 1)
        strcpy(word, "hello");
    DEMAND(pleach_broadcast(world, word, sizeof word, 1) == PLEACH_OK && strcmp(word, "hello") == 0);
    struct {
        float value;
        int32_t index;
    } pair = {rank == 1 ? -1.0f : 1.0f, (int32_t)rank};
    DEMAND(pleach_all_reduce(world, &pair, 1, PLEACH_F32, PLEACH_MINLOC) == PLEACH_OK);
    DEMAND(pair.value == -1.0f && pair.index == 1);

    /* In any order but exactly, the large ones would swallow the small one. */
    double delicate = rank == 0 ? 1e300 : rank == 1 ? 1.0 : -1e300;
    DEMAND(pleach_all_reduce_exact_f64(world, &delicate, 1) == PLEACH_OK && delicate == 1.0);
    float small = rank == 0 ? 1e30f : rank == 1 ? 1.0f : -1e30f;
    DEMAND(pleach_all_reduce_exact_f32(world, &small, 1) == PLEACH_OK && small == 1.0f);

    check_blocks(world, (int32_t)rank);

    pleach_request *requests[4];
    double first = 1.0, second[1000], third = rank;
    for (int i = 0; i < 1000; i++)
        second[i] = rank == 0 ? i : 0;
    DEMAND(pleach_start_all_reduce(world, &first, 1, PLEACH_F64, PLEACH_SUM, &requests[0]) == PLEACH_OK);
    DEMAND(pleach_start_broadcast(world, second, sizeof second, 0, &requests[1]) == PLEACH_OK);
    DEMAND(pleach_start_reduce(world, &third, 1, PLEACH_F64, PLEACH_MAX, 0, &requests[2]) == PLEACH_OK);
    DEMAND(pleach_start_barrier(world, &requests[3]) == PLEACH_OK);
    while (!pleach_test(requests[3])) {
    }
    for (int i = 3; i >= 0; i--)
        DEMAND(pleach_wait(requests[i]) == PLEACH_OK);
    DEMAND(first == 3.0 && second[999] == 999.0 && third == (rank == 0 ? 2.0 : rank));
    DEMAND(pleach_wait(NULL) == PLEACH_OK && pleach_test(NULL) == 1);

    DEMAND(pleach_dup(world, &twin) == PLEACH_OK && pleach_size(twin) == size);
    DEMAND(pleach_barrier(twin) == PLEACH_OK);
    DEMAND(pleach_split(world, rank == 0 ? -1 : 5, -(int32_t)rank, &part) == PLEACH_OK);
    DEMAND((part == NULL) == (rank == 0));
    if (part != NULL)
        DEMAND(pleach_size(part) == 2 && pleach_rank(part) == 2 - rank);

    /* A revoked communicator fails at every rank, and still serves to agree and to shrink. */
    pleach_communicator *revoked, *survivors;
    pleach_status status;
    uint64_t flags = rank == 0 ? 6 : 3;
    uint32_t lost[4];
    DEMAND(pleach_dup(world, &revoked) == PLEACH_OK);
    if (rank == 1)
        DEMAND(pleach_revoke(revoked) == PLEACH_OK);
    do
        status = pleach_barrier(revoked);
    while (status == PLEACH_OK);
    DEMAND(status == PLEACH_REVOKED);
    DEMAND(pleach_agree(revoked, &flags) == PLEACH_OK && flags == 2);
    DEMAND(pleach_shrink(revoked, &survivors) == PLEACH_OK && pleach_size(survivors) == size);
    DEMAND(pleach_barrier(survivors) == PLEACH_OK && pleach_lost_ranks(lost, 4) == 0);
    DEMAND(pleach_agree(revoked, NULL) == PLEACH_INVALID_ARGUMENT && pleach_lost_ranks(NULL, 0) == 0);
    pleach_free(survivors);
    pleach_free(revoked);

    /* Nonsense does no harm. */
    DEMAND(pleach_all_reduce(world, &sum, 1, PLEACH_F64, PLEACH_XOR) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_all_reduce(world, &sum, 1, (pleach_type)77, PLEACH_SUM) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_all_reduce(world, NULL, 1, PLEACH_I32, PLEACH_SUM) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_all_reduce(world, &sum, SIZE_MAX, PLEACH_I32, PLEACH_SUM) == PLEACH_INVALID_ARGUMENT);
    DEMAND(pleach_broadcast(world, word, sizeof word, 9) == PLEACH_INVALID_ARGUMENT && strlen(pleach_message()) > 0);
    DEMAND(pleach_barrier(NULL) == PLEACH_INVALID_ARGUMENT && pleach_join(NULL) != PLEACH_OK);
    DEMAND(pleach_element_size(PLEACH_F64, PLEACH_MAXLOC) == 16 && pleach_element_size(PLEACH_BF16, PLEACH_SUM) == 2);
    DEMAND(pleach_element_size((pleach_type)13, PLEACH_SUM) == 0);
    DEMAND(pleach_barrier(world) == PLEACH_OK);

    /* Ranks that disagree all hear so, and only this communicator is broken by it. */
    DEMAND(pleach_all_reduce(twin, second, rank == 1 ? 2 : 3, PLEACH_F64, PLEACH_SUM) == PLEACH_MISMATCH);
    DEMAND(pleach_barrier(world) == PLEACH_OK);
    pleach_free(part);
    pleach_free(twin);
    pleach_free(world);
    pleach_free(NULL);
    return 0;
}
