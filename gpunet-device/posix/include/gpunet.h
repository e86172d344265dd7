/* gpunet: sockets for GPU kernels. For CUDA C++ (nvcc, clang with -x cuda, NVRTC), and for C11 and C++17 functions that run as
 * kernels on the CPU: there the same source makes the same calls.
 *
 * The first argument of every call, `gpunet_send(net, ...)`, is the context of the launch. The host passes it to the kernel as a
 * parameter; nothing has to be initialised. GPUnet's name, `gsend(...)`, is an inline function. It makes the same call with the
 * context in the module's variable `gpunet_attachment`, which the host sets when it binds the module to a launch.
 *
 * For a GPU, compile the kernels with relocatable device code and link them with gpunet's PTX
 * (gpunet-device/ptx/gpunet_device.ptx), at build time or at run time. gpunet_echo_client.cu of the examples is a
 * complete kernel and shows both ways. The library's functions use up to 255 registers; for blocks of more than 256
 * threads compile its PTX with `ptxas -maxrregcount=64` (or CU_JIT_MAX_REGISTERS).
 *
 * For the CPU, link with libgpunet. Kernels are functions that gpunet_host_token_launch runs, each block of one thread; kernels in
 * CUDA C++ with threads, barriers and shared memory are compiled with gpunet_cpu.h. docs/c.md has the commands.
 *
 * Who calls: ALL threads of a thread block call a function without a suffix, at the same point and with the same
 * arguments, and all of them get the same result. Memory that such a call writes (data, addresses, option values) is
 * shared or global memory, because one thread writes it and a local variable belongs to one thread. `_warp`: all
 * threads of a warp call. `_thread` and `single_thread_`: any one thread calls. The call sees what the calling threads
 * wrote before it; afterwards all of them see what the call wrote.
 *
 * Result: 0, a count or a socket. A failure is a negative Linux errno (-EAGAIN, ...).
 * A socket is a positive int. It is valid on its device until it is closed, also in later launches. When the host
 * finishes a launch, it keeps or closes the sockets that the launch left open. A closed socket is -EBADF.
 * -EALREADY: another block or warp is sending (or receiving) on that socket, or is binding or connecting it; or the
 * host has taken that direction (see gpunet_trigger_t).
 * -EMFILE: all socket slots are in use. -ENFILE: the proxy has no file descriptor left.
 * -ENETDOWN: the context is 0 or not one of this version; or no attachment is bound to the module; or the proxy has
 * stopped, or gave no sign of life while the call waited. If the proxy resumes, the call can be repeated.
 */
#ifndef GPUNET_H
#define GPUNET_H

#include "gpunet_types.h"

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
    ENOENT = 2, EBADF = 9, EAGAIN = 11, EFAULT = 14, EEXIST = 17, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOSPC = 28, EPIPE = 32, ENAMETOOLONG = 36, ENODATA = 61, EPROTO = 71, EMSGSIZE = 90, EADDRINUSE = 98,
    EADDRNOTAVAIL = 99, ENETDOWN = 100, ECONNRESET = 104, ENOBUFS = 105, ENOTCONN = 107, ETIMEDOUT = 110, ECONNREFUSED = 111,
    EALREADY = 114, ECANCELED = 125
};
#endif

/* Protocols of gpunet_socket: 0 lets gpunet choose, IPPROTO_TCP allows only TCP, and these allow only the same host and only RDMA
 * (rsocket). */
#define GPUNET_PROTO_PEER 0x6701
#define GPUNET_PROTO_RC 0x6702
/* gpunet's own option level, and its options (int): non-blocking; the transport (0 auto, 1 tcp, 2 peer, 3 rc); lines, by which
 * small messages carry their own flags where that is faster (on by default). */
#define SOL_GPUNET 0x6770
#define GPUNET_NONBLOCK 1
#define GPUNET_TRANSPORT 2
#define GPUNET_LINES 3
/* gpunet's own request of gpunet_ioctl: how many bytes can be sent without waiting. */
#define GPUNET_SPACE 0x67700001u

