/* What a failed call under NVSHMEM's names does. Programs do not check the results of calls that return nothing in NVSHMEM. */
#ifndef GPUNET_NVSHMEM_FAILURE_CUH
#define GPUNET_NVSHMEM_FAILURE_CUH

#include "../gpunet_team.h"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(NDEBUG) && defined(__NVCC__)
/* Declared by the headers without NDEBUG only. */
extern "C" __host__ __device__ void __assert_fail(const char *, const char *, unsigned int, const char *) noexcept;
#endif

namespace gpunet {
namespace nvshmem {

/* Whether a failure says what has happened and ends the program, or in a kernel the kernel and its CUDA context. A program that looks at
 * results defines GPUNET_NVSHMEM_RESULTS before it includes the header. */
#ifdef GPUNET_NVSHMEM_RESULTS
constexpr bool ENDS_PROGRAM = false;
#else
constexpr bool ENDS_PROGRAM = true;
#endif

/* Ends this program. */
[[noreturn]] inline void fail(const char *call, long long result, int rank, const char *why) {
    const bool is_told = why != nullptr && *why != 0;
    std::fprintf(stderr, "gpunet_nvshmem: member %d: %s failed: %s\n", rank, call, is_told ? why : std::strerror(static_cast<int>(-result)));
    std::abort();
}

/* Ends the kernel. The driver prints what an assertion says, which printf before a trap would not: the errno in place of a line. */
__device__ inline __attribute__((noinline)) void fail_in_kernel(const char *call, long long result) {
    const char *why = "the call failed, with the errno that stands for the line";
    switch (-result) {
    case EINVAL: why = "memory that is not of the heap, or no such member"; break;
    case ENETDOWN: why = "no team on this GPU: nvshmem_malloc or nvshmem_barrier_all on the host comes first, after cudaSetDevice"; break;
    case ECONNRESET: why = "a member has died"; break;
    case ENOTCONN: why = "a member has left"; break;
    case EAGAIN: case ETIMEDOUT: why = "the team's timeout is over"; break;
    default: break;
    }
#ifndef __CUDACC__
    fail(call, result, gteam_rank(), why);
#else
    __assert_fail(why, "gpunet_nvshmem.h", static_cast<unsigned int>(-result), call);
#endif
}

/* The result of a kernel's call, unless the call ends the kernel. */
template <class Result> __device__ Result checked_in_kernel(const char *call, Result result) {
    if (ENDS_PROGRAM && result < 0) fail_in_kernel(call, result);
    return result;
}

} // namespace nvshmem
} // namespace gpunet

/* For the calls of kernels, in whose bodies it names the call. */
#define GPUNET_NVSHMEM_CHECKED(result) ::gpunet::nvshmem::checked_in_kernel(__func__, result)

#endif
