/* Poll groups: epoll for blocks. */
#ifndef GPUNET_POLL_GROUP_CUH
#define GPUNET_POLL_GROUP_CUH

#include "../gpunet.h"
#include "group.cuh"
#include "result.cuh"
#include "socket.cuh"
#include "timeout.cuh"

namespace gpunet {

using event = struct gpunet_event;

/* Memory in which a caller's waits store events: the caller's own, shared or global for a block or warp. It records how many events
 * the last wait has stored. They stay unchanged until the next wait. */
class events {
public:
    __device__ events(event *memory, unsigned int capacity) : memory_(memory), capacity_(capacity) {}
    template <unsigned int N> __device__ explicit events(event (&memory)[N]) : events(memory, N) {}
    events(const events &) = delete;
    events &operator=(const events &) = delete;

    __device__ unsigned int size() const { return size_; }
    __device__ const event &operator[](unsigned int at) const { return memory_[at]; }
    __device__ const event *begin() const { return memory_; }
    __device__ const event *end() const { return memory_ + size_; }

private:
    friend class poll_group;
    event *memory_;
    unsigned int capacity_;
    unsigned int size_ = 0;
};

/* Sockets for which any number of blocks wait. A wait costs the same for ten sockets as for ten thousand. An event goes to one of
 * the blocks. A socket is in one group at most, and leaves it when it is closed. */
class poll_group : private detail::socket {
public:
    using detail::socket::socket;
    using detail::socket::operator bool;
    using detail::socket::close; /* the sockets stay open */
    using detail::socket::handle;
    using detail::socket::leave;
    using detail::socket::net;

    /* Makes a group for up to `capacity` sockets; 0: for as many as there are. */
    template <class Group>
    __device__ static result<poll_group> create(const Group &group, gpunet_net_t net, unsigned int capacity = 0) {
        const int handle = detail::ask<int>(group, [&](int *) { return gpunet_epoll_create_thread(net, capacity); }).code;
        if (handle < 0) return detail::failed(handle);
        return poll_group(net, handle);
    }

    /* The group of that handle: a second value for one group, which is closed once. */
    __device__ static poll_group from_handle(gpunet_net_t net, int handle) { return poll_group(net, handle); }

    /* Adds a stream or a listener. `what`: POLLIN, POLLOUT, GPUNET_POLLRDHUP; errors and hang-ups are always reported. `token` comes back
     * with each event. */
    template <class Group, class Socket>
    __device__ result<void> add(const Group &group, const Socket &socket, int what, unsigned long long token) const {
        return control(group, GPUNET_EPOLL_ADD, socket.handle(), what, token);
    }
    /* Changes events and token, and arms the socket again, whichever block has its event. */
    template <class Group, class Socket>
    __device__ result<void> modify(const Group &group, const Socket &socket, int what, unsigned long long token) const {
        return control(group, GPUNET_EPOLL_MOD, socket.handle(), what, token);
    }
    /* Arms a delivered socket again, before this block's next wait. */
    template <class Group, class Socket> __device__ result<void> rearm(const Group &group, const Socket &socket) const {
        return control(group, GPUNET_EPOLL_REARM, socket.handle(), 0, 0);
    }
    template <class Group, class Socket> __device__ result<void> remove(const Group &group, const Socket &socket) const {
        return control(group, GPUNET_EPOLL_DEL, socket.handle(), 0, 0);
    }

    /* Waits until sockets are ready, or the time is over. Returns how many are in `found`; 0 when the time is over. It first arms the
     * sockets of the last wait's events again. It is level-triggered. An event may be out of date, so the calls that follow should
     * not wait. */
    template <class Group>
    __device__ result<unsigned int> wait(const Group &group, events &found, timeout limit = timeout::forever()) const {
        const int ready = GPUNET_BY_GROUP(group, gpunet_epoll_wait, net(), handle(), found.memory_, found.capacity_, found.size_,
                                          limit.ns());
        found.size_ = ready < 0 ? 0 : static_cast<unsigned int>(ready);
        if (ready < 0) return detail::failed(ready);
        return static_cast<unsigned int>(ready);
    }

private:
    template <class Group>
    __device__ result<void> control(const Group &group, int op, int socket, int what, unsigned long long token) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_epoll_ctl, net(), handle(), op, socket, what, token));
    }
};

} // namespace gpunet

#endif