/* Host to network byte order, on the device. */
#define gpunet_htons(x) ((unsigned short)((((x) & 0xff) << 8) | (((x) >> 8) & 0xff)))
#ifdef __CUDACC__
#define gpunet_htonl(x) __byte_perm((unsigned int)(x), 0, 0x0123)
#else
#define gpunet_htonl(x) __builtin_bswap32((unsigned int)(x))
#endif

/* One thread of the block runs the code between these two; the others wait. */
#define BEGIN_SINGLE_THREAD_PART                                                                               \
    do {                                                                                                       \
        __syncthreads();                                                                                       \
        if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
#define END_SINGLE_THREAD_PART                                                                                 \
    }                                                                                                          \
    __syncthreads();                                                                                           \
    }                                                                                                          \
    while (0)

/* How a function of kernels, an inline function and a variable of the module are declared. On the CPU each program has one
 * variable. */
#ifdef __CUDACC__
#define GPUNET_KERNEL __device__
#define GPUNET_NAME static __device__ __forceinline__
#define GPUNET_VARIABLE extern __device__
#else
#define GPUNET_KERNEL
#define GPUNET_NAME static inline
#define GPUNET_VARIABLE __attribute__((weak))
#endif
/* The default of an argument in C++. C has no defaults. */
#ifdef __cplusplus
#define GPUNET_OR(value) = value
#else
#define GPUNET_OR(value)
#endif

/* Declares a call. */
#define GPUNET_CALL(returned, name, ...) GPUNET_KERNEL returned name(gpunet_net_t net, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* The context of calls under GPUnet's names. The host sets it before the launch, by gpunet_host_bind_module, or on the CPU by
 * `gpunet_attachment = gpunet_host_token_net(token)`. */
GPUNET_VARIABLE gpunet_net_t gpunet_attachment;

/* Opening and closing, like the POSIX calls of these names. A bind, listen or connect that fails closes the socket. connect obeys
 * SO_SNDTIMEO and accept SO_RCVTIMEO. connect waits even on a non-blocking socket. */
GPUNET_CALL(int, gpunet_socket, int domain, int type, int protocol);
GPUNET_CALL(int, gpunet_bind, int socket, const struct sockaddr *addr, socklen_t len);
GPUNET_CALL(int, gpunet_listen, int socket, int backlog);
GPUNET_CALL(int, gpunet_accept, int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0));
GPUNET_CALL(int, gpunet_accept_nb, int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0));
GPUNET_CALL(int, gpunet_connect, int socket, const struct sockaddr *addr, socklen_t len);
GPUNET_CALL(int, gpunet_shutdown, int socket, int how GPUNET_OR(SHUT_RDWR));
GPUNET_CALL(int, gpunet_close, int socket);

/* Several steps in one call: make a socket and connect it; make a socket, bind it and listen. Accept with a timeout. A null pointer
 * means default options. A connect with timeout 0 is -EINVAL. */
GPUNET_CALL(int, gpunet_connect_to, const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_listen_at, const struct sockaddr *addr, socklen_t len, int backlog GPUNET_OR(128), const struct gpunet_options *options GPUNET_OR(0));
GPUNET_CALL(int, gpunet_accept_timeout, int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns);

/* GPUnet's calls: the same with default options. */
GPUNET_CALL(int, gpunet_connect_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_bind_in, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_connect_in6, const struct sockaddr_in6 *addr);
GPUNET_CALL(int, gpunet_bind_in6, const struct sockaddr_in6 *addr);

/* The same by one thread. In a warp, one lane opens or closes and shares the result. */
GPUNET_CALL(int, gpunet_connect_to_thread, const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_listen_at_thread, const struct sockaddr *addr, socklen_t len, int backlog GPUNET_OR(128), const struct gpunet_options *options GPUNET_OR(0));
GPUNET_CALL(int, gpunet_accept_timeout_thread, int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns);
GPUNET_CALL(int, gpunet_bind_in_thread, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_connect_in_thread, const struct sockaddr_in *addr);
GPUNET_CALL(int, gpunet_accept_thread, int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0));
GPUNET_CALL(int, gpunet_shutdown_thread, int socket, int how GPUNET_OR(SHUT_RDWR));
GPUNET_CALL(int, gpunet_close_thread, int socket);

