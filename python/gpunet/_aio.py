"""Sockets for asyncio.

A call is tried at once. What would have to wait waits for the socket's descriptor in the event loop, and is tried again. So
a task that is cancelled while it waits has moved no bytes: what has come is there for the next call.
"""

# asyncio is imported when it is used: it takes longer than everything else here.
from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gpunet import _native

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from gpunet._native import Address, Buffer, Proxy, ReturnedAddress

_T = TypeVar("_T")

# After as many calls that did not have to wait, other tasks and the timers have their turn.
_CALLS_IN_A_ROW = 16

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SECONDS_UNTIL_ROOM = 0.1


class _Turn:
    """One task at a time in each direction of a socket, in the order in which they came."""

    def __init__(self) -> None:
        self._lock: asyncio.Lock | None = None

    def lock(self) -> asyncio.Lock:
        if self._lock is None:
            import asyncio

            self._lock = asyncio.Lock()
        return self._lock


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _readable(fd: int) -> None:
    """Waits until a descriptor is readable."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _until_ready(attempt: Callable[[], _T], fileno: Callable[[], int]) -> _T:
    while True:
        try:
            return attempt()
        except BlockingIOError:
            await _readable(fileno())


async def ended(done: _native.Done) -> None:
    """Waits for the end of what is on a queue: what `await queue.notify()` does."""
    import os

    # Several tasks may wait for it, and a loop has one reader for each descriptor.
    fd = os.dup(done.fileno())
    try:
        await _until_ready(partial(done.wait, 0), lambda: fd)
    finally:
        os.close(fd)


async def transferred(transfer: _native.Transfer[_T]) -> _T:
    """Waits for a transfer of a channel. A task that is cancelled gives it up."""
    import asyncio
    import os

    fd = os.dup(transfer.fileno())
    try:
        return await _until_ready(partial(transfer.wait, 0), lambda: fd)
    except (asyncio.CancelledError, GeneratorExit):
        transfer.cancel()
        raise
    finally:
        os.close(fd)


class AsyncSocket:
    """A connected stream, for the tasks of one event loop. One task may send while another receives."""

    def __init__(self, socket: _native.Socket) -> None:
        socket.setblocking(False)
        self._socket = socket
        self._receiving = _Turn()
        self._sending = _Turn()
        self._waiting: set[asyncio.Future[None]] = set()
        self._calls_in_a_row = 0

    async def _wait(self, attempt: Callable[[], _T], fileno: Callable[[], int]) -> _T:
        self._calls_in_a_row += 1
        if self._calls_in_a_row > _CALLS_IN_A_ROW:
            import asyncio

            self._calls_in_a_row = 0
            await asyncio.sleep(0)
        while True:
            try:
                return attempt()
            except BlockingIOError:
                await self._ready(fileno())

    async def _ready(self, fd: int) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, _resolve, ready)
        self._waiting.add(ready)
        try:
            await ready
            self._calls_in_a_row = 0
        finally:
            self._waiting.discard(ready)
            # A socket that was closed meanwhile has taken its descriptor out itself.
            if not self._socket.closed:
                loop.remove_reader(fd)

    async def recv(self, bufsize: int) -> bytes:
        """Receives up to `bufsize` bytes; b"" at the end of the stream."""
        async with self._receiving.lock():
            return await self._wait(partial(self._socket.recv, bufsize), self._socket.fileno)

    async def recv_into(self, buffer: Buffer, nbytes: int = 0) -> int:
        """Receives into a buffer; returns how many bytes, 0 at the end of the stream."""
        async with self._receiving.lock():
            return await self._wait(partial(self._socket.recv_into, buffer, nbytes), self._socket.fileno)

    async def recv_exact(self, size: int) -> bytes:
        """Receives `size` bytes.

        `asyncio.IncompleteReadError` has what came before the end of the stream. What had come to a task that is cancelled,
        or before the stream failed, is there for the next call.
        """
        import asyncio

        async with self._receiving.lock():
            got = bytearray()
            try:
                while len(got) < size:
                    some = await self._wait(partial(self._socket.recv, size - len(got)), self._socket.fileno)
                    if not some:
                        break
                    got += some
            except BaseException:
                if got and not self._socket.closed:
                    self._socket._keep(got)
                raise
            if len(got) < size:
                raise asyncio.IncompleteReadError(bytes(got), size)
            return bytes(got)

    async def sendall(self, data: Buffer) -> None:
        """Sends all bytes: they are in the stream's ring when it returns.

        A task that is cancelled may have sent a part; `send` tells how much was sent.
        """
        async with self._sending.lock():
            view = memoryview(data)
            if not view.nbytes or not view.c_contiguous:
                # It refuses what is not contiguous. A view without elements cannot be cast.
                self._socket.send(data)
                return
            view = view.cast("B")
            while view:
                sent = await self._wait(partial(self._socket.send, view), self._socket.write_fileno)
                view = view[sent:]

    async def send(self, data: Buffer) -> int:
        """Sends what there is room for, at least a byte; returns how many bytes."""
        async with self._sending.lock():
            return await self._wait(partial(self._socket.send, data), self._socket.write_fileno)

    def shutdown(self, how: int) -> None:
        """Ends one direction or both, as `socket.shutdown`."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Closes the socket. Tasks that wait on it get OSError (EBADF)."""
        if self._socket.closed:
            return
        if self._waiting:
            import asyncio

            loop = asyncio.get_running_loop()
            for fileno in (self._socket.fileno, self._socket.write_fileno):
                loop.remove_reader(fileno())
        self._socket.close()
        for ready in self._waiting:
            _resolve(ready)

    def getpeername(self) -> ReturnedAddress:
        """Returns the peer's address."""
        return self._socket.getpeername()

    def getsockname(self) -> ReturnedAddress:
        """Returns this end's address."""
        return self._socket.getsockname()

    @property
    def transport(self) -> str:
        """What carries the stream: "tcp", "peer" or "rc"."""
        return self._socket.transport

    async def __aenter__(self) -> AsyncSocket:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpunet.AsyncSocket of {self._socket!r}>"


