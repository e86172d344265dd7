"""What needs a GPU: kernels with sockets in each language, the examples, first launches, round trips.

    python3 python/tests/gpu.py [--echo PATH_OF_gpunet-echo] [STEP...]

Each step is a process of its own under its own limit, and prints as it goes. The exit code is 1 when
a step failed. A step whose packages are missing says NOT RUN.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
STEPS = {}
NOT_RUN = 77
"""What a step returns that cannot be here, after it has said why."""

# A 64 B ping-pong over TCP in C: Python's own time would hide the kernels'.
PROBE = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
int main(int argc, char **argv) {
    enum { size = 64 };
    const int rounds = atoi(argv[2]), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&to, sizeof to)) return 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    double *took = malloc(rounds * sizeof *took);
    for (int i = -rounds / 10; i < rounds; i++) {
        char out[size], in[size];
        memset(out, i, size);
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (send(s, out, size, 0) != size) return 2;
        for (int got = 0; got < size;) {
            const int n = recv(s, in + got, size - got, 0);
            if (n <= 0) return 3;
            got += n;
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (memcmp(in, out, size)) return 4;
        if (i >= 0) took[i] = (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3;
    }
    qsort(took, rounds, sizeof *took, order);
    printf("%.2f\n", took[rounds / 2]);
    close(s);
    return 0;
}
"""

CUDA_ECHO = r"""
#include <gpunet.h>
extern "C" __global__ void echo(gpunet_net_t net, int listener, unsigned char *buffer, unsigned long long size,
                                int connections) {
    for (int i = 0; i < connections; i++) {
        const int s = gpunet_accept(net, listener);
        if (s < 0) return;
        long long n;
        while ((n = gpunet_recv(net, s, buffer, size)) > 0)
            if (gpunet_send(net, s, buffer, n, MSG_WAITALL) != n) break;
        gpunet_close(net, s);
    }
}
"""


def step(seconds, *needs):
    def register(function):
        STEPS[function.__name__] = (function, seconds, needs)
        return function

    return register


def say(*words, sep=" "):
    print("   ", *words, sep=sep, flush=True)


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(map(str, words)))


@contextlib.contextmanager
def attached():
    """An attachment of GPU 0 and a listener of it."""
    import gpunet

    with gpunet.embed(sockets=64) as proxy, proxy.attach_cuda(0) as device:
        yield device, device.listen(("127.0.0.1", 0))


def exchange(port, size, chunk, seed=7):
    """Sends `size` bytes to an echo and compares every byte."""
    data = random.Random(seed).randbytes(size)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:

        def write():
            for at in range(0, size, chunk):
                connection.sendall(data[at : at + chunk])
            connection.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write, daemon=True)
        began = time.perf_counter()
        writer.start()
        got = bytearray()
        while piece := connection.recv(1 << 20):
            got += piece
        took = time.perf_counter() - began
        writer.join(30)
    check(
        bytes(got) == data,
        f"{len(got)} of {size} bytes came back, equal up to",
        next((i for i, (a, b) in enumerate(zip(got, data, strict=False)) if a != b), min(len(got), size)),
    )
    return size / took / 1e9


def receive(connection, size):
    """Exactly `size` bytes. MSG_WAITALL does nothing on a socket with a timeout."""
    got = bytearray()
    while len(got) < size:
        piece = connection.recv(size - len(got))
        check(piece, f"the stream ended after {len(got)} of {size} bytes")
        got += piece
    return got


def exchanges(port):
    speeds = [exchange(port, *case) for case in ((1, 1), (1000, 7), (100_003, 4096), (20_000_000, 1 << 20))]
    return f"4 connections echoed right, 20 MB at {speeds[-1]:.2f} GB/s"


# ---- Triton ----


def triton_kernels():
    import triton
    import triton.language as tl

    import gpunet.triton as gt

    @triton.jit
    def echo(net, listener, buffer, size, total, connections):
        sent = tl.zeros((), tl.int64)
        for _i in range(connections):
            fd = gt.accept(net, listener)
            n = gt.recv(net, fd, buffer, size)
            while n > 0:
                sent += gt.send(net, fd, buffer, n)
                n = gt.recv(net, fd, buffer, size)
            if fd >= 0:
                gt.close(net, fd)
        tl.store(total, sent)

    @triton.jit
    def sum_up(net, fd, data, out, SOCKETS: tl.constexpr):
        lanes = tl.arange(0, 1024)
        if SOCKETS:
            n = gt.recv_exact(net, fd, data, 4096)
            tl.store(out + 1, n.to(tl.float32))
        tl.store(out, tl.sum(tl.load(data + lanes), axis=0))

    @triton.jit
    def multiply(net, fd, a, b, c, M: tl.constexpr):
        i = tl.arange(0, M)
        at = i[:, None] * M + i[None, :]
        gt.recv_exact(net, fd, a, M * M * 2)
        product = tl.dot(tl.load(a + at), tl.load(b + at))
        tl.store(c + at, product)
        gt.send(net, fd, c, M * M * 4)

    @triton.jit
    def misuse(net, listener, wide, address, buffer, entries, out):
        tl.store(out + 0, gt.accept(net, listener, timeout_ns=0))
        tl.store(out + 1, gt.accept(net, listener, 5_000_000))
        tl.store(out + 2, gt.recv(net, 12345, buffer, 16))
        tl.store(out + 3, gt.close(net, listener + wide))
        fd = gt.connect(net, address)
        tl.store(out + 4, fd)
        tl.store(out + 5, gt.recv(net, fd, buffer, 16, timeout_ns=1_000_000))
        tl.store(out + 6, gt.send(net, fd, buffer, -3))
        tl.store(out + 7, gt.send(net, fd, buffer, 16))
        tl.store(entries, fd)
        tl.store(entries + 1, gt.POLLIN)
        tl.store(out + 8, gt.poll(net, entries, 1, timeout_ns=10_000_000_000))
        tl.store(out + 9, gt.recv_exact(net, fd, buffer, 1000))
        tl.store(out + 10, gt.shutdown(net, fd, gt.SHUT_WR))
        tl.store(out + 11, gt.send(net, fd, buffer, 16))
        tl.store(out + 12, gt.recv(net, fd, buffer, 16))
        tl.store(out + 13, gt.close(net, fd))
        tl.store(out + 14, gt.close(net, fd))
        tl.store(out + 15, gt.connect(net, address, timeout_ns=0))

    @triton.jit(do_not_specialize=["net", "listener"])
    def serve(net, listener, buffers, SIZE: tl.constexpr):
        buffer = buffers + tl.program_id(0) * SIZE
        fd = gt.accept(net, listener)
        while fd >= 0:
            n = gt.recv(net, fd, buffer, SIZE, timeout_ns=5_000_000_000)
            while n > 0:
                # A client that does not read keeps a program for two seconds.
                if gt.send(net, fd, buffer, n, timeout_ns=2_000_000_000) == n:
                    n = gt.recv(net, fd, buffer, SIZE, timeout_ns=5_000_000_000)
                else:
                    n = n * 0
            gt.close(net, fd)
            fd = gt.accept(net, listener)

    return echo, sum_up, multiply, misuse, serve