/* Bytes. A send may take fewer bytes than given, but at least one. It returns when they are in the ring, not when they are
 * delivered. A receive returns the bytes that are there, at least one, and 0 at the end of the stream. With `_nb` and MSG_DONTWAIT
 * a call returns -EAGAIN instead of waiting. With MSG_WAITALL it sends or receives all bytes. With MSG_PEEK the received bytes stay,
 * and the call returns all that have come, up to the length. If a call fails after some bytes, the next call returns the error. */
GPUNET_CALL(long long, gpunet_send, int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_send_nb, int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_send_warp, int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_send_thread, int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_recv, int socket, void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_recv_nb, int socket, void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_recv_warp, int socket, void *data, unsigned long long len, int flags GPUNET_OR(0));
GPUNET_CALL(long long, gpunet_recv_thread, int socket, void *data, unsigned long long len, int flags GPUNET_OR(0));
/* The same with a timeout for the whole call. */
GPUNET_CALL(long long, gpunet_send_timeout, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_send_timeout_warp, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_send_timeout_thread, int socket, const void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout_warp, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);
GPUNET_CALL(long long, gpunet_recv_timeout_thread, int socket, void *data, unsigned long long len, int flags, long long timeout_ns);

/* Without a copy. reserve waits for free ring space and returns how many bytes of it, up to `len` and at least one, the caller may
 * write. commit sends the first `len` of them; each thread calls it after its own writes. peek shows up to `len` received bytes, at
 * least one, and returns 0 at the end of the stream. release gives the first `len` of them back. Each calling thread gets the span,
 * so the span may be a local variable. It is void after the commit or release, and after another send or receive on the socket. A
 * commit or release of more bytes than the span has is -EINVAL. peek_more is for a request that is not complete: it waits until more
 * than `have` bytes are there. At the end of the stream it shows what there is. If the ring cannot hold more than `have` bytes, it
 * returns -EMSGSIZE. */
