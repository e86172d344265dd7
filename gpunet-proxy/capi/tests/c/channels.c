/* Channels of arrays: transfers by every way, started and cancelled ones, what no program should do, and ends that are killed. */
#include "test.h"
#include <signal.h>
#include <sys/wait.h>

enum { LARGE = 1 << 20, SECOND = 1000000000 };
#define LIMIT (60ll * SECOND)

static const gpunet_host_dtype BYTES = {GPUNET_HOST_UINT, 8, 1}, FLOATS = {GPUNET_HOST_FLOAT, 32, 1};
static int64_t LARGE_SHAPE[1] = {LARGE};

static gpunet_host_array array_of(const char *name, void *data, int64_t *shape, unsigned rank, gpunet_host_dtype dtype) {
    gpunet_host_array array;
    memset(&array, 0, sizeof array);
    array.data = data;
    array.shape = shape;
    array.name = name;
    array.rank = rank;
    array.dtype = dtype;
    return array;
}

static gpunet_host_array bytes_of(void *data) { return array_of(NULL, data, LARGE_SHAPE, 1, BYTES); }

static unsigned char *large(size_t seed) {
    unsigned char *bytes = (unsigned char *)malloc(LARGE);
    fill(bytes, seed, 0, LARGE);
    return bytes;
}

static gpunet_host_channel_listener_t *listener_on(const gpunet_host_channel_settings *settings, struct sockaddr_in *address) {
    gpunet_host_channel_listener_t *listener = NULL;
    socklen_t len = sizeof *address;
    *address = loopback(0);
    OK(gpunet_host_channel_listen((struct sockaddr *)address, len, settings, &listener));
    OK(gpunet_host_channel_getsockname(listener, (struct sockaddr *)address, &len));
    return listener;
}

/* A call of another thread, and what it returned. */
struct call {
    pthread_t thread;
    gpunet_host_channel_t *channel;
    const gpunet_host_channel_listener_t *listener;
    gpunet_host_array *arrays;
    size_t count;
    const gpunet_host_transfer_options *options;
    gpunet_host_outcome outcome;
    struct sockaddr_in address;
    const gpunet_host_channel_settings *settings;
    int result;
};

static void *connect_body(void *argument) {
    struct call *call = (struct call *)argument;
    call->result = gpunet_host_channel_connect(ADDRESS(call->address), call->settings, LIMIT, &call->channel);
    return NULL;
}

static void *accept_body(void *argument) {
    struct call *call = (struct call *)argument;
    call->result = gpunet_host_channel_accept(call->listener, -1, &call->channel);
    return NULL;
}

static void *send_body(void *argument) {
    struct call *call = (struct call *)argument;
    call->result = gpunet_host_channel_send(call->channel, call->arrays, call->count, call->options, &call->outcome);
    return NULL;
}

static void *recv_body(void *argument) {
    struct call *call = (struct call *)argument;
    call->result = gpunet_host_channel_recv(call->channel, call->arrays, call->count, call->options, &call->outcome);
    return NULL;
}

static struct call begin_send(gpunet_host_channel_t *channel, gpunet_host_array *arrays, size_t count) {
    struct call call;
    memset(&call, 0, sizeof call);
    call.channel = channel;
    call.arrays = arrays;
    call.count = count;
    return call;
}

static int joined(struct call *call) {
    OK(pthread_join(call->thread, NULL));
    return call->result;
}

struct ends {
    gpunet_host_channel_t *near, *far;
};

static struct ends ends_new(const gpunet_host_channel_settings *settings) {
    struct call call;
    struct ends ends = {NULL, NULL};
    memset(&call, 0, sizeof call);
    call.settings = settings;
    gpunet_host_channel_listener_t *listener = listener_on(settings, &call.address);
    start(&call.thread, connect_body, &call);
    OK(gpunet_host_channel_accept(listener, LIMIT, &ends.far));
    OK(joined(&call));
    ends.near = call.channel;
    IS(gpunet_host_channel_accept(listener, 0, &call.channel), -EAGAIN);
    IS(gpunet_host_channel_accept(listener, 1000, &call.channel), -EAGAIN);
    OK(gpunet_host_channel_listener_close(listener));
    return ends;
}

