"""Links kernels with gpunet's device functions.

A released wheel has them assembled for each architecture of `utils/release/objects`; linking such an
object takes a tenth of a second. For another architecture, and in a wheel that was built from a
checkout, there is the PTX. Linking PTX takes seconds for each kernel, so it is assembled once and the
object is kept in a cache on disk.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence

logger = logging.getLogger("gpunet")

LAYOUT = "1"
"""What a cache entry's name begins with: raise it when an entry's content changes otherwise."""

MAX_THREADS = 512
"""A block with sockets has at most so many threads: each takes at least 128 registers."""


class LinkError(RuntimeError):
    """A kernel could not be linked with gpunet's device functions."""


class _Refused(LinkError):
    """The linker does not take one of its inputs."""

    def __init__(self, message: str, of_gpunet: bool) -> None:
        super().__init__(message)
        self.of_gpunet = of_gpunet


def register_limit(max_threads: int) -> int | None:
    """Returns the register limit for blocks of up to `max_threads`; None: the architecture's."""
    if max_threads <= 256:
        return None
    if max_threads <= MAX_THREADS:
        return 128
    raise ValueError(
        f"a kernel with gpunet's sockets has at most {MAX_THREADS} threads in a block, not "
        f"{max_threads}: the calls need 128 registers a thread. Launch more blocks instead"
    )


@functools.cache
def device_ptx() -> bytes:
    """Returns the PTX of the device functions."""
    from gpunet import _native

    return bytes(_native.device_ptx())


@functools.cache
def device_hash() -> str:
    """Returns what names this version of the device functions, in cache keys of kernels."""
    return hashlib.sha256(device_ptx()).hexdigest()[:32]


@functools.cache
def include_directory() -> pathlib.Path:
    """Returns a folder with gpunet.h and gpunet.cuh: in the cache, or else a temporary one."""
    from gpunet import _native

    headers: dict[str, str] = _native.headers()
    digest = hashlib.sha256(repr(sorted(headers.items())).encode()).hexdigest()[:32]
    folder = cache_directory() / f"{LAYOUT}-include-{digest}"
    if folder.is_dir():
        return folder
    try:
        cache_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        part = pathlib.Path(tempfile.mkdtemp(dir=cache_directory(), suffix=".part"))
    except (OSError, RuntimeError) as error:
        logger.warning("gpunet: nothing can be kept in the cache: %s", error)
        part = pathlib.Path(tempfile.mkdtemp(prefix="gpunet-include-"))
        atexit.register(shutil.rmtree, part, ignore_errors=True)
        folder = part
    for name, text in headers.items():
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_text(text)
    if folder is not part:
        try:
            part.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(part, ignore_errors=True)
    return folder


# ---- assembling ----


