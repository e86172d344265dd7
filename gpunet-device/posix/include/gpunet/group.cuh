/* The threads that make a call together. */
#ifndef GPUNET_GROUP_CUH
#define GPUNET_GROUP_CUH

#include "../gpunet.h"
#include "result.cuh"

#ifndef __CUDACC__
#define GPUNET_COOPERATIVE_GROUPS 1 /* gpunet_cpu.h has them */
#elif !defined(GPUNET_NO_COOPERATIVE_GROUPS) && defined(__has_include)
#if __has_include(<cooperative_groups.h>)
#define GPUNET_COOPERATIVE_GROUPS 1
#include <cooperative_groups.h>
#endif
#endif

namespace gpunet {
namespace detail {

__device__ inline unsigned int block_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ inline unsigned int block_size() { return blockDim.x * blockDim.y * blockDim.z; }

/* The lanes of the calling thread's warp. The last warp of a block may have fewer than 32. */
__device__ inline unsigned int warp_size() {
    const unsigned int rest = block_size() - (block_rank() & ~31u);
    return rest < 32 ? rest : 32;
}
__device__ inline unsigned int warp_mask() { return warp_size() == 32 ? ~0u : (1u << warp_size()) - 1; }

__device__ inline void sync_block() {
#ifdef __CUDA_ARCH__
    /* Not __syncthreads(), which is undefined where the threads of a warp come to it at different times. */
    asm volatile("barrier.sync 0;" ::: "memory");
#elif !defined(__CUDACC__)
    __syncthreads();
#endif
}

} // namespace detail

/* All threads of the block. */
struct block {
    __device__ static unsigned int thread_rank() { return detail::block_rank(); }
    __device__ static unsigned int size() { return detail::block_size(); }
    __device__ static void sync() { detail::sync_block(); }
};
__device__ inline block this_block() { return {}; }

/* All threads of the warp. */
struct warp {
    __device__ static unsigned int thread_rank() { return detail::block_rank() & 31; }
    __device__ static unsigned int size() { return detail::warp_size(); }
    __device__ static void sync() { __syncwarp(detail::warp_mask()); }
};
__device__ inline warp this_warp() { return {}; }

/* One thread. */
struct thread {
    __device__ static unsigned int thread_rank() { return 0; }
    __device__ static unsigned int size() { return 1; }
    __device__ static void sync() {}
};
__device__ inline thread this_thread() { return {}; }

namespace detail {

enum class scope { none, block, warp, thread };

template <class Group> struct scope_of { static constexpr scope value = scope::none; };
template <> struct scope_of<block> { static constexpr scope value = scope::block; };
template <> struct scope_of<warp> { static constexpr scope value = scope::warp; };
template <> struct scope_of<thread> { static constexpr scope value = scope::thread; };

/* Returns whether a group has all the threads that its type says. */
template <class Group> __device__ bool is_whole(const Group &) { return true; }

#ifdef GPUNET_COOPERATIVE_GROUPS
template <> struct scope_of<cooperative_groups::thread_block> { static constexpr scope value = scope::block; };
template <> struct scope_of<cooperative_groups::coalesced_group> { static constexpr scope value = scope::warp; };
template <class Parent> struct scope_of<cooperative_groups::thread_block_tile<32, Parent>> {
    static constexpr scope value = scope::warp;
};
template <class Parent> struct scope_of<cooperative_groups::thread_block_tile<1, Parent>> {
    static constexpr scope value = scope::thread;
};

__device__ inline bool is_whole(const cooperative_groups::coalesced_group &group) { return group.size() == warp_size(); }
#endif

template <class Group> __host__ __device__ constexpr scope scope_for() {
    static_assert(
        scope_of<Group>::value != scope::none,
        "a gpunet call is made by a thread_block, by a whole warp (tiled_partition<32>, or coalesced_threads() of all its "
        "threads) or by one thread (this_thread()); with another group let its thread 0 call with this_thread() and share "
        "the result");
    return scope_of<Group>::value;
}

/* Makes the C call of that name by a group. Returns -EINVAL for coalesced threads that are not a whole warp. */
#define GPUNET_BY_GROUP(group, call, ...)                                                                      \
    (!::gpunet::detail::is_whole(group)                                                  ? -EINVAL            \
     : ::gpunet::detail::scope_for<Group>() == ::gpunet::detail::scope::block            ? call(__VA_ARGS__)  \
     : ::gpunet::detail::scope_for<Group>() == ::gpunet::detail::scope::warp ? call##_warp(__VA_ARGS__)       \
                                                                             : call##_thread(__VA_ARGS__))

/* The answer that one thread of a group gets for all. */
template <class T> struct answer {
    int code;
    T value;
};

/* Where the asking thread of a block stores the answer: one place for all calls with the same type. */
template <class T> __device__ answer<T> &answer_of_block() {
    __shared__ answer<T> place;
    return place;
}

/* Lets one thread of the group ask: `call(T *)` is a C function for one thread. */
template <class T, class Group, class Call> __device__ answer<T> ask(const Group &group, Call call) {
    constexpr scope who = scope_for<Group>();
    if constexpr (who == scope::thread) {
        answer<T> own = {};
        own.code = call(&own.value);
        return own;
    } else if constexpr (who == scope::warp) {
        static_assert(sizeof(answer<T>) % 4 == 0, "a warp shares words");
        union {
            answer<T> found;
            unsigned int words[sizeof(answer<T>) / 4];
        } own = {};
        if (!is_whole(group)) {
            own.found.code = -EINVAL;
            return own.found;
        }
        /* What the lanes wrote is visible to the one that asks, and the other way round. */
        warp::sync();
        if (warp::thread_rank() == 0) own.found.code = call(&own.found.value);
        for (unsigned int &word : own.words) word = __shfl_sync(warp_mask(), word, 0);
        warp::sync();
        return own.found;
    } else {
        answer<T> &place = answer_of_block<T>();
        block::sync();
        if (block::thread_rank() == 0) {
            answer<T> found = {};
            found.code = call(&found.value);
            place = found;
        }
        block::sync();
        answer<T> own = place;
        block::sync();
        return own;
    }
}

} // namespace detail
} // namespace gpunet

#endif
