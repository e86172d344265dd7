"""Triton kernels with sockets, compiled and linked for GPUs that need not be here."""

import pytest
from kernel_lanes import check_linked, import_without, instructions, lane

triton = lane("triton")

import triton.language as tl  # noqa: E402
from triton import knobs  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import gpunet.triton as gt  # noqa: E402
from gpunet import _link  # noqa: E402


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Triton's cache is this test's alone."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def build(kernel, signature, architecture=90, constexprs=None, **options):
    source = ASTSource(kernel, signature, constexprs=constexprs or {})
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": 4, **options})


ECHO = {"net": "i64", "listener": "i32", "buffer": "*u8", "size": "i32"}


@triton.jit
def echo(net, listener, buffer, size):
    socket = gt.accept(net, listener)
    n = gt.recv(net, socket, buffer, size)
    while n > 0:
        gt.send(net, socket, buffer, n)
        n = gt.recv(net, socket, buffer, size)
    gt.close(net, socket)


@triton.jit
def every_call(net, listener, address, data, entries, out):
    fd = gt.connect(net, address, timeout_ns=1_000_000_000)
    tl.store(out, gt.accept(net, listener, timeout_ns=gt.NO_WAIT))
    tl.store(out + 1, gt.send(net, fd, data, 100))
    tl.store(out + 2, gt.send_some(net, fd, data, 100, gt.FOREVER, gt.MSG_MORE))
    tl.store(out + 3, gt.recv(net, fd, data, 100, flags=gt.MSG_PEEK))
    n = gt.recv_exact(net, fd, data, 100, 5_000_000_000_000)
    if n == -gt.EAGAIN:
        tl.store(out + 4, n)
    tl.store(out + 5, gt.poll(net, entries, 1))
    tl.store(out + 6, gt.shutdown(net, fd, gt.SHUT_WR))
    tl.store(out + 7, gt.close(net, fd))


@pytest.mark.parametrize("warps", [4, 16])
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_a_kernel_is_linked_with_the_calls_that_it_makes(architecture, warps, tmp_path):
    kernel = build(echo, ECHO, architecture, num_warps=warps)
    calls = {f"gpunet_{name}" for name in ("accept_timeout", "recv_timeout", "send_timeout", "close")}
    check_linked(kernel.kernel, calls, instructions(kernel.kernel, tmp_path))


def test_every_call_is_there(tmp_path):
    signature = {"net": "u64", "listener": "i64", "address": "*u8", "data": "*fp32", "entries": "*i32", "out": "*i64"}
    kernel = build(every_call, signature)
    calls = {
        f"gpunet_{name}"
        for name in (
            "accept_timeout",
            "connect_to",
            "recv_timeout",
            "send_timeout",
            "poll",
            "shutdown",
            "close",
        )
    }
    check_linked(kernel.kernel, calls, instructions(kernel.kernel, tmp_path))


def test_send_and_recv_exact_ask_for_all_of_it():
    @triton.jit
    def send(net, fd, data, n):
        gt.send(net, fd, data, n)

    @triton.jit
    def send_some(net, fd, data, n):
        gt.send_some(net, fd, data, n)

    signature = {"net": "i64", "fd": "i32", "data": "*u8", "n": "i32"}
    flags = [build(kernel, signature).asm["ptx"].count("[param4], 256") for kernel in (send, send_some)]
    assert flags == [1, 0]


# ---- other kernels, other hooks, the cache ----


@triton.jit
def plain(out):
    tl.store(out, 1)


def test_other_kernels_are_compiled_as_before():
    ours = build(plain, {"out": "*i32"}).kernel
    hook, knobs.runtime.add_stages_inspection_hook = knobs.runtime.add_stages_inspection_hook, None
    try:
        with knobs.compilation.scope():
            knobs.compilation.always_compile = True
            assert build(plain, {"out": "*i32"}).kernel == ours
    finally:
        knobs.runtime.add_stages_inspection_hook = hook


def test_a_hook_that_was_there_is_called_first():
    seen = []

    def other(backend, stages, options, language, capability):
        seen.append(sorted(stages))
        stages["cubin"] = lambda source, metadata: seen.append("its own cubin") or b"\x7fELF"

    hook, knobs.runtime.add_stages_inspection_hook = knobs.runtime.add_stages_inspection_hook, other
    try:
        gt.install()
        build(echo, ECHO)
        assert seen == [["cubin", "llir", "ptx", "ttgir", "ttir"]]
        build(plain, {"out": "*i32"})
        assert seen[-1] == "its own cubin"
    finally:
        knobs.runtime.add_stages_inspection_hook = hook


def test_a_hook_that_replaced_ours_is_named():
    hook = knobs.runtime.add_stages_inspection_hook
    try:
        knobs.runtime.add_stages_inspection_hook = lambda *arguments: None
        refuse(echo, ECHO, "Call gpunet.triton.install() after setting a hook")
    finally:
        knobs.runtime.add_stages_inspection_hook = hook


