#!/usr/bin/env python3
"""NCCL all_gather and all_reduce among several GPUs through PyTorch, one process each, in the order of a stream and in a CUDA
graph. A reference of `gpunet-bench`; rows as JSON lines. The argument is the number of GPUs."""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROUNDS = 20
SAMPLES = 200
WARM_UP = 20


def say_times(of: str, name: str, series: str, size: int, samples: list[float]) -> None:
    """Says the percentiles of times in microseconds."""
    ordered = sorted(samples)
    at = lambda share: ordered[int((len(ordered) - 1) * share)]
    print(json.dumps({"of": of, "role": "peer", "name": name, "series": series, "x": size, "samples": len(ordered),
                      "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": at(1)}), flush=True)


def times(enqueue) -> list[float]:
    """The microseconds of one of ROUNDS rounds that `enqueue` enqueues together."""
    samples = []
    for _ in range(WARM_UP + SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        enqueue()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / ROUNDS)
    return samples[WARM_UP:]


def one(rank: int, members: int, path: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=members)
    sizes = [1 << log2 for log2 in range(10, 19)]
    calls = []
    for size in sizes:
        # Zeros, of which every sum is one.
        source = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
        gathered = torch.zeros(size // 4 * members, dtype=torch.float32, device="cuda")
        calls.append(("all_gather", "all_gather", size, lambda s=source, g=gathered: dist.all_gather_into_tensor(g, s)))
        calls.append(("reduce", "all_reduce", size, lambda s=source: dist.all_reduce(s)))
    for of, call, size, enqueue in calls:
        samples = times(lambda: [enqueue() for _ in range(ROUNDS)])
        if rank == 0:
            say_times(of, f"{size} B, NCCL {call}, from a stream", f"NCCL {call}", size, samples)
    # Last, because a capture that fails leaves nothing to go on with.
    for of, call, size, enqueue in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(ROUNDS):
                enqueue()
        samples = times(graph.replay)
        if rank == 0:
            say_times(of, f"{size} B, NCCL {call}, in a graph", f"NCCL {call}, graph", size, samples)
        del graph
    dist.destroy_process_group()


if __name__ == "__main__":
    members = int(sys.argv[1])
    if torch.cuda.device_count() < members:
        sys.exit(f"nccl_team.py: needs {members} GPUs")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one, args=(members, os.path.join(folder, "store")), nprocs=members)
