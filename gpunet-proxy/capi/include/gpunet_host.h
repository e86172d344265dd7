/* gpunet_host.h: sockets for GPU kernels, the host's side, for C and C++.
 *
 * Made by cbindgen from gpunet-proxy/capi, where it is changed. docs/c-host.md leads through it.
 *
 * Names. Every name begins with gpunet_host or GPUNET_HOST. gpunet_types.h has the types that host programs share with kernels.
 * Kernels on the CPU are C functions; they make the calls of gpunet.h and gpunet_team.h, like kernels on a GPU.
 *
 * Timeouts. `timeout_ns` is in nanoseconds, as in the calls of kernels. 0: the call does not wait. Negative: it waits without limit.
 * gpunet_types.h has the whole rule.
 *
 * Results. A call returns 0, a number, or a negative Linux errno (-EAGAIN, ...). gpunet_host_last_error then returns the reason in
 * words, in the thread that made the call. A call that fails leaves its outputs unchanged, unless its comment says otherwise.
 *
 * Handles. Calls that make something return a handle (gpunet_host_*_t *), a value that neither the library nor the program
 * dereferences. A handle that is NULL, closed, of another kind or made up is -EBADF. The value of a closed handle is not used again.
 * The comment of the call that makes a handle names the call that closes it. Handles may be closed in any order: what was made from
 * a handle keeps what it needs.
 *
 * Threads. Any thread may make any call, with the same handles at the same time, unless the call's comment says otherwise. After
 * fork(2) the child makes no calls. Signals do not interrupt calls that wait.
 *
 * Pointers. The library uses a pointer to data only during the call. The pointer must be aligned for its type, and valid for as many
 * bytes as the call says. NULL is -EFAULT unless the comment allows it. A text is UTF-8, ends with a NUL, and stays the caller's.
 * The library keeps only these pointers of the program: `user`, `argument`, the CUDA context, a queue's CUDA stream, the memory and
 * words of a queue's operations until they are done, and the data and the stream of a started transfer until it has ended.
 *
 * Every call may also return -EBADF, -EFAULT, -ENOMEM, -ENFILE (16 million handles are open), and -ENOTRECOVERABLE, which is a
 * fault in the library.
 */


#ifndef GPUNET_HOST_H
#define GPUNET_HOST_H

#include <poll.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "gpunet_types.h"

/**
 * The version of this interface. It rises when a call or a structure of this header changes or
 * goes; calls that are added do not change it.
 */
#define GPUNET_HOST_ABI_VERSION 2

/**
 * The level of gpunet's own socket options.
 */
#define GPUNET_HOST_SOL_GPUNET 26480

/**
 * Option of that level (int): calls do not wait.
 */
#define GPUNET_HOST_NONBLOCK 1

/**
 * Option of that level (int; on by default): small messages travel with their flag where that is
 * faster.
 */
#define GPUNET_HOST_LINES 3

/**
 * Option of that level (int; 0 by default): microseconds for which a call that waits for bytes or
 * room polls before it sleeps. It saves the time that waking a thread takes, and uses a core
 * meanwhile.
 */
#define GPUNET_HOST_SPIN 4

/**
 * Option of that level (int): what may carry the socket, or of a stream, what does. One of
 * GPUNET_HOST_TRANSPORT_*.
 */
#define GPUNET_HOST_TRANSPORT 2

/**
 * The same host if the listener is under this proxy, RDMA to a destination known to speak it, else
 * TCP.
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
 * No kernel copies messages of the queue, however short they are. Set it for streams beside
 * kernels that fill the GPU and do not end.
 */
#define GPUNET_HOST_QUEUE_NO_SHORT 1

/**
 * All operations of a queue are kernels of one block. Each holds a multiprocessor while it waits.
 */
#define GPUNET_HOST_QUEUE_KERNELS 2

/**
 * The most dimensions of an array.
 */
#define GPUNET_HOST_MAX_DIMS 64

/**
 * Code of gpunet_host_dtype: integers.
 */
#define GPUNET_HOST_INT 0

/**
 * Code of gpunet_host_dtype: unsigned integers.
 */
#define GPUNET_HOST_UINT 1

/**
 * Code of gpunet_host_dtype: IEEE numbers.
 */
#define GPUNET_HOST_FLOAT 2

/**
 * Code of gpunet_host_dtype: bfloat16.
 */
#define GPUNET_HOST_BFLOAT 4

/**
 * Code of gpunet_host_dtype: complex numbers.
 */
#define GPUNET_HOST_COMPLEX 5

/**
 * Code of gpunet_host_dtype: booleans.
 */
#define GPUNET_HOST_BOOL 6

/**
 * Where an array lies: memory of the CPU; 0 is the same. The number is DLPack's.
 */
#define GPUNET_HOST_CPU 1

/**
 * Where an array lies: memory of a GPU. The number is DLPack's.
 */
#define GPUNET_HOST_CUDA 2

/**
 * Where an array lies: pinned memory of the CPU. The number is DLPack's.
 */
#define GPUNET_HOST_CUDA_HOST 3

/**
 * Bytes always go by the connections, and never by a copy from memory to memory: for another end
 * that is not to see this process's memory.
 */
#define GPUNET_HOST_CHANNEL_NO_COPY 1

/**
 * Flag of gpunet_host_transfer_options: the sender has a checksum (CRC-32) made of each piece,
 * which the receiver checks. The bytes then go by the connections. A receive need not ask for it.
 */
#define GPUNET_HOST_CHECKSUM 1

/**
 * How bytes went: behind the header of the transfer, which was small.
 */
#define GPUNET_HOST_WAY_HEADER 1

/**
 * How bytes went: in pieces, over several connections at once.
 */
#define GPUNET_HOST_WAY_CONNECTIONS 2

/**
 * How bytes went: by one copy from memory to memory.
 */
#define GPUNET_HOST_WAY_COPY 3

/**
 * Why not by a copy: the transfer is small.
 */
#define GPUNET_HOST_REASON_SMALL 1

/**
 * Why not by a copy: the two ends are on different machines.
 */
#define GPUNET_HOST_REASON_OTHER_MACHINE 2

/**
 * Why not by a copy: the two ends belong to different users.
 */
#define GPUNET_HOST_REASON_OTHER_USER 3

/**
 * Why not by a copy: the two ends are in different network namespaces.
 */
#define GPUNET_HOST_REASON_OTHER_NAMESPACE 4

/**
 * Why not by a copy: the other end's process is not visible here.
 */
#define GPUNET_HOST_REASON_HIDDEN_PROCESS 5

/**
 * Why not by a copy: the kernel does not permit to read the other process's memory.
 */
#define GPUNET_HOST_REASON_NOT_PERMITTED 6

/**
 * Why not by a copy: a checksum was asked for.
 */
#define GPUNET_HOST_REASON_CHECKSUM_ASKED 7

/**
 * Why not by a copy: one end's memory is a GPU's, and the other's is not.
 */
#define GPUNET_HOST_REASON_MIXED_MEMORY 8

/**
 * Why not by a copy: one end has switched it off.
 */
#define GPUNET_HOST_REASON_SWITCHED_OFF 9

/**
 * Why not by a copy: both ends are in one process, for memory of a GPU.
 */
#define GPUNET_HOST_REASON_SAME_PROCESS 10

/**
 * Why not by a copy: the driver does not export the memory.
 */
#define GPUNET_HOST_REASON_NOT_EXPORTED 11

/**
 * Why not by a copy: the driver does not open the exported memory.
 */
#define GPUNET_HOST_REASON_NOT_OPENED 12

/**
 * Why not by a copy: a launch runs on the receiving GPU.
 */
#define GPUNET_HOST_REASON_LAUNCH_RUNS 13

/**
 * Why not by a copy: the copy failed before it was known to be whole.
 */
#define GPUNET_HOST_REASON_COPY_FAILED 14

/**
 * In `flags`: a record that finds its ring full waits for gpunet_host_records_read, for `wait_ns`.
 * Otherwise the oldest is overwritten.
 */
#define GPUNET_HOST_RECORDS_WAIT 1

/**
 * In `flags`: a thread always polls for calls, and keeps a core.
 */
#define GPUNET_HOST_CALLS_POLL 1

/**
 * In `flags`: kernels may ask for the addresses of host names (gpunet_resolve).
 */
#define GPUNET_HOST_CALLS_NAMES 2

/**
 * Errors: something failed that nobody asked about.
 */
#define GPUNET_HOST_LOG_ERROR 1

/**
 * Warnings: something works less well than it could.
 */
#define GPUNET_HOST_LOG_WARN 2

/**
 * Actions of an operator, and what an operator has to know; nothing per connection.
 */
#define GPUNET_HOST_LOG_INFO 3

/**
 * Details that explain a behaviour.
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
 * Functions of the program that kernels call, and the threads that run them. Any thread may use
 * it.
 */
typedef struct gpunet_host_calls_t gpunet_host_calls_t;

/**
 * Accepts channels at an address. Any thread may use it.
 */
typedef struct gpunet_host_channel_listener_t gpunet_host_channel_listener_t;

/**
 * Sends and receives arrays. Any thread may use it. Transfers of the two directions go on at once;
 * those of one direction one after the other, in the order of the calls.
 */
typedef struct gpunet_host_channel_t gpunet_host_channel_t;

/**
 * A socket in the table of a device: a stream or a listener. Kernels use it by its number
 * (gpunet_host_device_number), as if one of them had opened it. Any thread may use it.
 */
typedef struct gpunet_host_device_socket_t gpunet_host_device_socket_t;

/**
 * A proxy: the threads that serve devices, in this process or in a daemon. Any thread may use it.
 */
typedef struct gpunet_host_proxy_t gpunet_host_proxy_t;

/**
 * Operations on sockets of a device, in order. Any thread may use it; operations of several
 * threads are in some order. One call at a time enqueues: where a CUDA stream is full, it and
 * those of other threads on the queue wait for room in it.
 */
typedef struct gpunet_host_queue_t gpunet_host_queue_t;

/**
 * The receiving direction of a device's socket, taken from the kernels. Any thread may use it.
 */
typedef struct gpunet_host_receiver_t gpunet_host_receiver_t;

/**
 * Rings in which kernels record and print, and what reads them. Any thread may use it.
 */
typedef struct gpunet_host_records_t gpunet_host_records_t;

/**
 * The sending direction of a device's socket, taken from the kernels. Any thread may use it.
 */
typedef struct gpunet_host_sender_t gpunet_host_sender_t;

/**
 * A socket of the program, over any transport. Any thread may use it; one may send while another
 * receives.
 */
typedef struct gpunet_host_socket_t gpunet_host_socket_t;

/**
 * Memory of a team: a part of the same size in the memory of every member. Any thread may use it.
 */
typedef struct gpunet_host_symmetric_t gpunet_host_symmetric_t;

/**
 * Where the members of a team meet, before there is a team. Any thread may use it.
 */
typedef struct gpunet_host_team_listener_t gpunet_host_team_listener_t;

/**
 * A device's place in a team. Any thread may use it; what members do together is one thing after
 * another.
 */
typedef struct gpunet_host_team_t gpunet_host_team_t;

/**
 * A launch: the kernels that are started with its net value, cancelled and finished together. Any
 * thread may use it.
 */
typedef struct gpunet_host_token_t gpunet_host_token_t;

/**
 * A transfer that was started. Any thread may use it.
 */
typedef struct gpunet_host_transfer_t gpunet_host_transfer_t;

/**
 * How an attachment ended.
 */
typedef struct gpunet_host_close_report {
    /**
     * Bytes that a send accepted and that did not reach the peer, over the attachment's whole
     * life.
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
     * The requested events: POLLIN, POLLOUT.
     */
    short events;
    /**
     * The events that were found: these, and POLLERR, POLLHUP, POLLNVAL.
     */
    short revents;
} gpunet_host_pollfd;

/**
 * A C function that runs as a kernel on the CPU: once for each of `blocks` thread blocks, each of
 * which is a thread. It gets the token's net value, its own number from 0, and the launch's
 * `argument`. Its stack has 256 KiB. No C++ exception may leave it.
 */
typedef void (*gpunet_host_kernel_fn)(uint64_t net, uint32_t block, uint32_t blocks, void *argument);

/**
 * A function that is one thread of a block on the CPU. No C++ exception may leave it.
 */
typedef void (*gpunet_host_thread_fn)(void *argument);

/**
 * Called on the system's thread of a block with the number of the block's thread that runs from
 * now on.
 */
typedef void (*gpunet_host_turn_fn)(uint32_t thread);

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
 * A message to send: its place in the ring, and what kernels and queues do with it.
 */
typedef struct gpunet_host_send_message {
    /**
     * The message as a kernel's parameter. Kernels derive the rest from it, and the messages of
     * the same length that follow: `position` + i * `len`.
     */
    gpunet_prepared_t prepared;
    /**
     * Where it lies, addresses of the device: two pieces, the second for what wraps round the
     * ring's end. It is written once `room` has passed.
     */
    struct gpunet_span span;
    /**
     * Passes once the ring has room for the message.
     */
    gpunet_gate_t room;
    /**
     * Publishes the message, and all before it.
     */
    gpunet_trigger_t post;
    /**
     * Passes once the peer, or the proxy, has released the message: its place is free again.
     */
    gpunet_gate_t done;
} gpunet_host_send_message;

/**
 * A message to receive: its place in the ring, and what kernels and queues do with it.
 */
