"""Kernels on the CPU: the other end of host sockets, over tcp and peer."""

from __future__ import annotations

import ctypes
import errno
import random
import select
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from conftest import in_thread, no_thread_is_left

import gpunet
from gpunet import cpu

if TYPE_CHECKING:
    from gpunet._native import Transport


def echo(net: int, listener: int) -> None:
    data = bytearray(70_000)
    while (stream := cpu.accept(net, listener)) > 0:
        while (n := cpu.recv(net, stream, data)) > 0:
            assert cpu.send(net, stream, data, n) == n
        cpu.close(net, stream)
    assert stream == -errno.ECANCELED


def ask_echoes(net: gpunet.Proxy, address: tuple[str, int], transport: Transport) -> None:
    """Six clients at once."""

    def client(seed: int) -> None:
        data = random.Random(seed).randbytes(500_000)
        with net.connect(address, transport=transport, timeout=20) as stream:
            back = in_thread(lambda: stream.recv_exact(len(data)))
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            assert back() == data and stream.recv(1) == b""

    for done in [in_thread(lambda seed=seed: client(seed)) for seed in range(6)]:  # type: ignore[misc]
        done()


def test_blocks_serve_the_hosts_sockets(net: gpunet.Proxy, transport: Transport) -> None:
    with net.attach_cpu() as device, device.listen(("127.0.0.1", 0), transport=transport) as listener:
        launch = device.launch()
        cpu.run(launch.net, echo, listener.device_number(), blocks=3)

        ask_echoes(net, listener.getsockname(), transport)
        launch.cancel()
        assert launch.finish() == 0


def test_a_block_connects_and_gets_what_fails_as_a_number(net: gpunet.Proxy) -> None:
    results: list[int] = []

    def kernel(context: int, port: int, closed: int) -> None:
        data = bytearray(8)
        stream = cpu.connect(context, ("127.0.0.1", port))
        results.append(cpu.recv(context, stream, data, timeout_ns=1_000_000))
        results.append(cpu.send_some(context, stream, b"question"))
        results.append(cpu.recv_exact(context, stream, data, 6))
        assert data[:6] == b"answer"
        results.append(cpu.shutdown(context, stream, socket.SHUT_WR))
        results.append(cpu.close(context, stream))
        results.append(cpu.recv(context, stream, data))
        results.append(cpu.connect(context, ("127.0.0.1", closed)))
        results.append(cpu.send(1, stream, data))

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
        other.close()
        with net.attach_cpu() as device:
            with device.launch() as context:
                cpu.run(context, kernel, server.getsockname()[1], closed)
                theirs, _ = server.accept()
                with theirs:
                    assert theirs.recv(8, socket.MSG_WAITALL) == b"question"
                    theirs.sendall(b"answer")
                    assert theirs.recv(1) == b""
    expected = [-errno.ETIMEDOUT, 8, 6, 0, 0, -errno.EBADF, -errno.ECONNREFUSED, -errno.ENETDOWN]
    assert results in (expected, [-errno.EAGAIN, *expected[1:]])


def test_sockets_go_from_kernels_to_the_program_and_back(net: gpunet.Proxy, transport: Transport) -> None:
    numbers: list[int] = []
    known = threading.Event()

    def accept(context: int, listener: int) -> None:
        numbers.append(cpu.accept(context, listener))

    def know(context: int, listener: int) -> None:
        assert cpu.accept(context, listener, cpu.NO_WAIT) == -cpu.EAGAIN
        known.set()
        assert cpu.accept(context, listener) == -cpu.ECANCELED

    def answer(context: int, stream: int, close: bool) -> None:
        data = bytearray(64)
        assert cpu.send(context, stream, data, cpu.recv(context, stream, data)) == 4
        if close:
            cpu.close(context, stream)

    with net.attach_cpu() as device:
        # A listener goes to the kernels, and back.
        number = device.listen(("127.0.0.1", 0), transport=transport).leave()
        listener = device.socket(number)
        assert isinstance(listener, gpunet.DeviceListener) and listener.device_number() == number and not listener.closed
        address = listener.getsockname()
        with device.launch(leftover="keep") as context:
            cpu.run(context, accept, number)
            client = net.connect(address, transport=transport, timeout=10)
        # What a kernel has accepted comes to the program, and goes to another kernel.
        stream = device.socket(numbers[0])
        assert isinstance(stream, gpunet.DeviceSocket) and stream.transport == transport
        assert stream.getpeername() == client.getsockname() and stream.getsockname() == address
        for close in (False, True):
            client.sendall(b"ping")
            assert not stream.closed
            with device.launch(leftover="keep") as context:
                cpu.run(context, answer, stream.device_number(), close)
            assert client.recv_exact(4) == b"ping"
        # The kernel has closed it.
        assert client.recv(1) == b"" and stream.closed
        client.close()
        with pytest.raises(OSError, match="the socket is closed"):
            stream.getpeername()
        stream.close()
        # The program closes what a kernel has accepted, and accepts itself.
        with device.launch(leftover="keep") as context:
            cpu.run(context, accept, number)
            client = net.connect(address, transport=transport, timeout=10)
        device.socket(numbers[1]).close()
        client.settimeout(10)
        assert client.recv(1) == b""
        client.close()
        with pytest.raises(ValueError, match="no connected socket and no listener"):
            device.socket(numbers[1])
        accepted = in_thread(lambda: listener.accept(timeout=10)[0])
        with net.connect(address, transport=transport, timeout=10), accepted() as own:
            assert device.socket(own.device_number()).getpeername() == own.getpeername()  # type: ignore[union-attr]
        # A close while a launch knows it waits for the launch.
        launch = device.launch(leftover="keep")
        cpu.run(launch.net, know, number)
        assert known.wait(20)
        listener.close()
        with pytest.raises(OSError, match="the listener is closed"):
            listener.leave()
        assert device.socket(number).device_number() == number
        launch.cancel()
        launch.finish()
        for wrong in (0, -1, number, 1 << 16, 77 << 16 | 1, 0x7FFF_FFFF, 1 << 40):
            with pytest.raises(ValueError, match=f"{wrong} is no connected socket"):
                device.socket(wrong)
        for kind in ("7", None, 1.0):
            with pytest.raises(TypeError):
                device.socket(kind)  # type: ignore[arg-type]
        deadline = time.monotonic() + 20
        while device.stats()["sockets"] > 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert device.stats()["sockets"] == 0, net.snapshot()["sockets"]


