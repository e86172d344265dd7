"""Channels: whole arrays between two processes and two threads, what cannot be sent, and how transfers end too soon."""

from __future__ import annotations

import array
import asyncio
import errno
import gc
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from conftest import in_thread

import gpunet
from gpunet.channel import _all_passed, send_safetensors

MB = 1 << 20


@contextmanager
def ends(**options: Any) -> Iterator[tuple[gpunet.Channel, gpunet.Channel]]:
    """The two ends of a channel within this process."""
    with gpunet.Channel.listen(("127.0.0.1", 0), **options) as listener:
        accepted = in_thread(lambda: listener.accept(timeout=10))
        client = gpunet.Channel.connect(listener.getsockname(), **options)
        with client, accepted() as server:
            yield client, server


@pytest.fixture(params=[True, False])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[gpunet.Channel, gpunet.Channel]]:
    """By one copy where that is possible, and by connections."""
    with ends(rendezvous=request.param, streams=2) as both:
        yield both


def until(condition: Any) -> None:
    while not condition():
        threading.Event().wait(0.001)


def noted(seen: list[tuple[int, int]], moved: int, total: int) -> None:
    seen.append((moved, total))


class Bytes(bytearray):
    """An array that can be watched."""


class Tensor:
    """What has no buffer but DLPack, as a torch tensor."""

    def __init__(self, memory: gpunet.Symmetric | gpunet.Memory) -> None:
        self._memory = memory

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._memory.__dlpack__(**{**keywords, "stream": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


def test_arrays_of_every_kind(pair: tuple[gpunet.Channel, gpunet.Channel], net: gpunet.Proxy) -> None:
    near, far = pair
    numbers = array.array("d", range(100_000))
    view = memoryview(numbers).cast("B").cast("d", (100, 1000))
    with net.attach_cpu() as cpu:
        memory = cpu.alloc(MB)
        memory.write(bytes(range(256)) * 4096)
        for sent in (b"few", bytearray(MB), numbers, view, memory, Tensor(memory), b"", memoryview(b"x").cast("B", ())):
            sending = near.send_async(sent)
            got = far.recv(to="memoryview", timeout=20)
            outcome = sending.wait(20)
            expected = memoryview(memory if isinstance(sent, Tensor) else sent)
            assert (got.shape, got.format, got.tobytes()) == (expected.shape, expected.format, expected.tobytes())
            assert outcome.nbytes == expected.nbytes and sending.done() and sending.outcome == outcome
            assert sending.progress == (outcome.nbytes, outcome.nbytes)


def test_into_arrays_of_the_receiver(pair: tuple[gpunet.Channel, gpunet.Channel]) -> None:
    near, far = pair
    names: dict[str, Any] = {"weight": array.array("f", [1.5] * 500_000), "bias": array.array("q", [7])}
    sending = near.send_async(names, checksum=True)
    into: dict[str, Any] = {"bias": array.array("q", [0]), "weight": array.array("f", bytes(2_000_000))}
    outcome = far.recv_into(into, timeout=20)
    assert into == names and sending.wait(20) == outcome and not outcome.copied
    assert outcome.why_not_copied in ("a checksum was asked for", "it is switched off")
    sending = near.send_async(names["weight"], name="weight")
    assert far.recv(to="memoryview", timeout=20)["weight"] == names["weight"]
    sending.wait(20)
    sending = near.send_async({})
    assert far.recv() == {} and sending.wait(20).nbytes == 0


def test_how_it_went_is_told() -> None:
    for rendezvous, why in ((True, None), (False, "it is switched off")):
        with ends(rendezvous=rendezvous, streams=3) as (near, far):
            assert near.why_not_local == far.why_not_local == why
            seen: list[tuple[int, int]] = []
            sending = near.send_async(bytearray(8 * MB), progress=partial(noted, seen))
            far.recv_into(bytearray(8 * MB), progress=True)
            outcome = sending.wait(20)
            assert outcome.copied == rendezvous and outcome.why_not_copied == why
            assert outcome.via == "one copy" if rendezvous else outcome.via.startswith("3 connections (")
            assert seen[-1] == (8 * MB, 8 * MB) and seen == sorted(set(seen))


def test_what_does_not_fit_is_refused_and_the_channel_goes_on() -> None:
    with ends() as (near, far):
        for sent, into in (
            (bytearray(100), bytearray(99)),
            (array.array("f", [1]), array.array("i", [1])),
            (bytearray(MB), memoryview(bytearray(MB)).cast("B", (1024, 1024))),
            ({"a": b"1"}, {"b": bytearray(1)}),
            ({"a": b"1", "b": b"2"}, {"a": bytearray(1)}),
        ):
            sending = near.send_async(sent)
            with pytest.raises(OSError) as mismatch:
                far.recv_into(into, timeout=20)
            assert mismatch.value.errno == errno.EMSGSIZE
            with pytest.raises(OSError, match="the other end refused") as refused:
                sending.wait(20)
            assert refused.value.errno == errno.EMSGSIZE
        sending = near.send_async(bytearray(100))
        with pytest.raises(ZeroDivisionError):
            far.recv(to=lambda name, dtype, shape: 1 // 0, timeout=20)
        with pytest.raises(OSError, match="it is not received"):
            sending.wait(20)
        sending = near.send_async(b"right")
        assert far.recv(to="memoryview", timeout=20) == b"right"
        sending.wait(20)


def test_a_function_that_makes_arrays_is_called_by_one_thread_of_python() -> None:
    """PyTorch remembers the thread state in which it is loaded: with another one it waits for itself."""
    found, own = [], threading.local()

    def make(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        found.append(getattr(own, "calls", 0))
        own.calls = len(found)
        return bytearray(shape[0])

    with ends() as (client, server):
        for size in (1, 1000, 2 * MB):
            sending = client.send_async(bytes(size))
            assert len(server.recv(to=make, timeout=10)) == size
            sending.wait(10)
    assert found == [0, 1, 2]


def test_more_than_is_allowed_is_not_allocated() -> None:
    with ends(most=MB) as (near, far):
        sending = near.send_async(bytearray(MB + 1))
        with pytest.raises(OSError, match="1048576 are allowed"):
            far.recv(to=lambda name, dtype, shape: pytest.fail("it is made"), timeout=20)
        with pytest.raises(OSError) as refused:
            sending.wait(20)
        assert refused.value.errno == errno.EFBIG


class CudaArray:
    def __init__(self, **changed: Any) -> None:
        shape = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**shape, **changed}


def test_what_cannot_be_sent() -> None:
    with ends() as (near, _):
        shared = bytearray(10)
        wrong: list[tuple[Any, type[Exception], str]] = [
            (memoryview(b"123456")[::2], BufferError, "not C-contiguous; pass a contiguous copy"),
            ("text", TypeError, r"text.encode\(\)"),
            (7, TypeError, "an array is an object with a buffer"),
            ([b"1", b"2"], TypeError, "several arrays are a dict by their names"),
            ({1: b"1"}, TypeError, "a text that is not empty"),
            ({"": b"1"}, TypeError, "a text that is not empty"),
            ({"a": 7}, TypeError, "an array is an object"),
            ({"a" * 5000: b"1"}, ValueError, "name"),
            (CudaArray(strides=(8,)), BufferError, "not C-contiguous"),
            (CudaArray(mask=CudaArray()), TypeError, "has a mask"),
            (CudaArray(typestr="|O8"), TypeError, "Python objects"),
        ]
        for arrays, kind, text in wrong:
            with pytest.raises(kind, match=text):
                near.send(arrays)
        with pytest.raises(BufferError, match="is read-only"):
            near.recv_into(b"1234")
        with pytest.raises(ValueError, match="share memory"):
            near.recv_into({"a": memoryview(shared)[:6], "b": memoryview(shared)[5:]})
        for call in (
            lambda: near.send(b"1", timeout=-1),
            lambda: near.send({"a": b"1"}, name="b"),
            lambda: near.recv(to="nothing"),
            lambda: near.recv(to="memoryview", device=0),
            lambda: gpunet.Channel.connect(("127.0.0.1", 1), streams=65),
            lambda: gpunet.Channel.listen(("127.0.0.1", 0), piece=1),
        ):
            with pytest.raises(ValueError):
                call()
        for call in (lambda: near.send(b"1", progress="yes"), lambda: near.recv(device=object())):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                call()


def test_no_channel_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with pytest.raises(TimeoutError):
            gpunet.Channel.connect(address, timeout=0.1)
    with pytest.raises(ConnectionRefusedError, match=str(address[1])):
        gpunet.Channel.connect(address)
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        with pytest.raises(TimeoutError, match="nobody has opened a channel"):
            listener.accept(timeout=0.01)
        waiting = in_thread(listener.accept)
        with socket.create_connection(listener.getsockname()) as other:
            other.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
            assert b"gpunet" in other.recv(1000)
        listener.close()
        with pytest.raises(OSError, match="the listener is closed"):
            waiting()


def test_the_end_of_a_channel() -> None:
    with ends() as (near, far):
        waiting = in_thread(lambda: list(far))
        near.close()
        near.close()
        assert waiting() == [] and near.closed
        with pytest.raises(EOFError, match="the other end has closed"):
            far.recv_into(bytearray(1))
        with pytest.raises(OSError, match="the channel is closed") as closed:
            near.send(b"1")
        assert closed.value.errno == errno.EBADF
    with ends() as (near, far):
        sending = in_thread(lambda: near.send(bytearray(MB)))
        receiving = far.recv_async(to="memoryview")
        assert len(receiving.wait(20)) == MB
        sending()
        # Of those that wait, none is left.
        receiving = far.recv_async()
        with pytest.raises(TimeoutError, match="it goes on"):
            receiving.wait(0.01)
        with pytest.raises(BlockingIOError):
            receiving.wait(0)
        far.close()
        with pytest.raises(OSError) as given_up:
            receiving.wait(20)
        assert given_up.value.errno == errno.ECANCELED


def test_a_block_waits_for_its_sends() -> None:
    with ends() as (near, far):
        received = in_thread(lambda: [bytes(one) for one in far])
        with near:
            transfers = [near.send_async(bytes([number]) * 100_000) for number in range(10)]
        assert all(transfer.done() for transfer in transfers)
        assert received() == [bytes([number]) * 100_000 for number in range(10)]


def test_an_array_is_kept_until_its_transfer_is_over(pair: tuple[gpunet.Channel, gpunet.Channel]) -> None:
    near, far = pair
    data = Bytes(MB)
    reference = weakref.ref(data)
    sending = near.send_async(data)
    with pytest.raises(BufferError):
        data.append(0)
    del data
    gc.collect()
    assert reference() is not None
    far.recv(to="memoryview", timeout=20)
    sending.wait(20)
    assert reference() is None


def test_what_has_not_begun_is_given_up_without_harm() -> None:
    with ends() as (near, far):
        with pytest.raises(TimeoutError, match="the channel goes on"):
            far.recv(timeout=0.01)
        receiving, into = far.recv_async(), Bytes(1)
        second = far.recv_into_async(into)
        reference = weakref.ref(into)
        del into
        assert second.cancel() and reference() is None and not second.cancel()
        with pytest.raises(OSError) as given_up:
            second.wait(20)
        assert given_up.value.errno == errno.ECANCELED
        assert receiving.cancel()
        first, second = near.send_async(bytearray(MB)), near.send_async(bytearray(MB))
        with pytest.raises(TimeoutError, match="the channel goes on"):
            near.send(b"late", timeout=0.01)
        assert second.cancel()
        assert len(far.recv(to="memoryview", timeout=20)) == MB
        first.wait(20)
        last = near.send_async(b"last")
        assert far.recv(to="memoryview", timeout=20) == b"last"
        last.wait(20)


def test_what_has_begun_ends_the_channel() -> None:
    with ends() as (near, far):
        # Nobody receives it: its header is under way.
        sending = near.send_async(bytearray(MB))
        until(lambda: sending.progress == (0, MB))
        with pytest.raises(TimeoutError):
            sending.wait(0.05)
        assert sending.cancel()
        with pytest.raises(OSError) as given_up:
            sending.wait(20)
        assert given_up.value.errno == errno.ECANCELED
        with pytest.raises(OSError) as ended:
            far.recv(timeout=20)
        assert ended.value.errno in (errno.ECONNRESET, errno.EPIPE)
        with pytest.raises(OSError, match="the channel is broken"):
            near.send(b"1")
    with ends() as (near, far):
        begun = False
        while not begun:
            with pytest.raises(TimeoutError) as late:
                near.send(bytearray(MB), timeout=0.05)
            # On a busy machine the time may be over before it has begun; then the channel goes on.
            begun = hasattr(late.value, "moved")
        assert (late.value.moved, late.value.total) == (0, MB)  # type: ignore[attr-defined]


def test_a_callback_that_fails_ends_the_transfer() -> None:
    with ends(rendezvous=False) as (near, far):
        receiving = far.recv_into_async(bytearray(64 * MB))
        with pytest.raises(ZeroDivisionError):
            near.send(bytearray(64 * MB), progress=lambda moved, total: 1 // 0)
        with pytest.raises(OSError):
            receiving.wait(20)


def test_tasks_await_transfers() -> None:
    async def main() -> None:
        with ends() as (near, far):
            into = bytearray(MB)
            outcomes = await asyncio.gather(near.send_async(bytes(MB)), far.recv_into_async(into))
            assert outcomes[0] == outcomes[1]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await far.recv_async()
            sent, got = await asyncio.gather(near.send_async(b"1"), far.recv_async(to="memoryview"))
            assert got == b"1" and sent.nbytes == 1
            sending = near.send_async(bytearray(MB))
            task = asyncio.ensure_future(sending)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(OSError):
                await far.recv_async()

    asyncio.run(main())


def test_threads_share_a_channel() -> None:
    with ends() as (near, far):
        received = in_thread(lambda: [bytes(one) for one in far])

        def send_some(number: int) -> None:
            for length in (1, 1000, 200_000):
                near.send(bytes([number]) * length)

        for wait in [in_thread(lambda number=number: send_some(number)) for number in range(8)]:  # type: ignore[misc]
            wait()
        near.close()
        sizes = sorted((one[0], len(one)) for one in received())
        assert sizes == [(number, length) for number in range(8) for length in (1, 1000, 200_000)]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_nothing_is_left() -> None:
    def once() -> None:
        with ends(streams=4) as (near, far):
            near_task, far_task = near.send_async(bytes(MB)), far.recv_async(to="memoryview")
            near_task.fileno()
            far_task.wait(20)
            near_task.wait(20)
        with ends() as (near, far):
            near.send_async(bytes(MB))
            far.recv_into_async(bytearray(1))
            del near, far

    once()
    gc.collect()
    before = descriptors()
    for _ in range(10):
        once()
    gc.collect()
    assert descriptors() <= before
    until(lambda: threads() < 20)


PEER = """
import sys, gpunet
with gpunet.Channel.connect(("127.0.0.1", int(sys.argv[1])), rendezvous=bool(int(sys.argv[2]))) as channel:
    print("open", flush=True)
    for arrays in channel:
        print(len(arrays), flush=True)
"""


@contextmanager
def peer(rendezvous: bool) -> Iterator[tuple[gpunet.Channel, subprocess.Popen[str]]]:
    """A channel to another process."""
    with gpunet.Channel.listen(("127.0.0.1", 0), rendezvous=rendezvous, streams=2) as listener:
        command = [sys.executable, "-c", PEER, str(listener.getsockname()[1]), str(int(rendezvous))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                with listener.accept(timeout=30) as channel:
                    assert process.stdout and process.stdout.readline() == "open\n"
                    yield channel, process
            finally:
                process.kill()


@pytest.mark.parametrize("rendezvous", [True, False])
def test_another_process(rendezvous: bool) -> None:
    with peer(rendezvous) as (channel, process):
        data = os.urandom(4 * MB)
        outcome = channel.send(data, timeout=30)
        assert outcome.nbytes == len(data)
        channel.close()
        assert process.stdout and process.stdout.read() == f"{len(data)}\n" and process.wait(30) == 0


@pytest.mark.parametrize("rendezvous", [True, False])
def test_a_peer_that_is_killed(rendezvous: bool) -> None:
    with peer(rendezvous) as (channel, process):
        process.send_signal(signal.SIGSTOP)
        data = Bytes(64 * MB)
        reference = weakref.ref(data)
        sending, waiting = channel.send_async(data), channel.recv_async()
        del data
        until(lambda: sending.progress == (0, 64 * MB))
        assert reference() is not None
        process.kill()
        for transfer in (sending, waiting):
            with pytest.raises(OSError) as died:
                transfer.wait(20)
            assert died.value.errno in (errno.ECONNRESET, errno.EPIPE), died.value
        assert reference() is None


def test_what_nobody_has_is_given_up() -> None:
    """As when Ctrl-C comes after the call has begun it, and before its caller has it."""
    with ends() as (sender, _):
        sender._raw.send(_all_passed(bytearray(MB), "", None), False, None, None, owned=True)
        sender._raw.finish_sends()  # the other end never receives it
    with ends() as (sender, receiver):
        receiver._raw.recv_into(_all_passed(bytearray(4), "", None), None, None, owned=True)
        sent = sender.send_async(b"next")
        assert bytes(receiver.recv(to="memoryview")) == b"next"
        sent.wait(30)


INTERRUPTED = """
import sys, gpunet
with gpunet.Channel.connect(("127.0.0.1", int(sys.argv[1]))) as channel:
    for call in (channel.recv, lambda: channel.send(bytearray(1 << 20))):
        try:
            print("waits", flush=True)
            call()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait() -> None:
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", INTERRUPTED, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, listener.accept(30) as channel:
            assert process.stdout
            for _ in range(2):
                assert process.stdout.readline() == "waits\n"
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
            assert process.wait(30) == 0
            # EOFError: the send had not begun.
            with pytest.raises((ConnectionResetError, BrokenPipeError, EOFError)):
                channel.recv_into(bytearray(1 << 20))


def test_a_child_of_fork_has_no_channel() -> None:
    with ends() as (near, far):
        child = os.fork()
        if child == 0:
            try:
                near.send(b"1")
            except OSError as error:
                os._exit(0 if error.errno == errno.ECHILD else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sending = near.send_async(b"1")
        assert far.recv(to="memoryview", timeout=20) == b"1"
        sending.wait(20)


def socket_pairs(net: gpunet.Proxy, count: int) -> tuple[list[gpunet.Socket], list[gpunet.Socket]]:
    near, far = [], []
    with net.listen(("127.0.0.1", 0)) as listener:
        for _ in range(count):
            accepted = in_thread(lambda: listener.accept()[0])
            near.append(net.connect(listener.getsockname()))
            far.append(accepted())
    return near, far


@pytest.mark.parametrize("rendezvous", [True, False])
def test_a_channel_of_sockets_that_are_there_already(net: gpunet.Proxy, rendezvous: bool) -> None:
    near, far = socket_pairs(net, 3)
    near[0].sendall(b"a client's number")
    assert far[0].recv_exact(17) == b"a client's number"
    accepted = in_thread(lambda: gpunet.Channel.of_streams(reversed(far), "accepts", rendezvous=rendezvous))
    with gpunet.Channel.of_streams(near, "connects", rendezvous=rendezvous) as client, accepted() as server:
        assert (client.why_not_local is None) == rendezvous
        for size in (0, 1000, 3 * MB + 1):
            sending = client.send_async(os.urandom(size), checksum=True)
            got = server.recv(to="memoryview", timeout=20)
            back = bytearray(size)
            returning = server.send_async(got)
            client.recv_into(back, timeout=20)
            assert back == got
            sending.wait(20), returning.wait(20)
        # They are the channel's now.
        for taken in near + far:
            assert taken.closed
            with pytest.raises(OSError, match="closed") as closed:
                taken.send(b"x")
            assert closed.value.errno == errno.EBADF
    # What was not closed by the other end ends with it.
    assert client.closed and server.closed


def test_sockets_of_which_no_channel_is_made(net: gpunet.Proxy) -> None:
    near, far = socket_pairs(net, 2)
    of_streams: Any = gpunet.Channel.of_streams
    for sockets, side, kind, text in (
        (near, "listens", ValueError, "one end 'connects' and the other one 'accepts', and none is 'listens'"),
        (near[:1], "connects", ValueError, "2 to 65 sockets, one of which carries answers, and not of 1"),
        ([near[0]] * 2, "connects", ValueError, "a socket is there twice"),
        ([socket.socket(), near[0]], "connects", TypeError, "made of sockets of a Proxy, not of socket"),
    ):
        with pytest.raises(kind, match=text):
            of_streams(sockets, side)
    with near[1].makefile("rb"), pytest.raises(ValueError, match="makefile"):
        of_streams(near, "connects")
    # They are as they were.
    near[0].sendall(b"x")
    assert far[0].recv(1) == b"x"
    near[1].close()
    with pytest.raises(OSError) as closed:
        of_streams(near, "connects")
    assert closed.value.errno == errno.EBADF and not near[0].closed
    near[0].close()

    # The other end is none, or gone.
    near, far = socket_pairs(net, 2)
    for theirs in far:
        theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(256))
    with pytest.raises(OSError, match="for channels of gpunet") as foreign:
        of_streams(near, "connects", timeout=20)
    assert foreign.value.errno == errno.EPROTO and all(taken.closed for taken in near)
    near, far = socket_pairs(net, 2)
    for theirs in far:
        theirs.close()
    with pytest.raises(OSError) as gone:
        of_streams(near, "accepts", timeout=20)
    assert gone.value.errno == errno.ECONNRESET


def safetensors(path: pathlib.Path, header: Any, data: bytes) -> pathlib.Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_a_safetensors_file(tmp_path: pathlib.Path) -> None:
    header: dict[str, Any] = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 50_000], "data_offsets": [0, 400_000]},
        "b": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [400_000, 400_003]},
        "c": {"dtype": "I64", "shape": [], "data_offsets": [400_003, 400_011]},
        "d": {"dtype": "F16", "shape": [0, 7], "data_offsets": [400_011, 400_011]},
    }
    data = os.urandom(400_011)
    path = safetensors(tmp_path / "good", header, data)
    made: dict[str, tuple[str, tuple[int, ...], bytearray]] = {}
    with ends() as (near, far):
        sending = in_thread(lambda: send_safetensors(near, path))

        def make(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
            begin, end = header[name]["data_offsets"]
            made[name] = (dtype, shape, bytearray(end - begin))
            return made[name][2]

        far.recv(to=make, timeout=20)
        assert sending().nbytes == len(data)
        assert b"".join(bytes(one) for _, _, one in made.values()) == data
        assert {name: (dtype, shape) for name, (dtype, shape, _) in made.items()} == {
            "a": ("float32", (2, 50_000)),
            "b": ("float8_e4m3fn", (3,)),
            "c": ("int64", ()),
            "d": ("float16", (0, 7)),
        }
        for changed, text in (
            ({"dtype": "F99", "shape": [1], "data_offsets": [0, 1]}, "no safetensors file"),
            ({"dtype": "F32", "shape": [1], "data_offsets": [0, 500_000]}, "lies outside"),
            ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "memory has 4"),
            ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "negative|convert"),
        ):
            with pytest.raises((ValueError, OverflowError), match=text):
                send_safetensors(near, safetensors(tmp_path / "bad", {"a": changed}, data))
        (tmp_path / "short").write_bytes(b"1234")
        with pytest.raises(ValueError, match="too short"):
            send_safetensors(near, tmp_path / "short")
