/* Sockets of a device that the program opens, their taken directions, prepared messages and queues. */
#include "test.h"

#define BYTES 100000

static struct sockaddr_in name_of(gpunet_host_device_socket_t *socket) {
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    OK(gpunet_host_device_getsockname(socket, (struct sockaddr *)&address, &len));
    IS(len, sizeof address);
    return address;
}

static gpunet_host_device_socket_t *listener_of(gpunet_host_attachment_t *attachment, const struct gpunet_options *options) {
    gpunet_host_device_socket_t *listener = NULL;
    struct sockaddr_in any = loopback(0);
    OK(gpunet_host_device_listen(attachment, ADDRESS(any), options, 8, &listener));
    return listener;
}

struct accepts {
    gpunet_host_device_socket_t *listener, *accepted;
    int result;
};

static void *accept_one(void *argument) {
    struct accepts *accepts = (struct accepts *)argument;
    accepts->result = gpunet_host_device_accept(accepts->listener, 60000000000, &accepts->accepted);
    return NULL;
}

/* The two ends of a stream of the device. */
struct ends {
    gpunet_host_device_socket_t *near, *far;
};

static struct ends ends_new(gpunet_host_attachment_t *attachment, int transport, unsigned ring) {
    struct ends ends = {NULL, NULL};
    struct gpunet_options options;
    memset(&options, 0, sizeof options);
    options.transport = transport;
    options.send_ring = options.recv_ring = ring;
    struct accepts accepts = {listener_of(attachment, &options), NULL, 1};
    struct sockaddr_in address = name_of(accepts.listener), there;
    socklen_t len = sizeof there;
    pthread_t thread;
    start(&thread, accept_one, &accepts);
    OK(gpunet_host_device_connect(attachment, ADDRESS(address), &options, 60000000000, &ends.near));
    OK(pthread_join(thread, NULL));
    OK(accepts.result);
    ends.far = accepts.accepted;
    IS(gpunet_host_device_transport(ends.near), transport);
    OK(gpunet_host_device_getpeername(ends.near, (struct sockaddr *)&there, &len));
    IS(memcmp(&there, &address, sizeof there), 0);
    IS(gpunet_host_device_getpeername(accepts.listener, (struct sockaddr *)&there, &len), -ENOTCONN);
    OK(gpunet_host_device_close(accepts.listener));
    return ends;
}

/* What a callback was told. */
struct told {
    int times, error;
};

static void tell(void *user, int error) {
    struct told *told = (struct told *)user;
    told->error = error;
    __atomic_add_fetch(&told->times, 1, __ATOMIC_RELEASE);
}

static void until_told(const struct told *told) {
    while (__atomic_load_n(&told->times, __ATOMIC_ACQUIRE) == 0) usleep(100);
}