@step(120, "torch", "triton")
def triton_bytes():
    """Echo of 1, 4, 8 and 16 warps; every byte."""
    import torch

    echo = triton_kernels()[0]
    for warps in (4, 8, 16, 1):
        with attached() as (device, listener):
            buffer = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
            total = torch.zeros(1, dtype=torch.int64, device="cuda")
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            with device.launch(stream) as net, torch.cuda.stream(stream):
                kernel = echo[(1,)](net, listener.device_number(), buffer, buffer.numel(), total, 4, num_warps=warps)
                found = exchanges(listener.getsockname()[1])
            sent = 1 + 1000 + 100_003 + 20_000_000
            check(total.item() == sent, f"the kernel counted {total.item()} of {sent} bytes")
            say(f"{warps} warps ({kernel.n_regs} registers, {kernel.n_spills} spills): {found}")


@step(60, "torch", "triton")
def triton_misuse():
    """Deadlines, errnos, connect, poll, shutdown."""
    import errno

    import torch

    import gpunet.triton as gt

    misuse = triton_kernels()[3]
    with attached() as (device, listener), socket.create_server(("127.0.0.1", 0)) as server:
        address = torch.tensor(list(gt.sockaddr(*server.getsockname())), dtype=torch.uint8, device="cuda")
        buffer = torch.zeros(1 << 12, dtype=torch.uint8, device="cuda")
        entries = torch.zeros(2, dtype=torch.int32, device="cuda")
        out = torch.zeros(16, dtype=torch.int64, device="cuda")
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with device.launch(stream) as net, torch.cuda.stream(stream):
            misuse[(1,)](net, listener.device_number(), 1 << 32, address, buffer, entries, out)
            server.settimeout(30)
            peer, _ = server.accept()
            peer.settimeout(30)
            receive(peer, 16)
            peer.sendall(bytes(1000))
            check(peer.recv(1) == b"", "the kernel ended its direction")
            peer.shutdown(socket.SHUT_WR)
        got = out.tolist()
        peer.close()
    want = {
        0: -errno.EAGAIN,
        1: -errno.EAGAIN,
        2: -errno.EBADF,
        3: -errno.EBADF,
        5: -errno.EAGAIN,
        6: -errno.EFAULT,
        7: 16,
        8: 1,
        9: 1000,
        10: 0,
        11: -errno.EPIPE,
        12: 0,
        13: 0,
        14: -errno.EBADF,
        15: -errno.EINVAL,
    }
    check(got[4] > 0, "connect gave", got[4])
    wrong = {at: (got[at], value) for at, value in want.items() if got[at] != value}
    check(not wrong, "call: (got, wanted)", wrong)
    say("16 calls returned what they should")


@step(60, "torch", "triton")
def triton_tensor_cores():
    """A matrix product beside a socket: shared memory stays aligned."""
    import torch

    multiply = triton_kernels()[2]
    with attached() as (device, listener):
        a = torch.randn(128, 128, device="cuda").half()
        b = torch.randn(128, 128, device="cuda").half()
        room, c = torch.zeros_like(a), torch.zeros(128, 128, device="cuda")
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        want = (a.float() @ b.float()).cpu()
        # A copy on the kernel's stream would wait for the kernel, which waits for these bytes.
        data = a.cpu().numpy().tobytes()
        with socket.create_connection(listener.getsockname()[:2], timeout=30) as connection:
            fd, _ = listener.accept(timeout=10)
            with device.launch(stream) as net, torch.cuda.stream(stream):
                multiply[(1,)](net, fd.device_number(), room, b, c, 128)
                connection.sendall(data)
                got = receive(connection, 128 * 128 * 4)
        got = torch.frombuffer(got, dtype=torch.float32).reshape(128, 128)
        difference = (got - want).abs().max().item()
        check(difference < 0.1, "largest difference", difference)
        say(f"largest difference {difference:.1e}")


def half_close(port, random_):
    exchange(port, random_.randrange(1, 300_000), 1 + random_.randrange(50_000), random_.random())


def reset(port, random_):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(bytes(random_.randrange(1, 100_000)))
    connection.close()


def read_slowly(port, random_):
    data = random_.randbytes(random_.randrange(1, 200_000))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data[:30_000])
        connection.shutdown(socket.SHUT_WR)
        got = bytearray()
        while piece := connection.recv(1 + random_.randrange(3_000)):
            got += piece
            time.sleep(0.001 * random_.random())
        check(got == data[:30_000], f"{len(got)} bytes came back to a slow reader")


def read_nothing(port, random_):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.settimeout(0.05)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(bytes(1 << 20))


def leave_at_once(port, random_):
    socket.create_connection(("127.0.0.1", port), timeout=30).close()


HOSTILE_SECONDS = int(os.environ.get("GPUNET_HOSTILE_SECONDS", "30"))


@step(HOSTILE_SECONDS + 90, "torch", "triton")
def triton_hostile():
    """Eight programs serve clients that half-close, reset, and read slowly or not at all (GPUNET_HOSTILE_SECONDS)."""
    import torch

    serve = triton_kernels()[4]
    with attached() as (device, listener):
        port, buffers = listener.getsockname()[1], torch.zeros(8 << 16, dtype=torch.uint8, device="cuda")
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        launch = device.launch(stream)
        with torch.cuda.stream(stream):
            serve[(8,)](launch.net, listener.device_number(), buffers, 1 << 16)
        exchange(port, 1000, 1000)
        until, done, failures = time.monotonic() + HOSTILE_SECONDS, dict.fromkeys(BEHAVIOURS, 0), []

        def client(seed):
            random_ = random.Random(seed)
            while time.monotonic() < until and not failures:
                behaviour = random_.choices(BEHAVIOURS, (8, 4, 4, 1, 4))[0]
                try:
                    behaviour(port, random_)
                    done[behaviour] += 1
                except Exception as error:
                    failures.append(f"{behaviour.__name__}: {error!r}")

        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(16)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        check(not failures, *failures)
        say(", ".join(f"{behaviour.__name__} {count}" for behaviour, count in done.items()))
        say(f"afterwards: {exchanges(port)}")
        launch.cancel()
        began = time.perf_counter()
        left = launch.finish()
        say(f"the kernel ended {time.perf_counter() - began:.2f} s after the cancel, with {left} sockets open")
        say(device.stats())


