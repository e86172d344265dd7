"""Numba kernels with sockets, compiled for a GPU that need not be here and linked."""

import re
import sys

import pytest
from kernel_lanes import check_linked, import_without, instructions, lane

cuda = lane("numba.cuda")
lane("triton")  # nvdisasm and ptxas

import numba.cuda.dispatcher  # noqa: E402
from numba.core.errors import TypingError  # noqa: E402

import gpunet.numba as gn  # noqa: E402
from gpunet import _link  # noqa: E402

types = cuda.types
U8, U16, I64 = (types.Array(of, 1, "C") for of in (types.uint8, types.uint16, types.int64))


class Device:
    """Numba asks the driver which GPU device functions are for; without one it is this."""

    compute_capability = (9, 0)


@pytest.fixture(autouse=True)
def a_device_for_the_compiler(monkeypatch):
    monkeypatch.setattr(numba.cuda.dispatcher, "get_current_device", Device)
    monkeypatch.setattr(gn.cuda, "get_current_device", Device)


def ptx_of(kernel, *arguments):
    return cuda.compile_ptx(kernel, types.void(*arguments), cc=Device.compute_capability)[0]


def link(ptx, threads=256):
    major, minor = Device.compute_capability
    return _link.link(ptx.encode() + b"\0", f"sm_{major}{minor}", threads, kind=_link.PTX)


def echo(net, listener, buffer):
    socket = gn.accept(net, listener)
    n = gn.recv(net, socket, buffer)
    while n > 0:
        gn.send(net, socket, buffer, n)
        n = gn.recv(net, socket, buffer)
    gn.close(net, socket)


@pytest.mark.parametrize(
    ("capability", "net", "listener"),
    [
        ((8, 0), types.int64, types.int32),
        ((9, 0), types.int64, types.int64),
        ((9, 0), types.uint64, types.int32),
        ((10, 0), types.uint64, types.int64),
    ],
)
def test_a_kernel_is_linked_with_the_calls_that_it_makes(capability, net, listener, tmp_path, monkeypatch):
    monkeypatch.setattr(Device, "compute_capability", capability)
    cubin = link(ptx_of(echo, net, listener, U8))
    calls = {f"gpunet_{name}" for name in ("accept_timeout", "recv_timeout", "send_timeout", "close")}
    check_linked(cubin, calls, instructions(cubin, tmp_path))


def test_every_call_of_every_form(tmp_path):
    from gpunet.numba import FOREVER, MSG_MORE, NO_WAIT, SHUT_WR

    def kernel(net, listener, address, data, entries, out):
        shared = cuda.shared.array(64, types.float32)
        out[0] = gn.accept(net, listener, NO_WAIT)
        out[1] = gn.accept_thread(net, listener, timeout_ns=5)
        fd = gn.connect(net, address)
        out[2] = gn.connect_thread(net, address.ctypes.data, 7)
        out[3] = gn.send(net, fd, shared) + gn.send_warp(net, fd, shared[:8]) + gn.send_thread(net, fd, data, 1)
        out[4] = gn.send_some(net, fd, data, 5, FOREVER, MSG_MORE) + gn.send_some_warp(net, fd, data)
        out[5] = gn.send_some_thread(net, fd, data.ctypes.data, data.size)
        out[6] = gn.recv(net, fd, data) + gn.recv_warp(net, fd, data) + gn.recv_thread(net, fd, data, flags=2)
        out[7] = gn.recv_exact(net, fd, data) + gn.recv_exact_warp(net, fd, data) + gn.recv_exact_thread(net, fd, data)
        out[8] = gn.poll(net, entries) + gn.poll_warp(net, entries, 3) + gn.poll_thread(net, entries)
        out[9] = gn.shutdown(net, fd, SHUT_WR) + gn.shutdown_thread(net, fd)
        out[10] = gn.close(net, fd) + gn.close_thread(net, fd)

    cubin = link(ptx_of(kernel, types.uint64, types.int32, U8, U16, I64, I64))
    names = [name for name in gn.__all__ if re.fullmatch(r"[a-z_]+", name) and name not in ("cuda", "functions", "sockaddr")]
    assert len(names) == 38
    calls = {
        symbol + form
        for symbol, forms in {
            "gpunet_accept_timeout": ("", "_thread"),
            "gpunet_connect_to": ("", "_thread"),
            "gpunet_send_timeout": ("", "_warp", "_thread"),
            "gpunet_recv_timeout": ("", "_warp", "_thread"),
            "gpunet_poll": ("", "_warp", "_thread"),
            "gpunet_shutdown": ("", "_thread"),
            "gpunet_close": ("", "_thread"),
        }.items()
        for form in forms
    }
    check_linked(cubin, calls, instructions(cubin, tmp_path))


def test_send_and_recv_exact_ask_for_all_of_it():
    def send(net, fd, data):
        gn.send(net, fd, data)

    def send_some(net, fd, data):
        gn.send_some(net, fd, data)

    flags = [ptx_of(kernel, types.int64, types.int32, U8).count("[param4+0], 256") for kernel in (send, send_some)]
    assert flags == [1, 0]


def test_lengths_are_bytes():
    def send(net, fd, data):
        gn.send(net, fd, data)

    assert "shl.b64" in ptx_of(send, types.int64, types.int32, U16)
    assert "shl.b64" not in ptx_of(send, types.int64, types.int32, U8)


def test_larger_blocks_have_functions_with_fewer_registers():
    large = gn.functions(512)
    close = large.close

    def kernel(net, fd):
        close(net, fd)

    assert link(ptx_of(kernel, types.int64, types.int32), 512)
    assert _link.device_object(90, 512) != _link.device_object(90, 256)
    with pytest.raises(ValueError, match="at most 512 threads in a block, not 1024"):
        gn.functions(1024)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((types.int32, types.int32, U8), "the launch's context, of 64 bits"),
        ((types.float64, types.int32, U8), "the first argument is float64, not an integer"),
        ((types.int64, types.float32, U8), "socket is float32, not an integer"),
        ((types.int64, U8, U8), "socket is array(uint8, 1d, C), not an integer"),
        ((types.int64, types.int32, types.Array(types.uint8, 1, "A")), "not C-contiguous"),
        ((types.int64, types.int32, types.Array(types.uint8, 1, "C", readonly=True)), "is read-only"),
        ((types.int64, types.int32, types.uint64), "an address needs a length"),
        ((types.int64, types.int32, types.float64), "data is float64, not an integer"),
    ],
)
def test_arguments_of_another_type(arguments, text):
    def kernel(net, fd, data):
        gn.recv(net, fd, data)

    with pytest.raises(TypingError) as caught:
        ptx_of(kernel, *arguments)
    assert text in str(caught.value)


def test_a_missing_numba_says_what_to_install():
    said = import_without("gpunet.numba", "numba_cuda_mlir", "numba")
    assert "pip install 'gpunet[numba]'" in said


def test_numba_cuda_is_meant_where_it_was_imported_first():
    assert "numba.cuda" in sys.modules
    assert gn.cuda is cuda
