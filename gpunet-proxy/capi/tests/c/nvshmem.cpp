// NVSHMEM's names on the CPU: three programs that meet by a unique id. Each call of gpunet_nvshmem.h that the examples do not make.

#define GPUNET_NVSHMEM_RESULTS
#include <gpunet_nvshmem.h>

#include "test.h"
#include <sys/wait.h>

static const int MEMBERS = 3;

__global__ void kernel(int *numbers, int *all, float *sums, std::uint64_t *signals, int *elsewhere) {
    const int me = nvshmem_my_pe(), count = nvshmem_n_pes(), right = (me + 1) % count, left = (me + count - 1) % count;
    const int data[4] = {me, 10 * me, 100 * me, 7};

    // With a signal, by each group.
    OK(nvshmem_putmem_signal(numbers, data, sizeof data, &signals[0], 1, NVSHMEM_SIGNAL_SET, right));
    IS(nvshmem_signal_wait_until(&signals[0], NVSHMEM_CMP_GE, 1), 1);
    IS(numbers[1], 10 * left);
    OK(nvshmemx_int_put_signal_nbi_warp(numbers + 4, data, 4, &signals[1], 5, NVSHMEM_SIGNAL_SET, right));
    OK(nvshmemx_putmem_signal_block(numbers + 8, data, sizeof data, &signals[2], 9, NVSHMEM_SIGNAL_SET, right));
    IS(nvshmem_uint64_wait_until(&signals[1], NVSHMEM_CMP_GE, 3), 5);
    IS(nvshmem_signal_wait_until(&signals[2], NVSHMEM_CMP_GE, 9), 9);
    IS(nvshmem_signal_fetch(&signals[2]), 9);
    IS(nvshmem_uint64_test(&signals[2], NVSHMEM_CMP_GE, 9), 1);
    IS(nvshmem_uint64_test(&signals[2], NVSHMEM_CMP_GE, 10), 0);
    IS(numbers[6], 100 * left);
    IS(numbers[8], left);
    OK(nvshmem_barrier_all());

    // To all and from all.
    for (int pe = 0; pe < count; pe++) OK(nvshmem_int_p(numbers + me, 1000 * me + pe, pe));
    OK(nvshmem_quiet());
    OK(nvshmem_barrier_all());
    for (int pe = 0; pe < count; pe++) {
        int got = 0;
        IS(numbers[pe], 1000 * pe + me);
        IS(nvshmem_int_g(numbers + me, pe), 1000 * me + pe);
        OK(nvshmem_int_get(&got, numbers + me, 1, pe));
        IS(got, 1000 * me + pe);
        OK(nvshmemx_getmem_nbi_block(&got, numbers + pe, sizeof got, pe));
        IS(got, 1000 * pe + pe);
        IS(*(int *)nvshmem_ptr(numbers + me, pe), 1000 * me + pe);
    }
    OK(nvshmem_fence());
    OK(nvshmemx_barrier_all_block());

    OK(nvshmemx_int_fcollect_block(NVSHMEM_TEAM_WORLD, all, data, 4));
    for (int pe = 0; pe < count; pe++) IS(all[4 * pe + 1], 10 * pe);
    OK(nvshmem_int_broadcast(NVSHMEM_TEAM_WORLD, all, data, 4, 1));
    IS(all[2], 100);
    OK(nvshmemx_int_alltoall_warp(NVSHMEM_TEAM_WORLD, all, data, 1));
    for (int pe = 0; pe < count; pe++) IS(all[pe], me == 0 ? pe : me == 1 ? 10 * pe : 100 * pe);
    sums[0] = (float)me + 0.5f;
    OK(nvshmemx_float_max_reduce_block(NVSHMEM_TEAM_WORLD, sums + 1, sums, 1));
    TRUE(sums[1] == 2.5f);
    OK(nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, sums, sums, 1));
    TRUE(sums[0] == 4.5f);

    // Memory that is not of the heap, and members that there are not.
    IS(nvshmem_int_put(elsewhere, data, 4, right), -EINVAL);
    IS(nvshmem_int_p(elsewhere, 1, right), -EINVAL);
    IS(nvshmem_int_p(numbers, 1, count), -EINVAL);
    IS(nvshmem_int_p(numbers, 1, -1), -EINVAL);
    IS(nvshmem_int_put(numbers, data, ~(std::size_t)0, right), -EINVAL);
    IS(nvshmemx_signal_op((std::uint64_t *)((char *)signals + 1), 1, NVSHMEM_SIGNAL_SET, right), -EINVAL);
    TRUE(nvshmem_ptr(elsewhere, 0) == nullptr);
    TRUE(nvshmem_ptr(numbers, count) == nullptr);
}

