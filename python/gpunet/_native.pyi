"""The native module. What is public is in `gpunet`; docs/python.md leads through it."""

from os import PathLike
from types import TracebackType
from typing import IO, Any, Literal, Protocol, TypeAlias

from typing_extensions import Buffer as Buffer  # PEP 688

Address: TypeAlias = str | tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]
ReturnedAddress: TypeAlias = Any
"""`(host, port)`, or of IPv6 `(host, port, flowinfo, scope)`, as `socket.socket` returns it."""

Transport: TypeAlias = Literal["auto", "tcp", "peer", "rc"]
Leftover: TypeAlias = Literal["close", "reset", "keep"]
Setting: TypeAlias = int | float | str | bool | list[str]

class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

class _HandleStream(Protocol):
    @property
    def handle(self) -> Any: ...

Stream: TypeAlias = int | _TorchStream | _CupyStream | _HandleStream
"""A CUDA stream: its handle (0 is the default stream), or a stream of torch, CuPy, Numba or cuda.core."""

version: str

def device_ptx() -> bytes:
    """Returns the PTX of the C functions that kernels call (gpunet.h)."""

def headers() -> dict[str, str]:
    """Returns the headers for kernels in C and C++, by their paths: "gpunet.h", "gpunet/socket.cuh", ..."""

def open(path: str | PathLike[str] | None = None, **settings: Setting) -> Proxy:
    """Joins the daemon at `path` if one listens there, else starts a proxy in this process.

    `path` is where gpunetd listens by default, if it is None. The settings are keys of gpunetd's file, such as `sockets`,
    `shared_rings`, `threads`; docs/operations.md explains them. A daemon that refuses is an OSError.
    """

def embed(**settings: Setting) -> Proxy:
    """Starts a proxy in this process. The settings are as in `open`; ValueError says which cannot be."""

def attach(path: str | PathLike[str] | None = None, **settings: Setting) -> Proxy:
    """Joins the daemon at `path`. FileNotFoundError or ConnectionRefusedError: no daemon is there."""

def _close_all() -> None: ...
def log_level(level: int) -> None: ...
def next_record() -> tuple[int, str, str] | None: ...

# The calls of `gpunet.cpu`.
def cpu_launch(net: int) -> CpuLaunch: ...
def cpu_accept(net: int, listener: int, timeout_ns: int) -> int: ...
def cpu_connect(net: int, address: Address | bytes, timeout_ns: int) -> int: ...
def cpu_send(net: int, socket: int, data: Buffer, n: int | None, timeout_ns: int, flags: int) -> int: ...
def cpu_recv(net: int, socket: int, data: Buffer, n: int | None, timeout_ns: int, flags: int) -> int: ...
def cpu_shutdown(net: int, socket: int, how: int) -> int: ...
def cpu_close(net: int, socket: int) -> int: ...

class CpuLaunch:
    def begin_block(self) -> None: ...
    def end_block(self, error: BaseException | None) -> None: ...