BEHAVIOURS = (half_close, reset, read_slowly, read_nothing, leave_at_once)


def first_launch(sockets):
    import torch

    if way := os.environ.get("GPUNET_WAY"):
        take(way)
    sum_up = triton_kernels()[1]
    import triton

    # The driver, Triton's own libraries and torch have begun.
    data, out = torch.ones(1024, device="cuda"), torch.zeros(2, device="cuda")

    @triton.jit
    def nothing(out):
        pass

    nothing[(1,)](out)
    with attached() as (device, _):
        torch.cuda.synchronize()
        with device.launch() as net:
            began = time.perf_counter()
            sum_up[(1,)](net, -1, data, out, sockets)
            torch.cuda.synchronize()
            took = time.perf_counter() - began
    print(f"{took * 1e3:.1f}", flush=True)


@step(240, "torch", "triton")
def triton_first_launch():
    """First launch with and without sockets, and with Triton's cache warm."""
    with tempfile.TemporaryDirectory() as folder:
        for name, cache in (("no object in gpunet's cache", "cold"), ("object in gpunet's cache", "warm")):
            times = {}
            for sockets in (False, True):
                for kind in ("first", "cached"):
                    environment = dict(
                        os.environ,
                        TRITON_CACHE_DIR=f"{folder}/triton-{cache}-{sockets}",
                        XDG_CACHE_HOME=f"{folder}/xdg",
                    )
                    command = [sys.executable, __file__, "--first-launch", str(int(sockets))]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
                    check(done.returncode == 0, done.stderr[-2000:])
                    times[kind, sockets] = float(done.stdout.split()[-1])
            for kind in ("first", "cached"):
                with_, without = times[kind, True], times[kind, False]
                say(f"{name}, {kind} launch: {with_:.1f} ms with sockets, {without:.1f} ms without")


def take(way):
    """Has this process link the device functions one way, or fail."""
    from gpunet import _link

    def other(*arguments):
        raise AssertionError(f"not linked as {way}")

    if way == "object of the wheel":
        _link._assemble = _link._link_ptx = other
    else:
        _link.SHIPPED = pathlib.Path("/nonexistent")
        if way == "PTX":
            _link._assemblers = list


