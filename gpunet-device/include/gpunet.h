/* gpunet: sockets for GPU kernels, for CUDA C++.
 *
 * Compile the kernels with relocatable device code and link them with gpunet's PTX
 * (gpunet-device/ptx/gpunet_device.ptx), at build time or at run time; then let the host bind the
 * attachment to the linked module, which sets its variable `gpunet_attachment`.
 * gpunet_echo_client.cu of the examples is a complete kernel and shows both ways. The library's functions
 * use up to 255 registers; for blocks of more than 256 threads compile its PTX with
 * `ptxas -maxrregcount=64` (or CU_JIT_MAX_REGISTERS).
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
 * connecting it.
 * -EMFILE: all socket slots are in use. -ENFILE: the proxy has no file descriptor left.
 * -ENETDOWN: no attachment is bound to the module, or the proxy has stopped or gave no sign of life while
 * the call waited. If the proxy resumes, the call can be repeated.
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
enum { MSG_PEEK = 0x2, MSG_DONTWAIT = 0x40, MSG_WAITALL = 0x100 };
enum { SHUT_RD = 0, SHUT_WR = 1, SHUT_RDWR = 2 };
enum { POLLIN = 1, POLLOUT = 4, POLLERR = 8, POLLHUP = 16, POLLNVAL = 32 };
enum {
    SOL_SOCKET = 1, SO_REUSEADDR = 2, SO_TYPE = 3, SO_ERROR = 4, SO_SNDBUF = 7, SO_RCVBUF = 8, SO_KEEPALIVE = 9,
    SO_LINGER = 13, SO_RCVTIMEO = 20, SO_SNDTIMEO = 21, SO_ACCEPTCONN = 30, TCP_NODELAY = 1, IPV6_V6ONLY = 26
};
enum { FIONREAD = 0x541b, TIOCOUTQ = 0x5411, FIONBIO = 0x5421 };
enum {
    EBADF = 9, EAGAIN = 11, EINVAL = 22, ENFILE = 23, EMFILE = 24, EPIPE = 32, EPROTO = 71, EADDRINUSE = 98,
    ENETDOWN = 100, ECONNRESET = 104, ENOBUFS = 105, ENOTCONN = 107, ETIMEDOUT = 110, ECONNREFUSED = 111,
    EALREADY = 114, ECANCELED = 125
};
#endif

/* Protocols of gsocket: 0 lets gpunet choose, IPPROTO_TCP is TCP alone, these are same-host alone and RDMA (rsocket) alone. */
#define GPUNET_PROTO_PEER 0x6701
#define GPUNET_PROTO_RC 0x6702
/* gpunet's own option level and options (int): non-blocking; transport (0 auto, 1 tcp, 2 peer, 3 rc). */
#define SOL_GPUNET 0x6770
#define GPUNET_NONBLOCK 1
#define GPUNET_TRANSPORT 2

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

extern "C" {

/* Opening and closing, as the POSIX calls of these names. After a failed gbind, glisten or gconnect
 * the socket is closed. gconnect and gaccept obey SO_SNDTIMEO and SO_RCVTIMEO; gconnect waits even
 * on a non-blocking socket. */
__device__ int gsocket(int domain, int type, int protocol);
__device__ int gbind(int socket, const struct sockaddr *addr, socklen_t len);
__device__ int glisten(int socket, int backlog);
__device__ int gaccept(int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
__device__ int gaccept_nb(int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
__device__ int gconnect(int socket, const struct sockaddr *addr, socklen_t len);
__device__ int gshutdown(int socket, int how = SHUT_RDWR);
__device__ int gclose(int socket);

/* GPUnet's: make a socket and connect it; make one, bind it and listen. */
__device__ int gconnect_in(const struct sockaddr_in *addr);
__device__ int gbind_in(const struct sockaddr_in *addr);
__device__ int gconnect_in6(const struct sockaddr_in6 *addr);
__device__ int gbind_in6(const struct sockaddr_in6 *addr);

/* By one thread. */
__device__ int single_thread_gbind_in(const struct sockaddr_in *addr);
__device__ int single_thread_gconnect_in(const struct sockaddr_in *addr);
__device__ int single_thread_gaccept(int socket, struct sockaddr *addr = 0, socklen_t *len = 0);
__device__ int single_thread_gshutdown(int socket, int how = SHUT_RDWR);
__device__ int single_thread_gclose(int socket);

/* Bytes. A send may take fewer than given (at least one): it returns once they are in the ring, not
 * once they are delivered. A receive returns what is there (at least one), and 0 at the end of the
 * stream. `_nb` and MSG_DONTWAIT: -EAGAIN instead of waiting. MSG_WAITALL: all of it, in both
 * directions. MSG_PEEK: the received bytes stay; the call returns all that has come, up to the length. */
__device__ long long gsend(int socket, const void *data, unsigned long long len, int flags = 0);
__device__ long long gsend_nb(int socket, const void *data, unsigned long long len, int flags = 0);
__device__ long long gsend_warp(int socket, const void *data, unsigned long long len, int flags = 0);
__device__ long long gsend_thread(int socket, const void *data, unsigned long long len, int flags = 0);
__device__ long long grecv(int socket, void *data, unsigned long long len, int flags = 0);
__device__ long long grecv_nb(int socket, void *data, unsigned long long len, int flags = 0);
__device__ long long grecv_warp(int socket, void *data, unsigned long long len, int flags = 0);
__device__ long long grecv_thread(int socket, void *data, unsigned long long len, int flags = 0);

/* Waits for one of many sockets, listeners too; returns how many are ready. The timeout is in
 * NANOseconds; negative: none; 0: do not wait. Before it waits, it announces to the senders what was received. */
__device__ int gpoll(struct pollfd *fds, unsigned long long count, long long timeout_ns);

__device__ int ggetsockname(int socket, struct sockaddr *addr, socklen_t *len);
__device__ int ggetpeername(int socket, struct sockaddr *addr, socklen_t *len);
/* SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVBUF, SO_SNDBUF (before gconnect, or before glisten),
 * SO_ERROR (each error once), SO_LINGER, SO_REUSEADDR and TCP_NODELAY (both on by default),
 * SO_KEEPALIVE, IPV6_V6ONLY, and SOL_GPUNET's. */
__device__ int gsetsockopt(int socket, int level, int name, const void *value, socklen_t len);
__device__ int ggetsockopt(int socket, int level, int name, void *value, socklen_t *len);
/* FIONREAD, TIOCOUTQ (SIOCOUTQ), FIONBIO. */
__device__ int gioctl(int socket, unsigned int request, int *value);
__device__ int gsetnonblock(int socket, int on);

} /* extern "C" */

#endif
