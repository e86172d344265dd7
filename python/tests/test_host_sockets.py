"""Blocking sockets: they behave as `socket.socket` does, over tcp and peer."""

from __future__ import annotations

import array
import errno
import hashlib
import mmap
import os
import pathlib
import random
import select
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from conftest import in_thread, no_thread_is_left

import gpunet

if TYPE_CHECKING:
    from gpunet._native import Transport

Pair = tuple[gpunet.Socket, gpunet.Socket]


def test_bytes_arrive_as_they_were_sent(pair: Pair) -> None:
    client, server = pair
    data = random.Random(1).randbytes(3_000_001)

    def echo() -> None:
        while some := server.recv(100_000):
            server.sendall(some)
        server.shutdown(socket.SHUT_WR)

    echoed = in_thread(echo)
    digest = in_thread(lambda: hashlib.sha256(client.makefile("rb").read()).digest())
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    assert digest() == hashlib.sha256(data).digest()
    echoed()


def test_a_program_of_the_system_is_the_other_end(net: gpunet.Proxy) -> None:
    with net.listen(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as theirs:
            ours, address = listener.accept()
            assert address == theirs.getsockname() == ours.getpeername()
            with ours:
                assert ours.transport == "tcp"
                theirs.sendall(b"question")
                assert ours.recv_exact(8) == b"question"
                ours.sendall(b"answer")
                ours.shutdown(socket.SHUT_WR)
                assert theirs.makefile("rb").read() == b"answer"
    with socket.create_server(("127.0.0.1", 0)) as server:
        with net.connect(server.getsockname(), timeout=10) as ours:
            theirs, _ = server.accept()
            with theirs:
                ours.sendall(b"to a listener of the system")
                ours.close()
                assert theirs.makefile("rb").read() == b"to a listener of the system"


def test_buffers_of_every_kind_are_sent_and_filled(pair: Pair) -> None:
    client, server = pair
    for data in (
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"a view")[2:],
        array.array("d", [1.5, 2.5]),
        memoryview(array.array("i", range(6))).cast("B").cast("i", (2, 3)),
        b"",
    ):
        client.sendall(data)
        expected = bytes(memoryview(data).cast("B"))
        assert server.recv_exact(len(expected)) == expected
    client.sendall(bytes(range(32)))
    numbers = array.array("d", [0.0] * 4)
    assert server.recv_into(numbers, 24, socket.MSG_WAITALL) == 24
    view = memoryview(bytearray(8))
    assert server.recv_into(view) == 8
    assert numbers.tobytes()[:24] + bytes(view) == bytes(range(32))
    assert server.recv_into(bytearray(), 0) == 0


def test_flags(pair: Pair) -> None:
    client, server = pair
    with pytest.raises(BlockingIOError):
        server.recv(1, socket.MSG_DONTWAIT)
    client.sendall(b"abcd")
    assert server.recv(2, socket.MSG_PEEK | socket.MSG_WAITALL) == b"ab"
    assert server.recv(4, socket.MSG_WAITALL) == b"abcd"
    with pytest.raises(ValueError, match="unknown flags"):
        client.send(b"x", socket.MSG_OOB)


def test_timeouts(net: gpunet.Proxy, pair: Pair) -> None:
    client, server = pair
    assert client.gettimeout() == client.timeout == 10
    server.settimeout(0.01)
    with pytest.raises(TimeoutError):
        server.recv(1)
    server.setblocking(False)
    with pytest.raises(BlockingIOError) as refused:
        server.recv(1)
    assert refused.value.errno == errno.EAGAIN and not server.getblocking()
    # Nobody reads: the rings are full some time.
    client.settimeout(0.05)
    with pytest.raises(TimeoutError, match="no room after"):
        client.sendall(bytes(64 << 20))
    with pytest.raises(ValueError, match="not negative"):
        client.settimeout(-1)
    with net.listen(("127.0.0.1", 0), timeout=0.01) as listener:
        with pytest.raises(TimeoutError):
            listener.accept()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        # What it does not lose by that.
        with socket.create_connection(listener.getsockname()):
            listener.settimeout(10)
            listener.accept()[0].close()