/* There and back, by two queues. */
static void echo(gpunet_host_attachment_t *attachment, int transport) {
    static unsigned char sent[BYTES], echoed[BYTES], back[BYTES];
    struct ends ends = ends_new(attachment, transport, 4096);
    gpunet_host_sender_t *near_sender = NULL, *far_sender = NULL;
    gpunet_host_receiver_t *near_receiver = NULL, *far_receiver = NULL;
    gpunet_host_queue_t *here = NULL, *there = NULL;
    struct told told = {0, 1};
    size_t capacity = 0;
    uint64_t words[2] = {0, 0};
    OK(gpunet_host_device_take_send(ends.near, &near_sender));
    OK(gpunet_host_device_take_recv(ends.near, &near_receiver));
    OK(gpunet_host_device_take_send(ends.far, &far_sender));
    OK(gpunet_host_device_take_recv(ends.far, &far_receiver));
    OK(gpunet_host_sender_capacity(near_sender, &capacity));
    IS(capacity, 4096);
    OK(gpunet_host_receiver_capacity(near_receiver, &capacity));
    IS(capacity, 4096);
    OK(gpunet_host_queue_cpu(attachment, &here));
    OK(gpunet_host_queue_cpu(attachment, &there));
    fill(sent, 3, 0, BYTES);
    OK(gpunet_host_queue_wait_word(here, &words[0], 7));
    OK(gpunet_host_queue_send(here, near_sender, sent, BYTES));
    OK(gpunet_host_queue_recv(here, near_receiver, back, BYTES));
    OK(gpunet_host_queue_write(here, &words[1], 8));
    OK(gpunet_host_queue_notify(here, tell, &told));
    OK(gpunet_host_queue_recv(there, far_receiver, echoed, BYTES));
    OK(gpunet_host_queue_send(there, far_sender, echoed, BYTES));
    IS(gpunet_host_queue_synchronize(here, 20000000), -ETIMEDOUT);
    REASON("under way");
    IS(gpunet_host_queue_synchronize(here, 0), -ETIMEDOUT);
    REASON("under way");
    IS(told.times, 0);
    IS(gpunet_host_sender_give_back(near_sender), -EBUSY);
    REASON("a queue has operations of this direction under way: wait until they are done");
    IS(gpunet_host_sender_give_back(near_sender), -EBADF);
    __atomic_store_n(&words[0], 7, __ATOMIC_RELEASE);
    OK(gpunet_host_queue_synchronize(here, 60000000000));
    /* Nothing is under way, and to ask is no operation. */
    for (int times = 0; times < 100; times++) OK(gpunet_host_queue_synchronize(here, 0));
    IS(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 8);
    same(back, 3, 0, BYTES);
    until_told(&told);
    IS(told.error, 0);
    OK(gpunet_host_queue_synchronize(there, -1));
    gpunet_host_queue_report outcome;
    OK(gpunet_host_queue_outcome(here, &outcome));
    IS(outcome.done, 7);
    IS(outcome.error, 0);
    gpunet_host_direction_report direction;
    OK(gpunet_host_receiver_outcome(far_receiver, &direction));
    IS(direction.position, BYTES);
    IS(direction.error, 0);
    OK(gpunet_host_device_take_send(ends.near, &near_sender));
    OK(gpunet_host_sender_outcome(near_sender, &direction));
    IS(direction.error, 0);

    /* The peer ends the stream: what waits for more fails, and the queue goes on. */
    OK(gpunet_host_sender_give_back(far_sender));
    OK(gpunet_host_receiver_give_back(far_receiver));
    OK(gpunet_host_queue_recv(here, near_receiver, back, 10));
    OK(gpunet_host_queue_notify(here, tell, &told));
    OK(gpunet_host_device_close(ends.far));
    IS(gpunet_host_queue_synchronize(here, 60000000000), -ENODATA);
    IS(gpunet_host_queue_synchronize(here, 0), -ENODATA);
    while (__atomic_load_n(&told.times, __ATOMIC_ACQUIRE) < 2) usleep(100);
    IS(told.error, -ENODATA);
    OK(gpunet_host_queue_outcome(here, &outcome));
    IS(outcome.error, -ENODATA);
    IS(outcome.operation, 7);
    IS(outcome.bytes, 0);
    OK(gpunet_host_receiver_outcome(near_receiver, &direction));
    IS(direction.error, -ENODATA);
    OK(gpunet_host_queue_destroy(there));
    OK(gpunet_host_queue_destroy(here));
    IS(gpunet_host_queue_destroy(here), -EBADF);
    IS(told.times, 2);
    OK(gpunet_host_sender_give_back(near_sender));
    OK(gpunet_host_receiver_give_back(near_receiver));
    OK(gpunet_host_device_close(ends.near));
}