GPUNET_CALL(long long, gpunet_reserve, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_reserve_warp, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_reserve_thread, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_commit, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_commit_warp, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_commit_thread, int socket, unsigned long long len);
GPUNET_CALL(long long, gpunet_peek, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_peek_warp, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_peek_thread, int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_peek_more, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_peek_more_warp, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(long long, gpunet_peek_more_thread, int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_release, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_release_warp, int socket, unsigned long long len);
GPUNET_CALL(int, gpunet_release_thread, int socket, unsigned long long len);

/* Messages that the host has prepared. Any block may release a trigger, also more than once; each thread calls after its own writes.
 * Triggers of a direction take effect in order: a later one publishes all before it, and one that comes too late does nothing. wait
 * returns 0 when the gate has passed, and test returns 1 (0: not yet). Then all threads see what has landed, and may use the space
 * that was released. A gate that can no longer pass is -EPIPE, -ENODATA (the stream ended before), -ECONNRESET or the socket's
 * failure. prepared_span says where a message lies in the ring, and returns its length. It does not check whether the message is
 * filled or its place free. A direction that the host has not taken, or a message longer than the ring, is -EINVAL. */
GPUNET_CALL(int, gpunet_trigger_release, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_trigger_release_warp, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_trigger_release_thread, gpunet_trigger_t trigger);
GPUNET_CALL(int, gpunet_wait, gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_wait_warp, gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_wait_thread, gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_CALL(int, gpunet_test, gpunet_gate_t gate);
GPUNET_CALL(int, gpunet_test_warp, gpunet_gate_t gate);
GPUNET_CALL(int, gpunet_test_thread, gpunet_gate_t gate);
GPUNET_CALL(long long, gpunet_prepared_span, gpunet_prepared_t message, struct gpunet_span *span);
GPUNET_CALL(long long, gpunet_prepared_span_warp, gpunet_prepared_t message, struct gpunet_span *span);
GPUNET_CALL(long long, gpunet_prepared_span_thread, gpunet_prepared_t message, struct gpunet_span *span);

/* Waits until one of many sockets, listeners included, is ready. Returns how many are ready, and 0 when the time is over. Before it
 * waits, it tells the senders what was received. */
GPUNET_CALL(int, gpunet_poll, struct pollfd *fds, unsigned long long count, long long timeout_ns);
GPUNET_CALL(int, gpunet_poll_warp, struct pollfd *fds, unsigned long long count, long long timeout_ns);
GPUNET_CALL(int, gpunet_poll_thread, struct pollfd *fds, unsigned long long count, long long timeout_ns);

/* Poll groups: epoll for blocks. poll examines every socket of its set; a wait on a group costs the same for ten sockets as for ten
 * thousand, and any number of blocks may wait. A group has up to `capacity` streams and listeners (0: as many as there are sockets).
 * A socket is in one group at most, and leaves it when it is closed.
 * ctl: GPUNET_EPOLL_ADD, _DEL, _MOD (which also arms), _REARM. `token` comes back with each event. -EEXIST: the socket is in a group
 * already. -ENOENT: it is not in this group. -ENOSPC: the group is full.
 * wait: writes up to `max` events and returns how many; 0 when the time is over. It is level-triggered. Each event goes to one block:
 * no other block gets the socket before that block waits again. The first `last` of `events` are the unchanged events of the caller's
 * last wait (0 for its first wait); their sockets are armed again. -EBADF: the group is closed.
 * An event may be out of date, so calls on a delivered socket should not wait. close leaves the sockets open; so does gclose. */
GPUNET_CALL(int, gpunet_epoll_create, unsigned int capacity GPUNET_OR(0));
GPUNET_CALL(int, gpunet_epoll_create_thread, unsigned int capacity GPUNET_OR(0));
GPUNET_CALL(int, gpunet_epoll_ctl, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_ctl_warp, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_ctl_thread, int group, int op, int socket, int events, unsigned long long token);
GPUNET_CALL(int, gpunet_epoll_wait, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_wait_warp, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_wait_thread, int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns);
GPUNET_CALL(int, gpunet_epoll_close, int group);
GPUNET_CALL(int, gpunet_epoll_close_thread, int group);

GPUNET_CALL(int, gpunet_getsockname, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getsockname_thread, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getpeername, int socket, struct sockaddr *addr, socklen_t *len);
GPUNET_CALL(int, gpunet_getpeername_thread, int socket, struct sockaddr *addr, socklen_t *len);
/* SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVBUF, SO_SNDBUF (before connect, or before listen),
 * SO_RCVLOWAT and SO_SNDLOWAT (for poll and poll groups; SO_SNDLOWAT before listen), SO_ERROR (returns each error once), SO_LINGER,
 * SO_REUSEADDR and TCP_NODELAY (both on by default), SO_KEEPALIVE, IPV6_V6ONLY, and those of SOL_GPUNET. */
GPUNET_CALL(int, gpunet_setsockopt, int socket, int level, int name, const void *value, socklen_t len);
GPUNET_CALL(int, gpunet_setsockopt_thread, int socket, int level, int name, const void *value, socklen_t len);
GPUNET_CALL(int, gpunet_getsockopt, int socket, int level, int name, void *value, socklen_t *len);
GPUNET_CALL(int, gpunet_getsockopt_thread, int socket, int level, int name, void *value, socklen_t *len);
/* FIONREAD, TIOCOUTQ (SIOCOUTQ), FIONBIO, GPUNET_SPACE. */
GPUNET_CALL(int, gpunet_ioctl, int socket, unsigned int request, int *value);
GPUNET_CALL(int, gpunet_ioctl_thread, int socket, unsigned int request, int *value);
GPUNET_CALL(int, gpunet_setnonblock, int socket, int on);

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef GPUNET_CALL

#include "gpunet/names.h"

#endif
