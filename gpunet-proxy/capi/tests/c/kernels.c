/* Tokens, and C functions that run as kernels on the CPU: with host sockets at the other end, and how they end. */
#include "test.h"

#include <signal.h>

struct echo {
    int transport;   /* a protocol of socket(2) */
    int connections; /* of each block */
    int listener;    /* made by the first kernel, used by the second */
    unsigned port;
    int result[4];
};

/* Binds, and leaves the listener for a later kernel. */
static void bind_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct echo *echo = (struct echo *)argument;
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    IS(block, 0);
    IS(blocks, 1);
    struct gpunet_options options = {0, 0, 0, 0, 0, 0, 0, 0};
    int listener = gpunet_listen_at(net, ADDRESS(address), 16, &options);
    TRUE(listener > 0);
    /* GPUnet's names are for the context in the variable. */
    IS(gsetnonblock(listener, 1), -ENETDOWN);
    gpunet_attachment = net;
    OK(gsetnonblock(listener, 1));
    IS(gaccept(listener, NULL, NULL), -EAGAIN);
    OK(gsetnonblock(listener, 0));
    gpunet_attachment = 0;
    OK(gpunet_getsockname(net, listener, (struct sockaddr *)&address, &len));
    echo->port = ntohs(address.sin_port);
    echo->listener = listener;
}

/* Accepts and sends back what comes. */
static void echo_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct echo *echo = (struct echo *)argument;
    unsigned char bytes[4096];
    sigset_t blocked;
    TRUE(block < blocks);
    /* The program's signals reach its own threads. */
    OK(pthread_sigmask(SIG_BLOCK, NULL, &blocked));
    IS(sigismember(&blocked, SIGTERM), 1);
    IS(sigismember(&blocked, SIGSEGV), 0);
    for (int i = 0; i < echo->connections; i++) {
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        int stream = gpunet_accept(net, echo->listener, (struct sockaddr *)&peer, &len);
        if (stream < 0) {
            echo->result[block] = stream;
            return;
        }
        IS(peer.sin_family, AF_INET);
        ssize_t n;
        while ((n = gpunet_recv(net, stream, bytes, sizeof bytes, 0)) > 0)
            IS(gpunet_send(net, stream, bytes, (size_t)n, MSG_WAITALL), n);
        IS(n, 0);
        OK(gpunet_close(net, stream));
        IS(gpunet_close(net, stream), -EBADF);
    }
}

static void ask(gpunet_host_attachment_t *attachment, int transport, unsigned port) {
    struct sockaddr_in address = loopback(port);
    gpunet_host_socket_t *client = socket_new(attachment, transport);
    OK(gpunet_host_connect(client, ADDRESS(address)));
    IS(get_int(client, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_TRANSPORT), transport);
    unsigned char sent[20000], back[20000];
    for (size_t len = 1; len <= sizeof sent; len = len * 5 + 1) {
        fill(sent, len, 0, len);
        IS(gpunet_host_send(client, sent, len, 0), (long long)len);
        IS(gpunet_host_recv(client, back, len, MSG_WAITALL), (long long)len);
        same(back, len, 0, len);
    }
    OK(gpunet_host_shutdown(client, SHUT_WR));
    IS(gpunet_host_recv(client, back, 1, 0), 0);
    OK(gpunet_host_close(client));
}

/* A kernel keeps its listener; another serves on it, until it is cancelled. */
static void serve(gpunet_host_attachment_t *attachment, gpunet_host_attachment_t *other) {
    struct echo echo = {0, 2, 0, 0, {1, 1, 1, 1}};
    gpunet_host_token_t *token = NULL;
    uint64_t left_open = 9;
    OK(gpunet_host_token(attachment, &token));
    TRUE(gpunet_host_token_net(token) != 0);
    OK(gpunet_host_token_launch(token, 1, bind_kernel, &echo));
    OK(gpunet_host_token_wait(token, -1));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, &left_open));
    IS(left_open, 1);
    IS(gpunet_host_token_cancel(token), -EBADF);
    IS(gpunet_host_token_net(token), 0);

    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 2, echo_kernel, &echo));
    /* By tasks of the same attachment, and of another one of the proxy, through memory; and by TCP. */
    ask(attachment, GPUNET_HOST_TRANSPORT_PEER, echo.port);
    ask(other, GPUNET_HOST_TRANSPORT_PEER, echo.port);
    ask(other, GPUNET_HOST_TRANSPORT_TCP, echo.port);
    IS(gpunet_host_token_wait(token, 0), -ETIMEDOUT);
    REASON("still run");
    OK(gpunet_host_token_cancel(token));
    OK(gpunet_host_token_wait(token, 10000000000));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    IS(echo.result[0] == -ECANCELED || echo.result[1] == -ECANCELED, 1);
}

