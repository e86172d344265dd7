"""Queues of the CPU device: sockets' messages from and into arrays, how they fail, and what keeps the arrays."""

from __future__ import annotations

import array
import asyncio
import ctypes
import errno
import gc
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from conftest import in_thread

import gpunet

if TYPE_CHECKING:
    from gpunet._native import Transport

Pair = tuple[gpunet.DeviceSocket, gpunet.DeviceSocket]


@pytest.fixture
def cpu(net: gpunet.Proxy) -> Iterator[gpunet.Attachment]:
    with net.attach_cpu() as attachment:
        yield attachment


@pytest.fixture
def ends(cpu: gpunet.Attachment, transport: Transport) -> Iterator[Pair]:
    """The two ends of a stream, both of the device."""
    with cpu.listen(("127.0.0.1", 0), transport=transport, recv_ring=1 << 16, send_ring=1 << 16) as listener:
        accepted = in_thread(lambda: listener.accept(timeout=10)[0])
        client = cpu.connect(listener.getsockname(), timeout=10, transport=transport, recv_ring=1 << 16, send_ring=1 << 16)
        with client, accepted() as server:
            yield client, server


class Bytes(bytearray):
    """An array that can be watched."""


class Tensor:
    """What has no buffer but DLPack, as a torch tensor."""

    def __init__(self, memory: gpunet.Memory) -> None:
        self._memory = memory

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._memory.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


class OldTensor:
    """One that knows no versions."""

    def __init__(self, memory: gpunet.Memory) -> None:
        self._memory = memory

    def __dlpack__(self) -> Any:
        return self._memory.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


class CudaArray:
    def __init__(self, **changed: Any) -> None:
        shape = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**shape, **changed}


def test_arrays_of_every_kind_go_through_queues(cpu: gpunet.Attachment, ends: Pair) -> None:
    near, far = ends
    sent = bytes(range(256)) * 4
    memory, device = cpu.alloc(len(sent)), cpu.alloc(len(sent))
    memory.write(sent)
    numbers = array.array("d", [1.5, 2.5])
    with gpunet.Queue(cpu) as here, gpunet.Queue(cpu) as there:
        for data in (sent, bytearray(sent), memoryview(sent)[1:], memory, Tensor(memory), OldTensor(memory)):
            here.send(near, data)
        got: list[Any] = [bytearray(1024), memoryview(bytearray(1024)), ctypes.create_string_buffer(1023)]
        for into in (*got, device, Tensor(cpu.alloc(1024)), OldTensor(device)):
            there.recv(far, into)
        here.send(near, numbers)
        back = array.array("d", [0, 0])
        there.recv(far, back)
        here.synchronize(timeout=10)
        there.synchronize(timeout=10)
        assert bytes(got[0]) == bytes(got[1]) == sent and got[2].raw == sent[1:]
        assert device.read() == sent and back == numbers
        assert here.is_idle() and there.outcome() == {"done": 8, "failure": None}


def test_a_message_of_many_rings_and_both_directions_at_once(cpu: gpunet.Attachment, ends: Pair) -> None:
    data = bytes(range(251)) * 10_000

    def exchange(end: gpunet.DeviceSocket) -> bytearray:
        into = bytearray(len(data))
        with gpunet.Queue(cpu) as queue:
            queue.finish(queue.start_send(end, data), queue.start_recv(end, into))
        return into

    other = in_thread(lambda: exchange(ends[1]))
    assert exchange(ends[0]) == data == other()


def test_an_array_is_kept_until_its_operation_has_ended(cpu: gpunet.Attachment, ends: Pair) -> None:
    near, far = ends
    queue = gpunet.Queue(cpu)
    first, second = Bytes(4), Bytes(4)
    kept = [weakref.ref(first), weakref.ref(second)]
    queue.recv(near, first)
    queue.finish(queue.start_recv(near, second))
    del first, second
    gc.collect()
    assert all(reference() is not None for reference in kept)
    with pytest.raises(TimeoutError, match="its operations go on"):
        queue.synchronize(timeout=0.01)
    with pytest.raises(BlockingIOError):
        queue.synchronize(timeout=0)
    with pytest.raises(BufferError):
        kept[0]().append(0)  # type: ignore[union-attr]
    with gpunet.Queue(cpu) as other:
        other.send(far, b"one.")
        other.send(far, b"two.")
    queue.synchronize(timeout=10)
    assert [reference() for reference in kept] == [None, None]