@step(240, "torch", "triton")
def wheel_objects():
    """The first launch with the wheel's object, with one that is assembled, and with the PTX."""
    import torch

    from gpunet import _link

    major, minor = torch.cuda.get_device_capability()
    name = f"sm_{major}{minor}-255.o.xz"
    if not (_link.SHIPPED / _link.device_hash() / name).exists():
        say(f"this package has no {name}; install what utils/release/wheel makes")
        return NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        for way in ("object of the wheel", "object that is assembled", "PTX"):
            cache = pathlib.Path(folder, way)
            environment = dict(os.environ, TRITON_CACHE_DIR=f"{cache}/triton", XDG_CACHE_HOME=f"{cache}/xdg", GPUNET_WAY=way)
            command = [sys.executable, __file__, "--first-launch", "1"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
            check(done.returncode == 0, done.stderr[-2000:])
            kept = {path.suffix for path in cache.glob("xdg/gpunet/*") if path.is_file()}
            wanted = {"object of the wheel": set(), "object that is assembled": {".o"}, "PTX": {".cubin"}}[way]
            check(kept == wanted, f"{way}: the cache has {kept}")
            say(f"{way}: {float(done.stdout.split()[-1]):.1f} ms")
    return 0


# ---- Numba ----


def numba_kernels():
    from gpunet.numba import accept, close, cuda, recv, recv_exact, send

    @cuda.jit
    def echo(net, listener, buffer, connections):
        for _ in range(connections):
            fd = accept(net, listener)
            n = recv(net, fd, buffer)
            while n > 0:
                send(net, fd, buffer, n)
                n = recv(net, fd, buffer)
            close(net, fd)

    @cuda.jit
    def plain(data, out):
        if cuda.threadIdx.x == 0:
            out[0] = data[0]

    @cuda.jit
    def with_socket(net, fd, data, out):
        n = recv_exact(net, fd, data)
        if cuda.threadIdx.x == 0:
            out[0] = n

    return echo, plain, with_socket


@step(120, "numba_cuda_mlir|numba_cuda")
def numba_bytes():
    """Echo of 128 and 256 threads; every byte. First launch with and without sockets."""
    import numpy as np

    from gpunet.numba import cuda

    say(f"by {cuda.__name__}, numpy {np.__version__}")
    echo, plain, with_socket = numba_kernels()
    data, out = cuda.to_device(np.zeros(64, np.uint8)), cuda.to_device(np.zeros(1, np.int64))
    times = []
    with attached() as (device, _), device.launch() as net:
        for launch in (lambda: plain[1, 64](data, out), lambda: with_socket[1, 64](net, -1, data, out)):
            began = time.perf_counter()
            launch()
            cuda.synchronize()
            times.append(time.perf_counter() - began)
    say(f"first launch {times[0]:.2f} s without sockets, {times[1]:.2f} s with")
    for threads in (128, 256):
        with attached() as (device, listener):
            buffer = cuda.device_array(1 << 20, np.uint8)
            stream = cuda.stream()
            with device.launch(stream) as net:
                echo[1, threads, stream](net, listener.device_number(), buffer, 4)
                say(f"{threads} threads: {exchanges(listener.getsockname()[1])}")


# ---- CUDA C++ ----


@step(90, "cupy")
def cupy_bytes():
    """Echo of 128, 256 and 512 threads; every byte."""
    import cupy
    import numpy as np

    import gpunet.cupy

    for threads in (128, 256, 512):
        began = time.perf_counter()
        kernel = gpunet.cupy.compile(CUDA_ECHO, max_threads=threads).get_function("echo")
        took = time.perf_counter() - began
        with attached() as (device, listener):
            buffer = cupy.zeros(1 << 20, cupy.uint8)
            stream = cupy.cuda.Stream(non_blocking=True)
            with device.launch(stream) as net, stream:
                number = np.int32(listener.device_number())
                kernel((1,), (threads,), (np.uint64(net), number, buffer, np.uint64(1 << 20), np.int32(4)))
                found = exchanges(listener.getsockname()[1])
            say(f"{threads} threads, compiled and linked in {took:.2f} s: {found}")


@step(60, "cuda.core")
def cuda_core_bytes():
    """Echo by cuda.core; every byte."""
    import numpy as np
    from cuda.core import Device, LaunchConfig, launch

    import gpunet.cuda_core

    gpu = Device()
    gpu.set_current()
    kernel = gpunet.cuda_core.compile(CUDA_ECHO).get_kernel("echo")
    stream = gpu.create_stream()
    buffer = gpu.allocate(1 << 20, stream=stream)
    with attached() as (device, listener):
        with device.launch(stream) as net:
            launch(
                stream,
                LaunchConfig(grid=1, block=128),
                kernel,
                np.uint64(net),
                np.int32(listener.device_number()),
                buffer,
                np.uint64(1 << 20),
                np.int32(4),
            )
            say(exchanges(listener.getsockname()[1]))


CALL_COST = r"""
#include <gpunet.h>
__device__ unsigned long long now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
// What a call costs that finds nothing, and one that sends: nanoseconds a call.
extern "C" __global__ void cost(gpunet_net_t net, int s, unsigned char *buffer, long long *out, int calls) {
    unsigned long long began = now();
    for (int i = 0; i < calls; i++)
        if (gpunet_recv_nb(net, s, buffer, 64) != -EAGAIN) return;
    if (threadIdx.x == 0) out[0] = (now() - began) / calls;
    began = now();
    for (int i = 0; i < calls; i++)
        if (gpunet_send(net, s, buffer, 64, MSG_WAITALL) != 64) return;
    if (threadIdx.x == 0) out[1] = (now() - began) / calls;
    __syncthreads();
    if (threadIdx.x < 32) {
        began = now();
        for (int i = 0; i < calls; i++)
            if (gpunet_recv_warp(net, s, buffer, 64, MSG_DONTWAIT) != -EAGAIN) return;
        if (threadIdx.x == 0) out[2] = (now() - began) / calls;
    }
}
"""


CUDA_CALLS = r"""
#include <gpunet_calls.cuh>
#include <gpunet_records.cuh>

extern "C" __global__ void work(gpunet_net_t net, gpunet_calls_t calls, gpunet_records_t records, int *out) {
    auto block = gpunet::this_block();
    auto recorder = gpunet::recorder::open(block, net, records);
    auto caller = gpunet::caller::open(block, net, calls);
    if (!caller) return;
    auto square = caller->call<int>(block, "square", (int)blockIdx.x, gpunet::milliseconds(5000));
    const int value = square ? *square : -1;
    gprintf(recorder, block, "block %u: %d", blockIdx.x, value);
    if (threadIdx.x == 0) out[blockIdx.x] = value;
    caller->close(block);
    recorder.close(block);
}
"""


@step(60, "cupy")
def cupy_calls():
    """Blocks call a Python function and print, both given to the kernel by value."""
    import cupy
    import numpy as np

    import gpunet.cupy

    kernel = gpunet.cupy.compile(CUDA_CALLS).get_function("work")
    blocks = 8

    def square(request):
        return struct.pack("<i", struct.unpack("<i", request)[0] ** 2)

    with (
        attached() as (device, _),
        device.serve_calls({"square": square}, channels=blocks) as calls,
        device.watch(rings=blocks) as watch,
    ):
        out, stream = cupy.zeros(blocks, cupy.int32), cupy.cuda.Stream(non_blocking=True)
        launch = device.launch(stream)
        parameters = np.frombuffer(calls.value, "V32"), np.frombuffer(watch.value, "V48")
        with stream:
            kernel((blocks,), (64,), (np.uint64(launch.net), *parameters, out))
        launch.finish()
        check(out.get().tolist() == [block**2 for block in range(blocks)], out)
        lines = sorted(record.text for record in watch.read())
        check(lines == [f"block {block}: {block**2}" for block in range(blocks)], lines)
        say(f"{blocks} blocks called square, and printed what they got")


@step(60, "cupy")
def call_cost():
    """What one call takes in CUDA C++: a receive that finds nothing, a send of 64 B."""
    import cupy
    import numpy as np

    import gpunet.cupy

    kernel = gpunet.cupy.compile(CALL_COST).get_function("cost")
    for threads in (32, 128, 256):
        with attached() as (device, listener), socket.create_connection(listener.getsockname()[:2], timeout=30) as connection:
            fd, _ = listener.accept(timeout=10)
            buffer, out, stream = cupy.zeros(64, cupy.uint8), cupy.zeros(3, cupy.int64), cupy.cuda.Stream(non_blocking=True)
            with device.launch(stream) as net, stream:
                arguments = (np.uint64(net), np.int32(fd.device_number()), buffer, out, np.int32(1000))
                kernel((1,), (threads,), arguments)
                receive(connection, 64_000)
            empty, send, warp = out.tolist()
            say(f"{threads} threads: receive of nothing {empty} ns, send of 64 B {send} ns, receive by a warp {warp} ns")


# ---- examples ----


@step(60, "torch", "triton")
def readme():
    """The Triton program of README.md, as it is printed."""
    text = (EXAMPLES.parent.parent / "README.md").read_text()
    [program] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "gpunet.triton" in block]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "echo.py")
        path.write_text(program)
        with subprocess.Popen([sys.executable, str(path)]) as process:
            try:
                connection = None
                while connection is None:
                    check(process.poll() is None, f"it ended with {process.poll()}")
                    with contextlib.suppress(ConnectionRefusedError):
                        connection = socket.create_connection(("127.0.0.1", 7777), timeout=30)
                    time.sleep(0.05)
                with connection:
                    connection.sendall(b"hello" * 1000)
                    connection.shutdown(socket.SHUT_WR)
                    back = bytearray()
                    while piece := connection.recv(1 << 16):
                        back += piece
                check(back == b"hello" * 1000, f"{len(back)} bytes came back")
                check(process.wait(20) == 0, f"it ended with {process.returncode}")
            finally:
                process.kill()
    say("5,000 bytes came back")


