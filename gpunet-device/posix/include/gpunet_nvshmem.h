/* NVSHMEM's names on gpunet's teams, for CUDA C++ (C++17 and later; nvcc, or clang with -x cuda).
 *
 * A program includes this header in place of nvshmem.h and nvshmemx.h. These calls have the same meaning:
 *
 *   set-up     nvshmem_init, nvshmemx_init_attr (NVSHMEMX_INIT_WITH_UNIQUEID), nvshmem_finalize, my_pe, n_pes, TEAM_WORLD, TEAM_NODE
 *   memory     nvshmem_malloc, calloc, align, free, ptr
 *   kernels    putmem, getmem, TYPE_put, TYPE_get, each by a thread, _warp or _block, and _nbi; TYPE_p, TYPE_g; put_signal with
 *              NVSHMEM_SIGNAL_SET, signal_op, signal_wait_until with NVSHMEM_CMP_GE, signal_fetch; fence, quiet, barrier_all,
 *              sync_all; fcollect, broadcast, alltoall; sum, min and max reductions by a block
 *   host       nvshmem_barrier_all, nvshmemx_barrier_all_on_stream, nvshmemx_collective_launch
 *
 * Calls that cannot have the same meaning do not compile; the message says what to do instead.
 *
 * Differences:
 * - A call that fails prints the reason and aborts the program; in a kernel it ends the kernel, as a failed assertion does. malloc
 *   returns NULL if the heap has no room. init_attr, get_uniqueid and collective_launch return a negative Linux errno. A program that
 *   checks results defines GPUNET_NVSHMEM_RESULTS before it includes this header: then failed calls end nothing, and all calls return
 *   0, a value, or a negative errno.
 * - When members join, allocate, meet on the host and end, they wait for each other for at most an hour. A failure of a barrier on a
 *   stream is the result of the next barrier on the host, or of nvshmem_finalize.
 * - A signal word has one source, the member that sets it, and its values grow.
 * - The GPU is the current one when the host first allocates, meets the others or launches collectively; with one GPU, at init. A
 *   kernel that uses the team comes after that. All members are on one machine.
 * - torchrun, mpirun or srun starts the members, or GPUNET_TEAM, RANK and WORLD_SIZE are set, or members meet by a unique id.
 * - The heap has NVSHMEM_SYMMETRIC_SIZE bytes (1G unless set) and a little more, all at once.
 *
 * Link with libgpunet and gpunet's PTX, with relocatable device code. A program that is compiled with gpunet_cpu.h has CPU
 * devices as members. */
#ifndef GPUNET_NVSHMEM_H
#define GPUNET_NVSHMEM_H

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "gpunet_nvshmem.h needs C++17 or later (-std=c++17)"
#endif

#include "gpunet/nvshmem_types.cuh"
#include "gpunet/nvshmem_host.cuh"
#include "gpunet/nvshmem_device.cuh"
#include "gpunet/nvshmem_refused.cuh"

#endif
