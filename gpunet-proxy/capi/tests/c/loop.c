/* An event loop of a program: epoll over the descriptors of many sockets. The other ends are plain TCP sockets, and kernel
 * TCP's own buffers are small, so that sends have to wait too. */
#include "test.h"
#include <fcntl.h>
#include <sys/epoll.h>

enum { CONNECTIONS = 200, BYTES = 100000 };

struct connection {
    gpunet_host_socket_t *socket;
    int fd;
    size_t received, sent;
    unsigned char kept[8192];
    size_t kept_from, kept_to;
    int ended;
};

static int queue;
static struct connection connections[CONNECTIONS];
static size_t accepted;
static int done;

static void watch(int fd, void *what) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.ptr = what;
    OK(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event));
}

/* Sends back what came, as far as it goes; one receive a call, so that the descriptor has to stay readable. */
static void serve(struct connection *c) {
    if (c->kept_from == c->kept_to && !c->ended) {
        ssize_t n = gpunet_host_recv(c->socket, c->kept, sizeof c->kept, 0);
        if (n == -EAGAIN) return;
        TRUE(n >= 0);
        c->kept_from = 0;
        c->kept_to = (size_t)n;
        c->received += (size_t)n;
        c->ended = n == 0;
    }
    while (c->kept_from < c->kept_to) {
        ssize_t n = gpunet_host_send(c->socket, c->kept + c->kept_from, c->kept_to - c->kept_from, 0);
        if (n == -EAGAIN) {
            IS(gpunet_host_fd(c->socket, POLLOUT), c->fd);
            return;
        }
        TRUE(n > 0);
        c->kept_from += (size_t)n;
        c->sent += (size_t)n;
    }
    if (c->ended) {
        IS(c->received, BYTES);
        OK(gpunet_host_close(c->socket));
        done++;
        return;
    }
    IS(gpunet_host_fd(c->socket, POLLIN), c->fd);
}

static void take(gpunet_host_socket_t *listener) {
    gpunet_host_socket_t *socket = NULL;
    int result = gpunet_host_accept(listener, NULL, NULL, &socket);
    if (result == -EAGAIN) return;
    OK(result);
    OK(gpunet_host_set_nonblocking(socket, 1));
    struct connection *c = &connections[accepted++];
    c->socket = socket;
    c->fd = gpunet_host_fd(socket, POLLIN);
    TRUE(c->fd >= 0);
    watch(c->fd, c);
}

/* Plain TCP clients, all by one thread: each writes everything, then reads it back. */
static void *clients(void *argument) {
    struct sockaddr_in *address = (struct sockaddr_in *)argument;
    static int fds[CONNECTIONS];
    static unsigned char bytes[BYTES], back[BYTES];
    struct pollfd polled[CONNECTIONS];
    static size_t written[CONNECTIONS], read_back[CONNECTIONS];
    int left = CONNECTIONS, small = 4096;
    fill(bytes, 5, 0, BYTES);
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        OK(setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
        OK(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
        OK(connect(fds[i], (struct sockaddr *)address, sizeof *address));
        OK(fcntl(fds[i], F_SETFL, O_NONBLOCK));
    }
    while (left > 0) {
        for (int i = 0; i < CONNECTIONS; i++) {
            polled[i].fd = fds[i];
            polled[i].events = (short)(POLLIN | (written[i] < BYTES ? POLLOUT : 0));
        }
        TRUE(poll(polled, CONNECTIONS, -1) > 0);
        for (int i = 0; i < CONNECTIONS; i++) {
            if (fds[i] < 0 || !polled[i].revents) continue;
            if (polled[i].revents & POLLOUT) {
                size_t len = BYTES - written[i] < 3000 ? BYTES - written[i] : 3000;
                ssize_t n = write(fds[i], bytes + written[i], len);
                TRUE(n > 0 || errno == EAGAIN);
                if (n > 0) written[i] += (size_t)n;
                if (written[i] == BYTES) OK(shutdown(fds[i], SHUT_WR));
            }
            if (polled[i].revents & POLLIN) {
                ssize_t n = read(fds[i], back, BYTES);
                TRUE(n >= 0);
                same(back, 5, read_back[i], (size_t)n);
                read_back[i] += (size_t)n;
                if (n == 0) {
                    IS(read_back[i], BYTES);
                    OK(close(fds[i]));
                    fds[i] = -1;
                    left--;
                }
            }
        }
    }
    return NULL;
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_socket_t *listener = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    struct sockaddr_in address = loopback(0);
    set_int(listener, SOL_SOCKET, SO_SNDBUF, 4096);
    set_int(listener, SOL_SOCKET, SO_RCVBUF, 4096);
    OK(gpunet_host_bind(listener, ADDRESS(address)));
    OK(gpunet_host_listen(listener, CONNECTIONS));
    OK(gpunet_host_set_nonblocking(listener, 1));
    address = address_of(listener);
    queue = epoll_create1(EPOLL_CLOEXEC);
    watch(gpunet_host_fd(listener, POLLIN), listener);

    pthread_t thread;
    start(&thread, clients, &address);
    struct epoll_event events[64];
    while (done < CONNECTIONS) {
        int n = epoll_wait(queue, events, 64, -1);
        TRUE(n > 0);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == listener)
                take(listener);
            else
                serve((struct connection *)events[i].data.ptr);
        }
    }
    OK(pthread_join(thread, NULL));
    for (int i = 0; i < CONNECTIONS; i++) IS(connections[i].sent, BYTES);
    /* Nothing is ready any more. */
    while (epoll_wait(queue, events, 1, 100) > 0) take(listener);
    OK(gpunet_host_close(listener));
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("loop");
}
