"""Teams of members on the CPU device: how they come together, symmetric memory as arrays, operations of queues, failures."""

from __future__ import annotations

import array
import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest
from conftest import in_thread

import gpunet
from gpunet import cpu

T = TypeVar("T")


def together(net: gpunet.Proxy, size: int, body: Callable[[gpunet.Team, gpunet.Attachment], T], **options: float) -> list[T]:
    """Runs a member on each of `size` attachments; returns what they return."""
    listener = gpunet.TeamListener()

    def member(rank: int) -> T:
        with net.attach_cpu() as cpu:
            if rank == 0:
                team = listener.lead(cpu, size, **options)  # type: ignore[arg-type]
            else:
                team = gpunet.Team.join(cpu, listener.id, rank, size, **options)  # type: ignore[arg-type]
            with team:
                return body(team, cpu)

    def waits(rank: int) -> Callable[[], T]:
        return in_thread(lambda: member(rank))

    return [result() for result in [waits(rank) for rank in range(size)]]


def test_members_put_signal_wait_and_meet(net: gpunet.Proxy) -> None:
    def body(team: gpunet.Team, device: gpunet.Attachment) -> list[int]:
        rank, size = team.rank, team.size
        box, numbers, everybody = team.alloc(4, "int64"), team.alloc((2,), "i8"), team.alloc((size, 2), int)
        assert box.shape == (4,) and everybody.shape == (size, 2) and box.dtype == "int64" and everybody.nbytes == size * 16
        own = memoryview(numbers)
        assert own.format == "q" and own.shape == (2,) and own.tolist() == [0, 0] and not own.readonly
        own[0], own[1] = rank, rank * 10
        right, left = (rank + 1) % size, (rank - 1) % size
        with gpunet.Queue(device) as queue:
            queue.put(box, own, right)
            queue.put_signal(box, numbers, 3, 1, right, offset=16)
            queue.signal_wait(team, 3, left, 1)
            queue.all_gather(everybody, numbers)
            queue.barrier(team)
            queue.signal_set(team, 4, 7, left)
            queue.signal_wait(team, 4, right, 5)
        assert memoryview(box).tolist() == [left, left * 10] * 2
        assert bytes(everybody) == array.array("q", [n for other in range(size) for n in (other, 10 * other)]).tobytes()
        assert box.device_number() == box.device_number() != numbers.device_number() and team.device_number() % 64 == 0
        # Another member's part, which it does not change any more.
        team.barrier()
        assert memoryview(numbers.part(right)).tolist() == [right, right * 10] and numbers.part(right).member == right
        with pytest.raises(IndexError, match="no member 3 in a team of 3"):
            numbers.part(size)
        assert team.broken is None and team.signals == 256 and repr(team) == f"<gpunet.Team member {rank} of {size}>"
        return memoryview(box).tolist()

    assert together(net, 3, body) == [[2, 20, 2, 20], [0, 0, 0, 0], [1, 10, 1, 10]]


def test_members_broadcast_exchange_and_split(net: gpunet.Proxy) -> None:
    def body(team: gpunet.Team, device: gpunet.Attachment) -> tuple[bytes, bytes, int, int]:
        said, parts = team.alloc(4), team.alloc(6)
        with gpunet.Queue(device) as queue:
            queue.broadcast(said, f"by {team.rank}".encode(), 1)
            queue.all_to_all(parts, bytes([team.rank * 16 + part for part in range(3) for _ in range(2)]))
        with team.split(team.rank % 2, -team.rank) as part:
            return bytes(said), bytes(parts), part.rank, part.size

    assert together(net, 3, body) == [
        (b"by 1", bytes([0, 0, 16, 16, 32, 32]), 1, 2),
        (b"by 1", bytes([1, 1, 17, 17, 33, 33]), 0, 1),
        (b"by 1", bytes([2, 2, 18, 18, 34, 34]), 0, 2),
    ]