async def _resolved(address: Address) -> list[Address]:
    """Asks for the addresses of a name in another thread: the loop goes on. What is wrong is refused by who gets it."""
    import asyncio
    import socket

    if isinstance(address, str):
        host, _, service = address.rpartition(":")
        port: object = int(service) if service.isdecimal() else None
    elif isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
    else:
        return [address]
    if not (host and isinstance(host, str) and isinstance(port, int) and 0 <= port <= 0xFFFF):
        return [address]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.strip("[]"))
        except (OSError, ValueError):
            continue
        return [address]
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return [cast("Address", entry[4]) for entry in found]


async def connect(proxy: Proxy, address: Address, **options: Any) -> AsyncSocket:
    """Connects; the keywords are those of `Proxy.connect`, without `timeout`: use `asyncio.timeout`."""
    *others, last = await _resolved(address)
    for one in others:
        try:
            return await _connect(proxy, one, options)
        except OSError:
            pass
    return await _connect(proxy, last, options)


async def _connect(proxy: Proxy, address: Address, options: dict[str, Any]) -> AsyncSocket:
    connecting = proxy._connecting(address, **options)
    try:
        return AsyncSocket(await _until_ready(connecting.result, connecting.fileno))
    finally:
        connecting.close()


class Server:
    """A listener whose connections get a task each, until it is closed."""

    def __init__(self, listener: _native.Listener, handle: Callable[[AsyncSocket], Awaitable[None]]) -> None:
        import asyncio

        listener.setblocking(False)
        self._listener = listener
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        full = False
        while True:
            try:
                socket, _ = await _until_ready(self._listener.accept, self._listener.fileno)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    loop.call_exception_handler({"message": f"{self!r} accepts no more", "exception": error})
                    return
                if not full:
                    loop.call_exception_handler({"message": f"{self!r} waits until it can accept", "exception": error})
                full = True
                await asyncio.sleep(_SECONDS_UNTIL_ROOM)
                continue
            full = False
            task = loop.create_task(self._serve(AsyncSocket(socket)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, socket: AsyncSocket) -> None:
        import asyncio

        try:
            async with socket:
                await self._handle(socket)
        except Exception as error:
            context = {"message": f"the handler of {self!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def getsockname(self) -> ReturnedAddress:
        """Returns the address that it listens at, with the actual port."""
        return self._listener.getsockname()

    async def serve_forever(self) -> None:
        """Waits until the server is closed."""
        import asyncio

        await asyncio.wait([self._accepting])

    async def close(self) -> None:
        """Accepts no more, and cancels the tasks of its connections, but not the one that calls it."""
        import asyncio

        self._accepting.cancel()
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        try:
            await asyncio.wait([self._accepting, *others])
        finally:
            self._listener.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<gpunet.Server of {self._listener!r}>"


async def start_server(
    proxy: Proxy,
    handle: Callable[[AsyncSocket], Awaitable[None]],
    address: Address,
    backlog: int = 128,
    **options: Any,
) -> Server:
    """Listens, and runs `handle(socket)` as a task for each connection; the keywords are those of `Proxy.listen`.

    The socket is closed when the handler has ended.
    """
    return Server(proxy.listen((await _resolved(address))[0], backlog, **options), handle)
