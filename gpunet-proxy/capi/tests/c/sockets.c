/* Host sockets: over tcp and peer, blocking and not, with timeouts, and what is left when one end goes. */
#include "test.h"

#define LEN (3u << 20)

struct job {
    gpunet_host_socket_t *socket;
    size_t seed;
};

static void *send_all(void *argument) {
    struct job *job = (struct job *)argument;
    unsigned char *bytes = (unsigned char *)malloc(LEN);
    fill(bytes, job->seed, 0, LEN);
    IS(gpunet_host_send(job->socket, bytes, LEN, MSG_NOSIGNAL), LEN);
    OK(gpunet_host_shutdown(job->socket, SHUT_WR));
    free(bytes);
    return NULL;
}

static void *recv_all(void *argument) {
    struct job *job = (struct job *)argument;
    unsigned char *bytes = (unsigned char *)malloc(LEN + 1);
    IS(gpunet_host_recv(job->socket, bytes, LEN + 1, MSG_WAITALL), LEN);
    same(bytes, job->seed, 0, LEN);
    IS(gpunet_host_recv(job->socket, bytes, 1, 0), 0);
    free(bytes);
    return NULL;
}

/* Megabytes both ways at the same time: four threads, two sockets. */
static void both_ways(gpunet_host_attachment_t *attachment, int transport) {
    struct pair pair = pair_new(attachment, transport);
    struct job jobs[4] = {{pair.client, 1}, {pair.server, 2}, {pair.client, 2}, {pair.server, 1}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) start(&threads[i], i < 2 ? send_all : recv_all, &jobs[i]);
    for (int i = 0; i < 4; i++) OK(pthread_join(threads[i], NULL));
    OK(gpunet_host_close(pair.client));
    OK(gpunet_host_close(pair.server));
}

