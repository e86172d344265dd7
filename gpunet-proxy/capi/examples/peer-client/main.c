/* Talks to a kernel through memory (`peer`): no byte goes through a TCP stack, and this program needs neither CUDA nor a GPU.
 *
 *     peer-client                     starts a kernel of its own, a C function on the CPU
 *     peer-client 127.0.0.1:7777      talks to the echo server of another program, under the same gpunetd
 *
 * For the second, start `gpunetd`, and under it for example
 * `gpunet-echo server 127.0.0.1:7777 --daemon $XDG_RUNTIME_DIR/gpunetd.sock`. */
#include <gpunet.h>
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the reason, if a call failed. */
static long long must(const char *what, long long result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%lld)\n", what, gpunet_host_last_error(), result);
        exit(1);
    }
    return result;
}

/* Where the kernels listen. */
struct place {
    struct sockaddr_in address; /* the first kernel writes the port */
    int listener;               /* its socket: a number of the device, which the second kernel finds open */
};

/* A kernel that listens. */
static void listen_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct place *place = argument;
    struct sockaddr *address = (struct sockaddr *)&place->address;
    socklen_t len = sizeof place->address;
    (void)block, (void)blocks;
    place->listener = (int)must("socket", gpunet_socket(net, AF_INET, SOCK_STREAM, 0));
    must("bind", gpunet_bind(net, place->listener, address, len));
    must("listen", gpunet_listen(net, place->listener, 16));
    must("getsockname", gpunet_getsockname(net, place->listener, address, &len));
}

/* A kernel that is an echo server for one connection. */
static void serve_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    const struct place *place = argument;
    char bytes[4096];
    ssize_t n;
    (void)block, (void)blocks;
    int stream = gpunet_accept(net, place->listener, NULL, NULL);
    while ((n = gpunet_recv(net, stream, bytes, sizeof bytes, 0)) > 0)
        if (gpunet_send(net, stream, bytes, (size_t)n, MSG_WAITALL) != n) break;
    gpunet_close(net, stream);
}

int main(int argc, char **argv) {
    gpunet_host_proxy_t *proxy = NULL;
    gpunet_host_attachment_t *attachment = NULL;
    gpunet_host_token_t *token = NULL;
    gpunet_host_socket_t *socket = NULL;
    struct place place = {0};

    if (gpunet_host_abi_version() != GPUNET_HOST_ABI_VERSION) {
        fprintf(stderr, "libgpunet %s does not fit this program\n", gpunet_host_version());
        return 1;
    }
    place.address.sin_family = AF_INET;
    if (argc > 1) {
        char *colon = strrchr(argv[1], ':');
        if (colon) *colon = 0;
        if (!colon || inet_pton(AF_INET, argv[1], &place.address.sin_addr) != 1) {
            fprintf(stderr, "usage: peer-client [ADDRESS:PORT]\n");
            return 1;
        }
        place.address.sin_port = htons((uint16_t)atoi(colon + 1));
        must("joining the daemon", gpunet_host_attach(NULL, NULL, &proxy));
    } else {
        place.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        must("starting a proxy", gpunet_host_embed("sockets = 64\nshared_rings = 16_777_216", &proxy));
    }
    must("attaching the CPU", gpunet_host_attach_cpu(proxy, &attachment));
    if (argc == 1) {
        must("taking a token", gpunet_host_token(attachment, &token));
        must("launching", gpunet_host_token_launch(token, 1, listen_kernel, &place));
        must("waiting", gpunet_host_token_wait(token, -1));
        must("launching", gpunet_host_token_launch(token, 1, serve_kernel, &place));
    }

    int transport = GPUNET_HOST_TRANSPORT_PEER;
    must("making a socket", gpunet_host_socket(attachment, &socket));
    must("choosing peer", gpunet_host_setsockopt(socket, GPUNET_HOST_SOL_GPUNET, GPUNET_HOST_TRANSPORT, &transport, sizeof transport));
    must("connecting", gpunet_host_connect(socket, (struct sockaddr *)&place.address, sizeof place.address));
    unsigned char sent[1024], back[1024];
    for (int message = 0; message < 1000; message++) {
        for (size_t at = 0; at < sizeof sent; at++) sent[at] = (unsigned char)(message * 7 + (int)at);
        must("sending", gpunet_host_send(socket, sent, sizeof sent, 0));
        if (must("receiving", gpunet_host_recv(socket, back, sizeof back, MSG_WAITALL)) != sizeof back || memcmp(sent, back, sizeof sent)) {
            fprintf(stderr, "message %d came back changed\n", message);
            return 1;
        }
    }
    must("ending the stream", gpunet_host_shutdown(socket, SHUT_WR));
    must("receiving the end", gpunet_host_recv(socket, back, sizeof back, 0));
    must("closing", gpunet_host_close(socket));

    if (token) must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    struct gpunet_host_close_report report;
    must("closing", gpunet_host_attachment_close(attachment, &report));
    must("closing", gpunet_host_proxy_close(proxy));
    printf("1000 messages came back from a kernel, through memory; %llu bytes undelivered\n", (unsigned long long)report.undelivered);
    return 0;
}