typedef struct gpunet_host_recv_message {
    /**
     * The message as a kernel's parameter, as in gpunet_host_send_message.
     */
    gpunet_prepared_t prepared;
    /**
     * Where it lies, addresses of the device, as in gpunet_host_send_message. It is read once
     * `arrived` has passed.
     */
    struct gpunet_span span;
    /**
     * Passes once the whole message has landed.
     */
    gpunet_gate_t arrived;
    /**
     * Gives the message's bytes back to the peer, and all before it, once it is read.
     */
    gpunet_trigger_t consume;
} gpunet_host_recv_message;

/**
 * How far a taken direction has progressed, and why it has ended.
 */
typedef struct gpunet_host_direction_report {
    /**
     * Bytes since the stream was opened: of a sender those that the peer, or the proxy, has
     * released; of a receiver those that have landed.
     */
    uint64_t position;
    /**
     * 0 while the direction is open; else a negative errno: -ENODATA when the peer ended the
     * stream in good order, -EPIPE when it reads no more, or the stream's failure.
     */
    int error;
    /**
     * 0.
     */
    int reserved;
} gpunet_host_direction_report;

/**
 * How a queue on a CUDA stream carries its operations out. All zeros: the defaults.
 */
typedef struct gpunet_host_queue_settings {
    /**
     * A kernel of one block copies messages of up to this many bytes. It needs a multiprocessor
     * that is not full. The copy engine copies longer ones. 0: 64 KiB; GPUNET_HOST_QUEUE_NO_SHORT:
     * no messages.
     */
    size_t short_bytes;
    /**
     * The most bytes that the copy engine copies at a time, at most a quarter of the ring; a
     * longer message goes in fragments. 0: 1 MiB.
     */
    size_t fragment_bytes;
    /**
     * The most fragments of a direction that the copy engine has at a time, up to 64. 0: 4.
     */
    uint32_t depth;
    /**
     * GPUNET_HOST_QUEUE_NO_SHORT or GPUNET_HOST_QUEUE_KERNELS; 0: neither.
     */
    uint32_t flags;
} gpunet_host_queue_settings;

/**
 * A message that travels while later operations of its queue run. gpunet_host_queue_start_send and
 * gpunet_host_queue_start_recv store it, for gpunet_host_queue_finish. It is a plain value: it may
 * be copied, and need not be freed.
 */
typedef struct gpunet_host_started {
    /**
     * Which queue has started it.
     */
    uint64_t queue;
    /**
     * Which message of its direction it is, from 1 on.
     */
    uint64_t number;
    /**
     * GPUNET_SEND or GPUNET_RECV.
     */
    uint32_t direction;
    /**
     * 0.
     */
    uint32_t reserved;
} gpunet_host_started;

/**
 * Called once, when all operations that were enqueued before are done: `error` is 0, or the
 * queue's first failure as a negative errno.
 *
 * It runs on a thread of the queue's own, one callback after the other, and may make any call.
 * Operations behind it do not wait for it. No C++ exception may leave it.
 */
typedef void (*gpunet_host_done_fn)(void *user, int error);

/**
 * How far a queue has come, and its first failure.
 */
typedef struct gpunet_host_queue_report {
    /**
     * Operations that are done, including failed ones. Each trigger of a post, each gate of a
     * wait, each notify and each synchronize is one operation.
     */
    uint64_t done;
    /**
     * The first operation that failed: 0 for the first that was enqueued.
     */
    uint64_t operation;
    /**
     * Bytes of it that were sent or received before.
     */
    uint64_t bytes;
    /**
     * Why it failed, a negative errno; 0: none has failed.
     */
    int error;
    /**
     * 0.
     */
    int reserved;
} gpunet_host_queue_report;

/**
 * How a team is; equal for all members. All zeros: the defaults.
 */
typedef struct gpunet_host_team_options {
    /**
     * How many signals kernels have. 0: 256.
     */
    uint32_t signals;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * How long members wait for each other when they join, and in each thing that they do together
     * on the host. That of member 0 counts. Nanoseconds; 0: 30 seconds.
     */
    uint64_t timeout_ns;
} gpunet_host_team_options;

/**
 * What the elements of an array are: DLPack's DLDataType, whose other codes are valid, too. The
 * two ends compare it, and convert nothing.
 */
typedef struct gpunet_host_dtype {
    /**
     * GPUNET_HOST_INT and its like.
     */
    uint8_t code;
    /**
     * The bits of a lane.
     */
    uint8_t bits;
    /**
     * The lanes of an element. 0: 1.
     */
    uint16_t lanes;
} gpunet_host_dtype;

/**
 * An array: contiguous, in row-major order, without gaps.
 *
 *     float weights[2][3];
 *     int64_t shape[] = {2, 3};
 *     gpunet_host_array array = {weights, shape, "weights", 2, {GPUNET_HOST_FLOAT, 32, 1}, GPUNET_HOST_CPU, 0};
 */
typedef struct gpunet_host_array {
    /**
     * The first element. A send reads from there only. May be NULL for an array without elements.
     */
    void *data;
    /**
     * The lengths of the dimensions, in elements. May be NULL for rank 0.
     */
    const int64_t *shape;
    /**
     * The name by which the other end finds the array among several, at most 1,024 bytes. NULL or
     * "": it has none, and counts by its place.
     */
    const char *name;
    /**
     * How many dimensions there are, 0 to GPUNET_HOST_MAX_DIMS. One of rank 0 has one element.
     */
    uint32_t rank;
    /**
     * What the elements are.
     */
    struct gpunet_host_dtype dtype;
    /**
     * Where it lies: GPUNET_HOST_CPU, GPUNET_HOST_CUDA or GPUNET_HOST_CUDA_HOST.
     */
    int32_t device_type;
    /**
     * The GPU's number for GPUNET_HOST_CUDA. The memory is one of its primary context, which the
     * CUDA runtime uses.
     */
    int32_t device_id;
} gpunet_host_array;

/**
 * How a channel is. The two ends need not be alike. All zeros: the defaults.
 */
typedef struct gpunet_host_channel_settings {
    /**
     * How many connections carry transfers, 1 to 64; that of the end that connects counts. One
     * more carries answers. 0: as many as half the CPUs, at most 8.
     */
    uint32_t streams;
    /**
     * GPUNET_HOST_CHANNEL_NO_COPY, or 0.
     */
    uint32_t flags;
    /**
     * The bytes of a piece of a transfer, 4 KiB to 64 MiB. 0: 1 MiB.
     */
    size_t piece_bytes;
    /**
     * How long a transfer may take that has begun, in nanoseconds. 0: without limit.
     */
    uint64_t timeout_ns;
    /**
     * The most bytes of the other end's GPU memory that stay mapped between transfers. 0: 8 GiB.
     */
    uint64_t mapped_bytes;
    /**
     * How long they stay mapped without being used, in nanoseconds. 0: 10 seconds.
     */
    uint64_t idle_ns;
} gpunet_host_channel_settings;

/**
 * Called with the bytes of a transfer that are through, and all of its bytes, as often as a piece
 * is, and at its end.
 *
 * It runs on any thread, also on several at a time, must return soon, and must not wait for the
 * transfer. It may cancel it. No C++ exception may leave it.
 */
typedef void (*gpunet_host_progress_fn)(uint64_t moved, uint64_t total, void *user);

/**
 * What a transfer is to be, beside its arrays. All zeros: the defaults.
 */
typedef struct gpunet_host_transfer_options {
    /**
     * A CUstream or cudaStream_t of a primary context, made with cudaStreamNonBlocking: the bytes
     * move when everything on it is done, for which neither `timeout_ns` nor a cancel shortens the
     * wait. NULL: none. It stays until the transfer has ended.
     */
    void *custream;
    /**
     * The number of the stream's GPU.
     */
    int32_t custream_device;
    /**
     * GPUNET_HOST_CHECKSUM, or 0.
     */
    uint32_t flags;
    /**
     * When the transfer must have ended, in nanoseconds from the call on. 0: without limit but the
     * channel's.
     */
    uint64_t timeout_ns;
    /**
     * Hears how far the transfer has come. NULL: nobody does.
     */
    gpunet_host_progress_fn progress;
    /**
     * The last argument of `progress`.
     */
    void *user;
} gpunet_host_transfer_options;

/**
 * How a transfer goes, or went.
 */
typedef struct gpunet_host_outcome {
    /**
     * Bytes that are through.
     */
    uint64_t moved;
    /**
     * All bytes of its arrays.
     */
    uint64_t total;
    /**
     * 1: it has ended. 0: it has not.
     */
    uint32_t done;
    /**
     * How the bytes went: one of GPUNET_HOST_WAY_*; 0: they did not, or not yet.
     */
    uint32_t way;
    /**
     * How many connections carried them, with GPUNET_HOST_WAY_CONNECTIONS.
     */
    uint32_t connections;
    /**
     * Why they were not copied from memory to memory: one of GPUNET_HOST_REASON_*, or a later
     * version's; 0: they were, or it is not known yet.
     */
    uint32_t reason;
    /**
     * How they went, in words: "one copy", "4 connections (the two ends are on different
     * machines)"; "" before that.
     */
    char text[120];
} gpunet_host_outcome;

/**
 * A transfer that waits at the other end, as its header says.
 */
typedef struct gpunet_host_incoming {
    /**
     * The bytes of all arrays.
     */
    uint64_t bytes;
    /**
     * How many arrays it has.
     */
    uint64_t arrays;
} gpunet_host_incoming;

/**
 * An array that waits at the other end.
 */
typedef struct gpunet_host_description {
    /**
     * How many bytes it has.
     */
    uint64_t bytes;
    /**
     * The lengths of its dimensions; 0 behind them.
     */
    int64_t shape[GPUNET_HOST_MAX_DIMS];
    /**
     * How many dimensions it has.
     */
    uint32_t rank;
    /**
     * What its elements are.
     */
    struct gpunet_host_dtype dtype;
    /**
     * 1: the sender has it in the memory of a GPU.
     */
    uint32_t on_gpu;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Its name; "": it has none.
     */
    char name[1032];
} gpunet_host_description;

/**
 * Which rings to make. All zeros but `rings`: the defaults.
 */
typedef struct gpunet_host_records_settings {
    /**
     * How many rings: one for each block, warp or thread that has a recorder at a time; 1 to
     * 1048576.
     */
    uint32_t rings;
    /**
     * Records that a ring keeps, rounded up to a power of two, at least 64; 0: 1024.
     */
    uint32_t records;
    /**
     * The longest payload in bytes, rounded up to 12, 44, 108, 236 or 492; 0: 44.
     */
    uint32_t payload;
    /**
     * How many texts gprintf may print; each takes 512 bytes. 0: 128.
     */
    uint32_t texts;
    /**
     * The least important level of lines that are printed; 0: GPUNET_INFO.
     */
    uint32_t level;
    /**
     * 0, or GPUNET_HOST_RECORDS_WAIT.
     */
    uint32_t flags;
    /**
     * With GPUNET_HOST_RECORDS_WAIT: nanoseconds. 0: the record is lost at once. Negative: without
     * limit, until the launch is cancelled.
     */
    int64_t wait_ns;
} gpunet_host_records_settings;

/**
 * A record, or a printed line.
 */
typedef struct gpunet_host_record {
    /**
     * When it was written, in nanoseconds of the device's clock.
     */
    uint64_t time_ns;
    /**
     * Its number in its ring, from 0.
     */
    uint64_t number;
    /**
     * What it says; of a line its arguments.
     */
    const void *payload;
    /**
     * The text of a printed line, and the name of a span or a counter; NULL of other records. Of a
     * line that cannot be put together the reason, with the level 0.
     */
    const char *text;
    /**
     * Bytes of the payload.
     */
    uint32_t payload_len;
    /**
     * The ring it comes from.
     */
    uint32_t ring;
    /**
     * The block that wrote it.
     */
    uint32_t block;
    /**
     * Lines of the same text that were left out before this one, because of its limit.
     */
    uint32_t left_out;
    /**
     * The number that the kernel gave; GPUNET_RECORD_BEGIN, GPUNET_RECORD_END and
     * GPUNET_RECORD_COUNT for spans and counters; from 32768 on a printed line.
     */
    uint16_t kind;
    /**
     * The multiprocessor; 65535 on the CPU.
     */
    uint16_t sm;
    /**
     * The warp in its block; 255 for a record of the block.
     */
    uint8_t warp;
    /**
     * The lane in its warp; 255 for a record of a block or warp.
     */
    uint8_t lane;
    /**
     * The level of a line, GPUNET_ERROR to GPUNET_TRACE; 0 of other records.
     */
    uint8_t level;
    /**
     * 0.
     */
    uint8_t reserved;
} gpunet_host_record;

/**
 * Called by gpunet_host_records_read for each record. What `record` points to lives for the call.
 * No C++ exception may leave it.
 */
typedef void (*gpunet_host_record_fn)(const struct gpunet_host_record *record, void *user);

/**
 * How many records were read and lost.
 */
typedef struct gpunet_host_records_counts {
    /**
     * Records that were read.
     */
    uint64_t records;
    /**
     * Records that were overwritten before they were read.
     */
    uint64_t overwritten;
    /**
     * Records for which there was no room in time, no ring, or no number for their text.
     */
    uint64_t refused;
    /**
     * Records that no recorder writes.
     */
    uint64_t malformed;
} gpunet_host_records_counts;