/* Both ends send and receive at once, more than their rings hold, and learn from a word how it went. */
static void started(gpunet_host_attachment_t *attachment, int transport) {
    static unsigned char sent[2][BYTES], heard[2][BYTES];
    struct ends ends = ends_new(attachment, transport, 4096);
    gpunet_host_device_socket_t *sockets[2] = {ends.near, ends.far};
    gpunet_host_sender_t *senders[2] = {NULL, NULL};
    gpunet_host_receiver_t *receivers[2] = {NULL, NULL};
    gpunet_host_queue_t *queues[2] = {NULL, NULL}, *other = NULL;
    gpunet_host_started both[2][2], wrong;
    uint64_t words[2] = {0, 0}, failed = 9;
    for (int i = 0; i < 2; i++) {
        OK(gpunet_host_device_take_send(sockets[i], &senders[i]));
        OK(gpunet_host_device_take_recv(sockets[i], &receivers[i]));
        OK(gpunet_host_queue_cpu(attachment, &queues[i]));
        fill(sent[i], 5 + (size_t)i, 0, BYTES);
    }
    for (int i = 0; i < 2; i++) {
        OK(gpunet_host_queue_start_send(queues[i], senders[i], sent[i], BYTES, &both[i][0]));
        OK(gpunet_host_queue_start_recv(queues[i], receivers[i], heard[i], BYTES, &both[i][1]));
        IS(both[i][0].direction, GPUNET_SEND);
        IS(both[i][1].direction, GPUNET_RECV);
        IS(both[i][1].number, 1);
        IS(both[i][1].reserved, 0);
        OK(gpunet_host_queue_write(queues[i], &words[0], 1));
        if (i == 1) break;
        /* What follows does not wait for them; what follows the finish does. The peer has started nothing yet. */
        OK(gpunet_host_queue_finish(queues[i], both[i], 2));
        OK(gpunet_host_queue_write(queues[i], &words[1], 1));
        IS(gpunet_host_queue_synchronize(queues[i], 20000000), -ETIMEDOUT);
        IS(__atomic_load_n(&words[0], __ATOMIC_ACQUIRE), 1);
        IS(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
        /* Two queues of one direction have no order. */
        OK(gpunet_host_queue_cpu(attachment, &other));
        wrong = both[i][0];
        IS(gpunet_host_queue_start_recv(other, receivers[i], heard[i], 1, &wrong), -EBUSY);
        REASON("a queue has operations");
        IS(gpunet_host_queue_recv(other, receivers[i], heard[i], 1), -EBUSY);
        IS(wrong.direction, GPUNET_SEND);
        OK(gpunet_host_queue_destroy(other));
    }
    OK(gpunet_host_queue_finish(queues[1], both[1], 2));
    for (int i = 0; i < 2; i++) {
        OK(gpunet_host_queue_check(queues[i], &failed));
        OK(gpunet_host_queue_synchronize(queues[i], 60000000000));
        IS(__atomic_load_n(&failed, __ATOMIC_ACQUIRE), 0);
        same(heard[i], 6 - (size_t)i, 0, BYTES);
        /* They are done: nothing is left to wait for. */
        OK(gpunet_host_queue_finish(queues[i], both[i], 2));
        OK(gpunet_host_queue_synchronize(queues[i], 60000000000));
    }

    /* Values that this queue has not given. */
    for (int i = 0; i < 5; i++) {
        gpunet_host_started list[2] = {both[0][0], both[0][1]};
        if (i == 0) list[1] = both[1][1];
        if (i == 1) list[1].number++;
        if (i == 2) list[1].number = 0;
        if (i == 3) list[1].direction = 7;
        if (i == 4) memset(&list[1], 0, sizeof list[1]);
        IS(gpunet_host_queue_finish(queues[0], list, 2), -EINVAL);
        REASON(i == 3 ? "no queue has started" : "not started on this queue");
    }
    IS(gpunet_host_queue_finish(queues[0], NULL, 1), -EFAULT);
    OK(gpunet_host_queue_finish(queues[0], NULL, 0));
    IS(gpunet_host_queue_start_send(queues[0], senders[0], sent[0], 1, NULL), -EFAULT);
    IS(gpunet_host_queue_start_recv(queues[0], receivers[0], NULL, 1, &wrong), -EFAULT);
    IS(gpunet_host_queue_start_send(queues[0], senders[0], sent[0], 0, &wrong), -EINVAL);
    REASON("at least 1 byte");
    IS(gpunet_host_queue_start_send(queues[0], (gpunet_host_sender_t *)receivers[0], sent[0], 1, &wrong), -EBADF);
    IS(gpunet_host_queue_check(queues[0], NULL), -EFAULT);
    IS(gpunet_host_queue_check(queues[0], (uint64_t *)((char *)words + 1)), -EINVAL);
    REASON("aligned to 8 bytes");

    /* The peer ends the stream: what was started fails, the finish passes, and the word says so. */
    OK(gpunet_host_queue_start_recv(queues[0], receivers[0], heard[0], 10, &both[0][1]));
    IS(both[0][1].number, 2);
    OK(gpunet_host_queue_finish(queues[0], &both[0][1], 1));
    OK(gpunet_host_queue_check(queues[0], &failed));
    OK(gpunet_host_queue_destroy(queues[1]));
    OK(gpunet_host_sender_give_back(senders[1]));
    OK(gpunet_host_receiver_give_back(receivers[1]));
    OK(gpunet_host_device_close(ends.far));
    IS(gpunet_host_queue_synchronize(queues[0], 60000000000), -ENODATA);
    IS(__atomic_load_n(&failed, __ATOMIC_ACQUIRE), ENODATA);
    OK(gpunet_host_queue_destroy(queues[0]));
    IS(gpunet_host_queue_finish(queues[0], both[0], 2), -EBADF);
    OK(gpunet_host_sender_give_back(senders[0]));
    OK(gpunet_host_receiver_give_back(receivers[0]));
    OK(gpunet_host_device_close(ends.near));
}

struct play {
    gpunet_prepared_t send, recv;
    uint64_t send_ring, count;
};

/* Fills, releases and reads messages that follow the prepared ones. */
static void play_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct play *play = (struct play *)argument;
    (void)block, (void)blocks;
    for (uint64_t i = 0; i < play->count; i++) {
        gpunet_prepared_t out = play->send, in = play->recv;
        out.position += i * out.len;
        in.position += i * in.len;
        uint64_t end = out.position + out.len;
        gpunet_gate_t room = {out.socket, out.direction, end > play->send_ring ? end - play->send_ring : 0};
        gpunet_gate_t arrived = {in.socket, in.direction, in.position + in.len};
        gpunet_trigger_t post = {out.socket, out.direction, end}, consume = {in.socket, in.direction, in.position + in.len};
        struct gpunet_span span;
        OK(gpunet_wait(net, room, 60000000000));
        IS(gpunet_prepared_span(net, out, &span), (long long)out.len);
        IS(span.piece[0].len + span.piece[1].len, out.len);
        fill((unsigned char *)span.piece[0].data, i, 0, span.piece[0].len);
        if (span.piece[1].len > 0) fill((unsigned char *)span.piece[1].data, i, span.piece[0].len, span.piece[1].len);
        OK(gpunet_trigger_release(net, post));
        OK(gpunet_wait(net, arrived, -1));
        IS(gpunet_test(net, arrived), 1);
        IS(gpunet_prepared_span(net, in, &span), (long long)in.len);
        same((const unsigned char *)span.piece[0].data, i, 0, span.piece[0].len);
        if (span.piece[1].len > 0) same((const unsigned char *)span.piece[1].data, i, span.piece[0].len, span.piece[1].len);
        OK(gpunet_trigger_release(net, consume));
    }
    gpunet_gate_t none = {play->recv.socket, GPUNET_RECV, 1ull << 40};
    IS(gpunet_test(net, none), 0);
    IS(gpunet_wait(net, none, 1000), -EAGAIN);
    IS(gpunet_send(net, play->send.socket, "x", 1, 0), -EALREADY);
    IS(gpunet_prepared_span(net, play->send, NULL), -EFAULT);
}

