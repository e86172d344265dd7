/* Waiting for one of many sockets. */
#ifndef GPUNET_POLL_CUH
#define GPUNET_POLL_CUH

#include "../gpunet.h"
#include "group.cuh"
#include "result.cuh"
#include "socket.cuh"
#include "timeout.cuh"

namespace gpunet {

/* An entry for a poll: `events` are POLLIN, POLLOUT or both. */
template <class Socket> __device__ struct pollfd watch(const Socket &socket, short events) {
    struct pollfd entry = {};
    entry.fd = socket.handle();
    entry.events = events;
    return entry;
}

/* Waits until a socket of the set is ready, or the time is over. Returns how many are ready, and stores the events of each in its
 * `revents`. The entries of a block or warp lie in shared or global memory. Without a timeout it waits without limit. */
template <class Group>
__device__ result<unsigned long long> poll(const Group &group, gpunet_net_t net, struct pollfd *entries, unsigned long long count,
                                           timeout wait = timeout::forever()) {
    return detail::count(GPUNET_BY_GROUP(group, gpunet_poll, net, entries, count, wait.ns()));
}

} // namespace gpunet

#endif