@contextlib.contextmanager
def example(name, *arguments):
    """A running example that listens; ended as by Ctrl-C."""
    command = [sys.executable, "-u", str(EXAMPLES / name), *(arguments or ("0",))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            check(line.startswith("listening on "), f"{name} said {line!r}")
            yield int(line.split()[-1])
            began = time.perf_counter()
            process.send_signal(signal.SIGINT)
            code = process.wait(20)
            check(code == 0, f"{name} ended with {code} after Ctrl-C")
            say(f"{name}: Ctrl-C ended it in {time.perf_counter() - began:.2f} s")
        finally:
            if process.poll() is None:
                process.kill()


@step(60, "torch", "triton")
def example_triton_http():
    """curl, or Python's own client where there is no curl."""
    import urllib.request

    with example("triton_http.py") as port:
        for n in range(1, 51):
            url = f"http://127.0.0.1:{port}/some/page?{'x' * (n * 50)}"
            if shutil.which("curl"):
                text = subprocess.run(["curl", "-sf", url], capture_output=True, text=True, timeout=20).stdout
            else:
                text = urllib.request.urlopen(url, timeout=20).read().decode()
            check(text == f"hello, request {n:08}\n", f"the answer to request {n} was {text!r}")
        say("50 requests were answered")


@step(60, "numba_cuda_mlir|numba_cuda")
def example_numba_numbers():
    """Half a million numbers, twice."""
    with example("numba_numbers.py") as port:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                file = connection.makefile("rb")
                for n in range(500_000):
                    line = file.readline()
                    check(line == b"%011d\n" % n, f"line {n} was {line!r}")
                file.close()
        say("1,000,000 lines were right")


@step(60, "cupy")
def example_cupy_asyncio():
    """32 asyncio clients, 8 blocks."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "cupy_asyncio.py")], capture_output=True, text=True, timeout=50)
    check(done.returncode == 0 and "32 clients were answered" in done.stdout, done.stdout + done.stderr[-2000:])
    say(done.stdout.strip())


@step(90, "torch", "triton")
def example_torch_stream():
    """Two processes, one tensor."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "torch_stream.py")], capture_output=True, text=True, timeout=80)
    check(done.returncode == 0 and "numbers: True" in done.stdout, done.stdout + done.stderr[-2000:])
    say(done.stdout.strip())


@step(90, "cupy")
def example_gpunetd_echo():
    """A kernel and a client of another process under gpunetd, which `GPUNETD` names."""
    gpunetd = os.environ.get("GPUNETD")
    if not gpunetd:
        return say("NOT RUN: set GPUNETD=/path/to/gpunetd")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpunet.sock")
        daemon = subprocess.Popen([gpunetd, "--listen-path", path])
        try:
            while not os.path.exists(path):
                check(daemon.poll() is None, "gpunetd has ended")
                time.sleep(0.01)
            with example("gpunetd_echo.py", "serve", "--port", "0", "--device", "0", "--daemon", path) as port:
                ask = [sys.executable, str(EXAMPLES / "gpunetd_echo.py"), "ask", "--port", str(port), "--daemon", path]
                done = subprocess.run(ask, capture_output=True, text=True, timeout=50)
                check(done.stdout.startswith("peer: 64 bytes come back in "), done.stdout + done.stderr[-2000:])
                say(done.stdout.strip())
        finally:
            daemon.terminate()
            daemon.wait(20)


@step(120, "cupy|cuda.core")
def programs():
    """python -m gpunet: diagnose and echo on the GPU."""
    done = subprocess.run([sys.executable, "-m", "gpunet", "diagnose"], capture_output=True, text=True, timeout=90)
    check(done.returncode == 0 and "cuda:0" in done.stdout and "all is well" in done.stdout, done.stdout + done.stderr[-2000:])
    say(*done.stdout.splitlines(), sep="\n    ")
    command = [sys.executable, "-m", "gpunet", "echo", "--device", "0", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        found = json.loads(server.stdout.readline())
        say(found["device"], exchanges(found["port"]))
        server.send_signal(signal.SIGTERM)
        check(server.wait(20) == 0, "echo ended with", server.returncode)


HAND_OVER = r"""
#include <gpunet.h>
extern "C" __global__ void take(gpunet_net_t net, int listener, int *number) {
    const int s = gpunet_accept(net, listener);
    if (threadIdx.x == 0) *number = s;
}
extern "C" __global__ void answer(gpunet_net_t net, int s, unsigned char *buffer, int close) {
    const long long n = gpunet_recv(net, s, buffer, 64);
    if (n > 0) gpunet_send(net, s, buffer, n, MSG_WAITALL);
    if (close) gpunet_close(net, s);
}
"""


@step(60, "cupy")
def sockets_of_kernels():
    """What a kernel accepts goes to the program, and to another kernel."""
    import cupy
    import numpy as np

    import gpunet.cupy

    module = gpunet.cupy.compile(HAND_OVER)
    take, answer = module.get_function("take"), module.get_function("answer")
    number, buffer = cupy.zeros(1, np.int32), cupy.zeros(64, np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    with attached() as (device, listener):
        address = listener.getsockname()
        back = device.socket(listener.leave())
        check(back.getsockname() == address and not back.closed, "the listener has changed")
        for by_kernel in (True, False):
            client = socket.create_connection(address, timeout=20)
            with device.launch(stream, leftover="keep") as net, stream:
                take((1,), (128,), (np.uint64(net), np.int32(back.device_number()), number))
            accepted = device.socket(int(number[0]))
            check(accepted.getpeername() == client.getsockname() and accepted.transport == "tcp", accepted)
            for turn in range(2):
                client.sendall(b"ping")
                last = np.int32(by_kernel and turn == 1)
                with device.launch(stream, leftover="keep") as net, stream:
                    answer((1,), (128,), (np.uint64(net), np.int32(accepted.device_number()), buffer, last))
                check(receive(client, 4) == b"ping", "other bytes came back")
            check(accepted.closed == by_kernel, "closed:", accepted.closed)
            accepted.close()
            check(client.recv(1) == b"", "it is not closed")
            client.close()
        try:
            device.socket(int(number[0]))
        except ValueError as error:
            say(error)
        else:
            raise AssertionError("a number that is closed is taken")


# ---- queues and teams ----


def device_pair(device, transport):
    """The two ends of a stream of one device, with rings for large messages."""
    rings = {"transport": transport, "send_ring": 4 << 20, "recv_ring": 4 << 20}
    listener, accepted = device.listen(("127.0.0.1", 0), **rings), []
    thread = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=20)[0]))
    thread.start()
    near = device.connect(listener.getsockname(), timeout=20, **rings)
    thread.join()
    return near, accepted[0]