static void stops_itself(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    (void)net, (void)block, (void)blocks;
    gpunet_host_token_t *token = (gpunet_host_token_t *)argument;
    IS(gpunet_host_token_wait(token, -1), -EDEADLK);
    IS(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL), -EDEADLK);
    OK(gpunet_host_token_cancel(token));
    IS(gpunet_socket(net, AF_INET, SOCK_STREAM, 0) > 0, 1);
}

static void *waits_with_net(void *argument) {
    gpunet_host_token_t *token = (gpunet_host_token_t *)argument;
    uint64_t net = gpunet_host_token_net(token);
    int listener = gpunet_socket(net, AF_INET, SOCK_STREAM, 0);
    OK(gpunet_listen(net, listener, 1));
    struct pollfd entry = {listener, POLLIN, 0};
    IS(gpunet_poll(net, &entry, 1, 1000000), 0);
    IS(gpunet_accept(net, listener, NULL, NULL), -ECANCELED);
    return NULL;
}

static void misuse(gpunet_host_attachment_t *attachment) {
    gpunet_host_token_t *token = NULL;
    uint64_t left_open = 9;
    OK(gpunet_host_token(attachment, &token));
    IS(gpunet_host_token_launch(token, 0, bind_kernel, NULL), -EINVAL);
    IS(gpunet_host_token_launch(token, 1, NULL, NULL), -EINVAL);
    IS(gpunet_host_token_finish(token, 7, &left_open), -EINVAL);
    IS(gpunet_host_bind_module(token, NULL), -EINVAL);
    IS(gpunet_host_bind_module(token, &token), -EOPNOTSUPP);
    IS(gpunet_host_bind_kernel(token, NULL), -EINVAL);
    IS(gpunet_host_bind_kernel(token, &token), -EOPNOTSUPP);
    OK(gpunet_host_token_launch(token, 1, stops_itself, token));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_RESET, &left_open));
    IS(left_open, 1);

    /* A thread of the program's own calls with the token's net. */
    OK(gpunet_host_token(attachment, &token));
    uint64_t net = gpunet_host_token_net(token);
    pthread_t thread;
    start(&thread, waits_with_net, token);
    usleep(50000);
    IS(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL), -EBUSY);
    OK(gpunet_host_token_cancel(token));
    OK(pthread_join(thread, NULL));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, &left_open));
    IS(left_open, 1);
    IS(gpunet_socket(net, AF_INET, SOCK_STREAM, 0), -ENETDOWN);
    IS(gpunet_socket(0, AF_INET, SOCK_STREAM, 0), -ENETDOWN);
    IS(gpunet_socket(12345, AF_INET, SOCK_STREAM, 0), -ENETDOWN);

    /* There are 64 launch numbers; one is the host sockets'. */
    gpunet_host_token_t *tokens[64];
    int count = 0;
    while (gpunet_host_token(attachment, &tokens[count]) == 0) count++;
    IS(count, 63);
    IS(gpunet_host_token(attachment, &token), -EBUSY);
    REASON("64 launches");
    while (count > 0) OK(gpunet_host_token_finish(tokens[--count], GPUNET_HOST_CLOSE, NULL));

    gpunet_host_buffer_t *buffer = NULL;
    uint64_t address = 0;
    size_t len = 0;
    char bytes[8];
    OK(gpunet_host_alloc(attachment, 8, &buffer));
    OK(gpunet_host_buffer_address(buffer, &address, &len));
    TRUE(address != 0);
    IS(len, 8);
    OK(gpunet_host_buffer_write(buffer, 4, "ring", 4));
    OK(gpunet_host_buffer_read(buffer, 0, bytes, 8));
    IS(memcmp(bytes, "\0\0\0\0ring", 8), 0);
    IS(gpunet_host_buffer_write(buffer, 5, "ring", 4), -EINVAL);
    REASON("4 bytes at 5 are not inside the buffer of 8 bytes");
    IS(gpunet_host_buffer_read(buffer, (size_t)-1, bytes, 2), -EINVAL);
    IS(gpunet_host_buffer_read(buffer, 0, NULL, 1), -EFAULT);
    OK(gpunet_host_buffer_free(buffer));
    IS(gpunet_host_buffer_free(buffer), -EBADF);
    IS(gpunet_host_alloc(attachment, (size_t)-1 / 2, &buffer), -ENOMEM);

    struct gpunet_host_kernel kernel = {NULL, "none", 1, 1, 0};
    OK(gpunet_host_check_co_resident(attachment, &kernel, 1));
    char *json = NULL;
    OK(gpunet_host_attachment_json(attachment, &json));
    TRUE(strstr(json, "\"device\":\"cpu\""));
    gpunet_host_free_string(json);
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy), *other = attachment_new(proxy);
    serve(attachment, other);
    misuse(attachment);
    OK(gpunet_host_attachment_close(other, NULL));
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("kernels");
}