static void ends_close(struct ends ends) {
    OK(gpunet_host_channel_close(ends.near));
    OK(gpunet_host_channel_close(ends.far));
}

static gpunet_host_channel_settings settings_of(unsigned flags) {
    gpunet_host_channel_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.streams = 3;
    settings.flags = flags;
    settings.piece_bytes = 64 << 10;
    return settings;
}

static void tell(uint64_t moved, uint64_t total, void *user) {
    TRUE(moved <= total);
    if (moved == total) __atomic_add_fetch((int *)user, 1, __ATOMIC_RELAXED);
}

/* Arrays by names, in another order, by every way. */
static void ways(void) {
    for (unsigned round = 0; round < 4; round++) {
        gpunet_host_channel_settings settings = settings_of(round == 1 ? GPUNET_HOST_CHANNEL_NO_COPY : 0);
        struct ends ends = ends_new(&settings);
        int why = gpunet_host_channel_reason(ends.near);
        TRUE(round == 1 ? why == GPUNET_HOST_REASON_SWITCHED_OFF : why >= 0);
        int64_t rows[2] = {512, 512}, few[2] = {2, 3};
        unsigned char *weights = large(round), *back = (unsigned char *)malloc(LARGE);
        float bias[6] = {1, 2, 3, 4, 5, 6}, bias_back[6] = {0};
        double scalar = 2.5, scalar_back = 0;
        gpunet_host_dtype doubles = {GPUNET_HOST_FLOAT, 64, 0};
        gpunet_host_array sent[3] = {array_of("weights", weights, rows, 2, FLOATS), array_of("bias", bias, few, 2, FLOATS),
                                     array_of("scale", &scalar, NULL, 0, doubles)};
        gpunet_host_array asked[3] = {array_of("scale", &scalar_back, NULL, 0, doubles), array_of("bias", bias_back, few, 2, FLOATS),
                                      array_of("weights", back, rows, 2, FLOATS)};
        gpunet_host_transfer_options options;
        memset(&options, 0, sizeof options);
        int told[2] = {0, 0};
        options.flags = round == 2 ? GPUNET_HOST_CHECKSUM : 0;
        options.timeout_ns = LIMIT;
        options.progress = tell;
        options.user = &told[0];
        /* Without the large one: a small transfer. */
        gpunet_host_array *first = round == 3 ? sent + 1 : sent;
        size_t count = round == 3 ? 2 : 3;
        struct call call = begin_send(ends.near, first, count);
        call.options = &options;
        start(&call.thread, send_body, &call);
        gpunet_host_transfer_options hears;
        memset(&hears, 0, sizeof hears);
        hears.progress = tell;
        hears.user = &told[1];
        gpunet_host_outcome outcome;
        OK(gpunet_host_channel_recv(ends.far, asked, count, &hears, &outcome));
        OK(joined(&call));
        TRUE(memcmp(bias, bias_back, sizeof bias) == 0 && scalar == scalar_back);
        if (round != 3) same(back, round, 0, LARGE);
        TRUE(told[0] > 0 && told[1] > 0);
        uint64_t bytes = sizeof bias + sizeof scalar + (round == 3 ? 0 : LARGE);
        TRUE(outcome.moved == bytes && outcome.total == bytes && outcome.done == 1 && outcome.text[0]);
        TRUE(call.outcome.moved == bytes && call.outcome.way == outcome.way && call.outcome.reason == outcome.reason);
        switch (round) {
            case 1: IS(outcome.reason, GPUNET_HOST_REASON_SWITCHED_OFF); break;
            case 2: TRUE(why > 0 || outcome.reason == GPUNET_HOST_REASON_CHECKSUM_ASKED); break;
            case 3: IS(outcome.way, GPUNET_HOST_WAY_HEADER); break;
            default:
                /* A container may forbid it: then it says so. */
                if (outcome.way == GPUNET_HOST_WAY_COPY) TRUE(outcome.reason == 0 && !strcmp(outcome.text, "one copy"));
                else TRUE(outcome.reason == GPUNET_HOST_REASON_NOT_PERMITTED || (int)outcome.reason == why);
        }
        if (round == 1 || round == 2) TRUE(outcome.way == GPUNET_HOST_WAY_CONNECTIONS && outcome.connections == 3);
        /* The end: of one direction, and then of the other. */
        OK(gpunet_host_channel_shutdown(ends.near, -1));
        IS(gpunet_host_channel_shutdown(ends.near, -1), -EPIPE);
        IS(gpunet_host_channel_send(ends.near, sent, 3, NULL, NULL), -EPIPE);
        IS(gpunet_host_channel_recv(ends.far, asked, 3, NULL, NULL), -ENODATA);
        REASON("sends no more");
        struct call answer = begin_send(ends.far, sent + 1, 1);
        start(&answer.thread, send_body, &answer);
        OK(gpunet_host_channel_recv(ends.near, asked + 1, 1, NULL, NULL));
        OK(joined(&answer));
        OK(gpunet_host_channel_close(ends.far));
        IS(gpunet_host_channel_recv(ends.near, asked, 3, NULL, NULL), -ENODATA);
        OK(gpunet_host_channel_close(ends.near));
        free(weights);
        free(back);
    }
}

