/* Arrays from one process to another: a trainer sends its weights, and a worker, which does not know what comes, allocates for
 * them and checks every byte. It needs neither a proxy nor a GPU.
 *
 *     channel                                    both, on this machine
 *     channel trainer ADDRESS PORT               one of them: the worker connects to the trainer
 *     channel worker ADDRESS PORT */
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 4096, COLUMNS = 4096, LAYERS = 2 };

/* Ends the program with the reason, if a call failed. */
static int must(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, gpunet_host_last_error(), result);
        exit(1);
    }
    return result;
}

/* What an element is, at both ends. */
static float element(int layer, size_t at) { return (float)(at % 1021) + 0.25f * (float)layer; }

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (memory) return memory;
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(1);
}

/* Called with how far a transfer is, by any thread. */
static void show(uint64_t moved, uint64_t total, void *user) {
    if (moved == total) fprintf(stderr, "%s: %llu bytes are through\n", (const char *)user, (unsigned long long)total);
}

static void trainer(struct sockaddr_in address, int tell) {
    gpunet_host_channel_listener_t *listener = NULL;
    gpunet_host_channel_t *channel = NULL;
    gpunet_host_transfer_t *transfer = NULL;
    gpunet_host_outcome outcome;
    socklen_t len = sizeof address;
    int64_t shape[2] = {ROWS, COLUMNS};
    gpunet_host_array layers[LAYERS] = {{0}};
    char names[LAYERS][16];

    must("listening", gpunet_host_channel_listen((struct sockaddr *)&address, len, NULL, &listener));
    must("the port", gpunet_host_channel_getsockname(listener, (struct sockaddr *)&address, &len));
    if (write(tell, &address.sin_port, sizeof address.sin_port) != sizeof address.sin_port) exit(1);
    must("accepting", gpunet_host_channel_accept(listener, 60000000000, &channel));

    for (int layer = 0; layer < LAYERS; layer++) {
        float *weights = allocate(sizeof(float) * ROWS * COLUMNS);
        for (size_t at = 0; at < (size_t)ROWS * COLUMNS; at++) weights[at] = element(layer, at);
        snprintf(names[layer], sizeof names[layer], "layer %d", layer);
        layers[layer] = (gpunet_host_array){
            .data = weights, .shape = shape, .rank = 2, .dtype = {GPUNET_HOST_FLOAT, 32, 1}, .name = names[layer]};
    }
    /* As one transfer, beside the program, which asks how far it is. Arrays on a GPU would say GPUNET_HOST_CUDA. */
    gpunet_host_transfer_options options = {.progress = show, .user = "trainer", .timeout_ns = 60000000000};
    must("starting", gpunet_host_channel_start_send(channel, layers, LAYERS, &options, &transfer));
    int result;
    while ((result = gpunet_host_transfer_wait(transfer, 100000000, &outcome)) == -EAGAIN && !outcome.done)
        fprintf(stderr, "trainer: %llu of %llu bytes\n", (unsigned long long)outcome.moved, (unsigned long long)outcome.total);
    must("sending", result);
    must("ending the transfer", gpunet_host_transfer_close(transfer));
    printf("trainer: sent %llu bytes by %s\n", (unsigned long long)outcome.moved, outcome.text);
    for (int layer = 0; layer < LAYERS; layer++) free(layers[layer].data);
    must("closing", gpunet_host_channel_close(channel));
    must("closing", gpunet_host_channel_listener_close(listener));
}

static void worker(struct sockaddr_in address) {
    gpunet_host_channel_t *channel = NULL;
    gpunet_host_incoming incoming;
    gpunet_host_outcome outcome;
    int result;
    must("connecting", gpunet_host_channel_connect((struct sockaddr *)&address, sizeof address, NULL, 60000000000, &channel));
    /* Until the other end sends no more. */
    while ((result = gpunet_host_channel_peek(channel, 60000000000, &incoming)) == 0) {
        size_t count = (size_t)incoming.arrays;
        gpunet_host_description *descriptions = allocate(count * sizeof *descriptions);
        gpunet_host_array *arrays = allocate(count * sizeof *arrays);
        for (size_t i = 0; i < count; i++) {
            gpunet_host_description *description = &descriptions[i];
            must("the header", gpunet_host_channel_describe(channel, i, description));
            arrays[i] = (gpunet_host_array){.data = allocate((size_t)description->bytes), .shape = description->shape,
                                            .rank = description->rank, .dtype = description->dtype, .name = description->name};
        }
        must("receiving", gpunet_host_channel_recv(channel, arrays, count, NULL, &outcome));
        for (size_t i = 0; i < count; i++) {
            const float *weights = arrays[i].data;
            int layer = atoi(descriptions[i].name + strlen("layer "));
            for (size_t at = 0; at < descriptions[i].bytes / sizeof(float); at++)
                if (weights[at] != element(layer, at)) {
                    fprintf(stderr, "%s: element %zu has changed\n", descriptions[i].name, at);
                    exit(1);
                }
            free(arrays[i].data);
        }
        printf("worker: %zu arrays, %llu bytes by %s, every byte checked\n", count, (unsigned long long)outcome.moved, outcome.text);
        free(arrays);
        free(descriptions);
    }
    if (result != -ENODATA) must("waiting", result);
    must("closing", gpunet_host_channel_close(channel));
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int ports[2], status = 0;
    if (gpunet_host_abi_version() != GPUNET_HOST_ABI_VERSION) {
        fprintf(stderr, "libgpunet %s does not fit this program\n", gpunet_host_version());
        return 1;
    }
    if (pipe(ports) != 0) return 1;
    if (argc == 4 && inet_pton(AF_INET, argv[2], &address.sin_addr) == 1) {
        address.sin_port = htons((unsigned short)atoi(argv[3]));
        if (strcmp(argv[1], "trainer") == 0) trainer(address, ports[1]);
        else worker(address);
        return 0;
    }
    /* Before the first call that makes something: a child has nothing of its parent's. */
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        if (read(ports[0], &address.sin_port, sizeof address.sin_port) != sizeof address.sin_port) return 1;
        worker(address);
        return 0;
    }
    trainer(address, ports[1]);
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the worker failed\n");
        return 1;
    }
    return 0;
}
