/* NVSHMEM's names that cannot mean the same: a use does not compile, and the message says what to do instead. */
#ifndef GPUNET_NVSHMEM_REFUSED_CUH
#define GPUNET_NVSHMEM_REFUSED_CUH

#include "nvshmem_types.cuh"

/* Of a constant. */
#define GPUNET_NVSHMEM_NO(why)                                                                                 \
    ([] {                                                                                                      \
        static_assert(false, why);                                                                             \
        return 0;                                                                                              \
    }())
#define GPUNET_NVSHMEM_ONLY_GE "gpunet: a signal's values grow, and a wait is for at least one of them: use NVSHMEM_CMP_GE"
#define NVSHMEM_CMP_EQ GPUNET_NVSHMEM_NO(GPUNET_NVSHMEM_ONLY_GE)
#define NVSHMEM_CMP_NE GPUNET_NVSHMEM_NO(GPUNET_NVSHMEM_ONLY_GE)
#define NVSHMEM_CMP_GT GPUNET_NVSHMEM_NO(GPUNET_NVSHMEM_ONLY_GE)
#define NVSHMEM_CMP_LT GPUNET_NVSHMEM_NO(GPUNET_NVSHMEM_ONLY_GE)
#define NVSHMEM_CMP_LE GPUNET_NVSHMEM_NO(GPUNET_NVSHMEM_ONLY_GE)
#define NVSHMEM_SIGNAL_ADD                                                                                     \
    GPUNET_NVSHMEM_NO("gpunet: a signal word has one source, which sets it: give each source a word, and use NVSHMEM_SIGNAL_SET")
#define NVSHMEMX_INIT_WITH_MPI_COMM                                                                            \
    GPUNET_NVSHMEM_NO("gpunet: nvshmem_init knows mpirun; or broadcast a nvshmemx_uniqueid_t, and use NVSHMEMX_INIT_WITH_UNIQUEID")
#define NVSHMEMX_INIT_WITH_SHMEM                                                                               \
    GPUNET_NVSHMEM_NO("gpunet: nvshmem_init knows mpirun; or broadcast a nvshmemx_uniqueid_t, and use NVSHMEMX_INIT_WITH_UNIQUEID")

namespace gpunet {
namespace nvshmem {
template <class...> constexpr bool none = false;
} // namespace nvshmem
} // namespace gpunet

/* Of a function: whoever calls it makes the template. */
#define GPUNET_NVSHMEM_REFUSE(name, why)                                                                       \
    template <class... Arguments> __host__ __device__ int name(Arguments...) {                                 \
        static_assert(::gpunet::nvshmem::none<Arguments...>, why);                                             \
        return 0;                                                                                              \
    }

#define GPUNET_NVSHMEM_NO_ATOMIC                                                                               \
    "gpunet: no atomic operation crosses between members: let one member own the value and tell it by a signal, or use an atomic " \
    "operation on nvshmem_ptr's address where the hardware has one"
#define GPUNET_NVSHMEM_NO_STRIDE "gpunet: there are no strided copies: call put or get for each run, or store through nvshmem_ptr"
#define GPUNET_NVSHMEM_NO_WAIT "gpunet: waits are for words of 64 bits: use nvshmem_signal_wait_until, or nvshmem_uint64_wait_until"
#define GPUNET_NVSHMEM_NO_REDUCTION "gpunet: there are sum, min and max, by a block: nvshmemx_TYPE_sum_reduce_block and its like"

