"""The native module's log, for `logging`: the logger "gpunet" and those below it."""

from __future__ import annotations

import logging
import threading

from gpunet import _native

_logger = logging.getLogger("gpunet")
_thread: threading.Thread | None = None


def start() -> None:
    """Forwards the log from now on, from the level that the logger has. Called when a proxy is made."""
    global _thread
    _native.log_level(_logger.getEffectiveLevel())
    # In a child of fork the thread is not alive.
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_forward, name="gpunet-log", daemon=True)
        _thread.start()


def _forward() -> None:
    while (record := _native.next_record()) is not None:
        level, module, text = record
        # "gpunet_proxy::engine::shard" is "gpunet.proxy.engine.shard".
        name = module.replace("::", ".").replace("gpunet_", "gpunet.", 1)
        try:
            logging.getLogger(name if name.startswith("gpunet.") else f"gpunet.{name}").log(level, "%s", text)
        except Exception:
            # A handler that fails must not end the log; `logging` reports it itself.
            continue
