/* gpunet: sockets for GPU kernels, for CUDA C++.
 *
 * Every call has two names. `gpunet_send(net, ...)` takes the context of the launch, which the host passes to the
 * kernel as a parameter: nothing else is needed. `gsend(...)`, GPUnet's name, is the same call for the context in the
 * module's variable `gpunet_attachment`, which the host sets when it binds the module to a launch.
 *
 * Compile the kernels with relocatable device code and link them with gpunet's PTX
 * (gpunet-device/ptx/gpunet_device.ptx), at build time or at run time. gpunet_echo_client.cu of the examples is a
 * complete kernel and shows both ways. The library's functions use up to 255 registers; for blocks of more than 256
 * threads compile its PTX with `ptxas -maxrregcount=64` (or CU_JIT_MAX_REGISTERS).
 *
 * Who calls: every function without a suffix is called by ALL threads of a thread block, at the same
 * point and with the same arguments, and returns the same result to all of them. What such a call writes
 * (data, addresses, option values) must be in shared or global memory: a local variable belongs to one
 * thread, and one thread writes. `_warp`: all threads of a warp. `_thread` and `single_thread_`: any one thread.
 * A call sees what the calling threads wrote before it; all of them see what the call wrote after it.
 *
 * Result: 0, a count or a socket; a failure is a negative Linux errno (-EAGAIN, ...).
 * A socket is a positive int, valid on its device until it is closed, in later launches too. The host keeps
 * or closes what a launch leaves open when it finishes the launch. A closed socket is -EBADF.
 * -EALREADY: another block or warp is sending (or receiving) on that socket now, or binding or
 * connecting it; or the host has taken that direction (see gpunet_trigger_t).
 * -EMFILE: all socket slots are in use. -ENFILE: the proxy has no file descriptor left.
 * -ENETDOWN: the context is 0 or none of this version (or no attachment is bound to the module), or the proxy has
 * stopped or gave no sign of life while the call waited. If the proxy resumes, the call can be repeated.
 */
#ifndef GPUNET_H
#define GPUNET_H

#ifndef __CUDACC__
#error "gpunet.h is for CUDA C++ (nvcc, or clang with -x cuda, or NVRTC)"
#endif

#if !defined(__CUDACC_RTC__) && defined(__has_include)
#if __has_include(<netinet/in.h>) && __has_include(<netinet/tcp.h>) && __has_include(<poll.h>)
#define GPUNET_SYSTEM_HEADERS 1
#endif
#endif

#ifdef GPUNET_SYSTEM_HEADERS
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#else /* NVRTC: Linux's layouts and numbers, where there are no system headers. */
struct sockaddr {
    unsigned short sa_family;
    char sa_data[14];
};
struct in_addr {
    unsigned int s_addr; /* network byte order */
};
struct sockaddr_in {
    unsigned short sin_family;
    unsigned short sin_port; /* network byte order */
    struct in_addr sin_addr;
    unsigned char sin_zero[8];
};
struct in6_addr {
    unsigned char s6_addr[16];
};
struct sockaddr_in6 {
    unsigned short sin6_family;
    unsigned short sin6_port;
    unsigned int sin6_flowinfo;
    struct in6_addr sin6_addr;
    unsigned int sin6_scope_id;
};
struct timeval {
    long tv_sec;
    long tv_usec;
};
struct linger {
    int l_onoff;
    int l_linger;
};
struct pollfd {
    int fd;
    short events;
    short revents;
};
typedef unsigned int socklen_t;
enum { AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1, SOCK_NONBLOCK = 04000, IPPROTO_TCP = 6, IPPROTO_IPV6 = 41 };
enum { MSG_PEEK = 0x2, MSG_DONTWAIT = 0x40, MSG_WAITALL = 0x100, MSG_MORE = 0x8000 };
enum { SHUT_RD = 0, SHUT_WR = 1, SHUT_RDWR = 2 };
enum { POLLIN = 1, POLLOUT = 4, POLLERR = 8, POLLHUP = 16, POLLNVAL = 32 };
enum {
    SOL_SOCKET = 1, SO_REUSEADDR = 2, SO_TYPE = 3, SO_ERROR = 4, SO_SNDBUF = 7, SO_RCVBUF = 8, SO_KEEPALIVE = 9,
    SO_LINGER = 13, SO_RCVLOWAT = 18, SO_SNDLOWAT = 19, SO_RCVTIMEO = 20, SO_SNDTIMEO = 21, SO_ACCEPTCONN = 30, TCP_NODELAY = 1, IPV6_V6ONLY = 26
};
enum { FIONREAD = 0x541b, TIOCOUTQ = 0x5411, FIONBIO = 0x5421 };
enum {
    ENOENT = 2, EBADF = 9, EAGAIN = 11, EEXIST = 17, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOSPC = 28, EPIPE = 32, ENODATA = 61, EPROTO = 71, EMSGSIZE = 90, EADDRINUSE = 98,
    ENETDOWN = 100, ECONNRESET = 104, ENOBUFS = 105, ENOTCONN = 107, ETIMEDOUT = 110, ECONNREFUSED = 111,
    EALREADY = 114, ECANCELED = 125
};
#endif