def test_kernels_on_the_cpu_put_signal_and_meet(net: gpunet.Proxy) -> None:
    def kernel(context: int, team: int, memory: int, other: int, out: list[int]) -> None:
        data = array.array("q", [other, 7])
        out.append(cpu.signal_wait(context, team, 2, other, 1, timeout_ns=1_000))
        out.append(cpu.put(context, team, memory, 0, data, 8, other))
        out.append(cpu.put_signal(context, team, memory, 8, memoryview(data)[1:], None, 0, 3, other))
        out.append(cpu.signal_wait(context, team, 0, other, 2))
        out.append(cpu.signal_set(context, team, 1, 9, other))
        out.append(cpu.barrier(context, team))
        out.append(cpu.signal_wait(context, team, 1, other, 9, cpu.NO_WAIT))
        out.append(cpu.barrier(context, team, timeout_ns=1_000) if other == 1 else 0)
        # What cannot be.
        out.append(cpu.put(context, team, memory, 9, data, 8, other))
        out.append(cpu.put(context, team, memory + 8, 0, data, 8, other))
        out.append(cpu.put(context, team, memory, 0, data, 8, 2))
        out.append(cpu.signal_set(context, team, 1000, 1, other))
        out.append(cpu.barrier(context, team + 64))

    def body(team: gpunet.Team, device: gpunet.Attachment) -> list[int]:
        box, out = team.alloc(2, "int64"), list[int]()
        with device.launch() as context:
            cpu.run(context, kernel, team.device_number(), box.device_number(), 1 - team.rank, out)
        assert memoryview(box).tolist() == [team.rank, 7]
        team.barrier()
        return out

    refused = [-errno.EINVAL] * 4 + [-errno.ENETDOWN]
    assert together(net, 2, body) == [
        [-errno.EAGAIN, 0, 0, 3, 0, 0, 9, -errno.EAGAIN, *refused],
        [-errno.EAGAIN, 0, 0, 3, 0, 0, 9, 0, *refused],
    ]


def test_arrays_outlive_the_team(net: gpunet.Proxy) -> None:
    kept: list[memoryview] = []

    def body(team: gpunet.Team, device: gpunet.Attachment) -> gpunet.Symmetric:
        memory = team.alloc((3, 2), "uint16")
        view = memoryview(memory)
        view[2, 1] = 7 + team.rank
        kept.append(view)
        kept.append(memoryview(memory.part(1 - team.rank)))
        return memory

    memories = together(net, 2, body)
    assert sorted(view[2, 1] for view in kept) == [7, 7, 8, 8]
    with net.attach_cpu() as cpu, gpunet.Queue(cpu) as queue, pytest.raises(OSError, match="the team was left") as left:
        queue.put(memories[0], b"1", 0)
    assert left.value.errno == errno.EBADF
    references = [weakref.ref(memory) for memory in memories]
    capsule = memories[0].__dlpack__(max_version=(1, 1))
    kept.clear()
    del memories
    gc.collect()
    assert [reference() is None for reference in references] == [False, True]
    del capsule
    gc.collect()
    assert references[0]() is None


