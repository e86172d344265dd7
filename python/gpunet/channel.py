"""Whole arrays from one process to another, over several connections or by one copy. docs/tensors.md leads through it.

>>> import gpunet
>>> with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
...     port = listener.getsockname()[1]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from gpunet import _native
from gpunet._native import Outcome, Socket, Transfer

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

    from gpunet._native import Address, Array, PassedArray, ReturnedAddress, Stream

__all__ = ["Channel", "ChannelListener", "Outcome", "Transfer", "send_safetensors", "send_safetensors_async"]

Arrays: TypeAlias = "Array | Mapping[str, Array]"
Progress: TypeAlias = "bool | Callable[[int, int], object] | None"
Make: TypeAlias = "Callable[[str, str, tuple[int, ...]], Any]"
"""Makes the array, or bytes for it, for a name, a type and a shape."""

Kind: TypeAlias = "tuple[int, int, int]"

_NATIVE: dict[str, Kind] = {
    **{f"int{bits}": (0, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits, 1) for bits in (16, 32, 64)},
    **{f"complex{bits}": (5, bits, 1) for bits in (64, 128)},
    "bool": (6, 8, 1),
}
"""DLPack's numbers of types that every library has."""

_FURTHER: dict[str, Kind] = {
    "bfloat16": (4, 16, 1),
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
}
"""Those that numpy has by ml_dtypes, and torch has by its own."""

_KINDS = _NATIVE | _FURTHER
_NAMES = {kind: name for name, kind in _KINDS.items()}

_FORMATS = dict(zip(_NATIVE, "b h i q B H I Q e f d Zf Zd ?".split(), strict=True))
"""Those of memoryviews, which have no complex numbers."""

