/* The value types of gpunet, which kernels and host programs exchange. For C11, C++17 and CUDA C++ (also NVRTC). */
#ifndef GPUNET_TYPES_H
#define GPUNET_TYPES_H

/* A function that computes a value from others. */
#ifdef __CUDACC__
#define GPUNET_VALUE static __host__ __device__ __forceinline__
#else
#define GPUNET_VALUE static inline
#endif

/* How long a call waits. `timeout_ns` is in NANOseconds in every call of kernels and of host programs. 0: the call does not wait.
 * Negative: it waits without limit. Where a call says that it takes them, GPUNET_SOCKET_TIMEOUT asks the options of the socket
 * (SO_SNDTIMEO, SO_RCVTIMEO; a non-blocking socket does not wait), and GPUNET_TEAM_TIMEOUT asks the team. When the time is over,
 * connects, gpunet_host_token_wait and gpunet_host_queue_synchronize return -ETIMEDOUT; polls, of the host and of kernels, return 0;
 * all other calls return -EAGAIN. From those, -ETIMEDOUT is the connection's own. A connect with timeout 0 is -EINVAL.
 * In a structure, 0 is the default, which the comment of the member states. */
#define GPUNET_SOCKET_TIMEOUT (-0x7fffffffffffffffll - 1)
#define GPUNET_TEAM_TIMEOUT (-0x7fffffffffffffffll - 1)

/* The context of a launch: the device address at which its kernels find their sockets. The host gets it from the
 * launch's token and passes it to the kernel as a parameter. 0: no context. */
typedef unsigned long long gpunet_net_t;

/* Options of a socket that is opened. All zeros: the defaults. */
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
#define GPUNET_NO_LINES 64u /* no lines for small messages, which otherwise have them where that is faster */

/* An event that gpunet_epoll_wait has found. */
struct gpunet_event {
    unsigned long long token; /* the caller's own number for the socket */
    int socket;
    short revents; /* POLLIN, POLLOUT, POLLERR, POLLHUP, GPUNET_POLLRDHUP */
    unsigned short reserved;
    unsigned long long turn; /* number of the delivery; leave it unchanged for the next wait */
};
#define GPUNET_POLLRDHUP 0x2000
#define GPUNET_EPOLL_ADD 1
#define GPUNET_EPOLL_DEL 2
#define GPUNET_EPOLL_MOD 3
#define GPUNET_EPOLL_REARM 4

/* Bytes in place in a ring: two pieces, the second for bytes that wrap round the ring's end. They may lie in memory of the
 * host or of another GPU. Read them by plain or volatile loads, not by __ldg, through `const __restrict__` or by TMA. */
struct gpunet_piece {
    void *data;
    unsigned long long len;
};
struct gpunet_span {
    struct gpunet_piece piece[2];
};

/* Values of a direction that the host has taken. The host prepares messages in the direction's ring and passes these values to
 * kernels as parameters. Other calls on that direction, and close, return -EALREADY. GPUNET_SEND is the direction in which this end
 * sends, GPUNET_RECV the one in which it receives. Positions are bytes since the stream was opened, less than 2^61.
 *
 * A trigger publishes all bytes up to its position: those that were filled, or those that were read. A gate of a send waits until the
 * other end has released the bytes up to its position; a gate of a receive waits until they have landed. A message begins at
 * `position`. */
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

/* Values of a message. Of a send: room passes when the ring, of `ring` bytes, has room for the message, and done when the message is
 * released. Of a receive: arrived passes when the message has landed. nth is the i-th message after it, of the same length. */
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

/* A member of a team, and symmetric memory, of which every member has a part of the same size. The host makes these values. Kernels
 * may set timeout_ns, and select a part of memory by gpunet_symmetric_at. `len` is in bytes. */
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
/* Rings in which kernels record and print (gpunet_records.h). The host makes the value (gpunet_host_records_value) and passes it to
 * kernels as a parameter. All zeros: there are no rings, and nothing is written. */
typedef struct gpunet_records_t {
    unsigned long long memory; /* pinned memory, as the device has it */
    unsigned long long device; /* memory of the device */
    unsigned long long wait;   /* nanoseconds that a record waits for room; 0: without limit; 2^62: it does not wait; 2^64-1: it overwrites */
    unsigned int rings;
    unsigned int records_log2; /* records of a ring */
    unsigned int bytes_log2;   /* bytes of a record's place */
    unsigned int formats;      /* of the host's table */
    unsigned int level;        /* the least important one that is printed */
    unsigned int texts;        /* formats whose texts kernels write */
} gpunet_records_t;
/* Kinds of records: the beginning and the end of a span, whose payload is the number of the text that names it; and a counter, with its
 * value of eight bytes behind that number. A kernel's own kinds are 1 to 32751. */
#define GPUNET_RECORD_BEGIN 32752u
#define GPUNET_RECORD_END 32753u
#define GPUNET_RECORD_COUNT 32754u
/* The way to functions of the host program (gpunet_calls.h). The host makes the value (gpunet_host_calls_value) and passes it to
 * kernels as a parameter. All zeros: there are no functions, and gpunet_caller_open fails. */
typedef struct gpunet_calls_t {
    unsigned long long memory; /* pinned memory, as the device has it */
    unsigned long long device; /* memory of the device */
    unsigned int channels;
    unsigned int tickets_log2; /* calls in flight of a channel */
    unsigned int request_log2; /* bytes of a request's place */
    unsigned int answer_log2;
} gpunet_calls_t;
/* Levels of printed lines; the first is the most important. */
#define GPUNET_ERROR 1
#define GPUNET_WARN 2
#define GPUNET_INFO 3
#define GPUNET_DEBUG 4
#define GPUNET_TRACE 5
/* The largest value of a signal. */
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

/* The same team, with a timeout in nanoseconds after which waits end with -EAGAIN; 0, the default: waits never time out. */
GPUNET_VALUE gpunet_team_t gpunet_team_timeout(gpunet_team_t team, unsigned long long ns) {
    team.timeout_ns = ns;
    return team;
}
/* The `len` bytes from `start` on, as far as the memory reaches. */
GPUNET_VALUE gpunet_symmetric_t gpunet_symmetric_at(gpunet_symmetric_t memory, unsigned long long start, unsigned long long len) {
    start = start < memory.len ? start : memory.len;
    memory.offset += start;
    memory.len = len < memory.len - start ? len : memory.len - start;
    return memory;
}

#endif
