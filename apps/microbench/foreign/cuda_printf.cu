// CUDA's printf: what a warp takes for a line, and when a program has read it. A reference of `gpunet-bench`; rows as JSON lines.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t code_ = (call);                                                                   \
        if (code_ != cudaSuccess) {                                                                   \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_));                       \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

using Clock = std::chrono::steady_clock;

__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// One lane of each warp prints `count` lines; `took` gets the nanoseconds of each warp.
__global__ void many(unsigned int count, unsigned long long *took) {
    const unsigned int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const unsigned long long start = now_ns();
    for (unsigned int number = 0; number < count; number++) {
        if (threadIdx.x % 32 == 0) printf("warp %u, line %llu\n", warp, (unsigned long long)number);
        __syncwarp();
    }
    if (threadIdx.x % 32 == 0) took[warp] = now_ns() - start;
}

// Prints a line, and goes on for so long.
__global__ void one(unsigned long long goes_on_ns) {
    const unsigned long long start = now_ns();
    if (threadIdx.x == 0) printf("line of %llu ns\n", start);
    while (now_ns() - start < goes_on_ns) {}
}

static FILE *rows;

// What printf writes goes to this descriptor from now on.
static void print_to(int fd) {
    std::fflush(stdout);
    if (fd < 0 || dup2(fd, 1) < 0) std::exit(1);
}

static void by_warps(unsigned int blocks, unsigned int threads, const char *place) {
    const unsigned int warps = blocks * threads / 32, count = warps == 1 ? 20000 : 400;
    unsigned long long *took;
    CHECK(cudaMallocManaged(&took, warps * sizeof *took));
    print_to(open("/dev/null", O_WRONLY));
    // The first launch loads the kernel.
    for (unsigned int lines : {1u, count}) {
        many<<<blocks, threads>>>(lines, took);
        CHECK(cudaDeviceSynchronize());
    }
    double sum = 0;
    for (unsigned int warp = 0; warp < warps; warp++) sum += double(took[warp]);
    std::fprintf(rows, "{\"of\":\"lines\",\"role\":\"peer\",\"name\":\"a line of CUDA's printf by a warp, %u warp%s\",%s\"value\":%.3f,\"unit\":\"ns\"}\n",
                 warps, warps == 1 ? "" : "s", place, sum / warps / count);
    CHECK(cudaFree(took));
}

static void until_read(unsigned long long goes_on_ns, int rounds, const char *name) {
    int ends[2];
    if (pipe(ends) != 0) std::exit(1);
    print_to(ends[1]);
    std::vector<double> samples;
    for (int round = -2; round < rounds; round++) {
        char text[256];
        const auto start = Clock::now();
        one<<<1, 32>>>(goes_on_ns);
        CHECK(cudaDeviceSynchronize());
        std::fflush(stdout);
        if (read(ends[0], text, sizeof text) <= 0) std::exit(1);
        if (round >= 0) samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::sort(samples.begin(), samples.end());
    auto at = [&](double share) { return samples[size_t((samples.size() - 1) * share)]; };
    std::fprintf(rows, "{\"of\":\"lines\",\"role\":\"peer\",\"name\":\"%s\",\"samples\":%zu,\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f}\n",
                 name, samples.size(), at(0.5), at(0.9), at(0.99), at(1));
}

int main() {
    // Room for all lines of a launch: printf drops what finds none.
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, size_t(256) << 20));
    rows = fdopen(dup(1), "w");
    if (rows == nullptr) return 1;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    by_warps(1, 32, "\"series\":\"CUDA's printf\",\"x\":1,");
    by_warps(properties.multiProcessorCount, 128, "");
    until_read(0, 200, "a line of CUDA's printf, from the launch until a pipe's reader has it, in a kernel that ends at once");
    until_read(100000000, 5, "a line of CUDA's printf, from the launch until a pipe's reader has it, in a kernel that goes on for 100 ms");
    return std::fclose(rows) == 0 ? 0 : 1;
}
