/* Streams, their halves, and listeners. */
#ifndef GPUNET_SOCKET_CUH
#define GPUNET_SOCKET_CUH

#include "../gpunet.h"
#include "address.cuh"
#include "group.cuh"
#include "options.cuh"
#include "result.cuh"
#include "span.cuh"
#include "timeout.cuh"

namespace gpunet {

using size_type = unsigned long long;

namespace detail {

/* A socket that one value of the program owns. */
class socket {
public:
    socket() = default;
    __device__ socket(gpunet_net_t net, int handle) : net_(net), handle_(handle) {}
    __device__ socket(socket &&other) noexcept : net_(other.net_), handle_(other.leave()) {}
    __device__ socket &operator=(socket &&other) noexcept {
        net_ = other.net_;
        handle_ = other.leave();
        return *this;
    }
    socket(const socket &) = delete;
    socket &operator=(const socket &) = delete;

    /* Returns whether the value has a socket. It has none after a close or a move. */
    __device__ explicit operator bool() const { return handle_ > 0; }
    /* The number of the socket, for C functions, another block or a later launch. */
    __device__ int handle() const { return handle_; }
    __device__ gpunet_net_t net() const { return net_; }
    /* Returns the handle and gives it away: this value has no socket afterwards, and the socket stays open. */
    __device__ int leave() {
        const int handle = handle_;
        handle_ = 0;
        return handle;
    }

    /* Closes the socket, and returns when the close is queued. Bytes that were sent before are still delivered. After a failure other
     * than bad_handle the socket is still open. */
    template <class Group> __device__ result<void> close(const Group &group) {
        const int code = ask<int>(group, [this](int *) { return gpunet_close_thread(net_, handle_); }).code;
        if (code == 0 || failed(code).error() == errc::bad_handle) leave();
        return nothing(code);
    }

    template <class Group> __device__ result<address> local_address(const Group &group) const {
        return name(ask<struct sockaddr_in6>(group, [this](struct sockaddr_in6 *to) {
            socklen_t size = sizeof *to;
            return gpunet_getsockname_thread(net_, handle_, reinterpret_cast<struct sockaddr *>(to), &size);
        }));
    }

    /* Sets or reads an option, like setsockopt. T is int, struct timeval or struct linger. */
    template <class T, class Group>
    __device__ result<void> set_option(const Group &group, int level, int option, const T &value) const {
        return nothing(ask<int>(group, [&](int *) {
            return gpunet_setsockopt_thread(net_, handle_, level, option, &value, sizeof value);
        }).code);
    }
    template <class T, class Group> __device__ result<T> get_option(const Group &group, int level, int option) const {
        const auto found = ask<T>(group, [&](T *to) {
            socklen_t size = sizeof *to;
            return gpunet_getsockopt_thread(net_, handle_, level, option, to, &size);
        });
        if (found.code < 0) return failed(found.code);
        return T(found.value);
    }

protected:
    __device__ static result<address> name(const answer<struct sockaddr_in6> &found) {
        if (found.code < 0) return failed(found.code);
        if (found.value.sin6_family == AF_INET6) return address(found.value);
        return address(reinterpret_cast<const struct sockaddr_in &>(found.value));
    }