@step(150, "torch")
def queue_bytes():
    """Tensors, pinned and pageable memory through torch's streams, over tcp and peer; every byte."""
    import asyncio

    import torch

    import gpunet

    here, there = torch.cuda.Stream(), torch.cuda.Stream()
    total = 0
    with gpunet.embed(sockets=64, device_rings=64 << 20) as proxy, proxy.attach_cuda(0) as device:
        memory = device.alloc(1 << 20)
        for transport in ("tcp", "peer"):
            near, far = device_pair(device, transport)
            check(near.transport == transport, near.transport)
            with gpunet.Queue(device, here) as sends, gpunet.Queue(device, there) as receives:
                for n in (1, 1000, 4 << 20, 65_536, 65_537, 20_000_001):
                    places = ["cuda", "pinned", "cpu"] + (["memory"] if n <= 1 << 20 else [])
                    for source, target in [(place, "cuda") for place in places] + [("cuda", place) for place in places[1:]]:

                        def made(place, n=n):
                            if place == "memory":
                                return torch.from_dlpack(memory)[:n]
                            host = place != "cuda"
                            pinned = place == "pinned"
                            return torch.empty(n, dtype=torch.uint8, device="cpu" if host else "cuda", pin_memory=pinned)

                        with torch.cuda.stream(here):
                            data = made(source)
                            data.random_(0, 256)
                        here.synchronize()
                        wanted = data.cpu().clone()
                        got = made(target)
                        torch.cuda.synchronize()
                        sends.send(near, data)
                        # What is kept alive is not given to the next tensor.
                        del data
                        receives.recv(far, got)
                        sends.synchronize(timeout=30)
                        receives.synchronize(timeout=30)
                        there.synchronize()
                        check(torch.equal(got.cpu(), wanted), f"{transport}: {n} bytes from {source} to {target} are wrong")
                        total += n
                # A kernel fills, the queue sends behind it; a kernel reads behind what has come.
                with torch.cuda.stream(here):
                    numbers = torch.zeros(1 << 22, dtype=torch.bfloat16, device="cuda")
                with torch.cuda.stream(there):
                    back = torch.zeros_like(numbers)
                torch.cuda.synchronize()
                for turn in range(1, 6):
                    with torch.cuda.stream(here):
                        numbers.fill_(turn)
                    sends.send(near, numbers)
                    receives.recv(far, back)
                    with torch.cuda.stream(there):
                        doubled = back * 2
                    asyncio.run(wait_for(receives))
                    there.synchronize()
                    check(bool((doubled == 2 * turn).all()), f"{transport}: turn {turn} is wrong")
                check(receives.is_idle() and receives.outcome()["failure"] is None, receives.outcome())
            near.close()
            far.close()
    say(f"{total:,} bytes, and 10 times {1 << 23:,} between kernels")


async def wait_for(queue):
    await queue.notify()


@step(60, "torch")
def queue_misuse():
    """Streams and tensors that cannot be, a peer that resets, directions that a launch knows."""
    import errno

    import torch

    import gpunet

    def refused(kind, text, call, *arguments):
        try:
            call(*arguments)
        except kind as error:
            check(text in str(error), f"{error!r} does not say {text!r}")
            return error
        raise AssertionError(f"nothing says {text!r}")

    stream = torch.cuda.Stream()
    with gpunet.embed(sockets=64) as proxy, proxy.attach_cuda(0) as device, socket.create_server(("127.0.0.1", 0)) as server:
        for wrong in (None, 0, torch.cuda.default_stream()):
            refused(ValueError, "pass one of the program's own", gpunet.Queue, device, wrong)
        near = device.connect(server.getsockname(), timeout=10, transport="tcp")
        theirs = server.accept()[0]
        with proxy.attach_cpu() as cpu, gpunet.Queue(cpu) as queue:
            mine = cpu.connect(server.getsockname(), timeout=10, transport="tcp")
            refused(ValueError, "the queue is of the CPU device", queue.send, mine, torch.zeros(4, device="cuda"))
        queue = gpunet.Queue(device, stream)
        refused(BufferError, "not C-contiguous", queue.send, near, torch.zeros(4, 4, device="cuda").t())
        refused(Exception, "detach()", queue.send, near, torch.zeros(4, device="cuda", requires_grad=True))

        interface = {"shape": (4,), "typestr": "|u1", "data": (1 << 20, False), "version": 3}
        freed = type("Freed", (), {"__cuda_array_interface__": interface})()
        refused(ValueError, "was it freed?", queue.send, near, freed)
        launch = device.launch(stream)
        launch.finish()
        queue.send(near, torch.ones(4, dtype=torch.uint8, device="cuda"))
        check(theirs.recv(4, socket.MSG_WAITALL) == b"\1" * 4, "four bytes")
        refused(
            TimeoutError,
            "its operations go on",
            lambda: (queue.recv(near, torch.zeros(8, device="cuda")), queue.synchronize(0.05)),
        )
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        failed = refused(ConnectionResetError, "operation 1 of the queue failed", queue.synchronize, 10)
        check((failed.errno, failed.operation, failed.bytes) == (errno.ECONNRESET, 1, 0), vars(failed))
        queue.close()
    say("each was refused with its sentence")


def queue_on(stream, make, same):
    """Arrays of a library on a stream of it."""
    import gpunet

    with gpunet.embed(sockets=64) as proxy, proxy.attach_cuda(0) as device:
        near, far = device_pair(device, "tcp")
        with gpunet.Queue(device, stream) as queue:
            for n in (3, 100_000, 1 << 20):
                data, got = make(n)
                queue.send(near, data)
                queue.recv(far, got)
                queue.synchronize(timeout=20)
                check(same(data, got), f"{n} numbers are wrong")
    say(f"{stream!r}: right")


@step(60, "cupy")
def queue_cupy():
    """CuPy's stream; arrays that another stream has just filled."""
    import cupy

    def make(n):
        # On the default stream, which __cuda_array_interface__ names.
        return cupy.random.rand(n, dtype=cupy.float32), cupy.zeros(n, cupy.float32)

    make(10)
    queue_on(cupy.cuda.Stream(non_blocking=True), make, lambda a, b: bool((a == b).all()))


@step(60, "cuda.core", "cupy")
def queue_cuda_core():
    """A stream of cuda.core."""
    import cupy
    from cuda.core import Device

    core = Device(0)
    core.set_current()
    make = lambda n: (cupy.arange(n), cupy.zeros(n, int))  # noqa: E731
    make(10)
    queue_on(core.create_stream(), make, lambda a, b: bool((a == b).all()))


