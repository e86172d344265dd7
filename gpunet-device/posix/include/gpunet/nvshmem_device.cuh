/* NVSHMEM's calls of kernels. They fail with -EINVAL if the memory is not in the heap, or the member does not exist. */
#ifndef GPUNET_NVSHMEM_DEVICE_CUH
#define GPUNET_NVSHMEM_DEVICE_CUH

#include "nvshmem_host.cuh"
#include "nvshmem_types.cuh"

namespace gpunet {
namespace nvshmem {

/* The symmetric memory that begins at an address of this member's own part. If the address is elsewhere, the result has no team. */
__device__ inline gpunet_symmetric_t at(const volatile void *address, unsigned long long len) {
    const gpunet_symmetric_t heap = gpunet_heap, none = {};
    const void *own = gptr(heap, gpunet_team.rank);
    const unsigned long long first = reinterpret_cast<unsigned long long>(own), place = reinterpret_cast<unsigned long long>(address);
    if (own == nullptr || place < first || place - first > heap.len || len > heap.len - (place - first)) return none;
    return gpunet_symmetric_at(heap, place - first, len);
}

/* The address in a member's part that corresponds to an address in this member's part. */
template <class T> __device__ volatile T *at_member(const T *address, int pe) {
    return static_cast<volatile T *>(gptr(at(address, sizeof(T)), static_cast<unsigned int>(pe)));
}

/* The bytes of a number of elements; more than any memory has if the number is too large. */
template <class T> __device__ constexpr unsigned long long bytes(std::size_t count) {
    return count <= ~0ull / sizeof(T) ? count * sizeof(T) : ~0ull;
}

} // namespace nvshmem
} // namespace gpunet

/* For host programs and kernels. A program gets its own part by its number, like any other. */
__host__ __device__ inline int nvshmem_my_pe() {
#ifdef __CUDA_ARCH__
    return GPUNET_NVSHMEM_CHECKED(gteam_rank());
#else
    return ::gpunet::nvshmem::self().inits > 0 ? ::gpunet::nvshmem::self().rank : ::gpunet::nvshmem::checked(__func__, -EBADF);
#endif
}
__host__ __device__ inline int nvshmem_n_pes() {
#ifdef __CUDA_ARCH__
    return GPUNET_NVSHMEM_CHECKED(gteam_size());
#else
    return ::gpunet::nvshmem::self().inits > 0 ? ::gpunet::nvshmem::self().size : ::gpunet::nvshmem::checked(__func__, -EBADF);
#endif
}
__host__ __device__ inline int nvshmem_team_my_pe(nvshmem_team_t) { return nvshmem_my_pe(); }
__host__ __device__ inline int nvshmem_team_n_pes(nvshmem_team_t) { return nvshmem_n_pes(); }
/* On the host it waits for this member's kernels first. */
__host__ __device__ inline int nvshmem_barrier_all() {
#ifdef __CUDA_ARCH__
    return GPUNET_NVSHMEM_CHECKED(gbarrier_thread());
#else
    return ::gpunet::nvshmem::meet_on_host(__func__);
#endif
}
__host__ __device__ inline int nvshmem_sync_all() { return nvshmem_barrier_all(); }
__host__ __device__ inline int nvshmem_barrier(nvshmem_team_t) { return nvshmem_barrier_all(); }
__device__ inline int nvshmemx_barrier_all_warp() { return GPUNET_NVSHMEM_CHECKED(gbarrier_warp()); }
__device__ inline int nvshmemx_barrier_all_block() { return GPUNET_NVSHMEM_CHECKED(gbarrier()); }
__device__ inline int nvshmemx_sync_all_warp() { return GPUNET_NVSHMEM_CHECKED(gbarrier_warp()); }
__device__ inline int nvshmemx_sync_all_block() { return GPUNET_NVSHMEM_CHECKED(gbarrier()); }
__device__ inline int nvshmemx_barrier_block(nvshmem_team_t) { return GPUNET_NVSHMEM_CHECKED(gbarrier()); }

__device__ inline void *nvshmem_ptr(const void *memory, int pe) {
    return gptr(::gpunet::nvshmem::at(memory, 0), static_cast<unsigned int>(pe));
}
__device__ inline int nvshmem_fence() { return GPUNET_NVSHMEM_CHECKED(gfence_thread()); }
__device__ inline int nvshmem_quiet() { return GPUNET_NVSHMEM_CHECKED(gquiet_thread()); }

