"""Kernels on the CPU: Python functions, and functions in C, that make a kernel's calls. They need no GPU.

>>> def echo(net, listener):
...     data = bytearray(4096)
...     socket = cpu.accept(net, listener)
...     while (n := cpu.recv(net, socket, data)) > 0:
...         cpu.send(net, socket, data, n)
...     cpu.close(net, socket)
>>> with attachment.launch() as net:
...     cpu.run(net, echo, listener.device_number())

Each block is a thread. The calls have the names, arguments and results that they have in kernels' languages: what failed
returns a negative errno, such as -EAGAIN. Timeouts are nanoseconds; FOREVER is no limit. `run_c` runs a function in C.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import tempfile
import threading
from _ctypes import CFuncPtr
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpunet import _link, _native
from gpunet._calls import CONSTANTS, sockaddr
from gpunet._compile import CompileError

if TYPE_CHECKING:
    from gpunet._native import Address, Buffer

__all__ = [
    *CONSTANTS,
    "CompileError",
    "accept",
    "barrier",
    "block",
    "blocks",
    "close",
    "compile",
    "connect",
    "poll",
    "put",
    "put_signal",
    "recv",
    "recv_exact",
    "run",
    "run_c",
    "send",
    "send_some",
    "shutdown",
    "signal_set",
    "signal_wait",
    "sockaddr",
]

# The numbers are those of every language: a test compares the names.
_of = CONSTANTS.__getitem__
SOCKET_TIMEOUT, FOREVER, NO_WAIT = map(_of, ("SOCKET_TIMEOUT", "FOREVER", "NO_WAIT"))
MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_MORE = map(_of, ("MSG_PEEK", "MSG_DONTWAIT", "MSG_WAITALL", "MSG_MORE"))
SHUT_RD, SHUT_WR, SHUT_RDWR = map(_of, ("SHUT_RD", "SHUT_WR", "SHUT_RDWR"))
POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL = map(_of, ("POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL"))
EBADF, EAGAIN, EFAULT, EINVAL, ENFILE = map(_of, ("EBADF", "EAGAIN", "EFAULT", "EINVAL", "ENFILE"))
EMFILE, EPIPE, EADDRINUSE, ENETDOWN, ECONNRESET = map(_of, ("EMFILE", "EPIPE", "EADDRINUSE", "ENETDOWN", "ECONNRESET"))
ENOTCONN, ETIMEDOUT, ECONNREFUSED, EALREADY = map(_of, ("ENOTCONN", "ETIMEDOUT", "ECONNREFUSED", "EALREADY"))
ECANCELED = _of("ECANCELED")

_here = threading.local()


def run(net: int, function: Callable[..., object], *args: Any, blocks: int = 1) -> None:
    """Starts `function(net, *args)` on a thread for each block; returns when they have been started.

    `net` is that of a launch of the CPU device, whose end waits for the blocks. A block that raises an exception cancels
    the launch, whose end raises RuntimeError from it.
    """
    if not callable(function):
        raise TypeError(f"the function is a {type(function).__name__}, which cannot be called")
    _start(net, lambda _: function(net, *args), blocks)


def run_c(net: int, function: Any, argument: Any = None, *, blocks: int = 1) -> None:
    """As `run`, of a function in C: `void kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument)`.

    `function` is one of a ctypes library (`compile` makes one), or an address: of cffi `int(ffi.cast("intptr_t",
    lib.kernel))`. It makes the calls of gpunet.h with `net`, without the GIL. `argument` is None, an address, a ctypes
    object, or an object with a writable buffer, which is kept until the blocks have ended.
    """
    address, (place, kept) = _function(function), _argument(argument)

    def body(number: int) -> None:
        # What the addresses belong to lives as long as this function.
        _ = function, kept
        _native.cpu_function(net, address, number, blocks, place)

    _start(net, body, blocks)


def _function(function: Any) -> int:
    if isinstance(function, int) and not isinstance(function, bool):
        return function
    if isinstance(function, CFuncPtr):
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise TypeError(
        f"a function in C is one of a ctypes library, or its address as an int, not {type(function).__name__}; "
        "gpunet.cpu.run runs Python functions"
    )


def _argument(argument: Any) -> tuple[int, object]:
    """An address, and what keeps it."""
    if argument is None:
        return 0, None
    if isinstance(argument, int):
        return argument, None
    if isinstance(argument, ctypes.c_void_p | ctypes._Pointer):
        return ctypes.cast(argument, ctypes.c_void_p).value or 0, argument
    try:
        kept = (ctypes.c_char * memoryview(argument).nbytes).from_buffer(argument)
    except TypeError as error:
        raise TypeError(f"an argument is an address, or an object with a writable buffer: {error}") from None
    return ctypes.addressof(kept), kept


def compile(source: str, *, options: Sequence[str] = ()) -> ctypes.CDLL:
    """Compiles C for the CPU that includes gpunet.h; returns the library, whose functions are for `run_c`.

    gpunet_calls.h and gpunet_records.h are there, too.
    The compiler is `$CC`, or `cc`; `options` go to it. Raises CompileError with its messages.
    """
    if not isinstance(source, str):
        raise TypeError(f"source is the text of C, not {type(source).__name__}")
    with tempfile.TemporaryDirectory(prefix="gpunet-") as folder:
        file, library = pathlib.Path(folder, "kernel.c"), pathlib.Path(folder, "kernel.so")
        file.write_text(source)
        # The calls are this module's, which the library finds loaded.
        compiler = os.environ.get("CC", "cc").split()
        flags = ["-shared", "-fPIC", "-O2", f"-I{_link.include_directory()}", *options]
        command = [*compiler, *flags, str(file), _native.__file__, "-o", str(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise CompileError(f"{compiler[0]}: {error.strerror}; install a C compiler, or set CC") from None
        if done.returncode != 0:
            raise CompileError(done.stderr.strip())
        return ctypes.CDLL(str(library))


def _start(net: int, function: Callable[[int], object], blocks: int) -> None:
    if blocks < 1:
        raise ValueError("a launch has at least one block")
    launch = _native.cpu_launch(net)

    def body(number: int) -> None:
        _here.block, _here.blocks = number, blocks
        error = None
        try:
            launch.enter()
            function(number)
        except BaseException as raised:
            error = raised
        launch.leave()
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
    return _native.cpu_send(net, socket, data, n, timeout_ns, flags | MSG_WAITALL)


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
    return _native.cpu_recv(net, socket, data, n, timeout_ns, flags | MSG_WAITALL)


def poll(net: int, entries: Buffer, count: int | None = None, timeout_ns: int = FOREVER) -> int:
    """Waits until one of `count` sockets is ready; returns how many are.

    `entries` is a writable buffer of `struct pollfd`, 8 bytes each: int32 socket, int16 events, int16 revents, such as
    ``bytearray(struct.pack("ihh", socket, POLLIN, 0))``. The call writes `revents`.
    """
    return _native.cpu_poll(net, entries, count, timeout_ns)


def shutdown(net: int, socket: int, how: int = SHUT_RDWR) -> int:
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