def test_a_queue_that_is_dropped_does_what_was_enqueued(cpu: gpunet.Attachment, ends: Pair) -> None:
    near, far = ends
    into, started = Bytes(4), Bytes(4)
    queue = gpunet.Queue(cpu)
    queue.recv(near, into)
    queue.start_recv(near, started)
    reference, view = weakref.ref(into), memoryview(into)
    del queue, into
    gc.collect()
    assert reference() is not None
    with gpunet.Queue(cpu) as other:
        other.send(far, b"onlytwo.")
    while bytes(started) != b"two." or bytes(view) != b"only":
        assert not threading.Event().wait(0.001)
    view.release()
    while reference() is not None:
        assert not threading.Event().wait(0.001)


def test_the_first_failure_stays(cpu: gpunet.Attachment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = cpu.connect(server.getsockname(), timeout=10, transport="tcp")
        theirs, _ = server.accept()
        queue = gpunet.Queue(cpu)
        queue.send(near, b"request")
        into, after = bytearray(8), bytearray(1)
        queue.recv(near, into)
        queue.recv(near, after)
        assert theirs.recv(7, socket.MSG_WAITALL) == b"request"
        theirs.sendall(b"short")
        theirs.close()
        with pytest.raises(OSError) as failed:
            queue.synchronize(timeout=10)
        assert "operation 1 of the queue failed" in str(failed.value)
        assert (failed.value.operation, failed.value.errno) == (1, errno.ENODATA)  # type: ignore[attr-defined]
        outcome = queue.outcome()
        assert outcome["failure"]["operation"] == 1 and outcome["failure"]["errno"] == failed.value.errno
        assert outcome["failure"]["bytes"] == failed.value.bytes == 0  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="operation 1"):
            queue.notify().wait(10)
        with pytest.raises(OSError, match="operation 1"):
            with queue:
                pass
        assert queue.closed
        with pytest.raises(OSError, match="the queue is closed"):
            queue.send(near, b"more")


