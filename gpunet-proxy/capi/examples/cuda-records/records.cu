// Kernels that record and print while they run, by blocks, warps and threads: docs/telemetry.md.

#include <gpunet_records.cuh>

// A step was taken: its number, and how many nanoseconds it took.
constexpr unsigned int STEP = 1;

// Each block takes steps, and says so. `slow_ns`: a step of more nanoseconds is slow.
extern "C" __global__ void records_work(gpunet_net_t net, gpunet_records_t records, unsigned int steps, unsigned int slow_ns) {
    const auto block = gpunet::this_block();
    auto recorder = gpunet::recorder::open(block, net, records);
    gprintf(recorder, block, "block %u takes %u steps", blockIdx.x, steps);
    __shared__ unsigned long long took;
    for (unsigned int step = 0; step < steps; step++) {
        const unsigned long long begin = gpunet_records_now();
        recorder.begin(block, "step");
        __nanosleep(1000);
        recorder.end(block, "step");
        // All threads of the block record the same.
        if (threadIdx.x == 0) took = gpunet_records_now() - begin;
        block.sync();
        recorder.record(block, STEP, step, static_cast<unsigned int>(took));
        recorder.count(block, "nanoseconds of a step", static_cast<long long>(took));
        if (took > slow_ns) gprintf_limit(recorder, block, GPUNET_WARN, 10, "step %u took %.1f us", step, took / 1e3);
        block.sync();
    }
    gprintf(recorder, block, "%u steps taken", steps);
    recorder.close(block);
}

// Each warp writes `count` times: 0 records of the warp, 1 of each lane, 2 lines, 3 nothing. It leaves the nanoseconds that it took.
extern "C" __global__ void records_flood(
    gpunet_net_t net, gpunet_records_t records, unsigned long long count, unsigned int what, unsigned long long *times) {
    const auto warp = gpunet::this_warp();
    const unsigned int number = blockIdx.x * ((blockDim.x + 31) / 32) + threadIdx.x / 32;
    auto recorder = gpunet::recorder::open(warp, net, records);
    const unsigned long long begin = gpunet_records_now();
    for (unsigned long long at = 0; at < count; at++) {
        if (what == 0) recorder.record(warp, STEP, number, at);
        if (what == 1) recorder.record_each(warp, STEP, number, at);
        if (what == 2) gprintf(recorder, warp, "warp %u: %llu", number, at);
    }
    const unsigned long long took = gpunet_records_now() - begin;
    recorder.close(warp);
    if (threadIdx.x % 32 == 0) times[number] = took;
}
