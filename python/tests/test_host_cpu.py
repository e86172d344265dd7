"""Kernels on the CPU: the other end of host sockets, over tcp and peer."""

from __future__ import annotations

import errno
import random
import socket
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


def test_blocks_serve_the_hosts_sockets(net: gpunet.Proxy, transport: Transport) -> None:
    with net.attach_cpu() as device, device.listen(("127.0.0.1", 0), transport=transport) as listener:
        launch = device.launch()
        cpu.run(launch.net, echo, listener.device_number(), blocks=3)

        def client(seed: int) -> None:
            data = random.Random(seed).randbytes(500_000)
            with net.connect(listener.getsockname(), transport=transport, timeout=20) as stream:
                back = in_thread(lambda: stream.recv_exact(len(data)))
                stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
                assert back() == data and stream.recv(1) == b""

        for done in [in_thread(lambda seed=seed: client(seed)) for seed in range(6)]:  # type: ignore[misc]
            done()
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
                ]
                for call in calls:
                    try:
                        call()
                    except (TypeError, BufferError, ValueError) as error:
                        refused.append(error)
                assert cpu.recv(context, -7, bytearray(1)) == -errno.EBADF

            cpu.run(context, wrong)
        assert len(refused) == 3
        with pytest.raises(ValueError, match="no launch of the CPU device"):
            cpu.run(context, print)
    no_thread_is_left()


def test_only_a_block_has_a_number() -> None:
    for call in (cpu.block, cpu.blocks):
        with pytest.raises(RuntimeError, match=r"gpunet\.cpu\.run"):
            call()