def _tool_folders() -> Iterable[pathlib.Path]:
    """Where ptxas may be: Triton's, NVIDIA's wheels, the toolkit."""
    triton = importlib.util.find_spec("triton")
    for package in (triton.submodule_search_locations or ()) if triton else ():
        yield pathlib.Path(package) / "backends/nvidia/bin"
    for place in site_folders():
        yield from sorted(place.glob("nvidia/*/bin"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield pathlib.Path(home) / "bin"
    if found := shutil.which("ptxas"):
        yield pathlib.Path(found).parent
    yield pathlib.Path("/usr/local/cuda/bin")


def site_folders() -> list[pathlib.Path]:
    names = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    return list(dict.fromkeys(pathlib.Path(name) for name in names if name and os.path.isdir(name)))


@functools.cache
def _assemblers() -> list[tuple[tuple[int, int], str]]:
    """The ptxas at hand as (version, path), the oldest first: an older linker refuses the objects
    of a newer one."""
    paths = {
        str(folder / name) for folder in _tool_folders() for name in ("ptxas", "ptxas-blackwell") if (folder / name).exists()
    }
    found = []
    for path in paths:
        try:
            text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            logger.warning("gpunet: %s does not run: %s", path, error)
            continue
        if version := re.search(r"release (\d+)\.(\d+)", text):
            found.append(((int(version[1]), int(version[2])), path))
    return sorted(found)


def cache_directory() -> pathlib.Path:
    """Returns the folder of assembled objects: `gpunet` in XDG_CACHE_HOME, or in ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(root) if root else pathlib.Path.home() / ".cache") / "gpunet"


def _cached(name: str) -> bytes | None:
    try:
        data = (cache_directory() / name).read_bytes()
    except OSError:
        return None
    return data if data.startswith(b"\x7fELF") else None


def _keep(name: str, data: bytes) -> None:
    """Puts an entry into the cache at once and whole. Without a cache the next process does the
    work again."""
    try:
        folder = cache_directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=folder, prefix=name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(part, folder / name)
        except BaseException:
            os.unlink(part)
            raise
    except (OSError, RuntimeError) as error:
        logger.warning("gpunet: nothing can be kept in %s: %s", cache_directory(), error)


SHIPPED = pathlib.Path(__file__).parent / "objects"
"""The objects of a released wheel, in a folder that has the name of their PTX."""


def _shipped(architecture: int, limit: int | None) -> bytes | None:
    path = SHIPPED / device_hash() / f"sm_{architecture}-{limit or 255}.o.xz"
    if not path.is_file():
        return None
    try:
        import lzma
    except ImportError as error:
        logger.warning("gpunet: this Python cannot read the device functions of the wheel: %s", error)
        return None
    try:
        return lzma.decompress(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        logger.warning("gpunet: %s is damaged: %s", path, error)
        return None


def _assemble(ptxas: str, architecture: int, limit: int | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpunet-") as folder:
        source, result = os.path.join(folder, "device.ptx"), os.path.join(folder, "device.o")
        pathlib.Path(source).write_bytes(device_ptx())
        limits = [] if limit is None else [f"-maxrregcount={limit}"]
        command = [ptxas, "-c", *limits, f"--gpu-name=sm_{architecture}", source, "-o", result]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise LinkError(f"{ptxas} failed: {(done.stderr or done.stdout).strip()}")
        return pathlib.Path(result).read_bytes()


_objects: dict[tuple[int, int | None], bytes | None] = {}
_objects_lock = threading.Lock()


def device_object(architecture: int, max_threads: int = 256) -> bytes | None:
    """Returns the device functions assembled for sm_`architecture` and blocks of up to
    `max_threads`; None where no ptxas is at hand that knows the architecture."""
    key = (architecture, register_limit(max_threads))
    with _objects_lock:
        if key not in _objects:
            _objects[key] = _find_object(*key)
        return _objects[key]


def _find_object(architecture: int, limit: int | None) -> bytes | None:
    if (data := _shipped(architecture, limit)) is not None:
        return data
    for version, ptxas in _assemblers():
        digits = f"{version[0]}.{version[1]}"
        name = f"{LAYOUT}-{device_hash()}-sm_{architecture}-{limit or 255}-{digits}.o"
        if (data := _cached(name)) is not None:
            return data
        try:
            data = _assemble(ptxas, architecture, limit)
        except LinkError as error:
            logger.debug("gpunet: %s", error)
            continue
        _keep(name, data)
        return data
    logger.warning(
        "gpunet: no ptxas for sm_%d is at hand, so the first link of each kernel takes ten seconds; "
        "pip install 'gpunet[ptxas]' (Triton has one, too)",
        architecture,
    )
    return None


# ---- linking ----

CUBIN, PTX = 1, 2
"""nvJitLink's kinds of input."""


@functools.cache
def load_library(name: str, package: str) -> ctypes.CDLL:
    """Loads a CUDA library of major version 13 or 12: what the process has loaded already, NVIDIA's
    wheel, or the toolkit's.

    Raises ImportError with what to install.
    """
    sonames = [f"lib{name}.so.{major}" for major in (13, 12)]
    for soname in sonames:
        try:
            return ctypes.CDLL(soname, mode=ctypes.RTLD_LOCAL | os.RTLD_NOLOAD)
        except OSError:
            pass
    folders = [
        *(place / "nvidia/cu13/lib" for place in site_folders()),
        *(place / f"nvidia/{package}/lib" for place in site_folders()),
        *(pathlib.Path(os.environ[home]) / "lib64" for home in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(home)),
    ]
    for path in (folder / soname for folder in folders for soname in sonames):
        if path.exists():
            # What the library opens by name lies beside it in a wheel, where the loader does not look.
            for beside in path.parent.glob(f"lib{name}-builtins.so.*"):
                ctypes.CDLL(str(beside))
            return ctypes.CDLL(str(path))
    for soname in sonames:
        try:
            return ctypes.CDLL(soname)
        except OSError:
            continue
    wheel = f"nvidia-{package.replace('_', '-')}"
    raise ImportError(
        f"gpunet needs {name} to build kernels, and it is not here: pip install {wheel} (CUDA 13) or {wheel}-cu12 (CUDA 12)"
    )


def _library() -> ctypes.CDLL:
    return load_library("nvJitLink", "nvjitlink")


def _linker() -> Callable[[str], Callable[..., int]]:
    """The functions of nvJitLink, by their names. Before 12.3 the names have the version at their end."""
    library = _library()
    form = "{}" if hasattr(library, "nvJitLinkCreate") else "__{}_12_0"
    return lambda name: getattr(library, form.format(name))


def linker_version() -> tuple[int, int]:
    """Returns the version of nvJitLink; (12, 0) for those before 12.3, which do not tell."""
    major, minor = ctypes.c_uint(12), ctypes.c_uint(0)
    if tell := getattr(_library(), "nvJitLinkVersion", None):
        tell(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _run_linker(options: Sequence[str], kernel: tuple[int, bytes], functions: tuple[int, bytes]) -> bytes:
    """One link. Raises LinkError with the linker's own words."""
    call, handle = _linker(), ctypes.c_void_p()
    values = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))

    def failure() -> str:
        size = ctypes.c_size_t()
        log = ""
        if call("nvJitLinkGetErrorLogSize")(handle, ctypes.byref(size)) == 0 and size.value:
            text = ctypes.create_string_buffer(size.value)
            call("nvJitLinkGetErrorLog")(handle, text)
            log = text.value.decode(errors="replace").strip()
        return f"nvJitLink {'.'.join(map(str, linker_version()))}: {log or 'no message'}"

    if code := call("nvJitLinkCreate")(ctypes.byref(handle), len(options), values):
        raise LinkError(f"nvJitLink {'.'.join(map(str, linker_version()))} refuses {options} (error {code})")
    try:
        for (kind, data), of_gpunet in ((kernel, False), (functions, True)):
            name = b"gpunet" if of_gpunet else b"kernel"
            if call("nvJitLinkAddData")(handle, kind, data, ctypes.c_size_t(len(data)), name):
                raise _Refused(failure(), of_gpunet)
        if call("nvJitLinkComplete")(handle):
            raise LinkError(failure())
        size = ctypes.c_size_t()
        if call("nvJitLinkGetLinkedCubinSize")(handle, ctypes.byref(size)):
            raise LinkError(failure())
        result = ctypes.create_string_buffer(size.value)
        if call("nvJitLinkGetLinkedCubin")(handle, result):
            raise LinkError(failure())
        return result.raw
    finally:
        call("nvJitLinkDestroy")(ctypes.byref(handle))


def link(kernel: bytes, architecture: str, max_threads: int = 256, *, kind: int = CUBIN) -> bytes:
    """Links a relocatable kernel with the device functions and returns a cubin.

    `architecture` is the kernel's, such as "sm_90a"; `max_threads` bounds its blocks.

    Raises LinkError, and ImportError where nvJitLink is missing.
    """
    limit, options = register_limit(max_threads), [f"-arch={architecture}"]
    functions = device_object(int(re.sub(r"\D", "", architecture)), max_threads)
    try:
        if functions is not None:
            try:
                return _run_linker(options, (kind, kernel), (CUBIN, functions))
            except _Refused as error:
                if not error.of_gpunet:
                    raise
                # An object of a newer ptxas than this linker: the PTX is of a version that all know.
                logger.warning("gpunet: %s; it links its PTX instead, which takes seconds", error)
        return _link_ptx(kernel, kind, options if limit is None else [*options, f"-maxrregcount={limit}"])
    except _Refused as error:
        raise LinkError(f"{error}. An nvJitLink refuses what a newer compiler made: pip install -U nvidia-nvjitlink") from None


def _link_ptx(kernel: bytes, kind: int, options: Sequence[str]) -> bytes:
    """A link with the PTX, kept in the cache."""
    digest = hashlib.sha256(repr((options, linker_version())).encode() + device_ptx() + kernel).hexdigest()
    name = f"{LAYOUT}-{digest}.cubin"
    if (linked := _cached(name)) is None:
        linked = _run_linker(options, (kind, kernel), (PTX, device_ptx() + b"\0"))
        _keep(name, linked)
    return linked


def static_shared(cubin: bytes, kernel: str) -> int:
    """Returns how many bytes of shared memory lie before the dynamic part, as the ELF section of the
    kernel says."""
    (sections,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q", cubin, sections + size * at) for at in range(count)]
    wanted = f".nv.shared.{kernel}".encode() + b"\0"
    for header in headers:
        at = headers[names][4] + header[0]
        if cubin[at : at + len(wanted)] == wanted:
            return int(header[5])
    return 0
