"""Kernels in CUDA C++ for CuPy and cuda.core, compiled by NVRTC and linked, without a GPU."""

import pytest
from kernel_lanes import check_linked, import_without, instructions, lane

lane("triton")  # ptxas and nvdisasm

from gpunet import _compile, _link  # noqa: E402

try:
    _link.load_library("nvrtc", "cuda_nvrtc")
except ImportError as error:
    pytest.skip(f"LANE NOT RUN: {error}", allow_module_level=True)

ECHO = """
#include <gpunet.h>
extern "C" __global__ void echo(gpunet_net_t net, int listener, unsigned char *buffer, unsigned long long size) {
    const int s = gpunet_accept(net, listener);
    long long n;
    while ((n = gpunet_recv(net, s, buffer, size)) > 0) gpunet_send(net, s, buffer, n, MSG_WAITALL);
    gpunet_close(net, s);
}
"""

STREAMS = """
#include <gpunet.cuh>
extern "C" __global__ void echo(gpunet_net_t net, unsigned char *memory) {
    auto block = gpunet::this_block();
    auto listener = gpunet::listener::bind(block, net, gpunet::address::v4(0, 0, 0, 0, 7777));
    if (!listener) return;
    while (auto stream = listener->accept(block)) {
        for (;;) {
            auto n = stream->recv(block, memory, 4096);
            if (!n || *n == 0 || !stream->send_all(block, memory, *n)) break;
        }
        (void)stream->close(block);
    }
}
"""


@pytest.mark.parametrize("threads", [256, 512])
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_a_kernel_is_linked_with_the_calls_that_it_makes(architecture, threads, tmp_path):
    cubin = _compile.compile_cuda(ECHO, architecture, threads, ())
    calls = {f"gpunet_{name}" for name in ("accept", "recv", "send", "close")}
    check_linked(cubin, calls, instructions(cubin, tmp_path))


def test_streams_of_cpp(tmp_path):
    assert _compile.compile_cuda(STREAMS, 90, 256, ())


def test_errors_are_the_compilers_words():
    with pytest.raises(_compile.CompileError, match=r"kernel.cu\(1\): error"):
        _compile.compile_cuda("int f( {", 90, 256, ())
    with pytest.raises(_compile.CompileError, match="nonsense"):
        _compile.compile_cuda(ECHO, 90, 256, ("--nonsense",))
    with pytest.raises(_link.LinkError, match="Undefined reference to 'nowhere'"):
        _compile.compile_cuda(
            'extern "C" __device__ int nowhere(); extern "C" __global__ void k(int *p) { *p = nowhere(); }', 90, 256, ()
        )
    with pytest.raises(ValueError, match="at most 512 threads in a block, not 1024"):
        _compile.compile_cuda(ECHO, 90, 1024, ())
    with pytest.raises(TypeError, match="not bytes"):
        _compile.compile_cuda(ECHO.encode(), 90, 256, ())


def test_cuda_core_takes_the_result():
    lane("cuda.core")
    import gpunet.cuda_core

    code = gpunet.cuda_core.compile(ECHO, architecture=90)
    assert code.code_type == "cubin"


def test_cupy_is_there():
    lane("cupy")
    import gpunet.cupy

    assert gpunet.cupy.compile


def test_missing_packages_say_what_to_install():
    assert "pip install 'gpunet[cupy]'" in import_without("gpunet.cupy", "cupy")
    assert "pip install 'gpunet[cuda-core]'" in import_without("gpunet.cuda_core", "cuda.core")