/* Copies by a group: `x` is "x" in the names of warps and blocks, `suffix` theirs, `group` gpunet's. */
#define GPUNET_NVSHMEM_MEMORY(x, suffix, group)                                                                \
    __device__ inline int nvshmem##x##_putmem##suffix(void *to, const void *from, std::size_t n, int pe) {     \
        return GPUNET_NVSHMEM_CHECKED(gput##group(::gpunet::nvshmem::at(to, n), from, n, static_cast<unsigned int>(pe)));              \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_putmem_nbi##suffix(void *to, const void *from, std::size_t n, int pe) { \
        return GPUNET_NVSHMEM_CHECKED(gput_nbi##group(::gpunet::nvshmem::at(to, n), from, n, static_cast<unsigned int>(pe)));          \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_getmem##suffix(void *to, const void *from, std::size_t n, int pe) {     \
        return GPUNET_NVSHMEM_CHECKED(gget##group(to, ::gpunet::nvshmem::at(from, n), n, static_cast<unsigned int>(pe)));              \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_getmem_nbi##suffix(void *to, const void *from, std::size_t n, int pe) { \
        return GPUNET_NVSHMEM_CHECKED(gget##group(to, ::gpunet::nvshmem::at(from, n), n, static_cast<unsigned int>(pe)));              \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_putmem_signal##suffix(                                                  \
        void *to, const void *from, std::size_t n, std::uint64_t *signal, std::uint64_t value, ::gpunet::nvshmem::set, int pe) { \
        const int put = gput_nbi##group(::gpunet::nvshmem::at(to, n), from, n, static_cast<unsigned int>(pe)); \
        return GPUNET_NVSHMEM_CHECKED(put != 0 ? put : gword_set##group(::gpunet::nvshmem::at(signal, 8), value, static_cast<unsigned int>(pe))); \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_putmem_signal_nbi##suffix(                                              \
        void *to, const void *from, std::size_t n, std::uint64_t *signal, std::uint64_t value, ::gpunet::nvshmem::set, int pe) { \
        return nvshmem##x##_putmem_signal##suffix(to, from, n, signal, value, ::gpunet::nvshmem::set{}, pe);   \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_fcollectmem##suffix(nvshmem_team_t, void *to, const void *from, std::size_t n) { \
        return GPUNET_NVSHMEM_CHECKED(gall_gather##group(::gpunet::nvshmem::at(to, n * gpunet_team.size), from, n));                   \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_broadcastmem##suffix(nvshmem_team_t, void *to, const void *from, std::size_t n, int root) { \
        return GPUNET_NVSHMEM_CHECKED(gbroadcast##group(::gpunet::nvshmem::at(to, n), from, n, static_cast<unsigned int>(root)));      \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_alltoallmem##suffix(nvshmem_team_t, void *to, const void *from, std::size_t n) { \
        return GPUNET_NVSHMEM_CHECKED(gall_to_all##group(::gpunet::nvshmem::at(to, n * gpunet_team.size), from, n));                   \
    }
GPUNET_NVSHMEM_MEMORY(, , _thread)
GPUNET_NVSHMEM_MEMORY(x, _warp, _warp)
GPUNET_NVSHMEM_MEMORY(x, _block, )
#undef GPUNET_NVSHMEM_MEMORY

/* The same for elements. */
#define GPUNET_NVSHMEM_ELEMENTS(name, type, x, suffix)                                                         \
    __device__ inline int nvshmem##x##_##name##_put##suffix(type *to, const type *from, std::size_t n, int pe) { \
        return nvshmem##x##_putmem##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), pe);                   \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_put_nbi##suffix(type *to, const type *from, std::size_t n, int pe) { \
        return nvshmem##x##_putmem_nbi##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), pe);               \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_get##suffix(type *to, const type *from, std::size_t n, int pe) { \
        return nvshmem##x##_getmem##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), pe);                   \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_get_nbi##suffix(type *to, const type *from, std::size_t n, int pe) { \
        return nvshmem##x##_getmem##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), pe);                   \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_put_signal##suffix(                                            \
        type *to, const type *from, std::size_t n, std::uint64_t *signal, std::uint64_t value, ::gpunet::nvshmem::set op, int pe) { \
        return nvshmem##x##_putmem_signal##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), signal, value, op, pe); \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_put_signal_nbi##suffix(                                        \
        type *to, const type *from, std::size_t n, std::uint64_t *signal, std::uint64_t value, ::gpunet::nvshmem::set op, int pe) { \
        return nvshmem##x##_putmem_signal##suffix(to, from, ::gpunet::nvshmem::bytes<type>(n), signal, value, op, pe); \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_fcollect##suffix(nvshmem_team_t all, type *to, const type *from, std::size_t n) { \
        return nvshmem##x##_fcollectmem##suffix(all, to, from, ::gpunet::nvshmem::bytes<type>(n));             \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_broadcast##suffix(                                             \
        nvshmem_team_t all, type *to, const type *from, std::size_t n, int root) {                             \
        return nvshmem##x##_broadcastmem##suffix(all, to, from, ::gpunet::nvshmem::bytes<type>(n), root);      \
    }                                                                                                          \
    __device__ inline int nvshmem##x##_##name##_alltoall##suffix(nvshmem_team_t all, type *to, const type *from, std::size_t n) { \
        return nvshmem##x##_alltoallmem##suffix(all, to, from, ::gpunet::nvshmem::bytes<type>(n));             \
    }

/* One element, by one thread. If the element does not exist, p only returns -EINVAL, and g returns 0. */
#define GPUNET_NVSHMEM_TYPE(name, type)                                                                        \
    GPUNET_NVSHMEM_ELEMENTS(name, type, , )                                                                    \
    GPUNET_NVSHMEM_ELEMENTS(name, type, x, _warp)                                                              \
    GPUNET_NVSHMEM_ELEMENTS(name, type, x, _block)                                                             \
    __device__ inline int nvshmem_##name##_p(type *to, const type value, int pe) {                             \
        volatile type *there = ::gpunet::nvshmem::at_member(to, pe);                                           \
        if (there == nullptr) return GPUNET_NVSHMEM_CHECKED(-EINVAL);                                                                  \
        *there = value;                                                                                        \
        return 0;                                                                                              \
    }                                                                                                          \
    __device__ inline type nvshmem_##name##_g(const type *from, int pe) {                                      \
        const volatile type *there = ::gpunet::nvshmem::at_member(from, pe);                                   \
        if (there == nullptr) (void)GPUNET_NVSHMEM_CHECKED(-EINVAL);                                           \
        return there == nullptr ? static_cast<type>(0) : *there;                                          \
    }
GPUNET_NVSHMEM_TYPES(GPUNET_NVSHMEM_TYPE)
#undef GPUNET_NVSHMEM_TYPE
#undef GPUNET_NVSHMEM_ELEMENTS

/* Reductions, by a block. */
#define GPUNET_NVSHMEM_REDUCTION(name, type, kind, word, operation)                                            \
    __device__ inline int nvshmemx_##name##_##word##_reduce_block(nvshmem_team_t, type *to, const type *from, std::size_t n) { \
        const unsigned long long len = ::gpunet::nvshmem::bytes<type>(n);                                      \
        return GPUNET_NVSHMEM_CHECKED(greduce(kind, operation, ::gpunet::nvshmem::at(to, len), ::gpunet::nvshmem::at(from, len)));     \
    }
#define GPUNET_NVSHMEM_NUMBER(name, type, kind)                                                                \
    GPUNET_NVSHMEM_REDUCTION(name, type, kind, sum, GPUNET_SUM)                                                \
    GPUNET_NVSHMEM_REDUCTION(name, type, kind, min, GPUNET_MIN)                                                \
    GPUNET_NVSHMEM_REDUCTION(name, type, kind, max, GPUNET_MAX)
GPUNET_NVSHMEM_NUMBERS(GPUNET_NVSHMEM_NUMBER)
#undef GPUNET_NVSHMEM_NUMBER
#undef GPUNET_NVSHMEM_REDUCTION

/* Signals: words of symmetric memory, each set by one member, to values that grow. */
__device__ inline int nvshmemx_signal_op(std::uint64_t *signal, std::uint64_t value, ::gpunet::nvshmem::set, int pe) {
    return GPUNET_NVSHMEM_CHECKED(gword_set_thread(::gpunet::nvshmem::at(signal, 8), value, static_cast<unsigned int>(pe)));
}
__device__ inline long long nvshmem_signal_wait_until(std::uint64_t *signal, ::gpunet::nvshmem::at_least, std::uint64_t value) {
    return GPUNET_NVSHMEM_CHECKED(gword_wait_thread(::gpunet::nvshmem::at(signal, 8), value));
}
__device__ inline long long nvshmem_signal_fetch(std::uint64_t *signal) {
    return GPUNET_NVSHMEM_CHECKED(gword_wait_thread(::gpunet::nvshmem::at(signal, 8), 0));
}
__device__ inline long long nvshmem_uint64_wait_until(std::uint64_t *word, ::gpunet::nvshmem::at_least, std::uint64_t value) {
    return GPUNET_NVSHMEM_CHECKED(gword_wait_thread(::gpunet::nvshmem::at(word, 8), value));
}
__device__ inline int nvshmem_uint64_test(std::uint64_t *word, ::gpunet::nvshmem::at_least, std::uint64_t value) {
    /* 0: not yet. A failure is negative, so that a loop until it is true ends. */
    const long long found = gword_wait_thread(::gpunet::nvshmem::at(word, 8), value, 0);
    return found >= 0 ? 1 : found == -EAGAIN ? 0 : GPUNET_NVSHMEM_CHECKED(static_cast<int>(found));
}

#endif
