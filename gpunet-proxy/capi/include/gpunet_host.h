/* gpunet_host.h: sockets for GPU kernels, the host's side, for C and C++.
 *
 * Made by cbindgen from gpunet-proxy/capi, where it is changed. docs/c-host.md leads through it.
 *
 * Names. Every name begins with gpunet_host or GPUNET_HOST, so this header and gpunet.h, which is for device code, may be
 * included in one file.
 *
 * Results. A call returns 0, a number, or a negative Linux errno (-EAGAIN, ...). gpunet_host_last_error returns the reason in
 * words, for the thread that made the call. A call that fails leaves its outputs as they were, unless its comment says more.
 *
 * Handles. What a call makes (gpunet_host_*_t *) is a handle: a value that is never dereferenced, by the library or the
 * program. NULL, a handle that was closed, one of another kind and one that was made up all give -EBADF. A closed handle's value
 * is not used again. Every handle is closed by the call that its maker's comment names. Handles may be closed in any order: what
 * was made from one keeps what it needs.
 *
 * Threads. Every call may be made by any thread, with the same handles at the same time, unless its comment says more. After
 * fork(2) the child makes no calls. Signals do not interrupt calls that wait.
 *
 * Pointers. A pointer to data is used during the call only, and must be valid for as many bytes as the call says, aligned for
 * its type. NULL where something must be is -EFAULT. A text is UTF-8, ends with a NUL, and stays the caller's. The library
 * keeps no pointer of the program's but `user`, `argument`, and the CUDA context.
 *
 * Errors that every call may return beside its own: -EBADF, -EFAULT, -ENOMEM, -ENFILE (16 million handles are open), and
 * -ENOTRECOVERABLE, which is a fault in the library.
 */


#ifndef GPUNET_HOST_H
#define GPUNET_HOST_H

#include <poll.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/**
 * The version of this interface. It rises when a call or a structure of this header changes or goes; calls that are
 * added do not change it.
 */
#define GPUNET_HOST_ABI_VERSION 1

/**
 * The level of gpunet's own socket options.
 */
#define GPUNET_HOST_SOL_GPUNET 26480

/**
 * Option of that level (int): calls do not wait.
 */
#define GPUNET_HOST_NONBLOCK 1

/**
 * Option of that level (int): what may carry the socket, or of a stream, what does. One of GPUNET_HOST_TRANSPORT_*.
 */
#define GPUNET_HOST_TRANSPORT 2

/**
 * The same host if the listener is under this proxy, RDMA to a destination known to speak it, else TCP.
 */
#define GPUNET_HOST_TRANSPORT_AUTO 0

/**
 * TCP.
 */
#define GPUNET_HOST_TRANSPORT_TCP 1

/**
 * Both ends under one proxy, through memory.
 */
#define GPUNET_HOST_TRANSPORT_PEER 2

/**
 * RDMA, as librdmacm's rsockets.
 */
#define GPUNET_HOST_TRANSPORT_RC 3

/**
 * The sockets that a launch left open stay open, for later kernels of the device.
 */
#define GPUNET_HOST_KEEP 0

/**
 * They are closed: what was sent is still delivered.
 */
#define GPUNET_HOST_CLOSE 1

/**
 * They are reset.
 */
#define GPUNET_HOST_RESET 2

/**
 * Errors: something failed that nobody asked about.
 */
#define GPUNET_HOST_LOG_ERROR 1

/**
 * Warnings: something works less well than it could.
 */
#define GPUNET_HOST_LOG_WARN 2

/**
 * What an operator does or has to know; nothing per connection.
 */
#define GPUNET_HOST_LOG_INFO 3

/**
 * What explains a behaviour.
 */
#define GPUNET_HOST_LOG_DEBUG 4

/**
 * Everything.
 */
#define GPUNET_HOST_LOG_TRACE 5

/**
 * The sockets of one device in a proxy. Any thread may use it.
 */
typedef struct gpunet_host_attachment_t gpunet_host_attachment_t;

/**
 * A piece of a device's memory. Any thread may use it.
 */
typedef struct gpunet_host_buffer_t gpunet_host_buffer_t;