class Proxy:
    """The sockets, attachments and threads of this program, or its connection to a daemon.

    A context manager: leaving the block closes it.
    """

    def connect(
        self,
        address: Address,
        *,
        timeout: float | None = None,
        transport: Transport = "auto",
        send_ring: int | None = None,
        recv_ring: int | None = None,
        linger: float | None = None,
        keepalive: bool = False,
        nodelay: bool = True,
    ) -> Socket:
        """Connects a socket of this program.

        Over tcp the connection is there when it is in the listener's backlog; over peer, the default between two sockets
        under one proxy, when the other end accepts. A thread that connects to its own listener asks for tcp.

        `timeout` is for the connect, in seconds; the socket's own timeout is set by `Socket.settimeout`. `send_ring` and
        `recv_ring` are sizes in bytes, 4 KiB to 16 MiB; None leaves them to the proxy. `linger` is how many seconds what
        was sent may take after a close; 0: the close resets the stream.
        """
    def _connecting(
        self,
        address: Address,
        *,
        transport: Transport = "auto",
        send_ring: int | None = None,
        recv_ring: int | None = None,
        linger: float | None = None,
        keepalive: bool = False,
        nodelay: bool = True,
    ) -> _Connecting: ...
    def listen(
        self,
        address: Address,
        backlog: int = 128,
        *,
        timeout: float | None = None,
        transport: Transport = "auto",
        send_ring: int | None = None,
        recv_ring: int | None = None,
        linger: float | None = None,
        keepalive: bool = False,
        nodelay: bool = True,
        v6only: bool = False,
    ) -> Listener:
        """Listens at an address; port 0 takes a free one, which `Listener.getsockname` tells.

        `timeout` is that of `Listener.accept`. Accepted sockets inherit the other options, as in `connect`.
        """
    def attach_cpu(self) -> Attachment:
        """Attaches the CPU device, whose kernels are functions on threads."""
    def attach_cuda(self, device: int | Any | None = None) -> Attachment:
        """Attaches a GPU: a number, a device of torch, CuPy, Numba or cuda.core (their primary context), or None.

        None is the context that is current in this thread, and without one that of device 0. It stays live until the
        attachment is closed. RuntimeError says what CUDA lacks.
        """
    def snapshot(self) -> dict[str, Any]:
        """Returns what the proxy holds now, as `gpunetctl ss --json` prints it."""
    @property
    def daemon(self) -> dict[str, Any] | None:
        """The daemon ("path", "pid", "version", "data_threads", "heartbeat_ms", "linger_ms"); None: in this process."""
    def abort(self) -> None:
        """Stops it at once, without delivering anything: every socket reports ENETDOWN. A daemon goes on."""
    def close(self) -> dict[str, int]:
        """Closes its sockets and attachments, and waits until what was sent is delivered.

        It waits for at most the setting `linger_s`. Returns "undelivered" bytes, and "unfinished" streams.
        """
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Proxy: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class _Connecting:
    def fileno(self) -> int: ...
    def result(self, timeout: float | None = None) -> Socket: ...
    def close(self) -> None: ...

