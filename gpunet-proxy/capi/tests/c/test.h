/* What the test programs share. They compile as C and as C++. */
#ifndef TEST_H
#define TEST_H

#include <gpunet_host.h>
#include <gpunet_team.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Proxies of tests are small, and have no card. */
#define SETTINGS "sockets = 1024\nshared_rings = 16_777_216\nrc = 'off'\nlinger_s = 10\n"

static unsigned long checks;

__attribute__((noreturn, unused)) static void fail(const char *file, int line, const char *what, long long got, long long want) {
    fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", file, line, what, got, want, gpunet_host_last_error());
    exit(1);
}

/* The expression has that value. */
#define IS(expression, value)                                                                                                    \
    do {                                                                                                                         \
        long long got_ = (long long)(expression), want_ = (long long)(value);                                                    \
        __atomic_add_fetch(&checks, 1, __ATOMIC_RELAXED);                                                                        \
        if (got_ != want_) fail(__FILE__, __LINE__, #expression, got_, want_);                                                   \
    } while (0)
#define OK(expression) IS(expression, 0)
#define TRUE(expression) IS(!!(expression), 1)
/* The last failure's reason has this part. */
#define REASON(part)                                                                                                             \
    do {                                                                                                                         \
        __atomic_add_fetch(&checks, 1, __ATOMIC_RELAXED);                                                                        \
        if (!strstr(gpunet_host_last_error(), part)) {                                                                           \
            fprintf(stderr, "%s:%d: the reason is \"%s\" and has no \"%s\"\n", __FILE__, __LINE__, gpunet_host_last_error(), part); \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

/* A program that hangs fails. */
__attribute__((unused)) static void begin(void) {
    alarm(120);
    IS(gpunet_host_abi_version(), GPUNET_HOST_ABI_VERSION);
}

__attribute__((unused)) static int end(const char *name) {
    printf("%s: %lu checks\n", name, checks);
    return 0;
}

__attribute__((unused)) static struct sockaddr_in loopback(unsigned port) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

#define ADDRESS(address) (const struct sockaddr *)&(address), (socklen_t)sizeof(address)

__attribute__((unused)) static gpunet_host_proxy_t *proxy_new(void) {
    gpunet_host_proxy_t *proxy = NULL;
    OK(gpunet_host_embed(SETTINGS, &proxy));
    TRUE(proxy);
    return proxy;
}

__attribute__((unused)) static gpunet_host_attachment_t *attachment_new(const gpunet_host_proxy_t *proxy) {
    gpunet_host_attachment_t *attachment = NULL;
    OK(gpunet_host_attach_cpu(proxy, &attachment));
    return attachment;
}

__attribute__((unused)) static void set_int(gpunet_host_socket_t *socket, int level, int name, int value) {
    OK(gpunet_host_setsockopt(socket, level, name, &value, sizeof value));
}

__attribute__((unused)) static int get_int(gpunet_host_socket_t *socket, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    OK(gpunet_host_getsockopt(socket, level, name, &value, &len));
    IS(len, sizeof value);
    return value;
}

__attribute__((unused)) static gpunet_host_socket_t *socket_new(gpunet_host_attachment_t *attachment, int transport) {
    gpunet_host_socket_t *socket = NULL;
    OK(gpunet_host_socket(attachment, &socket));
    set_int(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_TRANSPORT, transport);
    return socket;
}

__attribute__((unused)) static struct sockaddr_in address_of(gpunet_host_socket_t *socket) {
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    OK(gpunet_host_getsockname(socket, (struct sockaddr *)&address, &len));
    IS(len, sizeof address);
    return address;
}

/* A listener on a free port of the loopback address. */
__attribute__((unused)) static gpunet_host_socket_t *listener_new(gpunet_host_attachment_t *attachment, int transport) {
    gpunet_host_socket_t *listener = socket_new(attachment, transport);
    struct sockaddr_in any = loopback(0);
    OK(gpunet_host_bind(listener, ADDRESS(any)));
    OK(gpunet_host_listen(listener, 128));
    return listener;
}

/* The two ends of a stream. */
struct pair {
    gpunet_host_socket_t *client, *server;
};

__attribute__((unused)) static struct pair pair_new(gpunet_host_attachment_t *attachment, int transport) {
    struct pair pair;
    gpunet_host_socket_t *listener = listener_new(attachment, transport);
    struct sockaddr_in address = address_of(listener);
    pair.client = socket_new(attachment, transport);
    OK(gpunet_host_set_nonblocking(pair.client, 1));
    int begun = gpunet_host_connect(pair.client, ADDRESS(address));
    TRUE(begun == 0 || begun == -EINPROGRESS);
    OK(gpunet_host_accept(listener, NULL, NULL, &pair.server));
    struct gpunet_host_pollfd entry = {pair.client, POLLOUT, 0};
    IS(gpunet_host_poll(&entry, 1, -1), 1);
    IS(entry.revents, POLLOUT);
    IS(get_int(pair.client, SOL_SOCKET, SO_ERROR), 0);
    OK(gpunet_host_set_nonblocking(pair.client, 0));
    OK(gpunet_host_close(listener));
    return pair;
}

__attribute__((unused)) static unsigned char byte_at(size_t seed, size_t at) {
    return (unsigned char)((seed * 31 + at) * 2654435761u >> 13);
}

__attribute__((unused)) static void fill(unsigned char *bytes, size_t seed, size_t start, size_t len) {
    for (size_t at = 0; at < len; at++) bytes[at] = byte_at(seed, start + at);
}

__attribute__((unused)) static void same(const unsigned char *bytes, size_t seed, size_t start, size_t len) {
    for (size_t at = 0; at < len; at++)
        if (bytes[at] != byte_at(seed, start + at)) fail(__FILE__, __LINE__, "a received byte", bytes[at], byte_at(seed, start + at));
    checks++;
}

__attribute__((unused)) static void start(pthread_t *thread, void *(*body)(void *), void *argument) {
    OK(pthread_create(thread, NULL, body, argument));
}

#endif
