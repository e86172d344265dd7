/* Teams and symmetric memory, for kernels in CUDA C++ and on the CPU, like gpunet.h. Kernels of several devices store into each
 * other's memory.
 *
 * The host makes a team and memory (gpunet_host_team_*, gpunet_host_symmetric_*, or gpunet_proxy::team in Rust) and passes
 * gpunet_team_t and gpunet_symmetric_t values to its kernels as parameters:
 *
 *     extern "C" __global__ void to_the_right(gpunet_team_t team, gpunet_symmetric_t box, const unsigned char *data) {
 *         unsigned int rank = gpunet_team_rank(team), size = gpunet_team_size(team);
 *         int sent = gpunet_put_signal(team, box, data, box.len, 0, 1, (rank + 1) % size);
 *         if (sent == 0 && gpunet_signal_wait(team, 0, (rank + size - 1) % size, 1) >= 0) {
 *             unsigned char *mine = (unsigned char *)gpunet_ptr(team, box, rank); // the left neighbour's bytes are here
 *         }
 *     }
 *
 * The first argument of every call is the team, `gpunet_put(team, ...)`. `gput(...)` is an inline function that makes the same call
 * with the team in the module's variable `gpunet_team`. Callers and results are those of gpunet.h: all threads of a block call, or
 * those of a warp (`_warp`), or one thread (`_thread`); a call returns 0, a number, or a negative Linux errno. A call sees what the
 * threads of the group have written before it. docs/symmetric.md explains teams, signals and collectives.
 *
 * -EINVAL: the member or signal does not exist, the memory is another team's, or the range is not inside it. -EAGAIN: the timeout
 * of the call, or of the team (gpunet_team_timeout), is over. -ECONNRESET: a member has died. -ENOTCONN: the awaited member has left.
 * -EALREADY: another group of this device is in a barrier or a collective. -ECONNABORTED: an earlier collective of this member
 * failed between its barriers. -ECANCELED, -ENETDOWN: as in gpunet.h; -ENETDOWN also when the team is all zeros. */
#ifndef GPUNET_TEAM_H
#define GPUNET_TEAM_H

#include "gpunet.h"

/* Declares a call. */
#define GPUNET_TEAM_CALL(returned, name, ...) GPUNET_KERNEL returned name(gpunet_team_t team, __VA_ARGS__)
#define GPUNET_TEAM_CALL0(returned, name) GPUNET_KERNEL returned name(gpunet_team_t team)

#ifdef __cplusplus
extern "C" {
#endif

/* The team of the calls without one. A kernel of one thread stores it here, `gpunet_team = team`, before kernels use it.
 * gpunet_heap is for gpunet_nvshmem.h. */
GPUNET_VARIABLE gpunet_team_t gpunet_team;
GPUNET_VARIABLE gpunet_symmetric_t gpunet_heap;

/* By any thread. */
GPUNET_TEAM_CALL0(int, gpunet_team_rank);
GPUNET_TEAM_CALL0(int, gpunet_team_size);
/* The address of memory in the part of a member, for plain loads and stores; null if there is none. Other members write there, so
 * do not load by __ldg or through `const __restrict__`. */
GPUNET_TEAM_CALL(void *, gpunet_ptr, gpunet_symmetric_t at, unsigned int member);

/* Copies. The caller may change the data when put or put_signal has returned; after put_nbi, when quiet has returned. get copies all
 * `len` bytes. */
GPUNET_TEAM_CALL(int, gpunet_put, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_warp, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_thread, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_nbi, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_nbi_warp, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_nbi_thread, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_get, void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_get_warp, void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_get_thread, void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member);
/* Puts bytes, and then sets a signal. A member that sees the value sees the bytes. */
GPUNET_TEAM_CALL(int, gpunet_put_signal, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_signal_warp, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_put_signal_thread, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member);

/* Signals. Each member has a word for each signal and source, and only that source writes it. Values grow. One group at a time sets a
 * signal; any number of groups add to one. A member that sees the value sees what the group has stored before. wait waits until the
 * word is at least `value`, and returns the word; test returns 1 or 0. */
GPUNET_TEAM_CALL(int, gpunet_signal_set, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_signal_set_warp, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_signal_set_thread, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_signal_add, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_signal_add_warp, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_signal_add_thread, unsigned int signal, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(long long, gpunet_signal_wait, unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));
GPUNET_TEAM_CALL(long long, gpunet_signal_wait_warp, unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));
GPUNET_TEAM_CALL(long long, gpunet_signal_wait_thread, unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));
GPUNET_TEAM_CALL(int, gpunet_signal_test, unsigned int signal, unsigned int source, unsigned long long value);
GPUNET_TEAM_CALL(int, gpunet_signal_test_warp, unsigned int signal, unsigned int source, unsigned long long value);
GPUNET_TEAM_CALL(int, gpunet_signal_test_thread, unsigned int signal, unsigned int source, unsigned long long value);
/* The same with a word of 64 bits in symmetric memory, which one member writes. -ENOTCONN: all other members have left. */
GPUNET_TEAM_CALL(int, gpunet_word_set, gpunet_symmetric_t to, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_word_set_warp, gpunet_symmetric_t to, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(int, gpunet_word_set_thread, gpunet_symmetric_t to, unsigned long long value, unsigned int member);
GPUNET_TEAM_CALL(long long, gpunet_word_wait, gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));
GPUNET_TEAM_CALL(long long, gpunet_word_wait_warp, gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));
GPUNET_TEAM_CALL(long long, gpunet_word_wait_thread, gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT));