/* Who does not know what comes looks first. What does not fit is refused, and the channel goes on. */
static void looks_and_refusals(void) {
    gpunet_host_channel_settings settings = settings_of(0);
    struct ends ends = ends_new(&settings);
    gpunet_host_incoming incoming;
    gpunet_host_description *description = (gpunet_host_description *)malloc(sizeof *description);
    unsigned char *weights = large(5), *back = (unsigned char *)malloc(LARGE);
    int64_t rows[2] = {1024, 1024}, other[2] = {1024, 1023};
    gpunet_host_array sent = array_of("weights", weights, rows, 2, BYTES);

    IS(gpunet_host_channel_peek(ends.far, 0, &incoming), -EAGAIN);
    IS(gpunet_host_channel_peek(ends.far, 1000, &incoming), -EAGAIN);
    IS(gpunet_host_channel_describe(ends.far, 0, description), -EINVAL);
    REASON("gpunet_host_channel_peek");
    IS(gpunet_host_channel_refuse(ends.far, EFBIG, "no"), -EINVAL);
    gpunet_host_transfer_options soon;
    memset(&soon, 0, sizeof soon);
    soon.timeout_ns = 1000;
    gpunet_host_array into = array_of(NULL, back, rows, 2, BYTES);
    IS(gpunet_host_channel_recv(ends.far, &into, 1, &soon, NULL), -EAGAIN);

    struct call call = begin_send(ends.near, &sent, 1);
    start(&call.thread, send_body, &call);
    for (int again = 0; again < 2; again++) {
        OK(gpunet_host_channel_peek(ends.far, LIMIT, &incoming));
        TRUE(incoming.bytes == LARGE && incoming.arrays == 1);
    }
    OK(gpunet_host_channel_describe(ends.far, 0, description));
    TRUE(description->bytes == LARGE && description->rank == 2 && description->shape[0] == 1024 && description->shape[1] == 1024);
    TRUE(description->shape[2] == 0 && description->on_gpu == 0 && !strcmp(description->name, "weights"));
    TRUE(description->dtype.code == GPUNET_HOST_UINT && description->dtype.bits == 8 && description->dtype.lanes == 1);
    IS(gpunet_host_channel_describe(ends.far, 1, description), -EINVAL);
    IS(gpunet_host_channel_refuse(ends.far, 0, "no"), -EINVAL);
    IS(gpunet_host_channel_refuse(ends.far, EFBIG, NULL), -EFAULT);
    OK(gpunet_host_channel_refuse(ends.far, EFBIG, "at most a kilobyte, please"));
    IS(joined(&call), -EFBIG);
    TRUE(call.outcome.done == 1 && call.outcome.moved == 0 && call.outcome.total == LARGE && call.outcome.way == 0);

    /* Another rank, type, shape, number, name. Both ends are told. */
    int64_t flat[1] = {LARGE}, halves[2] = {512, 1024};
    gpunet_host_dtype shorts = {GPUNET_HOST_UINT, 16, 1};
    gpunet_host_array wrong[6] = {array_of(NULL, back, flat, 1, BYTES),   array_of(NULL, back, halves, 2, shorts), array_of(NULL, back, other, 2, BYTES),
                                  array_of("bias", back, rows, 2, BYTES), array_of(NULL, back, NULL, 0, BYTES),    array_of(NULL, NULL, NULL, 0, BYTES)};
    wrong[5].data = back + 1;
    for (int i = 0; i < 5; i++) {
        start(&call.thread, send_body, &call);
        IS(gpunet_host_channel_recv(ends.far, &wrong[i], 1, NULL, NULL), -EMSGSIZE);
        REASON("was sent");
        IS(joined(&call), -EMSGSIZE);
    }
    start(&call.thread, send_body, &call);
    IS(gpunet_host_channel_recv(ends.far, &wrong[4], 2, NULL, NULL), -EMSGSIZE);
    REASON("1 arrays were sent, and 2 are asked for");
    IS(joined(&call), -EMSGSIZE);

    /* And then what was looked at is received by its description. */
    start(&call.thread, send_body, &call);
    OK(gpunet_host_channel_peek(ends.far, LIMIT, &incoming));
    OK(gpunet_host_channel_describe(ends.far, 0, description));
    into = array_of(description->name, back, description->shape, description->rank, description->dtype);
    OK(gpunet_host_channel_recv(ends.far, &into, 1, NULL, NULL));
    OK(joined(&call));
    same(back, 5, 0, LARGE);
    ends_close(ends);
    free(description);
    free(weights);
    free(back);
}

