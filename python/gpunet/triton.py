"""Sockets in Triton kernels.

    import gpunet.triton as gt

    @triton.jit
    def echo(net, listener, buffer, size):
        socket = gt.accept(net, listener)
        n = gt.recv(net, socket, buffer, size)
        while n > 0:
            gt.send(net, socket, buffer, n)
            n = gt.recv(net, socket, buffer, size)
        gt.close(net, socket)

A program calls: its whole block, once, with scalars. `net` is what the launch gives, a socket is a
number, addresses are pointers to global memory, sizes are bytes, timeouts are nanoseconds. Results
are 0, a count or a socket; a failure is a negative errno.

The import installs a hook into Triton's compiler, which links kernels that call these functions with
gpunet's device functions. Other kernels are compiled as before.
"""

from __future__ import annotations

import dataclasses
import re
import threading

try:
    import triton
    import triton.language as tl
    from triton import knobs
    from triton.language import core
except ImportError as error:
    raise ImportError("gpunet.triton needs Triton 3.6 or later: pip install 'gpunet[triton]'") from error

from gpunet import _link, _team_calls
from gpunet._calls import ADDRESS_LENGTH, CALLS, CONSTANTS, sockaddr
from gpunet._team_calls import HANDLES, IDS, WIDTHS

if not hasattr(knobs.runtime, "add_stages_inspection_hook"):
    raise ImportError(f"gpunet.triton needs Triton 3.6 or later, not {triton.__version__}")

globals().update({name: tl.constexpr(value) for name, value in CONSTANTS.items()})

CALLED = ("accept", "connect", "send", "send_some", "recv", "recv_exact", "shutdown", "close", "poll")
OF_TEAMS = ("put", "put_signal", "signal_set", "signal_wait", "barrier")
__all__ = [*CALLED, *OF_TEAMS, *CONSTANTS, "install", "sockaddr"]

_FOREVER = tl.constexpr(CONSTANTS["FOREVER"])
_MSG_WAITALL = tl.constexpr(CONSTANTS["MSG_WAITALL"])
_SOCKET_TIMEOUT = tl.constexpr(CONSTANTS["SOCKET_TIMEOUT"])
_SHUT_RDWR = tl.constexpr(CONSTANTS["SHUT_RDWR"])
_ADDRESS_LENGTH = tl.constexpr(ADDRESS_LENGTH)
# A constant that all calls use is part of the key of each kernel in Triton's cache.
_DEVICE = tl.constexpr(f"{_link.LAYOUT}-{_link.device_hash()}")


# ---- the hook ----


class _Compilation(threading.local):
    """What this thread compiles now."""

    options: object = None
    refusal: str | None = None
    uses_gpunet = False


_compilation = _Compilation()


def install() -> None:
    """Installs the hook again, for programs that set their own after the import of this module.

    A hook that is there is called first.
    """
    previous = knobs.runtime.add_stages_inspection_hook
    if not getattr(previous, "gpunet", False):
        knobs.runtime.add_stages_inspection_hook = _hook_after(previous)


def _hook_after(previous):
    def hook(backend=None, stages=None, options=None, language=None, capability=None):
        if stages is None:  # Triton after 3.6 asks for the hook's part of the cache key
            key, digest = previous() if previous else ("", "")
            return f"{key}gpunet", f"{digest}{_DEVICE.value}"
        if previous:
            previous(backend, stages, options, language, capability)
        _compilation.options = options
        _compilation.refusal = _refusal(stages, options, capability)
        _compilation.uses_gpunet = False
        if _compilation.refusal is None:
            for name, wrap in (("ttir", _wrap_ttir), ("cubin", _wrap_cubin)):
                if name in stages:
                    stages[name] = wrap(stages[name], backend, options)
        return None

    hook.gpunet = True
    return hook