def test_what_a_team_refuses(net: gpunet.Proxy) -> None:
    def body(team: gpunet.Team, device: gpunet.Attachment) -> None:
        memory = team.alloc(8)
        with gpunet.Queue(device) as queue:
            refused: tuple[tuple[Callable[[], None], str], ...] = (
                (lambda: queue.put(memory, b"1", 2), "no member 2 in a team of 2"),
                (lambda: queue.put_signal(memory, b"1", 4, 1, 0), "no signal 4 in a team with 4"),
                (lambda: queue.signal_set(team, 0, 1 << 63, 0), "the value of a signal is at most"),
                (lambda: queue.put(memory, b"123456789", 0), "1 times 9 bytes do not fit into 8"),
                (lambda: queue.put(memory, b"1", 0, offset=8), "do not fit into 0"),
                (lambda: queue.all_gather(memory, b"12345"), "2 times 5 bytes do not fit into 8"),
                (lambda: queue.all_to_all(memory, b"12345"), "a whole number of elements for each of 2 members"),
            )
            for call, text in refused:
                with pytest.raises(ValueError, match=text):
                    call()
            with pytest.raises(TypeError, match="an array is an object"):
                queue.put(memory, 1, 0)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a dtype is one of uint8"):
                team.alloc(1, "float128")
            with pytest.raises(BufferError, match="no bfloat16"):
                memoryview(team.alloc(2, "torch.bfloat16"))
            with pytest.raises(ValueError, match="member"):
                team.alloc(8 + team.rank)
            queue.set_team_timeout(0.05)
            queue.signal_wait(team, 0, 1 - team.rank, 1)
            with pytest.raises(TimeoutError):
                queue.synchronize(timeout=10)
            queue.close()

    together(net, 2, body, signals=4)
    with net.attach_cpu() as cpu:
        with pytest.raises(ValueError, match="is no team id"):
            gpunet.Team.join(cpu, "127.0.0.1:1", 0, 1)
        with pytest.raises(ValueError, match="there is no member 3 in a team of 2"):
            gpunet.Team.join(cpu, gpunet.TeamListener().id, 3, 2)
        listener = gpunet.TeamListener(("127.0.0.1", 0))
        with pytest.raises(TimeoutError, match="member 1 has not come"):
            listener.lead(cpu, 2, timeout=0.05)
        with pytest.raises(OSError, match="the team listener is closed"):
            listener.lead(cpu, 1)
        with pytest.raises(ValueError, match="unspecified address"):
            gpunet.TeamListener(("0.0.0.0", 0))


MEMBER = textwrap.dedent("""
    import sys
    import gpunet
    with gpunet.embed(sockets=16, shared_rings=1 << 20) as net, net.attach_cpu() as cpu:
        team = gpunet.Team.launched(cpu, timeout=20)
        memory = team.alloc(1, "int64")
        queue = gpunet.Queue(cpu)
        queue.barrier(team)
        queue.synchronize()
        print("member", team.rank, "of", team.size, flush=True)
        {then}
""")


def launch(rank: int, port: int, then: str) -> subprocess.Popen[str]:
    where = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}
    program = [sys.executable, "-c", MEMBER.format(then=then.replace("\n", "\n    "))]
    return subprocess.Popen(program, env=os.environ | where, stdout=subprocess.PIPE, text=True)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout
    return program.stdout.readline().strip()


def test_torchruns_environment_forms_a_team(net: gpunet.Proxy) -> None:
    port = free_port()
    members = [launch(rank, port, "team.leave()") for rank in range(2)]
    assert [line(member) for member in members] == ["member 0 of 2", "member 1 of 2"]
    assert [member.wait(30) for member in members] == [0, 0]
    with net.attach_cpu() as cpu, pytest.raises(FileNotFoundError, match="no launcher has started this program"):
        gpunet.Team.launched(cpu)


WAIT = """
try:
    queue.signal_wait(team, 0, 1 - team.rank, 1)
    print("waits", flush=True)
    queue.synchronize()
except BaseException as error:
    print(type(error).__name__, error, team.broken, flush=True)
"""


def test_a_member_that_is_killed_ends_the_waits_of_the_others() -> None:
    port = free_port()
    first, second = launch(0, port, WAIT), launch(1, port, WAIT)
    for member in (first, second):
        line(member)
        assert line(member) == "waits"
    second.kill()
    said = line(first)
    assert said.startswith("ConnectionResetError") and "member 1" in said.rsplit("failed", 1)[1], said
    assert first.wait(30) == 0
    second.wait(30)


def test_ctrl_c_ends_a_wait_for_another_member() -> None:
    port = free_port()
    first, second = launch(0, port, WAIT), launch(1, port, WAIT)
    for member in (first, second):
        line(member)
        assert line(member) == "waits"
    first.send_signal(signal.SIGINT)
    assert line(first).startswith("KeyboardInterrupt")
    # It leaves with its interpreter, in good order.
    assert first.wait(30) == 0
    said = line(second)
    assert said.startswith(("OSError [Errno 107]", "ConnectionResetError")), said
    assert second.wait(30) == 0
