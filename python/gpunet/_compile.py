"""Compiles CUDA C++ with NVRTC and gpunet's headers, and links it."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Sequence

from gpunet import _link


class CompileError(RuntimeError):
    """A kernel in CUDA C++ did not compile."""


def _headers() -> list[pathlib.Path]:
    """Folders of headers: gpunet's, and CUDA's where they are at hand."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [
        *(place / "nvidia/cu13/include" for place in _link.site_folders()),
        *(place / "nvidia/cuda_runtime/include" for place in _link.site_folders()),
        *(pathlib.Path(home) / "include" for home in [*homes, "/usr/local/cuda"]),
    ]
    there = [folder for folder in folders if folder.is_dir()]
    # PyPI's headers of the runtime include some of CCCL, which is a package of its own.
    cuda = [folder for folder in there if any((path / "nv/target").is_file() for path in (folder, folder / "cccl"))]
    found = [_link.include_directory(), *(cuda or there)[:1]]
    return [path for folder in found for path in (folder, folder / "cccl") if path.is_dir()]


def compile_cuda(source: str, architecture: int, max_threads: int, options: Sequence[str]) -> bytes:
    """Returns the cubin of CUDA C++ that includes gpunet.h or gpunet.cuh, linked.

    Raises CompileError with the compiler's messages, LinkError, and ImportError where NVRTC or
    nvJitLink is missing.
    """
    if not isinstance(source, str):
        raise TypeError(f"source is the text of CUDA C++, not {type(source).__name__}")
    limit = _link.register_limit(max_threads)
    flags = [
        "-rdc=true",
        "-std=c++17",
        f"-arch=sm_{architecture}",
        *(f"-I{folder}" for folder in _headers()),
        *([] if limit is None else [f"-maxrregcount={limit}"]),
        *options,
    ]
    return _link.link(_run_nvrtc(source, flags), f"sm_{architecture}", max_threads)


def _run_nvrtc(source: str, flags: Sequence[str]) -> bytes:
    library = _link.load_library("nvrtc", "cuda_nvrtc")
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    program, size = ctypes.c_void_p(), ctypes.c_size_t()

    def check(code: int) -> None:
        if code != 0:
            raise CompileError(f"NVRTC: {library.nvrtcGetErrorString(code).decode()}")

    text = source.encode()
    check(library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None))
    try:
        values = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if library.nvrtcCompileProgram(program, len(flags), values) != 0:
            check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
            log = ctypes.create_string_buffer(size.value)
            check(library.nvrtcGetProgramLog(program, log))
            raise CompileError(log.value.decode(errors="replace").strip())
        check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        cubin = ctypes.create_string_buffer(size.value)
        check(library.nvrtcGetCUBIN(program, cubin))
        return cubin.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
