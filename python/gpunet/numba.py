"""Sockets in Numba kernels: of numba-cuda-mlir where it is installed, else of numba-cuda.

    from gpunet.numba import accept, close, cuda, recv, send

    @cuda.jit
    def echo(net, listener, buffer):
        socket = accept(net, listener)
        n = recv(net, socket, buffer)
        while n > 0:
            send(net, socket, buffer, n)
            n = recv(net, socket, buffer)
        close(net, socket)

Functions without a suffix are called by all threads of a block at the same point with the same
arguments, those in `_warp` by all threads of a warp, those in `_thread` by one thread. Data is a
C-contiguous device or shared array, or an address and a length. Lengths are bytes, timeouts
nanoseconds. Results are 0, a count or a socket; a failure is a negative errno.

`cuda` is the module that the functions belong to. They serve blocks of up to 256 threads;
`functions(512)` returns a module of the same for larger ones.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types as python_types

from gpunet import _link, _team_calls
from gpunet._calls import ADDRESS_LENGTH, CALLS, CONSTANTS, sockaddr
from gpunet._team_calls import HANDLES, MEMORY, NET, TEAM, WIDTHS

# A program that has imported numba.cuda already means that one.
_MLIR = "numba_cuda_mlir" in sys.modules or "numba.cuda" not in sys.modules
try:
    if not _MLIR:
        raise ImportError
    from numba_cuda_mlir import cuda, extending, types
    from numba_cuda_mlir.errors import TypingError

    _REGISTRY = {"typing_registry": extending.typing_registry}
except ImportError:
    try:
        from numba import cuda, types
        from numba.core.errors import TypingError
        from numba.cuda import Cubin, extending  # noqa: F401  (Numba's own CUDA target has no Cubin)

        _REGISTRY = {"target": "cuda"}
    except ImportError as error:
        raise ImportError("gpunet.numba needs numba-cuda-mlir or numba-cuda: pip install 'gpunet[numba]'") from error

globals().update(CONSTANTS)

_MSG_WAITALL, _SHUT_RDWR = CONSTANTS["MSG_WAITALL"], CONSTANTS["SHUT_RDWR"]
_SOCKET_TIMEOUT, _FOREVER = CONSTANTS["SOCKET_TIMEOUT"], CONSTANTS["FOREVER"]
_FIRST, _LAST = -(1 << 31), (1 << 31) - 1


class _DeviceObject(cuda.Cubin):
    """gpunet's device functions, assembled for the current device when a kernel is linked."""

    def __init__(self, max_threads: int) -> None:
        super().__init__(b"", name="gpunet")
        self._max_threads = max_threads

    @property
    def data(self) -> bytes:
        major, minor = cuda.get_current_device().compute_capability[:2]
        found = _link.device_object(10 * major + minor, self._max_threads)
        if found is None:
            raise _link.LinkError(f"gpunet.numba needs a ptxas that knows sm_{major}{minor}: pip install 'gpunet[ptxas]'")
        return found


# ---- arguments: functions that kernels call, which check types when they are compiled ----


def _overload(typed):
    """A function of kernels, of which `typed` returns the implementation for its arguments' types."""
    parameters = ", ".join(inspect.signature(typed).parameters)
    name = typed.__name__
    exec(f"def {name}({parameters}):\n    raise TypeError('gpunet.numba is called in kernels')", scope := {})
    extending.overload(scope[name], **_REGISTRY)(typed)
    return scope[name]


def _bits(name: str, of_type) -> int:
    """The bits of an integer argument."""
    if isinstance(of_type, types.Omitted) or isinstance(of_type, int):
        return 64
    of_type = getattr(of_type, "literal_type", of_type)
    if not isinstance(of_type, types.Integer):
        raise TypingError(f"gpunet: {name} is {of_type}, not an integer")
    return of_type.bitwidth


def _item(name: str, data, written: bool) -> int:
    """The bytes of an array's items; 0: it is an address."""
    if not isinstance(data, types.Array):
        if _bits(name, data) != 64:
            raise TypingError(f"gpunet: {name} is {data}; pass an array, or an address of 64 bits")
        return 0
    if data.layout != "C":
        raise TypingError(f"gpunet: {name} is {data}, not C-contiguous; pass a contiguous array or slice")
    if written and not data.mutable:
        raise TypingError(f"gpunet: {name} is read-only ({data}); receive into a writable array")
    if isinstance(data.dtype, types.Boolean):
        return 1
    if (bits := getattr(data.dtype, "bitwidth", None)) is None:
        raise TypingError(f"gpunet: {name} has items of {data.dtype}; pass a view of uint8")
    return bits // 8


def _all_of_it(n) -> bool:
    return n is None or isinstance(n, (types.NoneType, types.Omitted))


def _handle(kind: str, named: str):
    def handle(net):
        if _bits(named, net) != 64:
            raise TypingError(f"gpunet: {named} is {HANDLES[kind].format(net)}")
        return lambda net: net

    return _overload(handle)


_context = _handle(NET, "the first argument")
_team, _memory = _handle(TEAM, "team"), _handle(MEMORY, "memory")


@_overload
def _socket(socket):
    # What does not fit is no socket, member or signal, and must not become another one.
    if _bits("socket", socket) > 32:
        return lambda socket: types.int32(socket if _FIRST <= socket <= _LAST else -1)
    return lambda socket: types.int32(socket)


@_overload
def _number(value):
    _bits("timeout_ns, flags or how", value)
    return lambda value: value


