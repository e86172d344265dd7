"""Sockets for GPU kernels, and for the programs that start them.

>>> import gpunet
>>> with gpunet.embed(sockets=64, shared_rings=1 << 20) as net:
...     listener = net.listen(("127.0.0.1", 0))
...     port = listener.getsockname()[1]

`open`, `embed` and `attach` give a `Proxy`. It connects and listens for the program itself (`Proxy.connect`,
`Proxy.listen`), and attaches devices whose kernels have sockets (`Proxy.attach_cuda`, `Proxy.attach_cpu`). `connect` and
`start_server` are the same for asyncio. A `Queue` moves arrays in the order of a stream; the members of a `Team` store into
each other's memory. A `Channel` moves whole arrays to another process. docs/python.md leads through it.
"""

import atexit as _atexit

from gpunet import _native
from gpunet._aio import AsyncSocket, Server, connect, start_server
from gpunet._native import (
    Attachment,
    Calls,
    DeviceListener,
    DeviceSocket,
    Done,
    Launch,
    Listener,
    Memory,
    Proxy,
    Queue,
    Record,
    Socket,
    Started,
    Symmetric,
    SymmetricPart,
    Team,
    TeamListener,
    Watch,
    attach,
    embed,
    open,
)
from gpunet.channel import Channel, ChannelListener, Outcome, Transfer

__version__ = _native.version

__all__ = [
    "AsyncSocket",
    "Attachment",
    "Calls",
    "Channel",
    "ChannelListener",
    "DeviceListener",
    "DeviceSocket",
    "Done",
    "Launch",
    "Listener",
    "Memory",
    "Outcome",
    "Proxy",
    "Queue",
    "Record",
    "Server",
    "Socket",
    "Started",
    "Symmetric",
    "SymmetricPart",
    "Team",
    "TeamListener",
    "Transfer",
    "Watch",
    "attach",
    "connect",
    "embed",
    "include_dir",
    "open",
    "start_server",
]


def include_dir() -> str:
    """Returns the folder with gpunet.h and gpunet.cuh, for a compiler's option -I.

    The folder is in the cache (`~/.cache/gpunet`), or a temporary one where nothing can be kept.
    """
    from gpunet import _link  # what `import gpunet` does not need

    return str(_link.include_directory())


# What was sent is delivered before the interpreter ends.
_atexit.register(_native._close_all)