def test_numbers_are_flags_as_with_the_system(net: gpunet.Proxy) -> None:
    with net.listen(("127.0.0.1", 0), keepalive=1, v6only=0) as listener:  # type: ignore[arg-type]
        listener.setblocking(0)  # type: ignore[arg-type]
        with pytest.raises(BlockingIOError):
            listener.accept()
        with net.connect(listener.getsockname(), transport="tcp", nodelay=1) as client:  # type: ignore[arg-type]
            client.setblocking(1)  # type: ignore[arg-type]
            assert client.gettimeout() is None and client.getblocking()


def test_a_peer_stream_that_nobody_accepts_times_out(net: gpunet.Proxy) -> None:
    with net.listen(("127.0.0.1", 0), transport="peer") as listener:
        with pytest.raises(TimeoutError, match="no connection to"):
            net.connect(listener.getsockname(), transport="peer", timeout=0.05)
        accepted = in_thread(lambda: listener.accept()[0])
        with net.connect(listener.getsockname(), transport="peer", timeout=10) as client, accepted() as server:
            client.sendall(b"the second")
            assert server.recv_exact(10) == b"the second"


def test_the_end_and_a_reset(net: gpunet.Proxy, transport: Transport) -> None:
    with net.listen(("127.0.0.1", 0), transport=transport, linger=0) as listener:
        for close_well in (True, False):
            accepted = in_thread(lambda: listener.accept()[0])
            client = net.connect(listener.getsockname(), transport=transport, timeout=10)
            server = accepted()
            client.settimeout(10)
            if close_well:
                server.sendall(b"last")
                server.shutdown(socket.SHUT_WR)
                assert client.recv_exact(4) == b"last"
                assert client.recv(1) == b"" == client.recv(1)
                with pytest.raises(EOFError) as ended:
                    client.recv_exact(3)
                assert ended.value.partial == b""  # type: ignore[attr-defined]
                with pytest.raises(BrokenPipeError):
                    server.send(b"x")
            else:
                server.close()
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
            client.close()
            server.close()


def test_recv_exact_tells_an_end_from_a_timeout_and_from_a_reset(net: gpunet.Proxy, transport: Transport) -> None:
    with net.listen(("127.0.0.1", 0), transport=transport, linger=0) as listener:
        accepted = in_thread(lambda: listener.accept()[0])
        client = net.connect(listener.getsockname(), transport=transport, timeout=10)
        server = accepted()
    # The time is over: what came stays.
    server.sendall(b"abc")
    client.settimeout(0.02)
    with pytest.raises(TimeoutError, match="3 of 10 bytes have come"):
        while select.select([client.fileno()], [], [], 10)[0]:
            client.recv_exact(10)
    assert select.select([client.fileno()], [], [], 0)[0], "the descriptor does not tell of them"
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv_exact(10)
    assert client.recv(2, socket.MSG_PEEK) == b"ab"
    assert client.recv(1) == b"a"
    server.sendall(b"d")
    client.settimeout(10)
    room = bytearray(3)
    assert client.recv_into(room, 0, socket.MSG_WAITALL) == 3 and room == b"bcd"
    # It is reset: so too.
    server.sendall(b"last")
    assert select.select([client.fileno()], [], [], 10)[0]
    waiting = in_thread(lambda: client.recv_exact(10))
    while select.select([client.fileno()], [], [], 0)[0]:
        time.sleep(0.001)
    server.close()
    with pytest.raises(ConnectionResetError):
        waiting()
    assert client.recv_exact(4) == b"last"
    with pytest.raises(ConnectionResetError):
        client.recv_exact(1)
    client.close()


def test_recv_exact_gives_what_came_before_the_end(pair: Pair) -> None:
    client, server = pair
    server.sendall(b"half")
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError, match="ended after 4 of 9") as ended:
        client.recv_exact(9)
    assert (ended.value.partial, ended.value.expected) == (b"half", 9)  # type: ignore[attr-defined]
    assert client.recv(1) == b""


