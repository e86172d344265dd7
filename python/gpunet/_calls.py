"""The calls of kernels: the device functions of gpunet.h, and the numbers that they use.

One table for all languages. A test compares it with the PTX.
"""

from __future__ import annotations

import ipaddress
import struct

NET, SOCKET, ADDRESS, LENGTH, FLAGS, TIMEOUT = "net", "socket", "address", "length", "flags", "timeout"

WIDTH = {NET: 64, SOCKET: 32, ADDRESS: 64, LENGTH: 64, FLAGS: 32, TIMEOUT: 64}
"""Bits of each kind of argument."""

BLOCK_WARP_THREAD = ("", "_warp", "_thread")
BLOCK_THREAD = ("", "_thread")

CALLS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "gpunet_accept_timeout": (32, (NET, SOCKET, ADDRESS, ADDRESS, TIMEOUT), BLOCK_THREAD),
    "gpunet_connect_to": (32, (NET, ADDRESS, FLAGS, ADDRESS, TIMEOUT), BLOCK_THREAD),
    "gpunet_send_timeout": (64, (NET, SOCKET, ADDRESS, LENGTH, FLAGS, TIMEOUT), BLOCK_WARP_THREAD),
    "gpunet_recv_timeout": (64, (NET, SOCKET, ADDRESS, LENGTH, FLAGS, TIMEOUT), BLOCK_WARP_THREAD),
    "gpunet_shutdown": (32, (NET, SOCKET, FLAGS), BLOCK_THREAD),
    "gpunet_close": (32, (NET, SOCKET), BLOCK_THREAD),
    "gpunet_poll": (32, (NET, ADDRESS, LENGTH, TIMEOUT), BLOCK_WARP_THREAD),
}
"""Name: bits of the result, arguments, and the suffixes of its forms."""

CONSTANTS: dict[str, int] = {
    # Timeouts, in nanoseconds. SOCKET_TIMEOUT: as the socket's options say.
    "SOCKET_TIMEOUT": -(1 << 63),
    "FOREVER": -1,
    "NO_WAIT": 0,
    "MSG_PEEK": 0x2,
    "MSG_DONTWAIT": 0x40,
    "MSG_WAITALL": 0x100,
    "MSG_MORE": 0x8000,
    "SHUT_RD": 0,
    "SHUT_WR": 1,
    "SHUT_RDWR": 2,
    "POLLIN": 1,
    "POLLOUT": 4,
    "POLLERR": 8,
    "POLLHUP": 16,
    "POLLNVAL": 32,
    # Calls return the negative of these.
    "EBADF": 9,
    "EAGAIN": 11,
    "EFAULT": 14,
    "EINVAL": 22,
    "ENFILE": 23,
    "EMFILE": 24,
    "EPIPE": 32,
    "EADDRINUSE": 98,
    "ENETDOWN": 100,
    "ECONNRESET": 104,
    "ENOTCONN": 107,
    "ETIMEDOUT": 110,
    "ECONNREFUSED": 111,
    "EALREADY": 114,
    "ECANCELED": 125,
}

ADDRESS_LENGTH = 28
"""Bytes of what `sockaddr` returns, for both families."""


def sockaddr(host: str, port: int) -> bytes:
    """Returns the 28 bytes that `connect` takes in a kernel, for an IPv4 or IPv6 address.

    Put them into memory of the GPU: ``torch.tensor(list(sockaddr("10.0.0.1", 80)),
    dtype=torch.uint8, device="cuda")``.

    Raises ValueError when `host` is no numeric address: kernels resolve no names.
    """
    if not 0 <= port <= 0xFFFF:
        raise ValueError(f"a port is 0 to 65535, not {port}")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is no numeric address; resolve the name first, with socket.getaddrinfo") from None
    head = struct.pack(">H", port)
    if isinstance(address, ipaddress.IPv4Address):
        return (struct.pack("<H", 2) + head + address.packed).ljust(ADDRESS_LENGTH, b"\0")
    return struct.pack("<H", 10) + head + bytes(4) + address.packed + struct.pack("<I", _scope(address.scope_id))


def _scope(text: str | None) -> int:
    """The number of an interface, which the address has as a number or as a name."""
    if not text:
        return 0
    if text.isdecimal():
        return int(text)
    import socket

    return socket.if_nametoindex(text)
