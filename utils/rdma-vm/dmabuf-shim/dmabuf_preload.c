// SPDX-License-Identifier: MIT OR Apache-2.0
// A library for LD_PRELOAD that goes with the kernel module beside it.
//
// libibverbs asks the device's user-space driver for ibv_reg_dmabuf_mr, and those of rxe and siw have no such function, so
// the kernel is never asked. This one asks it, through the function that the drivers of real cards use for it too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int command(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, void *mr);
typedef void *find(void *library, const char *name);

void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    // Open already, or there would be no pd; maybe by dlopen, and so not to be found by RTLD_DEFAULT.
    void *verbs = dlopen("libibverbs.so.1", RTLD_LAZY);
    command *ask = verbs ? (command *)dlsym(verbs, "ibv_cmd_reg_dmabuf_mr") : NULL;
    if (!ask) {
        errno = ENOSYS;
        return NULL;
    }
    // Room for a struct verbs_mr, which is far smaller; the driver's ibv_dereg_mr frees it.
    void *mr = calloc(1, 512);
    int error = mr ? ask(pd, offset, length, iova, fd, access, mr) : ENOMEM;
    if (error == 0)
        return mr;
    free(mr);
    errno = error;
    return NULL;
}

// A program that opens libibverbs at run time asks that library for its functions, and no preloaded one, so the question is
// answered here. Every other name goes to the C library, of which glibc 2.34 is the first with dlsym in libc.so.
void *dlsym(void *library, const char *name)
{
    static find *ask_libc;
    if (!strcmp(name, "ibv_reg_dmabuf_mr"))
        return (void *)ibv_reg_dmabuf_mr;
    if (!ask_libc)
        ask_libc = (find *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return ask_libc(library, name);
}