    gpunet_net_t net_ = 0;
    int handle_ = 0;
};

/* The calls of a socket that sends. */
template <class Self> class sender {
public:
    /* Sends at least one byte, and fewer than given if the ring is full. Returns how many. These bytes are then in the ring, not yet
     * delivered; the memory may be reused. */
    template <class Group>
    __device__ result<size_type> send(const Group &group, const void *data, size_type size, timeout wait = {}) {
        return count(GPUNET_BY_GROUP(group, gpunet_send_timeout, self().net(), self().handle(), data, size, 0, wait.ns()));
    }

    /* Like send(), for a message in many pieces. The bytes are published by the next send() or send_all(), by flush(), by a receive or
     * poll on the stream that waits, by a shutdown or a close, and whenever the pieces have filled a share of the ring. */
    template <class Group>
    __device__ result<size_type> send_more(const Group &group, const void *data, size_type size, timeout wait = {}) {
        return count(
            GPUNET_BY_GROUP(group, gpunet_send_timeout, self().net(), self().handle(), data, size, MSG_MORE, wait.ns()));
    }

    /* Publishes the bytes that send_more() has left unpublished. */
    template <class Group> __device__ result<void> flush(const Group &group) {
        return nothing(GPUNET_BY_GROUP(group, gpunet_send_timeout, self().net(), self().handle(), "", 0, 0, 0));
    }

    /* Sends all bytes, within the time. After a failure some of them may have been sent. */
    template <class Group>
    __device__ result<void> send_all(const Group &group, const void *data, size_type size, timeout wait = {}) {
        const auto *from = static_cast<const unsigned char *>(data);
        for (bool again = false;; again = true) {
            /* A call that returns fewer bytes met a failure, which the next call reports. */
            const long long sent = GPUNET_BY_GROUP(group, gpunet_send_timeout, self().net(), self().handle(), from, size,
                                                   MSG_WAITALL, again ? 0 : wait.ns());
            if (sent < 0 || static_cast<size_type>(sent) == size) return nothing(sent);
            from += sent;
            size -= static_cast<size_type>(sent);
        }
    }

    /* Reserves up to `size` bytes of the ring to write in place: those that are free, and at least one. */
    template <class Group> __device__ result<ring_span> reserve(const Group &group, size_type size, timeout wait = {}) {
        struct gpunet_span span = {};
        const long long found = GPUNET_BY_GROUP(group, gpunet_reserve, self().net(), self().handle(), size, &span, wait.ns());
        if (found < 0) return failed(found);
        return ring_span(span);
    }

    /* Sends the first `size` bytes of the reserved span, after all threads have written them. */
    template <class Group> __device__ result<void> commit(const Group &group, size_type size) {
        return nothing(GPUNET_BY_GROUP(group, gpunet_commit, self().net(), self().handle(), size));
    }

    /* Ends this direction: the peer reads the end of the stream after the data. */
    template <class Group> __device__ result<void> shutdown_write(const Group &group) {
        return nothing(ask<int>(group, [this](int *) {
            return gpunet_shutdown_thread(self().net(), self().handle(), SHUT_WR);
        }).code);
    }

private:
    __device__ Self &self() { return static_cast<Self &>(*this); }
};

/* The calls of a socket that receives. */
template <class Self> class receiver {
public:
    /* Receives up to `size` bytes. Returns how many: at least one, or 0 at the end of the stream. */
    template <class Group>
    __device__ result<size_type> recv(const Group &group, void *data, size_type size, timeout wait = {}) {
        return count(GPUNET_BY_GROUP(group, gpunet_recv_timeout, self().net(), self().handle(), data, size, 0, wait.ns()));
    }

    /* Receives all of the `size` bytes, within the time; fewer only if the stream ends before. After a failure some bytes may have
     * been received. */
    template <class Group>
    __device__ result<size_type> recv_exact(const Group &group, void *data, size_type size, timeout wait = {}) {
        auto *to = static_cast<unsigned char *>(data);
        size_type have = 0;
        for (bool again = false;; again = true) {
            /* As in send_all; at the end of the stream the next call returns 0. */
            const long long got = GPUNET_BY_GROUP(group, gpunet_recv_timeout, self().net(), self().handle(), to + have,
                                                  size - have, MSG_WAITALL, again ? 0 : wait.ns());
            if (got < 0) return failed(got);
            have += static_cast<size_type>(got);
            if (got == 0 || have == size) return size_type(have);
        }
    }

    /* Shows up to `size` received bytes in place: those that have come, and at least one; none at the end of the stream. */
    template <class Group> __device__ result<ring_span> peek(const Group &group, size_type size, timeout wait = {}) {
        struct gpunet_span span = {};
        const long long found = GPUNET_BY_GROUP(group, gpunet_peek, self().net(), self().handle(), size, &span, wait.ns());
        if (found < 0) return failed(found);
        return ring_span(span);
    }

    /* Like peek(), but waits until more than `have` bytes are there, for a request that is not complete. At the end of the stream it
     * shows what there is. */
    template <class Group>
    __device__ result<ring_span> peek_more(const Group &group, size_type have, size_type size, timeout wait = {}) {
        struct gpunet_span span = {};
        const long long found =
            GPUNET_BY_GROUP(group, gpunet_peek_more, self().net(), self().handle(), have, size, &span, wait.ns());
        if (found < 0) return failed(found);
        return ring_span(span);
    }

    /* Gives the first `size` bytes of the span back, after all threads have read them. */
    template <class Group> __device__ result<void> release(const Group &group, size_type size) {
        return nothing(GPUNET_BY_GROUP(group, gpunet_release, self().net(), self().handle(), size));
    }

    /* Bytes that can be received without waiting. */
    template <class Group> __device__ result<size_type> available(const Group &group) {
        const auto found = ask<int>(group, [this](int *to) {
            return gpunet_ioctl_thread(self().net(), self().handle(), FIONREAD, to);
        });
        return count(found.code < 0 ? found.code : found.value);
    }

    /* Stops receiving: bytes that still come are discarded. */
    template <class Group> __device__ result<void> shutdown_read(const Group &group) {
        return nothing(ask<int>(group, [this](int *) {
            return gpunet_shutdown_thread(self().net(), self().handle(), SHUT_RD);
        }).code);
    }

private:
    __device__ Self &self() { return static_cast<Self &>(*this); }
};

} // namespace detail

/* The sending half of a stream, for one group; another group may have the receiving half. */
class send_half : public detail::socket, public detail::sender<send_half> {
    using detail::socket::socket;
};

/* The receiving half of a stream. */
class recv_half : public detail::socket, public detail::receiver<recv_half> {
    using detail::socket::socket;
};

/* Both halves of a stream. */
struct halves {
    send_half send;
    recv_half recv;
};

/* A connected stream. */
class stream : public detail::socket, public detail::sender<stream>, public detail::receiver<stream> {
public:
    using detail::socket::socket;