def _refusal(stages, options, capability) -> str | None:
    """Why a kernel with these options can have no sockets."""
    if "cubin" not in stages:
        return "gpunet's calls run on NVIDIA GPUs only"
    if capability < 80:
        return f"gpunet's calls need a GPU of sm_80 or later, not sm_{capability}"
    if options.num_ctas > 1:
        return "gpunet's calls are made by one thread block; use num_ctas=1"
    try:
        limit = _link.register_limit(32 * options.num_warps) or 255
    except ValueError as error:
        return f"{error} (num_warps={_link.MAX_THREADS // 32} or fewer)"
    if options.maxnreg is not None and options.maxnreg < limit:
        return f"gpunet's calls need {limit} registers a thread; leave out maxnreg={options.maxnreg}"
    return None


def _wrap_ttir(stage, backend, options):
    def ttir(source, metadata):
        module = stage(source, metadata)
        if _compilation.uses_gpunet and (name := _per_element(str(module))):
            raise RuntimeError(
                f"gpunet's calls are made by the whole program, once; a function of {name} is called "
                "for each element, by single threads. Move the call out of it"
            )
        return module

    return ttir


_PER_ELEMENT = {"reduce": "reduce", "scan": "associative_scan"}
"""Operations whose functions are called for each element, and their names in triton.language. Triton
itself refuses calls in those of map_elementwise."""


def _per_element(text: str) -> str | None:
    """The operation that calls gpunet for each element, if there is one."""
    inside = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if inside is None:
            if begun := re.search(rf"\btt\.({'|'.join(_PER_ELEMENT)})\b", line):
                inside, closing = begun[1], indent
        elif indent <= closing and line.lstrip().startswith("})"):
            inside = None
        elif '"gpunet_' in line:
            return f"tl.{_PER_ELEMENT[inside]}"
    return None


_ALIGNMENT = 1024
_FILL = _ALIGNMENT - 288
"""What is to be filled up where the device functions have 288 bytes of shared memory: most do."""


def _with_fill(source: str, size: int) -> str:
    """PTX with `size` more bytes of shared memory. The kernel writes to them, so that they stay."""
    entry = re.search(r"\.visible \.entry [^{]*\{", source)
    declared = f".shared .align 16 .b8 gpunet_fill[{size}];\n"
    return (
        source[: entry.start()] + declared + entry[0] + "\n\tst.volatile.shared.u32 [gpunet_fill], 0;" + source[entry.end() :]
    )


def _wrap_cubin(stage, backend, options):
    def cubin(source, metadata):
        if not re.search(r"\.extern\s+\.func\b[^;]*\bgpunet_", source):
            return stage(source, metadata)
        source = _team_calls.with_definitions(source)
        if metadata["num_warps"] != options.num_warps:
            raise RuntimeError(
                "gpunet's calls are made by all warps of a program, and warp specialization gives them "
                "different work: leave it out (warp_specialize=False) in kernels with sockets"
            )
        relocatable = dataclasses.replace(options, ptx_options=f"-c {options.ptx_options or ''}".strip())
        architecture = f"sm_{backend.target.arch}{'a' if backend.target.arch >= 90 else ''}"

        def linked(text):
            kernel = backend.make_cubin(text, metadata, relocatable, backend.target.arch)
            return _link.link(kernel, architecture, 32 * options.num_warps)

        if "global_smem" not in source:
            return linked(source)
        # Tensor cores and TMA need Triton's shared memory aligned. gpunet's lies before it, so fill up.
        fill = _FILL
        for _ in range(2):
            result = linked(_with_fill(source, fill))
            beyond = _link.static_shared(result, metadata["name"]) % _ALIGNMENT
            if beyond == 0:
                return result
            fill = (fill - beyond) % _ALIGNMENT or _ALIGNMENT
        raise RuntimeError("gpunet: Triton's shared memory cannot be aligned; please report this kernel")

    return cubin


# ---- the calls ----