static int member(int rank, int id_from, const int *id_to) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    begin();
    /* The reason is that of the last failure, whoever fails. */
    IS(gpunet_host_proxy_close(nullptr), -EBADF);
    REASON("the handle");
    IS(nvshmem_finalize(), -EBADF);
    REASON("nvshmem_init comes first");
    TRUE(nvshmem_malloc(1) == nullptr);
    if (rank == 0) {
        OK(nvshmemx_get_uniqueid(&id));
        for (int other = 1; other < MEMBERS; other++) IS(write(id_to[other], &id, sizeof id), sizeof id);
    } else {
        IS(read(id_from, &id, sizeof id), sizeof id);
    }
    OK(nvshmemx_set_attr_uniqueid_args(rank, MEMBERS, &id, &attr));
    IS(nvshmemx_init_attr(0, &attr), -EINVAL);
    for (const char *size : {"junk", "1.5X", "1MB", "-1", "0", "1e30"}) {
        setenv("NVSHMEM_SYMMETRIC_SIZE", size, 1);
        IS(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr), -EINVAL);
    }
    setenv("NVSHMEM_SYMMETRIC_SIZE", "1.5m", 1);
    OK(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr));
    IS(nvshmem_my_pe(), rank);
    IS(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE), MEMBERS);

    int *numbers = (int *)nvshmem_malloc(16 * sizeof(int)), *all = (int *)nvshmem_align(4096, 4 * MEMBERS * sizeof(int));
    float *sums = (float *)nvshmem_malloc(2 * sizeof(float));
    TRUE(numbers && all && sums);
    /* As much as the variable says, although other memory is taken. */
    void *much = nvshmem_malloc(3 << 19);
    TRUE(much != nullptr);
    OK(nvshmem_free(much));
    IS((std::uintptr_t)all % 4096, 0);
    /* Too much; a gap that is used again, and cleared. */
    TRUE(nvshmem_malloc(1 << 22) == nullptr);
    int *gap = (int *)nvshmem_malloc(8000);
    gap[1] = 5;
    OK(nvshmem_free(gap));
    std::uint64_t *signals = (std::uint64_t *)nvshmem_calloc(1000, sizeof(std::uint64_t));
    IS((void *)signals == (void *)gap, 1);
    IS(gap[1], 0);

    int elsewhere[4] = {0, 0, 0, 0};
    kernel(numbers, all, sums, signals, elsewhere);
    OK(nvshmem_barrier_all());
    OK(nvshmem_free(signals));
    IS(nvshmem_free(signals), -EINVAL);
    REASON("nvshmem_malloc has not returned this pointer");
    OK(nvshmem_free(nullptr));
    OK(nvshmem_finalize());
    return rank == 0 ? end("nvshmem") : 0;
}

int main() {
    /* Each learns the id from a pipe. fork comes before the library's first call. */
    int ends[MEMBERS][2], writers[MEMBERS] = {0};
    pid_t children[MEMBERS] = {0};
    for (int rank = 1; rank < MEMBERS; rank++) {
        if (pipe(ends[rank]) != 0) return 1;
        writers[rank] = ends[rank][1];
        children[rank] = fork();
        if (children[rank] == 0) return member(rank, ends[rank][0], nullptr);
    }
    int failed = member(0, -1, writers);
    for (int rank = 1; rank < MEMBERS; rank++) {
        int status = 1;
        if (waitpid(children[rank], &status, 0) != children[rank] || status != 0) failed = 1;
    }
    return failed;
}