def test_what_cannot_be_sent(cpu: gpunet.Attachment, net: gpunet.Proxy, ends: Pair) -> None:
    near, _ = ends
    with gpunet.Queue(cpu) as queue, net.attach_cpu() as other:
        objects = (ctypes.py_object * 2)()
        for data, kind, text in (
            (memoryview(b"123456")[::2], BufferError, "not C-contiguous"),
            ("text", TypeError, r"text.encode\(\)"),
            (7, TypeError, "an array is an object with a buffer"),
            (objects, TypeError, "Python objects or pointers"),
            (b"", ValueError, "at least 1 byte"),
            (CudaArray(), ValueError, "is GPU memory, and the queue is of the CPU device"),
            (CudaArray(strides=(8,)), BufferError, "not C-contiguous"),
            (CudaArray(mask=CudaArray()), TypeError, "has a mask"),
            (CudaArray(typestr="|O8"), TypeError, "Python objects"),
            (CudaArray(shape=None), TypeError, "no usable shape"),
            (CudaArray(data=(0, False)), TypeError, "no usable data"),
        ):
            with pytest.raises(kind, match=text):
                queue.send(near, data)  # type: ignore[arg-type]
        for into, text in ((b"1234", "is read-only"), (CudaArray(data=(4096, True)), "is read-only")):
            with pytest.raises(BufferError, match=text):
                queue.recv(near, into)
        with pytest.raises(ValueError, match="the socket is of another attachment"):
            gpunet.Queue(other).send(near, b"1")
        with pytest.raises(TypeError, match="sockets of its device"):
            queue.send(7, b"1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="not started on this queue"):
            gpunet.Queue(cpu).finish(queue.start_send(near, b"1"))
        with pytest.raises(ValueError, match="has no streams"):
            gpunet.Queue(cpu, 7)
        with pytest.raises(ValueError, match="has no streams"):
            gpunet.Queue(cpu, depth=2)
        second = gpunet.Queue(cpu)
        queue.recv(near, bytearray(1))
        with pytest.raises(OSError, match="use one queue alone for a direction") as busy:
            second.recv(near, bytearray(1))
        assert busy.value.errno == errno.EBUSY
        near.close()
        with pytest.raises(OSError, match="the socket is closed"):
            second.send(near, b"1")
        ends[1].close()
        with pytest.raises(OSError, match="failed"):
            queue.synchronize(timeout=10)
        queue.close()
    with pytest.raises(OSError, match="the attachment is closed"):
        gpunet.Queue(other)


def test_kernels_get_a_direction_back(cpu: gpunet.Attachment, ends: Pair) -> None:
    from gpunet import cpu as kernels

    near, far = ends
    results: list[int] = []

    def block(net: int, number: int) -> None:
        data = bytearray(5)
        results.append(kernels.send(net, number, b"hello", timeout_ns=0))
        results.append(kernels.recv(net, number, data, timeout_ns=10**10))

    with gpunet.Queue(cpu) as queue:
        queue.send(near, b"first")
        queue.recv(far, bytearray(5))
        queue.synchronize(10)
        with cpu.launch(leftover="keep") as net:
            kernels.run(net, lambda net, number: results.append(kernels.send(net, number, b"1")), near.device_number())
        assert results == [-errno.EALREADY]
        near.give_back()
        far.give_back()
        queue.send(far, b"reply")
        queue.synchronize(10)
        with cpu.launch(leftover="keep") as net:
            kernels.run(net, block, near.device_number())
        assert results == [-errno.EALREADY, 5, 5]
        into = bytearray(5)
        queue.recv(far, into)
        queue.synchronize(10)
        assert into == b"hello"


def test_tasks_wait_for_a_queue(cpu: gpunet.Attachment, ends: Pair) -> None:
    near, far = ends

    async def main() -> None:
        queue, into = gpunet.Queue(cpu), bytearray(4)
        queue.recv(near, into)
        done = queue.notify()
        waiting = [asyncio.ensure_future(done) for _ in range(2)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(done, 0.01)
        assert not done.done()
        with gpunet.Queue(cpu) as other:
            other.send(far, b"text")
        await asyncio.gather(*waiting)
        await done
        assert done.done() and into == b"text"
        queue.recv(near, into)
        far.close()
        with pytest.raises(OSError, match="operation 2"):
            await queue.notify()

    asyncio.run(main())


def test_the_end_of_an_attachment_ends_its_queues(net: gpunet.Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cpu = net.attach_cpu()
        near = cpu.connect(server.getsockname(), timeout=10, transport="tcp", linger=0.1)
        queue = gpunet.Queue(cpu)
        queue.recv(near, bytearray(4))
        waiting = in_thread(queue.synchronize)
        cpu.close()
        with pytest.raises(OSError) as ended:
            waiting()
        assert ended.value.errno in (errno.ECANCELED, errno.ECONNRESET, errno.EBADF, errno.ENETDOWN), ended.value


PROGRAM = """
import socket, sys
import gpunet
net = gpunet.embed(sockets=16, shared_rings=1 << 20, linger_s=1)
server = socket.create_server(("127.0.0.1", 0))
cpu = net.attach_cpu()
near = cpu.connect(server.getsockname(), timeout=10, transport="tcp", linger=0.1)
queue = gpunet.Queue(cpu)
queue.recv(near, bytearray(4))
try:
    print("waits", flush=True)
    queue.synchronize()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait_and_the_interpreter_an_operation() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout and program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        assert program.wait(30) == 0


def test_a_tensor_keeps_memory(cpu: gpunet.Attachment) -> None:
    memory = cpu.alloc(8)
    reference = weakref.ref(memory)
    assert memory.__dlpack_device__() == (1, 0)
    for capsule in (memory.__dlpack__(), memory.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False)):
        assert "dltensor" in repr(capsule)
    with pytest.raises(BufferError, match="never copied"):
        memory.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="on one device"):
        memory.__dlpack__(dl_device=(2, 0))
    del memory
    assert reference() is not None
    del capsule
    gc.collect()
    assert reference() is None