def members(command, seconds):
    """Two members of a team, by torchrun's environment: on two GPUs, or both on one."""
    count = int(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")) or 1
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1] - 1)}
    running = []
    for rank in range(2):
        environment = {**os.environ, **where, "RANK": str(rank), "LOCAL_RANK": str(rank % count)}
        running.append(subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=seconds)[0].strip() for process in running]
    check([process.returncode for process in running] == [0, 0], said)
    say(*said, f"({min(count, 2)} GPUs)")


CHANNEL_PEER = """
import sys, gpunet
library, port = sys.argv[1], int(sys.argv[2])
with gpunet.Channel.connect(("127.0.0.1", port)) as channel:
    while (arrays := channel.recv(to=library, device=0)) is not None:
        channel.send(arrays)
        if library == "torch":
            # The next arrays come while these kernels run: the channel waits for the stream.
            import torch
            back = {name: torch.empty_like(array) for name, array in arrays.items()}
        else:
            import cupy
            back = {name: cupy.empty_like(array) for name, array in arrays.items()}
        channel.recv_into(back)
        for name, array in back.items():
            array += 1
        channel.send(back)
"""


def both_ends(listener):
    """The two ends of a channel in this process. To open one takes both."""
    import gpunet

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(gpunet.Channel.connect, listener.getsockname())
        far = listener.accept(timeout=20)
        return connecting.result(20), far


def channel_rounds(library, arrays, same, more, strided):
    """Another process on the same GPU sends back what it gets, and then what it has added 1 to by a kernel."""
    import gpunet

    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", CHANNEL_PEER, library, str(listener.getsockname()[1])]
        with subprocess.Popen(command) as process:
            with listener.accept(timeout=60) as channel:
                for checksum in (False, True):
                    outcome = channel.send(arrays, checksum=checksum, timeout=60)
                    check(outcome.copied != checksum, outcome.via)
                    got = channel.recv(to=library, device=0, timeout=60)
                    check(got.keys() == arrays.keys(), got.keys())
                    for name, array in arrays.items():
                        check(same(got[name], array), f"{name} came back wrong")
                    say(f"{outcome.nbytes} bytes by {outcome.via}: every byte came back")
                    channel.send(arrays, timeout=60)
                    for name, array in channel.recv(to=library, device=0, timeout=60).items():
                        check(same(array, more(arrays[name])), f"{name} has not what a kernel added")
            check(process.wait(60) == 0, "the other process failed")
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", CHANNEL_VICTIM, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            with listener.accept(timeout=60) as channel:
                check(process.stdout.readline() == "ready\n", "it is not ready")
                sending = channel.send_async(arrays)
                process.kill()
                began = time.monotonic()
                try:
                    sending.wait(20)
                    check(False, "a transfer to a dead process has succeeded")
                except ConnectionError as error:
                    say(f"killed: {error} after {time.monotonic() - began:.2f} s")
    # From the GPU into the CPU's memory, and back.
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        near, far = both_ends(listener)
        with near, far:
            sending = near.send_async(arrays)
            got = far.recv(to="torch" if library == "torch" else "numpy", timeout=60)
            say(f"to the CPU: {sending.wait(60).via}")
            sending = far.send_async(got)
            for name, array in near.recv(to=library, device=0, timeout=60).items():
                check(same(array, arrays[name]), f"{name} came back wrong from the CPU")
            sending.wait(60)
            for wrong in (strided(arrays), "text"):
                try:
                    near.send(wrong)
                    check(False, "it was sent")
                except (BufferError, TypeError) as error:
                    say(error)


CHANNEL_VICTIM = """
import sys, time, gpunet
with gpunet.Channel.connect(("127.0.0.1", int(sys.argv[1]))) as channel:
    print("ready", flush=True)
    time.sleep(60)
"""


@step(180, "torch")
def channel_torch():
    """State dicts of every type between two processes on one GPU, in the order of torch's streams; a kill; the example."""
    import torch

    torch.manual_seed(7)
    arrays = {"large": torch.randint(-9, 9, (64 << 20,), device="cuda", dtype=torch.int32)}
    for kind in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8):
        arrays[str(kind)] = torch.randint(0, 99, (300, 1001), device="cuda").to(kind)
    arrays |= {"scalar": torch.tensor(2.0, device="cuda"), "none": torch.empty((0, 3), device="cuda")}
    same = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)  # noqa: E731
    with torch.cuda.stream(torch.cuda.Stream()):
        channel_rounds("torch", arrays, same, lambda a: a + 1, lambda arrays: arrays["large"][::2])
    import gpunet

    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        near, far = both_ends(listener)
        with near, far:
            small = torch.rand(1000, 100, device="cuda").to(torch.float8_e4m3fn)
            sending = near.send_async({"fp8": small})
            got = far.recv(device=0, timeout=20)["fp8"]
            sending.wait(20)
            check(got.dtype == small.dtype and torch.equal(got.view(torch.uint8), small.view(torch.uint8)), "float8 is wrong")
    for device in ("cpu", "cuda"):
        command = [sys.executable, str(EXAMPLES / "channel_torch.py"), device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=80)
        check(done.returncode == 0 and done.stdout.count("serving with") == 3, done.stdout + done.stderr[-2000:])
        check("serving with 2.0" in done.stdout, done.stdout)
        say(done.stdout.strip().splitlines()[-1])


@step(120, "cupy")
def channel_cupy():
    """The same with CuPy's arrays, and how fast arrays go."""
    import cupy

    cupy.random.seed(7)
    arrays = {"large": cupy.random.randint(0, 99, 32 << 20).astype(cupy.float32)}
    arrays |= {kind: cupy.random.randint(0, 99, (100, 1001)).astype(kind) for kind in ("i1", "u2", "i8", "f2", "f8", "c8")}
    same = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())  # noqa: E731
    channel_rounds("cupy", arrays, same, lambda a: a + 1, lambda arrays: arrays["large"][::2])
    listen = [sys.executable, "-m", "gpunet", "tensors", "--listen", "127.0.0.1", "--port", "0", "--device", "0", "--json"]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as process:
        port = json.loads(process.stdout.readline())["port"]
        send = [sys.executable, "-m", "gpunet", "tensors", "127.0.0.1", "--port", str(port), "--device", "0"]
        done = subprocess.run(send, capture_output=True, text=True, timeout=80)
        process.send_signal(signal.SIGINT)
        check(done.returncode == 0 and process.wait(20) == 0, done.stdout + done.stderr[-2000:])
        say(*done.stdout.splitlines(), sep="\n    ")