/**
 * A function that kernels call (gpunet_calls.h). It gets `len` bytes of the request, writes at
 * most `room` bytes to `answer`, and returns how many it has written, or a negative errno, which
 * is what the kernel gets. More bytes than `room` are -EMSGSIZE in the kernel. Both places are
 * aligned to 16 bytes and live for the call. Several threads may run it at the same time. It may
 * block. No C++ exception may leave it.
 */
typedef int64_t (*gpunet_host_function_fn)(const void *request, size_t len, void *answer, size_t room, void *user);

/**
 * A function, by what kernels call it, and how much it takes and gives.
 */
typedef struct gpunet_host_function {
    /**
     * Its name: gpunet_function makes a number of it in kernels. NULL: the function has a number.
     */
    const char *name;
    /**
     * The function.
     */
    gpunet_host_function_fn run;
    /**
     * What it is given.
     */
    void *user;
    /**
     * Its number, below 2^30; 0 with a name.
     */
    uint32_t number;
    /**
     * The longest request in bytes, at most 1012.
     */
    uint32_t request;
    /**
     * The longest answer in bytes, at most 1020.
     */
    uint32_t answer;
    /**
     * 0.
     */
    uint32_t reserved;
} gpunet_host_function;

/**
 * How calls are served. All zeros but `channels`: the defaults.
 */
typedef struct gpunet_host_calls_settings {
    /**
     * How many blocks, warps or threads have a caller at a time; 1 to 65536.
     */
    uint32_t channels;
    /**
     * Calls that each of them has in flight, at most 64; 0: 16.
     */
    uint32_t tickets;
    /**
     * Threads that run functions, 2 to 1024; 0: 4. When functions keep all of them, calls wait.
     */
    uint32_t threads;
    /**
     * GPUNET_HOST_CALLS_POLL, GPUNET_HOST_CALLS_NAMES, both (by |), or 0.
     */
    uint32_t flags;
    /**
     * How long a thread polls after a call before it sleeps, in nanoseconds; 0: 100 us.
     */
    uint64_t spin_ns;
    /**
     * How long it then sleeps between two looks, which a call may wait for; 0: 100 us.
     */
    uint64_t latency_ns;
} gpunet_host_calls_settings;

/**
 * What has happened to calls so far.
 */
typedef struct gpunet_host_calls_counts {
    /**
     * Calls that functions have answered, with bytes or an errno.
     */
    uint64_t answered;
    /**
     * Calls that wanted no answer.
     */
    uint64_t told;
    /**
     * Calls without a function, and those whose request or answer did not fit.
     */
    uint64_t failed;
    /**
     * Answers that were dropped: their callers had given them up.
     */
    uint64_t late;
    /**
     * Requests that no caller writes: they were passed over.
     */
    uint64_t malformed;
} gpunet_host_calls_counts;

/**
 * Takes one event of the log: its level (GPUNET_HOST_LOG_ERROR to _TRACE), the module that wrote
 * it, and the text in one line. Both texts are valid during the call only.
 *
 * It runs on any thread, also on several at a time, and must return soon. It must not call
 * gpunet_host_set_log.
 */