/**
 * A proxy: the threads that serve devices, in this process or in a daemon. Any thread may use it.
 */
typedef struct gpunet_host_proxy_t gpunet_host_proxy_t;

/**
 * A socket of the program, over any transport. Any thread may use it; one may send while another receives.
 */
typedef struct gpunet_host_socket_t gpunet_host_socket_t;

/**
 * A launch: the kernels that are started with its net value, cancelled and finished together. Any thread may use it.
 */
typedef struct gpunet_host_token_t gpunet_host_token_t;

/**
 * How an attachment ended.
 */
typedef struct gpunet_host_close_report {
    /**
     * Bytes that a send accepted and that did not reach the peer, over the attachment's whole life.
     */
    uint64_t undelivered;
    /**
     * Streams that had not ended when the linger time was over.
     */
    uint64_t unfinished;
} gpunet_host_close_report;

/**
 * A socket that gpunet_host_poll is asked about.
 */
typedef struct gpunet_host_pollfd {
    /**
     * The socket; NULL: none.
     */
    struct gpunet_host_socket_t *socket;
    /**
     * What is asked: POLLIN, POLLOUT.
     */
    short events;
    /**
     * What was found: these, and POLLERR, POLLHUP, POLLNVAL.
     */
    short revents;
} gpunet_host_pollfd;

/**
 * A C function that runs as a kernel on the CPU: once for each of `blocks` thread blocks, each of which is a thread. It gets
 * the token's net value, its own number from 0, and the launch's `argument`. Its stack has 256 KiB. No C++ exception may
 * leave it.
 */
typedef void (*gpunet_host_kernel_fn)(uint64_t net, uint32_t block, uint32_t blocks, void *argument);

/**
 * A kernel that is to run at the same time as others.
 */
typedef struct gpunet_host_kernel {
    /**
     * The kernel: a CUfunction, or a cudaFunction_t (cudaGetFuncBySymbol).
     */
    void *function;
    /**
     * Its name, for messages; may be NULL.
     */
    const char *name;
    /**
     * How many thread blocks it has.
     */
    uint64_t blocks;
    /**
     * How many threads a block has.
     */
    uint32_t threads;
    /**
     * Dynamic shared memory, bytes per block.
     */
    uint32_t shared_bytes;
} gpunet_host_kernel;

/**
 * Takes one event of the log: its level (GPUNET_HOST_LOG_ERROR to _TRACE), the module that wrote it, and the text in one
 * line. Both texts are valid during the call only.
 *
 * It runs on any thread, also on several at a time, and must return soon. It must not call gpunet_host_set_log.
 */
