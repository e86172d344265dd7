/* Calls of functions of the host program, for kernels in CUDA C++ and on the CPU, like gpunet.h. docs/calls.md leads through it.
 *
 * A kernel calls a function that the host program has registered (gpunet_host_calls), with bytes in and bytes out, and waits for the
 * answer or does something else meanwhile. The way to the host is a parameter of the kernel:
 *
 *     extern "C" __global__ void work(gpunet_net_t net, gpunet_calls_t calls) {
 *         struct gpunet_caller caller;
 *         if (gpunet_caller_open(net, calls, &caller) != 0) return;
 *         unsigned int row = blockIdx.x;
 *         float found[4];
 *         long long len = gpunet_call(net, &caller, gpunet_function("look_up"), &row, sizeof row, found, sizeof found, 10000000);
 *         if (len == sizeof found) use(found);
 *         gpunet_caller_close(net, &caller);
 *     }
 *
 * Callers and results are those of gpunet.h: all threads of a block call, at the same point and with the same arguments, or those of a
 * warp (`_warp`), or one thread (`_thread`), and all of them get the same result. A caller and a ticket are local variables of each
 * thread, equal in all of them. A request may be shared by the threads, or be a local variable with the same contents in each. So may
 * the room for an answer: every thread writes all of the answer.
 *
 * A request has at most 1012 bytes, an answer 1020, and both at most as many as the longest ones of the functions that are registered.
 *
 * -EAGAIN: the time is over. -EOPNOTSUPP: there is no function of that number. -EMSGSIZE: the request is longer than the function
 * takes, or the answer longer than the room for it; or the function was registered in Rust with types of other lengths. -ENOBUFS: all
 * tickets of the caller are in use. -ECONNABORTED: the function was dropped without an answer, or panicked. -ENETDOWN: the host serves
 * no more calls, or there is no context. -EINVAL: the caller is not open, or the ticket's answer was taken or given up. -EFAULT: a
 * null pointer. -EPROTO: the memory of the calls was overwritten. -ECANCELED: the launch was cancelled. Else it is the function's own
 * error. */
#ifndef GPUNET_CALLS_H
#define GPUNET_CALLS_H

#include "gpunet.h"

/* What the threads of a group call by: a channel of their own, from open to close. Programs read nothing in it. */
struct gpunet_caller {
    gpunet_calls_t calls;
    gpunet_net_t net;
    unsigned long long next;
    unsigned long long room;
    unsigned long long busy;
    unsigned int channel;
    unsigned int reserved;
};

/* A call that was started. */
struct gpunet_ticket {
    unsigned int channel;
    unsigned int slot; /* all ones: its answer was taken or given up */
    unsigned long long number;
};

/* The number of a function that the host has registered by a name. A compiler computes it if the name is a constant. The host's own
 * numbers are below 2^30. */
#ifdef __cplusplus
constexpr
#endif
GPUNET_VALUE unsigned int gpunet_function(const char *name) {
    unsigned int hash = 0x811c9dc5u;
    for (; *name != 0; name++) hash = (hash ^ (unsigned char)*name) * 0x01000193u;
    return 1u << 30 | hash >> 2;
}

/* Declares a call. */
#define GPUNET_CALLS_CALL(returned, name, ...) GPUNET_KERNEL returned name(gpunet_net_t net, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* Takes a channel that no other caller has. -ENOBUFS: all of them are taken, or there are none; the host makes one for each group that
 * has a caller at a time. */
GPUNET_CALLS_CALL(int, gpunet_caller_open, gpunet_calls_t calls, struct gpunet_caller *caller);
GPUNET_CALLS_CALL(int, gpunet_caller_open_warp, gpunet_calls_t calls, struct gpunet_caller *caller);
GPUNET_CALLS_CALL(int, gpunet_caller_open_thread, gpunet_calls_t calls, struct gpunet_caller *caller);

