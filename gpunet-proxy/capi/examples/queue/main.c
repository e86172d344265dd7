/* Queues and prepared messages on the CPU device: the program opens both ends of a stream, queues send and receive on them,
 * and a kernel (a C function) fills and releases a prepared message. It needs neither CUDA nor a GPU. */
#include <gpunet.h>
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 1000000

/* Ends the program with the reason, if a call failed. */
static int must(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, gpunet_host_last_error(), result);
        exit(1);
    }
    return result;
}

/* Two sockets of the device, connected to each other. */
static void connect_both(gpunet_host_attachment_t *attachment, gpunet_host_device_socket_t *ends[2]) {
    gpunet_host_device_socket_t *listener = NULL;
    /* Over tcp a connect does not wait for the accept. */
    struct gpunet_options options = {.transport = GPUNET_HOST_TRANSPORT_TCP};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    must("listening", gpunet_host_device_listen(attachment, (struct sockaddr *)&address, len, &options, 1, &listener));
    must("the listener's port", gpunet_host_device_getsockname(listener, (struct sockaddr *)&address, &len));
    must("connecting", gpunet_host_device_connect(attachment, (struct sockaddr *)&address, len, &options, 5000000000, &ends[0]));
    must("accepting", gpunet_host_device_accept(listener, 5000000000, &ends[1]));
    must("closing", gpunet_host_device_close(listener));
}

/* A callback: what the queue was given before is done. */
static void tell(void *user, int error) {
    __atomic_store_n((int *)user, error == 0 ? 1 : error, __ATOMIC_RELEASE);
}

/* A kernel that fills a prepared message in the ring, and releases it. */
static void fill_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    const gpunet_host_send_message *message = argument;
    struct gpunet_span span;
    (void)block, (void)blocks;
    must("waiting for room", gpunet_wait(net, message->room, -1));
    must("finding the message", gpunet_prepared_span(net, message->prepared, &span));
    for (int i = 0; i < 2; i++)
        if (span.piece[i].len > 0) memset(span.piece[i].data, 'k', span.piece[i].len);
    must("releasing the trigger", gpunet_trigger_release(net, message->post));
}

int main(void) {
    gpunet_host_proxy_t *proxy = NULL;
    gpunet_host_attachment_t *attachment = NULL;
    gpunet_host_device_socket_t *ends[2] = {NULL, NULL};
    gpunet_host_sender_t *sender = NULL;
    gpunet_host_receiver_t *receiver = NULL;
    gpunet_host_queue_t *here = NULL, *there = NULL;
    static unsigned char sent[BYTES], heard[BYTES];
    int is_done = 0;

    if (gpunet_host_abi_version() != GPUNET_HOST_ABI_VERSION) {
        fprintf(stderr, "libgpunet %s does not fit this program\n", gpunet_host_version());
        return 1;
    }
    must("starting a proxy", gpunet_host_embed("sockets = 64\nshared_rings = 16_777_216\nrc = 'off'", &proxy));
    must("attaching the CPU", gpunet_host_attach_cpu(proxy, &attachment));
    connect_both(attachment, ends);
    must("taking a direction", gpunet_host_device_take_send(ends[0], &sender));
    must("taking a direction", gpunet_host_device_take_recv(ends[1], &receiver));

    /* Operations in order. The calls do not wait. */
    for (size_t at = 0; at < sizeof sent; at++) sent[at] = (unsigned char)(at * 7 >> 3);
    must("making a queue", gpunet_host_queue_cpu(attachment, &here));
    must("making a queue", gpunet_host_queue_cpu(attachment, &there));
    must("sending", gpunet_host_queue_send(here, sender, sent, sizeof sent));
    must("receiving", gpunet_host_queue_recv(there, receiver, heard, sizeof heard));
    must("asking for a callback", gpunet_host_queue_notify(there, tell, &is_done));
    must("the sends", gpunet_host_queue_synchronize(here, 60000000000));
    must("the receives", gpunet_host_queue_synchronize(there, 60000000000));
    if (memcmp(sent, heard, sizeof sent) != 0) {
        fprintf(stderr, "the bytes have changed\n");
        return 1;
    }

    /* One queue does both, at once: in turn, the send would wait for room that only the receive makes. */
    gpunet_host_started both[2];
    uint64_t failed = 1;
    memset(heard, 0, sizeof heard);
    must("starting a send", gpunet_host_queue_start_send(there, sender, sent, sizeof sent, &both[0]));
    must("starting a receive", gpunet_host_queue_start_recv(there, receiver, heard, sizeof heard, &both[1]));
    must("waiting for both", gpunet_host_queue_finish(there, both, 2));
    must("asking how they went", gpunet_host_queue_check(there, &failed));
    must("the messages", gpunet_host_queue_synchronize(there, 60000000000));
    if (failed != 0 || memcmp(sent, heard, sizeof sent) != 0) {
        fprintf(stderr, "the bytes have changed, or did not come (%s)\n", strerror((int)failed));
        return 1;
    }

    /* A message that a kernel fills. The receiving queue waits for it, and the program reads it where it lies. */
    gpunet_host_token_t *token = NULL;
    gpunet_host_send_message message;
    gpunet_host_recv_message expected;
    must("preparing a message", gpunet_host_sender_prepare(sender, 4096, &message));
    must("preparing a message", gpunet_host_receiver_prepare(receiver, 4096, &expected));
    must("waiting at a gate", gpunet_host_queue_wait(there, &expected.arrived, 1));
    must("taking a token", gpunet_host_token(attachment, &token));
    must("launching", gpunet_host_token_launch(token, 1, fill_kernel, &message));
    must("the message", gpunet_host_queue_synchronize(there, 60000000000));
    for (int i = 0; i < 2; i++) {
        const unsigned char *bytes = expected.span.piece[i].data;
        for (unsigned long long at = 0; at < expected.span.piece[i].len; at++) {
            if (bytes[at] == 'k') continue;
            fprintf(stderr, "the kernel's message has changed\n");
            return 1;
        }
    }
    must("giving the bytes back", gpunet_host_queue_post(there, &expected.consume, 1));
    must("the end", gpunet_host_queue_synchronize(there, 60000000000));
    must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_KEEP, NULL));

    while (__atomic_load_n(&is_done, __ATOMIC_ACQUIRE) == 0) {}
    gpunet_host_queue_report report;
    must("the queue's outcome", gpunet_host_queue_outcome(there, &report));
    must("ending a queue", gpunet_host_queue_destroy(here));
    must("ending a queue", gpunet_host_queue_destroy(there));
    must("giving a direction back", gpunet_host_sender_give_back(sender));
    must("giving a direction back", gpunet_host_receiver_give_back(receiver));
    for (int i = 0; i < 2; i++) must("closing", gpunet_host_device_close(ends[i]));
    must("closing", gpunet_host_attachment_close(attachment, NULL));
    must("closing", gpunet_host_proxy_close(proxy));
    printf("twice %d bytes by queues, 4096 by a kernel; %llu operations, error %d, callback %d\n", BYTES, (unsigned long long)report.done,
           report.error, is_done);
    return report.error == 0 && is_done == 1 ? 0 : 1;
}
