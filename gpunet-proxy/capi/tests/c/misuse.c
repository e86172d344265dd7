/* What no program should do, and what the library answers: never a crash. Run it under AddressSanitizer and UBSan. */
#include "test.h"
#include <dirent.h>
#include <sys/wait.h>

/* Every call with a handle: null, closed, of another kind, made up. */
static void handles(void *bad, int null) {
    gpunet_host_proxy_t *proxy = (gpunet_host_proxy_t *)bad;
    gpunet_host_attachment_t *attachment = (gpunet_host_attachment_t *)bad;
    gpunet_host_token_t *token = (gpunet_host_token_t *)bad;
    gpunet_host_buffer_t *buffer = (gpunet_host_buffer_t *)bad;
    gpunet_host_socket_t *socket = (gpunet_host_socket_t *)bad;
    struct sockaddr_in address = loopback(1);
    socklen_t len = sizeof address;
    char *json = NULL, byte;
    int value = 0;
    void *out = NULL;

    IS(gpunet_host_proxy_is_daemon(proxy), -EBADF);
    REASON(null ? "it is null" : "not the handle of a proxy");
    IS(gpunet_host_proxy_json(proxy, &json), -EBADF);
    IS(gpunet_host_snapshot_json(proxy, &json), -EBADF);
    IS(gpunet_host_proxy_abort(proxy), -EBADF);
    IS(gpunet_host_proxy_close(proxy), -EBADF);
    IS(gpunet_host_attach_cpu(proxy, (gpunet_host_attachment_t **)&out), -EBADF);
    IS(gpunet_host_attach_cuda(proxy, &value, (gpunet_host_attachment_t **)&out), -EBADF);
    IS(gpunet_host_attach_cuda_device(proxy, 0, (gpunet_host_attachment_t **)&out), -EBADF);
    IS(gpunet_host_attachment_json(attachment, &json), -EBADF);
    IS(gpunet_host_attachment_close(attachment, NULL), -EBADF);
    IS(gpunet_host_alloc(attachment, 1, (gpunet_host_buffer_t **)&out), -EBADF);
    IS(gpunet_host_token(attachment, (gpunet_host_token_t **)&out), -EBADF);
    IS(gpunet_host_check_co_resident(attachment, NULL, 0), -EBADF);
    IS(gpunet_host_socket(attachment, (gpunet_host_socket_t **)&out), -EBADF);
    IS(gpunet_host_buffer_address(buffer, NULL, NULL), -EBADF);
    IS(gpunet_host_buffer_write(buffer, 0, &byte, 1), -EBADF);
    IS(gpunet_host_buffer_read(buffer, 0, &byte, 1), -EBADF);
    IS(gpunet_host_buffer_free(buffer), -EBADF);
    IS(gpunet_host_token_net(token), 0);
    IS(gpunet_host_token_launch(token, 1, NULL, NULL), -EBADF);
    IS(gpunet_host_token_wait(token, 0), -EBADF);
    IS(gpunet_host_token_cancel(token), -EBADF);
    IS(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, NULL), -EBADF);
    IS(gpunet_host_bind_module(token, &value), -EBADF);
    IS(gpunet_host_bind_kernel(token, &value), -EBADF);
    IS(gpunet_host_bind(socket, ADDRESS(address)), -EBADF);
    IS(gpunet_host_listen(socket, 1), -EBADF);
    IS(gpunet_host_accept(socket, NULL, NULL, (gpunet_host_socket_t **)&out), -EBADF);
    IS(gpunet_host_connect(socket, ADDRESS(address)), -EBADF);
    IS(gpunet_host_send(socket, &byte, 1, 0), -EBADF);
    IS(gpunet_host_recv(socket, &byte, 1, 0), -EBADF);
    IS(gpunet_host_shutdown(socket, SHUT_WR), -EBADF);
    IS(gpunet_host_getsockname(socket, (struct sockaddr *)&address, &len), -EBADF);
    IS(gpunet_host_getpeername(socket, (struct sockaddr *)&address, &len), -EBADF);
    IS(gpunet_host_setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value), -EBADF);
    IS(gpunet_host_getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &value, &len), -EBADF);
    IS(gpunet_host_set_nonblocking(socket, 1), -EBADF);
    IS(gpunet_host_fd(socket, POLLIN), -EBADF);
    IS(gpunet_host_close(socket), -EBADF);
    struct gpunet_host_pollfd entry = {socket, POLLIN, 0};
    IS(gpunet_host_poll(&entry, 1, 0), null ? 0 : 1);
    IS(entry.revents, null ? 0 : POLLNVAL);
    TRUE(!out && !json);
}