/* Calls a function and waits for its answer, of which there is room for `room` bytes. Returns how many it has. When the time is over,
 * which counts from the call on, it is given up: the function may still run, and nobody gets its answer. */
GPUNET_CALLS_CALL(long long, gpunet_call, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, void *answer, unsigned long long room, long long timeout_ns);
GPUNET_CALLS_CALL(long long, gpunet_call_warp, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, void *answer, unsigned long long room, long long timeout_ns);
GPUNET_CALLS_CALL(long long, gpunet_call_thread, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, void *answer, unsigned long long room, long long timeout_ns);

/* Calls a function and returns at once; the ticket is for gpunet_call_wait. The request may change afterwards. A caller has as many
 * tickets as the host's settings say, at most 64. `timeout_ns` is for the case that the host has not yet read the requests before. */
GPUNET_CALLS_CALL(int, gpunet_call_start, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, unsigned long long room, struct gpunet_ticket *ticket, long long timeout_ns);
GPUNET_CALLS_CALL(int, gpunet_call_start_warp, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, unsigned long long room, struct gpunet_ticket *ticket, long long timeout_ns);
GPUNET_CALLS_CALL(int, gpunet_call_start_thread, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, unsigned long long room, struct gpunet_ticket *ticket, long long timeout_ns);

/* Waits for the answer of a started call, and returns how many bytes it has. Tickets may be waited for in any order. When the time is
 * over (0: it does not wait), the ticket stays valid: wait again, or give it up. After any other result it is done. */
GPUNET_CALLS_CALL(long long, gpunet_call_wait, struct gpunet_caller *caller, struct gpunet_ticket *ticket, void *answer, unsigned long long room, long long timeout_ns);
GPUNET_CALLS_CALL(long long, gpunet_call_wait_warp, struct gpunet_caller *caller, struct gpunet_ticket *ticket, void *answer, unsigned long long room, long long timeout_ns);
GPUNET_CALLS_CALL(long long, gpunet_call_wait_thread, struct gpunet_caller *caller, struct gpunet_ticket *ticket, void *answer, unsigned long long room, long long timeout_ns);

/* Calls a function whose answer nobody wants. Nothing says whether it ran. */
GPUNET_CALLS_CALL(int, gpunet_call_tell, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, long long timeout_ns);
GPUNET_CALLS_CALL(int, gpunet_call_tell_warp, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, long long timeout_ns);
GPUNET_CALLS_CALL(int, gpunet_call_tell_thread, struct gpunet_caller *caller, unsigned int function, const void *request, unsigned long long len, long long timeout_ns);

/* Gives the channel back, for another group. Answers that have not come are given up. A group that ends without it keeps its channel
 * until the host makes the calls anew. */
GPUNET_CALLS_CALL(int, gpunet_caller_close, struct gpunet_caller *caller);
GPUNET_CALLS_CALL(int, gpunet_caller_close_warp, struct gpunet_caller *caller);
GPUNET_CALLS_CALL(int, gpunet_caller_close_thread, struct gpunet_caller *caller);

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef GPUNET_CALLS_CALL

/* Gives a started call up: its ticket is free for another call. The function may still run, and its answer is dropped. */
GPUNET_NAME void gpunet_call_give_up(struct gpunet_caller *caller, struct gpunet_ticket *ticket) {
    if (ticket->slot < 64 && ticket->channel == caller->channel) caller->busy &= ~(1ull << ticket->slot);
    ticket->slot = ~0u;
}

/* The number of the host's resolver of names. It is there if the host has asked for it (GPUNET_HOST_CALLS_NAMES). */
#define GPUNET_RESOLVE 0xffffffffu

/* What the resolver gets, and what it gives: the port in host byte order, the address in network byte order. */
struct gpunet_name_request {
    unsigned short len, port;
    unsigned char name[256];
};
struct gpunet_name_answer {
    unsigned short family, port;
    unsigned int flow, scope, reserved;
    unsigned char ip[16];
};

