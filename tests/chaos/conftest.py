"""What the chaos tests share: something nasty, done beside a neighbour who must not notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker import Broker
from ottla.testing.neighbour import Neighbour

NASTY_S = 1.5


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("the broker is gone")


@pytest.fixture
def unharmed() -> Callable[..., dict[str, float]]:
    """Does something nasty to a broker beside us, again and again for a while; asserts that a neighbour is well and
    that the broker's memory is bounded."""

    def unharmed(
        broker: Broker,
        nasty: Callable[[], Any],
        *,
        grown_kb_max: int = 80_000,
        p99_ms_max: float = 250,
    ) -> dict[str, float]:
        with Neighbour(broker.bootstrap_servers, broker.pid) as neighbour:
            before = resident_kb(broker.pid)
            deadline = time.monotonic() + NASTY_S
            nasty()
            while time.monotonic() < deadline:
                nasty()
            grown_kb = resident_kb(broker.pid) - before
        figures = {
            "rounds": len(neighbour.times),
            "p50 ms": neighbour.percentile(50) * 1000,
            "p99 ms": neighbour.percentile(99) * 1000,
            "KB": grown_kb,
        }
        print({name: round(value, 2) for name, value in figures.items()})
        assert figures["p99 ms"] < p99_ms_max, figures
        assert grown_kb < grown_kb_max, figures
        return figures

    return unharmed
