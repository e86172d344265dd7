"""The device functions: the table of calls, objects, their cache, the linker."""

import lzma
import os
import pathlib
import re
import socket
import sys
import threading

import pytest
from kernel_lanes import KERNEL

import gpunet
from gpunet import _calls, _link


def test_the_table_of_calls_is_that_of_the_PTX():
    ptx = _link.device_ptx().decode()
    for name, (returned, kinds, forms) in _calls.CALLS.items():
        for form in forms:
            found = re.search(rf"\.visible \.func  \(\.param \.b(\d+) func_retval0\) {name}{form}\(([^)]*)\)", ptx)
            assert found, name + form
            assert int(found[1]) == returned
            assert [int(bits) for bits in re.findall(r"\.param \.b(\d+)", found[2])] == [_calls.WIDTH[k] for k in kinds]
        assert {f"{name}{form}" for form in ("", "_warp", "_thread")} & set(re.findall(rf"{name}\w*", ptx)) == {
            f"{name}{form}" for form in forms
        }


def test_constants_are_linuxs():
    import errno
    import select

    for name, value in _calls.CONSTANTS.items():
        for module in (socket, errno, select):
            if hasattr(module, name) and name != "MSG_MORE":
                assert getattr(module, name) == value, name
    assert _calls.CONSTANTS["SOCKET_TIMEOUT"] == -(2**63)


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("fe80::1%3", socket.AF_INET6)])
def test_an_address_is_linuxs_own(host, family):
    made = _calls.sockaddr(host, 8080)
    assert len(made) == 28
    assert int.from_bytes(made[:2], "little") == family
    assert int.from_bytes(made[2:4], "big") == 8080
    if family == socket.AF_INET:
        assert made[4:8] == socket.inet_aton(host)
    else:
        assert made[8:24] == socket.inet_pton(family, "fe80::1")
        assert made[24:28] == (3).to_bytes(4, "little")


