"""Kernels on the CPU: Python functions that make a kernel's calls. They need no GPU.

>>> def echo(net, listener):
...     data = bytearray(4096)
...     socket = cpu.accept(net, listener)
...     while (n := cpu.recv(net, socket, data)) > 0:
...         cpu.send(net, socket, data, n)
...     cpu.close(net, socket)
>>> with attachment.launch() as net:
...     cpu.run(net, echo, listener.device_number())

Each block is a thread. The calls have the names, arguments and results that they have in kernels' languages: what failed
returns a negative errno. Timeouts are nanoseconds; FOREVER is no limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpunet import _native

if TYPE_CHECKING:
    from gpunet._native import Address, Buffer

__all__ = [
    "FOREVER",
    "NO_WAIT",
    "SOCKET_TIMEOUT",
    "accept",
    "barrier",
    "block",
    "blocks",
    "close",
    "connect",
    "put",
    "put_signal",
    "recv",
    "recv_exact",
    "run",
    "send",
    "send_some",
    "shutdown",
    "signal_set",
    "signal_wait",
]

SOCKET_TIMEOUT = -(1 << 63)
"""As the socket's options say: without limit, unless they were set."""
FOREVER = -1
NO_WAIT = 0

_MSG_WAITALL = 0x100
_SHUT_RDWR = 2

_here = threading.local()


def run(net: int, function: Callable[..., object], *args: Any, blocks: int = 1) -> None:
    """Starts `function(net, *args)` on a thread for each block; returns when they have been started.

    `net` is that of a launch of the CPU device, whose end waits for the blocks. A block that raises an exception cancels
    the launch, whose end raises RuntimeError from it.
    """
    if blocks < 1:
        raise ValueError("a launch has at least one block")
    launch = _native.cpu_launch(net)

    def body(number: int) -> None:
        _here.block, _here.blocks = number, blocks
        error = None
        try:
            function(net, *args)
        except BaseException as raised:
            error = raised
        launch.end_block(error)

    for number in range(blocks):
        launch.begin_block()
        try:
            threading.Thread(target=body, args=(number,), name=f"gpunet-block-{number}", daemon=True).start()
        except BaseException as error:
            launch.end_block(error)
            raise


def _in_block(name: str) -> int:
    number: int | None = getattr(_here, name, None)
    if number is None:
        raise RuntimeError("this thread is no block; start one with gpunet.cpu.run(launch, function, ...)")
    return number


def block() -> int:
    """Returns the number of the block that calls, from 0."""
    return _in_block("block")


def blocks() -> int:
    """Returns how many blocks it was started with."""
    return _in_block("blocks")


def accept(net: int, listener: int, timeout_ns: int = SOCKET_TIMEOUT) -> int:
    """Accepts a connection; returns its socket's number."""
    return _native.cpu_accept(net, listener, timeout_ns)


def connect(net: int, address: Address | bytes, timeout_ns: int = SOCKET_TIMEOUT) -> int:
    """Connects to an address, or to what is a `struct sockaddr` in C; returns the socket's number."""
    return _native.cpu_connect(net, address, timeout_ns)


def send(net: int, socket: int, data: Buffer, n: int | None = None, timeout_ns: int = SOCKET_TIMEOUT, flags: int = 0) -> int:
    """Sends `n` bytes of `data`, or all; returns how many, fewer only after a failure."""
    return _native.cpu_send(net, socket, data, n, timeout_ns, flags | _MSG_WAITALL)


def send_some(
    net: int, socket: int, data: Buffer, n: int | None = None, timeout_ns: int = SOCKET_TIMEOUT, flags: int = 0
) -> int:
    """Sends what there is room for, at least a byte; returns how many bytes."""
    return _native.cpu_send(net, socket, data, n, timeout_ns, flags)


def recv(net: int, socket: int, data: Buffer, n: int | None = None, timeout_ns: int = SOCKET_TIMEOUT, flags: int = 0) -> int:
    """Receives up to `n` bytes into `data`; returns how many, 0 at the end of the stream."""
    return _native.cpu_recv(net, socket, data, n, timeout_ns, flags)


def recv_exact(
    net: int, socket: int, data: Buffer, n: int | None = None, timeout_ns: int = SOCKET_TIMEOUT, flags: int = 0
) -> int:
    """Receives `n` bytes into `data`; returns how many, fewer at the end of the stream and after a failure."""
    return _native.cpu_recv(net, socket, data, n, timeout_ns, flags | _MSG_WAITALL)


def shutdown(net: int, socket: int, how: int = _SHUT_RDWR) -> int:
    """Ends one direction or both, as `socket.shutdown`; returns 0."""
    return _native.cpu_shutdown(net, socket, how)


def close(net: int, socket: int) -> int:
    """Closes a socket; returns 0."""
    return _native.cpu_close(net, socket)


def put(net: int, team: int, memory: int, offset: int, data: Buffer, n: int | None, member: int) -> int:
    """Copies `n` bytes, or all, to byte `offset` of symmetric memory in the part of a member; returns 0.

    `team` and `memory` are what `device_number()` returned.
    """
    return _native.cpu_put(net, team, memory, offset, data, n, member)


def put_signal(
    net: int, team: int, memory: int, offset: int, data: Buffer, n: int | None, signal: int, value: int, member: int
) -> int:
    """Puts, and sets a signal of the member: who sees the value sees the bytes; returns 0."""
    return _native.cpu_put(net, team, memory, offset, data, n, member, (signal, value))


def signal_set(net: int, team: int, signal: int, value: int, member: int) -> int:
    """Sets a signal of a member, who sees what was stored before; returns 0. Values only grow."""
    return _native.cpu_signal_set(net, team, signal, value, member)


def signal_wait(net: int, team: int, signal: int, source: int, value: int, timeout_ns: int = FOREVER) -> int:
    """Waits until the signal that `source` sets is at least `value`; returns what it is."""
    return _native.cpu_signal_wait(net, team, signal, source, value, timeout_ns)


def barrier(net: int, team: int, timeout_ns: int = FOREVER) -> int:
    """Waits until all members have come, one block of each; returns 0."""
    return _native.cpu_barrier(net, team, timeout_ns)
