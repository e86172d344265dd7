/* CUDA C++ on CPU blocks: what a C++ compiler (g++ or clang++, C++17 and later) needs to compile kernels and the host program that
 * launches them, without CUDA and without a GPU. Compile with `-include gpunet_cpu.h -x c++`, and link with libgpunet.
 *
 * `kernel<<<blocks, threads>>>(...)` is no C++: gpunet/cpu/cuda.sed beside this file makes calls of it. docs/c.md has the commands.
 *
 * A thread block is one thread of the system, on which its threads take turns. A thread runs until it comes to a barrier, a warp
 * operation or a call of gpunet, until it waits (a __nanosleep, a __threadfence, an atomicCAS that finds another value), or until
 * it ends. A loop that waits for another thread of its block by plain loads never ends: put a __nanosleep there. Barriers wait for
 * the threads that have not ended, as on a GPU. Threads that can never meet end the program with a message. A thread's stack has
 * 256 KiB; a thread that needs more ends the program by SIGSEGV.
 *
 * What there is:
 *   - threadIdx, blockIdx, blockDim, gridDim, warpSize, __shared__; vectors of two and four with their make_ functions;
 *   - __syncthreads and its _or, _and, _count; __syncwarp, __shfl_sync, _up, _down and _xor, __ballot_sync, __any_sync, __all_sync,
 *     by all threads of a warp; fences and atomics;
 *   - min, max, math.h, __popc, __clz, __ffs and their ll forms;
 *   - of cooperative groups thread_block, whole warps and single threads;
 *   - of the CUDA runtime streams, memory, copies and launches. A launch of a shape that cannot be is the next cudaGetLastError.
 * `extern __shared__ T name[];` needs a definition in one file: `thread_local T name[COUNT];`. */
#ifndef GPUNET_CPU_H
#define GPUNET_CPU_H

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "gpunet_cpu.h needs C++17 or later (-std=c++17)"
#endif
#ifdef __CUDACC__
#error "gpunet_cpu.h is for kernels on the CPU: nvcc and clang -x cuda have all this"
#endif

#include <gpunet_host.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

/* Host and device are the same. What is `thread_local` belongs to the thread of the system, which is the block. */
#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __shared__ thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct uint3 {
    unsigned int x, y, z;
};
/* Vectors of two and four, aligned as CUDA's. */
#define GPUNET_CPU_VECTORS(type, prefix)                                                                       \
    struct alignas(2 * sizeof(type)) prefix##2 {                                                               \
        type x, y;                                                                                             \
    };                                                                                                         \
    struct alignas(sizeof(type) < 4 ? 4 * sizeof(type) : 16) prefix##4 {                                       \
        type x, y, z, w;                                                                                       \
    };                                                                                                         \
    constexpr prefix##2 make_##prefix##2(type x, type y) { return {x, y}; }                                    \
    constexpr prefix##4 make_##prefix##4(type x, type y, type z, type w) { return {x, y, z, w}; }
GPUNET_CPU_VECTORS(signed char, char)
GPUNET_CPU_VECTORS(unsigned char, uchar)
GPUNET_CPU_VECTORS(int, int)
GPUNET_CPU_VECTORS(unsigned int, uint)
GPUNET_CPU_VECTORS(float, float)
GPUNET_CPU_VECTORS(double, double)
#undef GPUNET_CPU_VECTORS
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

/* Where the running thread is. A thread that runs no kernel is the only one of block 0. */
inline thread_local uint3 threadIdx = {0, 0, 0};
inline thread_local uint3 blockIdx = {0, 0, 0};
inline thread_local dim3 blockDim;
inline thread_local dim3 gridDim;
constexpr int warpSize = 32;

