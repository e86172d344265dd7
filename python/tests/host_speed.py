"""How fast the host's sockets are beside the sockets of the system, in the same Python and the same run. Needs no GPU.

    python3 host_speed.py [--gpunetd PATH] [--rounds N] [--spin MICROSECONDS] [--megabytes N] [--apart]

Two programs make round trips of 64 bytes: over a Unix socket, and over peer under one gpunetd, where calls that wait sleep,
and where they spin first. Each needs a core then; --apart keeps them apart where cores are few. Then one moves bytes to the
other over TCP on the loopback interface, by sockets of the system at both ends, and by gpunet's at the receiver's, the
sender's or both ends. The kinds take turns, seven times; a line has the median and the best of the seven.
"""

from __future__ import annotations

import argparse
import ast
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

import gpunet

SETTINGS = {"sockets": 64, "shared_rings": 64 << 20}
TURNS = 7
SIZE = 64
PIECE = 1 << 20


def receive_exactly(connection: Any, view: memoryview) -> None:
    at = 0
    while at < len(view):
        n = connection.recv_into(view[at:])
        if n == 0:
            raise EOFError
        at += n


def listen(kind: str, where: str) -> Any:
    if kind == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(where)
        listener.listen()
        return listener
    if kind == "tcp":
        return socket.create_server(("127.0.0.1", 0))
    net: Any = gpunet.attach(where, **SETTINGS) if kind == "peer" else gpunet.embed(**SETTINGS)
    return net.listen(("127.0.0.1", 0), transport=kind.removeprefix("gpunet-"))


def connect(kind: str, where: str, address: Any) -> Any:
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(where)
        return connection
    if kind == "tcp":
        return socket.create_connection(tuple(address))
    net: Any = gpunet.attach(where, **SETTINGS) if kind == "peer" else gpunet.embed(**SETTINGS)
    return net.connect(tuple(address), transport=kind.removeprefix("gpunet-"))


def serve(kind: str, where: str) -> None:
    """The other program: tells its address, and does what the first byte of a connection says."""
    listener = listen(kind, where)
    print(repr(listener.getsockname()), flush=True)
    connection, _ = listener.accept()
    buffer = memoryview(bytearray(PIECE))
    order = bytearray(16)
    while True:
        try:
            receive_exactly(connection, memoryview(order))
        except EOFError:
            return
        what, rounds, spin = order[:1], int.from_bytes(order[1:8], "little"), int.from_bytes(order[8:], "little")
        if spin_of := getattr(connection, "setspin", None):
            spin_of(spin / 1e6)
        if what == b"e":
            for _ in range(rounds):
                receive_exactly(connection, buffer[:SIZE])
                connection.sendall(buffer[:SIZE])
        else:
            for _ in range(rounds):
                receive_exactly(connection, buffer)
            connection.sendall(b"!")


class Pair:
    """A connection to another program."""

    def __init__(self, kind: str, where: str, other: str = "") -> None:
        command = [sys.executable, __file__, "--serve", other or kind, where]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.connection = connect(kind, where, ast.literal_eval(self.process.stdout.readline()))

    def order(self, what: bytes, rounds: int, spin: int) -> None:
        if spin_of := getattr(self.connection, "setspin", None):
            spin_of(spin / 1e6)
        self.connection.sendall(what + rounds.to_bytes(7, "little") + spin.to_bytes(8, "little"))

    def round_trip(self, rounds: int, spin: int) -> float:
        """Microseconds of a round trip."""
        self.order(b"e", rounds, spin)
        buffer, took = memoryview(bytearray(SIZE)), []
        for _ in range(rounds):
            began = time.perf_counter_ns()
            self.connection.sendall(buffer)
            receive_exactly(self.connection, buffer)
            took.append(time.perf_counter_ns() - began)
        return statistics.median(took) / 1e3

    def flow(self, megabytes: int) -> float:
        """Gigabytes a second."""
        self.order(b"f", megabytes, 0)
        data, began = memoryview(bytearray(PIECE)), time.perf_counter()
        for _ in range(megabytes):
            self.connection.sendall(data)
        receive_exactly(self.connection, memoryview(bytearray(1)))
        return megabytes * PIECE / (time.perf_counter() - began) / 1e9

    def close(self) -> None:
        self.connection.close()
        self.process.wait(30)


def take_turns(what: str, kinds: Mapping[str, Callable[[], float]], best: Callable[[list[float]], float]) -> None:
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(TURNS):
        for name, run in kinds.items():
            took[name].append(run())
    floor = statistics.median(next(iter(took.values())))
    for name, values in took.items():
        median = statistics.median(values)
        print(f"{name:44} median {median:7.2f}, best {best(values):7.2f} {what}, {median / floor:5.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpunetd", help="the daemon; without it there is no round trip over peer")
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--spin", type=int, default=100, help="microseconds")
    parser.add_argument("--megabytes", type=int, default=1024, help="0: no flow")
    parser.add_argument("--apart", action="store_true", help="each program on a core of its own")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if arguments.apart:
        os.environ["HOST_SPEED_OTHER"] = str(cores[1])
        os.sched_setaffinity(0, cores[:1])
    if arguments.serve:
        if other := os.environ.get("HOST_SPEED_OTHER"):
            os.sched_setaffinity(0, [int(other)])
        return serve(*arguments.serve)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "gpunetd.sock")
        if arguments.gpunetd:
            with subprocess.Popen([arguments.gpunetd, "--listen-path", str(path)]) as daemon:
                while not path.exists():
                    time.sleep(0.05)
                unix, peer = Pair("unix", str(pathlib.Path(folder, "unix"))), Pair("peer", str(path))
                kinds = {
                    "Unix socket": lambda: unix.round_trip(arguments.rounds, 0),
                    "peer, both sleep": lambda: peer.round_trip(arguments.rounds, 0),
                }
                if hasattr(peer.connection, "setspin") and arguments.spin:
                    kinds["peer, both spin"] = lambda: peer.round_trip(arguments.rounds, arguments.spin)
                take_turns("us", kinds, min)
                unix.close()
                peer.close()
                daemon.terminate()
        if arguments.megabytes:
            ends = {
                "TCP, system to system": Pair("tcp", ""),
                "TCP, system to gpunet": Pair("tcp", "", "gpunet-tcp"),
                "TCP, gpunet to system": Pair("gpunet-tcp", "", "tcp"),
                "TCP, gpunet to gpunet": Pair("gpunet-tcp", "", "gpunet-tcp"),
            }
            flows = {name: partial(pair.flow, arguments.megabytes) for name, pair in ends.items()}
            take_turns("GB/s", flows, max)
            for pair in ends.values():
                pair.close()


if __name__ == "__main__":
    main()
