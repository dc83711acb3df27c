"""Weaknesses that other brokers had and that only a running process can show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.testing.broker import Broker

LISTENING = "0A"  # the state of a socket in /proc/net/tcp


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which the process listens."""
    descriptors = Path(f"/proc/{pid}/fd")
    inodes = {os.readlink(one)[len("socket:[") : -1] for one in descriptors.iterdir() if "socket" in os.readlink(one)}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        if Path(f"/proc/{pid}/net/{table}").exists()
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == LISTENING and line[9] in inodes}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_cve_2026_82266_nothing_but_the_listeners_listens() -> None:
    with Broker(in_process=False) as broker:
        assert listening_ports(broker.pid) == {broker.port}


def test_cve_2026_111073_nobody_sends_compressed_telemetry() -> None:
    """GetTelemetrySubscriptions and PushTelemetry are not served. For records see test_compression.py."""
    assert not {71, 72} & HANDLERS.keys()
