/* Kernels in C on the CPU call functions of this program: answers, errors, many in flight, ends. */
#include "test.h"

#include <gpunet_calls.h>

#define LONG 60000000000ll
#define BLOCKS 3u

enum { ADD = 1, BLOCK = 2, MISSING = 3, EVIL = 4, SECRET = 5 };

static int64_t add(const void *request, size_t len, void *answer, size_t room, void *user) {
    const uint32_t *numbers = (const uint32_t *)request;
    IS((uintptr_t)request % 16 + (uintptr_t)answer % 16, 0);
    if (len != 8 || room < 4) return -EINVAL;
    __atomic_add_fetch((unsigned int *)user, 1, __ATOMIC_RELAXED);
    *(uint32_t *)answer = numbers[0] + numbers[1];
    return 4;
}

static int64_t reverse(const void *request, size_t len, void *answer, size_t room, void *user) {
    (void)user;
    if (len == 0) return -ENODATA;
    for (size_t at = 0; at < len && at < room; at++) ((char *)answer)[at] = ((const char *)request)[len - 1 - at];
    return (int64_t)len;
}

/* Blocks until it may go on. */
struct gate {
    gpunet_host_calls_t *calls;
    int open, inside;
};

static int64_t block_on(const void *request, size_t len, void *answer, size_t room, void *user) {
    struct gate *gate = (struct gate *)user;
    (void)request, (void)len, (void)answer, (void)room;
    IS(gpunet_host_calls_stop(gate->calls), -EDEADLK);
    REASON("another thread");
    __atomic_add_fetch(&gate->inside, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE)) usleep(200);
    __atomic_sub_fetch(&gate->inside, 1, __ATOMIC_RELEASE);
    return 0;
}

static int64_t evil(const void *request, size_t len, void *answer, size_t room, void *user) {
    (void)request, (void)len, (void)answer, (void)room;
    return *(const int64_t *)user;
}

struct job {
    gpunet_calls_t calls;
    int ended;
};

static void works(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_caller caller, none;
    struct gpunet_ticket tickets[8], ticket;
    memset(&none, 0, sizeof none);
    OK(gpunet_caller_open_thread(net, job->calls, &caller));
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t numbers[2] = {block, round}, sum = 0, rooms[4];
        IS(gpunet_call(net, &caller, ADD, numbers, sizeof numbers, &sum, sizeof sum, LONG), 4);
        IS(sum, block + round);
        OK(gpunet_call_tell(net, &caller, ADD, numbers, sizeof numbers, LONG));
        /* Eight in flight; the answers are taken from the last one on. */
        for (uint32_t at = 0; at < 8; at++) {
            numbers[1] = at;
            OK(gpunet_call_start(net, &caller, ADD, numbers, sizeof numbers, sizeof rooms, &tickets[at], LONG));
        }
        IS(gpunet_call_start(net, &caller, ADD, numbers, sizeof numbers, 4, &ticket, LONG), -ENOBUFS);
        for (uint32_t at = 8; at-- > 0;) {
            IS(gpunet_call_wait(net, &caller, &tickets[at], rooms, sizeof rooms, LONG), 4);
            IS(rooms[0], block + at);
            IS(gpunet_call_wait(net, &caller, &tickets[at], rooms, sizeof rooms, LONG), -EINVAL);
        }
    }
    char text[70], back[70];
    for (uint32_t len = 0; len <= 65; len++) {
        for (uint32_t at = 0; at < len; at++) text[at] = (char)(at * 7 + block);
        memset(back, 'x', sizeof back);
        long long got = gpunet_call(net, &caller, gpunet_function("reverse"), text, len, back, sizeof back, LONG);
        IS(got, len == 0 ? -ENODATA : len > 64 ? -EMSGSIZE : (int)len);
        for (uint32_t at = 0; at < sizeof back; at++) IS(back[at], got > 0 && at < len ? text[len - 1 - at] : 'x');
        if (len > 1) IS(gpunet_call(net, &caller, gpunet_function("reverse"), text, len, back, len - 1, LONG), -EMSGSIZE);
    }
    /* What cannot be. */
    IS(gpunet_call(net, &caller, MISSING, text, 4, back, 4, LONG), -EOPNOTSUPP);
    IS(gpunet_call(net, &caller, gpunet_function("revers"), text, 4, back, 4, LONG), -EOPNOTSUPP);
    IS(gpunet_call(net, &caller, ADD, text, 4, back, 4, LONG), -EINVAL);
    IS(gpunet_call(net, &caller, ADD, text, 5000, back, 4, LONG), -EMSGSIZE);
    IS(gpunet_call(net, &caller, EVIL, text, 4, back, 4, LONG), -EMSGSIZE);
    IS(gpunet_call(net, &caller, SECRET, text, 4, back, 4, LONG), -EACCES);
    struct sockaddr_in6 addr;
    socklen_t len;
    IS(gpunet_resolve(net, &caller, "::1", 80, &addr, &len, LONG), -EMSGSIZE);
    IS(gpunet_call(net, &caller, ADD, NULL, 8, back, 4, LONG), -EFAULT);
    IS(gpunet_call(net, &caller, ADD, text, 8, NULL, 4, LONG), -EFAULT);
    IS(gpunet_call(net, NULL, ADD, text, 8, back, 4, LONG), -EFAULT);
    IS(gpunet_call(net, &none, ADD, text, 8, back, 4, LONG), -EINVAL);
    IS(gpunet_call(0, &caller, ADD, text, 8, back, 4, LONG), -ENETDOWN);
    IS(gpunet_call_start(net, &caller, ADD, text, 8, 4, NULL, LONG), -EFAULT);
    IS(gpunet_caller_open(net, none.calls, &none), -ENOBUFS);
    OK(gpunet_call_start(net, &caller, ADD, text, 8, 4, &ticket, LONG));
    gpunet_call_give_up(&caller, &ticket);
    IS(gpunet_call_wait(net, &caller, &ticket, back, 4, LONG), -EINVAL);
    /* As many callers as there are channels, and no more. */
    __atomic_add_fetch(&job->ended, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&job->ended, __ATOMIC_RELAXED) < (int)blocks) usleep(100);
    IS(gpunet_caller_open(net, job->calls, &none), -ENOBUFS);
    __atomic_add_fetch(&job->ended, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&job->ended, __ATOMIC_RELAXED) < (int)(2 * blocks)) usleep(100);
    OK(gpunet_caller_close(net, &caller));
    IS(gpunet_caller_close(net, &caller), -EINVAL);
}

