/* gpunet's value types: what kernels and host programs hand each other. For C11, C++17 and CUDA C++ (NVRTC, too). */
#ifndef GPUNET_TYPES_H
#define GPUNET_TYPES_H

/* A function that makes one value of others. */
#ifdef __CUDACC__
#define GPUNET_VALUE static __host__ __device__ __forceinline__
#else
#define GPUNET_VALUE static inline
#endif

/* How long a call waits: `timeout_ns` is in NANOseconds in every call, of kernels and of host programs. 0: not at all. Negative:
 * without limit. GPUNET_SOCKET_TIMEOUT: as the options of the socket say (SO_SNDTIMEO, SO_RCVTIMEO; not at all if it is
 * non-blocking), and GPUNET_TEAM_TIMEOUT: as the team says; both only where the call says that it takes them. When the time is
 * over, connects, gpunet_host_token_wait and gpunet_host_queue_synchronize return -ETIMEDOUT, gpunet_host_poll returns 0 (the
 * kernels' poll, too), and all others return -EAGAIN. (-ETIMEDOUT of those is the connection's own.)
 * In a structure, 0 is the default: what its comment says. */
#define GPUNET_SOCKET_TIMEOUT (-0x7fffffffffffffffll - 1)
#define GPUNET_TEAM_TIMEOUT (-0x7fffffffffffffffll - 1)

/* The context of a launch: the device address by which its kernels find their sockets. The host gets it from the
 * launch's token and passes it to the kernel as a parameter. 0: none. */
typedef unsigned long long gpunet_net_t;

/* What a socket is opened with. All zeros: the defaults. */
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

/* What gepoll_wait has found. */
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

/* Bytes of a ring, where they lie: two pieces, the second for what wraps round the ring's end. They may be memory of
 * the host or of another GPU. Read them by plain or volatile loads: not by __ldg, not through `const __restrict__`,
 * and not by TMA. */
struct gpunet_piece {
    void *data;
    unsigned long long len;
};
struct gpunet_span {
    struct gpunet_piece piece[2];
};

/* A direction that the host has taken, which prepares messages in its ring and passes these values to kernels as
 * parameters. Other calls on that direction, and close, return -EALREADY. Directions: what this end sends, and what it
 * receives. Positions are bytes since the stream was opened, less than 2^61.
 *
 * A trigger publishes up to its position: what was filled, or what was read. A gate waits until the other end has
 * released so much (of a send), or so much has landed (of a receive). A message begins at `position`. */
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

/* What a message makes. room and done are of a send, arrived is of a receive: the ring of `ring` bytes has room for
 * the message; the message is released; it has landed. nth is the i-th message after it, of the same length. */
GPUNET_VALUE gpunet_trigger_t gpunet_prepared_trigger(gpunet_prepared_t m) {
    gpunet_trigger_t trigger = {m.socket, m.direction, m.position + m.len};
    return trigger;
}
GPUNET_VALUE gpunet_gate_t gpunet_prepared_done(gpunet_prepared_t m) {
    gpunet_gate_t gate = {m.socket, m.direction, m.position + m.len};
    return gate;
}
GPUNET_VALUE gpunet_gate_t gpunet_prepared_arrived(gpunet_prepared_t m) {
    return gpunet_prepared_done(m);
}
GPUNET_VALUE gpunet_gate_t gpunet_prepared_room(gpunet_prepared_t m, unsigned long long ring) {
    gpunet_gate_t gate = gpunet_prepared_done(m);
    gate.position = gate.position > ring ? gate.position - ring : 0;
    return gate;
}
GPUNET_VALUE gpunet_prepared_t gpunet_prepared_nth(gpunet_prepared_t m, unsigned long long i) {
    m.position += i * m.len;
    return m;
}

/* A member of a team, and symmetric memory: the same bytes in the part of every member. Values that the host makes. Kernels
 * may set timeout_ns, and take a part of memory by gpunet_symmetric_at. `len` is in bytes. */
typedef struct gpunet_team_t {
    unsigned long long net;
    unsigned long long state;
    unsigned long long timeout_ns; /* of waits; 0: none */
    unsigned int rank;
    unsigned int size;
} gpunet_team_t;
typedef struct gpunet_symmetric_t {
    unsigned long long team;
    unsigned long long parts;
    unsigned long long offset;
    unsigned long long len;
} gpunet_symmetric_t;
/* Values of signals are at most this. */
#define GPUNET_MAX_SIGNAL 0x1fffffffffffffffull
/* Operations and types of gpunet_reduce. */
#define GPUNET_SUM 1
#define GPUNET_MIN 2
#define GPUNET_MAX 3
#define GPUNET_INT32 1
#define GPUNET_UINT32 2
#define GPUNET_INT64 3
#define GPUNET_UINT64 4
#define GPUNET_FLOAT 5
#define GPUNET_DOUBLE 6
#define GPUNET_HALF 7
#define GPUNET_BFLOAT16 8

/* The same team whose waits end with -EAGAIN after so many nanoseconds; 0: never, as it is at first. */
GPUNET_VALUE gpunet_team_t gpunet_team_timeout(gpunet_team_t team, unsigned long long ns) {
    team.timeout_ns = ns;
    return team;
}
/* `len` bytes from `start`, cut to what is there. */
GPUNET_VALUE gpunet_symmetric_t gpunet_symmetric_at(gpunet_symmetric_t memory, unsigned long long start, unsigned long long len) {
    start = start < memory.len ? start : memory.len;
    memory.offset += start;
    memory.len = len < memory.len - start ? len : memory.len - start;
    return memory;
}

#endif