typedef void (*gpunet_host_log_fn)(int level, const char *module, const char *text, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the library's version, such as "0.1.0". The text lives as long as the library.
 */
const char *gpunet_host_version(void);

/**
 * Returns the library's GPUNET_HOST_ABI_VERSION. A program that was compiled with another one must not go on.
 */
uint32_t gpunet_host_abi_version(void);

/**
 * Returns why the last call of this thread that failed did so, in words; "" if none did. Never NULL.
 *
 * The text belongs to the library. It is valid until this thread calls this function again, or ends.
 */
const char *gpunet_host_last_error(void);

/**
 * Gives back a text that a call of this library allocated for the caller. NULL is fine.
 */
void gpunet_host_free_string(char *text);

/**
 * Starts a proxy in this process.
 *
 * `settings` is TOML, one `key = value` a line; NULL means the defaults. The keys: sockets, controls, shared_rings,
 * device_rings (bytes), threads, cpus ("2-5,8"), spin_us, latency_us, heartbeat_ms, linger_s, rc ("system", "off"), placement
 * ("auto", "pinned", "dma-buf", "peer-mem"), rc_peers (["192.0.2.1"]), rc_keepalive_ms. docs/operations.md explains them.
 *
 * On success `*proxy` is a handle that gpunet_host_proxy_close ends.
 * Errors: -EINVAL for settings, with the line or the key and what is expected; the system's, when it refuses a thread.
 */
int gpunet_host_embed(const char *settings,
                      struct gpunet_host_proxy_t **proxy);

/**
 * Joins the daemon (gpunetd) that listens at `path`; NULL is where it listens by default. Of the settings only sockets,
 * controls, shared_rings, device_rings and placement are the program's; the others are the daemon's. Waits for the daemon's
 * answer.
 *
 * On success `*proxy` is a handle that gpunet_host_proxy_close ends.
 * Errors: -ENOENT or -ECONNREFUSED when no daemon is there; -EACCES and others when it refuses; -EPROTONOSUPPORT when it is of
 * another version; -EINVAL for settings.
 */
int gpunet_host_attach(const char *path,
                       const char *settings,
                       struct gpunet_host_proxy_t **proxy);

/**
 * Joins the daemon as gpunet_host_attach does if one listens there, else starts a proxy in this process.
 * gpunet_host_proxy_is_daemon tells which of the two happened.
 *
 * Errors: as gpunet_host_attach and gpunet_host_embed. A daemon that refuses is an error.
 */
int gpunet_host_open(const char *path, const char *settings, struct gpunet_host_proxy_t **proxy);

/**
 * Returns 1 for a daemon, 0 for a proxy in this process.
 *
 * Errors: -EBADF.
 */
int gpunet_host_proxy_is_daemon(const struct gpunet_host_proxy_t *proxy);

/**
 * Describes the proxy as a JSON object: "data_threads", and "daemon", which is null or has "path", "pid", "version",
 * "heartbeat_ms" and "linger_ms".
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF, -ENOMEM.
 */
int gpunet_host_proxy_json(const struct gpunet_host_proxy_t *proxy, char **json);

/**
 * Describes what the proxy holds at this moment as a JSON object: totals, clients, sockets and data threads, as
 * `gpunetctl ss --json` prints them. A daemon shows what this user may see. Waits for the control plane's answer.
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF; -ETIMEDOUT when the control plane does not answer; the system's, when a daemon cannot be asked; -ENOMEM.
 */
int gpunet_host_snapshot_json(const struct gpunet_host_proxy_t *proxy,
                              char **json);

/**
 * Stops the proxy at once, without delivering anything: every socket reports ENETDOWN, and calls that wait return it. A
 * daemon continues to run; to it this program seems to have been killed. The handles stay open, to be closed.
 *
 * Errors: -EBADF.
 */
int gpunet_host_proxy_abort(const struct gpunet_host_proxy_t *proxy);

/**
 * Closes the handle. A proxy in this process stops when its last attachment is closed too.
 *
 * Errors: -EBADF.
 */
int gpunet_host_proxy_close(struct gpunet_host_proxy_t *proxy);

/**
 * Attaches the CPU device: host sockets, and C functions as kernels (gpunet_host_token_launch). It needs no GPU.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends.
 * Errors: -EBADF; -ENOMEM when there is not enough memory for the rings; -ENETDOWN after gpunet_host_proxy_abort; a daemon's
 * refusal.
 */
int gpunet_host_attach_cpu(const struct gpunet_host_proxy_t *proxy,
                           struct gpunet_host_attachment_t **attachment);

/**
 * Attaches the GPU of a CUDA context of the program. `context` is a CUcontext. It stays live until the attachment and all
 * tokens and buffers made from it are closed. CUDA is opened now, at run time; the program may use any version.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends.
 * Errors: -EBADF; -EINVAL for a NULL context; -ENODEV when there is no CUDA driver; -EIO with CUDA's error; -ENOMEM; -ENETDOWN; a
 * daemon's refusal.
 */
int gpunet_host_attach_cuda(const struct gpunet_host_proxy_t *proxy,
                            void *context,
                            struct gpunet_host_attachment_t **attachment);

/**
 * Attaches GPU number `device` in its primary context, the one that the CUDA runtime uses (cudaSetDevice). The context is
 * retained until the attachment and all tokens and buffers made from it are closed.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends.
 * Errors: as gpunet_host_attach_cuda.
 */
int gpunet_host_attach_cuda_device(const struct gpunet_host_proxy_t *proxy,
                                   int device,
                                   struct gpunet_host_attachment_t **attachment);

/**
 * Describes the attachment as a JSON object: "device" ("cpu" or the GPU's name); the totals "opened", "closed" (streams) and
 * "undelivered" (bytes); and what it holds now: "sockets", "requests", "ring_bytes", "free_ring_bytes".
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF, -ENOMEM.
 */
int gpunet_host_attachment_json(const struct gpunet_host_attachment_t *attachment,
                                char **json);

/**
 * Closes the attachment: closes all its sockets, waits until what was sent is delivered, for at most the setting linger_s, and
 * frees its memory. Kernels that still run are cancelled: finish all tokens first. Host sockets that are still open report
 * ECANCELED or ENETDOWN; their handles stay, to be closed.
 *
 * `report` may be NULL. The handle is stale from the begin of the call.
 * Errors: -EBADF.
 */
int gpunet_host_attachment_close(struct gpunet_host_attachment_t *attachment,
                                 struct gpunet_host_close_report *report);

/**
 * Makes a socket. It is fresh: bind and listen, or connect. `attachment` is of the CPU device; it may be closed before the
 * socket, whose calls then return -ECANCELED or -ENETDOWN.
 *
 * On success `*socket` is a handle that gpunet_host_close ends.
 * Errors: -EBADF; -EOPNOTSUPP for the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in use; the
 * system's, when it refuses a thread.
 */
int gpunet_host_socket(const struct gpunet_host_attachment_t *attachment,
                       struct gpunet_host_socket_t **socket);

/**
 * Notes the address that gpunet_host_listen is to take: a struct sockaddr_in or sockaddr_in6. Port 0 is a free one. Whether the
 * address can be had is known when it listens.
 *
 * Errors: -EBADF; -EFAULT; -EAFNOSUPPORT; -EINVAL, also when it is bound already or not fresh.
 */
int gpunet_host_bind(const struct gpunet_host_socket_t *socket,
                     const struct sockaddr *address,
                     socklen_t len);

/**
 * Listens at the socket's address, or without one at a free port of every IPv4 address. At most `backlog` connections wait to
 * be accepted. Waits for the proxy's answer. After a failure the socket is fresh and still bound.
 *
 * Errors: -EBADF; -EINVAL when it is connected; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; -EMFILE (all socket slots of the attachment
 * are in use); -ENFILE (the proxy has no descriptor left); -ENOBUFS; -EOPNOTSUPP (no such transport here); -ENETDOWN; -ECANCELED.
 */
int gpunet_host_listen(const struct gpunet_host_socket_t *socket,
                       int backlog);

/**
 * Accepts the connection that has waited longest, as a new socket, which waits in its calls even if the listener does not;
 * other options are the listener's. Several threads may accept. It obeys SO_RCVTIMEO. `address` and `len`, where the peer's
 * address is left as by accept(2), may be NULL.
 *
 * On success `*accepted` is a handle that gpunet_host_close ends.
 * Errors: -EBADF; -EINVAL when it does not listen; -EAGAIN; -EMFILE when all socket slots of the attachment are in use (the
 * connection stays); -ENETDOWN; -ECANCELED. For want of ring memory or descriptors it waits.
 */
int gpunet_host_accept(const struct gpunet_host_socket_t *socket,
                       struct sockaddr *address,
                       socklen_t *len,
                       struct gpunet_host_socket_t **accepted);

/**
 * Connects to a struct sockaddr_in or sockaddr_in6. It obeys SO_SNDTIMEO. After a failure the socket is fresh again.
 *
 * Over tcp and rc the connection is made when it is in the listener's backlog; over peer, the default between two sockets
 * under one proxy, when the other end accepts. A thread that connects to a listener of its own therefore does not wait for
 * the connect, or asks for tcp.
 *
 * A non-blocking socket begins to connect and returns -EINPROGRESS. Then gpunet_host_poll reports POLLOUT, or the socket's
 * descriptor becomes readable, when it is known how that went: getsockopt(SO_ERROR) returns 0 or the errno.
 * Errors: -EBADF; -EFAULT; -EINVAL; -EAFNOSUPPORT; -EINPROGRESS; -EALREADY while it connects; -EISCONN; -EOPNOTSUPP (bound or
 * listening; no such transport here); -ETIMEDOUT; -ECONNREFUSED; -ENETUNREACH; -EHOSTUNREACH; -EMFILE (all socket slots of the
 * attachment are in use); -ENFILE; -ENOBUFS (no ring memory); -ENETDOWN; -ECANCELED.
 */
int gpunet_host_connect(const struct gpunet_host_socket_t *socket,
                        const struct sockaddr *address,
                        socklen_t len);

/**
 * Sends `len` bytes: copies them into the stream's ring. It returns when all are there, which is not yet at the peer; a
 * non-blocking socket, or one whose SO_SNDTIMEO is over, takes as many as there is room for. `flags`: MSG_DONTWAIT,
 * MSG_NOSIGNAL (no call raises SIGPIPE anyway). `data` is read during the call only.
 *
 * Returns how many bytes were taken.
 * Errors: -EBADF; -EFAULT; -EINVAL; -ENOTCONN; -EAGAIN; -EPIPE when the peer receives no more, or after gpunet_host_shutdown;
 * -ECONNRESET; -ETIMEDOUT; -EPROTO; -ENETDOWN; -ECANCELED.
 */
ssize_t gpunet_host_send(const struct gpunet_host_socket_t *socket,
                         const void *data,
                         size_t len,
                         int flags);

/**
 * Receives up to `len` bytes. It waits for the first, as long as SO_RCVTIMEO allows. `flags`: MSG_DONTWAIT; MSG_WAITALL: waits
 * for all; MSG_PEEK: the bytes stay, for the next call. `data` is written during the call only.
 *
 * Returns how many bytes were received; 0 at the end of the stream.
 * Errors: -EBADF; -EFAULT; -EINVAL; -ENOTCONN; -EAGAIN; -ECONNRESET; -ETIMEDOUT; -EPROTO; -ENETDOWN; -ECANCELED. What came before an
 * error is received first.
 */
ssize_t gpunet_host_recv(const struct gpunet_host_socket_t *socket,
                         void *data,
                         size_t len,
                         int flags);

/**
 * Ends one direction or both: SHUT_WR: the peer receives the end of the stream after the data; SHUT_RD: receives return 0, and
 * what still comes is discarded.
 *
 * Errors: -EBADF, -ENOTCONN, -EINVAL.
 */
int gpunet_host_shutdown(const struct gpunet_host_socket_t *socket,
                         int how);

/**
 * Closes the socket without waiting. What was sent is still delivered, for as long as SO_LINGER or the setting linger_s allows;
 * with SO_LINGER on and 0 the stream is reset. Calls of other threads that wait on it return -EBADF. Its descriptor
 * (gpunet_host_fd) is closed.
 *
 * Errors: -EBADF.
 */
int gpunet_host_close(struct gpunet_host_socket_t *socket);

/**
 * Waits until one of `count` sockets is ready, as poll(2), for at most `timeout_ms` milliseconds; negative: without limit; 0:
 * does not wait. Listeners are ready (POLLIN) when an accept would not wait, sockets that connect (POLLOUT) when it is known how
 * that went. A failure is reported with the direction that was asked for. An entry whose handle is stale gets POLLNVAL; one
 * whose socket is NULL is passed over.
 *
 * Returns how many entries have something in `revents`; 0 when the time is over.
 * Errors: -EFAULT, -EINVAL.
 */
int gpunet_host_poll(struct gpunet_host_pollfd *sockets,
                     size_t count,
                     int timeout_ms);

/**
 * Returns a descriptor for the program's event loop (epoll, libuv): it is readable while the socket is ready for one of
 * `events` (POLLIN, POLLOUT), has failed, or may be one of these. It may be readable in vain, once; then a non-blocking call
 * returns -EAGAIN, or gpunet_host_poll finds nothing, and that makes it unreadable. It is never unreadable while the socket is
 * ready. Watch it level-triggered for being readable, whatever `events` are; call again to change them.
 *
 * The descriptor is the socket's: it is valid until gpunet_host_close, and the program neither closes, reads nor writes it. Take
 * it out of the event loop before gpunet_host_close.
 * Errors: -EBADF; -EINVAL for other events; -EMFILE or -ENFILE when there is no descriptor left.
 */
int gpunet_host_fd(const struct gpunet_host_socket_t *socket,
                   short events);

/**
 * Leaves the socket's own address, as getsockname(2); of a listener with the actual port.
 *
 * Errors: -EBADF; -EFAULT; -ENOTCONN before it has one.
 */
int gpunet_host_getsockname(const struct gpunet_host_socket_t *socket, struct sockaddr *address, socklen_t *len);

/**
 * Leaves the peer's address, as getpeername(2).
 *
 * Errors: -EBADF; -EFAULT; -ENOTCONN.
 */
int gpunet_host_getpeername(const struct gpunet_host_socket_t *socket, struct sockaddr *address, socklen_t *len);

/**
 * Sets an option, as setsockopt(2). At any time: SO_RCVTIMEO, SO_SNDTIMEO, GPUNET_HOST_NONBLOCK. Before connect or listen:
 * SO_RCVBUF and SO_SNDBUF (ring sizes, 4 KiB to 16 MiB), SO_LINGER, SO_REUSEADDR and TCP_NODELAY (both on by default),
 * SO_KEEPALIVE, IPV6_V6ONLY, GPUNET_HOST_TRANSPORT; accepted sockets have those of their listener.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL; -EDOM; -ENOPROTOOPT; -EISCONN for the others after connect or listen.
 */
int gpunet_host_setsockopt(const struct gpunet_host_socket_t *socket,
                           int level,
                           int name,
                           const void *value,
                           socklen_t len);

/**
 * Reads an option, as getsockopt(2): those of gpunet_host_setsockopt, SO_ERROR (what a connect that nobody waited for failed
 * with; reading clears it), SO_TYPE, SO_ACCEPTCONN.
 *
 * Errors: -EBADF, -EFAULT, -ENOPROTOOPT.
 */
int gpunet_host_getsockopt(const struct gpunet_host_socket_t *socket,
                           int level,
                           int name,
                           void *value,
                           socklen_t *len);

/**
 * Sets whether calls on the socket wait (0) or return -EAGAIN (not 0): the option GPUNET_HOST_NONBLOCK.
 *
 * Errors: -EBADF.
 */
int gpunet_host_set_nonblocking(const struct gpunet_host_socket_t *socket, int on);

/**
 * Takes one of the attachment's 64 launch numbers.
 *
 * On success `*token` is a handle that gpunet_host_token_finish ends.
 * Errors: -EBADF; -EBUSY when all launch numbers are in use.
 */
int gpunet_host_token(const struct gpunet_host_attachment_t *attachment, struct gpunet_host_token_t **token);

/**
 * Returns the launch's net value: by it a kernel finds its sockets. Pass it by value as a kernel's parameter to the gpunet_*
 * functions of the device, or store it in a module's variable (gpunet_host_bind_module). It is valid until
 * gpunet_host_token_finish. Returns 0 for a handle that is not open; the device's calls answer 0 with -ENETDOWN.
 */
uint64_t gpunet_host_token_net(const struct gpunet_host_token_t *token);

/**
 * Runs a C function as a kernel on the CPU device, by `blocks` threads; returns when they have been started. It calls the
 * gpunet_host_cpu_* functions with its net value. A token may have several such launches. `argument` is passed on as it is,
 * to all these threads.
 *
 * Errors: -EBADF; -EINVAL for no block or no function; -EOPNOTSUPP on a GPU; the system's, when it refuses a thread (the token
 * is cancelled then, because some blocks may have been started).
 */
int gpunet_host_token_launch(const struct gpunet_host_token_t *token,
                             uint32_t blocks,
                             gpunet_host_kernel_fn function,
                             void *argument);

/**
 * Waits until all kernels of gpunet_host_token_launch have ended, for at most `timeout_ms` milliseconds; negative: without
 * limit. (Wait for kernels on a GPU with CUDA.)
 *
 * Errors: -EBADF; -ETIMEDOUT; -EDEADLK from one of these kernels.
 */
int gpunet_host_token_wait(const struct gpunet_host_token_t *token,
                           int64_t timeout_ms);

/**
 * Cancels the launch: every call of its kernels that waits, or would wait, returns -ECANCELED. It cannot be undone.
 *
 * Errors: -EBADF.
 */
int gpunet_host_token_cancel(const struct gpunet_host_token_t *token);

/**
 * Ends the launch: keeps, closes or resets (`policy`) the sockets that its kernels left open, and leaves their number in
 * `*left_open`, which may be NULL. Handles of sockets that it closes become stale, also for kernels of other launches.
 *
 * The kernels must have ended. It waits for those of gpunet_host_token_launch; of a GPU's, the program knows (cudaStreamQuery).
 * After a kernel that failed, GPUNET_HOST_RESET is right. It waits for the proxy's answer, at most ten seconds. The handle is
 * stale if it returns 0.
 * Errors: -EBADF; -EINVAL for another policy; -EDEADLK from one of its kernels; -EBUSY while a thread of the program's own makes
 * a gpunet_host_cpu_* call with its net value: cancel the launch first.
 */
int gpunet_host_token_finish(struct gpunet_host_token_t *token,
                             int policy,
                             uint64_t *left_open);

/**
 * In a kernel on the CPU: makes a socket, as socket(2). `protocol`: 0 lets gpunet choose, IPPROTO_TCP is TCP alone, 0x6701 is
 * the same host (peer) alone, 0x6702 RDMA (rc) alone. Returns the socket, a positive number that is valid for the gpunet_host_cpu_*
 * calls of this attachment's kernels, also of later launches.
 *
 * `net` is the kernel's net value. Errors of this call and of those below: what docs/operations.md says of each errno; -ENETDOWN also
 * for a net value that no open token has; -EBADF for a socket that is not open; -ECANCELED after gpunet_host_token_cancel.
 */
int gpunet_host_cpu_socket(uint64_t net,
                           int domain,
                           int kind,
                           int protocol);

/**
 * As bind(2). After a failure the socket is closed.
 */
int gpunet_host_cpu_bind(uint64_t net, int socket, const struct sockaddr *address, socklen_t len);

/**
 * As listen(2). After a failure the socket is closed.
 */
int gpunet_host_cpu_listen(uint64_t net, int socket, int backlog);

/**
 * As accept(2): returns the socket of the connection that has waited longest. `address` and `len` may be NULL.
 */
int gpunet_host_cpu_accept(uint64_t net, int socket, struct sockaddr *address, socklen_t *len);

/**
 * As connect(2). It waits, also on a non-blocking socket; over peer until the other end accepts. After a failure the socket is closed.
 */
int gpunet_host_cpu_connect(uint64_t net,
                            int socket,
                            const struct sockaddr *address,
                            socklen_t len);

/**
 * As send(2), with MSG_DONTWAIT and MSG_WAITALL (sends all). Returns how many bytes were taken, at least one.
 */
ssize_t gpunet_host_cpu_send(uint64_t net, int socket, const void *data, size_t len, int flags);

/**
 * As recv(2), with MSG_DONTWAIT, MSG_WAITALL and MSG_PEEK. Returns how many bytes were received, 0 at the end of the stream.
 */
ssize_t gpunet_host_cpu_recv(uint64_t net,
                             int socket,
                             void *data,
                             size_t len,
                             int flags);

/**
 * As shutdown(2): SHUT_RD, SHUT_WR or SHUT_RDWR.
 */
int gpunet_host_cpu_shutdown(uint64_t net, int socket, int how);

/**
 * As close(2). What was sent is still delivered.
 */
int gpunet_host_cpu_close(uint64_t net, int socket);

/**
 * As getsockname(2).
 */
int gpunet_host_cpu_getsockname(uint64_t net, int socket, struct sockaddr *address, socklen_t *len);

/**
 * As getpeername(2).
 */
int gpunet_host_cpu_getpeername(uint64_t net, int socket, struct sockaddr *address, socklen_t *len);

/**
 * As setsockopt(2), with the options that gpunet.h lists.
 */
int gpunet_host_cpu_setsockopt(uint64_t net, int socket, int level, int name, const void *value, socklen_t len);

/**
 * As getsockopt(2), with the options that gpunet.h lists.
 */
int gpunet_host_cpu_getsockopt(uint64_t net, int socket, int level, int name, void *value, socklen_t *len);

/**
 * As poll(2), for sockets of kernels; but the timeout is in nanoseconds; negative: without limit; 0: does not wait.
 */
int gpunet_host_cpu_poll(uint64_t net, struct pollfd *sockets, size_t count, int64_t timeout_ns);

/**
 * Points a module's calls under GPUnet's names (gsend and its like) at the launch's sockets: writes the token's net value to
 * the module's variable gpunet_attachment. `module` is a CUmodule of the attachment's context. Calls with an explicit net
 * (gpunet_send and its like) need none of this. Do it between launches of the module's kernels.
 *
 * Errors: -EBADF; -EINVAL for a NULL module; -EOPNOTSUPP on the CPU device; -EIO when the module has no such variable, or with
 * CUDA's error.
 */
int gpunet_host_bind_module(const struct gpunet_host_token_t *token,
                            void *module);

/**
 * As gpunet_host_bind_module, for the module that a kernel is in, where the program has no CUmodule: kernels that nvcc linked
 * into it. `function` is a cudaFunction_t (cudaGetFuncBySymbol) or a CUfunction.
 *
 * Errors: as gpunet_host_bind_module; -EIO also with a driver before CUDA 11.0.
 */
int gpunet_host_bind_kernel(const struct gpunet_host_token_t *token,
                            void *function);

/**
 * Checks that `count` kernels fit on the attachment's GPU at the same time. Kernels that wait for each other must fit. It
 * also loads their code, so call it before the first of them runs. The kernels that run already are not counted, because the
 * program launched them. On the CPU device everything fits.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL; -ENOSPC when they do not fit: the reason says how many blocks would; -EIO with CUDA's error.
 */
int gpunet_host_check_co_resident(const struct gpunet_host_attachment_t *attachment,
                                  const struct gpunet_host_kernel *kernels,
                                  size_t count);

/**
 * Allocates `len` bytes of zeroed memory for kernels of the attachment's device: GPU memory, or for the CPU device the heap.
 * A program may as well use memory of its own (cudaMalloc, malloc).
 *
 * On success `*buffer` is a handle that gpunet_host_buffer_free ends.
 * Errors: -EBADF; -ENOMEM; on a GPU also for 0 bytes.
 */
int gpunet_host_alloc(const struct gpunet_host_attachment_t *attachment,
                      size_t len,
                      struct gpunet_host_buffer_t **buffer);

/**
 * Leaves the buffer's address on its device, which a kernel takes as a pointer, and its length. Either pointer may be NULL.
 * The address is valid until gpunet_host_buffer_free.
 *
 * Errors: -EBADF.
 */
int gpunet_host_buffer_address(const struct gpunet_host_buffer_t *buffer,
                               uint64_t *address,
                               size_t *len);

/**
 * Copies `len` bytes from `data` to `offset` in the buffer. No kernel may be using these bytes. `data` is read during the call
 * only.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when the range is not inside the buffer; -EIO with CUDA's error.
 */
int gpunet_host_buffer_write(const struct gpunet_host_buffer_t *buffer,
                             size_t offset,
                             const void *data,
                             size_t len);

/**
 * Copies `len` bytes at `offset` in the buffer to `data`. No kernel may be writing these bytes. `data` is written during the
 * call only.
 *
 * Errors: as gpunet_host_buffer_write.
 */
int gpunet_host_buffer_read(const struct gpunet_host_buffer_t *buffer,
                            size_t offset,
                            void *data,
                            size_t len);

/**
 * Frees the buffer. No kernel uses it any more.
 *
 * Errors: -EBADF.
 */
int gpunet_host_buffer_free(struct gpunet_host_buffer_t *buffer);

/**
 * Sets where the log goes: to `callback`, with `user` as its last argument, up to `level`. A NULL callback ends the log,
 * which is how a program starts: the library writes nothing anywhere.
 *
 * When it returns, the callback before it is no longer running and will not be called again.
 * Errors: -EINVAL for another level; -EDEADLK from within the callback; -EBUSY when the program is in Rust and logs itself.
 */
int gpunet_host_set_log(int level,
                        gpunet_host_log_fn callback,
                        void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUNET_HOST_H */