/* The host resolves names: IPv4, IPv6, and what is none. */
static void resolves(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_caller caller;
    struct sockaddr_in6 addr;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&addr;
    socklen_t len = 0;
    char name[300];
    (void)block, (void)blocks;
    OK(gpunet_caller_open(net, job->calls, &caller));
    OK(gpunet_resolve(net, &caller, "127.1.2.3", 8080, &addr, &len, LONG));
    IS(len, sizeof *v4);
    IS(v4->sin_family, AF_INET);
    IS(v4->sin_port, htons(8080));
    IS(v4->sin_addr.s_addr, htonl(0x7f010203));
    OK(gpunet_resolve_warp(net, &caller, "::1", 80, &addr, &len, LONG));
    IS(len, sizeof addr);
    IS(addr.sin6_family, AF_INET6);
    IS(addr.sin6_port, htons(80));
    IS(memcmp(&addr.sin6_addr, &in6addr_loopback, 16), 0);
    /* The name is connected to: nobody listens there. */
    OK(gpunet_resolve_thread(net, &caller, "localhost", 1, &addr, &len, LONG));
    IS(gpunet_connect_to(net, (struct sockaddr *)&addr, len, NULL, LONG), -ECONNREFUSED);
    memset(name, 'a', sizeof name);
    name[253] = 0;
    IS(gpunet_resolve(net, &caller, name, 80, &addr, &len, LONG), -EADDRNOTAVAIL);
    name[253] = 'a', name[254] = 0;
    IS(gpunet_resolve(net, &caller, name, 80, &addr, &len, LONG), -ENAMETOOLONG);
    IS(gpunet_resolve(net, &caller, "", 80, &addr, &len, LONG), -EINVAL);
    IS(gpunet_resolve(net, &caller, "\xff", 80, &addr, &len, LONG), -EINVAL);
    IS(gpunet_resolve(net, &caller, NULL, 80, &addr, &len, LONG), -EFAULT);
    IS(gpunet_resolve(net, &caller, "::1", 80, NULL, &len, LONG), -EFAULT);
    IS(gpunet_resolve(net, &caller, "::1", 80, &addr, NULL, LONG), -EFAULT);
    OK(gpunet_caller_close(net, &caller));
}

/* A function blocks: calls time out, others go on, and the late answer is nobody's. Then the host stops. */
static void waits(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_caller caller;
    struct gpunet_ticket ticket;
    uint32_t numbers[2] = {20, 22}, sum = 0;
    (void)block, (void)blocks;
    OK(gpunet_caller_open(net, job->calls, &caller));
    IS(gpunet_call(net, &caller, BLOCK, NULL, 0, NULL, 0, 2000000), -EAGAIN);
    OK(gpunet_call_start(net, &caller, BLOCK, NULL, 0, 0, &ticket, LONG));
    IS(gpunet_call_wait(net, &caller, &ticket, NULL, 0, 0), -EAGAIN);
    IS(gpunet_call(net, &caller, ADD, numbers, sizeof numbers, &sum, sizeof sum, LONG), 4);
    IS(sum, 42);
    __atomic_store_n(&job->ended, 1, __ATOMIC_RELEASE);
    IS(gpunet_call_wait(net, &caller, &ticket, NULL, 0, -1), -ENETDOWN);
    IS(gpunet_call(net, &caller, ADD, numbers, sizeof numbers, &sum, sizeof sum, LONG), -ENETDOWN);
    OK(gpunet_caller_close(net, &caller));
}