    /* Connects. When the timeout, or the send timeout of the options, is over, it fails with timed_out. no_wait() is invalid. */
    template <class Group>
    __device__ static result<stream> connect(const Group &group, gpunet_net_t net, const address &to,
                                             const options &with = options(), timeout wait = {}) {
        const int handle = detail::ask<int>(group, [&](int *) {
            return gpunet_connect_to_thread(net, to.data(), to.size(), with.data(), wait.ns());
        }).code;
        if (handle < 0) return detail::failed(handle);
        return stream(net, handle);
    }

    /* The stream of a handle that leave() has returned, in this launch or an earlier one. Its first call fails if it is not open. */
    __device__ static stream from_handle(gpunet_net_t net, int handle) { return stream(net, handle); }

    /* Splits the stream into its halves, for two groups. */
    __device__ halves split() && {
        const int handle = leave();
        return {send_half(net_, handle), recv_half(net_, handle)};
    }
    /* Joins the halves again, to close the stream. Halves of two streams stay unchanged. */
    __device__ static result<stream> join(send_half &&send, recv_half &&recv) {
        if (!send || send.handle() != recv.handle() || send.net() != recv.net()) return failure(errc::invalid_argument);
        send.leave();
        return stream(recv.net(), recv.leave());
    }

    template <class Group> __device__ result<address> peer_address(const Group &group) const {
        return name(detail::ask<struct sockaddr_in6>(group, [this](struct sockaddr_in6 *to) {
            socklen_t size = sizeof *to;
            return gpunet_getpeername_thread(net_, handle_, reinterpret_cast<struct sockaddr *>(to), &size);
        }));
    }
    /* The transport of the stream. */
    template <class Group> __device__ result<transport> carrier(const Group &group) const {
        const auto found = get_option<int>(group, SOL_GPUNET, GPUNET_TRANSPORT);
        if (!found) return failure(found.error());
        return static_cast<transport>(*found);
    }
};

/* A listening socket. Each accepted stream goes to one group. Other blocks use the same listener by from_handle(). */
class listener : public detail::socket {
public:
    using detail::socket::socket;

    /* Listens at an address; port 0 takes a free port, see local_address(). Accepted streams inherit the options. */
    template <class Group>
    __device__ static result<listener> bind(const Group &group, gpunet_net_t net, const address &at,
                                            const options &with = options(), int backlog = 128) {
        const int handle = detail::ask<int>(group, [&](int *) {
            return gpunet_listen_at_thread(net, at.data(), at.size(), backlog, with.data());
        }).code;
        if (handle < 0) return detail::failed(handle);
        return listener(net, handle);
    }

    /* The listener of that handle: a second value for one socket, which is closed once. */
    __device__ static listener from_handle(gpunet_net_t net, int handle) { return listener(net, handle); }

    /* Accepts a connection. */
    template <class Group> __device__ result<stream> accept(const Group &group, timeout wait = {}) const {
        const int handle = detail::ask<int>(group, [&](int *) {
            return gpunet_accept_timeout_thread(net_, handle_, nullptr, nullptr, wait.ns());
        }).code;
        if (handle < 0) return detail::failed(handle);
        return stream(net_, handle);
    }
};

} // namespace gpunet

#endif