/* Arguments that are none. Nothing of it concerns the channel. */
static void misuse(void) {
    gpunet_host_channel_settings settings = settings_of(0);
    struct ends ends = ends_new(&settings);
    gpunet_host_channel_t *channel = ends.near, *none = NULL;
    gpunet_host_channel_listener_t *listener = NULL;
    gpunet_host_transfer_t *transfer = NULL;
    struct sockaddr_in address = loopback(0);
    float data[4] = {0};
    int64_t shape[2] = {2, 2}, negative[2] = {2, -2}, huge[2] = {INT64_MAX, 2};
    char long_name[1026];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;

    gpunet_host_array good = array_of(NULL, data, shape, 2, FLOATS);
    struct {
        gpunet_host_array array;
        int result;
        const char *reason;
    } bad[] = {
        {good, -EFAULT, "the data"},     {good, -EFAULT, "the shape"},    {good, -EINVAL, "-2 elements"}, {good, -EINVAL, "64 dimensions"},
        {good, -EINVAL, "no array has"}, {good, -EINVAL, "no array has"}, {good, -EINVAL, "1024 bytes"},  {good, -EINVAL, "device of type 9"},
        {good, -EINVAL, "UTF-8"},        {good, -EINVAL, "number -1"},
    };
    bad[0].array.data = NULL;
    bad[1].array.shape = NULL;
    bad[2].array.shape = negative;
    bad[3].array.rank = 65;
    bad[4].array.dtype.bits = 0;
    bad[5].array.shape = huge;
    bad[6].array.name = long_name;
    bad[7].array.device_type = 9;
    bad[8].array.name = "\xff";
    bad[9].array.device_type = GPUNET_HOST_CUDA;
    bad[9].array.device_id = -1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        IS(gpunet_host_channel_send(channel, &bad[i].array, 1, NULL, NULL), bad[i].result);
        REASON(bad[i].reason);
        IS(gpunet_host_channel_recv(channel, &bad[i].array, 1, NULL, NULL), bad[i].result);
        IS(gpunet_host_channel_start_send(channel, &bad[i].array, 1, NULL, &transfer), bad[i].result);
        IS(gpunet_host_channel_start_recv(channel, &bad[i].array, 1, NULL, &transfer), bad[i].result);
    }
    IS(gpunet_host_channel_send(channel, NULL, 1, NULL, NULL), -EFAULT);
    IS(gpunet_host_channel_send(channel, &good, 1 << 17, NULL, NULL), -EINVAL);
    IS(gpunet_host_channel_send(channel, &good, (size_t)-1, NULL, NULL), -EINVAL);
    gpunet_host_array twice[2] = {good, good};
    twice[1].data = &data[3];
    IS(gpunet_host_channel_recv(channel, twice, 2, NULL, NULL), -EINVAL);
    REASON("share memory");
    IS(gpunet_host_channel_start_recv(channel, twice, 2, NULL, &transfer), -EINVAL);
    gpunet_host_transfer_options options;
    memset(&options, 0, sizeof options);
    options.flags = 2;
    IS(gpunet_host_channel_send(channel, &good, 1, &options, NULL), -EINVAL);
    REASON("GPUNET_HOST_CHECKSUM");
    options.flags = 0;
    options.custream = &options;
    options.custream_device = -1;
    IS(gpunet_host_channel_send(channel, &good, 1, &options, NULL), -EINVAL);
    IS(gpunet_host_channel_start_send(channel, &good, 1, NULL, NULL), -EFAULT);
    IS(gpunet_host_channel_peek(channel, 0, NULL), -EFAULT);
    IS(gpunet_host_channel_describe(channel, 0, NULL), -EFAULT);
    TRUE(!transfer);

    IS(gpunet_host_channel_listen(NULL, 16, NULL, &listener), -EFAULT);
    IS(gpunet_host_channel_listen(ADDRESS(address), NULL, NULL), -EFAULT);
    settings.streams = 65;
    IS(gpunet_host_channel_listen(ADDRESS(address), &settings, &listener), -EINVAL);
    IS(gpunet_host_channel_connect(ADDRESS(address), &settings, LIMIT, &none), -EINVAL);
    settings = settings_of(2);
    IS(gpunet_host_channel_listen(ADDRESS(address), &settings, &listener), -EINVAL);
    settings = settings_of(0);
    settings.piece_bytes = 1;
    IS(gpunet_host_channel_listen(ADDRESS(address), &settings, &listener), -EINVAL);
    IS(gpunet_host_channel_connect(ADDRESS(address), NULL, 0, &none), -EINVAL);
    REASON("its timeout is not 0");
    address.sin_port = htons(1);
    IS(gpunet_host_channel_connect(ADDRESS(address), NULL, LIMIT, &none), -ECONNREFUSED);
    REASON("127.0.0.1:1");
    TRUE(!listener && !none);

    /* Handles that are none: null, of another kind, closed. */
    ends_close(ends);
    gpunet_host_incoming incoming;
    static gpunet_host_description description;
    void *handles[] = {NULL, &good, (void *)-1, ends.near};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        gpunet_host_channel_t *closed = (gpunet_host_channel_t *)handles[i];
        socklen_t len = sizeof address;
        IS(gpunet_host_channel_reason(closed), -EBADF);
        REASON(i == 3 ? "it was closed" : "not the handle of a channel");
        IS(gpunet_host_channel_send(closed, &good, 1, NULL, NULL), -EBADF);
        IS(gpunet_host_channel_recv(closed, &good, 1, NULL, NULL), -EBADF);
        IS(gpunet_host_channel_start_send(closed, &good, 1, NULL, &transfer), -EBADF);
        IS(gpunet_host_channel_start_recv(closed, &good, 1, NULL, &transfer), -EBADF);
        IS(gpunet_host_channel_peek(closed, 0, &incoming), -EBADF);
        IS(gpunet_host_channel_describe(closed, 0, &description), -EBADF);
        IS(gpunet_host_channel_refuse(closed, 1, "no"), -EBADF);
        IS(gpunet_host_channel_shutdown(closed, 0), -EBADF);
        IS(gpunet_host_channel_close(closed), -EBADF);
        IS(gpunet_host_channel_accept((gpunet_host_channel_listener_t *)handles[i], 0, &none), -EBADF);
        IS(gpunet_host_channel_getsockname((gpunet_host_channel_listener_t *)handles[i], (struct sockaddr *)&address, &len), -EBADF);
        IS(gpunet_host_channel_listener_close((gpunet_host_channel_listener_t *)handles[i]), -EBADF);
        IS(gpunet_host_transfer_wait((gpunet_host_transfer_t *)handles[i], 0, NULL), -EBADF);
        IS(gpunet_host_transfer_cancel((gpunet_host_transfer_t *)handles[i]), -EBADF);
        IS(gpunet_host_transfer_close((gpunet_host_transfer_t *)handles[i]), -EBADF);
    }
    TRUE(!transfer && !none);
}

