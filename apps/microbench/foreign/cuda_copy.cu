// The copy engine: cudaMemcpyAsync and a wait, between device and pinned memory, and between two GPUs if there are two. A
// reference of `gpunet-bench`; rows as JSON lines.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

static double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

static void measure(const char *way, void *to, const void *from, cudaStream_t stream) {
    for (size_t size : {size_t(64), size_t(1024), size_t(8192), size_t(65536), size_t(1) << 20, size_t(4) << 20}) {
        std::vector<double> samples;
        for (int i = 0; i < 550; i++) {
            auto start = Clock::now();
            CHECK(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream));
            CHECK(cudaStreamSynchronize(stream));
            if (i >= 50) samples.push_back(us_since(start));
        }
        std::sort(samples.begin(), samples.end());
        auto at = [&](double share) { return samples[size_t((samples.size() - 1) * share)]; };
        std::printf("{\"of\":\"latency\",\"role\":\"peer\",\"name\":\"%zu B, cudaMemcpyAsync and wait, %s\",\"series\":\"cudaMemcpyAsync, %s\","
                    "\"x\":%zu,\"samples\":%zu,\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f}\n",
                    size, way, way, size, samples.size(), at(0.5), at(0.9), at(0.99), at(1));
    }
    const size_t size = size_t(64) << 20;
    const int times = 20;
    CHECK(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto start = Clock::now();
    for (int i = 0; i < times; i++) CHECK(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("{\"of\":\"bandwidth\",\"role\":\"peer\",\"name\":\"cudaMemcpyAsync, 64 MiB, %s\",\"gigabytes_per_second\":%.3f}\n",
                way, double(size) * times / us_since(start) / 1e3);
}

int main() {
    const size_t room = size_t(64) << 20;
    int gpus = 0;
    CHECK(cudaGetDeviceCount(&gpus));
    char *device, *pinned;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&device, room));
    CHECK(cudaMallocHost(&pinned, room));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    measure("pinned to device", device, pinned, stream);
    measure("device to pinned", pinned, device, stream);
    int reaches = 0;
    if (gpus > 1) CHECK(cudaDeviceCanAccessPeer(&reaches, 0, 1));
    if (reaches) {
        char *other;
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
        CHECK(cudaSetDevice(1));
        CHECK(cudaMalloc(&other, room));
        CHECK(cudaSetDevice(0));
        measure("GPU to GPU", other, device, stream);
    }
    return 0;
}
