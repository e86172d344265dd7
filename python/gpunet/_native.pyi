"""The native module. What is public is in `gpunet`; docs/python.md leads through it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import IO, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, final

from typing_extensions import Buffer as Buffer  # PEP 688

Address: TypeAlias = str | tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]
ReturnedAddress: TypeAlias = Any
"""`(host, port)`, or of IPv6 `(host, port, flowinfo, scope)`, as `socket.socket` returns it."""

Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
Transport: TypeAlias = Literal["auto", "tcp", "peer", "rc"]
Leftover: TypeAlias = Literal["close", "reset", "keep"]
Level: TypeAlias = Literal["error", "warn", "info", "debug", "trace"]
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

class _ProtocolStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

Stream: TypeAlias = int | _TorchStream | _CupyStream | _HandleStream | _ProtocolStream
"""A CUDA stream: its handle (0 is the default stream), or a stream of torch, CuPy, Numba or cuda.core."""

class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _Tensor(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

Array: TypeAlias = Buffer | _CudaArray | _Tensor
"""Contiguous memory: an object with a buffer (numpy, bytearray), a CUDA array (torch, CuPy, Numba), or a DLPack tensor."""

_Kind: TypeAlias = tuple[int, int, int]

PassedArray: TypeAlias = tuple[str, Any, Any, _Kind | None, tuple[_Kind, list[int]] | None]
"""An array of a channel: name, the array, its stream, its type if its protocol has no name for it, and what bytes are."""

_T_co = TypeVar("_T_co", covariant=True)

version: str

def device_ptx() -> bytes:
    """Returns the PTX of the C functions that kernels call (gpunet.h)."""

def headers() -> dict[str, str]:
    """Returns the headers for kernels in C and C++, by their paths: "gpunet.h", "gpunet/socket.cuh", ..."""

def open(path: Path | None = None, **settings: Setting) -> Proxy:
    """Joins the daemon at `path` if one listens there, else starts a proxy in this process.

    `path` is where gpunetd listens by default, if it is None. The settings are keys of gpunetd's file, such as `sockets`,
    `shared_rings`, `threads`; docs/operations.md explains them. A daemon that refuses is an OSError.
    """

def embed(**settings: Setting) -> Proxy:
    """Starts a proxy in this process. The settings are as in `open`; ValueError says which cannot be."""

def attach(path: Path | None = None, **settings: Setting) -> Proxy:
    """Joins the daemon at `path`. FileNotFoundError or ConnectionRefusedError: no daemon is there."""

def _close_all() -> None: ...
def probe() -> tuple[str, dict[str, Any]]: ...
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
def cpu_poll(net: int, entries: Buffer, count: int | None, timeout_ns: int) -> int: ...
def cpu_function(net: int, function: int, block: int, blocks: int, argument: int) -> None: ...
def cpu_put(
    net: int,
    team: int,
    memory: int,
    offset: int,
    data: Buffer,
    n: int | None,
    member: int,
    signal: tuple[int, int] | None = None,
) -> int: ...
def cpu_signal_set(net: int, team: int, signal: int, value: int, member: int) -> int: ...
def cpu_signal_wait(net: int, team: int, signal: int, source: int, value: int, timeout_ns: int) -> int: ...
def cpu_barrier(net: int, team: int, timeout_ns: int) -> int: ...

class CpuLaunch:
    def begin_block(self) -> None: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
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

        The addresses of a name are tried one after the other. `timeout` is for the connect to each of them, in seconds;
        the socket's own timeout is set by `Socket.settimeout`. `send_ring` and `recv_ring` are sizes in bytes, 4 KiB to
        16 MiB, rounded up to a power of two; None leaves them to the proxy. `linger` is how many seconds what was sent may
        take after a close; 0: the close resets the stream.
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
        """Receives `size` bytes. EOFError, whose `partial` has what came: the stream ended.

        After another exception (TimeoutError, ConnectionResetError, KeyboardInterrupt) the next receive gets what came.
        """
    def _keep(self, data: Buffer) -> None: ...
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
    def socket(self, number: int) -> DeviceSocket | DeviceListener:
        """Finds a stream or a listener of the device by its number: a kernel has opened it, or the program has left it.

        Who opened it owns it: the object may be dropped, and is `closed` once a kernel or the end of its launch has closed
        it. ValueError: the number is no such socket.
        """
    def alloc(self, nbytes: int) -> Memory:
        """Allocates zeroed memory of the device, at least a byte. MemoryError: it has no more."""
    def serve_calls(
        self,
        functions: Mapping[str | int, Callable[[bytes], Buffer | None]],
        *,
        channels: int,
        tickets: int = 16,
        threads: int = 4,
        request: int = 256,
        answer: int = 256,
        latency: float = 1e-4,
        names: bool = False,
    ) -> Calls:
        """Lets kernels call functions of this program, by names or by numbers below 2**30 (gpunet_calls.h).

        >>> with attachment.serve_calls({"double": lambda data: data * 2}, channels=132) as calls:
        ...     kernel((132,), (128,), (net, numpy.frombuffer(calls.value, "V32")))

        A function gets the request's bytes and returns the answer's, or None for none. An OSError with an errno is what the
        kernel gets; any other exception is printed, and the kernel gets -ECONNABORTED. `threads` threads run the functions,
        several at a time. `channels` is how many blocks, warps or threads of kernels call at a time, `tickets` how many calls
        each of them has in flight (64 at most), `request` and `answer` are the longest in bytes (1012 and 1020 at most).
        `latency`, in seconds, is how long the library sleeps between two looks when no calls come. With
        `names`, kernels may also ask for the addresses of host names (gpunet_resolve). ValueError: something of this cannot be.
        """
    def watch(
        self,
        *,
        rings: int,
        records: int = 1024,
        payload: int = 44,
        texts: int = 128,
        level: Level = "info",
        wait: float | None = None,
    ) -> Watch:
        """Makes rings in which kernels record and print (gpunet_records.h).

        `rings` is how many blocks, warps or threads write at a time; each ring keeps `records` records of at most `payload`
        bytes. `texts` is how many texts kernels may print, `level` the least important lines that are. Without `wait` a full
        ring loses its oldest record; with it a record waits for `read`, for so many seconds (math.inf: without limit).
        """
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

class Calls:
    """Functions of the program that kernels call. A context manager: leaving the block closes it.

    Keep the object until the kernels have ended that have its value: it has the memory.
    """

    @property
    def value(self) -> bytes:
        """The kernel's parameter: a `gpunet_calls_t`, by value."""
    def stats(self) -> dict[str, int]:
        """Returns how many calls were "answered", "told" (no answer was wanted), "failed", "late" and "malformed"."""
    def close(self) -> int:
        """Ends the service: calls of kernels fail with -ENETDOWN from now on. Returns how many functions still run.

        It waits two seconds for functions that run. OSError (EDEADLK): such a function called it.
        """
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Calls: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Record:
    """A record of a kernel, or a printed line."""

    @property
    def time_ns(self) -> int:
        """When it was written, in nanoseconds of the device's clock."""
    @property
    def number(self) -> int:
        """Its number in its ring, from 0."""
    @property
    def kind(self) -> int:
        """The kernel's number for it; from 32768 on a printed line; GPUNET_RECORD_BEGIN, _END, _COUNT (32752 to 32754)."""
    @property
    def ring(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def warp(self) -> int | None:
        """None: the block wrote it."""
    @property
    def lane(self) -> int | None: ...
    @property
    def sm(self) -> int | None:
        """The multiprocessor; None: a CPU."""
    @property
    def text(self) -> str | None:
        """The printed line, or the name of a span or counter; None: a record of another kind."""
    @property
    def level(self) -> Level | None:
        """Of a line. None beside a text: it says why there is no line."""
    @property
    def left_out(self) -> int:
        """Lines of the same text that were left out before this one, because of its limit."""
    @property
    def payload(self) -> bytes:
        """What the record says; of a line its arguments."""

class Watch:
    """Rings in which kernels record and print. A context manager: leaving the block closes it.

    Keep the object until the kernels have ended that have its value: it has the memory.
    """

    @property
    def value(self) -> bytes:
        """The kernel's parameter: a `gpunet_records_t`, by value."""
    def read(self) -> list[Record]:
        """Returns what has come since the last call: the records of each ring in order. It does not wait.

        Kernels may run meanwhile, hang, or have ended.
        """
    def stats(self) -> dict[str, int]:
        """Returns how many "records" were read, and how many were "overwritten", "refused" or "malformed"."""
    def close(self) -> None:
        """Ends the reading: what was not read is lost."""
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Watch: ...
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
    """A connected stream of a device, for its kernels. Launches that run and know it are waited for before it is closed."""

    def device_number(self) -> int:
        """Returns the number by which kernels use it, until it is closed."""
    def leave(self) -> int:
        """Leaves it to the kernels, one of which closes it; returns its number."""
    def give_back(self) -> None:
        """Gives the directions that queues have used back to the kernels.

        OSError with EBUSY: operations of a queue are under way, or a launch that runs knows the socket.
        """
    def getsockname(self) -> ReturnedAddress: ...
    def getpeername(self) -> ReturnedAddress: ...
    @property
    def transport(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Closes it, when the operations of queues are done."""
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

    That of a GPU is a CUDA array: `cupy.asarray(memory)`, `torch.as_tensor(memory, device="cuda")`. Both are DLPack tensors:
    `torch.from_dlpack(memory)`. Keep it until the kernels that were given its address have ended.
    """

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def write(self, data: Buffer, offset: int = 0) -> None: ...
    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

class Queue:
    """Operations on sockets and teams that happen one after another: on a CUDA stream, in one order with its kernels and
    copies, or on a thread of the CPU device.

    A call enqueues, and waits for nothing. The arrays are kept until their operations have ended; who writes or reads them
    elsewhere waits for the stream, or for `synchronize`. The first operation that fails stays the queue's failure, and those
    behind it are tried nevertheless. A context manager: leaving the block waits for what was enqueued, and raises the failure.
    """

    def __init__(
        self,
        attachment: Attachment,
        stream: Stream | None = None,
        *,
        short: int | None = None,
        fragment: int | None = None,
        depth: int | None = None,
        kernels: bool | None = None,
    ) -> None:
        """A queue on a stream of the program's own, or without one a queue of the CPU device.

        docs/queues.md explains the settings: `short`, `fragment` and `depth` are about long messages (64 KiB, 1 MiB, 4);
        `kernels`: all operations are kernels. The object that has the stream is kept.
        """
    def send(self, socket: DeviceSocket, data: Array) -> None:
        """Sends all of an array, of any length. A queue that uses a direction of a socket takes it from the kernels."""
    def recv(self, socket: DeviceSocket, into: Array) -> None:
        """Receives as many bytes as the array has."""
    def start_send(self, socket: DeviceSocket, data: Array) -> Started:
        """Sends while what follows proceeds, until `finish`: so a program sends and receives at once."""
    def start_recv(self, socket: DeviceSocket, into: Array) -> Started:
        """Receives while what follows proceeds, until `finish`."""
    def finish(self, *started: Started) -> None:
        """Waits for messages that were started on this queue."""
    def put(self, to: Symmetric, data: Array, member: int, *, offset: int = 0) -> None:
        """Copies an array to byte `offset` of a member's part."""
    def put_signal(self, to: Symmetric, data: Array, signal: int, value: int, member: int, *, offset: int = 0) -> None:
        """Puts, and sets a signal of the member: who sees the value sees the bytes."""
    def signal_set(self, team: Team, signal: int, value: int, member: int) -> None:
        """Sets a signal of a member, who sees what the queue did before. Values only grow."""
    def signal_wait(self, team: Team, signal: int, source: int, value: int) -> None:
        """Waits until the signal that `source` sets is at least `value`."""
    def barrier(self, team: Team) -> None:
        """Waits until all members have come, by a queue or a kernel."""
    def all_gather(self, to: Symmetric, data: Array, *, offset: int = 0) -> None:
        """Gives every member the arrays of all, by rank."""
    def broadcast(self, to: Symmetric, data: Array, root: int, *, offset: int = 0) -> None:
        """Gives every member the array of `root`. The others pass one of the same length."""
    def all_to_all(self, to: Symmetric, data: Array, *, offset: int = 0) -> None:
        """Gives every member a part of each array: part i of member j's is part j of member i's `to`."""
    def set_team_timeout(self, timeout: float | None) -> None:
        """Limits each wait of the team operations that follow; None: no limit."""
    def notify(self) -> Done:
        """Returns the end of all that was enqueued before, to be awaited or waited for."""
    def synchronize(self, timeout: float | None = None) -> None:
        """Waits for all that was enqueued.

        OSError: the queue's first failure, with `operation` (0 for the first that was enqueued) and `bytes` (those of it
        that were moved). ECANCELED: its attachment was closed.
        """
    def is_idle(self) -> bool:
        """Returns whether all that was enqueued is done."""
    def outcome(self) -> dict[str, Any]:
        """Returns how many operations are "done", and the first "failure": None, or "operation", "errno", "error", "bytes"."""
    def close(self) -> None:
        """Ends it without waiting. What was enqueued is done nevertheless."""
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Queue: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Started:
    """A message of a queue that was started."""

class Done:
    """The end of what was enqueued on a queue. `await done`, or `done.wait()`: both raise the queue's failure."""

    def wait(self, timeout: float | None = None) -> None: ...
    def done(self) -> bool: ...
    def fileno(self) -> int:
        """Returns a descriptor that is readable when it has come."""
    def __await__(self) -> Generator[Any]: ...

class Team:
    """A device's place in a team: its members store into each other's memory, and meet. All are on one machine.

    A context manager: leaving the block leaves the team, when all do.
    """

    @staticmethod
    def join(attachment: Attachment, id: str, rank: int, size: int, *, signals: int = 256, timeout: float = 30.0) -> Team:
        """Joins as member `rank` of `size`, by an id that all have; waits until all have joined.

        Member 0 listens at the id's address, and its `timeout` is how long members wait for each other.
        """
    @staticmethod
    def launched(attachment: Attachment, *, signals: int = 256, timeout: float = 30.0) -> Team:
        """Joins as what torchrun, mpirun or srun has started this program as.

        Of torchrun: RANK, WORLD_SIZE, MASTER_ADDR and the port after MASTER_PORT. FileNotFoundError: the environment names no
        team.
        """
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def signals(self) -> int: ...
    def device_number(self) -> int:
        """Returns the number by which kernels of the attachment use it, until it is left."""
    @property
    def broken(self) -> str | None:
        """Why no wait can succeed any more, if none can: a member has died."""
    def alloc(self, shape: int | Sequence[int], dtype: Any = "uint8") -> Symmetric:
        """Allocates an array of zeros for each member. All members call it, with the same size.

        `dtype` is a name or a type of numpy or torch.
        """
    def barrier(self) -> None:
        """Waits until all members have called it. It does not wait for kernels and queues."""
    def split(self, colour: int, key: int = 0) -> Team:
        """Makes teams of the members that give the same colour, ranked by key. All members call it."""
    def leave(self) -> None:
        """Leaves the team, when all members do. Arrays of its memory stay."""
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Team: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class TeamListener:
    """Where a team meets whose address is not known before: member 0 makes it, and passes `id` on."""

    def __init__(self, address: Address | None = None) -> None: ...
    @property
    def id(self) -> str:
        """By which the others join: as secret as a password."""
    def lead(self, attachment: Attachment, size: int, *, signals: int = 256, timeout: float = 30.0) -> Team:
        """Joins as member 0."""
    def close(self) -> None: ...

class Symmetric(Buffer):
    """An array of the same shape in the memory of every member; as an array it is this member's own part.

    `torch.from_dlpack(memory)`, `cupy.from_dlpack(memory)`; on the CPU `numpy.asarray(memory)`, `memoryview(memory)`. It is
    mapped as long as it, or an array that was made of it, is there.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def device_number(self) -> int:
        """Returns the number by which kernels of the attachment use it."""
    def part(self, member: int) -> SymmetricPart:
        """Returns a member's part, where this member's device has it mapped, to be made an array of."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class SymmetricPart(Buffer):
    """A member's part of symmetric memory, as an array."""

    @property
    def member(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class RawChannel:
    """What `Channel` is made of."""

    @staticmethod
    def connect(
        address: Address, streams: int | None, piece: int | None, timeout: float | None, rendezvous: bool, most: int | None
    ) -> RawChannel: ...
    @staticmethod
    def of_streams(
        sockets: Sequence[Socket], accepts: bool, piece: int | None, timeout: float | None, rendezvous: bool, most: int | None
    ) -> RawChannel: ...
    def send(
        self,
        arrays: Sequence[PassedArray],
        checksum: bool,
        progress: Callable[[int, int], object] | None,
        timeout: float | None,
        owned: bool = False,
    ) -> Transfer[Outcome]: ...
    def recv_into(
        self,
        arrays: Sequence[PassedArray],
        progress: Callable[[int, int], object] | None,
        timeout: float | None,
        owned: bool = False,
    ) -> Transfer[Outcome]: ...
    def recv(
        self,
        make: Callable[[list[tuple[str, _Kind, list[int], bool]]], tuple[Sequence[PassedArray], Any]],
        progress: Callable[[int, int], object] | None,
        timeout: float | None,
        owned: bool = False,
    ) -> Transfer[Any]: ...
    def finish_sends(self) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def why_not_local(self) -> str | None: ...

class RawChannelListener:
    """What `ChannelListener` is made of."""

    def __init__(
        self,
        address: Address,
        streams: int | None,
        piece: int | None,
        timeout: float | None,
        rendezvous: bool,
        most: int | None,
    ) -> None: ...
    def accept(self, timeout: float | None) -> RawChannel: ...
    def getsockname(self) -> ReturnedAddress: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

class Transfer(Generic[_T_co]):
    """A transfer of a channel that was begun: `await transfer`, or `transfer.wait()`.

    A task that is cancelled while it awaits one gives it up, as `cancel` does.
    """

    def wait(self, timeout: float | None = None) -> _T_co:
        """Waits until it is over, and returns what it gives; TimeoutError: it goes on."""
    def done(self) -> bool: ...
    def cancel(self) -> bool:
        """Gives it up; returns whether it was not over. One that has not begun leaves the channel as it is.

        One that has begun ends the channel: OSError with ECANCELED here, and an error at the other end.
        """
    @property
    def progress(self) -> tuple[int, int]:
        """How many bytes are through, and of how many."""
    @property
    def outcome(self) -> Outcome | None:
        """How it went, once it has succeeded."""
    def fileno(self) -> int:
        """Returns a descriptor that is readable when it is over."""
    def __await__(self) -> Generator[Any, Any, _T_co]: ...

class Outcome:
    """How a transfer went."""

    @property
    def nbytes(self) -> int: ...
    @property
    def via(self) -> str:
        """How, in words: "one copy", "4 connections (the two ends are on different machines)"."""
    @property
    def copied(self) -> bool:
        """Whether it was one copy from memory to memory."""
    @property
    def why_not_copied(self) -> str | None: ...