static int ended(gpunet_host_transfer_t *transfer) {
    gpunet_host_outcome outcome;
    int result = gpunet_host_transfer_wait(transfer, LIMIT, &outcome);
    IS(outcome.done, 1);
    IS(gpunet_host_transfer_wait(transfer, 0, NULL), result);
    OK(gpunet_host_transfer_cancel(transfer));
    OK(gpunet_host_transfer_close(transfer));
    return result;
}

/* Transfers beside the program: both directions at once, several in order, cancelled before and during. */
static void started(void) {
    enum { MANY = 4 };
    gpunet_host_channel_settings settings = settings_of(GPUNET_HOST_CHANNEL_NO_COPY);
    struct ends ends = ends_new(&settings);
    unsigned char *out[2][MANY], *in[2][MANY];
    gpunet_host_transfer_t *sends[2][MANY], *receives[2][MANY];
    gpunet_host_outcome outcome;
    for (int side = 0; side < 2; side++) {
        gpunet_host_channel_t *channel = side ? ends.far : ends.near;
        for (int i = 0; i < MANY; i++) {
            out[side][i] = large(10 * side + i);
            in[side][i] = (unsigned char *)calloc(1, LARGE);
            gpunet_host_array array = bytes_of(out[side][i]);
            OK(gpunet_host_channel_start_send(channel, &array, 1, NULL, &sends[side][i]));
        }
    }
    IS(gpunet_host_transfer_wait(sends[0][0], 0, &outcome), -EAGAIN);
    TRUE(outcome.done == 0 && outcome.total == LARGE && outcome.way == 0);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < MANY; i++) {
            gpunet_host_array array = bytes_of(in[side][i]);
            OK(gpunet_host_channel_start_recv(side ? ends.far : ends.near, &array, 1, NULL, &receives[side][i]));
        }
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < MANY; i++) {
            OK(gpunet_host_transfer_wait(sends[side][i], LIMIT, &outcome));
            TRUE(outcome.done == 1 && outcome.moved == LARGE && outcome.way == GPUNET_HOST_WAY_CONNECTIONS);
            OK(ended(sends[side][i]));
            OK(ended(receives[side][i]));
            same(in[side][i], 10 * !side + i, 0, LARGE);
        }

    /* A receive for which nothing comes, one behind it, and one whose time is over: the channel goes on. */
    gpunet_host_array into[3] = {bytes_of(in[0][0]), bytes_of(in[0][1]), bytes_of(in[0][2])};
    gpunet_host_transfer_options soon;
    memset(&soon, 0, sizeof soon);
    soon.timeout_ns = 1000000;
    OK(gpunet_host_channel_start_recv(ends.far, &into[0], 1, NULL, &receives[0][0]));
    OK(gpunet_host_channel_start_recv(ends.far, &into[1], 1, NULL, &receives[0][1]));
    IS(gpunet_host_channel_recv(ends.far, &into[2], 1, &soon, &outcome), -EAGAIN);
    OK(gpunet_host_transfer_cancel(receives[0][1]));
    IS(ended(receives[0][1]), -ECANCELED);
    IS(gpunet_host_transfer_wait(receives[0][0], 1000000, &outcome), -EAGAIN);
    IS(outcome.done, 0);
    OK(gpunet_host_transfer_cancel(receives[0][0]));
    IS(ended(receives[0][0]), -ECANCELED);
    OK(gpunet_host_channel_start_recv(ends.far, &into[0], 1, &soon, &receives[0][0]));
    IS(ended(receives[0][0]), -ETIMEDOUT);
    OK(gpunet_host_channel_start_recv(ends.far, &into[0], 1, NULL, &receives[0][0]));
    OK(gpunet_host_transfer_close(receives[0][0]));
    struct call call = begin_send(ends.near, &into[1], 1);
    start(&call.thread, send_body, &call);
    OK(gpunet_host_channel_recv(ends.far, &into[2], 1, NULL, NULL));
    OK(joined(&call));
    TRUE(memcmp(in[0][1], in[0][2], LARGE) == 0);

    /* A send that nobody takes moves: its end is the channel's. The one behind it has not begun. */
    OK(gpunet_host_channel_start_send(ends.near, &into[0], 1, NULL, &sends[0][0]));
    OK(gpunet_host_channel_start_send(ends.near, &into[1], 1, NULL, &sends[0][1]));
    gpunet_host_incoming incoming;
    OK(gpunet_host_channel_peek(ends.far, LIMIT, &incoming));
    OK(gpunet_host_transfer_cancel(sends[0][1]));
    IS(ended(sends[0][1]), -ECANCELED);
    IS(gpunet_host_transfer_wait(sends[0][0], 0, NULL), -EAGAIN);
    OK(gpunet_host_transfer_cancel(sends[0][0]));
    IS(ended(sends[0][0]), -ECANCELED);
    IS(gpunet_host_channel_send(ends.near, &into[0], 1, NULL, NULL), -EPIPE);
    REASON("cancelled");
    IS(gpunet_host_channel_recv(ends.far, &into[0], 1, NULL, NULL), -ECONNRESET);
    IS(gpunet_host_channel_recv(ends.far, &into[0], 1, NULL, NULL), -EPIPE);
    ends_close(ends);

    /* A transfer that has begun, and whose time is over. */
    ends = ends_new(&settings);
    IS(gpunet_host_channel_send(ends.near, &into[0], 1, &soon, NULL), -ETIMEDOUT);
    IS(gpunet_host_channel_send(ends.near, &into[0], 1, NULL, NULL), -EPIPE);
    ends_close(ends);

    /* A channel that is closed ends them all, and a call of another thread. */
    ends = ends_new(&settings);
    OK(gpunet_host_channel_start_send(ends.near, &into[0], 1, NULL, &sends[0][0]));
    OK(gpunet_host_channel_start_send(ends.near, &into[1], 1, NULL, &sends[0][1]));
    OK(gpunet_host_channel_start_recv(ends.near, &into[2], 1, NULL, &receives[0][0]));
    call = begin_send(ends.near, into, 1);
    start(&call.thread, recv_body, &call);
    OK(gpunet_host_channel_peek(ends.far, LIMIT, &incoming));
    OK(gpunet_host_channel_close(ends.near));
    IS(joined(&call), -EBADF);
    IS(ended(sends[0][0]), -EBADF);
    IS(ended(sends[0][1]), -EBADF);
    IS(ended(receives[0][0]), -EBADF);
    IS(gpunet_host_channel_recv(ends.far, &into[0], 1, NULL, NULL), -ECONNRESET);
    OK(gpunet_host_channel_close(ends.far));

    /* A listener that is closed ends the accept of another thread. */
    gpunet_host_channel_listener_t *listener = listener_on(NULL, &call.address);
    memset(&call, 0, sizeof call);
    call.listener = listener;
    start(&call.thread, accept_body, &call);
    OK(gpunet_host_channel_listener_close(listener));
    IS(joined(&call), -EBADF);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < MANY; i++) free(out[side][i]), free(in[side][i]);
}