namespace gpunet {
namespace cpu {

inline unsigned int rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned int count(const dim3 &shape) { return shape.x * shape.y * shape.z; }
inline uint3 place(unsigned int number, const dim3 &shape) {
    return {number % shape.x, number / shape.x % shape.y, number / (shape.x * shape.y)};
}

/* The lanes of the running thread's warp. */
inline unsigned int lanes() {
    const unsigned int rest = count(blockDim) - (rank() & ~31u);
    return rest < 32 ? rest : 32;
}
/* Ends the program where a warp operation is not for the whole warp. */
inline void whole(unsigned int mask) {
    const unsigned int all = lanes() == 32 ? ~0u : (1u << lanes()) - 1;
    if ((mask & all) == all) return;
    std::fprintf(stderr, "gpunet_cpu.h: a warp operation has the mask %#x; on the CPU all %u threads of the warp take part\n", mask, lanes());
    std::abort();
}

/* What the threads of a block show each other. */
inline thread_local unsigned long long shown[1024];

/* The value that lane `from` gives; the own one where there is no such lane. */
template <class T> T exchange(unsigned int mask, T own, unsigned int from) {
    static_assert(sizeof(T) <= sizeof *shown, "a warp exchanges values of up to eight bytes");
    whole(mask);
    const unsigned int first = rank() & ~31u;
    std::memcpy(&shown[rank()], &own, sizeof own);
    gpunet_host_sync_warp(0);
    if (from < lanes()) std::memcpy(&own, &shown[first + from], sizeof own);
    gpunet_host_sync_warp(0);
    return own;
}

} // namespace cpu
} // namespace gpunet

/* Barriers. */
inline void __syncthreads() { (void)gpunet_host_sync_block(0); }
inline int __syncthreads_count(int own) { return static_cast<int>(gpunet_host_sync_block(own != 0)); }
inline int __syncthreads_or(int own) { return __syncthreads_count(own) != 0; }
inline int __syncthreads_and(int own) { return __syncthreads_count(own == 0) == 0; }

/* Warps. */
inline void __syncwarp(unsigned int mask = ~0u) {
    gpunet::cpu::whole(mask);
    (void)gpunet_host_sync_warp(0);
}
inline unsigned int __activemask() { return gpunet::cpu::lanes() == 32 ? ~0u : (1u << gpunet::cpu::lanes()) - 1; }
template <class T> T __shfl_sync(unsigned int mask, T own, int from, int width = 32) {
    const unsigned int lane = gpunet::cpu::rank() & 31, part = static_cast<unsigned int>(width);
    return gpunet::cpu::exchange(mask, own, (lane & ~(part - 1)) + (static_cast<unsigned int>(from) & (part - 1)));
}
template <class T> T __shfl_up_sync(unsigned int mask, T own, unsigned int by, int width = 32) {
    const unsigned int lane = gpunet::cpu::rank() & 31, part = static_cast<unsigned int>(width);
    return gpunet::cpu::exchange(mask, own, (lane & (part - 1)) >= by ? lane - by : lane);
}
template <class T> T __shfl_down_sync(unsigned int mask, T own, unsigned int by, int width = 32) {
    const unsigned int lane = gpunet::cpu::rank() & 31, part = static_cast<unsigned int>(width);
    return gpunet::cpu::exchange(mask, own, (lane & (part - 1)) + by < part ? lane + by : lane);
}
template <class T> T __shfl_xor_sync(unsigned int mask, T own, int with, int width = 32) {
    const unsigned int lane = gpunet::cpu::rank() & 31, part = static_cast<unsigned int>(width);
    const unsigned int from = lane ^ static_cast<unsigned int>(with);
    return gpunet::cpu::exchange(mask, own, (from & ~(part - 1)) <= (lane & ~(part - 1)) ? from : lane);
}
inline unsigned int __ballot_sync(unsigned int mask, int own) {
    gpunet::cpu::whole(mask);
    return gpunet_host_sync_warp(own != 0 ? 1u << (gpunet::cpu::rank() & 31) : 0);
}
inline int __any_sync(unsigned int mask, int own) { return __ballot_sync(mask, own) != 0; }
inline int __all_sync(unsigned int mask, int own) { return __ballot_sync(mask, own == 0) == 0; }

/* Memory. */
inline void __threadfence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    (void)gpunet_host_take_turns();
}
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned int ns) {
    if (!gpunet_host_take_turns()) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}
template <class T> T __ldg(const T *from) { return *from; }

/* Numbers. The functions of math.h are there, too. */
using std::max;
using std::min;
inline int __popc(unsigned int value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(value)); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value)); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