/* Protocols of gsocket: 0 lets gpunet choose, IPPROTO_TCP is TCP alone, these are same-host alone and RDMA (rsocket) alone. */
#define GPUNET_PROTO_PEER 0x6701
#define GPUNET_PROTO_RC 0x6702
/* gpunet's own option level and options (int): non-blocking; transport (0 auto, 1 tcp, 2 peer, 3 rc);
 * lines: small messages travel with their flag where that is faster (on by default). */
#define SOL_GPUNET 0x6770
#define GPUNET_NONBLOCK 1
#define GPUNET_TRANSPORT 2
#define GPUNET_LINES 3
/* gpunet's own request of gioctl: bytes that can be sent without waiting. */
#define GPUNET_SPACE 0x67700001u

/* Host to network byte order, on the device. */
#define gpunet_htons(x) ((unsigned short)((((x) & 0xff) << 8) | (((x) >> 8) & 0xff)))
#define gpunet_htonl(x) __byte_perm((unsigned int)(x), 0, 0x0123)

/* One thread of the block runs the code between the two while the others wait. */
#define BEGIN_SINGLE_THREAD_PART                                                                               \
    do {                                                                                                       \
        __syncthreads();                                                                                       \
        if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
#define END_SINGLE_THREAD_PART                                                                                 \
    }                                                                                                          \
    __syncthreads();                                                                                           \
    }                                                                                                          \
    while (0)

/* The context of a launch: the device address by which its kernels find their sockets. The host gets it from the
 * launch's token and passes it to the kernel as a parameter. 0: none. */
typedef unsigned long long gpunet_net_t;

/* How long a call waits, in NANOseconds. 0: not at all. Negative: without limit. This: as the options of the socket
 * say (SO_SNDTIMEO, SO_RCVTIMEO; not at all if it is non-blocking). When the time is over, connect returns -ETIMEDOUT
 * and all others return -EAGAIN; -ETIMEDOUT of those is the connection's own. */
#define GPUNET_SOCKET_TIMEOUT (-0x7fffffffffffffffll - 1)

