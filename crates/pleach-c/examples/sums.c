/* Every rank brings a vector, and all get the sum; then the largest value and who had it. */
#include <pleach.h>
#include <stdio.h>
#include <stdlib.h>

static void check(pleach_status status)
{
    if (status != PLEACH_OK) {
        fprintf(stderr, "%s\n", pleach_message());
        exit(1);
    }
}

int main(void)
{
    pleach_communicator *world;
    check(pleach_join(&world));
    uint32_t rank = pleach_rank(world), size = pleach_size(world);

    double sums[2] = {rank, 1.0};
    check(pleach_all_reduce(world, sums, 2, PLEACH_F64, PLEACH_SUM));

    struct {
        double value;
        int32_t index;
    } largest = {(double)((rank * 7) % size), (int32_t)rank};
    check(pleach_all_reduce(world, &largest, 1, PLEACH_F64, PLEACH_MAXLOC));

    if (rank == 0)
        printf("%u ranks: %.0f in all; the largest is %.0f, of rank %d\n", size, sums[0], largest.value, largest.index);
    check(pleach_barrier(world));
    pleach_free(world);
    return sums[1] == size ? 0 : 1;
}