typedef void (*gpunet_host_log_fn)(int level, const char *module, const char *text, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the library's version, as "MAJOR.MINOR.PATCH". The text lives as long as the library.
 */
const char *gpunet_host_version(void);

/**
 * Returns the library's GPUNET_HOST_ABI_VERSION. A program that was compiled with another one must
 * not go on.
 */
uint32_t gpunet_host_abi_version(void);

/**
 * Returns in words why the last call of this thread that failed has failed; "" if none has. Never
 * NULL.
 *
 * The text belongs to the library. It is valid until this thread calls this function again, or
 * ends.
 */
const char *gpunet_host_last_error(void);

/**
 * Sets the text that gpunet_host_last_error returns, until a call of this thread fails again.
 * NULL: "". For code above this library that fails for a reason of its own.
 *
 *     if (cudaDeviceSynchronize() != cudaSuccess) {
 *         gpunet_host_set_last_error("the kernel failed");
 *         return -EIO;
 *     }
 *
 * Errors: none; it returns 0.
 */
int32_t gpunet_host_set_last_error(const char *text);

/**
 * Gives back a text that a call of this library allocated for the caller. NULL is fine.
 */
void gpunet_host_free_string(char *text);

/**
 * Starts a proxy in this process.
 *
 * `settings` is TOML, one `key = value` a line; NULL means the defaults. The keys: sockets,
 * controls, shared_rings, device_rings (bytes), threads, cpus ("2-5,8"), spin_us, latency_us,
 * heartbeat_ms, linger_s, rc ("system", "off"), placement ("auto", "pinned", "dma-buf",
 * "peer-mem"), rc_peers (["192.0.2.1"]), rc_keepalive_ms. docs/operations.md explains them.
 *
 * On success `*proxy` is a handle that gpunet_host_proxy_close ends. Errors: -EINVAL for settings,
 * with the line or the key and what is expected; the system's, when it refuses a thread.
 */
int gpunet_host_embed(const char *settings, struct gpunet_host_proxy_t **proxy);

/**
 * Joins the daemon (gpunetd) that listens at `path`; NULL is where it listens by default. Of the
 * settings only sockets, controls, shared_rings, device_rings and placement are the program's; the
 * others are the daemon's. Waits for the daemon's answer.
 *
 * On success `*proxy` is a handle that gpunet_host_proxy_close ends. Errors: -ENOENT or
 * -ECONNREFUSED when no daemon is there; -EACCES and others when it refuses; -EPROTONOSUPPORT when
 * it is of another version; -EINVAL for settings.
 */
int gpunet_host_attach(const char *path, const char *settings, struct gpunet_host_proxy_t **proxy);

/**
 * Joins the daemon as gpunet_host_attach does if one listens there, else starts a proxy in this
 * process. gpunet_host_proxy_is_daemon tells which of the two happened.
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
 * Describes the proxy as a JSON object: "data_threads", and "daemon", which is null or has "path",
 * "pid", "version", "heartbeat_ms" and "linger_ms".
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF, -ENOMEM.
 */
int gpunet_host_proxy_json(const struct gpunet_host_proxy_t *proxy, char **json);

/**
 * Describes what the proxy holds at this moment as a JSON object: totals, clients, sockets and
 * data threads, as `gpunetctl ss --json` prints them. A daemon shows what this user may see. Waits
 * for the control plane's answer.
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF; -ETIMEDOUT when the control plane does not answer; the system's, when a daemon
 * cannot be asked; -ENOMEM.
 */
int gpunet_host_snapshot_json(const struct gpunet_host_proxy_t *proxy, char **json);

/**
 * Stops the proxy at once, without delivering anything: every socket reports ENETDOWN, and calls
 * that wait return it. A daemon continues to run; to it this program seems to have been killed.
 * The handles stay open, to be closed.
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
 * Attaches the CPU device: host sockets, and C functions as kernels (gpunet_host_token_launch). It
 * needs no GPU.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends. Errors: -EBADF;
 * -ENOMEM when there is not enough memory for the rings; -ENETDOWN after gpunet_host_proxy_abort;
 * a daemon's refusal.
 */
int gpunet_host_attach_cpu(const struct gpunet_host_proxy_t *proxy, struct gpunet_host_attachment_t **attachment);

/**
 * Attaches the GPU of a CUDA context of the program. `context` is a CUcontext. It stays live until
 * the attachment and all tokens and buffers made from it are closed. CUDA is opened now, at run
 * time; the program may use any version.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends. Errors: -EBADF;
 * -EINVAL for a NULL context; -ENODEV when there is no CUDA driver; -EIO with CUDA's error;
 * -ENOMEM; -ENETDOWN; a daemon's refusal.
 */
int gpunet_host_attach_cuda(const struct gpunet_host_proxy_t *proxy,
                            void *context,
                            struct gpunet_host_attachment_t **attachment);

/**
 * Attaches GPU number `device` in its primary context, the one that the CUDA runtime uses
 * (cudaSetDevice). The context is retained until the attachment and all tokens and buffers made
 * from it are closed.
 *
 * On success `*attachment` is a handle that gpunet_host_attachment_close ends.
 * Errors: as gpunet_host_attach_cuda.
 */
int gpunet_host_attach_cuda_device(const struct gpunet_host_proxy_t *proxy,
                                   int device,
                                   struct gpunet_host_attachment_t **attachment);

/**
 * Describes the attachment as a JSON object: "device" ("cpu" or the GPU's name); the totals
 * "opened", "closed" (streams) and "undelivered" (bytes); and what it holds now: "sockets",
 * "requests", "ring_bytes", "free_ring_bytes".
 *
 * On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF, -ENOMEM.
 */
int gpunet_host_attachment_json(const struct gpunet_host_attachment_t *attachment, char **json);

/**
 * Closes the attachment. It closes all its sockets, waits until sent bytes are delivered, for at
 * most the setting linger_s, and frees the memory. Kernels that still run are cancelled: finish
 * all tokens first. Host sockets that are still open report ECANCELED or ENETDOWN; their handles
 * stay, to be closed.
 *
 * `report` may be NULL. The handle is stale once the call has begun. Errors: -EBADF.
 */
int gpunet_host_attachment_close(struct gpunet_host_attachment_t *attachment, struct gpunet_host_close_report *report);

/**
 * Makes a socket. It is fresh: bind and listen, or connect. `attachment` is of the CPU device; it
 * may be closed before the socket, whose calls then return -ECANCELED or -ENETDOWN.
 *
 * On success `*socket` is a handle that gpunet_host_close ends. Errors: -EBADF; -EOPNOTSUPP for
 * the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in use; the
 * system's, when it refuses a thread.
 */
int gpunet_host_socket(const struct gpunet_host_attachment_t *attachment, struct gpunet_host_socket_t **socket);

/**
 * Sets the address for gpunet_host_listen: a struct sockaddr_in or sockaddr_in6. Port 0 is a free
 * one. gpunet_host_listen reports an address that is not available.
 *
 * Errors: -EBADF; -EFAULT; -EAFNOSUPPORT; -EINVAL, also when it is bound already or not fresh.
 */
int gpunet_host_bind(const struct gpunet_host_socket_t *socket, const struct sockaddr *address, socklen_t len);

/**
 * Listens at the socket's address, or without one at a free port of every IPv4 address. At most
 * `backlog` connections wait to be accepted. Waits for the proxy's answer. After a failure the
 * socket is fresh and still bound.
 *
 * Errors: -EBADF; -EINVAL when it is connected; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; -EMFILE (all
 * socket slots of the attachment are in use); -ENFILE (the proxy has no descriptor left);
 * -ENOBUFS; -EOPNOTSUPP (no such transport here); -ENETDOWN; -ECANCELED.
 */
int gpunet_host_listen(const struct gpunet_host_socket_t *socket, int backlog);

/**
 * Accepts the connection that has waited longest, as a new socket, which waits in its calls even
 * if the listener does not; other options are the listener's. Several threads may accept. It obeys
 * SO_RCVTIMEO. `address` and `len`, where the peer's address is left as by accept(2), may be NULL.
 *
 * On success `*accepted` is a handle that gpunet_host_close ends. Errors: -EBADF; -EINVAL when it
 * does not listen; -EAGAIN; -EMFILE when all socket slots of the attachment are in use (the
 * connection stays); -ENETDOWN; -ECANCELED. For want of ring memory or descriptors it waits.
 */
int gpunet_host_accept(const struct gpunet_host_socket_t *socket,
                       struct sockaddr *address,
                       socklen_t *len,
                       struct gpunet_host_socket_t **accepted);

/**
 * Connects to a struct sockaddr_in or sockaddr_in6. It obeys SO_SNDTIMEO. After a failure the
 * socket is fresh again.
 *
 * Over tcp and rc the call returns when the connection is in the listener's backlog; over peer,
 * the default between two sockets under one proxy, when the other end accepts. A thread that
 * connects to a listener of its own therefore makes the socket non-blocking, or asks for tcp.
 *
 * A non-blocking socket begins to connect and returns -EINPROGRESS. When the connect has succeeded
 * or failed, gpunet_host_poll reports POLLOUT, and the socket's descriptor becomes readable;
 * getsockopt(SO_ERROR) then returns 0 or the errno. Errors: -EBADF; -EFAULT; -EINVAL;
 * -EAFNOSUPPORT; -EINPROGRESS; -EALREADY while it connects; -EISCONN; -EOPNOTSUPP (bound or
 * listening; no such transport here); -ETIMEDOUT; -ECONNREFUSED; -ENETUNREACH; -EHOSTUNREACH;
 * -EMFILE (all socket slots of the attachment are in use); -ENFILE; -ENOBUFS (no ring memory);
 * -ENETDOWN; -ECANCELED.
 */
int gpunet_host_connect(const struct gpunet_host_socket_t *socket, const struct sockaddr *address, socklen_t len);

/**
 * Sends `len` bytes: copies them into the stream's ring. It returns when all are there, which is
 * not yet at the peer; a non-blocking socket, or one whose SO_SNDTIMEO is over, takes as many as
 * there is room for. `flags`: MSG_DONTWAIT, MSG_NOSIGNAL (no call raises SIGPIPE anyway). `data`
 * is read during the call only.
 *
 * Returns how many bytes were taken. Errors: -EBADF; -EFAULT; -EINVAL; -ENOTCONN; -EAGAIN; -EPIPE
 * when the peer receives no more, or after gpunet_host_shutdown; -ECONNRESET; -ETIMEDOUT; -EPROTO;
 * -ENETDOWN; -ECANCELED.
 */
ssize_t gpunet_host_send(const struct gpunet_host_socket_t *socket, const void *data, size_t len, int flags);

/**
 * Receives up to `len` bytes. It waits for the first, as long as SO_RCVTIMEO allows. `flags`:
 * MSG_DONTWAIT; MSG_WAITALL: waits for all; MSG_PEEK: the bytes stay, for the next call. `data` is
 * written during the call only.
 *
 * Returns how many bytes were received; 0 at the end of the stream. Errors: -EBADF; -EFAULT;
 * -EINVAL; -ENOTCONN; -EAGAIN; -ECONNRESET; -ETIMEDOUT; -EPROTO; -ENETDOWN; -ECANCELED. What came
 * before an error is received first.
 */
ssize_t gpunet_host_recv(const struct gpunet_host_socket_t *socket, void *data, size_t len, int flags);

/**
 * Ends one direction or both: SHUT_WR: the peer receives the end of the stream after the data;
 * SHUT_RD: receives return 0, and what still comes is discarded.
 *
 * Errors: -EBADF, -ENOTCONN, -EINVAL.
 */
int gpunet_host_shutdown(const struct gpunet_host_socket_t *socket, int how);

/**
 * Closes the socket without waiting. What was sent is still delivered, for as long as SO_LINGER or
 * the setting linger_s allows; with SO_LINGER on and 0 the stream is reset. Calls of other threads
 * that wait on it return -EBADF. Its descriptor (gpunet_host_fd) is closed.
 *
 * Errors: -EBADF.
 */
int gpunet_host_close(struct gpunet_host_socket_t *socket);

/**
 * Waits until one of `count` sockets is ready, as poll(2), for at most `timeout_ns` nanoseconds;
 * negative: without limit; 0: not at all. A listener is ready (POLLIN) when an accept would not
 * wait. A socket that connects is ready (POLLOUT) when the connect has succeeded or failed. A
 * failure is reported with the direction that was asked for. An entry whose handle is stale gets
 * POLLNVAL; one whose socket is NULL is passed over.
 *
 * Returns how many entries have something in `revents`; 0 when the time is over.
 * Errors: -EFAULT, -EINVAL.
 */
int gpunet_host_poll(struct gpunet_host_pollfd *sockets, size_t count, int64_t timeout_ns);

/**
 * Returns a descriptor for the program's event loop (epoll, libuv): it is readable while the
 * socket is ready for one of `events` (POLLIN, POLLOUT), has failed, or may be one of these. It
 * may be readable although the socket is not ready; then a non-blocking call returns -EAGAIN, or
 * gpunet_host_poll finds nothing, and the descriptor is no longer readable. It is never unreadable
 * while the socket is ready. Watch it level-triggered for being readable, whatever `events` are;
 * call again to change them.
 *
 * The descriptor is the socket's: it is valid until gpunet_host_close, and the program neither
 * closes, reads nor writes it. Take it out of the event loop before gpunet_host_close. Errors:
 * -EBADF; -EINVAL for other events; -EMFILE or -ENFILE when there is no descriptor left.
 */
int gpunet_host_fd(const struct gpunet_host_socket_t *socket, short events);

/**
 * Stores the socket's own address, as getsockname(2); a listener's has the actual port.
 *
 * Errors: -EBADF; -EFAULT; -ENOTCONN before it has one.
 */
int gpunet_host_getsockname(const struct gpunet_host_socket_t *socket, struct sockaddr *address, socklen_t *len);

/**
 * Stores the peer's address, as getpeername(2).
 *
 * Errors: -EBADF; -EFAULT; -ENOTCONN.
 */
int gpunet_host_getpeername(const struct gpunet_host_socket_t *socket, struct sockaddr *address, socklen_t *len);

/**
 * Sets an option, as setsockopt(2). At any time: SO_RCVTIMEO, SO_SNDTIMEO, GPUNET_HOST_NONBLOCK,
 * GPUNET_HOST_SPIN. Before connect or listen: SO_RCVBUF and SO_SNDBUF (ring sizes, 4 KiB to
 * 16 MiB), SO_LINGER, SO_REUSEADDR and TCP_NODELAY (both on by default), SO_KEEPALIVE,
 * IPV6_V6ONLY, GPUNET_HOST_TRANSPORT, GPUNET_HOST_LINES; accepted sockets have those of their
 * listener.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL; -EDOM; -ENOPROTOOPT; -EISCONN for the others after connect or
 * listen.
 */
int gpunet_host_setsockopt(const struct gpunet_host_socket_t *socket,
                           int level,
                           int name,
                           const void *value,
                           socklen_t len);

/**
 * Reads an option, as getsockopt(2): those of gpunet_host_setsockopt, SO_ERROR (what a connect
 * that nobody waited for failed with; reading clears it), SO_TYPE, SO_ACCEPTCONN.
 *
 * Errors: -EBADF, -EFAULT, -ENOPROTOOPT.
 */
int gpunet_host_getsockopt(const struct gpunet_host_socket_t *socket, int level, int name, void *value, socklen_t *len);

/**
 * Sets whether calls on the socket wait (0) or return -EAGAIN (not 0): the option
 * GPUNET_HOST_NONBLOCK.
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
 * Returns the launch's net value: by it a kernel finds its sockets. Pass it by value as a kernel's
 * parameter to the gpunet_* functions of the device, or store it in a module's variable
 * (gpunet_host_bind_module). It is valid until gpunet_host_token_finish. Returns 0 for a handle
 * that is not open; the device's calls answer 0 with -ENETDOWN.
 */
uint64_t gpunet_host_token_net(const struct gpunet_host_token_t *token);

/**
 * Runs a C function as a kernel on the CPU device, by `blocks` threads, and returns when they have
 * been started. The function calls those of gpunet.h with its net value. A token may have several
 * such launches. All these threads get `argument`.
 *
 * Errors: -EBADF; -EINVAL without a block or a function; -EOPNOTSUPP on a GPU; the system's, when
 * it refuses a thread (the token is cancelled then, because some blocks may have been started).
 */
int gpunet_host_token_launch(const struct gpunet_host_token_t *token,
                             uint32_t blocks,
                             gpunet_host_kernel_fn function,
                             void *argument);

/**
 * Waits until all kernels of gpunet_host_token_launch have ended, for at most `timeout_ns`
 * nanoseconds; negative: without limit; 0: not at all. (Wait for kernels on a GPU with CUDA.)
 *
 * Errors: -EBADF; -ETIMEDOUT; -EDEADLK from one of these kernels.
 */
int gpunet_host_token_wait(const struct gpunet_host_token_t *token, int64_t timeout_ns);

/**
 * Cancels the launch: every call of its kernels that waits, or would wait, returns -ECANCELED. It
 * cannot be undone.
 *
 * Errors: -EBADF.
 */
int gpunet_host_token_cancel(const struct gpunet_host_token_t *token);

/**
 * Ends the launch: keeps, closes or resets (`policy`) the sockets that its kernels left open, and
 * leaves their number in `*left_open`, which may be NULL. Handles of sockets that it closes become
 * stale, also for kernels of other launches.
 *
 * The kernels must have ended. It waits for those of gpunet_host_token_launch; of a GPU's, the
 * program knows (cudaStreamQuery). After a kernel that failed, GPUNET_HOST_RESET is right. It
 * waits for the proxy's answer, at most ten seconds. The handle is stale if it returns 0. Errors:
 * -EBADF; -EINVAL for another policy; -EDEADLK from one of its kernels; -EBUSY while a thread of
 * the program's own makes a call of gpunet.h with its net value: cancel the launch first.
 */
int gpunet_host_token_finish(struct gpunet_host_token_t *token, int policy, uint64_t *left_open);

/**
 * Runs a function on the CPU in `blocks` thread blocks of `threads` threads, and returns when all
 * have ended. A block is one thread of the system, on which its threads take turns. Each thread
 * has a stack of 256 KiB. It runs until it comes to a barrier or to a collective call, waits in a
 * call, calls gpunet_host_take_turns, or ends. The calls of gpunet.h and gpunet_team.h know the
 * threads' block and warp. gpunet_cpu.h launches kernels in CUDA C++ by it.
 *
 * Every thread gets `argument`. `on_turn` may be NULL. If threads wait for each other and none can
 * continue (a barrier to which not all come), the program ends with a message. Errors: -EINVAL
 * without a function or a block, or with a number of threads that is not 1 to 1,024; the system's,
 * when it refuses a thread: those that were started may still run then; -ENOTRECOVERABLE when
 * there is no memory for stacks.
 */
int gpunet_host_run_blocks(uint32_t blocks,
                           uint32_t threads,
                           gpunet_host_thread_fn function,
                           void *argument,
                           gpunet_host_turn_fn on_turn);

/**
 * Returns the number of the calling thread's block, from 0. A thread that runs no kernel is the
 * only one of block 0.
 */
uint32_t gpunet_host_block(void);

/**
 * Waits for all threads of the calling thread's block, and returns the sum of their values. What
 * each has written before is visible to all afterwards. Threads that have ended are not waited
 * for.
 */
uint32_t gpunet_host_sync_block(uint32_t value);

/**
 * Waits for all threads of the calling thread's warp, as gpunet_host_sync_block.
 */
uint32_t gpunet_host_sync_warp(uint32_t value);

/**
 * Lets other threads of the calling thread's block run. A loop that waits for one of them calls
 * it. Returns 1 if there were any, else 0.
 */
int gpunet_host_take_turns(void);

/**
 * Points a module's calls under GPUnet's names (gsend and its like) at the launch's sockets:
 * writes the token's net value to the module's variable gpunet_attachment. `module` is a CUmodule
 * of the attachment's context. Calls with an explicit net (gpunet_send and its like) need none of
 * this. Do it between launches of the module's kernels.
 *
 * Errors: -EBADF; -EINVAL for a NULL module; -EOPNOTSUPP on the CPU device; -EIO when the module
 * has no such variable, or with CUDA's error.
 */
int gpunet_host_bind_module(const struct gpunet_host_token_t *token, void *module);

/**
 * As gpunet_host_bind_module, for the module that a kernel is in, where the program has no
 * CUmodule: kernels that nvcc linked into it. `function` is a cudaFunction_t (cudaGetFuncBySymbol)
 * or a CUfunction.
 *
 * Errors: as gpunet_host_bind_module; -EIO also with a driver before CUDA 11.0.
 */
int gpunet_host_bind_kernel(const struct gpunet_host_token_t *token, void *function);

/**
 * Checks that `count` kernels fit on the attachment's GPU at the same time. Kernels that wait for
 * each other must fit. It also loads their code, so call it before the first of them runs. The
 * kernels that run already are not counted, because the program launched them. On the CPU device
 * everything fits.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL; -ENOSPC when they do not fit: the reason says how many blocks
 * would; -EIO with CUDA's error.
 */
int gpunet_host_check_co_resident(const struct gpunet_host_attachment_t *attachment,
                                  const struct gpunet_host_kernel *kernels,
                                  size_t count);

/**
 * Takes the sending direction of a stream from the kernels: those that send by the socket's number
 * get -EALREADY meanwhile. The program places messages in the direction's ring
 * (gpunet_host_sender_prepare), which kernels and queues fill and publish, or has a queue send
 * (gpunet_host_queue_send). Bytes that were sent before are delivered first.
 *
 * On success `*sender` is a handle that gpunet_host_sender_give_back ends. Errors: -EBADF, also
 * when a kernel has closed the socket; -EFAULT; -ENOTCONN of a listener; -EBUSY when a launch that
 * runs knows the socket, or may; -EALREADY when the program has the direction.
 */
int gpunet_host_device_take_send(const struct gpunet_host_device_socket_t *socket,
                                 struct gpunet_host_sender_t **sender);

/**
 * Takes the receiving direction of a stream from the kernels, as gpunet_host_device_take_send.
 *
 * On success `*receiver` is a handle that gpunet_host_receiver_give_back ends.
 * Errors: as gpunet_host_device_take_send.
 */
int gpunet_host_device_take_recv(const struct gpunet_host_device_socket_t *socket,
                                 struct gpunet_host_receiver_t **receiver);

/**
 * Reserves `len` bytes of the ring for the next message, and stores its place, gates and trigger
 * in `*message`. As many messages may be prepared ahead as the ring holds. They are published in
 * the order in which they were prepared; a later one publishes all before it. Before the next
 * call, wait for kernels that send further messages from one (`position` + i * `len`).
 *
 *     gpunet_host_send_message message;
 *     gpunet_host_sender_prepare(sender, 4096, &message);
 *     fill<<<blocks, threads, 0, stream>>>(net, message.prepared, message.room);
 *     gpunet_host_queue_post(queue, &message.post, 1);       // if the kernel does not release the trigger itself
 *
 * Errors: -EBADF; -EFAULT; -EINVAL for 0 bytes; -EMSGSIZE for more than the ring has; -ENOBUFS
 * when the ring has no room for it beside messages that are prepared and not published; -EBUSY
 * when a CUDA graph has operations of the direction; the stream's failure.
 */
int gpunet_host_sender_prepare(const struct gpunet_host_sender_t *sender,
                               size_t len,
                               struct gpunet_host_send_message *message);

/**
 * Names the next `len` bytes of the stream as a message to come, and stores its place, gate and
 * trigger in `*message`.
 *
 *     gpunet_host_recv_message expected;
 *     gpunet_host_receiver_prepare(receiver, 4096, &expected);
 *     read<<<blocks, threads, 0, stream>>>(net, expected.prepared);   // waits for it, reads it, releases its trigger
 *
 * Errors: as gpunet_host_sender_prepare; -ENOBUFS when the ring has no room for it beside messages
 * that are prepared and not consumed.
 */
int gpunet_host_receiver_prepare(const struct gpunet_host_receiver_t *receiver,
                                 size_t len,
                                 struct gpunet_host_recv_message *message);

/**
 * Stores the size of the direction's ring in bytes: the longest message that can be prepared.
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_sender_capacity(const struct gpunet_host_sender_t *sender, size_t *capacity);

/**
 * Stores the size of the direction's ring in bytes: the longest message that can be prepared.
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_receiver_capacity(const struct gpunet_host_receiver_t *receiver, size_t *capacity);

/**
 * Stores how far the direction has progressed, and why it has ended. An error stays.
 *
 * Errors: -EBADF; -EFAULT; -EIO when the device's memory cannot be read.
 */
int gpunet_host_sender_outcome(const struct gpunet_host_sender_t *sender, struct gpunet_host_direction_report *outcome);

/**
 * Stores how far the direction has progressed, and why it has ended. An error stays.
 *
 * Errors: as gpunet_host_sender_outcome.
 */
int gpunet_host_receiver_outcome(const struct gpunet_host_receiver_t *receiver,
                                 struct gpunet_host_direction_report *outcome);

/**
 * Gives the direction back to the kernels. Messages that were prepared and not published are void.
 * The handle is stale once the call has begun, whatever the call returns.
 *
 * Errors: -EBADF; -EBUSY when a launch that runs knows the socket, or a queue has operations of
 * the direction: it stays taken until those are done, and gpunet_host_device_take_send gives it
 * again.
 */
int gpunet_host_sender_give_back(struct gpunet_host_sender_t *sender);

/**
 * Gives the direction back to the kernels. Bytes that have landed and were not consumed are
 * theirs. The handle is stale once the call has begun, whatever the call returns.
 *
 * Errors: as gpunet_host_sender_give_back.
 */
int gpunet_host_receiver_give_back(struct gpunet_host_receiver_t *receiver);

/**
 * Returns the number by which kernels of the device use the socket: the argument `socket` of
 * gpunet.h's functions, `from_handle` of gpunet.cuh, also on the CPU device. A positive number,
 * valid until the socket is closed.
 *
 * Errors: -EBADF.
 */
int gpunet_host_device_number(const struct gpunet_host_device_socket_t *socket);

/**
 * Returns what carries the stream: one of GPUNET_HOST_TRANSPORT_*.
 *
 * Errors: -EBADF; -ENOTCONN of a listener.
 */
int gpunet_host_device_transport(const struct gpunet_host_device_socket_t *socket);

/**
 * Stores the socket's own address, as getsockname(2); a listener's has the actual port.
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_device_getsockname(const struct gpunet_host_device_socket_t *socket,
                                   struct sockaddr *address,
                                   socklen_t *len);

/**
 * Stores the peer's address, as getpeername(2).
 *
 * Errors: -EBADF; -EFAULT; -ENOTCONN of a listener.
 */
int gpunet_host_device_getpeername(const struct gpunet_host_device_socket_t *socket,
                                   struct sockaddr *address,
                                   socklen_t *len);

/**
 * Connects a socket of the attachment's device to a struct sockaddr_in or sockaddr_in6. The device
 * has 256 slots for such sockets, in addition to the setting `sockets` for those of its kernels.
 * `options` are those of gpunet.h, and later calls of kernels on the socket obey them; NULL: the
 * defaults. The call waits for at most `timeout_ns` nanoseconds; negative: without limit (the
 * transport has a limit of its own). Over peer a connect waits until the other end accepts.
 *
 *     gpunet_host_device_socket_t *socket;
 *     gpunet_host_device_connect(attachment, (struct sockaddr *)&address, sizeof address, NULL, 5000000000, &socket);
 *     kernel<<<blocks, threads, 0, stream>>>(net, gpunet_host_device_number(socket));
 *
 * On success `*socket` is a handle that gpunet_host_device_close or gpunet_host_device_leave ends.
 * Errors: -EBADF; -EFAULT; -EINVAL, also for timeout 0 and for options that no proxy supports;
 * -EAFNOSUPPORT; -EOPNOTSUPP (no such transport here); -ETIMEDOUT; -ECONNREFUSED; -ENETUNREACH;
 * -EHOSTUNREACH; -EMFILE (all of the 256 slots are in use); -ENFILE; -ENOBUFS (no ring memory);
 * -EBUSY (all launch numbers of the attachment are in use); -ENETDOWN; -ECANCELED, when the
 * attachment is closed.
 */
int gpunet_host_device_connect(const struct gpunet_host_attachment_t *attachment,
                               const struct sockaddr *address,
                               socklen_t len,
                               const struct gpunet_options *options,
                               int64_t timeout_ns,
                               struct gpunet_host_device_socket_t **socket);

/**
 * Listens at an address with a socket of the attachment's device; port 0 takes a free one
 * (gpunet_host_device_getsockname). At most `backlog` connections wait to be accepted. Accepted
 * sockets inherit the options; NULL: the defaults. Waits for the proxy's answer. Kernels accept at
 * it by its number, and the program by gpunet_host_device_accept.
 *
 *     gpunet_host_device_listen(attachment, (struct sockaddr *)&address, sizeof address, NULL, 128, &listener);
 *     gpunet_host_device_accept(listener, 5000000000, &socket);
 *
 * On success `*socket` is a handle that gpunet_host_device_close or gpunet_host_device_leave ends.
 * Errors: -EBADF; -EFAULT; -EINVAL; -EAFNOSUPPORT; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; otherwise
 * as gpunet_host_device_connect.
 */
int gpunet_host_device_listen(const struct gpunet_host_attachment_t *attachment,
                              const struct sockaddr *address,
                              socklen_t len,
                              const struct gpunet_options *options,
                              int backlog,
                              struct gpunet_host_device_socket_t **socket);

/**
 * Accepts the connection that has waited longest, as a socket of the same device. It waits for at
 * most `timeout_ns` nanoseconds; negative: without limit; 0: not at all. Several threads may
 * accept, and kernels at the same time.
 *
 * On success `*accepted` is a handle that gpunet_host_device_close or gpunet_host_device_leave
 * ends. Errors: -EBADF, also when the listener is closed meanwhile; -EFAULT; -EINVAL when it does
 * not listen; -EAGAIN when the time is over; -EMFILE (all of the 256 slots are in use: the
 * connection stays); -ENETDOWN; -ECANCELED.
 */
int gpunet_host_device_accept(const struct gpunet_host_device_socket_t *socket,
                              int64_t timeout_ns,
                              struct gpunet_host_device_socket_t **accepted);

/**
 * Leaves the socket to the kernels of its device: one of them closes it, or the end of the
 * attachment. Returns its number, as gpunet_host_device_number. The handle is stale then.
 * Directions that are taken stay so until they are given back.
 *
 * Errors: -EBADF.
 */
int gpunet_host_device_leave(struct gpunet_host_device_socket_t *socket);

/**
 * Closes the socket: what was sent is still delivered. If launches that run know it, or its
 * directions are taken, it is closed when the last of them has ended, or been given back. An
 * accept that another thread waits in returns -EBADF. The handle is stale once the call has begun.
 *
 * Errors: -EBADF.
 */
int gpunet_host_device_close(struct gpunet_host_device_socket_t *socket);

/**
 * Makes a queue of the CPU device: a thread carries the operations out.
 *
 *     gpunet_host_queue_cpu(attachment, &queue);
 *     gpunet_host_queue_send(queue, sender, message, sizeof message);
 *     if (gpunet_host_queue_synchronize(queue, 60000) < 0) puts(gpunet_host_last_error());
 *     gpunet_host_queue_destroy(queue);
 *
 * On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EBADF; -EFAULT;
 * -EOPNOTSUPP for the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in
 * use; the system's, when it refuses a thread.
 */
int gpunet_host_queue_cpu(const struct gpunet_host_attachment_t *attachment, struct gpunet_host_queue_t **queue);

/**
 * Makes a queue on a CUDA stream of the attachment's context: a CUstream, or a cudaStream_t, made
 * with cudaStreamNonBlocking. Kernels and copies that the program puts on the stream run in the
 * order of the queue's operations. The stream stays until the queue is destroyed and all its
 * operations are done.
 *
 *     fill<<<blocks, threads, 0, stream>>>(message);
 *     gpunet_host_queue_send(queue, sender, message, bytes);
 *     gpunet_host_queue_recv(queue, receiver, answer, bytes);
 *     check<<<blocks, threads, 0, stream>>>(answer);
 *
 * Make queues before anything waits on a stream, because it loads kernels.
 *
 * On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EBADF; -EFAULT;
 * -EOPNOTSUPP for the attachment of the CPU device, and when the driver (CUDA 11.7 is needed) or
 * the environment (CUDA_LAUNCH_BLOCKING) does not let streams wait for words: the reason says
 * which; -EINVAL for a default stream or one of another context; -EBUSY when all launch numbers of
 * the attachment are in use, or as many queues are open as the GPU has connections for; -EIO with
 * CUDA's error; the system's.
 */
int gpunet_host_queue_cuda(const struct gpunet_host_attachment_t *attachment,
                           void *custream,
                           struct gpunet_host_queue_t **queue);

/**
 * As gpunet_host_queue_cuda, with settings. NULL means the defaults, and so does 0 in a field.
 *
 *     gpunet_host_queue_settings settings = {0};
 *     settings.fragment_bytes = 4 << 20;                     // fewer and longer copies, for rings of 16 MiB
 *     settings.flags = GPUNET_HOST_QUEUE_NO_SHORT;           // beside a kernel that fills the GPU
 *     gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue);
 *
 * On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EINVAL for
 * settings out of their range, or flags that are not known; otherwise as gpunet_host_queue_cuda.
 */
int gpunet_host_queue_cuda_with(const struct gpunet_host_attachment_t *attachment,
                                void *custream,
                                const struct gpunet_host_queue_settings *settings,
                                struct gpunet_host_queue_t **queue);

/**
 * Sends `len` bytes, any number, from memory of the device or of the host. The memory stays, and
 * nobody writes it, until the operation is done. It is sent after all that was published before.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL for 0 bytes; -EALREADY when messages that were prepared before
 * are neither published nor posted on a queue; -EBUSY as long as another queue has operations of
 * the direction; -ENOBUFS when the socket's stream has no more positions; -EAGAIN when the CUDA
 * stream is full of operations and none of them passes for a second; -EOPNOTSUPP for pageable
 * memory where the operation is a kernel (while the stream is being captured, or with
 * GPUNET_HOST_QUEUE_KERNELS); -EIO with CUDA's error.
 */
int gpunet_host_queue_send(const struct gpunet_host_queue_t *queue,
                           const struct gpunet_host_sender_t *sender,
                           const void *data,
                           size_t len);

/**
 * Receives exactly `len` bytes into memory of the device or of the host, which stays, and which
 * nobody else uses, until the operation is done.
 *
 * Errors: as gpunet_host_queue_send.
 */
int gpunet_host_queue_recv(const struct gpunet_host_queue_t *queue,
                           const struct gpunet_host_receiver_t *receiver,
                           void *data,
                           size_t len);

/**
 * Begins to send `len` bytes, as gpunet_host_queue_send, when all that was enqueued before is
 * done, and leaves in `*started` what gpunet_host_queue_finish waits for. What follows on the
 * queue does not wait for the message; only operations of sending directions do. So a program
 * sends and receives at once.
 *
 *     gpunet_host_started both[2];
 *     gpunet_host_queue_start_send(queue, sender, message, bytes, &both[0]);
 *     gpunet_host_queue_start_recv(queue, receiver, answer, bytes, &both[1]);
 *     gpunet_host_queue_finish(queue, both, 2);
 *     check<<<blocks, threads, 0, stream>>>(answer);
 *
 * The memory stays, and nobody writes it, until gpunet_host_queue_finish has waited for it on the
 * queue.
 *
 * Errors: as gpunet_host_queue_send; -EOPNOTSUPP while the CUDA stream is being captured, and
 * where the queue's operations are kernels.
 */
int gpunet_host_queue_start_send(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_sender_t *sender,
                                 const void *data,
                                 size_t len,
                                 struct gpunet_host_started *started);

/**
 * Begins to receive exactly `len` bytes, as gpunet_host_queue_start_send sends. The memory stays,
 * and nobody else uses it, until gpunet_host_queue_finish has waited for it on the queue.
 *
 * Errors: as gpunet_host_queue_start_send.
 */
int gpunet_host_queue_start_recv(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_receiver_t *receiver,
                                 void *data,
                                 size_t len,
                                 struct gpunet_host_started *started);

/**
 * Has the queue wait until `count` messages that it has started are done: operations that are
 * enqueued later come after them. The call itself does not wait. Messages may be done already; one
 * that has failed counts as done (gpunet_host_queue_outcome).
 *
 * Errors: -EBADF; -EFAULT; -EINVAL for what this queue has not started: then it waits for none of
 * them; -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
 */
int gpunet_host_queue_finish(const struct gpunet_host_queue_t *queue,
                             const struct gpunet_host_started *started,
                             size_t count);

/**
 * Releases `count` triggers in their order. A trigger that comes too late does nothing.
 *
 *     gpunet_trigger_t posts[] = {first.post, second.post};
 *     gpunet_host_queue_post(queue, posts, 2);
 *
 * Errors: -EBADF, also when the program has no such socket; -EFAULT; -EINVAL when it has not taken
 * that direction; -EBUSY, -EAGAIN and -EIO as in gpunet_host_queue_send; -EOPNOTSUPP while the
 * CUDA stream is being captured (a graph has sends and receives only). -EDEADLK for a trigger that
 * opens a gate at which the queue waits before it. After -EBADF, -EINVAL and -EDEADLK none is
 * released.
 */
int gpunet_host_queue_post(const struct gpunet_host_queue_t *queue, const gpunet_trigger_t *triggers, size_t count);

/**
 * Has the queue wait until `count` gates have passed: operations that are enqueued later come
 * afterwards. The call itself does not wait.
 *
 *     gpunet_host_queue_wait(queue, &expected.arrived, 1);
 *     check<<<blocks, threads, 0, stream>>>(expected.span);
 *     gpunet_host_queue_post(queue, &expected.consume, 1);
 *
 * Errors: as gpunet_host_queue_post.
 */
int gpunet_host_queue_wait(const struct gpunet_host_queue_t *queue, const gpunet_gate_t *gates, size_t count);

/**
 * Publishes a value in a word of the program's own. Whoever observes the value sees what the queue
 * did before. The word is memory of the device, or on a GPU memory of the host that the GPU has
 * mapped; it is aligned to 8 bytes. It stays valid until the operation is done. Read it by an
 * atomic load (acquire).
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when it is not aligned; -EAGAIN, -EIO and -EOPNOTSUPP as in
 * gpunet_host_queue_post.
 */
int gpunet_host_queue_write(const struct gpunet_host_queue_t *queue, uint64_t *address, uint64_t value);

/**
 * Waits until a word of the program's own has reached `value`, by a signed cyclic comparison:
 * (int64_t)(word - value) >= 0. The word is as in gpunet_host_queue_write. The call itself does
 * not wait.
 *
 * Errors: as gpunet_host_queue_write.
 */
int gpunet_host_queue_wait_word(const struct gpunet_host_queue_t *queue, uint64_t *address, uint64_t value);

/**
 * Stores the queue's state in a word of the program's own, as gpunet_host_queue_write does: 0, or
 * the errno (positive) of its first failure. A kernel behind it on the stream reads the word, and
 * need not work on bytes that never came. The call itself does not wait.
 *
 *     gpunet_host_queue_recv(queue, receiver, answer, bytes);
 *     gpunet_host_queue_check(queue, failed);
 *     use<<<blocks, threads, 0, stream>>>(answer, failed);   // ends at once if *failed is not 0
 *
 * Errors: as gpunet_host_queue_write; -EOPNOTSUPP also where the queue's operations are kernels.
 */
int gpunet_host_queue_check(const struct gpunet_host_queue_t *queue, uint64_t *address);

/**
 * Calls `callback` with `user`, once, when all operations that were enqueued before are done, also
 * after gpunet_host_queue_destroy. The callback gets -ECANCELED if the queue ended before that.
 *
 *     static void tell(void *user, int error) { sem_post(user); }
 *     gpunet_host_queue_notify(queue, tell, &semaphore);
 *
 * Errors: -EBADF; -EINVAL for a NULL callback; the system's, when it refuses a thread; -EAGAIN,
 * -EIO and -EOPNOTSUPP as in gpunet_host_queue_post. After an error it is not called.
 */
int gpunet_host_queue_notify(const struct gpunet_host_queue_t *queue, gpunet_host_done_fn callback, void *user);

/**
 * Waits until all that was enqueued is done, for at most `timeout_ns` nanoseconds; negative:
 * without limit; 0: asks only, and enqueues nothing. Other threads may use the queue meanwhile.
 *
 * Errors: -EBADF; -ETIMEDOUT; the first failure of the queue (gpunet_host_queue_outcome has more,
 * and tells whether -ETIMEDOUT is one); -ECANCELED when its attachment was closed before; -EAGAIN,
 * -EIO and -EOPNOTSUPP as in gpunet_host_queue_post.
 */
int gpunet_host_queue_synchronize(const struct gpunet_host_queue_t *queue, int64_t timeout_ns);

/**
 * Stores in `*outcome` how far the queue has come, and its first failure. It does not wait for
 * operations.
 *
 *     gpunet_host_queue_report report;
 *     gpunet_host_queue_outcome(queue, &report);
 *     if (report.error < 0) printf("operation %llu: %s\n", (unsigned long long)report.operation, strerror(-report.error));
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_queue_outcome(const struct gpunet_host_queue_t *queue,
                              struct gpunet_host_queue_report *outcome);

/**
 * Ends the queue's handle. Enqueued operations are still carried out: synchronize before you free
 * their memory and words, or destroy the stream. The handle is stale once the call has begun.
 *
 * Errors: -EBADF.
 */
int gpunet_host_queue_destroy(struct gpunet_host_queue_t *queue);

/**
 * Limits each wait of team operations that are enqueued from now on to `timeout_ns` nanoseconds,
 * counted from the beginning of the wait; negative, the default: no limit; 0: the wait checks
 * once. On a CUDA stream a wait with a limit is a kernel of one block.
 *
 * Errors: -EBADF.
 */
int gpunet_host_queue_set_team_timeout(const struct gpunet_host_queue_t *queue, int64_t timeout_ns);

/**
 * Copies `len` bytes from memory of the device to `offset` in the part of `member`. The device is
 * the one that has joined the team; an address in its own part is one, too
 * (gpunet_host_symmetric_address). The source stays, and nobody writes it, until the operation is
 * done; the destination may be freed at once. The member sees the bytes once a later signal or
 * barrier of this queue tells it.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL, with the reason, when the member does not exist, the bytes do
 * not fit, or the queue is another device's; -ECONNRESET when a member is known to have died;
 * -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post; -EOPNOTSUPP also for pageable memory
 * on a CUDA stream. What fails later is in gpunet_host_queue_outcome: -ECONNRESET when a member
 * has died; -ENOTCONN when the one that is waited for has left, or this member has; -ETIMEDOUT
 * when the time of gpunet_host_queue_set_team_timeout is over.
 */
int gpunet_host_queue_put(const struct gpunet_host_queue_t *queue,
                          const struct gpunet_host_symmetric_t *to,
                          size_t offset,
                          const void *data,
                          size_t len,
                          uint32_t member);

/**
 * Puts as gpunet_host_queue_put, and then signals as gpunet_host_queue_signal: who sees the value
 * sees the bytes.
 *
 *     gpunet_host_queue_put_signal(queue, box, 0, out, bytes, 0, round, right);
 *     gpunet_host_queue_wait_until(queue, team, 0, left, round);
 *     use<<<blocks, threads, 0, stream>>>(mine);      // what the left neighbour has put
 *
 * Errors: those of both.
 */
int gpunet_host_queue_put_signal(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_symmetric_t *to,
                                 size_t offset,
                                 const void *data,
                                 size_t len,
                                 uint32_t signal,
                                 uint64_t value,
                                 uint32_t member);

/**
 * Sets this member's word of a signal at `member`. When the member sees the value, it also sees
 * what the queue did before. Values only grow, up to GPUNET_MAX_SIGNAL. One queue, or one group of
 * kernels, at a time sets a signal of a member.
 *
 * Errors: as gpunet_host_queue_put; -EINVAL also when the signal does not exist or the value is
 * too large.
 */
int gpunet_host_queue_signal(const struct gpunet_host_queue_t *queue,
                             const struct gpunet_host_team_t *team,
                             uint32_t signal,
                             uint64_t value,
                             uint32_t member);

/**
 * Has the queue wait until the word that `source` writes for `signal` is at least `value`. What
 * the source had stored before is visible to later operations of the queue. The call itself does
 * not wait. A signal that the same stream sends later never ends the wait.
 *
 * Errors: as gpunet_host_queue_signal.
 */
int gpunet_host_queue_wait_until(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_team_t *team,
                                 uint32_t signal,
                                 uint32_t source,
                                 uint64_t value);

/**
 * Has the queue wait until all members have come to the barrier, by a queue or by a kernel. The
 * call itself does not wait.
 *
 * Errors: as gpunet_host_queue_put; -EBUSY as long as another queue has barriers or collectives of
 * the team under way. Later also -EBUSY when a kernel of this member is in a collective, and
 * -ECONNABORTED when an earlier one of this member has failed: the others would take the next one
 * for it.
 */
int gpunet_host_queue_barrier(const struct gpunet_host_queue_t *queue, const struct gpunet_host_team_t *team);

/**
 * Copies the `len` bytes of each member to every member: those of member `i` go to `offset + i *
 * len` of every part. All members give the same length. The source is as in gpunet_host_queue_put.
 *
 * Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
 */
int gpunet_host_queue_all_gather(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_symmetric_t *to,
                                 size_t offset,
                                 const void *data,
                                 size_t len);

/**
 * Copies `len` bytes of the member `root` to `offset` of every part. All members give the same
 * length. The data of the others is ignored, and may be null.
 *
 * Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
 */
int gpunet_host_queue_broadcast(const struct gpunet_host_queue_t *queue,
                                const struct gpunet_host_symmetric_t *to,
                                size_t offset,
                                const void *data,
                                size_t len,
                                uint32_t root);

/**
 * Copies `len` bytes from each member to each member: `data` has `len` bytes for each, and those
 * of member `j` for member `i` go to byte `offset + len * j` of member `i`'s part. All members
 * give the same length. The source is as in gpunet_host_queue_put.
 *
 * Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
 */
int gpunet_host_queue_all_to_all(const struct gpunet_host_queue_t *queue,
                                 const struct gpunet_host_symmetric_t *to,
                                 size_t offset,
                                 const void *data,
                                 size_t len);

/**
 * Allocates `len` bytes of zeroed memory for kernels of the attachment's device: GPU memory, or
 * for the CPU device the heap. A program may as well use memory of its own (cudaMalloc, malloc).
 *
 * On success `*buffer` is a handle that gpunet_host_buffer_free ends.
 * Errors: -EBADF; -ENOMEM; on a GPU also for 0 bytes.
 */
int gpunet_host_alloc(const struct gpunet_host_attachment_t *attachment,
                      size_t len,
                      struct gpunet_host_buffer_t **buffer);

/**
 * Stores the buffer's address on its device, which a kernel takes as a pointer, and its length.
 * Either pointer may be NULL. The address is valid until gpunet_host_buffer_free.
 *
 * Errors: -EBADF.
 */
int gpunet_host_buffer_address(const struct gpunet_host_buffer_t *buffer, uint64_t *address, size_t *len);

/**
 * Copies `len` bytes from `data` to `offset` in the buffer. No kernel may be using these bytes.
 * `data` is read during the call only.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when the range is not inside the buffer; -EIO with CUDA's
 * error.
 */
int gpunet_host_buffer_write(const struct gpunet_host_buffer_t *buffer, size_t offset, const void *data, size_t len);

/**
 * Copies `len` bytes at `offset` in the buffer to `data`. No kernel may be writing these bytes.
 * `data` is written during the call only.
 *
 * Errors: as gpunet_host_buffer_write.
 */
int gpunet_host_buffer_read(const struct gpunet_host_buffer_t *buffer, size_t offset, void *data, size_t len);

/**
 * Frees the buffer. No kernel uses it any more.
 *
 * Errors: -EBADF.
 */
int gpunet_host_buffer_free(struct gpunet_host_buffer_t *buffer);

/**
 * Returns the member's rank, from 0.
 *
 * Errors: -EBADF.
 */
int gpunet_host_team_rank(const struct gpunet_host_team_t *team);

/**
 * Returns how many members the team has.
 *
 * Errors: -EBADF.
 */
int gpunet_host_team_size(const struct gpunet_host_team_t *team);

/**
 * Stores in `*value` the parameter by which kernels of a launch act as this member. Pass it by
 * value. `token` is of a launch on the attachment that joined. The kernels end before the team is
 * left.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when the token is of another attachment.
 */
int gpunet_host_team_value(const struct gpunet_host_team_t *team,
                           const struct gpunet_host_token_t *token,
                           gpunet_team_t *value);

/**
 * Waits until all members have called it, for at most the time that the team was made with. It
 * does not wait for kernels.
 *
 * Errors, for all members: -ETIMEDOUT; -ECONNRESET when a member has died; -ENOTCONN when one has
 * left; -EINVAL when one does something else. -EBADF.
 */
int gpunet_host_team_barrier(const struct gpunet_host_team_t *team);

/**
 * Leaves the team when all members do. Its kernels have ended, and its symmetric memory is free.
 *
 * Errors: as gpunet_host_team_barrier: this member has left nevertheless, and the handle is stale.
 * -EBUSY while there is symmetric memory of the team, or a call or a kernel on the CPU uses it;
 * the team then stays usable.
 */
int gpunet_host_team_leave(struct gpunet_host_team_t *team);

/**
 * Binds an address of this machine at which the members of a team will meet; port 0 takes a free
 * one. Member 0 makes it where the address is not known beforehand, passes the id on, and then
 * calls gpunet_host_team_lead.
 *
 * On success `*listener` is a handle that gpunet_host_team_lead or gpunet_host_team_listener_close
 * ends. Errors: -EFAULT; -EINVAL for 0.0.0.0 and its like, which nobody can connect to; the
 * system's.
 */
int gpunet_host_team_listen(const struct sockaddr *address,
                            socklen_t len,
                            struct gpunet_host_team_listener_t **listener);

/**
 * Stores the id by which the other members join: a text, such as "127.0.0.1:7000/" and 32 digits.
 * Whoever has it can join.
 *
 * On success `*id` belongs to the caller, who gives it back with gpunet_host_free_string.
 * Errors: -EBADF, -EFAULT, -ENOMEM.
 */
int gpunet_host_team_id(const struct gpunet_host_team_listener_t *listener, char **id);

/**
 * Closes a listener with which no team was made.
 *
 * Errors: -EBADF.
 */
int gpunet_host_team_listener_close(struct gpunet_host_team_listener_t *listener);

/**
 * Joins as member 0 of `size`, at its listener, and waits until all have joined. The listener's
 * handle is stale once the call has begun. `options` may be NULL.
 *
 * On success `*team` is a handle that gpunet_host_team_leave ends.
 * Errors: as gpunet_host_team_join.
 */
int gpunet_host_team_lead(const struct gpunet_host_attachment_t *attachment,
                          struct gpunet_host_team_listener_t *listener,
                          uint32_t size,
                          const struct gpunet_host_team_options *options,
                          struct gpunet_host_team_t **team);

/**
 * Joins as member `rank` of `size`, by the id that all have. Member 0 listens at the id's address;
 * the others may come before it. Waits until all have joined. `options` may be NULL.
 *
 *     gpunet_host_team_join(attachment, getenv("TEAM"), rank, size, NULL, &team);
 *     gpunet_host_symmetric_alloc(team, 4096, &memory);
 *     gpunet_host_team_value(team, token, &parameters.team);
 *     gpunet_host_symmetric_value(memory, &parameters.memory);
 *     ... launch kernels with these parameters, wait for their end ...
 *     gpunet_host_symmetric_free(memory);
 *     gpunet_host_team_leave(team);
 *
 * On success `*team` is a handle that gpunet_host_team_leave ends. Errors, for all members:
 * -ETIMEDOUT when some have not come; -EINVAL when two have one rank, or sizes or numbers of
 * signals differ; -EOPNOTSUPP when a member is on another machine, or one cannot map another's
 * memory; -ECONNRESET when one has died. For this one: -EBADF; -EFAULT; -EINVAL for a text that is
 * no id, or no such member; -ECONNREFUSED when the team is complete without it, or the id is
 * another team's; -EPROTONOSUPPORT when member 0 is of another version; the system's.
 */
int gpunet_host_team_join(const struct gpunet_host_attachment_t *attachment,
                          const char *id,
                          uint32_t rank,
                          uint32_t size,
                          const struct gpunet_host_team_options *options,
                          struct gpunet_host_team_t **team);

/**
 * Reads from the environment the rank and the number of members that torchrun, mpirun (Open MPI)
 * or srun has given this program. A program uses them to choose its device before it joins
 * (gpunet_host_team_launched).
 *
 * Errors: -EFAULT; -ENOENT when the environment names no team.
 */
int gpunet_host_team_environment(uint32_t *rank, uint32_t *size);

/**
 * Joins with the rank, size and address that torchrun, mpirun (Open MPI) or srun has put into the
 * environment. If GPUNET_TEAM holds an id, members meet there instead. `options` may be NULL.
 *
 * On success `*team` is a handle that gpunet_host_team_leave ends.
 * Errors: as gpunet_host_team_join; -ENOENT when the environment names no team.
 */
int gpunet_host_team_launched(const struct gpunet_host_attachment_t *attachment,
                              const struct gpunet_host_team_options *options,
                              struct gpunet_host_team_t **team);

/**
 * Makes a team of all members that give the same `colour`. `key` ranks them; members with equal
 * keys keep their order in this team. All members call it. This team stays usable.
 *
 * On success `*part` is a handle that gpunet_host_team_leave ends.
 * Errors: as gpunet_host_team_join.
 */
int gpunet_host_team_split(const struct gpunet_host_team_t *team,
                           uint32_t colour,
                           int64_t key,
                           struct gpunet_host_team_t **part);

/**
 * Allocates `len` bytes for each member, all zero. All members call it, with the same length, in
 * the same order among what they do together. Waits until all have the memory mapped. If one
 * member cannot have it, none gets it, and the team stays usable.
 *
 * On success `*symmetric` is a handle that gpunet_host_symmetric_free ends. Errors, for all
 * members: as gpunet_host_team_barrier; -EINVAL also when lengths differ; -EOPNOTSUPP with the
 * reason when a member cannot have or map the memory. -EBADF; -ENOMEM.
 */
int gpunet_host_symmetric_alloc(const struct gpunet_host_team_t *team,
                                size_t len,
                                struct gpunet_host_symmetric_t **symmetric);

/**
 * As gpunet_host_symmetric_alloc, but the bytes need not exist yet: gpunet_host_symmetric_commit
 * makes the first of them exist, before anybody uses them. On a GPU in a team with a CPU, or whose
 * memory others cannot map, all of them exist at once.
 *
 *     gpunet_host_symmetric_reserve(team, 1 << 30, &heap);
 *     gpunet_host_symmetric_commit(heap, 4096);
 *
 * On success `*symmetric` is a handle that gpunet_host_symmetric_free ends.
 * Errors: as gpunet_host_symmetric_alloc.
 */
int gpunet_host_symmetric_reserve(const struct gpunet_host_team_t *team,
                                  size_t len,
                                  struct gpunet_host_symmetric_t **symmetric);

/**
 * Makes the first `len` bytes of memory exist that was reserved, all zero. All members call it,
 * with the same length, in the same order among what they do together. Once it returns, all have
 * them. It waits for no kernel: kernels may use the bytes that exist meanwhile.
 *
 * Errors, for all members: as gpunet_host_symmetric_alloc; the memory stays unchanged. -EBADF;
 * -EINVAL for more bytes than there are.
 */
int gpunet_host_symmetric_commit(const struct gpunet_host_symmetric_t *symmetric, size_t len);

/**
 * Stores in `*value` the parameter by which kernels use the memory. Pass it by value. The kernels
 * end before the memory is freed.
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_symmetric_value(const struct gpunet_host_symmetric_t *symmetric, gpunet_symmetric_t *value);

/**
 * Stores the address at which this member's device has mapped the part of `member`.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when there is no such member.
 */
int gpunet_host_symmetric_address(const struct gpunet_host_symmetric_t *symmetric, uint32_t member, uint64_t *address);

/**
 * Copies `len` bytes from `data` to `offset` in this member's own part. No kernel and no member
 * may be using these bytes.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when the range is not inside the part; -EIO with CUDA's error.
 */
int gpunet_host_symmetric_write(const struct gpunet_host_symmetric_t *symmetric,
                                size_t offset,
                                const void *data,
                                size_t len);

/**
 * Copies `len` bytes at `offset` in this member's own part to `data`. No kernel and no member may
 * be writing these bytes.
 *
 * Errors: as gpunet_host_symmetric_write.
 */
int gpunet_host_symmetric_read(const struct gpunet_host_symmetric_t *symmetric, size_t offset, void *data, size_t len);

/**
 * Frees this member's mappings; it waits for nobody, and other members keep theirs. No kernel of
 * this member uses the memory any more.
 *
 * Errors: -EBADF.
 */
int gpunet_host_symmetric_free(struct gpunet_host_symmetric_t *symmetric);

/**
 * Describes a tensor of DLPack as an array. `tensor` is a DLTensor: `&managed->dl_tensor` of a
 * DLManagedTensor or a DLManagedTensorVersioned. The tensor stays the program's, which deletes it
 * when the array is not used any more: the array has its shape and its data. `name` is the
 * array's, and may be NULL.
 *
 *     DLManagedTensor *managed = ...;
 *     gpunet_host_array array;
 *     gpunet_host_array_of_dlpack(&managed->dl_tensor, "weights", &array);
 *     gpunet_host_channel_send(channel, &array, 1, NULL, NULL);
 *     managed->deleter(managed);
 *
 * Errors: -EFAULT; -EINVAL for strides that are not those of a contiguous array in row-major
 * order, for a negative number of dimensions or more than GPUNET_HOST_MAX_DIMS, and for a device
 * that channels do not know.
 */
int gpunet_host_array_of_dlpack(const void *tensor, const char *name, struct gpunet_host_array *array);

/**
 * Listens for channels at a struct sockaddr_in or sockaddr_in6; port 0 takes a free one
 * (gpunet_host_channel_getsockname). Neither a proxy nor a GPU is needed. `settings` may be NULL,
 * and are those of the channels that are accepted.
 *
 *     struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
 *     gpunet_host_channel_listen((struct sockaddr *)&address, sizeof address, NULL, &listener);
 *     gpunet_host_channel_accept(listener, -1, &channel);
 *
 * On success `*listener` is a handle that gpunet_host_channel_listener_close ends. Errors:
 * -EFAULT; -EINVAL for settings out of their range; -EAFNOSUPPORT; -EADDRINUSE; -EADDRNOTAVAIL;
 * -EACCES; -EMFILE; the system's.
 */
int gpunet_host_channel_listen(const struct sockaddr *address,
                               socklen_t len,
                               const struct gpunet_host_channel_settings *settings,
                               struct gpunet_host_channel_listener_t **listener);

/**
 * Stores the address of a listener, as getsockname(2) does.
 *
 * Errors: -EBADF; -EFAULT.
 */
int gpunet_host_channel_getsockname(const struct gpunet_host_channel_listener_t *listener,
                                    struct sockaddr *address,
                                    socklen_t *len);

/**
 * Accepts a channel. It waits for at most `timeout_ns` nanoseconds; negative: without limit; 0:
 * not at all. Several threads may accept. A program that connects and is no channel is told so,
 * and holds up nobody.
 *
 * On success `*channel` is a handle that gpunet_host_channel_close ends. Errors: -EBADF, also when
 * the listener is closed meanwhile; -EFAULT; -EAGAIN when the time is over; -EMFILE; -ENFILE; the
 * system's.
 */
int gpunet_host_channel_accept(const struct gpunet_host_channel_listener_t *listener,
                               int64_t timeout_ns,
                               struct gpunet_host_channel_t **channel);

/**
 * Closes a listener. Threads that wait in gpunet_host_channel_accept return -EBADF; channels stay.
 *
 * Errors: -EBADF.
 */
int gpunet_host_channel_listener_close(struct gpunet_host_channel_listener_t *listener);

/**
 * Connects a channel to a listener of channels, at a struct sockaddr_in or sockaddr_in6, over TCP.
 * It waits for at most `timeout_ns` nanoseconds; negative: without limit. `settings` may be NULL.
 *
 *     gpunet_host_channel_connect((struct sockaddr *)&address, sizeof address, NULL, 5000000000, &channel);
 *     gpunet_host_channel_send(channel, &array, 1, NULL, NULL);
 *     gpunet_host_channel_close(channel);
 *
 * On success `*channel` is a handle that gpunet_host_channel_close ends. Errors: -EFAULT; -EINVAL,
 * also for timeout 0 and for settings out of their range; -EAFNOSUPPORT; -ETIMEDOUT;
 * -ECONNREFUSED; -ENETUNREACH; -EHOSTUNREACH; -EPROTO when the other end is no listener of
 * channels; -ECONNRESET; -EMFILE; -ENFILE; the system's.
 */
int gpunet_host_channel_connect(const struct sockaddr *address,
                                socklen_t len,
                                const struct gpunet_host_channel_settings *settings,
                                int64_t timeout_ns,
                                struct gpunet_host_channel_t **channel);

/**
 * Returns 0 if the two ends can copy from memory to memory: they are on one machine, of one user,
 * and want it. Otherwise why not: one of GPUNET_HOST_REASON_*. What became of a transfer is in its
 * gpunet_host_outcome.
 *
 * Errors: -EBADF.
 */
int gpunet_host_channel_reason(const struct gpunet_host_channel_t *channel);

/**
 * Ends the sending direction, after the transfers that were begun before: the other end receives
 * them, and then -ENODATA. This end receives on. It waits for its turn for at most `timeout_ns`
 * nanoseconds; negative: without limit.
 *
 * Errors: -EBADF; -EAGAIN when the time is over; -EPIPE when it was ended before.
 */
int gpunet_host_channel_shutdown(const struct gpunet_host_channel_t *channel, int64_t timeout_ns);

/**
 * Closes the channel. The other end receives what was sent, and then -ENODATA. Calls of other
 * threads return -EBADF, and so do transfers that were started and have not ended; in the middle
 * of one of them the channel ends for the other end with -ECONNRESET. Their memory is in use until
 * gpunet_host_transfer_wait or gpunet_host_transfer_close says that they have ended. The handle is
 * stale once the call has begun.
 *
 * Errors: -EBADF.
 */
int gpunet_host_channel_close(struct gpunet_host_channel_t *channel);

/**
 * Sends `count` arrays as one transfer, and returns when the other end has all of it. With names
 * the other end may receive them in another order. `options` and `outcome` may be NULL. Once the
 * arguments are valid, `*outcome` is stored, also when the call fails: then it says how far the
 * transfer came.
 *
 *     gpunet_host_array array = {weights, shape, NULL, 2, {GPUNET_HOST_FLOAT, 32, 1}, GPUNET_HOST_CPU, 0};
 *     gpunet_host_outcome outcome;
 *     if (gpunet_host_channel_send(channel, &array, 1, NULL, &outcome) < 0) puts(gpunet_host_last_error());
 *     else printf("%llu bytes by %s\n", (unsigned long long)outcome.moved, outcome.text);
 *
 * Two ends that both send first wait for each other: start one of the two, or receive on another
 * thread.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL (too many arrays or dimensions, a negative dimension, a type
 * without size, a name that is too long, a device or stream that is none); -ENODEV, -EIO and
 * -EOPNOTSUPP for GPUs; -EAGAIN when the time is over before its turn. After them the channel goes
 * on, and also after what the other end answers: -EMSGSIZE when it asks for arrays of another
 * number, type, shape or name; -ECANCELED when it does not want the transfer; the errno of its
 * gpunet_host_channel_refuse. After these the channel has ended: -ECONNRESET when the other end
 * has died or closed; -ETIMEDOUT when the time is over in the middle of the transfer; -EPROTO;
 * -EBADMSG; -EIO with CUDA's error. -EPIPE when it had ended before, or by
 * gpunet_host_channel_shutdown.
 */
int gpunet_host_channel_send(const struct gpunet_host_channel_t *channel,
                             const struct gpunet_host_array *arrays,
                             size_t count,
                             const struct gpunet_host_transfer_options *options,
                             struct gpunet_host_outcome *outcome);

/**
 * Receives the next transfer into the memory of `count` arrays, which have its types and shapes:
 * those of its names, or, if none of them has a name, in its order. It returns when all bytes are
 * there. Only then is the memory whole. `options` and `outcome` are as in
 * gpunet_host_channel_send.
 *
 * A program that does not know what comes looks first (gpunet_host_channel_peek).
 *
 * Errors: -EBADF; -EFAULT; -EINVAL as in gpunet_host_channel_send, and for arrays that share
 * memory; -ENODEV, -EIO and -EOPNOTSUPP for GPUs; -EAGAIN when no transfer came in time; -ENODATA
 * when the other end sends no more; -EMSGSIZE when the transfer has other arrays: it is refused,
 * and the channel goes on. After these the channel has ended, and the memory has any mixture of
 * what it had and what was sent: -ECONNRESET when the other end has died; -ETIMEDOUT when the time
 * is over in the middle of the transfer; -EBADMSG when a checksum is wrong; -EPROTO; -EIO with
 * CUDA's error. -EPIPE when it had ended before.
 */
int gpunet_host_channel_recv(const struct gpunet_host_channel_t *channel,
                             const struct gpunet_host_array *arrays,
                             size_t count,
                             const struct gpunet_host_transfer_options *options,
                             struct gpunet_host_outcome *outcome);

/**
 * Waits for the header of the next transfer, which stays the next one: a further call returns the
 * same, until it is received or refused. It waits for at most `timeout_ns` nanoseconds; negative:
 * without limit; 0: not at all.
 *
 *     gpunet_host_incoming incoming;
 *     while (gpunet_host_channel_peek(channel, -1, &incoming) == 0) {
 *         gpunet_host_description description;
 *         gpunet_host_channel_describe(channel, 0, &description);
 *         void *memory = malloc(description.bytes);
 *         gpunet_host_array array = {memory, description.shape, NULL, description.rank, description.dtype, GPUNET_HOST_CPU, 0};
 *         gpunet_host_channel_recv(channel, &array, 1, NULL, NULL);
 *     }
 *
 * Errors: -EBADF; -EFAULT; -EAGAIN when the time is over; -ENODATA when the other end sends no
 * more; -ECONNRESET and its like as in gpunet_host_channel_recv.
 */
int gpunet_host_channel_peek(const struct gpunet_host_channel_t *channel,
                             int64_t timeout_ns,
                             struct gpunet_host_incoming *incoming);

/**
 * Stores what array `index` of the transfer is that gpunet_host_channel_peek has seen. 0 is the
 * first one.
 *
 * Errors: -EBADF; -EFAULT; -EINVAL when it has no such array, or none is waiting.
 */
int gpunet_host_channel_describe(const struct gpunet_host_channel_t *channel,
                                 size_t index,
                                 struct gpunet_host_description *description);

/**
 * Refuses the transfer that gpunet_host_channel_peek has seen: its sender's call returns `-error`,
 * with `why` in its text. `error` is an errno, 1 to 4095. The channel goes on.
 *
 *     if (incoming.bytes > most) gpunet_host_channel_refuse(channel, EFBIG, "at most a gigabyte, please");
 *
 * Errors: -EBADF; -EFAULT; -EINVAL, also when no transfer is waiting; -ECONNRESET and its like as
 * in gpunet_host_channel_recv.
 */
int gpunet_host_channel_refuse(const struct gpunet_host_channel_t *channel, int error, const char *why);

/**
 * Begins to send `count` arrays, as gpunet_host_channel_send does, behind the transfers of the
 * direction that were begun before, and returns at once. What `arrays` and `options` point to is
 * used during the call only; the arrays' data stays, and nobody writes it, until the transfer has
 * ended (gpunet_host_transfer_wait), and so do the stream and `user`.
 *
 *     gpunet_host_transfer_t *out, *in;
 *     gpunet_host_channel_start_send(channel, &gradients, 1, NULL, &out);
 *     gpunet_host_channel_start_recv(channel, &weights, 1, NULL, &in);
 *     gpunet_host_transfer_wait(out, -1, NULL);
 *     gpunet_host_transfer_wait(in, -1, NULL);
 *     gpunet_host_transfer_close(out);
 *     gpunet_host_transfer_close(in);
 *
 * On success `*transfer` is a handle that gpunet_host_transfer_close ends. Errors: those of
 * gpunet_host_channel_send for arguments; the system's, when it refuses a thread.
 */
int gpunet_host_channel_start_send(const struct gpunet_host_channel_t *channel,
                                   const struct gpunet_host_array *arrays,
                                   size_t count,
                                   const struct gpunet_host_transfer_options *options,
                                   struct gpunet_host_transfer_t **transfer);

/**
 * Begins to receive a transfer into `count` arrays, as gpunet_host_channel_recv does, behind the
 * receives that were begun before, and returns at once. The memory stays, and nobody else uses it,
 * until the transfer has ended; else as gpunet_host_channel_start_send.
 *
 * On success `*transfer` is a handle that gpunet_host_transfer_close ends. Errors: those of
 * gpunet_host_channel_recv for arguments; the system's, when it refuses a thread.
 */
int gpunet_host_channel_start_recv(const struct gpunet_host_channel_t *channel,
                                   const struct gpunet_host_array *arrays,
                                   size_t count,
                                   const struct gpunet_host_transfer_options *options,
                                   struct gpunet_host_transfer_t **transfer);

/**
 * Waits until a transfer has ended, for at most `timeout_ns` nanoseconds; negative: without limit;
 * 0: asks only. `outcome` may be NULL; `*outcome` is stored in any case but -EBADF, and says how
 * far a transfer is that has not ended. Further calls return the same.
 *
 *     while (gpunet_host_transfer_wait(transfer, 1000000000, &outcome) == -EAGAIN && !outcome.done)
 *         printf("%llu of %llu bytes\n", (unsigned long long)outcome.moved, (unsigned long long)outcome.total);
 *
 * Errors: -EBADF; -EAGAIN when it has not ended, and `done` is 0; otherwise how the transfer
 * failed, as gpunet_host_channel_send and gpunet_host_channel_recv return it, with -ETIMEDOUT also
 * for one whose time was over before it began; -ECANCELED when it was cancelled; -EBADF with
 * `done` 1 when the channel was closed.
 */
int gpunet_host_transfer_wait(const struct gpunet_host_transfer_t *transfer,
                              int64_t timeout_ns,
                              struct gpunet_host_outcome *outcome);

/**
 * Cancels a transfer: gpunet_host_transfer_wait then returns -ECANCELED, soon. If it has not
 * begun, the channel goes on: it waits behind others, or for a transfer of the other end. One that
 * moves bytes takes the channel with it, at both ends. A transfer that has ended stays as it is.
 * The memory is in use until gpunet_host_transfer_wait says that the transfer has ended.
 *
 * Errors: -EBADF.
 */
int gpunet_host_transfer_cancel(const struct gpunet_host_transfer_t *transfer);

/**
 * Ends the handle of a transfer. One that has not ended is cancelled, and the call waits until it
 * has: the memory is free then. Not from within its gpunet_host_progress_fn.
 *
 * Errors: -EBADF.
 */
int gpunet_host_transfer_close(struct gpunet_host_transfer_t *transfer);

/**
 * Makes rings for kernels of the attachment's device.
 *
 * On success `*records` is a handle that gpunet_host_records_close ends. Errors: -EBADF; -EINVAL
 * for settings that cannot be; -ENOMEM when there is no memory for the rings; -EIO with CUDA's
 * error.
 */
int gpunet_host_records(const struct gpunet_host_attachment_t *attachment,
                        const struct gpunet_host_records_settings *settings,
                        struct gpunet_host_records_t **records);

/**
 * Stores what kernels are given: a parameter of type gpunet_records_t, by value. It is valid until
 * gpunet_host_records_close.
 *
 * Errors: -EBADF.
 */
int gpunet_host_records_value(const struct gpunet_host_records_t *records, gpunet_records_t *value);

/**
 * Calls `each` with the records that have come since the last call: those of each ring in order,
 * one ring after another. Returns how many there were. It does not wait; of each ring it reads
 * about as many as it keeps at most.
 *
 * It may be called while kernels run, and after they have ended, hung or were killed. Errors:
 * -EBADF; -EFAULT without a function; -EBUSY when another thread reads, and from within `each`.
 */
int64_t gpunet_host_records_read(const struct gpunet_host_records_t *records, gpunet_host_record_fn each, void *user);

/**
 * Stores how many records were read and lost so far.
 *
 * Errors: -EBADF; -EBUSY when another thread reads.
 */
int gpunet_host_records_count(const struct gpunet_host_records_t *records, struct gpunet_host_records_counts *counts);

/**
 * Frees the rings. No kernel uses them any more; what was not read is lost.
 *
 * Errors: -EBADF.
 */
int gpunet_host_records_close(struct gpunet_host_records_t *records);

/**
 * Returns the clock of kernels on the CPU, in nanoseconds: that of their records.
 */
uint64_t gpunet_host_now_ns(void);

/**
 * Makes `count` functions of the program callable by kernels of the attachment's device, and
 * starts the threads that run them.
 *
 *     static int64_t add(const void *request, size_t len, void *answer, size_t room, void *user) {
 *         const uint32_t *numbers = request;
 *         if (len != 8 || room < 4) return -EINVAL;
 *         *(uint32_t *)answer = numbers[0] + numbers[1];
 *         return 4;
 *     }
 *     gpunet_host_function all[] = {{.name = "add", .run = add, .request = 8, .answer = 4}};
 *     gpunet_host_calls_settings settings = {.channels = 132};
 *     gpunet_calls_t value;
 *     if (gpunet_host_calls(attachment, all, 1, &settings, &calls) == 0 &&
 *         gpunet_host_calls_value(calls, &value) == 0)
 *         work<<<132, 128>>>(net, value);
 *
 * On success `*calls` is a handle that gpunet_host_calls_close ends. Errors: -EBADF; -EINVAL for
 * settings or functions that cannot be; -EEXIST for two functions of the same number; -ENOMEM when
 * there is no memory for the channels; -EIO with CUDA's error; the system's, when it refuses a
 * thread.
 */
int gpunet_host_calls(const struct gpunet_host_attachment_t *attachment,
                      const struct gpunet_host_function *functions,
                      size_t count,
                      const struct gpunet_host_calls_settings *settings,
                      struct gpunet_host_calls_t **calls);

/**
 * Stores what kernels are given: a parameter of type gpunet_calls_t, by value. It is valid until
 * gpunet_host_calls_close.
 *
 * Errors: -EBADF.
 */
int gpunet_host_calls_value(const struct gpunet_host_calls_t *calls, gpunet_calls_t *value);

/**
 * Stores what has happened to calls so far.
 *
 * Errors: -EBADF.
 */
int gpunet_host_calls_count(const struct gpunet_host_calls_t *calls, struct gpunet_host_calls_counts *counts);

/**
 * Stops serving. Kernels may go on: their calls fail with -ENETDOWN, also those that wait.
 *
 * It waits two seconds for functions that run. Returns how many still run then; they use their
 * `user` until they return. Errors: -EBADF; -EDEADLK from within such a function.
 */
int gpunet_host_calls_stop(const struct gpunet_host_calls_t *calls);

/**
 * Stops serving, as gpunet_host_calls_stop does, and frees the channels. No kernel uses them any
 * more. Returns how many functions still run.
 *
 * Errors: -EBADF; -EDEADLK from within such a function.
 */
int gpunet_host_calls_close(struct gpunet_host_calls_t *calls);

/**
 * Sets where the log goes: to `callback`, with `user` as its last argument, up to `level`. A NULL
 * callback ends the log, which is how a program starts: the library writes nothing anywhere.
 *
 * When it returns, the callback before it is no longer running and will not be called again.
 * Errors: -EINVAL for another level; -EDEADLK from within the callback; -EBUSY when the program is
 * in Rust and logs itself.
 */
int gpunet_host_set_log(int level, gpunet_host_log_fn callback, void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUNET_HOST_H */