#define GPUNET_NVSHMEM_REFUSE_TYPE(name, type)                                                                 \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch, GPUNET_NVSHMEM_NO_ATOMIC)                             \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_set, GPUNET_NVSHMEM_NO_ATOMIC)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_swap, GPUNET_NVSHMEM_NO_ATOMIC)                              \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_compare_swap, GPUNET_NVSHMEM_NO_ATOMIC)                      \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_inc, GPUNET_NVSHMEM_NO_ATOMIC)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch_inc, GPUNET_NVSHMEM_NO_ATOMIC)                         \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_add, GPUNET_NVSHMEM_NO_ATOMIC)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch_add, GPUNET_NVSHMEM_NO_ATOMIC)                         \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_and, GPUNET_NVSHMEM_NO_ATOMIC)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch_and, GPUNET_NVSHMEM_NO_ATOMIC)                         \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_or, GPUNET_NVSHMEM_NO_ATOMIC)                                \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch_or, GPUNET_NVSHMEM_NO_ATOMIC)                          \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_xor, GPUNET_NVSHMEM_NO_ATOMIC)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_atomic_fetch_xor, GPUNET_NVSHMEM_NO_ATOMIC)                         \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_iput, GPUNET_NVSHMEM_NO_STRIDE)                                     \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_iget, GPUNET_NVSHMEM_NO_STRIDE)                                     \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_iput_warp, GPUNET_NVSHMEM_NO_STRIDE)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_iput_block, GPUNET_NVSHMEM_NO_STRIDE)                              \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_iget_warp, GPUNET_NVSHMEM_NO_STRIDE)                               \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_iget_block, GPUNET_NVSHMEM_NO_STRIDE)                              \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_wait_until_all, GPUNET_NVSHMEM_NO_WAIT)                             \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_wait_until_any, GPUNET_NVSHMEM_NO_WAIT)                             \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_wait_until_some, GPUNET_NVSHMEM_NO_WAIT)                            \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_sum_reduce, GPUNET_NVSHMEM_NO_REDUCTION)                            \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_min_reduce, GPUNET_NVSHMEM_NO_REDUCTION)                            \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_max_reduce, GPUNET_NVSHMEM_NO_REDUCTION)                            \
    GPUNET_NVSHMEM_REFUSE(nvshmem_##name##_prod_reduce, GPUNET_NVSHMEM_NO_REDUCTION)                           \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_sum_reduce_warp, GPUNET_NVSHMEM_NO_REDUCTION)                      \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_prod_reduce_block, GPUNET_NVSHMEM_NO_REDUCTION)                    \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_and_reduce_block, GPUNET_NVSHMEM_NO_REDUCTION)                     \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_or_reduce_block, GPUNET_NVSHMEM_NO_REDUCTION)                      \
    GPUNET_NVSHMEM_REFUSE(nvshmemx_##name##_xor_reduce_block, GPUNET_NVSHMEM_NO_REDUCTION)
GPUNET_NVSHMEM_TYPES(GPUNET_NVSHMEM_REFUSE_TYPE)
#undef GPUNET_NVSHMEM_REFUSE_TYPE

/* Waits for words of other types than uint64. */
GPUNET_NVSHMEM_REFUSE(nvshmem_int_wait_until, GPUNET_NVSHMEM_NO_WAIT)
GPUNET_NVSHMEM_REFUSE(nvshmem_uint_wait_until, GPUNET_NVSHMEM_NO_WAIT)
GPUNET_NVSHMEM_REFUSE(nvshmem_long_wait_until, GPUNET_NVSHMEM_NO_WAIT)
GPUNET_NVSHMEM_REFUSE(nvshmem_int32_wait_until, GPUNET_NVSHMEM_NO_WAIT)
GPUNET_NVSHMEM_REFUSE(nvshmem_uint32_wait_until, GPUNET_NVSHMEM_NO_WAIT)
GPUNET_NVSHMEM_REFUSE(nvshmem_int64_wait_until, GPUNET_NVSHMEM_NO_WAIT)

/* Teams are the host's: gpunet_host_team_split makes them, and kernels take them as parameters. */
GPUNET_NVSHMEM_REFUSE(nvshmem_team_split_strided, "gpunet: make teams by gpunet_host_team_split, and pass them to kernels (gpunet_team.h)")
GPUNET_NVSHMEM_REFUSE(nvshmem_team_split_2d, "gpunet: make teams by gpunet_host_team_split, and pass them to kernels (gpunet_team.h)")
GPUNET_NVSHMEM_REFUSE(nvshmem_ctx_create, "gpunet: there are no contexts")
GPUNET_NVSHMEM_REFUSE(nvshmemx_mc_ptr, "gpunet: there is no multicast memory")
GPUNET_NVSHMEM_REFUSE(nvshmemx_buffer_register, "gpunet: any memory is a source; no buffer is registered")
GPUNET_NVSHMEM_REFUSE(nvshmem_global_exit, "gpunet: no call ends another program: leave by nvshmem_finalize, or exit; the others' waits end")

#endif
