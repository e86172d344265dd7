"""Calls of teams in Triton and Numba kernels, compiled and linked; the table of the calls."""

import re

import pytest
from kernel_lanes import check_linked, instructions, lane

triton = lane("triton")
cuda = lane("numba.cuda")

import numba.cuda.dispatcher  # noqa: E402
import triton.language as tl  # noqa: E402
from numba.core.errors import TypingError  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import gpunet.numba as gn  # noqa: E402
import gpunet.triton as gt  # noqa: E402
from gpunet import _link, _team_calls  # noqa: E402

types = cuda.types
DEVICE_FUNCTIONS = {_team_calls.device_function(symbol) for symbol in _team_calls.CALLS}


@pytest.fixture(autouse=True)
def no_device(tmp_path, monkeypatch):
    """Triton's cache is this test's alone; Numba asks the driver which GPU device functions are for."""

    class Device:
        compute_capability = (9, 0)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(numba.cuda.dispatcher, "get_current_device", Device)
    monkeypatch.setattr(gn.cuda, "get_current_device", Device)


def test_the_table_of_calls_is_that_of_the_PTX():
    ptx = _link.device_ptx().decode()
    assert len(_team_calls.CALLS) == 5
    for symbol, (bits, kinds, forms) in _team_calls.CALLS.items():
        for form in forms:
            name = _team_calls.device_function(symbol) + form
            found = re.search(rf"\.visible \.func  \(\.param \.b(\d+) func_retval0\) {name}\(([^)]*)\)", ptx)
            assert found, name
            assert int(found[1]) == bits, name
            given = [parameter.strip().rsplit(" ", 1)[0] for parameter in found[2].split(",")]
            taken = [of.format("").removesuffix("[32]").strip() for of in _team_calls.device_types(kinds)]
            assert given == taken, name


@triton.jit
def every_call(net, team, memory, data, n, out):
    tl.store(out, gt.put(net, team, memory, 16, data, n, 1))
    tl.store(out + 1, gt.put_signal(net, team, memory, n, data, n, 0, 1, tl.load(out)))
    tl.store(out + 2, gt.signal_set(net, team, 3, n, 2))
    tl.store(out + 3, gt.signal_wait(net, team, 0, 1, 1) + gt.signal_wait(net, team, 0, 1, 1, gt.NO_WAIT))
    tl.store(out + 4, gt.barrier(net, team) + gt.barrier(net, team, 1_000_000_000))


SIGNATURE = {"net": "i64", "team": "u64", "memory": "i64", "data": "*fp32", "n": "i32", "out": "*i64"}


def build(kernel, signature, architecture=90, **options):
    source = ASTSource(kernel, signature)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": 4, **options})


@pytest.mark.parametrize(("architecture", "warps"), [(80, 4), (90, 16), (100, 4)])
def test_a_triton_kernel_is_linked_with_the_calls_that_it_makes(architecture, warps, tmp_path):
    kernel = build(every_call, SIGNATURE, architecture, num_warps=warps)
    check_linked(kernel.kernel, DEVICE_FUNCTIONS, instructions(kernel.kernel, tmp_path))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"team": "i32"}, "pass team.device_number()"),
        ({"memory": "i32"}, "pass memory.device_number()"),
        ({"memory": "*fp32"}, "memory is a pointer"),
        ({"data": "i32"}, "an address is a pointer or 64 bits"),
        ({"n": "fp32"}, "length is fp32, not an integer"),
    ],
)
def test_what_a_triton_kernel_cannot_pass(changed, text):
    with pytest.raises(Exception) as caught:
        build(every_call, SIGNATURE | changed)
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__ or error.__context__
    assert any(text in cause for cause in causes), causes


def numba_ptx(kernel, *arguments):
    return cuda.compile_ptx(kernel, types.void(*arguments), cc=(9, 0))[0]


F32, I64 = types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C")


def test_a_numba_kernel_is_linked_with_the_calls_of_every_form(tmp_path):
    def kernel(net, team, memory, data, out):
        out[0] = gn.put(net, team, memory, 16, data, None, 1) + gn.put_warp(net, team, memory, 0, data, 4, 1)
        out[1] = gn.put_thread(net, team, memory, 0, data.ctypes.data, 4, out[0])
        out[2] = gn.put_signal(net, team, memory, 0, data, 8, 0, 1, 1) + gn.put_signal_warp(
            net, team, memory, 0, data, 8, 0, 1, 1
        )
        out[3] = gn.put_signal_thread(net, team, memory, 0, data, None, 0, out[1], 1)
        out[4] = gn.signal_set(net, team, 0, 1, 1) + gn.signal_set_warp(net, team, 0, 1, 1)
        out[5] = gn.signal_set_thread(net, team, 0, 1, 1) + gn.signal_wait(net, team, 0, 1, 1)
        out[6] = gn.signal_wait_warp(net, team, 0, 1, 1, 5) + gn.signal_wait_thread(net, team, 0, 1, 1, timeout_ns=gn.NO_WAIT)
        out[7] = gn.barrier(net, team) + gn.barrier_warp(net, team) + gn.barrier_thread(net, team, 10)

    from gpunet.numba import NO_WAIT  # noqa: F401

    ptx = numba_ptx(kernel, types.uint64, types.uint64, types.int64, F32, I64)
    # As the module of PTX that the functions name is linked beside it.
    cubin = _link.link(_team_calls.with_definitions(ptx).encode() + b"\0", "sm_90", kind=_link.PTX)
    calls = {name + form for name in DEVICE_FUNCTIONS for form in ("", "_warp", "_thread")}
    check_linked(cubin, calls, instructions(cubin, tmp_path))


def test_the_module_of_all_calls_is_linked():
    module = _team_calls.all_definitions()
    assert module.count(b".visible .func") == 15
    assert _link.link(module + b".visible .entry kernel() { ret; }\0", "sm_90", kind=_link.PTX)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((types.int64, types.int32, types.int64, F32), "pass team.device_number()"),
        ((types.int64, types.int64, F32, F32), "memory is array(float32, 1d, C), not an integer"),
        ((types.int64, types.int64, types.int64, types.float32), "data is float32, not an integer"),
    ],
)
def test_what_a_numba_kernel_cannot_pass(arguments, text):
    def kernel(net, team, memory, data):
        gn.put(net, team, memory, 0, data, None, 1)

    with pytest.raises(TypingError) as caught:
        numba_ptx(kernel, *arguments)
    assert text in str(caught.value)
