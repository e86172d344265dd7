"""Sockets in CUDA C++ kernels that cuda.core launches.

    from cuda.core import Device, LaunchConfig, launch
    import gpunet.cuda_core

    kernel = gpunet.cuda_core.compile(source).get_kernel("echo")
    with attachment.launch(stream) as net:
        launch(stream, LaunchConfig(grid=1, block=128), kernel, net, ...)

The source includes gpunet.h (C functions) or gpunet.cuh (C++), and declares its kernels extern "C".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from cuda.core import Device, ObjectCode
except ImportError as error:
    raise ImportError("gpunet.cuda_core needs cuda.core: pip install 'gpunet[cuda-core]'") from error

from gpunet._calls import sockaddr
from gpunet._compile import CompileError, compile_cuda
from gpunet._link import LinkError

__all__ = ["CompileError", "LinkError", "compile", "sockaddr"]


def compile(source: str, *, max_threads: int = 256, options: Sequence[str] = (), architecture: int | None = None) -> Any:
    """Compiles CUDA C++ for a GPU and links it with gpunet; returns an ObjectCode.

    Blocks have up to `max_threads` threads, at most 512. `options` go to NVRTC. `architecture` is such
    as 90; without it, the current device's.
    """
    if architecture is None:
        capability = Device().compute_capability
        architecture = 10 * capability.major + capability.minor
    return ObjectCode.from_cubin(compile_cuda(source, architecture, max_threads, options))
