/* What CUDA C++ and its runtime take for granted, for NVSHMEM's programs on the CPU: compiled by a C++ compiler after `<<<...>>>` was
 * taken out, so that a launch is a call of one block of one thread. */
#ifndef CUDA_RUNTIME_ON_CPU_H
#define CUDA_RUNTIME_ON_CPU_H

#define GPUNET_NVSHMEM_CPU 1
#include "../../../tests/cuda_cpp/cpu/cuda_on_cpu.h"
#include <cstring>

typedef int cudaError_t;
typedef int cudaStream_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline void __syncthreads() {}
inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = 0; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemcpy(void *to, const void *from, std::size_t n, cudaMemcpyKind) {
    std::memcpy(to, from, n);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t n, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, n, kind);
}

#endif
