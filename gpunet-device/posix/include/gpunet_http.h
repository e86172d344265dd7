/* HTTP/1.1 over a stream, for kernels in CUDA C++ and on the CPU, like gpunet.h. The parser is that of the Rust crate gpunet-http.
 *
 * Each block of this server serves one connection at a time:
 *
 *     extern "C" __global__ void hello(gpunet_net_t net, int listener) {
 *         for (int client; (client = gpunet_accept(net, listener)) > 0; gpunet_close(net, client)) {
 *             struct gpunet_http_request request = {};
 *             while (gpunet_http_next(net, client, &request, nullptr, 5000000000) > 0) {
 *                 bool found = gpunet_http_is(&request, "GET", "/");
 *                 gpunet_http_answer(net, client, &request, found ? 200 : 404, "text/plain", found ? "hello\n" : "nothing\n", found ? 6 : 8);
 *             }
 *         }
 *     }
 *
 * Callers and results are those of gpunet.h: all threads of a block call next and answer, or those of a warp (`_warp`), or one thread
 * (`_thread`). Every thread that calls gets the request, so that it may be a local variable. Any thread may call the others alone.
 *
 * A request lies where it was received, with its body, so the ring has to hold all of it: a longer one is answered with 431 or 413, and
 * a body in chunks with 411. What is no request, or could be read in two ways, is answered with 4xx or 5xx by next itself. Over peer,
 * the other program can write the ring: serve programs that you do not trust over tcp. docs/servers.md has more. */
#ifndef GPUNET_HTTP_H
#define GPUNET_HTTP_H

#include "gpunet.h"

/* What requests may have; 0 is the default. */
struct gpunet_http_limits {
    unsigned int request_line;     /* bytes; beyond it 414; 8,000 */
    unsigned int head;             /* bytes, at most 32 KiB; beyond it 431; 8 KiB */
    unsigned int fields;           /* beyond it 431; 64 */
    unsigned int body;             /* bytes; beyond it 413; 1 MiB */
    unsigned long long request_ns; /* from the first byte to the last; beyond it 408; 10 s */
};

/* A part of a request: `len` bytes from byte `at` of its bytes on. */
struct gpunet_http_part {
    unsigned int at;
    unsigned int len;
};

/* A request, from next until answer. All zeros before the first call for a connection. Programs read all but `state`. */
struct gpunet_http_request {
    struct gpunet_span bytes; /* in place: as gpunet_peek shows them */
    unsigned long long len;
    struct gpunet_http_part path;   /* as it was sent: %20 is three bytes */
    struct gpunet_http_part query;  /* what follows the question mark */
    struct gpunet_http_part fields; /* lines, with the empty one behind them */
    struct gpunet_http_part body;
    unsigned int method; /* GPUNET_HTTP_GET and those after it */
    unsigned int flags;  /* GPUNET_HTTP_IS_11, GPUNET_HTTP_CLOSES */
    unsigned int state;
    unsigned int reserved;
};
#define GPUNET_HTTP_GET 0u
#define GPUNET_HTTP_HEAD 1u
#define GPUNET_HTTP_POST 2u
#define GPUNET_HTTP_PUT 3u
#define GPUNET_HTTP_DELETE 4u
#define GPUNET_HTTP_PATCH 5u
#define GPUNET_HTTP_OPTIONS 6u
#define GPUNET_HTTP_IS_11 1u  /* HTTP/1.1 and not 1.0 */
#define GPUNET_HTTP_CLOSES 2u /* the connection ends with the answer */

/* Declares a call on a stream, and one on a request. */
#define GPUNET_HTTP_CALL(returned, name, ...) GPUNET_KERNEL returned name(gpunet_net_t net, __VA_ARGS__)
#define GPUNET_HTTP_CALL0(returned, name, ...) GPUNET_KERNEL returned name(const struct gpunet_http_request *request, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* Waits for the next request of a connection. Returns 1 when there is one, and 0 when there will be none: the client has ended the
 * stream, or the connection was to end with the last answer, or what came was refused. The program then closes the socket.
 * `timeout_ns` is for the first byte, and for what is sent: -EAGAIN when it is over. From the first byte on, limits->request_ns counts.
 * -EINVAL: the last request is not answered. A null pointer means default limits. */
GPUNET_HTTP_CALL(int, gpunet_http_next, int socket, struct gpunet_http_request *request, const struct gpunet_http_limits *limits GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_HTTP_CALL(int, gpunet_http_next_warp, int socket, struct gpunet_http_request *request, const struct gpunet_http_limits *limits GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_HTTP_CALL(int, gpunet_http_next_thread, int socket, struct gpunet_http_request *request, const struct gpunet_http_limits *limits GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));

/* Answers the request and gives its bytes back. The body may be a part of the request, if that lies in one piece. HEAD gets the head
 * alone. Returns 1 if the connection goes on, and 0 if it ends. -EINVAL: there is no request, or the library has no such status.
 * -EMSGSIZE, and nothing is sent: the type (128 bytes at most) is too long. Each send waits `timeout_ns` at most; after -EAGAIN, as after
 * any other failure, the connection is to be closed. */
GPUNET_HTTP_CALL(int, gpunet_http_answer, int socket, struct gpunet_http_request *request, int status, const char *type, const void *body, unsigned long long len, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_HTTP_CALL(int, gpunet_http_answer_warp, int socket, struct gpunet_http_request *request, int status, const char *type, const void *body, unsigned long long len, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));
GPUNET_HTTP_CALL(int, gpunet_http_answer_thread, int socket, struct gpunet_http_request *request, int status, const char *type, const void *body, unsigned long long len, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT));

/* Returns whether the request has this method (GET is HEAD, too) and this path. */
GPUNET_HTTP_CALL0(int, gpunet_http_is, const char *method, const char *path);
/* Returns whether the request has a field of this name, which is given in lower case, and where the value of the first one is. */
GPUNET_HTTP_CALL0(int, gpunet_http_field, const char *name, struct gpunet_http_part *value GPUNET_OR(0));

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef GPUNET_HTTP_CALL
#undef GPUNET_HTTP_CALL0

/* Byte `at` of the request; 0 behind it. */
GPUNET_NAME unsigned char gpunet_http_byte(const struct gpunet_http_request *request, unsigned int at) {
    const struct gpunet_piece *piece = request->bytes.piece;
    unsigned long long inside = at;
    if (inside >= request->len) return 0;
    if (inside >= piece->len) {
        inside -= piece->len;
        piece++;
    }
    return ((const volatile unsigned char *)piece->data)[inside];
}

#endif