def _address(written: bool):
    """The address of data; 0, which the call answers with -EFAULT, when it has no `n` bytes."""

    def address(data, n):
        item = _item("data", data, written)
        if _all_of_it(n):
            if item == 0:
                raise TypingError("gpunet: an address needs a length: pass n, in bytes")
            return lambda data, n: types.uint64(data.ctypes.data)
        _bits("n", n)
        if item == 0:
            return lambda data, n: types.uint64(data if types.int64(n) >= 0 else 0)
        return lambda data, n: types.uint64(data.ctypes.data if 0 <= types.int64(n) <= data.size * item else 0)

    return _overload(address)


_source, _target = _address(written=False), _address(written=True)


@_overload
def _length(data, n):
    if _all_of_it(n):
        item = _item("data", data, False)
        return lambda data, n: types.uint64(data.size * item)
    return lambda data, n: types.uint64(n)


# ---- the functions ----


def _transfer(device, address, extra_flags):
    def transfer(net, socket, data, n=None, timeout_ns=_SOCKET_TIMEOUT, flags=0):
        return device(
            _context(net),
            _socket(socket),
            address(data, n),
            _length(data, n),
            _number(flags) | extra_flags,
            _number(timeout_ns),
        )

    return transfer


def _accept(device):
    def accept(net, listener, timeout_ns=_SOCKET_TIMEOUT):
        return device(_context(net), _socket(listener), 0, 0, _number(timeout_ns))

    return accept


def _connect(device):
    def connect(net, address, timeout_ns=_SOCKET_TIMEOUT):
        return device(_context(net), _source(address, ADDRESS_LENGTH), ADDRESS_LENGTH, 0, _number(timeout_ns))

    return connect


def _shutdown(device):
    def shutdown(net, socket, how=_SHUT_RDWR):
        return device(_context(net), _socket(socket), _number(how))

    return shutdown


def _close(device):
    def close(net, socket):
        return device(_context(net), _socket(socket))

    return close


def _poll(device):
    def poll(net, entries, timeout_ns=_SOCKET_TIMEOUT):
        count = _length(entries, None) // types.uint64(8)
        return device(_context(net), _target(entries, None), count, _number(timeout_ns))

    return poll


def _put(device):
    def put(net, team, memory, offset, data, n, member):
        return device(
            _context(net),
            _team(team),
            _memory(memory),
            _number(offset),
            _source(data, n),
            _length(data, n),
            _socket(member),
        )

    return put


def _put_signal(device):
    def put_signal(net, team, memory, offset, data, n, signal, value, member):
        return device(
            _context(net),
            _team(team),
            _memory(memory),
            _number(offset),
            _source(data, n),
            _length(data, n),
            _socket(signal),
            _number(value),
            _socket(member),
        )

    return put_signal


def _signal_set(device):
    def signal_set(net, team, signal, value, member):
        return device(_context(net), _team(team), _socket(signal), _number(value), _socket(member))

    return signal_set


def _signal_wait(device):
    def signal_wait(net, team, signal, source, value, timeout_ns=_FOREVER):
        return device(_context(net), _team(team), _socket(signal), _socket(source), _number(value), _number(timeout_ns))

    return signal_wait


def _barrier(device):
    def barrier(net, team, timeout_ns=_FOREVER):
        return device(_context(net), _team(team), _number(timeout_ns))

    return barrier


_SURFACE = {
    "accept": ("gpunet_accept_timeout", _accept),
    "connect": ("gpunet_connect_to", _connect),
    "send": ("gpunet_send_timeout", lambda device: _transfer(device, _source, _MSG_WAITALL)),
    "send_some": ("gpunet_send_timeout", lambda device: _transfer(device, _source, 0)),
    "recv": ("gpunet_recv_timeout", lambda device: _transfer(device, _target, 0)),
    "recv_exact": ("gpunet_recv_timeout", lambda device: _transfer(device, _target, _MSG_WAITALL)),
    "shutdown": ("gpunet_shutdown", _shutdown),
    "close": ("gpunet_close", _close),
    "poll": ("gpunet_poll", _poll),
    "put": ("gpunet_team_put", _put),
    "put_signal": ("gpunet_team_put_signal", _put_signal),
    "signal_set": ("gpunet_team_signal_set", _signal_set),
    "signal_wait": ("gpunet_team_signal_wait", _signal_wait),
    "barrier": ("gpunet_team_barrier", _barrier),
}
_ALL_CALLS = {**CALLS, **_team_calls.CALLS}


@functools.cache
def functions(max_threads: int) -> python_types.ModuleType:
    """Returns the functions for kernels whose blocks have up to `max_threads` threads, at most 512.

    Those for more than 256 threads use 128 registers; compile the kernel with
    ``@cuda.jit(max_registers=128)``. A kernel uses the functions of one such module only.
    """
    _link.register_limit(max_threads)
    linked = _DeviceObject(max_threads)
    of_teams = (linked, cuda.PTXSource(_team_calls.all_definitions(), name="gpunet_team"))
    integer = {32: types.int32, 64: types.uint64}
    module = python_types.ModuleType(f"{__name__}.functions_{max_threads}")
    for name, (symbol, make) in _SURFACE.items():
        bits, kinds, forms = _ALL_CALLS[symbol]
        returned = types.int64 if bits == 64 else types.int32
        arguments = [types.int64 if kind == "timeout" else integer[WIDTHS[kind]] for kind in kinds]
        for form in forms:
            link = linked if symbol in CALLS else of_teams
            declared = cuda.declare_device(symbol + form, returned(*arguments), link=link, abi="c")
            function = make(declared)
            function.__name__ = function.__qualname__ = name + form
            setattr(module, name + form, cuda.jit(device=True)(function))
    return module


globals().update({name: value for name, value in vars(functions(256)).items() if not name.startswith("_")})

__all__ = [
    *(name + form for name, (symbol, _) in _SURFACE.items() for form in _ALL_CALLS[symbol][2]),
    *CONSTANTS,
    "cuda",
    "functions",
    "sockaddr",
]