/* As dlpack.h has it. */
typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor_t;

static void dlpack(void) {
    float data[7] = {0};
    int64_t shape[2] = {2, 3}, strides[2] = {3, 1}, columns[2] = {1, 2}, row[2] = {1, 3}, odd[2] = {77, 1}, empty[2] = {0, 3};
    tensor_t tensor = {data, {GPUNET_HOST_CUDA, 5}, 2, {GPUNET_HOST_FLOAT, 32, 1}, shape, strides, sizeof data[0]};
    gpunet_host_array array;
    OK(gpunet_host_array_of_dlpack(&tensor, "weights", &array));
    TRUE(array.data == &data[1] && array.shape == shape && array.rank == 2 && !strcmp(array.name, "weights"));
    TRUE(array.dtype.code == GPUNET_HOST_FLOAT && array.dtype.bits == 32 && array.dtype.lanes == 1);
    TRUE(array.device_type == GPUNET_HOST_CUDA && array.device_id == 5);
    tensor.strides = NULL;
    OK(gpunet_host_array_of_dlpack(&tensor, NULL, &array));
    tensor.strides = columns;
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, &array), -EINVAL);
    REASON("contiguous");
    tensor.strides = odd;
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, &array), -EINVAL);
    tensor.shape = row;
    OK(gpunet_host_array_of_dlpack(&tensor, NULL, &array));
    tensor.shape = empty;
    OK(gpunet_host_array_of_dlpack(&tensor, NULL, &array));
    tensor.ndim = -1;
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, &array), -EINVAL);
    tensor.ndim = 2;
    tensor.shape = NULL;
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, &array), -EFAULT);
    tensor.ndim = 0;
    OK(gpunet_host_array_of_dlpack(&tensor, NULL, &array));
    tensor.device.type = 7;
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, &array), -EINVAL);
    IS(gpunet_host_array_of_dlpack(NULL, NULL, &array), -EFAULT);
    IS(gpunet_host_array_of_dlpack(&tensor, NULL, NULL), -EFAULT);
}

