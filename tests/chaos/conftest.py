"""What the chaos tests share: something nasty, done beside a neighbour who must not notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker import Broker
from ottla.testing.neighbour import Neighbour

NASTY_S = 1.5
SLOWER_MAX = 4  # so many times as slow as elsewhere: on a busy machine two programs do not get the same


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("the broker is gone")


@pytest.fixture(scope="module")
def peaceful_broker() -> Iterator[Broker]:
    """One that nobody is nasty to: what its clients wait for is the machine."""
    with Broker(in_process=False) as running:
        yield running


@pytest.fixture
def unharmed(peaceful_broker: Broker) -> Callable[..., dict[str, float]]:
    """Does something nasty to a broker beside us, again and again for a while; asserts that a neighbour is well and
    that the broker's memory is bounded.

    How well is said beside a neighbour of another broker on the same machine, at the same time: one that is busy with
    other things makes both wait, and only the nasty one is judged.
    """

    def unharmed(
        broker: Broker,
        nasty: Callable[[], Any],
        *,
        grown_kb_max: int = 80_000,
        p99_ms_max: float = 500,
        rounds_min: int = 20,
    ) -> dict[str, float]:
        with Neighbour(peaceful_broker.bootstrap_servers) as other, Neighbour(broker.bootstrap_servers) as neighbour:
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
            "rounds elsewhere": len(other.times),
            "p99 ms elsewhere": other.percentile(99) * 1000,
            "KB": grown_kb,
        }
        print({name: round(value, 2) for name, value in figures.items()})
        assert len(neighbour.times) >= min(rounds_min, len(other.times) / SLOWER_MAX), figures
        assert figures["p99 ms"] < p99_ms_max + SLOWER_MAX * figures["p99 ms elsewhere"], figures
        assert grown_kb < grown_kb_max, figures
        return figures

    return unharmed