/* What a socket is opened with. All zeros: the defaults. */
#ifndef GPUNET_OPTIONS
#define GPUNET_OPTIONS
struct gpunet_options {
    unsigned long long send_ring;       /* bytes, rounded up to a power of two, 4 KiB to 16 MiB; 0: the proxy chooses */
    unsigned long long recv_ring;
    unsigned long long send_timeout_ns; /* SO_SNDTIMEO; 0: none */
    unsigned long long recv_timeout_ns; /* SO_RCVTIMEO; 0: none */
    int transport;                      /* 0 auto, 1 tcp, 2 peer, 3 rc */
    int linger_ms;                      /* SO_LINGER, with GPUNET_LINGER; 0 resets the connection at close */
    unsigned int flags;                 /* GPUNET_DELAY and those after it */
    unsigned int reserved;              /* 0 */
};
#define GPUNET_DELAY 1u     /* without TCP_NODELAY */
#define GPUNET_EXCLUSIVE 2u /* without SO_REUSEADDR */
#define GPUNET_KEEPALIVE 4u
#define GPUNET_V6ONLY 8u
#define GPUNET_NO_WAIT 16u /* a non-blocking socket */
#define GPUNET_LINGER 32u
#define GPUNET_NO_LINES 64u /* small messages travel without lines, which they have where that is faster */
#endif

/* What gepoll_wait has found. */
#ifndef GPUNET_EVENT
#define GPUNET_EVENT
struct gpunet_event {
    unsigned long long token; /* the caller's own number for the socket */
    int socket;
    short revents; /* POLLIN, POLLOUT, POLLERR, POLLHUP, GPUNET_POLLRDHUP */
    unsigned short reserved;
    unsigned long long turn; /* which delivery it is: leave it as it is for the next wait */
};
#define GPUNET_POLLRDHUP 0x2000
#define GPUNET_EPOLL_ADD 1
#define GPUNET_EPOLL_DEL 2
#define GPUNET_EPOLL_MOD 3
#define GPUNET_EPOLL_REARM 4
#endif

/* Bytes of a ring, where they lie: two pieces, the second for what wraps round the ring's end. They may be memory of
 * the host or of another GPU. Read them by plain or volatile loads: not by __ldg, not through `const __restrict__`,
 * and not by TMA. */
#ifndef GPUNET_SPAN
#define GPUNET_SPAN
struct gpunet_piece {
    void *data;
    unsigned long long len;
};
struct gpunet_span {
    struct gpunet_piece piece[2];
};
#endif

/* A direction that the host has taken, which prepares messages in its ring and passes these values to kernels as
 * parameters. Other calls on that direction, and close, return -EALREADY. Directions: what this end sends, and what it
 * receives. Positions are bytes since the stream was opened, less than 2^61.
 *
 * A trigger publishes up to its position: what was filled, or what was read. A gate waits until the other end has
 * released so much (of a send), or so much has landed (of a receive). A message begins at `position`. */
#ifndef GPUNET_PREPARED
#define GPUNET_PREPARED
#define GPUNET_SEND 0u
#define GPUNET_RECV 1u
typedef struct gpunet_trigger {
    int socket;
    unsigned int direction;
    unsigned long long position;
} gpunet_trigger_t;
typedef struct gpunet_gate {
    int socket;
    unsigned int direction;
    unsigned long long position;
} gpunet_gate_t;
typedef struct gpunet_prepared {
    int socket;
    unsigned int direction;
    unsigned long long position;
    unsigned long long len;
} gpunet_prepared_t;
#endif

/* What a message makes. room and done are of a send, arrived is of a receive: the ring of `ring` bytes has room for
 * the message; the message is released; it has landed. nth is the i-th message after it, of the same length. */
static __device__ __forceinline__ gpunet_trigger_t gpunet_prepared_trigger(gpunet_prepared_t m) {
    gpunet_trigger_t trigger = {m.socket, m.direction, m.position + m.len};
    return trigger;
}
static __device__ __forceinline__ gpunet_gate_t gpunet_prepared_done(gpunet_prepared_t m) {
    gpunet_gate_t gate = {m.socket, m.direction, m.position + m.len};
    return gate;
}
static __device__ __forceinline__ gpunet_gate_t gpunet_prepared_arrived(gpunet_prepared_t m) {
    return gpunet_prepared_done(m);
}
static __device__ __forceinline__ gpunet_gate_t gpunet_prepared_room(gpunet_prepared_t m, unsigned long long ring) {
    gpunet_gate_t gate = gpunet_prepared_done(m);
    gate.position = gate.position > ring ? gate.position - ring : 0;
    return gate;
}
static __device__ __forceinline__ gpunet_prepared_t gpunet_prepared_nth(gpunet_prepared_t m, unsigned long long i) {
    m.position += i * m.len;
    return m;
}

