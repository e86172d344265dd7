"""Attachments of the CPU: launches, sockets that kernels use by number, memory."""

from __future__ import annotations

import errno
import socket

import pytest
from conftest import in_thread

import gpunet


def test_an_attachment_tells_what_it_is(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as cpu:
        assert (cpu.device, cpu.is_cuda, cpu.device_id, cpu.compute_capability) == ("cpu", False, None, None)
        stats = cpu.stats()
        assert stats["device"] == "cpu" and stats["sockets"] == 0 and stats["ring_bytes"] == stats["free_ring_bytes"]
    assert cpu.closed
    for call in (cpu.stats, cpu.launch, lambda: cpu.alloc(1), lambda: cpu.listen(("127.0.0.1", 0)), lambda: cpu.device):
        with pytest.raises(OSError, match="the attachment is closed"):
            call()


def test_a_launch_has_a_net_value_until_it_is_finished(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as cpu:
        with cpu.launch() as first, cpu.launch() as second:
            assert type(first) is int and first != second and first % 8 == 0
        launch = cpu.launch(leftover="reset")
        assert launch.net and not launch.finished and launch.stream == 0
        launch.cancel()
        assert launch.finish() == 0 and launch.finished
        assert launch.finish() == 0
        launch.cancel()
        with pytest.raises(OSError, match="the launch is finished"):
            _ = launch.net
        with pytest.raises(RuntimeError, match="on purpose"):
            with cpu.launch():
                raise RuntimeError("on purpose")
        with pytest.raises(ValueError, match="leftover is"):
            cpu.launch(leftover="leave")
        with pytest.raises(ValueError, match="no streams"):
            cpu.launch(7)
        with pytest.raises(TypeError, match="a stream is its handle"):
            cpu.launch("stream")
        launches = []
        with pytest.raises(OSError) as many:
            while True:
                launches.append(cpu.launch())
        assert many.value.errno == errno.EBUSY and len(launches) > 50
        for launch in launches:
            launch.finish()
        cpu.launch().finish()


def test_sockets_for_kernels(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as cpu, cpu.listen(("127.0.0.1", 0), transport="tcp") as listener:
        assert listener.device_number() > 0
        with pytest.raises(TimeoutError):
            listener.accept(timeout=0.01)
        with pytest.raises(BlockingIOError):
            listener.accept(timeout=0)
        with socket.create_connection(listener.getsockname()) as theirs:
            accepted, address = listener.accept(timeout=10)
            assert address == theirs.getsockname() == accepted.getpeername() and accepted.transport == "tcp"
            assert accepted.device_number() != listener.device_number()
            accepted.close()
            assert theirs.recv(1) == b""
            with pytest.raises(OSError, match="the socket is closed"):
                accepted.device_number()
        waiting = in_thread(lambda: listener.accept(timeout=10))
        with cpu.connect(listener.getsockname(), timeout=10, transport="tcp") as connected, waiting()[0] as other:
            assert connected.getsockname() == other.getpeername()
        number = cpu.connect(listener.getsockname(), timeout=10, transport="tcp").leave()
        assert number > 0
    with pytest.raises(OSError, match="the listener is closed"):
        listener.device_number()


def test_memory(net: gpunet.Proxy) -> None:
    with net.attach_cpu() as cpu:
        memory = cpu.alloc(16)
        assert len(memory) == memory.nbytes == 16 and memory.address % 4096 == 0 and memory.read() == bytes(16)
        memory.write(b"abcd", 4)
        view = memoryview(memory)
        assert view.tobytes() == memory.read() == b"\0" * 4 + b"abcd" + b"\0" * 8 and not view.readonly
        view[0] = 7
        assert memory.read(6) == b"\7\0\0\0ab" and memory.read(2, 6) == b"cd"
        for call in (lambda: memory.read(17), lambda: memory.read(1, 16), lambda: memory.write(b"12", 15)):
            with pytest.raises(ValueError, match="not inside of 16 bytes"):
                call()
        assert not hasattr(memory, "__cuda_array_interface__")
        with pytest.raises(MemoryError):
            cpu.alloc(1 << 60)
        for size in (0, -1, 1 << 64):
            with pytest.raises(ValueError, match="at least one byte"):
                cpu.alloc(size)
        with pytest.raises(TypeError):
            cpu.alloc("1")  # type: ignore[arg-type]
    # It outlives its attachment.
    assert memory.read(1) == b"\7"


def test_a_missing_gpu_is_said(net: gpunet.Proxy) -> None:
    with pytest.raises(TypeError, match="a device is its number"):
        net.attach_cuda("cuda")
    try:
        attachment = net.attach_cuda(10_000)
    except RuntimeError as missing:
        assert "driver" in str(missing) or "libcuda" in str(missing) or "10000" in str(missing), missing
    else:
        raise AssertionError(attachment)


def test_what_kernels_link(net: gpunet.Proxy) -> None:
    from gpunet import _native

    ptx = _native.device_ptx()
    assert b".visible .func" in ptx and b"gpunet_recv" in ptx
    headers = _native.headers()
    assert "gpunet_recv" in headers["gpunet.h"] and "gpunet/socket.cuh" in headers
    assert _native.version == gpunet.__version__