/* A child that fork has made has none of its parent's channels. */
static void forks(void) {
    struct ends ends = ends_new(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        gpunet_host_incoming incoming;
        IS(gpunet_host_channel_peek(ends.near, 0, &incoming), -EBADF);
        REASON("the process that this one was forked from");
        IS(gpunet_host_channel_close(ends.near), -EBADF);
        _exit(0);
    }
    int status = 1;
    IS(waitpid(child, &status, 0), child);
    OK(status);
    /* The parent's go on. */
    int64_t one[1] = {1};
    unsigned char sent = 7, back = 0;
    gpunet_host_array array = array_of(NULL, &sent, one, 1, BYTES), into = array_of(NULL, &back, one, 1, BYTES);
    struct call call = begin_send(ends.near, &array, 1);
    start(&call.thread, send_body, &call);
    OK(gpunet_host_channel_recv(ends.far, &into, 1, NULL, NULL));
    OK(joined(&call));
    IS(back, 7);
    ends_close(ends);
}

static void die(uint64_t moved, uint64_t total, void *user) {
    (void)user;
    if (moved >= total / 2) kill(getpid(), SIGKILL);
}

/* A child process connects, and is killed in the middle of a transfer. */
static pid_t doomed(int sends, unsigned flags, int ports[2]) {
    OK(pipe(ports));
    pid_t child = fork();
    if (child != 0) return child;
    alarm(60);
    unsigned port = 0;
    IS(read(ports[0], &port, sizeof port), sizeof port);
    struct sockaddr_in address = loopback(port);
    gpunet_host_channel_settings settings = settings_of(flags);
    gpunet_host_channel_t *channel = NULL;
    OK(gpunet_host_channel_connect(ADDRESS(address), &settings, LIMIT, &channel));
    gpunet_host_transfer_options options;
    memset(&options, 0, sizeof options);
    options.progress = die;
    unsigned char *bytes = large(3);
    gpunet_host_array array = bytes_of(bytes);
    if (sends) gpunet_host_channel_send(channel, &array, 1, &options, NULL);
    else gpunet_host_channel_recv(channel, &array, 1, &options, NULL);
    _exit(1);
}