def _check_compilation(call: str, semantic) -> None:
    if getattr(semantic.builder, "options", None) is not _compilation.options:
        raise RuntimeError(
            "this kernel would not be linked with gpunet: another stages hook of Triton has replaced "
            "gpunet's, or TRITON_INTERPRET is set. Call gpunet.triton.install() after setting a hook"
        )
    if _compilation.refusal is not None:
        raise RuntimeError(f"{call}: {_compilation.refusal}")
    _compilation.uses_gpunet = True


def _argument(call: str, kind: str, value, semantic):
    """An argument as the device function takes it: a scalar of the right width."""
    plain = core._unwrap_if_constexpr(value)
    if plain is None or isinstance(plain, (bool, float, str)):
        raise TypeError(f"{call}: {kind} is {plain!r}, not an integer")
    value = semantic.to_tensor(value)
    if value.type.is_block():
        raise TypeError(
            f"{call}: {kind} is a block of shape {[int(n) for n in value.shape]}; a program makes one call, with scalars"
        )
    of_type = value.dtype
    if of_type.is_ptr():
        if kind != "address":
            raise TypeError(f"{call}: {kind} is a pointer ({of_type}), not an integer")
    elif not of_type.is_int():
        raise TypeError(f"{call}: {kind} is {of_type}, not an integer; load it from an integer tensor")
    if kind in HANDLES and of_type.primitive_bitwidth != 64:
        raise TypeError(f"{call}: an argument is {HANDLES[kind].format(of_type)}")
    null = isinstance(plain, int) and plain == 0
    if kind == "address" and not (null or of_type.is_ptr() or of_type.primitive_bitwidth == 64):
        raise TypeError(f"{call}: an address is a pointer or 64 bits, not {of_type}; pass the tensor itself")
    wide = semantic.cast(value, core.int64)
    if WIDTHS[kind] == 64:
        return wide
    narrow = semantic.cast(value, core.int32)
    if kind in IDS and of_type.primitive_bitwidth > 32:
        # What does not fit is none, and must not become another one.
        fits = semantic.equal(semantic.cast(narrow, core.int64), wide)
        narrow = semantic.where(fits, narrow, semantic.to_tensor(-1))
    return narrow


def _device_call(symbol: str):
    bits, kinds, _ = CALLS.get(symbol) or _team_calls.CALLS[symbol]
    returned = core.int64 if bits == 64 else core.int32
    types = tuple(core.int64 if WIDTHS[kind] == 64 else core.int32 for kind in kinds)
    call = symbol.removeprefix("gpunet_").removeprefix("team_").removesuffix("_timeout").removesuffix("_to")

    def function(device, *arguments, _semantic=None):
        _check_compilation(f"gpunet.triton.{call}", _semantic)
        values = [
            _argument(f"gpunet.triton.{call}", kind, value, _semantic) for kind, value in zip(kinds, arguments, strict=True)
        ]
        if "length" in kinds:
            # A length below 0, such as a failed receive's result, is -EFAULT: there is no data.
            at, length = kinds.index("address"), values[kinds.index("length")]
            negative = _semantic.less_than(length, _semantic.cast(_semantic.to_tensor(0), core.int64))
            zero = _semantic.cast(_semantic.to_tensor(0), core.int64)
            values[at] = _semantic.where(negative, zero, values[at])
        return core.extern_elementwise("", "", values, {types: (symbol, returned)}, is_pure=False, _semantic=_semantic)

    return core.extern(function)


_accept = _device_call("gpunet_accept_timeout")
_connect = _device_call("gpunet_connect_to")
_send = _device_call("gpunet_send_timeout")
_recv = _device_call("gpunet_recv_timeout")
_shutdown = _device_call("gpunet_shutdown")
_close = _device_call("gpunet_close")
_poll = _device_call("gpunet_poll")


_put = _device_call("gpunet_team_put")
_put_signal = _device_call("gpunet_team_put_signal")
_signal_set = _device_call("gpunet_team_signal_set")
_signal_wait = _device_call("gpunet_team_signal_wait")
_barrier = _device_call("gpunet_team_barrier")