/* Cancelled while nobody answers. */
static void hangs(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_caller caller;
    (void)block, (void)blocks;
    OK(gpunet_caller_open(net, job->calls, &caller));
    IS(gpunet_call(net, &caller, BLOCK, NULL, 0, NULL, 0, -1), -ECANCELED);
    OK(gpunet_caller_close(net, &caller));
}

static gpunet_host_function function(uint32_t number, gpunet_host_function_fn run, void *user) {
    gpunet_host_function function;
    memset(&function, 0, sizeof function);
    function.number = number, function.run = run, function.user = user, function.request = function.answer = 64;
    return function;
}

static void misuse(gpunet_host_attachment_t *attachment) {
    gpunet_host_calls_t *calls = NULL;
    gpunet_host_calls_settings settings = {1, 0, 0, 0, 0, 0};
    gpunet_host_function two[2] = {function(7, reverse, NULL), function(7, reverse, NULL)};
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EEXIST);
    REASON("the number 7");
    two[0].number = two[1].number = 0;
    two[0].name = two[1].name = "reverse";
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EEXIST);
    REASON("\"reverse\"");
    two[1].name = "";
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EINVAL);
    two[1].name = "other", two[1].number = 1;
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EINVAL);
    REASON("one of them");
    two[1].name = NULL, two[1].number = 1u << 30;
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EINVAL);
    REASON("below 2^30");
    two[1].number = 1, two[1].request = 1013;
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EINVAL);
    REASON("1012");
    two[1].request = 4, two[1].run = NULL;
    IS(gpunet_host_calls(attachment, two, 2, &settings, &calls), -EFAULT);
    REASON("functions[1].run");
    two[1].run = reverse;
    gpunet_host_calls_settings wrong[] = {
        {0, 0, 0, 0, 0, 0}, {65537, 0, 0, 0, 0, 0}, {1, 65, 0, 0, 0, 0}, {1, 0, 1, 0, 0, 0}, {1, 0, 1025, 0, 0, 0}, {1, 0, 0, 4, 0, 0}};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) IS(gpunet_host_calls(attachment, two, 2, &wrong[at], &calls), -EINVAL);
    IS(gpunet_host_calls(attachment, NULL, 2, &settings, &calls), -EFAULT);
    IS(gpunet_host_calls(attachment, two, 2, NULL, &calls), -EFAULT);
    IS(gpunet_host_calls(attachment, two, 2, &settings, NULL), -EFAULT);
    IS(gpunet_host_calls(NULL, two, 2, &settings, &calls), -EBADF);
    TRUE(!calls);
    OK(gpunet_host_calls(attachment, NULL, 0, &settings, &calls));
    OK(gpunet_host_calls_close(calls));
    IS(gpunet_host_calls_close(calls), -EBADF);
    IS(gpunet_host_calls_stop(calls), -EBADF);
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_calls_counts counts;
    unsigned int added = 0;
    int64_t too_many = 65, secret = -EACCES;
    struct gate gate = {NULL, 0, 0};
    gpunet_host_function functions[] = {
        function(ADD, add, &added), function(BLOCK, block_on, &gate), function(0, reverse, NULL), function(EVIL, evil, &too_many),
        function(SECRET, evil, &secret)};
    functions[2].name = "reverse";
    gpunet_host_calls_settings settings = {BLOCKS, 8, 0, 0, 0, 0};
    struct job job;
    memset(&job, 0, sizeof job);
    gpunet_host_token_t *token = NULL;

    OK(gpunet_host_calls(attachment, functions, 5, &settings, &gate.calls));
    OK(gpunet_host_calls_value(gate.calls, &job.calls));
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, BLOCKS, works, &job));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    /* Calls may still run that nobody waits for. */
    do OK(gpunet_host_calls_count(gate.calls, &counts));
    while (counts.told < BLOCKS * 100 || __atomic_load_n(&added, __ATOMIC_RELAXED) < BLOCKS * 100 * 10);
    TRUE(__atomic_load_n(&added, __ATOMIC_RELAXED) <= BLOCKS * (100 * 10 + 1));
    IS(counts.malformed, 0);
    IS(counts.told, BLOCKS * 100);

    struct job names;
    gpunet_host_calls_t *resolver;
    gpunet_host_calls_settings for_names = {1, 0, 0, GPUNET_HOST_CALLS_NAMES, 0, 0};
    OK(gpunet_host_calls(attachment, NULL, 0, &for_names, &resolver));
    OK(gpunet_host_calls_value(resolver, &names.calls));
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 1, resolves, &names));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    OK(gpunet_host_calls_close(resolver));

    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 1, hangs, &job));
    while (!__atomic_load_n(&gate.inside, __ATOMIC_ACQUIRE)) usleep(100);
    OK(gpunet_host_token_cancel(token));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));

    job.ended = 0;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 1, waits, &job));
    while (!__atomic_load_n(&job.ended, __ATOMIC_ACQUIRE)) usleep(100);
    /* Three functions block for longer than it waits. */
    IS(gpunet_host_calls_stop(gate.calls), 3);
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&gate.inside, __ATOMIC_ACQUIRE)) usleep(100);
    OK(gpunet_host_calls_close(gate.calls));
    misuse(attachment);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("calls");
}
