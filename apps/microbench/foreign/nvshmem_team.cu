// NVSHMEM among several GPUs: barriers and collectives that kernels call, one block each. A reference of `gpunet-bench`.
//
//     nvshmem_team RANK SIZE FILE     SIZE processes, ranks from 0, on the GPUs of these numbers; FILE carries the unique id
//
// A row as a JSON line each: the time of one call after the other, as member 0 sees it.
#include "nvshmem_start.cuh"

#include <algorithm>
#include <vector>

enum class Called { Barrier, AllGather, Reduce };

// As many threads as rows have at most: without the bound it has registers for fewer.
__global__ void __launch_bounds__(512) call(Called called, float *to, const float *from, size_t count, int rounds, uint64_t *ns) {
    for (int round = 0; round < rounds; round++) {
        uint64_t begun = now();
        if (called == Called::Barrier) nvshmemx_barrier_all_block();
        if (called == Called::AllGather) nvshmemx_float_fcollect_block(NVSHMEM_TEAM_WORLD, to, from, count);
        if (called == Called::Reduce) nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, count);
        __syncthreads();
        if (threadIdx.x == 0) ns[round] = now() - begun;
    }
}

// Runs a kernel on all GPUs; member 0 prints the row, whose name and place are given.
static void measure(int me, Called called, float *to, const float *from, size_t count, int threads, const char *of,
                    const char *name, const char *series, size_t x) {
    int rounds = 3000;
    static uint64_t *ns = nullptr;
    if (!ns) CHECK(cudaMalloc(&ns, rounds * sizeof *ns));
    nvshmem_barrier_all();
    // Kernels that wait for each other run at the same time: one block on each GPU does.
    call<<<1, threads>>>(called, to, from, count, rounds, ns);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    if (me != 0) return;
    std::vector<uint64_t> samples(rounds);
    CHECK(cudaMemcpy(samples.data(), ns, rounds * sizeof *ns, cudaMemcpyDeviceToHost));
    auto begin = samples.begin() + rounds / 10, end = samples.end();
    std::sort(begin, end);
    size_t kept = end - begin;
    auto us = [&](double share) { return begin[size_t((kept - 1) * share)] / 1000.0; };
    std::printf("{\"of\":\"%s\",\"role\":\"peer\",\"name\":\"%s\",\"series\":\"%s\",\"x\":%zu,\"samples\":%zu,"
                "\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f}\n",
                of, name, series, x, kept, us(0.5), us(0.9), us(0.99), us(1.0));
}

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s RANK SIZE FILE\n", argv[0]);
        return 2;
    }
    int me = std::atoi(argv[1]), size = std::atoi(argv[2]);
    start(me, size, argv[3]);
    const size_t most = size_t(1) << 20;
    float *to = static_cast<float *>(nvshmem_malloc(most * size));
    float *from = static_cast<float *>(nvshmem_malloc(most));
    CHECK(cudaMemset(from, 0, most));
    CHECK(cudaDeviceSynchronize());
    char name[256];
    std::snprintf(name, sizeof name, "%d members, NVSHMEM barrier_all, a block of 128", size);
    measure(me, Called::Barrier, to, from, 0, 128, "barrier", name, "NVSHMEM barrier_all", size);
    for (size_t bytes = 1024; bytes <= size_t(1) << 18; bytes *= 2) {
        std::snprintf(name, sizeof name, "%zu B, NVSHMEM fcollect, a block of 512", bytes);
        measure(me, Called::AllGather, to, from, bytes / sizeof *from, 512, "all_gather", name, "NVSHMEM fcollect", bytes);
        std::snprintf(name, sizeof name, "%zu B, NVSHMEM sum_reduce, a block of 512", bytes);
        measure(me, Called::Reduce, to, from, bytes / sizeof *from, 512, "reduce", name, "NVSHMEM sum_reduce", bytes);
    }
    std::fflush(stdout);
    nvshmem_free(from);
    nvshmem_free(to);
    nvshmem_finalize();
    return 0;
}
