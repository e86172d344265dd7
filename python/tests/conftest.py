"""What the tests of the host's side share."""

from __future__ import annotations

import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

import gpunet

if TYPE_CHECKING:
    from gpunet._native import Transport

T = TypeVar("T")

SETTINGS: dict[str, int] = {"sockets": 256, "shared_rings": 32 << 20, "linger_s": 2}


@pytest.fixture
def net() -> Iterator[gpunet.Proxy]:
    with gpunet.embed(**SETTINGS) as proxy:
        yield proxy


@pytest.fixture(params=["tcp", "peer"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return cast("Transport", request.param)


@pytest.fixture
def pair(net: gpunet.Proxy, transport: Transport) -> Iterator[tuple[gpunet.Socket, gpunet.Socket]]:
    """The two ends of a stream: a client's, a server's."""
    with net.listen(("127.0.0.1", 0), transport=transport, timeout=10) as listener:
        accepted = in_thread(lambda: listener.accept()[0])
        client = net.connect(listener.getsockname(), transport=transport, timeout=10)
        server = accepted()
    with client, server:
        client.settimeout(10)
        server.settimeout(10)
        yield client, server


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """gpunetd, which `GPUNETD` names: where it listens, and its process."""
    path = tmp_path / "gpunet.sock"
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([os.environ["GPUNETD"], "--listen-path", str(path)], stderr=log)
    try:
        for _ in range(1000):
            if path.exists():
                break
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.01)
        yield str(path), process
    finally:
        process.terminate()
        process.wait(30)


def in_thread(body: Callable[[], T]) -> Callable[[], T]:
    """Begins something on a thread; the result waits for its end."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(body())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> T:
        thread.join(30)
        assert not thread.is_alive(), "it does not end"
        if errors:
            raise errors[0]
        return results[0]

    return result


def no_thread_is_left() -> None:
    """Asserts that all threads but the log's end: a block's ends a moment after its launch hears of it."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.name != "gpunet-log":
            thread.join(30)
            assert not thread.is_alive(), f"{thread.name} does not end"