@step(120, "torch", "triton")
def team_triton():
    """Two processes whose Triton kernels put, signal and meet."""
    members([str(HERE / "gpu_team.py"), "triton"], 100)


@step(120, "numba_cuda_mlir|numba_cuda")
def team_numba():
    """The same by Numba."""
    members([str(HERE / "gpu_team.py"), "numba"], 100)


@step(120, "torch")
def example_team_moe():
    """Two processes, tokens to experts and back, by queues on torch's streams."""
    members([str(EXAMPLES / "team_moe.py"), "--cuda"], 100)


# ---- round trips ----


def probe_program(folder):
    """The C client, or None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, program = f"{folder}/probe.c", f"{folder}/probe"
    pathlib.Path(source).write_text(PROBE)
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


def round_trip(program, port, rounds=10_000):
    """The median of 64 B round trips in microseconds."""
    if program:
        done = subprocess.run([program, str(port), str(rounds)], capture_output=True, text=True, timeout=60)
        check(done.returncode == 0, f"the probe ended with {done.returncode}")
        return float(done.stdout)
    took = []
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = bytes(64)
        for _ in range(rounds):
            began = time.perf_counter()
            connection.sendall(data)
            receive(connection, 64)
            took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)


@contextlib.contextmanager
def rust_server(path, threads):
    command = [path, "server", "127.0.0.1:0", "--blocks", "1", "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout:
                if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise AssertionError("gpunet-echo named no port")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield int(found[1])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def triton_server(threads):
    import torch

    echo = triton_kernels()[0]
    with attached() as (device, listener):
        buffer = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
        total, stream = torch.zeros(1, dtype=torch.int64, device="cuda"), torch.cuda.Stream()
        torch.cuda.synchronize()
        launch = device.launch(stream)
        with torch.cuda.stream(stream):
            echo[(1,)](launch.net, listener.device_number(), buffer, 1 << 16, total, 1, num_warps=threads // 32)
        yield listener.getsockname()[1]
        launch.finish()


@contextlib.contextmanager
def numba_server(threads):
    import numpy as np

    from gpunet.numba import cuda

    echo = numba_kernels()[0]
    with attached() as (device, listener):
        buffer, stream = cuda.device_array(1 << 16, np.uint8), cuda.stream()
        launch = device.launch(stream)
        echo[1, threads, stream](launch.net, listener.device_number(), buffer, 1)
        yield listener.getsockname()[1]
        launch.finish()


@contextlib.contextmanager
def cupy_server(threads):
    import cupy
    import numpy as np

    import gpunet.cupy

    kernel = gpunet.cupy.compile(CUDA_ECHO).get_function("echo")
    with attached() as (device, listener):
        buffer, stream = cupy.zeros(1 << 16, cupy.uint8), cupy.cuda.Stream(non_blocking=True)
        launch = device.launch(stream)
        with stream:
            number = np.int32(listener.device_number())
            kernel((1,), (threads,), (np.uint64(launch.net), number, buffer, np.uint64(1 << 16), np.int32(1)))
        yield listener.getsockname()[1]
        launch.finish()


def alternate(make, threads):
    """Medians of a kernel's server and the Rust server, by turns."""
    path = os.environ.get("GPUNET_ECHO")
    with tempfile.TemporaryDirectory() as folder:
        program = probe_program(folder)
        mine, rust = [], []
        for _ in range(5):
            with make(threads) as port:
                mine.append(round_trip(program, port))
            if path:
                with rust_server(path, threads) as port:
                    rust.append(round_trip(program, port))
    words = f"{threads} threads: p50 {statistics.median(mine):.2f} us ({min(mine):.2f} to {max(mine):.2f})"
    if rust:
        ratio = statistics.median(mine) / statistics.median(rust)
        words += f", gpunet-echo {statistics.median(rust):.2f} ({min(rust):.2f} to {max(rust):.2f}), ratio {ratio:.2f}"
    say(words, "" if program else "(Python's client: no C compiler)")


@step(150, "torch", "triton")
def triton_round_trip():
    """64 B over tcp, five alternations with gpunet-echo."""
    for threads in (128, 256):
        alternate(triton_server, threads)


@step(150, "numba_cuda_mlir|numba_cuda")
def numba_round_trip():
    """64 B over tcp, five alternations with gpunet-echo."""
    for threads in (128, 256):
        alternate(numba_server, threads)


@step(150, "cupy")
def cupy_round_trip():
    """64 B over tcp, five alternations with gpunet-echo."""
    for threads in (128, 256):
        alternate(cupy_server, threads)


# ---- the steps ----


def missing(needs):
    import importlib.util

    def there(name):
        try:
            return importlib.util.find_spec(name) is not None
        except ImportError:
            return False

    return [need for need in needs if not any(map(there, need.split("|")))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--echo", help="the program gpunet-echo, for round trips beside it")
    parser.add_argument("--first-launch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("steps", nargs="*", help=", ".join(STEPS))
    arguments = parser.parse_args()
    if arguments.first_launch is not None:
        return first_launch(bool(arguments.first_launch))
    if arguments.here:
        return STEPS[arguments.steps[0]][0]()
    if unknown := set(arguments.steps) - set(STEPS):
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    # Where this runs in the background, its shell has made it ignore Ctrl-C, and the examples would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # One block is what these kernels are.
    environment = dict(os.environ, PYTHONUNBUFFERED="1", NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0")
    if arguments.echo:
        environment["GPUNET_ECHO"] = os.path.abspath(arguments.echo)
    results = {}
    for name in arguments.steps or STEPS:
        function, seconds, needs = STEPS[name]
        print(f"== {name}: {function.__doc__}", flush=True)
        if lacking := missing(needs):
            results[name] = f"NOT RUN: no {', '.join(lacking)}"
        else:
            began = time.perf_counter()
            command = [sys.executable, __file__, "--here", name]
            with subprocess.Popen(command, env=environment, start_new_session=True) as process:
                try:
                    code = process.wait(seconds)
                    results[name] = {0: "ok", NOT_RUN: "NOT RUN"}.get(code, f"FAILED: exit code {code}")
                except subprocess.TimeoutExpired:
                    results[name] = f"FAILED: no end within {seconds} s"
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            results[name] += f" ({time.perf_counter() - began:.1f} s)"
        print(f"   {results[name]}", flush=True)
    print("\n".join(f"{name:24} {result}" for name, result in results.items()), flush=True)
    return 1 if any("FAILED" in result for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
