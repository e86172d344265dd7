"""The programs of docs/python.md, as they are printed there. `GPUNET_DOCUMENT` names the page."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

BESIDE = pathlib.Path(__file__).parents[2] / "docs/python.md"
PAGE = pathlib.Path(os.environ.get("GPUNET_DOCUMENT", BESIDE))
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="NOT RUN: set GPUNET_DOCUMENT=/path/to/docs/python.md")


def block(part: str, port: int) -> str:
    """The only program of the page that has this part, at another port."""
    found: list[str] = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if part in text]
    assert len(found) == 1, (part, len(found))
    return found[0].replace("7777", str(port))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def ask(port: int, data: bytes) -> bytes:
    for _ in range(1000):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                return client.makefile("rb").read()
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("nobody listens")


@pytest.mark.parametrize("part", ["listener.accept()", "cpu.accept", "library.echo"])
def test_the_servers(part: str) -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", block(part, port)], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert ask(port, b"hello" * 10_000) == b"hello" * 10_000
            if part == "listener.accept()":
                client = [sys.executable, "-c", block("timeout=5) as socket", port)]
                assert subprocess.run(client, timeout=30).returncode == 0
        finally:
            server.send_signal(signal.SIGINT)
            try:
                _, errors = server.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                # Leaving the block would wait for it.
                server.kill()
                raise
        assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("part", ["asyncio.run", "queue.recv(", "gpunet.Channel.connect", "serve_calls("])
def test_the_programs_that_end(part: str) -> None:
    done = subprocess.run([sys.executable, "-c", block(part, free_port())], timeout=30)
    assert done.returncode == 0


def test_the_program_of_a_team() -> None:
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port() - 1)}
    program = [sys.executable, "-c", block("gpunet.Team.launched", 0)]
    members = [
        subprocess.Popen(program, env=os.environ | where | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [member.communicate(timeout=30)[0] for member in members] == ["(2, 1024)\n"] * 2