static void prepared(gpunet_host_attachment_t *attachment, int transport) {
    struct ends ends = ends_new(attachment, transport, 4096);
    gpunet_host_sender_t *sender = NULL;
    gpunet_host_receiver_t *receiver = NULL;
    gpunet_host_send_message first, second;
    gpunet_host_recv_message expected;
    OK(gpunet_host_device_take_send(ends.near, &sender));
    IS(gpunet_host_device_take_send(ends.near, &sender), -EALREADY);
    REASON("has the direction already");
    OK(gpunet_host_device_take_recv(ends.far, &receiver));
    IS(gpunet_host_sender_prepare(sender, 0, &first), -EINVAL);
    REASON("at least 1 byte");
    IS(gpunet_host_sender_prepare(sender, 4097, &first), -EMSGSIZE);
    REASON("longer than the ring");
    IS(gpunet_host_sender_prepare(sender, 1, NULL), -EFAULT);
    OK(gpunet_host_sender_prepare(sender, 1000, &first));
    OK(gpunet_host_receiver_prepare(receiver, 1000, &expected));
    IS(first.prepared.socket, gpunet_host_device_number(ends.near));
    IS(first.prepared.direction, GPUNET_SEND);
    IS(first.prepared.len, 1000);
    IS(first.span.piece[0].len + first.span.piece[1].len, 1000);
    IS(first.post.position, 1000);
    IS(first.room.position, 0);
    IS(first.done.position, 1000);
    IS(expected.prepared.direction, GPUNET_RECV);
    IS(expected.arrived.position, 1000);
    IS(expected.consume.position, 1000);
    struct play play = {first.prepared, expected.prepared, 4096, 100};
    gpunet_host_token_t *token = NULL;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 1, play_kernel, &play));
    OK(gpunet_host_token_wait(token, 60000000000));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, NULL));

    /* The program fills, and a queue posts, waits, and gives back. */
    gpunet_host_queue_t *queue = NULL;
    OK(gpunet_host_queue_cpu(attachment, &queue));
    OK(gpunet_host_sender_prepare(sender, 4, &first));
    IS(first.prepared.position, 100 * 1000);
    OK(gpunet_host_sender_prepare(sender, 4, &second));
    OK(gpunet_host_receiver_prepare(receiver, 8, &expected));
    IS(gpunet_host_queue_send(queue, sender, "late", 4), -EALREADY);
    REASON("neither published nor posted");
    gpunet_gate_t rooms[2] = {first.room, second.room};
    OK(gpunet_host_queue_wait(queue, rooms, 2));
    OK(gpunet_host_queue_synchronize(queue, 60000000000));
    for (int i = 0; i < 2; i++) {
        memset(first.span.piece[i].data ? first.span.piece[i].data : &play, 'a', first.span.piece[i].len);
        memset(second.span.piece[i].data ? second.span.piece[i].data : &play, 'b', second.span.piece[i].len);
    }
    gpunet_trigger_t posts[2] = {first.post, second.post};
    OK(gpunet_host_queue_post(queue, posts, 2));
    OK(gpunet_host_queue_wait(queue, &expected.arrived, 1));
    OK(gpunet_host_queue_synchronize(queue, 60000000000));
    char heard[8];
    memcpy(heard, expected.span.piece[0].data, expected.span.piece[0].len);
    if (expected.span.piece[1].len > 0) memcpy(heard + expected.span.piece[0].len, expected.span.piece[1].data, expected.span.piece[1].len);
    IS(memcmp(heard, "aaaabbbb", 8), 0);
    OK(gpunet_host_queue_post(queue, &expected.consume, 1));
    OK(gpunet_host_queue_wait(queue, &second.done, 1));
    OK(gpunet_host_queue_synchronize(queue, 60000000000));
    gpunet_trigger_t nobodys = {1 << 30, GPUNET_SEND, 1};
    IS(gpunet_host_queue_post(queue, &nobodys, 1), -EBADF);
    REASON("no socket of that number");
    OK(gpunet_host_sender_give_back(sender));
    IS(gpunet_host_queue_post(queue, &first.post, 1), -EINVAL);
    REASON("has not taken that direction");
    OK(gpunet_host_queue_destroy(queue));
    OK(gpunet_host_receiver_give_back(receiver));
    OK(gpunet_host_device_close(ends.near));
    OK(gpunet_host_device_close(ends.far));
}

