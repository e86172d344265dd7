// The host program of the example: functions that kernels call while they run.
//
//     cuda-calls [BLOCKS [THREADS [ROUNDS]]]      by default 8 blocks of 128 threads, 20 rounds
//
// Exit codes: 0 all is well, 1 something failed, 2 there is no GPU.
#include <gpunet_calls.h>
#include <gpunet_host.h>

#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "calls.h"

extern "C" __global__ void calls_work(gpunet_net_t net, gpunet_calls_t calls, unsigned int rounds, outcome *all);
extern "C" __global__ void calls_time(gpunet_net_t net, gpunet_calls_t calls, unsigned int count, outcome *all);

namespace {

void must(const char *what, int result) {
    if (result >= 0) return;
    std::fprintf(stderr, "%s: %s\n", what, gpunet_host_last_error());
    std::exit(1);
}

// Functions: a request of `len` bytes, an answer of at most `room`; they return how many bytes it has, or a negative errno.

std::int64_t same(const void *request, std::size_t len, void *answer, std::size_t room, void *) {
    if (len != 4 || room < 4) return -EINVAL;
    *static_cast<unsigned int *>(answer) = *static_cast<const unsigned int *>(request);
    return 4;
}

std::int64_t find_row(const void *request, std::size_t len, void *answer, std::size_t room, void *) {
    const unsigned int number = *static_cast<const unsigned int *>(request);
    if (len != sizeof number || number == ~0u) return -EINVAL;
    if (room >= sizeof(row)) {
        row &found = *static_cast<row *>(answer);
        found.number = number;
        for (int at = 0; at < 20; at++) found.values[at] = number + at / 4.0;
    }
    // More than there is room for is -EMSGSIZE in the kernel.
    return sizeof(row);
}

std::int64_t to_upper(const void *request, std::size_t len, void *answer, std::size_t, void *) {
    for (std::size_t at = 0; at < len; at++)
        static_cast<char *>(answer)[at] = static_cast<char>(std::toupper(static_cast<const unsigned char *>(request)[at]));
    return static_cast<std::int64_t>(len);
}

// A function may block: other threads run the others meanwhile.
struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
};

std::int64_t late(const void *, std::size_t, void *, std::size_t, void *user) {
    auto &gate = *static_cast<struct gate *>(user);
    std::unique_lock<std::mutex> lock(gate.mutex);
    gate.changed.wait(lock, [&] { return gate.open; });
    return 0;
}

std::int64_t go_on(const void *, std::size_t, void *, std::size_t, void *user) {
    auto &gate = *static_cast<struct gate *>(user);
    const std::lock_guard<std::mutex> lock(gate.mutex);
    gate.open = true;
    gate.changed.notify_all();
    return 0;
}

gpunet_host_function function(const char *name, unsigned int number, gpunet_host_function_fn run, void *user = nullptr) {
    gpunet_host_function function = {};
    function.name = name, function.number = number, function.run = run, function.user = user;
    function.request = 100, function.answer = sizeof(row);
    return function;
}

} // namespace

int main(int argc, char **argv) {
    auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
    const int blocks = number(1, 8), threads = number(2, 128), rounds = number(3, 20);
    if (blocks < 1 || threads < 1 || threads > 1024 || rounds < 1) {
        std::fprintf(stderr, "usage: cuda-calls [BLOCKS [THREADS [ROUNDS]]]\n");
        return 1;
    }
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::fprintf(stderr, "NOT RUN: no GPU\n");
        return 2;
    }
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
    must("attaching the GPU", gpunet_host_attach_cuda_device(proxy, 0, &attachment));

    // What kernels may call, and the threads that run it.
    gate gate;
    const gpunet_host_function functions[] = {
        function(nullptr, 1, same), function("row", 0, find_row), function("upper", 0, to_upper), function("late", 0, late, &gate),
        function("go on", 0, go_on, &gate)};
    gpunet_host_calls_settings settings = {};
    // One for each block, warp or thread that calls at a time.
    settings.flags = GPUNET_HOST_CALLS_NAMES;
    settings.channels = static_cast<unsigned int>(blocks * ((threads + 31) / 32 + 1));
    gpunet_host_calls_t *calls = nullptr;
    gpunet_calls_t value = {};
    must("serving calls", gpunet_host_calls(attachment, functions, sizeof functions / sizeof *functions, &settings, &calls));
    must("serving calls", gpunet_host_calls_value(calls, &value));

    outcome *all = nullptr;
    if (cudaMallocManaged(&all, sizeof *all) != cudaSuccess) return 1;
    *all = {};
    gpunet_host_token_t *token = nullptr;
    must("taking a token", gpunet_host_token(attachment, &token));
    calls_work<<<blocks, threads>>>(gpunet_host_token_net(token), value, static_cast<unsigned int>(rounds), all);
    bool good = cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
    const unsigned int times = 10000;
    const auto begin = std::chrono::steady_clock::now();
    calls_time<<<1, 32>>>(gpunet_host_token_net(token), value, times, all);
    good = cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess && good;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));

    gpunet_host_calls_counts counts = {};
    must("counting", gpunet_host_calls_count(calls, &counts));
    must("stopping", gpunet_host_calls_close(calls));
    must("closing", gpunet_host_attachment_close(attachment, nullptr));
    must("closing", gpunet_host_proxy_close(proxy));
    if (!good) std::fprintf(stderr, "FAILED: a kernel\n");
    if (all->wrong) std::fprintf(stderr, "FAILED: %u results are wrong, the first in line %u of calls.cu\n", all->wrong, all->first_wrong);
    if (counts.malformed) std::fprintf(stderr, "FAILED: %llu requests were malformed\n", static_cast<unsigned long long>(counts.malformed));
    good = good && !all->wrong && !counts.malformed;
    std::printf("%llu calls were answered; one after another by a warp, each took %.1f us\n", static_cast<unsigned long long>(counts.answered), took.count() / times);
    (void)cudaFree(all);
    return good ? 0 : 1;
}
