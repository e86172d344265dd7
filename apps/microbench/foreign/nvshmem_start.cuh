// How the NVSHMEM programs start: one process for each GPU of this machine, which meet by a file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        int code_ = static_cast<int>(call);                                                           \
        if (code_ != 0) {                                                                             \
            std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, code_);          \
            std::exit(1);                                                                             \
        }                                                                                             \
    } while (0)

__device__ static uint64_t now() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// Takes the GPU of that number and joins the others. The file carries the unique id.
static void start(int rank, int size, const char *path) {
    CHECK(cudaSetDevice(rank));
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (rank == 0) {
        CHECK(nvshmemx_get_uniqueid(&id));
        char name[4096];
        std::snprintf(name, sizeof name, "%s.new", path);
        FILE *file = std::fopen(name, "wb");
        if (!file || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0) std::exit(1);
        CHECK(std::rename(name, path));
    } else {
        FILE *file = nullptr;
        for (int i = 0; i < 3000 && !(file = std::fopen(path, "rb")); i++) usleep(10000);
        if (!file || std::fread(&id, sizeof id, 1, file) != 1) std::exit(1);
        std::fclose(file);
    }
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    CHECK(nvshmemx_set_attr_uniqueid_args(rank, size, &id, &attr));
    CHECK(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr));
}
