/* What CUDA C++ takes for granted, for blocks of one CPU thread: the device code of the tests compiled by a C++ compiler. */
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#define __CUDACC__ 1
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __shared__ static thread_local

#include <atomic>
#include <chrono>
#include <unistd.h>

struct uint3 {
    unsigned int x, y, z;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};
[[maybe_unused]] static thread_local uint3 threadIdx = {0, 0, 0};
[[maybe_unused]] static thread_local uint3 blockIdx = {0, 0, 0};
[[maybe_unused]] static thread_local uint3 blockDim = {1, 1, 1};
[[maybe_unused]] static thread_local uint3 gridDim = {1, 1, 1};

inline unsigned long long cpu_now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<unsigned long long>(std::chrono::nanoseconds(now).count());
}
inline void __syncwarp(unsigned int) {}
inline int __syncthreads_or(int own) { return own != 0; }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
template <class T> T atomicAdd(T *to, T what) { return __atomic_fetch_add(to, what, __ATOMIC_RELAXED); }
inline void __nanosleep(unsigned int ns) { usleep(ns / 1000); }
template <class T> T __shfl_sync(unsigned int, T own, int) { return own; }

#endif