/* Every call with a pointer that is null, and numbers that are none. */
static void pointers(gpunet_host_proxy_t *proxy, gpunet_host_attachment_t *attachment) {
    struct sockaddr_in address = loopback(1);
    IS(gpunet_host_embed(NULL, NULL), -EFAULT);
    IS(gpunet_host_attach(NULL, NULL, NULL), -EFAULT);
    IS(gpunet_host_open(NULL, NULL, NULL), -EFAULT);
    IS(gpunet_host_attach_cpu(proxy, NULL), -EFAULT);
    IS(gpunet_host_attach_cuda(proxy, NULL, NULL), -EFAULT);
    IS(gpunet_host_proxy_json(proxy, NULL), -EFAULT);
    IS(gpunet_host_snapshot_json(proxy, NULL), -EFAULT);
    IS(gpunet_host_attachment_json(attachment, NULL), -EFAULT);
    IS(gpunet_host_alloc(attachment, 1, NULL), -EFAULT);
    IS(gpunet_host_token(attachment, NULL), -EFAULT);
    IS(gpunet_host_socket(attachment, NULL), -EFAULT);
    IS(gpunet_host_check_co_resident(attachment, NULL, 1), -EFAULT);
    IS(gpunet_host_poll(NULL, 1, 0), -EFAULT);
    IS(gpunet_host_poll(NULL, (size_t)-1 / 2, 0), -EFAULT);
    IS(gpunet_host_poll(NULL, 0, 1000000), 0);
    gpunet_host_free_string(NULL);

    gpunet_host_proxy_t *none = NULL;
    IS(gpunet_host_embed("shards = 2", &none), -EINVAL);
    REASON("settings, line 1: unknown field `shards`");
    IS(gpunet_host_embed("sockets = 70000", &none), -EINVAL);
    REASON("expected 1 to 65536");
    IS(gpunet_host_embed("\xff", &none), -EINVAL);
    REASON("UTF-8");
    IS(gpunet_host_attach("/run/nobody/gpunetd.sock", NULL, &none), -ENOENT);
    REASON("start gpunetd");
    IS(gpunet_host_attach_cuda(proxy, NULL, (gpunet_host_attachment_t **)&none), -EINVAL);
    IS(gpunet_host_attach_cuda_device(proxy, -1, (gpunet_host_attachment_t **)&none), -EINVAL);
    TRUE(!none);

    struct pair pair = pair_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    IS(gpunet_host_send(pair.client, NULL, 1, 0), -EFAULT);
    IS(gpunet_host_recv(pair.client, NULL, 1, 0), -EFAULT);
    IS(gpunet_host_send(pair.client, "x", (size_t)-1, 0), -EINVAL);
    IS(gpunet_host_recv(pair.client, &address, (size_t)-1, 0), -EINVAL);
    IS(gpunet_host_getsockname(pair.client, NULL, NULL), -EFAULT);
    IS(gpunet_host_getpeername(pair.client, (struct sockaddr *)&address, NULL), -EFAULT);
    IS(gpunet_host_bind(pair.client, NULL, 16), -EFAULT);
    IS(gpunet_host_bind(pair.client, ADDRESS(address)), -EINVAL);
    IS(gpunet_host_listen(pair.client, 1), -EINVAL);
    IS(gpunet_host_accept(pair.client, NULL, NULL, NULL), -EFAULT);
    IS(gpunet_host_connect(pair.client, NULL, 0), -EFAULT);
    REASON("the address is null");
    IS(gpunet_host_fd(pair.client, POLLPRI), -EINVAL);
    /* A name is cut to the room there is. */
    socklen_t len = 2;
    address.sin_port = 7;
    OK(gpunet_host_getsockname(pair.client, (struct sockaddr *)&address, &len));
    IS(len, sizeof address);
    IS(address.sin_port, 7);
    OK(gpunet_host_close(pair.client));
    OK(gpunet_host_close(pair.server));
}

