// SPDX-License-Identifier: MIT OR Apache-2.0
// dmabuf_check DEVICE works|unsupported: registers a udmabuf and a buffer of the system dma-heap with the RDMA device.
// Needs no header of libibverbs: of its objects only pointers are used. The function in question is looked up at run time,
// as gpunet does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

void **ibv_get_device_list(int *count);
const char *ibv_get_device_name(void *device);
void *ibv_open_device(void *device);
void *ibv_alloc_pd(void *context);
int ibv_dereg_mr(void *mr);

typedef void *register_dmabuf(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);

enum { SIZE = 1 << 20, LOCAL_WRITE = 1, REMOTE_WRITE = 2 };

static int fatal(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static int udmabuf(void)
{
    int memory = memfd_create("check", MFD_ALLOW_SEALING);
    if (memory < 0 || ftruncate(memory, SIZE) || fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK))
        fatal("memfd");
    int device = open("/dev/udmabuf", O_RDWR);
    struct udmabuf_create request = { .memfd = memory, .flags = UDMABUF_FLAGS_CLOEXEC, .size = SIZE };
    int buffer = ioctl(device, UDMABUF_CREATE, &request);
    return buffer < 0 ? fatal("/dev/udmabuf") : buffer;
}

static int heap_buffer(void)
{
    int heap = open("/dev/dma_heap/system", O_RDWR);
    struct dma_heap_allocation_data request = { .len = SIZE, .fd_flags = O_RDWR | O_CLOEXEC };
    return ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &request) ? fatal("/dev/dma_heap/system") : (int)request.fd;
}

// Registers all of the buffer, then a page in its middle.
static void check(void *pd, const char *name, int fd, int works)
{
    static const struct { uint64_t offset, length; } parts[] = { { 0, SIZE }, { SIZE / 2, 4096 } };
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    register_dmabuf *register_part = (register_dmabuf *)dlsym(verbs, "ibv_reg_dmabuf_mr");
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *mr = register_part(pd, parts[i].offset, parts[i].length, 0x10000 + parts[i].offset, fd,
                                 LOCAL_WRITE | REMOTE_WRITE);
        printf("%s, %llu bytes at %llu: %s\n", name, (unsigned long long)parts[i].length,
               (unsigned long long)parts[i].offset, mr ? "registered" : strerror(errno));
        if (!mr != !works)
            exit(1);
        if (mr && ibv_dereg_mr(mr))
            fatal("ibv_dereg_mr");
    }
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    int works = !strcmp(words[2], "works"), devices;
    void **list = ibv_get_device_list(&devices), *device = NULL;
    for (int i = 0; list && i < devices; i++)
        if (!strcmp(ibv_get_device_name(list[i]), words[1]))
            device = list[i];
    void *context = device ? ibv_open_device(device) : NULL;
    void *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd)
        fatal(words[1]);
    check(pd, "udmabuf", udmabuf(), works);
    check(pd, "dma-heap", heap_buffer(), works);
    return 0;
}