/* Declares a call twice: with the context as its first argument, and for the context of the module. */
#define GPUNET_CALL(returned, explicit_name, name, ...)                                                        \
    __device__ returned explicit_name(gpunet_net_t net, __VA_ARGS__);                                          \
    __device__ returned name(__VA_ARGS__)

extern "C" {

/* Opening and closing, as the POSIX calls of these names. After a failed bind, listen or connect
 * the socket is closed. connect and accept obey SO_SNDTIMEO and SO_RCVTIMEO; connect waits even
 * on a non-blocking socket. */
GPUNET_CALL(int, gpunet_socket, gsocket, int domain, int type, int protocol);
GPUNET_CALL(int, gpunet_bind, gbind, int socket, const struct sockaddr *addr, socklen_t len);
GPUNET_CALL(int, gpunet_listen, glisten, int socket, int backlog);
GPUNET_CALL(int, gpunet_accept, gaccept, int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
GPUNET_CALL(int, gpunet_accept_nb, gaccept_nb, int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
GPUNET_CALL(int, gpunet_connect, gconnect, int socket, const struct sockaddr *addr, socklen_t len);
GPUNET_CALL(int, gpunet_shutdown, gshutdown, int socket, int how = SHUT_RDWR);
GPUNET_CALL(int, gpunet_close, gclose, int socket);

/* At once: make a socket and connect it; make one, bind it and listen; accept. A null pointer: default options. A
 * connect with timeout 0 is -EINVAL. */
GPUNET_CALL(int, gpunet_connect_to, gconnect_to, const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options = 0, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_listen_at, glisten_at, const struct sockaddr *addr, socklen_t len, int backlog = 128, const struct gpunet_options *options = 0);
GPUNET_CALL(int, gpunet_accept_timeout, gaccept_timeout, int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns);

/* GPUnet's: the same with default options. */
GPUNET_CALL(int, gpunet_connect_in, gconnect_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_bind_in, gbind_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_connect_in6, gconnect_in6, const struct sockaddr_in6 *addr);
GPUNET_CALL(int, gpunet_bind_in6, gbind_in6, const struct sockaddr_in6 *addr);

/* By one thread. A warp that opens or closes lets one lane do it and share the result. */
GPUNET_CALL(int, gpunet_connect_to_thread, gconnect_to_thread, const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options = 0, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_listen_at_thread, glisten_at_thread, const struct sockaddr *addr, socklen_t len, int backlog = 128, const struct gpunet_options *options = 0);
GPUNET_CALL(int, gpunet_accept_timeout_thread, gaccept_timeout_thread, int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns);
GPUNET_CALL(int, gpunet_bind_in_thread, single_thread_gbind_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_connect_in_thread, single_thread_gconnect_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_accept_thread, single_thread_gaccept, int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
GPUNET_CALL(int, gpunet_shutdown_thread, single_thread_gshutdown, int socket, int how = SHUT_RDWR);
GPUNET_CALL(int, gpunet_close_thread, single_thread_gclose, int socket);

/* Bytes. A send may take fewer than given (at least one): it returns once they are in the ring, not
 * once they are delivered. A receive returns what is there (at least one), and 0 at the end of the
 * stream. `_nb` and MSG_DONTWAIT: -EAGAIN instead of waiting. MSG_WAITALL: all of it, in both
 * directions. MSG_PEEK: the received bytes stay; the call returns all that has come, up to the length.
 * A failure after some bytes is the next call's. */
GPUNET_CALL(long long, gpunet_send, gsend, int socket, const void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_send_nb, gsend_nb, int socket, const void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_send_warp, gsend_warp, int socket, const void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_send_thread, gsend_thread, int socket, const void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_recv, grecv, int socket, void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_recv_nb, grecv_nb, int socket, void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_recv_warp, grecv_warp, int socket, void *data, unsigned long long len, int flags = 0);
GPUNET_CALL(long long, gpunet_recv_thread, grecv_thread, int socket, void *data, unsigned long long len, int flags = 0);
/* The same, waiting that long for the whole call. */
GPUNET_CALL(long long, gpunet_send_timeout, gsend_timeout, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_send_timeout_warp, gsend_timeout_warp, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_send_timeout_thread, gsend_timeout_thread, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout, grecv_timeout, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout_warp, grecv_timeout_warp, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout_thread, grecv_timeout_thread, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);

/* Without a copy. reserve gives up to `len` bytes of free ring space to write (at least one; it returns how many), and
 * commit sends the first `len` of them, each thread after its own writes. peek shows up to `len` received bytes (at
 * least one; 0: the end of the stream), and release gives the first `len` of them back. Each thread that calls gets
 * the span, so it may be a local variable. A span is void after the commit or release, and after another send or
 * receive on the socket. More than there is: -EINVAL. peek_more waits until more than `have` bytes are there, for a request
 * of which `have` bytes were seen and that is not complete; at the end of the stream it shows what there is. A ring that
 * holds no more than `have` bytes: -EMSGSIZE. */
GPUNET_CALL(long long, gpunet_reserve, greserve, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_reserve_warp, greserve_warp, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_reserve_thread, greserve_thread, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_commit, gcommit, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_commit_warp, gcommit_warp, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_commit_thread, gcommit_thread, int socket, unsigned long long len);
GPUNET_CALL(long long, gpunet_peek, gpeek, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_peek_warp, gpeek_warp, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_peek_thread, gpeek_thread, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_peek_more, gpeek_more, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_peek_more_warp, gpeek_more_warp, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(long long, gpunet_peek_more_thread, gpeek_more_thread, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_release, grelease, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_release_warp, grelease_warp, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_release_thread, grelease_thread, int socket, unsigned long long len);

/* What the host has prepared. A trigger is released by any block, each thread after its own writes, as often as it likes:
 * triggers of a direction take effect in order, a later one publishes all before it, and one that comes too late does
 * nothing. After a wait that returns 0, and a test that returns 1 (0: not yet), all threads see what has landed, and may
 * use the space that was released. A gate that can no longer pass: -EPIPE, -ENODATA (the stream ended before), -ECONNRESET
 * or the socket's failure. prepared_span tells where a message lies in the ring, and returns its length; it does not
 * check that it is filled, or free. A direction that the host has not taken, or a message longer than the ring: -EINVAL. */
GPUNET_CALL(int, gpunet_trigger_release, gtrigger_release, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_trigger_release_warp, gtrigger_release_warp, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_trigger_release_thread, gtrigger_release_thread, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_wait, gwait, gpunet_gate_t gate, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_wait_warp, gwait_warp, gpunet_gate_t gate, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_wait_thread, gwait_thread, gpunet_gate_t gate, long long timeout_ns = GPUNET_SOCKET_TIMEOUT);
GPUNET_CALL(int, gpunet_test, gtest, gpunet_gate_t gate);
GPUNET_CALL(int, gpunet_test_warp, gtest_warp, gpunet_gate_t gate);
GPUNET_CALL(int, gpunet_test_thread, gtest_thread, gpunet_gate_t gate);
GPUNET_CALL(long long, gpunet_prepared_span, gprepared_span, gpunet_prepared_t message, struct gpunet_span *span);
GPUNET_CALL(long long, gpunet_prepared_span_warp, gprepared_span_warp, gpunet_prepared_t message, struct gpunet_span *span);
GPUNET_CALL(long long, gpunet_prepared_span_thread, gprepared_span_thread, gpunet_prepared_t message, struct gpunet_span *span);

/* Waits for one of many sockets, listeners too; returns how many are ready. The timeout is in
 * NANOseconds; negative: none; 0: do not wait. Before it waits, it announces to the senders what was received. */
GPUNET_CALL(int, gpunet_poll, gpoll, struct pollfd *fds, unsigned long long count, long long timeout_ns);
GPUNET_CALL(int, gpunet_poll_warp, gpoll_warp, struct pollfd *fds, unsigned long long count, long long timeout_ns);
GPUNET_CALL(int, gpunet_poll_thread, gpoll_thread, struct pollfd *fds, unsigned long long count, long long timeout_ns);

/* Poll groups: epoll for blocks. Where poll examines every socket of its set, a wait costs the same for ten sockets as for ten
 * thousand, and any number of blocks may wait. A group has up to `capacity` sockets (0: as many as there are), streams
 * and listeners; a socket is in one group at most, and leaves it when it is closed.
 * ctl: GPUNET_EPOLL_ADD, _DEL, _MOD (which also arms), _REARM. `token` comes back with each event. -EEXIST: the socket is in a group;
 * -ENOENT: it is not in this one; -ENOSPC: the group is full.
 * wait: writes up to `max` events and returns how many. Level-triggered, and each event is one block's: its socket is delivered
 * to nobody else before that block waits again. The first `last` of `events` are those of the caller's last wait, unchanged (0
 * in its first): their sockets are armed again. The timeout is in NANOseconds, as for poll. -EBADF: the group is closed.
 * Calls on delivered sockets should not wait: an event may be out of date. close leaves the sockets open; gclose does the same. */
GPUNET_CALL(int, gpunet_epoll_create, gepoll_create, unsigned int capacity = 0);
GPUNET_CALL(int, gpunet_epoll_create_thread, gepoll_create_thread, unsigned int capacity = 0);
GPUNET_CALL(int, gpunet_epoll_ctl, gepoll_ctl, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_ctl_warp, gepoll_ctl_warp, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_ctl_thread, gepoll_ctl_thread, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_wait, gepoll_wait, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_wait_warp, gepoll_wait_warp, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_wait_thread, gepoll_wait_thread, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_close, gepoll_close, int group);
GPUNET_CALL(int, gpunet_epoll_close_thread, gepoll_close_thread, int group);

GPUNET_CALL(int, gpunet_getsockname, ggetsockname, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getsockname_thread, ggetsockname_thread, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getpeername, ggetpeername, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getpeername_thread, ggetpeername_thread, int socket, struct sockaddr *addr, socklen_t *len);
/* SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVBUF, SO_SNDBUF (before connect, or before listen),
 * SO_RCVLOWAT and SO_SNDLOWAT (for poll and poll groups; SO_SNDLOWAT before listen), SO_ERROR (each error once), SO_LINGER, SO_REUSEADDR and TCP_NODELAY (both on by default),
 * SO_KEEPALIVE, IPV6_V6ONLY, and SOL_GPUNET's. */
GPUNET_CALL(int, gpunet_setsockopt, gsetsockopt, int socket, int level, int name, const void *value, socklen_t len);
GPUNET_CALL(int, gpunet_setsockopt_thread, gsetsockopt_thread, int socket, int level, int name, const void *value, socklen_t len);
GPUNET_CALL(int, gpunet_getsockopt, ggetsockopt, int socket, int level, int name, void *value, socklen_t *len);
GPUNET_CALL(int, gpunet_getsockopt_thread, ggetsockopt_thread, int socket, int level, int name, void *value, socklen_t *len);
/* FIONREAD, TIOCOUTQ (SIOCOUTQ), FIONBIO, GPUNET_SPACE. */
GPUNET_CALL(int, gpunet_ioctl, gioctl, int socket, unsigned int request, int *value);
GPUNET_CALL(int, gpunet_ioctl_thread, gioctl_thread, int socket, unsigned int request, int *value);
GPUNET_CALL(int, gpunet_setnonblock, gsetnonblock, int socket, int on);

} /* extern "C" */

#undef GPUNET_CALL

#endif