static void deaths(void) {
    for (int round = 0; round < 4; round++) {
        int sends = round & 1, ports[2], status = 0;
        gpunet_host_channel_settings settings = settings_of(round & 2 ? GPUNET_HOST_CHANNEL_NO_COPY : 0);
        pid_t child = doomed(sends, settings.flags, ports);
        struct sockaddr_in address;
        gpunet_host_channel_listener_t *listener = listener_on(&settings, &address);
        unsigned port = ntohs(address.sin_port);
        IS(write(ports[1], &port, sizeof port), sizeof port);
        gpunet_host_channel_t *channel = NULL;
        OK(gpunet_host_channel_accept(listener, LIMIT, &channel));
        unsigned char *bytes = large(4);
        gpunet_host_array array = bytes_of(bytes);
        gpunet_host_outcome outcome;
        int result = sends ? gpunet_host_channel_recv(channel, &array, 1, NULL, &outcome)
                           : gpunet_host_channel_send(channel, &array, 1, NULL, &outcome);
        /* A sender hears of a copy when it is whole, and a receiver may tell before it dies. */
        if (result == 0) {
            TRUE(sends && outcome.way == GPUNET_HOST_WAY_COPY);
            same(bytes, 3, 0, LARGE);
        } else {
            IS(result, -ECONNRESET);
            TRUE(outcome.done == 1 && outcome.total == LARGE && outcome.way == 0);
        }
        TRUE(gpunet_host_channel_send(channel, &array, 1, NULL, NULL) < 0);
        OK(gpunet_host_channel_close(channel));
        OK(gpunet_host_channel_listener_close(listener));
        IS(waitpid(child, &status, 0), child);
        TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        close(ports[0]);
        close(ports[1]);
        free(bytes);
    }
}

int main(void) {
    begin();
    deaths();
    ways();
    looks_and_refusals();
    misuse();
    started();
    dlpack();
    forks();
    return end("channels");
}