_SAFETENSORS: dict[str, str] = {
    **{f"{short}{bits}": f"{name}{bits}" for short, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def _is_of(library: str, kind: str, array: object) -> bool:
    """Whether it is an array of a library. Without the library's module there is none."""
    module = sys.modules.get(library)
    found = getattr(module, kind, None)
    return found is not None and isinstance(array, found)


def _passed(name: str, array: Any, stream: Any) -> PassedArray:
    """An array with what the native module does not know: its library's current stream, and types without a protocol."""
    kind: Kind | None = None
    if _is_of("torch", "Tensor", array):
        torch: Any = sys.modules["torch"]
        dtype = str(array.dtype).removeprefix("torch.")
        if array.is_conj() or array.is_neg():
            raise BufferError(
                "the tensor is a view of conjugates, which are not in memory; pass a.resolve_conj().resolve_neg()"
            )
        kind = _KINDS.get(dtype)
        # The same memory, as what every DLPack has.
        array = array.detach()
        if dtype in _FURTHER:
            array = array.view(torch.uint8 if kind is not None and kind[1] == 8 else torch.int16)
        if array.is_cuda and stream is None:
            stream = torch.cuda.current_stream(array.device)
    elif _is_of("cupy", "ndarray", array):
        kind, array = _named(array)
        if stream is None:
            stream = sys.modules["cupy"].cuda.get_current_stream(array.device.id)
    elif _is_of("numpy", "ndarray", array):
        kind, array = _named(array)
    elif stream is None:
        interface = getattr(array, "__cuda_array_interface__", None)
        stream = interface.get("stream") if isinstance(interface, dict) else None
    return name, array, stream, kind, None


def _named(array: Any) -> tuple[Kind | None, Any]:
    """An array of numpy or CuPy; one of ml_dtypes as the integers that its memory has."""
    if (kind := _FURTHER.get(array.dtype.name)) is None:
        return None, array
    if not array.flags.c_contiguous:
        return kind, array
    return kind, array.reshape(-1).view(f"u{kind[1] // 8}").reshape(array.shape)


def _all_passed(arrays: Arrays, name: str, stream: Any) -> list[PassedArray]:
    if not isinstance(arrays, Mapping):
        if isinstance(arrays, list | tuple):
            raise TypeError("several arrays are a dict by their names, such as {'weight': a, 'bias': b}")
        return [_passed(name, arrays, stream)]
    if name:
        raise ValueError("the arrays of a dict have their names; leave the name out")
    for key in arrays:
        if not isinstance(key, str) or not key:
            raise TypeError(f"the name of an array is a text that is not empty, not {key!r}")
    return [_passed(key, array, stream) for key, array in arrays.items()]


class _Bar:
    """Shows how far a transfer is, on a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, moved: int, total: int) -> None:
        part, took = moved / max(total, 1), max(time.monotonic() - self._began, 1e-9)
        end = "\n" if moved == total else ""
        rate = f"{moved / 1e6:.0f} of {total / 1e6:.0f} MB, {moved / took / 1e9:.2f} GB/s"
        text = f"\r{part:4.0%} [{'#' * int(30 * part):<30}] {rate} "
        try:
            sys.stderr.write(text + end)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # nobody sees it


def _shown(progress: Progress) -> Callable[[int, int], object] | None:
    if progress is True:
        return _Bar() if sys.stderr is not None and sys.stderr.isatty() else None
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise TypeError("progress is True (a bar on a terminal) or a function of the bytes that are through and of all")
    return progress


# ---- making arrays ----


def _by_numpy(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    import numpy  # type: ignore[import-not-found, unused-ignore]

    return numpy.empty(shape, _dtype_of_numpy(dtype))


def _dtype_of_numpy(dtype: str) -> Any:
    if dtype in _NATIVE:
        return dtype
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        return getattr(ml_dtypes, dtype)
    except (ImportError, AttributeError):
        raise TypeError(f"numpy has no {dtype}; install ml_dtypes, or receive to='torch'") from None


def _by_memoryview(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    if (code := _FORMATS.get(dtype, "Z")).startswith("Z"):
        raise TypeError(f"a memoryview has no {dtype}; receive to='torch', or install numpy")
    size = _KINDS[dtype][1] // 8
    for extent in shape:
        size *= extent
    view: Any = memoryview(bytearray(size))
    return view.cast(code, shape) if size else view.cast(code)


def _by_torch(device: int | None, stream: Any) -> tuple[Make, Any]:
    import torch  # type: ignore[import-not-found, unused-ignore]

    if device is None:
        return lambda name, dtype, shape: torch.empty(shape, dtype=getattr(torch, dtype)), None
    where = torch.device("cuda", device)
    # That of the thread that calls: another one makes the arrays.
    if stream is None:
        stream = torch.cuda.current_stream(where)
    elif not isinstance(stream, torch.cuda.Stream):
        stream = torch.cuda.ExternalStream(_handle(stream), where)

    def make(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        with torch.cuda.stream(stream):
            return torch.empty(shape, dtype=getattr(torch, dtype), device=where)

    return make, stream


def _by_cupy(device: int | None, stream: Any) -> tuple[Make, Any]:
    import cupy

    with cupy.cuda.Device(device) as where:
        number = where.id
        if stream is None:
            stream = cupy.cuda.get_current_stream()
        elif not isinstance(stream, cupy.cuda.Stream | cupy.cuda.ExternalStream):
            stream = cupy.cuda.ExternalStream(_handle(stream))

    def make(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        with cupy.cuda.Device(number), stream:
            return cupy.empty(shape, dtype if dtype in _NATIVE else _dtype_of_numpy(dtype))

    return make, stream


def _handle(stream: Any) -> int:
    """The handle of a stream, for another library."""
    for name in ("cuda_stream", "ptr", "handle"):
        if (handle := getattr(stream, name, None)) is not None:
            return int(handle)
    return int(stream)


def _device_number(device: Any) -> int | None:
    """The number of a GPU: of a number, an attachment, a device of torch, CuPy, Numba or cuda.core."""
    if device is None or isinstance(device, int):
        return device
    if isinstance(device, str):
        return int(device.removeprefix("cuda").removeprefix(":") or 0) if device.startswith("cuda") else None
    if getattr(device, "type", None) == "cpu":
        return None
    for name in ("device_id", "index", "id"):
        if isinstance(number := getattr(device, name, None), int):
            return number
    if getattr(device, "type", None) == "cuda":
        return cast(int, sys.modules["torch"].cuda.current_device())
    if isinstance(device, _native.Attachment):
        return None
    raise TypeError(f"a device is a number, an attachment or a device of torch, CuPy, Numba or cuda.core, not {device!r}")


def _maker(to: str | Make | None, device: Any, stream: Any) -> tuple[Make, Any]:
    """Who makes arrays, and the stream by which they are ordered."""
    if callable(to):
        return to, stream
    number = _device_number(device)
    if to is None:
        choices = ("numpy", "memoryview") if number is None else ("torch", "cupy")
        loaded = [library for library in choices if library in sys.modules]
        to = loaded[0] if loaded else _first_installed(choices)
    if to == "torch":
        return _by_torch(number, stream)
    if to == "cupy":
        return _by_cupy(number, stream)
    if number is not None:
        raise ValueError(f"arrays of {to} are not on a GPU; receive to='torch' or to='cupy'")
    if to == "numpy":
        return _by_numpy, stream
    if to == "memoryview":
        return _by_memoryview, stream
    raise ValueError(f"arrays are received to 'numpy', 'memoryview', 'torch', 'cupy', or a function, not to {to!r}")


def _first_installed(choices: tuple[str, ...]) -> str:
    import importlib.util

    for library in choices:
        if library == "memoryview" or importlib.util.find_spec(library):
            return library
    raise ImportError("arrays on a GPU are made by torch or CuPy; install one, or pass to=, a function that makes them")


def _make_all(make: Make, stream: Any) -> Callable[[list[tuple[str, Kind, list[int], bool]]], tuple[list[PassedArray], Any]]:
    def run(described: list[tuple[str, Kind, list[int], bool]]) -> tuple[list[PassedArray], Any]:
        made: list[tuple[str, Any, Kind, list[int]]] = []
        for name, kind, shape, _ in described:
            if (dtype := _NAMES.get(kind)) is None:
                raise TypeError(f"the array {name!r} is of a type that has no name here: {kind} of DLPack")
            made.append((name, make(name, dtype, tuple(shape)), kind, shape))
        # Memory that is bytes takes any type.
        passed: list[PassedArray] = [(*_passed(name, array, stream)[:4], (kind, shape)) for name, array, kind, shape in made]
        if len(made) == 1 and not made[0][0]:
            return passed, made[0][1]
        return passed, {name: array for name, array, _, _ in made}

    return run


# ---- channels ----


def _over(transfer: Transfer[Any]) -> Any:
    """Waits for a transfer that was begun as `owned`; who is interrupted gives it up, also before this is called."""
    try:
        return transfer.wait()
    except BaseException:
        transfer.cancel()
        raise


class Channel:
    """Sends arrays to another process, and receives arrays from it: whole, or not at all.

    `Channel.connect`, the `accept` of `Channel.listen` and `Channel.of_streams` make one. An array is contiguous memory of any
    type: by the buffer protocol, `__cuda_array_interface__` or DLPack. Several are a dict by their names, such as a state dict
    of torch. They are kept until their transfer is over. Transfers of a direction happen one after another; threads may share a
    channel.

    A context manager: leaving the block waits for sends that were begun and closes; an exception in the block ends them.
    """

    def __init__(self, raw: _native.RawChannel) -> None:
        self._raw = raw

    @classmethod
    def connect(
        cls,
        address: Address,
        *,
        streams: int | None = None,
        piece: int | None = None,
        timeout: float | None = None,
        rendezvous: bool = True,
        most: int | None = None,
    ) -> Channel:
        """Opens a channel to a listener.

        `streams`: connections for transfers (half the CPUs, at most 8); `piece`: bytes of a piece (1 MiB); `timeout`: seconds
        for opening (10), and for each transfer that has begun (no limit); `rendezvous`: whether memory is copied directly where
        both ends are on one machine; `most`: bytes for which `recv` makes arrays (64 GiB).
        """
        return cls(_native.RawChannel.connect(address, streams, piece, timeout, rendezvous, most))

    @classmethod
    def of_streams(
        cls,
        sockets: Iterable[Socket],
        side: Literal["connects", "accepts"],
        *,
        piece: int | None = None,
        timeout: float | None = None,
        rendezvous: bool = True,
        most: int | None = None,
    ) -> Channel:
        """Makes a channel of sockets that a proxy has connected or accepted, over any transport.

        The other end does the same, at the same time, with the other ends of the same sockets in any order. `side`: one end
        "connects" and the other one "accepts", whoever opened the sockets. There are 2 to 65: one carries answers, each
        further one is a connection for transfers. Nothing is under way on them. The channel takes them: they are closed for the
        program, also if this fails. A ValueError that is about one of them leaves all as they are. The keywords are those of
        `connect`.
        """
        if side not in ("connects", "accepts"):
            raise ValueError(f"one end 'connects' and the other one 'accepts', and none is {side!r}")
        taken = list(sockets)
        for socket in taken:
            if not isinstance(socket, Socket):
                kind = type(socket).__name__
                raise TypeError(f"a channel is made of sockets of a Proxy, not of {kind}: Channel.connect opens its own")
        return cls(_native.RawChannel.of_streams(taken, side == "accepts", piece, timeout, rendezvous, most))

    @staticmethod
    def listen(
        address: Address,
        *,
        streams: int | None = None,
        piece: int | None = None,
        timeout: float | None = None,
        rendezvous: bool = True,
        most: int | None = None,
    ) -> ChannelListener:
        """Listens for channels; port 0 takes a free one. The keywords are those of `connect`."""
        return ChannelListener(_native.RawChannelListener(address, streams, piece, timeout, rendezvous, most))

    def send(
        self,
        arrays: Arrays,
        *,
        name: str = "",
        stream: Stream | None = None,
        checksum: bool = False,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Sends an array, or a dict of arrays as one transfer; returns when the other end has every byte.

        What is on the arrays' CUDA stream when this is called is done before the bytes leave: a thread of the channel waits for
        it. `stream`: by default the current one of torch or CuPy, or what the array's protocol names. `checksum`: the receiver
        checks every piece. `progress`: True for a bar on a terminal, or a function of the bytes that are through and of all.

        OSError: with the errno, and `moved` of `total` bytes. EMSGSIZE and what the other end refuses leave the channel as it
        is; so does a TimeoutError before the transfer has begun. After other errors, and Ctrl-C in the middle, it has ended.
        """
        return cast(
            Outcome,
            _over(self._raw.send(_all_passed(arrays, name, stream), checksum, _shown(progress), timeout, owned=True)),
        )

    def send_async(
        self,
        arrays: Arrays,
        *,
        name: str = "",
        stream: Stream | None = None,
        checksum: bool = False,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Transfer[Outcome]:
        """Begins what `send` does; the transfer is to be awaited, or waited for. Until then nobody writes the arrays."""
        return self._raw.send(_all_passed(arrays, name, stream), checksum, _shown(progress), timeout)

    def recv_into(
        self,
        arrays: Arrays,
        *,
        name: str = "",
        stream: Stream | None = None,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Receives the next transfer into an array, or a dict of arrays by their names.

        Another type, shape, name or number of arrays than comes is an OSError (EMSGSIZE), which the sender gets, too. EOFError:
        the other end has closed. What was on the arrays' stream is done before they are written, and they are written when this
        returns.
        """
        passed = _all_passed(arrays, name, stream)
        return cast(Outcome, _over(self._raw.recv_into(passed, _shown(progress), timeout, owned=True)))

    def recv_into_async(
        self,
        arrays: Arrays,
        *,
        name: str = "",
        stream: Stream | None = None,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Transfer[Outcome]:
        """Begins what `recv_into` does."""
        return self._raw.recv_into(_all_passed(arrays, name, stream), _shown(progress), timeout)

    def recv(
        self,
        *,
        to: str | Make | None = None,
        device: Any = None,
        stream: Stream | None = None,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Any:
        """Receives the next transfer into new arrays: one array, or a dict where they have names; None: the other end closed.

        `to`: "numpy", "memoryview", "torch", "cupy", or a function of name, type and shape that makes an array, or bytes for
        it. `device`: the GPU for torch or CuPy, as a number, an attachment or a device of theirs. By default they are numpy's,
        or on a GPU of whichever is imported. What cannot be made is refused, and the sender is told.
        """
        make, stream = _maker(to, device, stream)
        return _over(self._raw.recv(_make_all(make, stream), _shown(progress), timeout, owned=True))

    def recv_async(
        self,
        *,
        to: str | Make | None = None,
        device: Any = None,
        stream: Stream | None = None,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> Transfer[Any]:
        """Begins what `recv` does."""
        make, stream = _maker(to, device, stream)
        return self._raw.recv(_make_all(make, stream), _shown(progress), timeout)

    def __iter__(self) -> Iterator[Any]:
        """Receives until the other end closes."""
        while (arrays := self.recv()) is not None:
            yield arrays

    @property
    def why_not_local(self) -> str | None:
        """Why the two ends do not copy from memory to memory; None: they can."""
        return self._raw.why_not_local

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Closes it. What has begun is ended, at the other end, too: wait for it before."""
        self._raw.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and not self.closed:
                self._raw.finish_sends()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<gpunet.Channel{' [closed]' if self.closed else ''}>"


class ChannelListener:
    """Accepts channels at an address: `Channel.listen` makes one. A context manager: leaving the block closes it."""

    def __init__(self, raw: _native.RawChannelListener) -> None:
        self._raw = raw

    def accept(self, timeout: float | None = None) -> Channel:
        """Waits for a channel. Connections of other programs are told what this is, and hold up nobody."""
        return Channel(self._raw.accept(timeout))

    def getsockname(self) -> ReturnedAddress:
        return self._raw.getsockname()

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Closes it. An accept that waits fails with EBADF."""
        self._raw.close()

    def __enter__(self) -> ChannelListener:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpunet.ChannelListener at {self.getsockname()}{' [closed]' if self.closed else ''}>"


# ---- files ----


def _safetensors(path: str | PathLike[str]) -> list[PassedArray]:
    """The arrays of a file, mapped into memory."""
    import json
    import mmap

    def malformed(why: str) -> ValueError:
        return ValueError(f"{path} is no safetensors file: {why}")

    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if size < 8:
            raise malformed("it is too short")
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    length = int.from_bytes(memory[:8], "little")
    if length > min(size - 8, 100 << 20):
        raise malformed("its header is longer than it, or than 100 MiB")
    try:
        header = json.loads(bytes(memory[8 : 8 + length]))
        entries = [
            (name, _KINDS[_SAFETENSORS[entry["dtype"]]], [int(extent) for extent in entry["shape"]], *entry["data_offsets"])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise malformed(f"{type(error).__name__}: {error}") from error
    data = memory[8 + length :]
    for name, _, _, begin, end in entries:
        if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end <= len(data)):
            raise malformed(f"the array {name!r} lies outside of it")
    return [(name, data[begin:end], None, None, (kind, shape)) for name, kind, shape, begin, end in entries]


def send_safetensors(
    channel: Channel,
    path: str | PathLike[str],
    *,
    checksum: bool = False,
    progress: Progress = None,
    timeout: float | None = None,
) -> Outcome:
    """Sends the arrays of a safetensors file as one transfer, by their names.

    The file is mapped, and read while it is sent: memory for all of it is not needed. Nobody may truncate it meanwhile.
    """
    return cast(Outcome, _over(channel._raw.send(_safetensors(path), checksum, _shown(progress), timeout, owned=True)))


def send_safetensors_async(
    channel: Channel,
    path: str | PathLike[str],
    *,
    checksum: bool = False,
    progress: Progress = None,
    timeout: float | None = None,
) -> Transfer[Outcome]:
    """Begins what `send_safetensors` does."""
    return channel._raw.send(_safetensors(path), checksum, _shown(progress), timeout)
