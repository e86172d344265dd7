// NVSHMEM between two GPUs: put_signal ping-pong, put bandwidth, and put_signal messages a second. A reference of `gpunet-bench`.
//
//     nvshmem_pingpong RANK FILE      two processes, ranks 0 and 1, on GPUs 0 and 1; FILE carries the unique id
//
// A row as a JSON line each. There is no copy-out here: the data stays where the put has left it.
#include "nvshmem_start.cuh"

#include <algorithm>
#include <vector>

__global__ void ping_pong(char *to, const char *from, uint64_t *signal, size_t size, int me, int rounds, uint64_t *ns) {
    int peer = 1 - me;
    for (int round = 1; round <= rounds; round++) {
        uint64_t start = now();
        if (me == 0) nvshmemx_putmem_signal_nbi_block(to, from, size, signal, round, NVSHMEM_SIGNAL_SET, peer);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, round);
        __syncthreads();
        if (me == 1) nvshmemx_putmem_signal_nbi_block(to, from, size, signal, round, NVSHMEM_SIGNAL_SET, peer);
        if (threadIdx.x == 0) ns[round - 1] = now() - start;
    }
    nvshmem_quiet();
}

__global__ void put(char *to, const char *from, size_t size, int times, int peer) {
    size_t at = size * blockIdx.x;
    for (int i = 0; i < times; i++) nvshmemx_putmem_nbi_block(to + at, from + at, size, peer);
    nvshmem_quiet();
}

// Each block sends messages of `size` bytes, one put_signal each, without waiting for any.
__global__ void messages(char *to, const char *from, uint64_t *signals, size_t size, int times, int peer) {
    size_t at = size_t(65536) * blockIdx.x;
    for (int i = 0; i < times; i++)
        nvshmemx_putmem_signal_nbi_block(to + at + size * (i % 1024), from + at + size * (i % 1024), size,
                                         signals + blockIdx.x, i + 1, NVSHMEM_SIGNAL_SET, peer);
    nvshmem_quiet();
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s RANK FILE\n", argv[0]);
        return 2;
    }
    int me = std::atoi(argv[1]);
    start(me, 2, argv[2]);

    const size_t room = size_t(64) << 20;
    const int most = 10000;
    char *to = static_cast<char *>(nvshmem_malloc(room));
    char *from = static_cast<char *>(nvshmem_malloc(room));
    uint64_t *signal = static_cast<uint64_t *>(nvshmem_malloc(4096));
    uint64_t *ns;
    CHECK(cudaMalloc(&ns, most * sizeof *ns));
    std::vector<uint64_t> samples(most);

    const struct { size_t size; int threads; } shapes[] = {
        {1, 128}, {8, 128}, {64, 128}, {256, 128}, {512, 128}, {1024, 128}, {4096, 128}, {8192, 128}, {65536, 512}, {1 << 20, 512}, {1 << 20, 1024}};
    for (auto shape : shapes) {
        int rounds = shape.size > 100000 ? 1000 : 5000;
        CHECK(cudaMemset(signal, 0, 4096));
        CHECK(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        ping_pong<<<1, shape.threads>>>(to, from, signal, shape.size, me, rounds, ns);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(samples.data(), ns, rounds * sizeof *ns, cudaMemcpyDeviceToHost));
        nvshmem_barrier_all();
        if (me == 0) {
            auto begin = samples.begin() + rounds / 10, end = samples.begin() + rounds;
            std::sort(begin, end);
            size_t count = end - begin;
            auto us = [&](double share) { return begin[size_t((count - 1) * share)] / 2000.0; };
            std::printf("{\"of\":\"latency\",\"role\":\"peer\",\"name\":\"%zu B, NVSHMEM put_signal, %d threads\","
                        "\"series\":\"NVSHMEM put_signal%s\",\"x\":%zu,\"samples\":%zu,\"p50_us\":%.3f,\"p90_us\":%.3f,"
                        "\"p99_us\":%.3f,\"max_us\":%.3f}\n",
                        shape.size, shape.threads, shape.threads > 512 ? ", 1024 threads" : "", shape.size, count, us(0.5),
                        us(0.9), us(0.99), us(1.0));
        }
    }
    for (int threads : {512, 1024}) {
        for (int blocks : {1, 4, 16, 32}) {
            size_t size = 1 << 20;
            int times = 512;
            cudaEvent_t start, stop;
            CHECK(cudaEventCreate(&start));
            CHECK(cudaEventCreate(&stop));
            nvshmem_barrier_all();
            if (me == 0) {
                put<<<blocks, threads>>>(to, from, size, 16, 1);
                CHECK(cudaEventRecord(start));
                put<<<blocks, threads>>>(to, from, size, times, 1);
                CHECK(cudaEventRecord(stop));
                CHECK(cudaEventSynchronize(stop));
                float ms;
                CHECK(cudaEventElapsedTime(&ms, start, stop));
                std::printf("{\"of\":\"bandwidth\",\"role\":\"peer\",\"name\":\"%d blocks, NVSHMEM put, %d threads, 1 MiB a "
                            "call\",\"series\":\"NVSHMEM put, %d threads\",\"x\":%d,\"gigabytes_per_second\":%.3f}\n",
                            blocks, threads, threads, blocks, double(size) * blocks * times / ms / 1e6);
            }
            nvshmem_barrier_all();
        }
    }
    for (int blocks : {1, 4, 16, 64, 132}) {
        size_t size = 64;
        int times = 100000;
        cudaEvent_t start, stop;
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
        nvshmem_barrier_all();
        if (me == 0) {
            messages<<<blocks, 128>>>(to, from, signal, size, 1000, 1);
            CHECK(cudaEventRecord(start));
            messages<<<blocks, 128>>>(to, from, signal, size, times, 1);
            CHECK(cudaEventRecord(stop));
            CHECK(cudaEventSynchronize(stop));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, start, stop));
            std::printf("{\"of\":\"rate\",\"role\":\"peer\",\"name\":\"%d blocks, NVSHMEM put_signal of %zu B\","
                        "\"series\":\"NVSHMEM put_signal\",\"x\":%d,\"value\":%.0f,\"unit\":\"messages a second\"}\n",
                        blocks, size, blocks, double(times) * blocks / ms * 1e3);
        }
        nvshmem_barrier_all();
    }
    std::fflush(stdout);
    nvshmem_free(signal);
    nvshmem_free(from);
    nvshmem_free(to);
    nvshmem_finalize();
    return 0;
}