namespace gpunet {
namespace cpu {

/* Changes a value as one step; returns what it was. */
template <class T, class Change> T change(T *at, Change next) {
    T old, wanted;
    __atomic_load(at, &old, __ATOMIC_SEQ_CST);
    do {
        wanted = next(old);
    } while (!__atomic_compare_exchange(at, &old, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> struct same {
    using type = T;
};

} // namespace cpu
} // namespace gpunet

template <class T> T atomicCAS(T *at, typename gpunet::cpu::same<T>::type from, typename gpunet::cpu::same<T>::type to) {
    T old = from;
    if (!__atomic_compare_exchange(at, &old, &to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) (void)gpunet_host_take_turns();
    return old;
}
template <class T> T atomicExch(T *at, typename gpunet::cpu::same<T>::type to) {
    return gpunet::cpu::change(at, [to](T) { return to; });
}
template <class T> T atomicAdd(T *at, typename gpunet::cpu::same<T>::type by) {
    return gpunet::cpu::change(at, [by](T old) { return static_cast<T>(old + by); });
}
template <class T> T atomicSub(T *at, typename gpunet::cpu::same<T>::type by) {
    return gpunet::cpu::change(at, [by](T old) { return static_cast<T>(old - by); });
}
template <class T> T atomicMin(T *at, typename gpunet::cpu::same<T>::type other) {
    return gpunet::cpu::change(at, [other](T old) { return other < old ? other : old; });
}
template <class T> T atomicMax(T *at, typename gpunet::cpu::same<T>::type other) {
    return gpunet::cpu::change(at, [other](T old) { return old < other ? other : old; });
}
template <class T> T atomicAnd(T *at, typename gpunet::cpu::same<T>::type bits) {
    return gpunet::cpu::change(at, [bits](T old) { return static_cast<T>(old & bits); });
}
template <class T> T atomicOr(T *at, typename gpunet::cpu::same<T>::type bits) {
    return gpunet::cpu::change(at, [bits](T old) { return static_cast<T>(old | bits); });
}
template <class T> T atomicXor(T *at, typename gpunet::cpu::same<T>::type bits) {
    return gpunet::cpu::change(at, [bits](T old) { return static_cast<T>(old ^ bits); });
}

/* Cooperative groups: those that make calls of gpunet.cuh. */
namespace cooperative_groups {

struct thread_block {
    static unsigned int thread_rank() { return gpunet::cpu::rank(); }
    static unsigned int size() { return gpunet::cpu::count(blockDim); }
    static unsigned int num_threads() { return size(); }
    static uint3 thread_index() { return threadIdx; }
    static uint3 group_index() { return blockIdx; }
    static void sync() { __syncthreads(); }
};
/* All threads of a warp: on the CPU there are no others that are coalesced. */
struct coalesced_group {
    static unsigned int thread_rank() { return gpunet::cpu::rank() & 31; }
    static unsigned int size() { return gpunet::cpu::lanes(); }
    static unsigned int num_threads() { return size(); }
    static void sync() { __syncwarp(); }
    template <class T> static T shfl(T own, int from) { return __shfl_sync(~0u, own, from); }
    static unsigned int ballot(int own) { return __ballot_sync(~0u, own); }
    static int any(int own) { return __any_sync(~0u, own); }
    static int all(int own) { return __all_sync(~0u, own); }
};
template <unsigned int Size, class Parent = void> struct thread_block_tile {
    static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1 to 32 threads");
    static unsigned int thread_rank() { return gpunet::cpu::rank() & (Size - 1); }
    static constexpr unsigned int size() { return Size; }
    static constexpr unsigned int num_threads() { return Size; }
    static unsigned int meta_group_rank() { return gpunet::cpu::rank() / Size; }
    static void sync() {
        static_assert(Size == 32 || Size == 1, "gpunet_cpu.h synchronizes whole warps");
        if (Size == 32) __syncwarp();
    }
    template <class T> static T shfl(T own, int from) { return __shfl_sync(~0u, own, from, Size); }
    template <class T> static T shfl_up(T own, unsigned int by) { return __shfl_up_sync(~0u, own, by, Size); }
    template <class T> static T shfl_down(T own, unsigned int by) { return __shfl_down_sync(~0u, own, by, Size); }
    template <class T> static T shfl_xor(T own, unsigned int with) { return __shfl_xor_sync(~0u, own, static_cast<int>(with), Size); }
    static unsigned int ballot(int own) {
        static_assert(Size == 32, "gpunet_cpu.h votes by whole warps");
        return __ballot_sync(~0u, own);
    }
    static int any(int own) { return ballot(own) != 0; }
    static int all(int own) { return ballot(own == 0) == 0; }
};

inline thread_block this_thread_block() { return {}; }
inline coalesced_group coalesced_threads() { return {}; }
inline thread_block_tile<1> this_thread() { return {}; }
template <unsigned int Size, class Parent> thread_block_tile<Size, Parent> tiled_partition(const Parent &) { return {}; }
inline void sync(const thread_block &block) { block.sync(); }

} // namespace cooperative_groups

/* The CUDA runtime, as far as programs with gpunet use it. Memory is the program's, the one device is the CPU. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
typedef void *cudaFunction_t;

namespace gpunet {
namespace cpu {

/* Does one thing after the other, on a thread of its own. */
class stream {
public:
    stream() {
        /* The program's signals reach its own threads: the others block all but those that they raise themselves. */
        sigset_t blocked, before;
        sigfillset(&blocked);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&blocked, own);
        pthread_sigmask(SIG_BLOCK, &blocked, &before);
        worker_ = std::thread([this] { work(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        all(this, true);
    }
    ~stream() {
        all(this, false);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }
    void enqueue(std::function<bool()> operation) {
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_.push_back(std::move(operation));
        changed_.notify_all();
    }
    cudaError_t query() {
        std::lock_guard<std::mutex> lock(mutex_);
        return !waiting_.empty() ? cudaErrorNotReady : failed_ ? cudaErrorLaunchFailure : cudaSuccess;
    }
    cudaError_t synchronize() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return waiting_.empty(); });
        return failed_ ? cudaErrorLaunchFailure : cudaSuccess;
    }
    /* The default stream. */
    static stream &first() {
        static stream *const first = new stream;
        return *first;
    }
    /* Waits for every stream there is. */
    static cudaError_t synchronize_all() {
        cudaError_t failed = cudaSuccess;
        for (stream *one : all(nullptr, false)) {
            if (const cudaError_t result = one->synchronize(); failed == cudaSuccess) failed = result;
        }
        return failed;
    }

private:
    /* Notes a stream, or that it has gone; returns those that there are. */
    static std::set<stream *> all(stream *one, bool is_there) {
        static auto *const mutex = new std::mutex;
        static auto *const streams = new std::set<stream *>;
        std::lock_guard<std::mutex> lock(*mutex);
        if (one != nullptr && is_there) streams->insert(one);
        else if (one != nullptr) streams->erase(one);
        return *streams;
    }
    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            auto operation = waiting_.front();
            lock.unlock();
            const bool good = operation();
            lock.lock();
            failed_ = failed_ || !good;
            waiting_.pop_front();
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<bool()>> waiting_; /* the first of them runs */
    bool ended_ = false, failed_ = false;
    std::thread worker_;
};

/* A kernel with its arguments, and its shape. */
template <class Body> struct grid {
    Body body;
    dim3 blocks, threads;

    static void begin_turn(unsigned int thread) { threadIdx = place(thread, blockDim); }
    static void run_thread(void *argument) {
        auto &self = *static_cast<grid *>(argument);
        /* The first thread of a block runs first, without knowing the shape. */
        const unsigned int own = rank();
        gridDim = self.blocks;
        blockDim = self.threads;
        blockIdx = place(gpunet_host_block(), gridDim);
        threadIdx = place(own, blockDim);
        self.body();
    }
    bool run() {
        const int ran = gpunet_host_run_blocks(count(blocks), count(threads), run_thread, this, begin_turn);
        if (ran < 0) std::fprintf(stderr, "gpunet_cpu.h: a launch has failed: %s\n", gpunet_host_last_error());
        return ran >= 0;
    }
};

/* What cudaGetLastError returns to the calling thread. */
inline thread_local cudaError_t last_error = cudaSuccess;

inline stream &stream_of(stream *given) { return given != nullptr ? *given : stream::first(); }

/* `launch(kernel, blocks, threads, shared, stream)(arguments...)` is what `kernel<<<blocks, threads, shared, stream>>>(arguments...)`
 * is. The bytes of shared memory are those of the array's definition. */
template <class Kernel> auto launch(Kernel kernel, dim3 blocks, dim3 threads, std::size_t = 0, stream *on = nullptr) {
    return [=](auto... arguments) {
        if (count(blocks) == 0 || count(threads) == 0 || count(threads) > 1024) {
            last_error = cudaErrorInvalidConfiguration;
            return;
        }
        auto body = [kernel, given = std::make_tuple(arguments...)] { std::apply(kernel, given); };
        stream_of(on).enqueue([body, blocks, threads] { return grid<decltype(body)>{body, blocks, threads}.run(); });
    };
}

} // namespace cpu
} // namespace gpunet

typedef gpunet::cpu::stream *cudaStream_t;

inline const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration: a launch has at least one block, of 1 to 1,024 threads";
    case cudaErrorNotReady: return "not ready";
    default: return "a launch has failed";
    }
}
inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return gpunet::cpu::last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(gpunet::cpu::last_error, cudaSuccess); }
inline cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol) {
    return *function = const_cast<void *>(symbol), cudaSuccess;
}

inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = new gpunet::cpu::stream, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return gpunet::cpu::stream_of(stream).synchronize(); }
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return gpunet::cpu::stream_of(stream).query(); }
inline cudaError_t cudaDeviceSynchronize() { return gpunet::cpu::stream::synchronize_all(); }

template <class T> cudaError_t cudaMalloc(T **memory, std::size_t len) {
    /* Aligned as CUDA's; not zero, as a program must not count on that. */
    void *const made = std::aligned_alloc(256, len / 256 * 256 + 256);
    if (made == nullptr) return cudaErrorMemoryAllocation;
    std::memset(made, 0xa5, len);
    *memory = static_cast<T *>(made);
    return cudaSuccess;
}
template <class T> cudaError_t cudaMallocManaged(T **memory, std::size_t len, unsigned int = 0) { return cudaMalloc(memory, len); }
template <class T> cudaError_t cudaMallocHost(T **memory, std::size_t len, unsigned int = 0) { return cudaMalloc(memory, len); }
template <class T> cudaError_t cudaHostAlloc(T **memory, std::size_t len, unsigned int) { return cudaMalloc(memory, len); }
inline cudaError_t cudaFree(void *memory) { return cudaDeviceSynchronize(), std::free(memory), cudaSuccess; }
inline cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t len, cudaMemcpyKind, cudaStream_t stream = nullptr) {
    return gpunet::cpu::stream_of(stream).enqueue([=] { return len == 0 || std::memcpy(to, from, len) != nullptr; }), cudaSuccess;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, std::size_t len, cudaMemcpyKind kind) {
    return (void)cudaMemcpyAsync(to, from, len, kind), cudaStreamSynchronize(nullptr);
}
inline cudaError_t cudaMemsetAsync(void *to, int byte, std::size_t len, cudaStream_t stream = nullptr) {
    return gpunet::cpu::stream_of(stream).enqueue([=] { return len == 0 || std::memset(to, byte, len) != nullptr; }), cudaSuccess;
}
inline cudaError_t cudaMemset(void *to, int byte, std::size_t len) {
    return (void)cudaMemsetAsync(to, byte, len), cudaStreamSynchronize(nullptr);
}

/* The GPU's calls of libgpunet, for the CPU device. */
#include "gpunet.h"
inline int gpunet_cpu_bind(const gpunet_host_token_t *token) {
    gpunet_attachment = gpunet_host_token_net(token);
    return gpunet_attachment != 0 ? 0 : -EBADF;
}
#define gpunet_host_attach_cuda_device(proxy, device, attachment) ((void)(device), gpunet_host_attach_cpu(proxy, attachment))
#define gpunet_host_bind_kernel(token, function) ((void)(function), gpunet_cpu_bind(token))

#endif
