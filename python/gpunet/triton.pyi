"""Sockets in Triton kernels. docs/python.md leads through them."""

from typing import Any, Final

from gpunet._calls import sockaddr as sockaddr

def install() -> None:
    """Installs gpunet's hook into Triton's compiler again, after a hook of the program's own."""

# What kernels call. Scalars of the kernel; `data`, `address` and `entries` are pointers.

def accept(net: Any, listener: Any, timeout_ns: Any = ...) -> Any:
    """Waits for a connection to `listener` and returns its socket; -EAGAIN when the time is over."""

def connect(net: Any, address: Any, timeout_ns: Any = ...) -> Any:
    """Connects to the 28 bytes that `sockaddr` made, in memory of the GPU, and returns the socket."""

def send(net: Any, socket: Any, data: Any, n: Any, timeout_ns: Any = ..., flags: Any = 0) -> Any:
    """Sends `n` bytes and returns `n`; fewer when the time is over, or the connection fails."""

def send_some(net: Any, socket: Any, data: Any, n: Any, timeout_ns: Any = ..., flags: Any = 0) -> Any:
    """Sends what the ring has room for, at least one byte and at most `n`."""

def recv(net: Any, socket: Any, data: Any, n: Any, timeout_ns: Any = ..., flags: Any = 0) -> Any:
    """Receives what is there, at least one byte and at most `n`; 0 at the end of the stream."""

def recv_exact(net: Any, socket: Any, data: Any, n: Any, timeout_ns: Any = ..., flags: Any = 0) -> Any:
    """Receives `n` bytes; fewer at the stream's end, when the time is over, or the connection fails."""

def shutdown(net: Any, socket: Any, how: Any = ...) -> Any:
    """Ends one direction of a stream, or both."""

def close(net: Any, socket: Any) -> Any:
    """Closes a socket."""

def poll(net: Any, entries: Any, count: Any, timeout_ns: Any = ...) -> Any:
    """Waits for one of `count` sockets and returns how many are ready; 0 when the time is over."""

# Of teams: `team` is `Team.device_number()`, `memory` is `Symmetric.device_number()`, offsets are bytes.

def put(net: Any, team: Any, memory: Any, offset: Any, data: Any, n: Any, member: Any) -> Any:
    """Copies `n` bytes to byte `offset` of symmetric memory in the part of a member, and returns 0."""

def put_signal(net: Any, team: Any, memory: Any, offset: Any, data: Any, n: Any, signal: Any, value: Any, member: Any) -> Any:
    """Puts, and sets a signal of the member: who sees the value sees the bytes. Returns 0."""

def signal_set(net: Any, team: Any, signal: Any, value: Any, member: Any) -> Any:
    """Sets a signal of a member, who sees what was stored before. Values only grow. Returns 0."""

def signal_wait(net: Any, team: Any, signal: Any, source: Any, value: Any, timeout_ns: Any = ...) -> Any:
    """Waits until the signal that `source` sets is at least `value`, and returns what it is."""

def barrier(net: Any, team: Any, timeout_ns: Any = ...) -> Any:
    """Waits until all members have come, one block of each. Returns 0."""

# tl.constexpr, for kernels.
SOCKET_TIMEOUT: Final[Any]
FOREVER: Final[Any]
NO_WAIT: Final[Any]
MSG_PEEK: Final[Any]
MSG_DONTWAIT: Final[Any]
MSG_WAITALL: Final[Any]
MSG_MORE: Final[Any]
SHUT_RD: Final[Any]
SHUT_WR: Final[Any]
SHUT_RDWR: Final[Any]
POLLIN: Final[Any]
POLLOUT: Final[Any]
POLLERR: Final[Any]
POLLHUP: Final[Any]
POLLNVAL: Final[Any]
EBADF: Final[Any]
EAGAIN: Final[Any]
EFAULT: Final[Any]
EINVAL: Final[Any]
ENFILE: Final[Any]
EMFILE: Final[Any]
EPIPE: Final[Any]
EADDRINUSE: Final[Any]
ENETDOWN: Final[Any]
ECONNRESET: Final[Any]
ENOTCONN: Final[Any]
ETIMEDOUT: Final[Any]
ECONNREFUSED: Final[Any]
EALREADY: Final[Any]
ECANCELED: Final[Any]