def test_the_device_functions_are_part_of_the_key():
    before = echo.cache_key
    assert _link.device_hash() in gt._DEVICE.value
    changed = triton.runtime.jit.JITFunction(gt.close.fn)
    assert changed.cache_key == gt.close.cache_key
    device, gt._DEVICE = gt._DEVICE, tl.constexpr("another version")
    try:
        assert triton.runtime.jit.JITFunction(gt.close.fn).cache_key != gt.close.cache_key
    finally:
        gt._DEVICE = device
    assert echo.cache_key == before


def test_what_a_later_triton_asks_the_hook():
    key, digest = knobs.runtime.add_stages_inspection_hook()
    assert "gpunet" in key
    assert _link.device_hash() in digest


# ---- shared memory ----


@triton.jit
def multiply(net, fd, a, b, c, M: tl.constexpr):
    i = tl.arange(0, M)
    at = i[:, None] * M + i[None, :]
    gt.recv_exact(net, fd, a, M * M * 2)
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@pytest.mark.parametrize(("architecture", "fill"), [(90, gt._FILL), (100, gt._FILL), (90, 16)])
def test_the_shared_memory_of_tensor_cores_stays_aligned(architecture, fill, monkeypatch):
    monkeypatch.setattr(gt, "_FILL", fill)
    signature = {"net": "i64", "fd": "i32", "a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "constexpr"}
    kernel = build(multiply, signature, architecture, {"M": 128})
    before = _link.static_shared(kernel.kernel, kernel.metadata.name)
    assert before > 1024, "gpunet's shared memory lies before Triton's"
    assert before % 1024 == 0


# ---- what is refused ----


def refuse(kernel, signature, text, **options):
    with pytest.raises(Exception) as caught:
        build(kernel, signature, **options)
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__ or error.__context__
    assert any(text in cause for cause in causes), causes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_warps": 32}, "at most 512 threads in a block, not 1024"),
        ({"num_ctas": 2}, "use num_ctas=1"),
        ({"maxnreg": 64}, "leave out maxnreg=64"),
        ({"architecture": 75}, "sm_80 or later, not sm_75"),
    ],
)
def test_options_that_sockets_cannot_have(options, text):
    refuse(echo, ECHO, text, **options)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"net": "i32"}, "the launch's context, of 64 bits"),
        ({"net": "fp32"}, "net is fp32, not an integer"),
        ({"listener": "*i32"}, "socket is a pointer"),
        ({"listener": "fp32"}, "socket is fp32, not an integer"),
        ({"buffer": "i32"}, "an address is a pointer or 64 bits"),
        ({"size": "fp32"}, "length is fp32, not an integer"),
    ],
)
def test_arguments_of_another_type(changed, text):
    refuse(echo, ECHO | changed, text)


def test_a_block_of_sockets():
    @triton.jit
    def many(net, fds):
        gt.close(net, tl.load(fds + tl.arange(0, 128)))

    refuse(many, {"net": "i64", "fds": "*i32"}, "socket is a block of shape [128]")


@triton.jit
def close_two(a, b):
    return a + b + gt.close(a.to(tl.int64) + (1 << 40), b)


@triton.jit
def reduced(fds, out):
    tl.store(out, tl.reduce(tl.load(fds + tl.arange(0, 128)), 0, close_two))


@triton.jit
def scanned(fds, out):
    lanes = tl.arange(0, 128)
    tl.store(out + lanes, tl.associative_scan(tl.load(fds + lanes), 0, close_two))


@pytest.mark.parametrize(("kernel", "name"), [(reduced, "tl.reduce"), (scanned, "tl.associative_scan")])
def test_a_call_for_each_element(kernel, name):
    refuse(kernel, {"fds": "*i32", "out": "*i32"}, f"a function of {name} is called for each element")


@triton.jit
def sum_and_close(net, fd, data, out):
    tl.store(out, tl.sum(tl.load(data + tl.arange(0, 128)), axis=0))
    gt.close(net, fd)


def test_a_call_beside_a_reduction():
    assert build(sum_and_close, {"net": "i64", "fd": "i32", "data": "*i32", "out": "*i32"})


def test_warp_specialization():
    @triton.jit
    def specialized(net, fd, a, b, c, n, M: tl.constexpr):
        i = tl.arange(0, M)
        at = i[:, None] * M + i[None, :]
        total = tl.zeros((M, M), tl.float32)
        for k in tl.range(0, n, warp_specialize=True):
            total = tl.dot(tl.load(a + k * M * M + at), tl.load(b + k * M * M + at), total)
        tl.store(c + at, total)
        gt.send(net, fd, c, M * M * 4)

    signature = {"net": "i64", "fd": "i32", "a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32", "M": "constexpr"}
    refuse(specialized, signature, "leave it out (warp_specialize=False)", architecture=100, constexprs={"M": 128})


def test_a_missing_triton_says_what_to_install():
    assert "pip install 'gpunet[triton]'" in import_without("gpunet.triton", "triton")