def test_what_is_no_address():
    with pytest.raises(ValueError, match="no numeric address; resolve the name first"):
        _calls.sockaddr("localhost", 80)
    with pytest.raises(ValueError, match="a port is 0 to 65535"):
        _calls.sockaddr("127.0.0.1", 65536)


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """An empty cache, nothing remembered, and a wheel without objects."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_link, "_objects", {})
    monkeypatch.setattr(_link, "SHIPPED", tmp_path / "shipped")
    return tmp_path / "cache/gpunet"


@pytest.fixture
def assembled(monkeypatch):
    """The (architecture, register limit) of what was assembled: by two assemblers that are quick, of
    which the older knows no sm_100."""
    done = []

    def assemble(ptxas, architecture, limit):
        if ptxas == "old" and architecture == 100:
            raise _link.LinkError("sm_100?")
        done.append((architecture, limit))
        return f"\x7fELF {ptxas} {architecture} {limit}".encode()

    monkeypatch.setattr(_link, "_assemble", assemble)
    monkeypatch.setattr(_link, "_assemblers", lambda: [((12, 0), "old"), ((12, 8), "new")])
    return done


def test_an_object_is_assembled_once(fresh_cache, assembled):
    threads = [threading.Thread(target=_link.device_object, args=(80,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _link.device_object(80) == b"\x7fELF old 80 None"
    assert assembled == [(80, None)]
    _link._objects.clear()
    assert _link.device_object(80) == b"\x7fELF old 80 None"
    assert assembled == [(80, None)], "another process finds it on disk"
    (name,) = os.listdir(fresh_cache)
    assert _link.device_hash() in name
    assert "sm_80-255-12.0" in name


@pytest.fixture
def shipped(fresh_cache):
    """Puts an object of this PTX into the wheel."""

    def put(name, content):
        folder = _link.SHIPPED / _link.device_hash()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return put


def test_an_object_of_the_wheel_is_taken_first(shipped, fresh_cache, assembled):
    shipped("sm_80-255.o.xz", lzma.compress(b"\x7fELF of the wheel"))
    shipped("sm_80-128.o.xz", lzma.compress(b"\x7fELF with 128 registers"))
    assert _link.device_object(80) == b"\x7fELF of the wheel"
    assert _link.device_object(80, 512) == b"\x7fELF with 128 registers"
    assert not assembled
    assert not fresh_cache.exists()
    assert _link.device_object(86) == b"\x7fELF old 86 None", "one that the wheel has not"


def test_an_object_of_other_PTX_is_not_taken(shipped, assembled, monkeypatch):
    shipped("sm_80-255.o.xz", lzma.compress(b"\x7fELF of the wheel"))
    monkeypatch.setattr(_link, "device_hash", lambda: "another")
    assert _link.device_object(80) == b"\x7fELF old 80 None"


@pytest.mark.parametrize("content", [b"", b"nothing", lzma.compress(b"\x7fELF of the wheel")[:-9]])
def test_an_object_of_the_wheel_that_is_damaged(shipped, assembled, caplog, content):
    shipped("sm_80-255.o.xz", content)
    assert _link.device_object(80) == b"\x7fELF old 80 None"
    assert "is damaged" in caplog.text


def test_a_python_that_cannot_read_them(shipped, assembled, caplog, monkeypatch):
    shipped("sm_80-255.o.xz", lzma.compress(b"\x7fELF of the wheel"))
    monkeypatch.setitem(sys.modules, "lzma", None)
    assert _link.device_object(80) == b"\x7fELF old 80 None"
    assert "this Python cannot read" in caplog.text


def test_each_architecture_and_limit_has_its_own(fresh_cache, assembled):
    assert _link.device_object(80, 512) == b"\x7fELF old 80 128"
    assert _link.device_object(80, 256) == b"\x7fELF old 80 None"
    assert _link.device_object(100) == b"\x7fELF new 100 None", "by the oldest assembler that knows it"
    assert len(os.listdir(fresh_cache)) == 3


def test_a_damaged_entry_is_made_anew(fresh_cache, assembled):
    whole = _link.device_object(80)
    (name,) = os.listdir(fresh_cache)
    (fresh_cache / name).write_bytes(b"")
    _link._objects.clear()
    assert _link.device_object(80) == whole
    assert (fresh_cache / name).read_bytes() == whole


def test_without_a_place_for_the_cache(fresh_cache, assembled, caplog):
    fresh_cache.parent.mkdir()
    fresh_cache.write_text("a file where the folder should be")
    assert _link.device_object(80)
    assert "nothing can be kept" in caplog.text
    assert (_link.include_directory.__wrapped__() / "gpunet/socket.cuh").exists()


def test_headers_are_written_once(fresh_cache):
    folder = _link.include_directory.__wrapped__()
    assert (folder / "gpunet.h").exists()
    assert folder.parent == fresh_cache
    assert _link.include_directory.__wrapped__() == folder
    assert len(os.listdir(fresh_cache)) == 1
    assert pathlib.Path(gpunet.include_dir(), "gpunet.cuh").read_text() == (folder / "gpunet.cuh").read_text()


def needs_linker():
    try:
        _link.load_library("nvJitLink", "nvjitlink")
    except ImportError as error:
        if os.environ.get("GPUNET_LANES") == "all":
            raise
        pytest.skip(f"LANE NOT RUN: {error}")


def test_without_an_assembler_the_PTX_is_linked_and_kept(fresh_cache, monkeypatch, caplog):
    needs_linker()
    monkeypatch.setattr(_link, "_assemblers", list)
    linked = _link.link(KERNEL, "sm_80", kind=_link.PTX)
    assert linked.startswith(b"\x7fELF")
    assert "pip install 'gpunet[ptxas]'" in caplog.text
    (name,) = os.listdir(fresh_cache)
    assert name.endswith(".cubin")
    monkeypatch.setattr(_link, "_run_linker", None)
    assert _link.link(KERNEL, "sm_80", kind=_link.PTX) == linked


def test_an_object_that_the_linker_refuses_is_replaced_by_the_PTX(monkeypatch, caplog):
    needs_linker()
    monkeypatch.setattr(_link, "device_object", lambda *a: b"\x7fELF and nothing that a linker knows")
    monkeypatch.setattr(_link, "_link_ptx", lambda *a: b"linked")
    assert _link.link(KERNEL, "sm_80", kind=_link.PTX) == b"linked"
    assert "it links its PTX instead" in caplog.text


def test_a_kernel_that_the_linker_refuses(monkeypatch):
    needs_linker()
    monkeypatch.setattr(_link, "device_object", lambda *a: b"")
    with pytest.raises(_link.LinkError, match="pip install -U nvidia-nvjitlink"):
        _link.link(b"\x7fELF and nothing that a linker knows", "sm_80")


@pytest.mark.parametrize(("threads", "limit"), [(1, None), (256, None), (257, 128), (512, 128)])
def test_registers(threads, limit):
    assert _link.register_limit(threads) == limit