static void messages(gpunet_host_attachment_t *attachment, int transport) {
    struct pair pair = pair_new(attachment, transport);
    unsigned char sent[5000], back[5000];
    for (size_t len = 1; len <= sizeof sent; len = len * 3 + 1) {
        fill(sent, len, 0, len);
        IS(gpunet_host_send(pair.client, sent, len, 0), (long long)len);
        /* Peeked bytes stay. */
        TRUE(gpunet_host_recv(pair.server, back, len, MSG_PEEK) > 0);
        IS(back[0], sent[0]);
        IS(gpunet_host_recv(pair.server, back, len, MSG_WAITALL), (long long)len);
        same(back, len, 0, len);
    }
    /* Nothing has come, and nothing is sent. */
    IS(gpunet_host_recv(pair.server, back, 1, MSG_DONTWAIT), -EAGAIN);
    IS(gpunet_host_recv(pair.server, back, 0, 0), 0);
    IS(gpunet_host_send(pair.server, sent, 0, 0), 0);
    IS(gpunet_host_recv(pair.server, back, 1, MSG_OOB), -EINVAL);
    REASON("unknown flags");

    /* A receive's time is over; it spins first. */
    set_int(pair.server, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_SPIN, 100);
    struct timeval limit = {0, 20000};
    OK(gpunet_host_setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    IS(gpunet_host_recv(pair.server, back, 1, 0), -EAGAIN);
    /* A send's, too: until rings, and what TCP holds, are full. */
    OK(gpunet_host_setsockopt(pair.client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    size_t total = 0;
    ssize_t n;
    while ((n = gpunet_host_send(pair.client, sent, sizeof sent, 0)) > 0) total += (size_t)n;
    IS(n, -EAGAIN);
    OK(gpunet_host_set_nonblocking(pair.client, 1));
    IS(gpunet_host_send(pair.client, sent, 0, 0), 0);
    struct timeval enough = {20, 0};
    OK(gpunet_host_setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &enough, sizeof enough));
    for (size_t got = 0; got < total;) {
        n = gpunet_host_recv(pair.server, back, sizeof back, 0);
        TRUE(n > 0);
        got += (size_t)n;
    }

    /* One direction ends, the other goes on. */
    OK(gpunet_host_shutdown(pair.client, SHUT_WR));
    IS(gpunet_host_send(pair.client, sent, 1, 0), -EPIPE);
    IS(gpunet_host_recv(pair.server, back, 1, 0), 0);
    IS(gpunet_host_send(pair.server, "x", 1, 0), 1);
    OK(gpunet_host_set_nonblocking(pair.client, 0));
    IS(gpunet_host_recv(pair.client, back, 1, 0), 1);
    OK(gpunet_host_shutdown(pair.client, SHUT_RD));
    IS(gpunet_host_recv(pair.client, back, 1, 0), 0);
    IS(gpunet_host_shutdown(pair.client, 3), -EINVAL);

    /* Both ends know both addresses. */
    struct sockaddr_in a, b;
    socklen_t len = sizeof a;
    OK(gpunet_host_getpeername(pair.client, (struct sockaddr *)&a, &len));
    b = address_of(pair.server);
    IS(a.sin_port, b.sin_port);
    IS(get_int(pair.client, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_TRANSPORT), transport);
    OK(gpunet_host_close(pair.client));
    OK(gpunet_host_close(pair.server));
}

static void *recv_one(void *argument) {
    char byte;
    return (void *)gpunet_host_recv((gpunet_host_socket_t *)argument, &byte, 1, 0);
}

static void *accept_one(void *argument) {
    gpunet_host_socket_t *accepted = NULL;
    return (void *)(long)gpunet_host_accept((gpunet_host_socket_t *)argument, NULL, NULL, &accepted);
}

static void *poll_one(void *argument) {
    struct gpunet_host_pollfd entry = {(gpunet_host_socket_t *)argument, POLLIN, 0};
    long ready = gpunet_host_poll(&entry, 1, -1);
    return (void *)(ready == 1 && (entry.revents & POLLNVAL) ? 0L : 1L);
}

/* A close, a shutdown and the end of the attachment end the waits of other threads. */
static void waits_end(gpunet_host_attachment_t *attachment, int transport) {
    struct pair pair = pair_new(attachment, transport);
    gpunet_host_socket_t *listener = listener_new(attachment, transport), *polled = listener_new(attachment, transport);
    pthread_t threads[3];
    void *results[3];
    start(&threads[0], recv_one, pair.server);
    start(&threads[1], accept_one, listener);
    start(&threads[2], poll_one, polled);
    usleep(20000);
    OK(gpunet_host_close(pair.server));
    OK(gpunet_host_close(listener));
    OK(gpunet_host_close(polled));
    OK(gpunet_host_close(pair.client));
    for (int i = 0; i < 3; i++) OK(pthread_join(threads[i], &results[i]));
    IS((long)results[0], -EBADF);
    IS((long)results[1], -EBADF);
    OK((long)results[2]);

    pair = pair_new(attachment, transport);
    start(&threads[0], recv_one, pair.server);
    usleep(20000);
    OK(gpunet_host_shutdown(pair.server, SHUT_RD));
    OK(pthread_join(threads[0], &results[0]));
    IS((long)results[0], 0);
    /* What is sent before a close arrives. */
    IS(gpunet_host_send(pair.server, "last", 4, 0), 4);
    OK(gpunet_host_close(pair.server));
    char back[8];
    IS(gpunet_host_recv(pair.client, back, sizeof back, MSG_WAITALL), 4);
    IS(memcmp(back, "last", 4), 0);
    OK(gpunet_host_close(pair.client));
}

/* SO_LINGER with 0: the peer gets a reset. */
static void resets(gpunet_host_attachment_t *attachment, int transport) {
    gpunet_host_socket_t *listener = listener_new(attachment, transport), *server = NULL;
    struct sockaddr_in address = address_of(listener);
    gpunet_host_socket_t *client = socket_new(attachment, transport);
    struct linger hard = {1, 0};
    OK(gpunet_host_setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
    OK(gpunet_host_set_nonblocking(client, 1));
    int begun = gpunet_host_connect(client, ADDRESS(address));
    TRUE(begun == 0 || begun == -EINPROGRESS);
    /* Over peer it is established when it is accepted. */
    if (transport == GPUNET_HOST_TRANSPORT_PEER) IS(gpunet_host_connect(client, ADDRESS(address)), -EALREADY);
    OK(gpunet_host_accept(listener, NULL, NULL, &server));
    struct gpunet_host_pollfd entry = {client, POLLOUT, 0};
    IS(gpunet_host_poll(&entry, 1, -1), 1);
    IS(gpunet_host_connect(client, ADDRESS(address)), -EISCONN);
    struct linger soft = {0, 0};
    IS(gpunet_host_setsockopt(client, SOL_SOCKET, SO_LINGER, &soft, sizeof soft), -EISCONN);
    OK(gpunet_host_close(client));
    char byte;
    IS(gpunet_host_recv(server, &byte, 1, 0), -ECONNRESET);
    struct gpunet_host_pollfd reset = {server, POLLIN, 0};
    IS(gpunet_host_poll(&reset, 1, 0), 1);
    TRUE(reset.revents & POLLERR);
    OK(gpunet_host_close(server));
    OK(gpunet_host_close(listener));
}

static void connects_fail(gpunet_host_attachment_t *attachment, int transport) {
    gpunet_host_socket_t *listener = listener_new(attachment, transport);
    struct sockaddr_in address = address_of(listener);
    gpunet_host_socket_t *other = socket_new(attachment, transport);
    OK(gpunet_host_bind(other, ADDRESS(address)));
    IS(gpunet_host_listen(other, 1), -EADDRINUSE);
    IS(gpunet_host_connect(other, ADDRESS(address)), -EOPNOTSUPP);
    OK(gpunet_host_close(other));
    OK(gpunet_host_close(listener));

    gpunet_host_socket_t *client = socket_new(attachment, transport);
    char byte;
    IS(gpunet_host_recv(client, &byte, 1, 0), -ENOTCONN);
    IS(gpunet_host_shutdown(client, SHUT_WR), -ENOTCONN);
    IS(gpunet_host_accept(client, NULL, NULL, &other), -EINVAL);
    IS(gpunet_host_connect(client, ADDRESS(address)), -ECONNREFUSED);
    /* Fresh again; and nobody waits this time. */
    OK(gpunet_host_set_nonblocking(client, 1));
    int begun = gpunet_host_connect(client, ADDRESS(address));
    if (begun == -EINPROGRESS) {
        struct gpunet_host_pollfd entry = {client, POLLOUT, 0};
        IS(gpunet_host_poll(&entry, 1, -1), 1);
        TRUE(entry.revents & POLLERR);
        IS(get_int(client, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
        IS(get_int(client, SOL_SOCKET, SO_ERROR), 0);
    } else {
        IS(begun, -ECONNREFUSED);
    }
    OK(gpunet_host_close(client));
}

static void options(gpunet_host_attachment_t *attachment) {
    gpunet_host_socket_t *socket = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    set_int(socket, SOL_SOCKET, SO_SNDBUF, 5000);
    IS(get_int(socket, SOL_SOCKET, SO_SNDBUF), 8192);
    IS(get_int(socket, IPPROTO_TCP, TCP_NODELAY), 1);
    set_int(socket, IPPROTO_TCP, TCP_NODELAY, 0);
    IS(get_int(socket, IPPROTO_TCP, TCP_NODELAY), 0);
    set_int(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    IS(get_int(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    set_int(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    IS(get_int(socket, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    IS(get_int(socket, SOL_SOCKET, SO_ACCEPTCONN), 0);
    struct timeval time = {3, 5000}, back;
    OK(gpunet_host_setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    socklen_t len = sizeof back;
    OK(gpunet_host_getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &back, &len));
    IS(back.tv_sec, 3);
    IS(back.tv_usec, 5000);
    time.tv_usec = 1000000;
    IS(gpunet_host_setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), -EDOM);
    REASON("tv_usec from 0 to 999,999");
    IS(get_int(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_SPIN), 0);
    set_int(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_SPIN, 50);
    IS(get_int(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_SPIN), 50);
    int value = -1;
    IS(gpunet_host_setsockopt(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_SPIN, &value, sizeof value), -EDOM);
    value = 9;
    IS(gpunet_host_setsockopt(socket, SOL_SOCKET, 12345, &value, sizeof value), -ENOPROTOOPT);
    IS(gpunet_host_setsockopt(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_TRANSPORT, &value, sizeof value), -EINVAL);
    REASON("no transport has the number 9");
    IS(gpunet_host_setsockopt(socket, SOL_SOCKET, SO_LINGER, &value, sizeof value), -EINVAL);
    IS(gpunet_host_setsockopt(socket, SOL_SOCKET, SO_SNDBUF, NULL, 4), -EFAULT);
    IS(gpunet_host_getsockopt(socket, SOL_SOCKET, SO_SNDBUF, NULL, &len), -EFAULT);
    IS(gpunet_host_getsockopt(socket, SOL_SOCKET, 12345, &value, &len), -ENOPROTOOPT);
    /* A listener's options are those of what it accepts; a listener at a port of the proxy's choice. */
    OK(gpunet_host_listen(socket, 1));
    IS(get_int(socket, SOL_SOCKET, SO_ACCEPTCONN), 1);
    TRUE(address_of(socket).sin_port != 0);
    OK(gpunet_host_close(socket));

    socket = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    struct sockaddr unix_address;
    memset(&unix_address, 0, sizeof unix_address);
    unix_address.sa_family = AF_UNIX;
    IS(gpunet_host_bind(socket, &unix_address, sizeof unix_address), -EAFNOSUPPORT);
    REASON("neither a struct sockaddr_in nor a sockaddr_in6");
    struct sockaddr_in address = loopback(0);
    IS(gpunet_host_bind(socket, (struct sockaddr *)&address, 4), -EINVAL);
    REASON("the address has 4 bytes; a struct sockaddr_in has 16, a sockaddr_in6 28");
    OK(gpunet_host_bind(socket, ADDRESS(address)));
    IS(gpunet_host_bind(socket, ADDRESS(address)), -EINVAL);
    struct sockaddr_in6 six;
    memset(&six, 0, sizeof six);
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    gpunet_host_socket_t *listener = socket_new(attachment, GPUNET_HOST_TRANSPORT_PEER);
    OK(gpunet_host_bind(listener, ADDRESS(six)));
    OK(gpunet_host_listen(listener, 0));
    socklen_t six_len = sizeof six;
    OK(gpunet_host_getsockname(listener, (struct sockaddr *)&six, &six_len));
    IS(six.sin6_family, AF_INET6);
    TRUE(six.sin6_port != 0);
    OK(gpunet_host_close(listener));
    OK(gpunet_host_close(socket));
}

/* The attachment ends under its sockets. */
static void attachment_ends(const gpunet_host_proxy_t *proxy) {
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    struct pair pair = pair_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    gpunet_host_socket_t *fresh = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    pthread_t thread;
    void *result;
    start(&thread, recv_one, pair.server);
    usleep(20000);
    struct gpunet_host_close_report report = {9, 9};
    OK(gpunet_host_attachment_close(attachment, &report));
    IS(report.undelivered, 0);
    OK(pthread_join(thread, &result));
    TRUE((long)result == -ECANCELED || (long)result == 0);
    struct sockaddr_in address = loopback(1);
    int refused = gpunet_host_connect(fresh, ADDRESS(address));
    TRUE(refused == -ECANCELED || refused == -ENETDOWN);
    gpunet_host_socket_t *none = NULL;
    IS(gpunet_host_socket(attachment, &none), -EBADF);
    TRUE(!none);
    OK(gpunet_host_close(fresh));
    OK(gpunet_host_close(pair.client));
    OK(gpunet_host_close(pair.server));
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    const int transports[] = {GPUNET_HOST_TRANSPORT_TCP, GPUNET_HOST_TRANSPORT_PEER};
    for (int i = 0; i < 2; i++) {
        messages(attachment, transports[i]);
        both_ways(attachment, transports[i]);
        waits_end(attachment, transports[i]);
        resets(attachment, transports[i]);
        connects_fail(attachment, transports[i]);
    }
    options(attachment);
    attachment_ends(proxy);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("sockets");
}