def test_every_address_of_a_name_is_tried(net: gpunet.Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        found = [(socket.AF_INET6, *entry[1:], ("::1", port, 0, 0)), (*entry, ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **keywords: found)
        for address in (("two.test", port), f"two.test:{port}"):
            with net.connect(address, timeout=10, linger=0) as client:
                assert client.getpeername() == ("127.0.0.1", port)
        with net.attach_cpu() as device, device.connect(("two.test", port), timeout=10, linger=0) as number:
            assert number.getpeername() == ("127.0.0.1", port)
        server.close()
        with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{port}"):
            net.connect(("two.test", port), timeout=10)


def test_scopes_of_addresses(net: gpunet.Proxy) -> None:
    number = socket.if_nametoindex("lo")
    # Nobody has this address here: what is asked for stands in the error.
    for address in (("fe80::77%lo", 9), "[fe80::77%lo]:9", f"[fe80::77%{number}]:9", ("fe80::77", 9, 0, number)):
        with pytest.raises(OSError, match=rf"\[fe80::77%{number}\]:9: "):
            net.listen(address)
    with pytest.raises(ValueError, match="scope of an IPv6 address"):
        net.listen(("fe80::77", 9, 0, -1))
    with pytest.raises(OSError):
        net.listen(("fe80::77%no-such-card", 9))


def test_errors_are_those_of_the_system(net: gpunet.Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()
        with pytest.raises(OSError) as taken:
            net.listen(free)
        assert taken.value.errno == errno.EADDRINUSE and str(free[1]) in str(taken.value)
    with pytest.raises(ConnectionRefusedError):
        net.connect(free, transport="tcp")
    with pytest.raises(OSError) as nowhere:
        net.listen(("192.0.2.1", 0))
    assert nowhere.value.errno == errno.EADDRNOTAVAIL


def test_a_close_ends_the_calls_of_other_threads(net: gpunet.Proxy, pair: Pair) -> None:
    client, server = pair
    client.settimeout(None)
    waiting = in_thread(lambda: client.recv(1))
    listener = net.listen(("127.0.0.1", 0))
    accepting = in_thread(listener.accept)
    time.sleep(0.05)
    client.close()
    listener.close()
    for call in (waiting, accepting, lambda: client.send(b"x"), lambda: client.getsockname(), listener.accept):
        with pytest.raises(OSError) as closed:
            call()
        assert closed.value.errno == errno.EBADF and "closed" in str(closed.value)
    assert (client.closed, listener.closed, client.fileno(), listener.fileno()) == (True, True, -1, -1)
    assert server.recv(1) == b""
    client.close()


def test_a_shutdown_ends_the_receives_of_other_threads(pair: Pair) -> None:
    client, server = pair
    waiting = [in_thread(lambda: client.recv(1)) for _ in range(3)]
    time.sleep(0.05)
    client.shutdown(socket.SHUT_RD)
    assert [call() for call in waiting] == [b""] * 3
    # The other direction runs on.
    client.sendall(b"x")
    assert server.recv(1) == b"x"


def test_threads_that_wait_for_one_socket_all_get_their_bytes(pair: Pair) -> None:
    client, server = pair
    waiting = [in_thread(lambda: server.recv(1)) for _ in range(4)]
    for byte in b"abcd":
        time.sleep(0.01)
        client.send(bytes([byte]))
    assert sorted(call() for call in waiting) == [b"a", b"b", b"c", b"d"]


def test_a_wait_may_spin_first(pair: Pair) -> None:
    client, server = pair
    assert client.getspin() == 0
    for ours in pair:
        ours.setspin(0.001)
    assert client.getspin() == 0.001
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a spin is a number of seconds"):
            client.setspin(wrong)
    # Longer than the spin.
    waiting = in_thread(lambda: server.recv_exact(2))
    client.send(b"x")
    time.sleep(0.01)
    client.send(b"y")
    assert waiting() == b"xy"
    server.settimeout(0.01)
    server.setspin(10)
    with pytest.raises(TimeoutError):
        server.recv(1)


def test_files(pair: Pair) -> None:
    client, server = pair
    reader = server.makefile("r", encoding="utf-8")
    with client.makefile("w", encoding="utf-8", newline="\n") as writer:
        writer.write("eins\nzwei\n")
    # The file keeps the socket.
    server.close()
    assert (reader.readline(), reader.readline()) == ("eins\n", "zwei\n")
    client.close()
    assert reader.read() == ""
    reader.close()
    with pytest.raises(OSError):
        server.recv(1)


def test_select_tells_what_is_ready(net: gpunet.Proxy, pair: Pair) -> None:
    client, server = pair

    def ready(fd: int, seconds: float = 0) -> bool:
        return bool(select.select([fd], [], [], seconds)[0])

    assert not ready(server.fileno())
    client.send(b"x")
    assert ready(server.fileno(), 10) and ready(server.fileno())
    assert server.recv(5) == b"x"
    assert not ready(server.fileno())
    assert ready(client.write_fileno(), 10)
    client.shutdown(socket.SHUT_WR)
    assert ready(server.fileno(), 10)
    with net.listen(("127.0.0.1", 0)) as listener:
        assert not ready(listener.fileno())
        with socket.create_connection(listener.getsockname()):
            assert ready(listener.fileno(), 10)
            listener.accept()[0].close()


def test_many_threads_share_a_stream(pair: Pair) -> None:
    client, server = pair
    record = 64

    def send(number: int) -> None:
        for _ in range(200):
            client.sendall(bytes([number]) * record)

    senders = [in_thread(lambda number=number: send(number)) for number in range(4)]  # type: ignore[misc]
    counts = dict.fromkeys(range(4), 0)
    for _ in range(4 * 200):
        for byte in server.recv_exact(record):
            counts[byte] += 1
    for sender in senders:
        sender()
    assert counts == dict.fromkeys(range(4), 200 * record)


def test_waits_leave_the_interpreter_to_others(pair: Pair) -> None:
    client, server = pair
    waiting = in_thread(lambda: server.recv(1))
    # Were the GIL held, this thread would not get here.
    client.send(b"x")
    assert waiting() == b"x"


def test_addresses(net: gpunet.Proxy) -> None:
    for address in ("127.0.0.1:0", ("127.0.0.1", 0), ("localhost", 0), ("", 0)):
        with net.listen(address) as listener:
            assert listener.getsockname()[1] > 0
    with net.listen(("::1", 0, 0, 0)) as listener:
        assert listener.getsockname()[0] == "::1" and len(listener.getsockname()) == 4
        with net.connect(listener.getsockname(), transport="tcp", timeout=10) as client:
            assert client.getpeername() == listener.getsockname()
    for wrong in (None, 7, "nowhere", ("127.0.0.1",), (1, 2)):
        with pytest.raises(TypeError, match="an address is a tuple"):
            net.listen(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 to 65535"):
        net.listen(("127.0.0.1", 70_000))
    with pytest.raises(OSError):
        net.connect(("no-such-name.invalid", 1))


def test_misuse_says_what_to_do(net: gpunet.Proxy, pair: Pair) -> None:
    client, server = pair

    class OnGpu:
        __cuda_array_interface__ = None

    for wrong, kind, text in (
        ("text", TypeError, "encode it first"),
        (5, TypeError, "bytes-like object is required, not int"),
        (OnGpu(), TypeError, "GPU memory"),
        (memoryview(bytes(8))[::2], BufferError, "not C-contiguous"),
    ):
        with pytest.raises(kind, match=text):
            client.sendall(wrong)  # type: ignore[arg-type]
    with pytest.raises(BufferError, match="read-only"):
        server.recv_into(b"1234")
    view = memoryview(bytearray(8))
    view.release()
    with pytest.raises(ValueError, match="memoryview was released; pass the object itself"):
        client.send(view)
    with pytest.raises(ValueError, match="memoryview was released; pass the object itself"):
        server.recv_into(view)
    with mmap.mmap(-1, 4096) as mapped:
        pass
    with pytest.raises(ValueError, match="mmap closed"):
        client.send(mapped)
    for size in (0, 4095, (16 << 20) + 1, -1, 1 << 70):
        for ring in ({"send_ring": size}, {"recv_ring": size}):
            with pytest.raises(ValueError, match="a ring has 4096 to 16777216 bytes"):
                net.listen(("127.0.0.1", 0), **ring)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a ring's size is a number of bytes, or None, not float"):
        net.connect(("127.0.0.1", 1), send_ring=4096.0)  # type: ignore[arg-type]
    net.listen(("127.0.0.1", 0), send_ring=5000, recv_ring=1 << 24).close()
    with pytest.raises(ValueError, match="nbytes is 9"):
        server.recv_into(bytearray(8), 9)
    with pytest.raises(ValueError, match="negative"):
        server.recv(-1)
    with pytest.raises(ValueError, match="there is no transport"):
        net.connect(("127.0.0.1", 1), transport="udp")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="pickled"):
        __import__("pickle").dumps(client)
    for settings, text in (
        ({"sockets": 70_000}, "sockets = 70000; expected 1 to 65536"),
        ({"nothing": 1}, "unknown field `nothing`"),
        ({"threads": 1, "sockets": "x"}, 'the setting sockets = "x": invalid type: string "x", expected a whole number'),
    ):
        with pytest.raises(ValueError, match=text):
            gpunet.embed(**settings)
    with pytest.raises(TypeError, match="the setting cpus"):
        gpunet.embed(cpus=object())  # type: ignore[arg-type]
    for path in ("/nowhere/gpunetd.sock", b"/nowhere/gpunetd.sock", pathlib.Path("/nowhere/gpunetd.sock")):
        with pytest.raises(FileNotFoundError, match="start gpunetd"):
            gpunet.attach(path)
    with pytest.raises(TypeError, match="not int"):
        gpunet.attach(7)  # type: ignore[arg-type]
    with gpunet.open(b"/nowhere/gpunetd.sock", sockets=64, shared_rings=8 << 20) as own:
        own.abort()
        with pytest.raises(OSError, match="the proxy has stopped") as stopped:
            own.snapshot()
        assert stopped.value.errno == errno.ENETDOWN


def test_a_closed_proxy_ends_its_sockets(transport: Transport) -> None:
    net = gpunet.embed(sockets=64, shared_rings=8 << 20)
    listener = net.listen(("127.0.0.1", 0), transport=transport)
    accepted = in_thread(lambda: listener.accept()[0])
    client = net.connect(listener.getsockname(), transport=transport, timeout=10)
    server = accepted()
    waiting = in_thread(lambda: server.recv(1))
    snapshot = net.snapshot()
    assert {entry["transport"] for entry in snapshot["sockets"] if entry["state"] == "established"} == {transport}
    assert net.daemon is None
    report = net.close()
    assert set(report) == {"undelivered", "unfinished"} and net.closed
    try:
        # The other end, which is closed too, may have ended it first.
        assert waiting() == b""
    except OSError as error:
        assert error.errno in (errno.ECANCELED, errno.ENETDOWN, errno.ECONNRESET)
    with pytest.raises(OSError):
        client.send(b"x")
    with pytest.raises(OSError, match="the proxy is closed"):
        net.listen(("127.0.0.1", 0))
    net.close()


def test_sockets_leave_nothing_behind(net: gpunet.Proxy, transport: Transport) -> None:
    with net.listen(("127.0.0.1", 0), transport=transport) as listener:

        def once() -> None:
            accepted = in_thread(lambda: listener.accept()[0])
            with net.connect(listener.getsockname(), transport=transport, timeout=10) as client, accepted() as server:
                server.fileno()
                client.sendall(b"x")
                assert server.recv(1) == b"x"

        once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            once()
        deadline = time.monotonic() + 20
        while len(net.snapshot()["sockets"]) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [entry["state"] for entry in net.snapshot()["sockets"]] == ["listen"]
        assert len(os.listdir("/proc/self/fd")) <= before + 4
    no_thread_is_left()


def test_importing_takes_no_time() -> None:
    timed = "import time; t = time.perf_counter(); import gpunet; print(time.perf_counter() - t)"
    best = min(float(subprocess.check_output([sys.executable, "-c", timed])) for _ in range(5))
    loaded = subprocess.check_output([sys.executable, "-c", "import gpunet, sys; print(*sys.modules)"], text=True).split()
    assert not {"asyncio", "socket", "numpy", "logging"} & set(loaded)
    print(f"import gpunet: {best * 1e3:.1f} ms")
