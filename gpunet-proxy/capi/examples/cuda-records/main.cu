// The host program of the example: it prints what kernels say while they run, and counts what it loses.
//
//     cuda-records [BLOCKS [THREADS [STEPS [COUNT]]]]      by default 4 blocks of 128 threads, 100 steps, and 10,000 records of each warp
//
// Exit codes: 0 all is well, 1 something failed, 2 there is no GPU.
#include <gpunet_host.h>
#include <gpunet_records.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" __global__ void records_work(gpunet_net_t net, gpunet_records_t records, unsigned int steps, unsigned int slow_ns);
extern "C" __global__ void records_flood(
    gpunet_net_t net, gpunet_records_t records, unsigned long long count, unsigned int what, unsigned long long *times);

namespace {

void must(const char *what, long long result) {
    if (result >= 0) return;
    std::fprintf(stderr, "%s: %s\n", what, gpunet_host_last_error());
    std::exit(1);
}

// What a block has said so far.
struct block {
    unsigned int steps = 0, begun = 0, ended = 0, counts = 0;
};

struct heard {
    std::vector<block> blocks;
    unsigned int lines = 0, wrong = 0;
};

void hear(const gpunet_host_record *record, void *user) {
    auto &all = *static_cast<heard *>(user);
    if (record->block >= all.blocks.size()) {
        all.wrong++;
        return;
    }
    auto &of = all.blocks[record->block];
    unsigned int number = 0;
    switch (record->kind) {
    case 1:
        // In their order, and none twice.
        std::memcpy(&number, record->payload, sizeof number);
        all.wrong += number != of.steps++;
        break;
    case GPUNET_RECORD_BEGIN: all.wrong += of.begun++ != of.ended; break;
    case GPUNET_RECORD_END: all.wrong += of.begun != ++of.ended; break;
    case GPUNET_RECORD_COUNT: of.counts++; break;
    default:
        all.lines++;
        std::printf("%12llu  block %u: %s\n", static_cast<unsigned long long>(record->time_ns), record->block, record->text);
    }
}

void count_only(const gpunet_host_record *, void *user) { ++*static_cast<unsigned long long *>(user); }

// Reads until the kernels have ended, and then what is left.
bool read_all(gpunet_host_records_t *records, gpunet_host_record_fn each, void *user) {
    cudaError_t state;
    while ((state = cudaStreamQuery(nullptr)) == cudaErrorNotReady) must("reading", gpunet_host_records_read(records, each, user));
    long long got;
    while ((got = gpunet_host_records_read(records, each, user)) > 0) {}
    must("reading", got);
    return state == cudaSuccess;
}

} // namespace

int main(int argc, char **argv) {
    auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
    const int blocks = number(1, 4), threads = number(2, 128), steps = number(3, 100), count = number(4, 10000);
    if (blocks < 1 || threads < 1 || threads > 1024 || steps < 1 || steps > 2000 || count < 1) {
        std::fprintf(stderr, "usage: cuda-records [BLOCKS [THREADS [STEPS [COUNT]]]], at most 2,000 steps\n");
        return 1;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "NOT RUN: no GPU\n");
        return 2;
    }
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
    must("attaching the GPU", gpunet_host_attach_cuda_device(proxy, 0, &attachment));

    // A ring for each warp that records at a time.
    const unsigned int warps = static_cast<unsigned int>(blocks) * ((static_cast<unsigned int>(threads) + 31) / 32);
    gpunet_host_records_settings settings = {};
    settings.rings = warps;
    settings.records = 8192;
    gpunet_host_records_t *records = nullptr;
    gpunet_records_t value = {};
    must("making rings", gpunet_host_records(attachment, &settings, &records));
    must("making rings", gpunet_host_records_value(records, &value));
    gpunet_host_token_t *token = nullptr;
    must("taking a token", gpunet_host_token(attachment, &token));
    const gpunet_net_t net = gpunet_host_token_net(token);

    heard all;
    all.blocks.resize(static_cast<std::size_t>(blocks));
    records_work<<<blocks, threads>>>(net, value, static_cast<unsigned int>(steps), 1000000);
    bool good = cudaGetLastError() == cudaSuccess && read_all(records, hear, &all);
    const unsigned int wanted = static_cast<unsigned int>(steps);
    for (const auto &of : all.blocks) good = good && of.steps == wanted && of.ended == wanted && of.counts == wanted;
    if (!good || all.wrong || all.lines < 2 * static_cast<unsigned int>(blocks)) {
        std::fprintf(stderr, "FAILED: %u records are wrong; %u lines\n", all.wrong, all.lines);
        good = false;
    }

    // As fast as they can: what is not read in time is overwritten, and counted.
    unsigned long long *times = nullptr;
    if (cudaMallocManaged(&times, warps * sizeof *times) != cudaSuccess) return 1;
    const char *const what[] = {"records of a warp", "records of each lane", "printed lines"};
    for (unsigned int kind = 0; kind < 3; kind++) {
        gpunet_host_records_counts before = {}, after = {};
        unsigned long long read = 0, slowest = 0;
        must("counting", gpunet_host_records_count(records, &before));
        records_flood<<<blocks, threads>>>(net, value, static_cast<unsigned long long>(count), kind, times);
        good = cudaGetLastError() == cudaSuccess && read_all(records, count_only, &read) && good;
        must("counting", gpunet_host_records_count(records, &after));
        const unsigned long long lost = after.overwritten - before.overwritten, refused = after.refused - before.refused;
        const unsigned long long written =
            static_cast<unsigned long long>(count) * (kind == 1 ? static_cast<unsigned long long>(blocks) * static_cast<unsigned int>(threads) : warps);
        for (unsigned int warp = 0; warp < warps; warp++) slowest = times[warp] > slowest ? times[warp] : slowest;
        std::printf(
            "%s: %llu written, %llu read, %llu overwritten; a warp took %.0f ns for each call\n", what[kind], written, read, lost,
            static_cast<double>(slowest) / count);
        if (read + lost != written || refused || after.malformed) {
            std::fprintf(stderr, "FAILED: %llu refused, %llu malformed\n", refused, static_cast<unsigned long long>(after.malformed));
            good = false;
        }
    }
    must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));
    must("freeing the rings", gpunet_host_records_close(records));
    must("closing", gpunet_host_attachment_close(attachment, nullptr));
    must("closing", gpunet_host_proxy_close(proxy));
    (void)cudaFree(times);
    return good ? 0 : 1;
}
