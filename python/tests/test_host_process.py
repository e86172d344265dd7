"""Ctrl-C, fork and the end of the interpreter. Each scene is a process of its own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
from conftest import in_thread

COMMON = """
import errno, os, signal, socket, sys, threading, time
import gpunet
net = gpunet.embed(sockets=64, shared_rings=8 << 20, linger_s=2)
def pair(transport="tcp"):
    listener = net.listen(("127.0.0.1", 0), transport=transport)
    ends = []
    thread = threading.Thread(target=lambda: ends.append(listener.accept()[0]))
    thread.start()
    client = net.connect(listener.getsockname(), transport=transport)
    thread.join()
    return client, ends[0]
def say(*what):
    print(*what, flush=True)
"""


def run(scene: str, *, stdin: str | None = None) -> str:
    code = COMMON + textwrap.dedent(scene)
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60, input=stdin)
    # On a machine that is very busy the log may say so.
    faults = re.findall("Traceback|Warning|FATAL|Fatal|Error", done.stderr)
    assert done.returncode == 0 and not faults, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize(
    "call",
    [
        "client.recv(1)",
        "client.recv_exact(10)",
        "client.sendall(bytes(64 << 20))",
        "client.makefile('rb').read()",
        "net.listen(('127.0.0.1', 0)).accept()",
        "net.connect(nobody.getsockname(), transport='peer')",
        "cpu.listen(('127.0.0.1', 0)).accept()",
        "cpu.connect(nobody.getsockname(), transport='peer')",
        "queue.synchronize()",
        "queue.__exit__(None, None, None)",
        "gpunet.TeamListener().lead(cpu, 2)",
        # The end of a launch, which cancels it.
        "wait_for_a_block()",
    ],
)
def test_ctrl_c_ends_every_wait(call: str) -> None:
    scene = f"""
    client, server = pair()
    nobody = net.listen(("127.0.0.1", 0), transport="peer")
    cpu = net.attach_cpu()
    with cpu.listen(("127.0.0.1", 0)) as device_listener:
        near = cpu.connect(device_listener.getsockname(), transport="tcp")
        far = device_listener.accept()[0]
    queue = gpunet.Queue(cpu)
    queue.recv(near, bytearray(1))
    def wait_for_a_block():
        from gpunet import cpu as kernels
        with cpu.listen(("127.0.0.1", 0)) as listener, cpu.launch() as context:
            kernels.run(context, kernels.accept, listener.device_number())
    try:
        say("waits")
        {call}
    except KeyboardInterrupt:
        say("ended")
    server.sendall(b"goes on")
    if "sendall" not in {call!r}:
        client.settimeout(10)
        assert client.recv_exact(7) == b"goes on"
    """
    child = subprocess.Popen([sys.executable, "-c", COMMON + textwrap.dedent(scene)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "waits\n"
    # It may not wait yet: then the exception comes before the call.
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "ended\n"
    assert child.wait(30) == 0


@pytest.mark.parametrize("call", ["client.recv_exact(10)", "client.recv_into(bytearray(10), 0, socket.MSG_WAITALL)"])
def test_ctrl_c_loses_no_bytes(call: str) -> None:
    out = run(f"""
    import select
    client, server = pair()
    server.sendall(b"first")
    select.select([client.fileno()], [], [])
    def interrupt():
        # The call takes them: nothing is readable any more.
        while select.select([client.fileno()], [], [], 0)[0]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        {call}
    except KeyboardInterrupt:
        pass
    server.sendall(b"second")
    assert client.recv_exact(11) == b"firstsecond"
    say("all")
    """)
    assert out == "all\n"


def test_a_child_of_fork_is_told_and_does_no_harm() -> None:
    out = run("""
    # Python 3.12 and later advise against it.
    import warnings
    warnings.filterwarnings("ignore", ".*multi-threaded")
    client, server = pair()
    client_of = net.listen(("127.0.0.1", 0), transport="tcp")
    listener = net.listen(("127.0.0.1", 0))
    cpu = net.attach_cpu()
    launch, memory, number = cpu.launch(), cpu.alloc(8), cpu.listen(("127.0.0.1", 0))
    queue, team = gpunet.Queue(cpu), gpunet.TeamListener().lead(cpu, 1)
    near = cpu.connect(client_of.getsockname(), transport="tcp")
    queue.recv(near, into := bytearray(8))
    symmetric, done = team.alloc(8), queue.notify()
    for how in ("exit", "_exit"):
        child = os.fork()
        if child == 0:
            calls = [
                lambda: client.send(b"x"), lambda: client.recv(1), lambda: listener.accept(), lambda: net.snapshot(),
                lambda: net.attach_cpu(), lambda: net.close(), lambda: cpu.stats(), lambda: cpu.alloc(1), lambda: memory.read(),
                lambda: number.device_number(), lambda: launch.net, lambda: launch.cancel(), lambda: memoryview(memory),
                lambda: queue.send(near, b"x"), lambda: queue.synchronize(), lambda: done.wait(), lambda: queue.close(),
                lambda: team.barrier(), lambda: team.leave(), lambda: memoryview(symmetric), lambda: symmetric.__dlpack__(),
            ]
            for number_of_call, call in enumerate(calls):
                try:
                    call()
                    say("not refused:", number_of_call)
                except OSError as error:
                    assert error.errno == errno.ECHILD and "made before fork()" in str(error), error
            client.close()
            repr(client), repr(net), repr(listener), repr(cpu), repr(launch), repr(memory), repr(queue), repr(team)
            # It may have a proxy of its own.
            with gpunet.embed(sockets=64, shared_rings=8 << 20) as own:
                with own.listen(("127.0.0.1", 0)) as mine, socket.create_connection(mine.getsockname()) as theirs:
                    accepted, _ = mine.accept()
                    theirs.sendall(b"own")
                    assert accepted.recv_exact(3) == b"own"
            say("child", how)
            os._exit(0) if how == "_exit" else sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    client.sendall(b"after")
    assert server.recv_exact(5) == b"after"
    launch.finish()
    with client_of, client_of.accept()[0] as theirs:
        theirs.sendall(b"received")
        queue.synchronize()
    assert into == b"received"
    team.leave()
    say("parent")
    """)
    assert out.split("\n") == ["child exit", "child _exit", "parent", ""]


def test_what_was_sent_is_delivered_when_the_interpreter_ends() -> None:
    def receive() -> bytes:
        with server.accept()[0] as theirs:
            return theirs.makefile("rb").read()

    with socket.create_server(("127.0.0.1", 0)) as server:
        received = [in_thread(receive), in_thread(receive)]
        run(f"""
        client = net.connect(("127.0.0.1", {server.getsockname()[1]}))
        client.sendall(b"x" * 3_000_000)
        also = gpunet.embed(sockets=64, shared_rings=8 << 20)
        open_end = also.connect(("127.0.0.1", {server.getsockname()[1]}))
        open_end.sendall(b"y" * 3_000_000)
        """)
        assert sorted(end() for end in received) == [b"x" * 3_000_000, b"y" * 3_000_000]


def test_the_interpreter_ends_with_sockets_open_and_threads_waiting() -> None:
    run("""
    client, server = pair()
    peer, _ = pair("peer")
    listener = net.listen(("127.0.0.1", 0))
    cpu = net.attach_cpu()
    launch = cpu.launch()
    somebody = net.listen(("127.0.0.1", 0))
    queue, team = gpunet.Queue(cpu), gpunet.TeamListener().lead(cpu, 1)
    queue.recv(cpu.connect(somebody.getsockname(), transport="tcp"), bytearray(1))
    queue.signal_wait(team, 0, 0, 1)
    kept = memoryview(team.alloc(8))
    # Nobody is told of what the end has closed.
    for call in (lambda: client.recv(1), lambda: peer.recv(1), listener.accept, lambda: server.sendall(bytes(64 << 20)),
                 lambda: net.connect(listener.getsockname(), transport="peer"), cpu.listen(("127.0.0.1", 0)).accept,
                 queue.synchronize, lambda: gpunet.TeamListener().lead(cpu, 2)):
        threading.Thread(target=call, daemon=True).start()
    # The end waits for the blocks of a launch that nobody has finished, whose calls fail.
    from gpunet import cpu as kernels
    left = cpu.launch()
    kernels.run(left.net, lambda context: net.listen(("127.0.0.1", 0)).accept())
    kernels.run(left.net, lambda context: kernels.connect(context, listener.getsockname()))
    del left
    time.sleep(0.1)
    """)


def test_what_nobody_closes_is_closed_behind() -> None:
    run("""
    import gc
    net.listen(("127.0.0.1", 0)).close()
    before = len(os.listdir("/proc/self/task"))
    for _ in range(3):
        own = gpunet.embed(sockets=64, shared_rings=8 << 20)
        cpu = own.attach_cpu()
        launch = cpu.launch()
        listener = own.listen(("127.0.0.1", 0))
        del own, cpu, launch, listener
        gc.collect()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        # The threads of one proxy are left.
        if len(os.listdir("/proc/self/task")) <= before:
            break
        time.sleep(0.05)
    else:
        raise SystemExit("threads are left")
    """)