class Socket:
    """A connected stream of this program. Its methods are those of `socket.socket`.

    Any thread may use it; one may send while another receives. A close ends the calls of other threads.
    """

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Sends what there is room for, at least a byte; returns how many bytes."""
    def sendall(self, data: Buffer, flags: int = 0, /) -> None:
        """Sends all bytes: they are in the stream's ring when it returns."""
    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receives up to `bufsize` bytes; b"" at the end of the stream.

        `flags`: `socket.MSG_PEEK`, `MSG_WAITALL`, `MSG_DONTWAIT`.
        """
    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receives into a buffer without a copy; returns how many bytes, 0 at the end of the stream."""
    def recv_exact(self, size: int, /) -> bytes:
        """Receives `size` bytes. EOFError, whose `partial` has what came: the stream ended, or its time was over."""
    def shutdown(self, how: int) -> None:
        """Ends one direction or both: `socket.SHUT_RD`, `SHUT_WR`, `SHUT_RDWR`."""
    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Makes a file of the socket, which stays open until the file is closed, too."""
    def fileno(self) -> int:
        """Returns a descriptor for `select` and its like: readable while a receive would not wait.

        It is the socket's own: read and write the socket, not the descriptor. It may be readable in vain, once. -1 once the
        socket is closed.
        """
    def write_fileno(self) -> int:
        """Returns a descriptor that is readable while a send would not wait."""
    def getpeername(self) -> ReturnedAddress: ...
    def getsockname(self) -> ReturnedAddress: ...
    def settimeout(self, value: float | None) -> None:
        """Sets how many seconds a call waits: None: without limit; 0: not at all (BlockingIOError)."""
    def gettimeout(self) -> float | None: ...
    def setspin(self, value: float) -> None:
        """Sets how many seconds a call that waits polls before it sleeps: 0 by default.

        It saves the time that waking a thread takes, and uses a core meanwhile: for answers that come within some
        microseconds, on a machine with idle cores.
        """
    def getspin(self) -> float: ...
    def setblocking(self, flag: bool) -> None: ...
    def getblocking(self) -> bool: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def transport(self) -> str:
        """What carries the stream: "tcp", "peer" or "rc"."""
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Closes it without waiting. What was sent is still delivered."""
    def _decref_socketios(self) -> None: ...
    def __enter__(self) -> Socket: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Listener:
    """A socket that accepts connections, over every transport that its options allow."""

    def accept(self) -> tuple[Socket, ReturnedAddress]:
        """Accepts the connection that has waited longest. Several threads may accept."""
    def getsockname(self) -> ReturnedAddress: ...
    def fileno(self) -> int:
        """Returns a descriptor for `select` and its like: readable while an accept would not wait."""
    def settimeout(self, value: float | None) -> None:
        """Sets how many seconds `accept` waits: None: without limit; 0: not at all (BlockingIOError)."""
    def gettimeout(self) -> float | None: ...
    def setblocking(self, flag: bool) -> None: ...
    def getblocking(self) -> bool: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Closes it. Connections that were not accepted are refused or reset."""
    def __enter__(self) -> Listener: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Attachment:
    """The sockets of one device in a proxy. A context manager: leaving the block closes it."""

    @property
    def device(self) -> str:
        """ "cpu", or the GPU's name."""
    @property
    def is_cuda(self) -> bool: ...
    @property
    def device_id(self) -> int | None:
        """The GPU's number; None: the CPU."""
    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """The GPU's, such as (9, 0); None: the CPU."""
    def launch(self, stream: Stream | None = None, *, leftover: Leftover = "close") -> Launch:
        """Begins a launch: the kernels that are started on `stream` with its net value.

        >>> with attachment.launch(stream) as net:
        ...     kernel[(1,)](net, listener.device_number(), ...)

        `leftover` says what happens to sockets that the kernels leave open.
        """
    def connect(
        self,
        address: Address,
        *,
        timeout: float | None = None,
        transport: Transport = "auto",
        send_ring: int | None = None,
        recv_ring: int | None = None,
        linger: float | None = None,
        keepalive: bool = False,
        nodelay: bool = True,
    ) -> DeviceSocket:
        """Connects a socket of the device, which its kernels use by number. The keywords are those of `Proxy.connect`."""
    def listen(
        self,
        address: Address,
        backlog: int = 128,
        *,
        transport: Transport = "auto",
        send_ring: int | None = None,
        recv_ring: int | None = None,
        linger: float | None = None,
        keepalive: bool = False,
        nodelay: bool = True,
        v6only: bool = False,
    ) -> DeviceListener:
        """Listens with a socket of the device, at which its kernels accept by number."""
    def alloc(self, nbytes: int) -> Memory:
        """Allocates zeroed memory of the device. MemoryError: it has no more."""
    def stats(self) -> dict[str, Any]:
        """Returns totals ("opened", "closed", "undelivered") and what it holds now ("sockets", "free_ring_bytes", ...)."""
    def close(self) -> dict[str, int]:
        """Closes its sockets, and waits until what was sent is delivered, as `Proxy.close`."""
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Attachment: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Launch:
    """The kernels that are started with one net value: they are cancelled and finished together.

    A context manager whose `as` is the net value. Leaving the block waits for what was launched on the stream, and
    finishes the launch. An exception in the block, and Ctrl-C, cancel it first.
    """

    @property
    def net(self) -> int:
        """The value by which kernels find their sockets, an argument of the kernel (64 bits)."""
    @property
    def stream(self) -> int: ...
    def cancel(self) -> None:
        """Ends every wait of its kernels: their calls return -ECANCELED. It cannot be undone."""
    def finish(self, leftover: Leftover | None = None) -> int:
        """Waits for the stream's work, and ends the launch; returns how many sockets were left open.

        RuntimeError says how a kernel failed.
        """
    @property
    def finished(self) -> bool: ...
    def __enter__(self) -> int: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class DeviceSocket:
    """A connected stream of a device, for its kernels. Closing it waits for launches that know it."""

    def device_number(self) -> int:
        """Returns the number by which kernels use it, until it is closed."""
    def leave(self) -> int:
        """Leaves it to the kernels, one of which closes it; returns its number."""
    def getsockname(self) -> ReturnedAddress: ...
    def getpeername(self) -> ReturnedAddress: ...
    @property
    def transport(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> DeviceSocket: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class DeviceListener:
    """A listener of a device, at which its kernels accept."""

    def device_number(self) -> int:
        """Returns the number by which kernels accept at it, until it is closed."""
    def leave(self) -> int:
        """Leaves it to the kernels, one of which closes it; returns its number."""
    def accept(self, timeout: float | None = None) -> tuple[DeviceSocket, ReturnedAddress]:
        """Accepts a connection for the device's kernels."""
    def getsockname(self) -> ReturnedAddress: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> DeviceListener: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Memory(Buffer):
    """Zeroed memory of a device. That of the CPU is a buffer: `memoryview(memory)`, `numpy.frombuffer(memory)`.

    That of a GPU is a CUDA array: `cupy.asarray(memory)`, `torch.as_tensor(memory, device="cuda")`. Keep it until the
    kernels that were given its address have ended.
    """

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def write(self, data: Buffer, offset: int = 0) -> None: ...
    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