static void *close_later(void *socket) {
    usleep(50000);
    OK(gpunet_host_device_close((gpunet_host_device_socket_t *)socket));
    return NULL;
}

static void use_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    int socket = *(int *)argument;
    (void)block, (void)blocks;
    IS(gpunet_send(net, socket, "left", 4, MSG_WAITALL), 4);
    OK(gpunet_close(net, socket));
}

/* Settings that are wrong are refused, whatever the device. */
static void queue_settings(gpunet_host_attachment_t *attachment, void *stream) {
    gpunet_host_queue_settings settings;
    gpunet_host_queue_t *queue = NULL;
    memset(&settings, 0, sizeof settings);
    IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, NULL), -EFAULT);
    IS(gpunet_host_queue_cuda_with(attachment, stream, NULL, &queue), -EOPNOTSUPP);
    IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue), -EOPNOTSUPP);
    settings.short_bytes = 1, settings.fragment_bytes = 1 << 20, settings.depth = 64, settings.flags = GPUNET_HOST_QUEUE_KERNELS;
    IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue), -EOPNOTSUPP);
    REASON("gpunet_host_queue_cpu");
    settings.depth = 65;
    IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue), -EINVAL);
    REASON("depth is at most 64");
    settings.depth = 0, settings.flags = GPUNET_HOST_QUEUE_NO_SHORT;
    IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue), -EINVAL);
    REASON("short_bytes is 0");
    for (uint32_t flags = 3; flags != 0; flags <<= 1) {
        settings.flags = flags;
        IS(gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue), -EINVAL);
        REASON("GPUNET_HOST_QUEUE_KERNELS");
    }
    TRUE(queue == NULL);
}

