"""Files over sockets, as `socket.socket.makefile` makes them."""

import io
import socket
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from gpunet._native import Socket


def makefile(
    sock: "Socket",
    mode: str,
    buffering: int | None,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> IO[Any]:
    """Makes a file of a socket, which stays open until the file is closed, too."""
    if not set(mode) <= {"r", "w", "b"}:
        raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
    writing = "w" in mode
    reading = "r" in mode or not writing
    binary = "b" in mode
    raw = socket.SocketIO(cast(socket.socket, sock), ("r" if reading else "") + ("w" if writing else ""))  # type: ignore[arg-type]
    if buffering is None or buffering < 0:
        buffering = io.DEFAULT_BUFFER_SIZE
    if buffering == 0:
        if not binary:
            raise ValueError("unbuffered streams must be binary")
        return cast(IO[Any], raw)
    buffer: io.BufferedRWPair | io.BufferedReader | io.BufferedWriter
    if reading and writing:
        buffer = io.BufferedRWPair(raw, raw, buffering)
    elif reading:
        buffer = io.BufferedReader(raw, buffering)
    else:
        buffer = io.BufferedWriter(raw, buffering)
    if binary:
        return cast(IO[Any], buffer)
    text = io.TextIOWrapper(cast(IO[bytes], buffer), encoding, errors, newline)
    text.mode = mode  # type: ignore[misc]
    return text
