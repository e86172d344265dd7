// Records and printed lines of kernels in CUDA C++ on CPU blocks, in blocks of as many threads as the argument says.

#include <gpunet_records.cuh>

#include "test.h"

#include <set>
#include <string>

namespace cg = cooperative_groups;

static const unsigned int BLOCKS = 3;

static_assert(gpunet::detail::suits("%5.1f%% of %lld", 4u << 4 | 6, 2) && !gpunet::detail::suits("%d", 6, 1));
static_assert(!gpunet::detail::suits("%s", 2, 1) && !gpunet::detail::suits("%d", 0, 0) && !gpunet::detail::suits("", 1, 1) && !gpunet::detail::suits("%*d", 0x33, 2));

// A block, then its warps, then its first thread.
__global__ void speaks(gpunet_net_t net, gpunet_records_t records, bool closes) {
    const auto block = cg::this_thread_block();
    auto recorder = gpunet::recorder::open(block, net, records);
    gprintf(recorder, block, "block %u of %d threads", blockIdx.x, int(blockDim.x));
    for (unsigned int step = 0; step < 100; step++) recorder.record(block, 1, step, 0.5 * step);
    __shared__ char bytes[30];
    if (threadIdx.x == 0)
        for (int at = 0; at < 30; at++) bytes[at] = static_cast<char>('a' + at % 26);
    block.sync();
    recorder.record_bytes(block, 2, bytes, 29);
    recorder.begin(block, "round");
    recorder.count(block, "threads", blockDim.x);
    recorder.count(block, "not wanted", 1, GPUNET_DEBUG);
    recorder.end(block, "round");
    if (recorder.record(block, GPUNET_RECORD_BEGIN, 1)) recorder.record(block, 9, 1);
    gprintf_at(recorder, block, GPUNET_WARN, "%lld %hhu %c %#010x %.3e %d", -5ll, static_cast<unsigned char>(200), 'x', 0xabcu, 1.5f, true);
    // As a block that hangs keeps it.
    if (closes) recorder.close(block);

    const auto warp = gpunet::this_warp();
    auto own = gpunet::recorder::open(warp, net, records);
    own.record_each(warp, 3, threadIdx.x);
    own.record(warp, 4, threadIdx.x / 32);
    own.close(warp);
    block.sync();
    if (threadIdx.x == 0) {
        const auto thread = gpunet::this_thread();
        auto last = gpunet::recorder::open(thread, net, records);
        for (int line = 0; line < 10; line++) gprintf_limit(last, thread, GPUNET_INFO, 1000000000, "line %d", line);
        for (int line = 0; line < 10; line++) gprintf_limit(last, thread, GPUNET_INFO, 1, "seldom %p", static_cast<void *>(nullptr));
        last.close(thread);
        gpunet::recorder off;
        gprintf(off, thread, "goes nowhere");
        if (off.record(thread, 1, 1)) last.record(thread, 9, 1);
    }
}

struct heard {
    std::multiset<std::string> lines;
    unsigned int steps[BLOCKS] = {}, spans[BLOCKS] = {}, lanes = 0, warps = 0, bytes = 0;
    unsigned int threads;
};

static void hear(const gpunet_host_record *record, void *user) {
    auto &heard = *static_cast<struct heard *>(user);
    const auto *words = static_cast<const unsigned int *>(record->payload);
    TRUE(record->block < BLOCKS);
    switch (record->kind) {
    case 1: {
        double half;
        memcpy(&half, words + 1, 8);
        IS(words[0], heard.steps[record->block]++);
        TRUE(half == 0.5 * words[0]);
        IS(record->warp, 255);
        break;
    }
    case 2:
        IS(record->payload_len, 29);
        IS(memcmp(record->payload, "abcdefghijklmnopqrstuvwxyzabc", 29), 0);
        heard.bytes++;
        break;
    case 3:
        IS(words[0], record->warp * 32u + record->lane);
        heard.lanes++;
        break;
    case 4:
        IS(words[0], record->warp);
        IS(record->lane, 255);
        heard.warps++;
        break;
    case GPUNET_RECORD_BEGIN:
    case GPUNET_RECORD_END:
        IS(record->kind, heard.spans[record->block]++ == 0 ? GPUNET_RECORD_BEGIN : GPUNET_RECORD_END);
        IS(strcmp(record->text, "round"), 0);
        break;
    case GPUNET_RECORD_COUNT:
        IS(strcmp(record->text, "threads"), 0);
        IS(words[1], heard.threads);
        IS(words[2], 0);
        break;
    default:
        TRUE(record->text != nullptr);
        TRUE(record->kind >= 32768);
        heard.lines.insert(record->text);
    }
}

static void run(gpunet_host_attachment_t *attachment, unsigned int threads, bool closes, bool waits) {
    gpunet_host_records_settings settings = {};
    settings.rings = BLOCKS * (1 + (threads + 31) / 32 + 1);
    settings.flags = waits ? GPUNET_HOST_RECORDS_WAIT : 0;
    settings.wait_ns = -1;
    // A ring that waits is too small for all that comes.
    settings.records = waits ? 64 : 2048;
    settings.payload = 64;
    gpunet_host_records_t *records = nullptr;
    OK(gpunet_host_records(attachment, &settings, &records));
    gpunet_records_t value;
    OK(gpunet_host_records_value(records, &value));
    gpunet_host_token_t *token = nullptr;
    OK(gpunet_host_token(attachment, &token));
    gpunet::cpu::launch(speaks, BLOCKS, threads)(gpunet_host_token_net(token), value, closes);
    struct heard heard;
    heard.threads = threads;
    while (cudaStreamQuery(nullptr) == cudaErrorNotReady) TRUE(gpunet_host_records_read(records, hear, &heard) >= 0);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    while (gpunet_host_records_read(records, hear, &heard) > 0) {}
    for (const unsigned int steps : heard.steps) IS(steps, 100);
    for (const unsigned int spans : heard.spans) IS(spans, 2);
    IS(heard.bytes, BLOCKS);
    IS(heard.lanes, BLOCKS * threads);
    IS(heard.warps, BLOCKS * ((threads + 31) / 32));
    for (unsigned int block = 0; block < BLOCKS; block++)
        IS(heard.lines.count("block " + std::to_string(block) + " of " + std::to_string(threads) + " threads"), 1);
    IS(heard.lines.count("-5 200 x 0x00000abc 1.500e+00 1"), BLOCKS);
    TRUE(heard.lines.count("seldom 0x0") >= 1);
    gpunet_host_records_counts counts;
    OK(gpunet_host_records_count(records, &counts));
    IS(counts.overwritten + counts.refused + counts.malformed, 0);
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));
    OK(gpunet_host_records_close(records));
}

int main(int, char **arguments) {
    begin();
    const unsigned int threads = static_cast<unsigned int>(atoi(arguments[1]));
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    for (const bool waits : {false, true}) {
        run(attachment, threads, true, waits);
        run(attachment, threads, false, waits);
    }
    OK(gpunet_host_attachment_close(attachment, nullptr));
    OK(gpunet_host_proxy_close(proxy));
    return end("records");
}
