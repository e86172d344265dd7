#!/usr/bin/env python3
"""NCCL send/recv between two GPUs through PyTorch, one process each. A reference of `gpunet-bench`; rows as JSON lines."""

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def say(**row: object) -> None:
    print(json.dumps({"role": "peer", **row}), flush=True)


def say_times(of: str, name: str, size: int, samples: list[float]) -> None:
    """Says the percentiles of times in microseconds."""
    ordered = sorted(samples)
    at = lambda share: ordered[int((len(ordered) - 1) * share)]
    say(of=of, name=name, series="NCCL send/recv", x=size, samples=len(ordered),
        p50_us=at(0.5), p90_us=at(0.9), p99_us=at(0.99), max_us=at(1))


def one(rank: int, path: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=2)
    for size in (64, 1024, 65536, 1 << 20, 16 << 20):
        data = torch.zeros(size, dtype=torch.uint8, device="cuda")
        samples = []
        for _ in range(220):
            torch.cuda.synchronize()
            start = time.perf_counter()
            if rank == 0:
                dist.send(data, 1)
                dist.recv(data, 1)
            else:
                dist.recv(data, 0)
                dist.send(data, 0)
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - start) / 2)
        if rank == 0:
            say_times("latency", f"{size} B, NCCL send/recv", size, [sample * 1e6 for sample in samples[20:]])
    # Rounds that are enqueued together, in the order of a stream.
    rounds = 20
    for size in (64, 1024, 65536):
        data = torch.zeros(size, dtype=torch.uint8, device="cuda")
        samples = []
        for _ in range(220):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(rounds):
                if rank == 0:
                    dist.send(data, 1)
                    dist.recv(data, 1)
                else:
                    dist.recv(data, 0)
                    dist.send(data, 0)
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) * 1e3 / rounds)
        if rank == 0:
            say_times("ping_pong", f"{size} B, NCCL send/recv, round trip on a stream", size, samples[20:])
    # A stream of messages without a reply.
    size, times = 16 << 20, 100
    data = torch.zeros(size, dtype=torch.uint8, device="cuda")
    for repeat in (3, times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeat):
            dist.send(data, 1) if rank == 0 else dist.recv(data, 0)
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
    if rank == 0:
        say(of="bandwidth", name="NCCL send/recv, 16 MiB, one after another",
            gigabytes_per_second=size * times / elapsed / 1e9)
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        sys.exit("nccl_sendrecv.py: needs two GPUs")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one, args=(os.path.join(folder, "store"),), nprocs=2)