static int descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static long field(const char *json, const char *name) {
    const char *found = strstr(json, name);
    TRUE(found);
    return strtol(found + strlen(name), NULL, 10);
}

/* Waits until the attachment holds no socket: a close is answered a moment later. */
static void all_free(gpunet_host_attachment_t *attachment) {
    char *json = NULL;
    for (;;) {
        OK(gpunet_host_attachment_json(attachment, &json));
        long sockets = field(json, "\"sockets\":");
        gpunet_host_free_string(json);
        if (sockets == 0) return;
        usleep(1000);
    }
}

/* 10,000 handles of every kind: all are different, none is left, and no closed one finds anything. */
static void ten_thousand(gpunet_host_attachment_t *attachment) {
    enum { COUNT = 10000 };
    static void *stale[COUNT];
    struct sockaddr_in address;
    gpunet_host_socket_t *listener = listener_new(attachment, GPUNET_HOST_TRANSPORT_PEER);
    address = address_of(listener);
    int before = 0;
    for (int i = 0; i < COUNT; i++) {
        gpunet_host_socket_t *socket = socket_new(attachment, GPUNET_HOST_TRANSPORT_PEER), *accepted = NULL;
        gpunet_host_token_t *token = NULL;
        gpunet_host_buffer_t *buffer = NULL;
        OK(gpunet_host_token(attachment, &token));
        OK(gpunet_host_alloc(attachment, 100, &buffer));
        if (i % 10 == 0) {
            TRUE(gpunet_host_fd(socket, POLLIN) >= 0);
            OK(gpunet_host_set_nonblocking(socket, 1));
            IS(gpunet_host_connect(socket, ADDRESS(address)), -EINPROGRESS);
            /* Some give up. */
            if (i % 20 == 0) {
                OK(gpunet_host_accept(listener, NULL, NULL, &accepted));
                OK(gpunet_host_close(accepted));
            }
        }
        stale[i] = socket;
        OK(gpunet_host_close(socket));
        OK(gpunet_host_buffer_free(buffer));
        OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
        if (i == 100) before = descriptors();
    }
    OK(gpunet_host_close(listener));
    all_free(attachment);
    /* A few more or less are on their way. */
    TRUE(descriptors() <= before + 4);
    for (int i = 0; i < COUNT; i += 7) IS(gpunet_host_close((gpunet_host_socket_t *)stale[i]), -EBADF);

    static gpunet_host_socket_t *open[COUNT];
    for (int i = 0; i < COUNT; i++) open[i] = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    for (int i = 0; i < COUNT; i += 7) IS(gpunet_host_listen((gpunet_host_socket_t *)stale[i], 1), -EBADF);
    for (int i = COUNT - 1; i >= 0; i--) OK(gpunet_host_close(open[i]));
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    IS(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct told {
    int count, errors;
};

static void log_event(int level, const char *module, const char *text, void *user) {
    struct told *told = (struct told *)user;
    __atomic_add_fetch(&told->count, 1, __ATOMIC_RELAXED);
    if (level < GPUNET_HOST_LOG_ERROR || level > GPUNET_HOST_LOG_TRACE || !*module || strchr(text, '\n'))
        __atomic_add_fetch(&told->errors, 1, __ATOMIC_RELAXED);
    if (gpunet_host_set_log(GPUNET_HOST_LOG_ERROR, NULL, NULL) != -EDEADLK) __atomic_add_fetch(&told->errors, 1, __ATOMIC_RELAXED);
}

static void log_is_told(void) {
    struct told told = {0, 0};
    gpunet_host_proxy_t *proxy = NULL;
    IS(gpunet_host_set_log(0, log_event, &told), -EINVAL);
    OK(gpunet_host_set_log(GPUNET_HOST_LOG_TRACE, log_event, &told));
    OK(gpunet_host_open("/run/nobody/gpunetd.sock", SETTINGS, &proxy));
    IS(gpunet_host_proxy_is_daemon(proxy), 0);
    TRUE(told.count > 0);
    OK(gpunet_host_set_log(GPUNET_HOST_LOG_TRACE, NULL, NULL));
    int before = told.count;
    OK(gpunet_host_proxy_close(proxy));
    OK(gpunet_host_open("/run/nobody/gpunetd.sock", SETTINGS, &proxy));
    IS(told.count, before);
    OK(told.errors);
    OK(gpunet_host_proxy_close(proxy));
}

static void *last_error_of_a_thread(void *argument) {
    (void)argument;
    IS(strlen(gpunet_host_last_error()), 0);
    IS(gpunet_host_close(NULL), -EBADF);
    REASON("it is null");
    return NULL;
}

/* A child that fork has made knows that its parent's handles are not its own, and can have some. */
static void forks(gpunet_host_attachment_t *attachment) {
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        IS(gpunet_host_attachment_close(attachment, NULL), -EBADF);
        REASON("the process that this one was forked from");
        gpunet_host_proxy_t *proxy = proxy_new();
        gpunet_host_attachment_t *own = attachment_new(proxy);
        TRUE(own != attachment);
        IS(gpunet_host_attachment_close(attachment, NULL), -EBADF);
        OK(gpunet_host_attachment_close(own, NULL));
        OK(gpunet_host_proxy_close(proxy));
        _exit(0);
    }
    int status = 1;
    IS(waitpid(child, &status, 0), child);
    OK(status);
}

int main(void) {
    begin();
    TRUE(strchr(gpunet_host_version(), '.'));
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    handles(NULL, 1);
    handles((void *)1, 0);
    handles((void *)-1, 0);
    handles(&proxy, 0);
    gpunet_host_token_t *token = NULL;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    handles(token, 0);
    forks(attachment);
    pointers(proxy, attachment);
    ten_thousand(attachment);
    /* What the first round took, the second uses again: 100 bytes lost with each handle would be 6 MiB. */
    long before = resident_kib();
    ten_thousand(attachment);
#ifndef __SANITIZE_ADDRESS__
    TRUE(resident_kib() - before < 2048);
#else
    (void)before;
#endif
    log_is_told();

    char *json = NULL;
    OK(gpunet_host_snapshot_json(proxy, &json));
    TRUE(strstr(json, "\"clients\":[{"));
    gpunet_host_free_string(json);
    OK(gpunet_host_proxy_json(proxy, &json));
    TRUE(strstr(json, "\"daemon\":null"));
    gpunet_host_free_string(json);

    IS(gpunet_host_close(NULL), -EBADF);
    pthread_t thread;
    start(&thread, last_error_of_a_thread, NULL);
    OK(pthread_join(thread, NULL));
    gpunet_host_socket_t *orphan = socket_new(attachment, GPUNET_HOST_TRANSPORT_TCP);
    OK(gpunet_host_proxy_abort(proxy));
    IS(gpunet_host_attach_cpu(proxy, &attachment), -ENETDOWN);
    IS(gpunet_host_listen(orphan, 1), -ENETDOWN);
    /* In an order of its own. */
    OK(gpunet_host_proxy_close(proxy));
    OK(gpunet_host_attachment_close(attachment, NULL));
    IS(gpunet_host_attachment_close(attachment, NULL), -EBADF);
    OK(gpunet_host_close(orphan));
    return end("misuse");
}