@triton.jit
def accept(net, listener, timeout_ns=_SOCKET_TIMEOUT):
    """Waits for a connection to `listener` and returns its socket; -EAGAIN when the time is over."""
    return _accept(_DEVICE, net, listener, 0, 0, timeout_ns)


@triton.jit
def connect(net, address, timeout_ns=_SOCKET_TIMEOUT):
    """Connects to the 28 bytes that `sockaddr` made, in memory of the GPU, and returns the socket."""
    return _connect(_DEVICE, net, address, _ADDRESS_LENGTH, 0, timeout_ns)


@triton.jit
def send(net, socket, data, n, timeout_ns=_SOCKET_TIMEOUT, flags=0):
    """Sends `n` bytes and returns `n`.

    It returns fewer when the time is over or the connection fails after some bytes: then the next
    call returns the failure.
    """
    return _send(_DEVICE, net, socket, data, n, flags | _MSG_WAITALL, timeout_ns)


@triton.jit
def send_some(net, socket, data, n, timeout_ns=_SOCKET_TIMEOUT, flags=0):
    """Sends what the ring has room for, at least one byte and at most `n`, and returns how many."""
    return _send(_DEVICE, net, socket, data, n, flags, timeout_ns)


@triton.jit
def recv(net, socket, data, n, timeout_ns=_SOCKET_TIMEOUT, flags=0):
    """Receives what is there, at least one byte and at most `n`, and returns how many; 0 at the end
    of the stream."""
    return _recv(_DEVICE, net, socket, data, n, flags, timeout_ns)


@triton.jit
def recv_exact(net, socket, data, n, timeout_ns=_SOCKET_TIMEOUT, flags=0):
    """Receives `n` bytes and returns `n`; fewer at the end of the stream, or when the time is over or
    the connection fails after some bytes."""
    return _recv(_DEVICE, net, socket, data, n, flags | _MSG_WAITALL, timeout_ns)


@triton.jit
def shutdown(net, socket, how=_SHUT_RDWR):
    """Ends one direction of a stream, or both."""
    return _shutdown(_DEVICE, net, socket, how)


@triton.jit
def close(net, socket):
    """Closes a socket."""
    return _close(_DEVICE, net, socket)


@triton.jit
def poll(net, entries, count, timeout_ns=_SOCKET_TIMEOUT):
    """Waits for one of `count` sockets and returns how many are ready; 0 when the time is over.

    An entry is 8 bytes, as `struct pollfd`: int32 socket, int16 events, int16 revents. Without a
    timeout it waits without limit.
    """
    return _poll(_DEVICE, net, entries, count, timeout_ns)


@triton.jit
def put(net, team, memory, offset, data, n, member):
    """Copies `n` bytes to byte `offset` of symmetric memory in the part of a member, and returns 0."""
    return _put(_DEVICE, net, team, memory, offset, data, n, member)


@triton.jit
def put_signal(net, team, memory, offset, data, n, signal, value, member):
    """Puts, and sets a signal of the member: who sees the value sees the bytes. Returns 0."""
    return _put_signal(_DEVICE, net, team, memory, offset, data, n, signal, value, member)


@triton.jit
def signal_set(net, team, signal, value, member):
    """Sets a signal of a member, who sees what was stored before. Values only grow. Returns 0."""
    return _signal_set(_DEVICE, net, team, signal, value, member)


@triton.jit
def signal_wait(net, team, signal, source, value, timeout_ns=_FOREVER):
    """Waits until the signal that `source` sets is at least `value`, and returns what it is."""
    return _signal_wait(_DEVICE, net, team, signal, source, value, timeout_ns)


@triton.jit
def barrier(net, team, timeout_ns=_FOREVER):
    """Waits until all members have come, one block of each. Returns 0."""
    return _barrier(_DEVICE, net, team, timeout_ns)


install()
