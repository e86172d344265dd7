"""Programs under gpunetd. `GPUNETD` names it; without it, these tests say that they did not run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import gpunet

GPUNETD = os.environ.get("GPUNETD")
pytestmark = pytest.mark.skipif(not GPUNETD, reason="NOT RUN: set GPUNETD=/path/to/gpunetd")


def test_two_programs_exchange_bytes_through_memory(daemon: tuple[str, subprocess.Popen[bytes]]) -> None:
    path, process = daemon
    server = """
    import sys, gpunet
    with gpunet.attach(sys.argv[1], sockets=64, shared_rings=8 << 20) as net, net.listen(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        with listener.accept()[0] as socket:
            while some := socket.recv(70_000):
                socket.sendall(some)
    """
    command = [sys.executable, "-c", textwrap.dedent(server), path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with gpunet.open(path, sockets=64, shared_rings=8 << 20) as net:
            assert net.daemon is not None and net.daemon["pid"] == process.pid and net.daemon["path"] == path
            with net.connect(("127.0.0.1", port), timeout=10) as socket:
                assert socket.transport == "peer"
                socket.settimeout(10)
                assert len(net.snapshot()["clients"]) == 2
                for size in (1, 64, 100_000):
                    data = os.urandom(size)
                    socket.sendall(data)
                    assert socket.recv_exact(size) == data
        assert other.wait(30) == 0


def test_the_end_of_the_daemon_ends_the_sockets(daemon: tuple[str, subprocess.Popen[bytes]]) -> None:
    path, process = daemon
    net = gpunet.attach(path, sockets=64, shared_rings=8 << 20)
    listener = net.listen(("127.0.0.1", 0))
    process.kill()
    with pytest.raises(OSError, match="has stopped"):
        listener.accept()
    net.close()
    # Its sockets are closed one after the other, the one that listens later than those of its clients.
    process.wait(30)
    with pytest.raises(ConnectionRefusedError, match="start gpunetd"):
        gpunet.attach(path)