/* fence orders the group's earlier stores into other members' memory before its later ones. quiet waits until the earlier stores have
 * arrived. */
GPUNET_TEAM_CALL0(int, gpunet_fence);
GPUNET_TEAM_CALL0(int, gpunet_fence_warp);
GPUNET_TEAM_CALL0(int, gpunet_fence_thread);
GPUNET_TEAM_CALL0(int, gpunet_quiet);
GPUNET_TEAM_CALL0(int, gpunet_quiet_warp);
GPUNET_TEAM_CALL0(int, gpunet_quiet_thread);

/* All members take part, with one group of each device. Collectives begin and end with a barrier, so sources and destinations need no
 * other one. all_gather copies the source of member i to byte i * len of every member's `to`. broadcast copies the root's source to
 * the beginning of every member's `to`; the other sources may be null. all_to_all copies `len` bytes for each pair: part i of member
 * j's source goes to part j of member i's `to`. */
GPUNET_TEAM_CALL0(int, gpunet_barrier);
GPUNET_TEAM_CALL0(int, gpunet_barrier_warp);
GPUNET_TEAM_CALL0(int, gpunet_barrier_thread);
GPUNET_TEAM_CALL(int, gpunet_all_gather, gpunet_symmetric_t to, const void *data, unsigned long long len);
GPUNET_TEAM_CALL(int, gpunet_all_gather_warp, gpunet_symmetric_t to, const void *data, unsigned long long len);
GPUNET_TEAM_CALL(int, gpunet_all_gather_thread, gpunet_symmetric_t to, const void *data, unsigned long long len);
GPUNET_TEAM_CALL(int, gpunet_broadcast, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root);
GPUNET_TEAM_CALL(int, gpunet_broadcast_warp, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root);
GPUNET_TEAM_CALL(int, gpunet_broadcast_thread, gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root);
GPUNET_TEAM_CALL(int, gpunet_all_to_all, gpunet_symmetric_t to, const void *data, unsigned long long len);
GPUNET_TEAM_CALL(int, gpunet_all_to_all_warp, gpunet_symmetric_t to, const void *data, unsigned long long len);
GPUNET_TEAM_CALL(int, gpunet_all_to_all_thread, gpunet_symmetric_t to, const void *data, unsigned long long len);
/* A block calls. Reduces all elements of `from` into every member's `to`, in the order of ranks, so that all get the same bits. `to`
 * may be `from`. `type` is GPUNET_FLOAT or its like, `operation` GPUNET_SUM or its like. */
GPUNET_TEAM_CALL(int, gpunet_reduce, int type, int operation, gpunet_symmetric_t to, gpunet_symmetric_t from);

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef GPUNET_TEAM_CALL
#undef GPUNET_TEAM_CALL0

#include "gpunet/team_names.h"

#endif
