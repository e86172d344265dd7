/* gpunet: sockets for GPU kernels, for CUDA C++ (C++17 and later; nvcc, clang with -x cuda, NVRTC), and for the same kernels on the
 * CPU, where a C++ compiler reads them with gpunet_cpu.h.
 *
 * A thin layer over the C functions of gpunet.h. The same PTX is linked, and nothing has to be initialised. A kernel gets the
 * context of its launch as a parameter and passes it to the call that opens a socket:
 *
 *     __global__ void echo(gpunet_net_t net, unsigned char *memory, int *error) {
 *         auto block = cooperative_groups::this_thread_block();
 *         auto listener = gpunet::listener::bind(block, net, gpunet::address::v4(0, 0, 0, 0, 7777));
 *         if (!listener) { *error = int(listener.error()); return; }
 *         while (auto stream = listener->accept(block)) {
 *             for (;;) {
 *                 auto n = stream->recv(block, memory, 4096);
 *                 if (!n || *n == 0 || !stream->send_all(block, memory, *n)) break;
 *             }
 *             (void)stream->close(block);
 *         }
 *         (void)listener->close(block);
 *     }
 *
 * Groups. All threads of a group make each call, at the same point and with the same arguments, and all of them get the same
 * result. The group is the first argument: cooperative_groups::thread_block; a whole warp, as thread_block_tile<32> or as the
 * coalesced_group of all its threads; or one thread, this_thread(). Other tiles do not compile. Without cooperative groups use
 * gpunet::this_block(), this_warp() and this_thread(). A block or warp sends from and receives into shared or global memory.
 *
 * Sockets are local variables of each thread, equal in all threads of the group. They can be moved and not copied.
 * The destructor does nothing: call close(). When the host finishes the launch, it keeps or closes the sockets that are open.
 *
 * Results are cuda::std::expected<T, gpunet::errc> if libcu++ is found, else a type of gpunet with the same members. errc has
 * Linux's numbers.
 *
 * Timeouts are the last argument: a duration (cuda::std::chrono, or gpunet::milliseconds and its like), timeout::no_wait() or
 * timeout::forever(). Without a timeout, the options of the socket apply. When the time is over, a connect fails with
 * errc::timed_out, and every other call with errc::would_block.
 *
 * Prepared messages. The host takes a direction and prepares messages in it. A kernel gets one as a parameter, gpunet::prepared:
 *
 *     auto message = first.nth(i);
 *     if (!gpunet::wait(block, net, message.room(ring))) return;
 *     if (auto span = gpunet::span(block, net, message)) span->write(block, 0, data, message.size());
 *     (void)gpunet::release(block, net, message.trigger());
 *
 * Teams. Kernels of several devices store into each other's memory. gpunet::team and gpunet::symmetric<T> are parameters, too.
 *
 * Resources: up to 255 registers a thread; 1.3 KiB of stack; 288 bytes of shared memory, and up to 80 more for calls by a block that
 * open, close or query a socket; hardware barrier 0 in calls by a block. Calls by warps and threads use no barrier. A
 * multiprocessor has registers for 256 threads of 255 each. For larger blocks assemble gpunet's PTX and the kernels for 64 registers
 * (`-maxrregcount=64`; CU_JIT_MAX_REGISTERS at run time): then blocks of 1,024 threads fit. */
#ifndef GPUNET_CUH
#define GPUNET_CUH

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "gpunet.cuh needs C++17 or later (-std=c++17); gpunet.h has the C functions"
#endif

#include "gpunet.h"
#ifndef __CUDACC__
#include "gpunet_cpu.h"
#endif

#include "gpunet/address.cuh"
#include "gpunet/group.cuh"
#include "gpunet/options.cuh"
#include "gpunet/poll.cuh"
#include "gpunet/poll_group.cuh"
#include "gpunet/prepared.cuh"
#include "gpunet/result.cuh"
#include "gpunet/socket.cuh"
#include "gpunet/span.cuh"
#include "gpunet/team.cuh"
#include "gpunet/timeout.cuh"

#endif
