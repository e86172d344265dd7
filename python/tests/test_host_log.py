"""The log goes to `logging`."""

from __future__ import annotations

import logging
import time

import pytest

import gpunet


def test_the_log_of_a_proxy_is_pythons(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="gpunet"), gpunet.embed(sockets=64, shared_rings=8 << 20) as net:
        net.listen(("127.0.0.1", 0)).close()
        deadline = time.monotonic() + 20
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
    assert caplog.records, "nothing is logged"
    for record in caplog.records:
        assert record.name.startswith("gpunet.") and "::" not in record.name and record.getMessage()
    # The level is looked at when a proxy is made.
    caplog.clear()
    with gpunet.open("/nowhere/gpunetd.sock", sockets=64, shared_rings=8 << 20):
        pass
    assert not caplog.records
