"""Sockets in CUDA C++ kernels that CuPy launches.

    import cupy, gpunet.cupy

    kernel = gpunet.cupy.compile(source).get_function("echo")
    with attachment.launch(stream) as net, stream:
        kernel((1,), (128,), (net, ...))

The source includes gpunet.h (C functions) or gpunet.cuh (C++), and declares its kernels extern "C".
CuPy passes a Python int as 64 bits: give numpy.int32 where the kernel takes an int.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

try:
    import cupy
except ImportError as error:
    raise ImportError("gpunet.cupy needs CuPy: pip install 'gpunet[cupy]'") from error

from gpunet._calls import sockaddr
from gpunet._compile import CompileError, compile_cuda
from gpunet._link import LinkError

__all__ = ["CompileError", "LinkError", "compile", "sockaddr"]


def compile(source: str, *, max_threads: int = 256, options: Sequence[str] = ()) -> Any:
    """Compiles CUDA C++ for the current device and links it with gpunet; returns a cupy.RawModule.

    Blocks have up to `max_threads` threads, at most 512. `options` go to NVRTC.
    """
    architecture = int(cupy.cuda.Device().compute_capability)
    cubin = compile_cuda(source, architecture, max_threads, options)
    # CuPy takes what is linked already from a file only, and reads it when it loads the module.
    handle, path = tempfile.mkstemp(prefix="gpunet-", suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(cubin)
        module = cupy.RawModule(path=path)
        module.compile()
    finally:
        os.unlink(path)
    return module
