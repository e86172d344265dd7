"""Sockets for asyncio. Each test runs its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import select
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

import gpunet

if TYPE_CHECKING:
    from gpunet._native import Transport


async def _echo(stream: gpunet.AsyncSocket) -> None:
    while some := await stream.recv(50_000):
        await stream.sendall(some)
    stream.shutdown(socket.SHUT_WR)


def test_many_clients_of_a_server(net: gpunet.Proxy, transport: Transport) -> None:
    async def client(server: gpunet.Server, seed: int) -> None:
        data = random.Random(seed).randbytes(200_000 + seed)
        async with await gpunet.connect(net, server.getsockname(), transport=transport) as stream:
            assert stream.transport == transport and stream.getpeername() == server.getsockname()
            back, _ = await asyncio.gather(stream.recv_exact(len(data)), stream.sendall(data))
            assert back == data
            stream.shutdown(socket.SHUT_WR)
            assert await stream.recv(1) == b""

    async def main() -> None:
        async with await gpunet.start_server(net, _echo, ("127.0.0.1", 0), transport=transport) as server:
            async with asyncio.timeout(60):
                await asyncio.gather(*(client(server, seed) for seed in range(20)))

    asyncio.run(main())


async def _pair(net: gpunet.Proxy, transport: Transport) -> tuple[gpunet.AsyncSocket, gpunet.AsyncSocket, gpunet.Server]:
    accepted: asyncio.Future[gpunet.AsyncSocket] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()

    async def handle(stream: gpunet.AsyncSocket) -> None:
        accepted.set_result(stream)
        await release.wait()

    server = await gpunet.start_server(net, handle, ("127.0.0.1", 0), transport=transport)
    client = await gpunet.connect(net, server.getsockname(), transport=transport)
    return client, await accepted, server


def test_cancellation_loses_no_bytes(net: gpunet.Proxy, transport: Transport) -> None:
    """Receives are cancelled at any time, also when their bytes have come already."""

    async def main() -> None:
        client, served, server = await _pair(net, transport)
        pick = random.Random(7)
        data = pick.randbytes(200_000)

        async def send() -> None:
            for at in range(0, len(data), 1000):
                await client.sendall(data[at : at + 1000])
                for _ in range(pick.randrange(8)):
                    await asyncio.sleep(0)
            client.shutdown(socket.SHUT_WR)

        sending = asyncio.create_task(send())
        got, cancelled = bytearray(), 0
        room = bytearray(333)
        while True:
            kind = pick.randrange(3)
            if kind == 0:
                task: asyncio.Task[bytes | int] = asyncio.create_task(served.recv(777))
            elif kind == 1:
                task = asyncio.create_task(served.recv_exact(1500))
            else:
                task = asyncio.create_task(served.recv_into(room))
            for _ in range(pick.randrange(6)):
                await asyncio.sleep(0)
            if pick.randrange(2):
                task.cancel()
            try:
                some = await task
            except asyncio.CancelledError:
                cancelled += 1
                continue
            except asyncio.IncompleteReadError as ended:
                some = ended.partial
                got += some
                break
            if isinstance(some, int):
                got += room[:some]
            else:
                got += some
            if not some:
                break
        got += await served.recv(1)
        await sending
        assert cancelled > 10 and bytes(got) == data
        client.close()
        await server.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_full_ring_holds_up_the_sender_alone(net: gpunet.Proxy, transport: Transport) -> None:
    async def main() -> None:
        client, served, server = await _pair(net, transport)
        data = bytes(24 << 20)
        sending = asyncio.create_task(client.sendall(data))
        await asyncio.sleep(0.05)
        assert not sending.done()
        # The other direction goes on.
        await served.sendall(b"x")
        assert await client.recv(1) == b"x"
        got = 0
        while got < len(data):
            got += len(await served.recv(1 << 20))
        await sending
        # A cancelled send ends.
        sending = asyncio.create_task(client.sendall(data))
        await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        client.close()
        await server.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_close_ends_the_waits_of_other_tasks(net: gpunet.Proxy, transport: Transport) -> None:
    async def main() -> None:
        client, served, server = await _pair(net, transport)
        waiting = asyncio.create_task(client.recv(1))
        await asyncio.sleep(0.01)
        client.close()
        with pytest.raises(OSError) as closed:
            await waiting
        assert closed.value.errno == errno.EBADF
        assert await served.recv(1) == b""
        client.close()
        await server.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_connect_that_is_cancelled_keeps_no_socket(net: gpunet.Proxy) -> None:
    async def main() -> None:
        with net.listen(("127.0.0.1", 0), transport="peer") as listener:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await gpunet.connect(net, listener.getsockname(), transport="peer")
            with pytest.raises(ConnectionRefusedError):
                await gpunet.connect(net, listener.getsockname(), transport="tcp")
            for _ in range(1000):
                if len(net.snapshot()["sockets"]) == 1:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(net.snapshot())

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_handler_that_fails_is_reported_and_the_server_goes_on(net: gpunet.Proxy) -> None:
    async def main() -> None:
        reported: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        async def handle(stream: gpunet.AsyncSocket) -> None:
            if await stream.recv(1) == b"f":
                raise RuntimeError("on purpose")
            await stream.sendall(b"fine")

        async with await gpunet.start_server(net, handle, ("127.0.0.1", 0), transport="tcp") as server:
            async with await gpunet.connect(net, server.getsockname(), transport="tcp") as bad:
                await bad.sendall(b"f")
                assert await bad.recv(1) == b""
            async with await gpunet.connect(net, server.getsockname(), transport="tcp") as good:
                await good.sendall(b"g")
                assert await good.recv_exact(4) == b"fine"
        assert [str(context["exception"]) for context in reported] == ["on purpose"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_server_outlives_a_lack_of_sockets() -> None:
    """Connections wait while the sockets are used up, and are served after others were closed."""

    async def main(net: gpunet.Proxy) -> list[object]:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))
        async with await gpunet.start_server(net, _echo, ("127.0.0.1", 0)) as server:
            with contextlib.ExitStack() as stack:
                for _ in range(12):
                    stack.enter_context(socket.create_connection(server.getsockname()))
                async with asyncio.timeout(10):
                    while not reports:
                        await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection(*server.getsockname())
            writer.write(b"later")
            async with asyncio.timeout(10):
                assert await reader.readexactly(5) == b"later"
            writer.close()
        return reports

    with gpunet.embed(sockets=8, shared_rings=4 << 20, linger_s=1) as net:
        for report in asyncio.run(main(net)):
            assert isinstance(report, OSError) and report.errno == errno.EMFILE


def test_calls_that_need_not_wait_leave_the_loop_to_others(net: gpunet.Proxy, transport: Transport) -> None:
    async def main() -> None:
        client, served, server = await _pair(net, transport)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await client.sendall(bytes(3000))
        for _ in range(1000):
            assert await served.recv(3)
        assert ticks >= 20
        before = ticks
        for _ in range(1000):
            await client.sendall(b"x")
        assert ticks >= before + 20
        ticking.cancel()
        client.close()
        await server.close()

    asyncio.run(main())


def test_a_handler_may_close_its_server(net: gpunet.Proxy) -> None:
    async def main() -> None:
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def handle(stream: gpunet.AsyncSocket) -> None:
            await server.close()
            await stream.sendall(b"bye")
            closed.set_result(repr(server))

        server = await gpunet.start_server(net, handle, ("127.0.0.1", 0), transport="tcp")
        async with await gpunet.connect(net, server.getsockname(), transport="tcp") as client:
            async with asyncio.timeout(10):
                assert await client.recv_exact(3) == b"bye"
                assert "closed" in await closed

    asyncio.run(main())


def test_what_came_before_a_reset_stays(net: gpunet.Proxy, transport: Transport) -> None:
    async def main() -> None:
        listener = net.listen(("127.0.0.1", 0), transport=transport, linger=0)
        accepted = asyncio.create_task(asyncio.to_thread(lambda: listener.accept()[0]))
        client = await gpunet.connect(net, listener.getsockname(), transport=transport)
        server = await accepted
        server.sendall(b"last")
        fd = client._socket.fileno()
        assert select.select([fd], [], [], 10)[0]
        receiving = asyncio.create_task(client.recv_exact(10))
        async with asyncio.timeout(10):
            # The task takes them: nothing is readable any more.
            while select.select([fd], [], [], 0)[0]:
                await asyncio.sleep(0.001)
            server.close()
            with pytest.raises(ConnectionResetError):
                await receiving
            assert await client.recv_exact(4) == b"last"
            with pytest.raises(ConnectionResetError):
                await client.recv(1)
        client.close()
        listener.close()

    asyncio.run(main())


def test_every_address_of_a_name_is_tried(net: gpunet.Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with await gpunet.start_server(net, _echo, ("127.0.0.1", 0), transport="tcp") as server:
            port = server.getsockname()[1]
            found = [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *rest, **options: found)
            async with asyncio.timeout(10), await gpunet.connect(net, ("two.test", port), transport="tcp") as client:
                assert client.getpeername() == ("127.0.0.1", port)
            await server.close()
            with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.1"):
                await gpunet.connect(net, ("two.test", port), transport="tcp")

    asyncio.run(main())


def test_what_cannot_be_received_into_takes_nothing(net: gpunet.Proxy, transport: Transport) -> None:
    """Also of what a cancelled recv_exact had taken."""

    async def main() -> None:
        client, served, server = await _pair(net, transport)
        await client.sendall(b"abcdef")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await served.recv_exact(100)
        with pytest.raises(BufferError, match="read-only"):
            await served.recv_into(b"bytes")
        with pytest.raises(BufferError, match="contiguous"):
            await served.recv_into(memoryview(bytearray(8))[::2])
        with pytest.raises(ValueError, match="nbytes"):
            await served.recv_into(bytearray(2), 3)
        into = bytearray(4)
        assert await served.recv_into(into, 2) == 2 and into[:2] == b"ab"
        assert await served.recv_into(into) == 4 and into == b"cdef"
        client.close()
        await server.close()

    asyncio.run(main())


def test_sendall_takes_what_send_takes(net: gpunet.Proxy, transport: Transport) -> None:
    async def main() -> None:
        client, served, server = await _pair(net, transport)
        await client.sendall(b"")
        await client.sendall(memoryview(bytearray(8)).cast("B", (2, 4))[:0])
        with pytest.raises(BufferError, match="contiguous"):
            await client.sendall(memoryview(b"abcd")[::2])
        await client.sendall(memoryview(b"abcd").cast("B", (2, 2)))
        assert await served.recv_exact(4) == b"abcd"
        client.close()
        await server.close()

    asyncio.run(main())


def test_a_name_is_asked_for_beside_the_loop(net: gpunet.Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = socket.getaddrinfo
    release = threading.Event()

    def slow(host: str, *rest: Any, **options: Any) -> Any:
        if host == "slow.example":
            assert release.wait(10)
            host = "127.0.0.1"
        return asked(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def main() -> None:
        async with await gpunet.start_server(net, _echo, ("localhost", 0), transport="tcp") as server:
            port = server.getsockname()[1]
            for address in (("slow.example", port), f"slow.example:{port}"):
                release.clear()
                connecting = asyncio.create_task(gpunet.connect(net, address, transport="tcp"))
                await asyncio.sleep(0.05)
                assert not connecting.done()
                release.set()
                async with asyncio.timeout(10), await connecting as client:
                    await client.sendall(b"found")
                    assert await client.recv_exact(5) == b"found"
            for wrong in ("nothing", ("127.0.0.1", 65536), ("slow.example", "7"), (), 5):
                with pytest.raises((TypeError, ValueError)):
                    await gpunet.connect(net, wrong)  # type: ignore[arg-type]

    asyncio.run(main())