def test_an_exception_in_the_block_of_a_launch_cancels_it(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as device, device.listen(("127.0.0.1", 0)) as listener:
        with pytest.raises(KeyError, match="on purpose"):
            with device.launch() as context:
                cpu.run(context, echo, listener.device_number(), blocks=2)
                raise KeyError("on purpose")

        def fail(context: int) -> None:
            cpu.connect(context, listener.getsockname())
            raise RuntimeError(f"block {cpu.block()} of {cpu.blocks()}")

        with pytest.raises(RuntimeError, match="a block failed: RuntimeError: block 0 of 1") as failed:
            with device.launch() as context:
                cpu.run(context, fail)
                listener.accept(timeout=10)[0].close()
        assert str(failed.value.__cause__) == "block 0 of 1"


def test_misuse(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as device:
        with device.launch() as context:
            with pytest.raises(RuntimeError, match="for blocks"):
                cpu.recv(context, 1, bytearray(1))
            with pytest.raises(ValueError, match="at least one block"):
                cpu.run(context, print, blocks=0)
            refused: list[BaseException] = []

            def wrong(context: int) -> None:
                calls: list[Callable[[], int]] = [
                    lambda: cpu.send(context, 1, "text"),  # type: ignore[arg-type]
                    lambda: cpu.recv(context, 1, b"read-only"),
                    lambda: cpu.recv(context, 1, bytearray(2), 3),
                    lambda: cpu.accept(context, 1, -7),
                    lambda: cpu.connect(context, ("127.0.0.1", 1), timeout_ns=-2),
                    lambda: cpu.send(context, 1, b"x", timeout_ns=-(1 << 62)),
                    lambda: cpu.recv(context, 1, bytearray(1), timeout_ns=-7),
                    lambda: cpu.poll(context, bytearray(8), timeout_ns=-7),
                    lambda: cpu.poll(context, bytearray(9)),
                    lambda: cpu.poll(context, bytearray(8), 2),
                    lambda: cpu.poll(context, bytes(8)),
                ]
                for call in calls:
                    try:
                        call()
                    except (TypeError, BufferError, ValueError) as error:
                        refused.append(error)
                assert cpu.recv(context, -7, bytearray(1)) == -errno.EBADF

            cpu.run(context, wrong)
        assert len(refused) == 11
        assert "timeout_ns is a number of nanoseconds, NO_WAIT (0), FOREVER (-1) or SOCKET_TIMEOUT, not -7" in str(refused[3])
        with pytest.raises(ValueError, match="no launch of the CPU device"):
            cpu.run(context, print)
    no_thread_is_left()


def test_the_constants_are_those_of_every_language() -> None:
    from gpunet import _calls

    assert {name: getattr(cpu, name) for name in _calls.CONSTANTS} == _calls.CONSTANTS
    for name, value in _calls.CONSTANTS.items():
        for module in (errno, socket, select):
            assert getattr(module, name, value) == value
    assert _calls.sockaddr("fe80::1%lo", 1)[-4:] == struct.pack("<I", socket.if_nametoindex("lo"))


def test_a_block_polls(net: gpunet.Proxy) -> None:
    results: list[object] = []

    def kernel(context: int, listener: int) -> None:
        # Not aligned, as Python's memory may be.
        memory = bytearray(1 + 3 * 8)
        entries = memoryview(memory)[1:]
        entries[:] = struct.pack("ihhihhihh", listener, cpu.POLLIN, 0, -1, cpu.POLLIN, 7, 12345, cpu.POLLIN, 0)
        results.append((cpu.poll(context, entries[:8], timeout_ns=cpu.NO_WAIT), entries[6:8].tobytes()))
        results.append((cpu.poll(context, entries, 2, 1_000_000), entries[14:16].tobytes()))
        results.append((cpu.poll(context, entries), struct.unpack("ihhihhihh", entries)[8]))
        started.set()
        assert cpu.poll(context, entries[:16]) == 1
        stream = cpu.accept(context, listener, cpu.NO_WAIT)
        entries[:16] = struct.pack("ihhihh", stream, cpu.POLLIN | cpu.POLLOUT, 0, listener, cpu.POLLIN, 0)
        results.append((cpu.poll(context, entries, 2), struct.unpack("ihhihh", entries[:16])[2::3]))
        assert cpu.send_some(context, stream, b"x") == 1
        entries[:8] = struct.pack("ihh", stream, cpu.POLLIN, 0)
        results.append((cpu.poll(context, entries[:8]), struct.unpack("ihh", entries[:8])[2] & cpu.POLLIN))
        assert cpu.recv(context, stream, bytearray(1), flags=cpu.MSG_PEEK) == 0
        results.append(cpu.poll(context, entries[8:16]))

    started = threading.Event()
    with net.attach_cpu() as device, device.listen(("127.0.0.1", 0)) as listener:
        launch = device.launch()
        cpu.run(launch.net, kernel, listener.device_number())
        assert started.wait(20)
        with socket.create_connection(listener.getsockname()) as client:
            assert client.recv(1) == b"x"
            client.shutdown(socket.SHUT_WR)
            while len(results) < 5 and not launch.finished:
                threading.Event().wait(0.001)
            launch.cancel()
            assert launch.finish() == 1
    expected = [(0, b"\0\0"), (0, b"\0\0"), (1, cpu.POLLNVAL), (1, (cpu.POLLOUT, 0)), (1, cpu.POLLIN), -cpu.ECANCELED]
    assert results == expected


C_ECHO = r"""
#include <errno.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include <gpunet.h>

struct work { int listener; int blocks; int failed; };

void echo(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    char bytes[4096];
    int stream;
    __atomic_add_fetch(&work->blocks, block + blocks, __ATOMIC_RELAXED);
    while ((stream = gpunet_accept(net, work->listener, NULL, NULL)) > 0) {
        long long n;
        while ((n = gpunet_recv(net, stream, bytes, sizeof bytes, 0)) > 0)
            if (gpunet_send(net, stream, bytes, (unsigned long long)n, MSG_WAITALL) != n) work->failed = 1;
        gpunet_close(net, stream);
    }
    if (stream != -ECANCELED || gpunet_close(net + 8, work->listener) != -ENETDOWN) work->failed = 2;
}

// In a child of fork the launch is the parent's.
void fork_in_block(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(gpunet_close(net, work->listener) == -ENETDOWN ? 0 : 1);
    if (waitpid(child, &status, 0) != child || status != 0) work->failed = 3;
}
"""


class Work(ctypes.Structure):
    _fields_ = (("listener", ctypes.c_int), ("blocks", ctypes.c_int), ("failed", ctypes.c_int))


@pytest.mark.skipif(not shutil.which("cc"), reason="NOT RUN: no C compiler (cc)")
def test_a_function_in_c_is_a_block(net: gpunet.Proxy, transport: Transport) -> None:
    library = cpu.compile(C_ECHO, options=["-Wall", "-Werror"])
    with net.attach_cpu() as device, device.listen(("127.0.0.1", 0), transport=transport) as listener:
        work = Work(listener=listener.device_number())
        launch = device.launch()
        finished = launch.net
        cpu.run_c(finished, library.echo, work, blocks=3)
        ask_echoes(net, listener.getsockname(), transport)
        launch.cancel()
        assert launch.finish() == 0
        assert (work.blocks, work.failed) == (0 + 1 + 2 + 3 * 3, 0)
        with device.launch() as context:
            cpu.run_c(context, library.fork_in_block, work)
        assert work.failed == 0
        with pytest.raises(ValueError, match="no launch of the CPU device"):
            cpu.run_c(finished, library.echo, work)
        with device.launch() as context:
            for wrong in (print, "echo", True):
                with pytest.raises(TypeError, match="a function in C is one of a ctypes library"):
                    cpu.run_c(context, wrong)
            for argument in (b"read-only", object()):
                with pytest.raises(TypeError, match="writable buffer"):
                    cpu.run_c(context, library.echo, argument)
            with pytest.raises(TypeError, match="cannot be called"):
                cpu.run(context, 7)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="a block failed: ValueError: the function is a null pointer"):
            with device.launch() as context:
                cpu.run_c(context, 0)
    with pytest.raises(cpu.CompileError, match="unknown_name"):
        cpu.compile("int f(void) { return unknown_name; }")


def test_only_a_block_has_a_number() -> None:
    for call in (cpu.block, cpu.blocks):
        with pytest.raises(RuntimeError, match=r"gpunet\.cpu\.run"):
            call()