/* Waits that end, sockets that go to kernels, and what is refused. */
static void opening(gpunet_host_attachment_t *attachment) {
    struct gpunet_options options;
    memset(&options, 0, sizeof options);
    options.transport = GPUNET_HOST_TRANSPORT_TCP;
    gpunet_host_device_socket_t *listener = listener_of(attachment, &options), *near = NULL, *far = NULL, *other = NULL;
    struct sockaddr_in address = name_of(listener);
    IS(gpunet_host_device_accept(listener, 0, &far), -EAGAIN);
    IS(gpunet_host_device_accept(listener, 10000000, &far), -EAGAIN);
    TRUE(far == NULL);
    /* No accept that gave up has taken this one. */
    OK(gpunet_host_device_connect(attachment, ADDRESS(address), &options, -1, &near));
    /* One that does not wait takes the connection that is there. */
    int accepted;
    do accepted = gpunet_host_device_accept(listener, 0, &far);
    while (accepted == -EAGAIN);
    IS(accepted, 0);
    IS(gpunet_host_device_accept(near, 0, &other), -EINVAL);
    IS(gpunet_host_device_transport(listener), -ENOTCONN);
    gpunet_host_sender_t *sender = NULL;
    IS(gpunet_host_device_take_send(listener, &sender), -ENOTCONN);

    /* A peer that never accepts. */
    gpunet_host_device_socket_t *deaf = listener_of(attachment, NULL);
    struct sockaddr_in its = name_of(deaf);
    options.transport = GPUNET_HOST_TRANSPORT_PEER;
    IS(gpunet_host_device_connect(attachment, ADDRESS(its), &options, 20000000, &other), -ETIMEDOUT);
    REASON("in time");
    IS(gpunet_host_device_connect(attachment, ADDRESS(its), &options, 0, &other), -EINVAL);
    REASON("its timeout is not 0");
    OK(gpunet_host_device_close(deaf));
    options.transport = 9;
    IS(gpunet_host_device_connect(attachment, ADDRESS(address), &options, 20000000, &other), -EINVAL);
    options.transport = GPUNET_HOST_TRANSPORT_TCP;
    struct sockaddr_in nowhere = loopback(1);
    IS(gpunet_host_device_connect(attachment, ADDRESS(nowhere), &options, -1, &other), -ECONNREFUSED);
    IS(gpunet_host_device_listen(attachment, ADDRESS(address), NULL, 1, NULL), -EFAULT);
    IS(gpunet_host_device_connect(attachment, NULL, 16, NULL, -1, &other), -EFAULT);
    REASON("the address is null");

    /* A kernel sends, and closes what the program has left to it. */
    int number = gpunet_host_device_number(near);
    TRUE(number > 0);
    gpunet_host_queue_t *queue = NULL;
    gpunet_host_receiver_t *receiver = NULL;
    char heard[4];
    OK(gpunet_host_device_take_recv(far, &receiver));
    OK(gpunet_host_queue_cpu(attachment, &queue));
    OK(gpunet_host_queue_recv(queue, receiver, heard, 4));
    IS(gpunet_host_device_leave(near), number);
    IS(gpunet_host_device_leave(near), -EBADF);
    gpunet_host_token_t *token = NULL;
    uint64_t left_open = 9;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 1, use_kernel, &number));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, &left_open));
    IS(left_open, 0);
    OK(gpunet_host_queue_synchronize(queue, 60000000000));
    IS(memcmp(heard, "left", 4), 0);

    /* Misuse. */
    uint64_t words[2] = {0, 0};
    IS(gpunet_host_queue_write(queue, (uint64_t *)((char *)words + 4), 1), -EINVAL);
    IS(gpunet_host_queue_wait_word(queue, NULL, 1), -EFAULT);
    IS(gpunet_host_queue_send(queue, sender, NULL, 1), -EFAULT);
    IS(gpunet_host_queue_send(queue, sender, heard, 1), -EBADF);
    IS(gpunet_host_queue_recv(queue, receiver, heard, 0), -EINVAL);
    REASON("at least 1 byte");
    IS(gpunet_host_queue_notify(queue, NULL, NULL), -EINVAL);
    IS(gpunet_host_queue_post(queue, NULL, 1), -EFAULT);
    OK(gpunet_host_queue_post(queue, NULL, 0));
    IS(gpunet_host_queue_cuda(attachment, words, &queue), -EOPNOTSUPP);
    REASON("gpunet_host_queue_cpu");
    queue_settings(attachment, words);
    IS(gpunet_host_queue_destroy((gpunet_host_queue_t *)far), -EBADF);
    REASON("another kind");

    /* A callback is called though the queue is gone; a queue that waits when the attachment is closed ends. */
    struct told told = {0, 1};
    OK(gpunet_host_queue_notify(queue, tell, &told));
    OK(gpunet_host_queue_destroy(queue));
    until_told(&told);
    IS(told.error, 0);

    pthread_t thread;
    start(&thread, close_later, listener);
    IS(gpunet_host_device_accept(listener, -1, &other), -EBADF);
    OK(pthread_join(thread, NULL));
    OK(gpunet_host_device_close(far));
    OK(gpunet_host_receiver_give_back(receiver));
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    opening(attachment);
    for (int transport = GPUNET_HOST_TRANSPORT_TCP; transport <= GPUNET_HOST_TRANSPORT_PEER; transport++) {
        echo(attachment, transport);
        started(attachment, transport);
        prepared(attachment, transport);
    }

    /* Handles outlive their attachment. */
    struct ends ends = ends_new(attachment, GPUNET_HOST_TRANSPORT_TCP, 4096);
    gpunet_host_receiver_t *receiver = NULL;
    gpunet_host_queue_t *queue = NULL;
    static unsigned char bytes[16];
    gpunet_host_started later;
    struct told told = {0, 1};
    OK(gpunet_host_device_take_recv(ends.near, &receiver));
    OK(gpunet_host_queue_cpu(attachment, &queue));
    OK(gpunet_host_queue_recv(queue, receiver, bytes, 8));
    OK(gpunet_host_queue_start_recv(queue, receiver, bytes + 8, 8, &later));
    OK(gpunet_host_queue_finish(queue, &later, 1));
    OK(gpunet_host_queue_notify(queue, tell, &told));
    OK(gpunet_host_attachment_close(attachment, NULL));
    until_told(&told);
    TRUE(told.error < 0);
    OK(gpunet_host_queue_destroy(queue));
    (void)gpunet_host_receiver_give_back(receiver);
    OK(gpunet_host_device_close(ends.near));
    OK(gpunet_host_device_close(ends.far));
    OK(gpunet_host_proxy_close(proxy));
    return end("queues");
}