/* Makes a request of a name. -EINVAL: it is empty; -ENAMETOOLONG: it has more than 253 bytes. */
GPUNET_NAME int gpunet_name_set(struct gpunet_name_request *request, const char *name, unsigned short port) {
    unsigned int len = 0;
    if (name == 0) return -EFAULT;
    for (; name[len] != 0; len++) {
        if (len == 253) return -ENAMETOOLONG;
        request->name[len] = (unsigned char)name[len];
    }
    request->len = (unsigned short)len, request->port = port;
    for (unsigned int at = len; at < sizeof request->name; at++) request->name[at] = 0;
    return len == 0 ? -EINVAL : 0;
}

/* Makes a socket address of an answer, or of the errno in its place. */
GPUNET_NAME int gpunet_name_take(long long got, const struct gpunet_name_answer *answer, struct sockaddr_in6 *addr, socklen_t *len) {
    unsigned short port;
    if (got < 0) return (int)got;
    if (got != sizeof *answer) return -EPROTO;
    port = (unsigned short)(answer->port >> 8 | answer->port << 8);
    if (answer->family == AF_INET) {
        struct sockaddr_in v4;
        v4.sin_family = AF_INET, v4.sin_port = port, v4.sin_addr.s_addr = 0;
        for (int at = 0; at < 4; at++) v4.sin_addr.s_addr |= (unsigned int)answer->ip[at] << (8 * at);
        for (int at = 0; at < 8; at++) v4.sin_zero[at] = 0;
        for (unsigned int at = 0; at < sizeof v4; at++) ((unsigned char *)addr)[at] = ((const unsigned char *)&v4)[at];
        *len = sizeof v4;
        return 0;
    }
    if (answer->family != AF_INET6) return -EADDRNOTAVAIL;
    addr->sin6_family = AF_INET6, addr->sin6_port = port, addr->sin6_flowinfo = answer->flow, addr->sin6_scope_id = answer->scope;
    for (int at = 0; at < 16; at++) addr->sin6_addr.s6_addr[at] = answer->ip[at];
    *len = sizeof *addr;
    return 0;
}

#define GPUNET_RESOLVE_BY(call)                                                                      \
    struct gpunet_name_request request;                                                              \
    struct gpunet_name_answer answer;                                                                \
    const int code = addr == 0 || len == 0 ? -EFAULT : gpunet_name_set(&request, name, port);        \
    if (code < 0) return code;                                                                       \
    return gpunet_name_take(                                                                         \
        call(net, caller, GPUNET_RESOLVE, &request, sizeof request, &answer, sizeof answer, timeout_ns), &answer, addr, len)

/* Asks the host's resolver for the first address of a name, such as "localhost", or of an address in words. `*addr` gets the address
 * with the port, IPv4's or IPv6's, and `*len` its length: gpunet_connect_to takes both. -EADDRNOTAVAIL: no address has that name.
 * -ENAMETOOLONG: it has more than 253 bytes. -EINVAL: it is empty, or no UTF-8. -EOPNOTSUPP or -EMSGSIZE: the host
 * resolves no names. */
GPUNET_NAME int gpunet_resolve(gpunet_net_t net, struct gpunet_caller *caller, const char *name, unsigned short port, struct sockaddr_in6 *addr, socklen_t *len, long long timeout_ns) {
    GPUNET_RESOLVE_BY(gpunet_call);
}
GPUNET_NAME int gpunet_resolve_warp(gpunet_net_t net, struct gpunet_caller *caller, const char *name, unsigned short port, struct sockaddr_in6 *addr, socklen_t *len, long long timeout_ns) {
    GPUNET_RESOLVE_BY(gpunet_call_warp);
}
GPUNET_NAME int gpunet_resolve_thread(gpunet_net_t net, struct gpunet_caller *caller, const char *name, unsigned short port, struct sockaddr_in6 *addr, socklen_t *len, long long timeout_ns) {
    GPUNET_RESOLVE_BY(gpunet_call_thread);
}
#undef GPUNET_RESOLVE_BY

#endif
