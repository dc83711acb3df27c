"""One store of each kind, and a short way to run a coroutine."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from ottla.disk import RealDisk
from ottla.runtime.clock import SystemClock
from ottla.store.api import Store
from ottla.store.embedded import EmbeddedStore
from ottla.testing.memory_store import MemoryStore
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Runs a coroutine; all of a test's share one loop, as the store's own tasks need."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=["memory", "embedded", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path, run: Run[Any]) -> Iterator[Store]:
    """The contract's subject. ZooKeeper, which takes longer to start, is in tests/cluster."""
    made: Store
    match request.param:
        case "memory":
            made = MemoryStore()
        case "embedded":
            made = EmbeddedStore(RealDisk(), str(tmp_path / "data"))
        case _:
            made = run(simulated_store())
    yield made
    run(made.close())


async def simulated_store() -> Store:
    loop = asyncio.get_running_loop()
    ensemble = SimulatedEnsemble(loop, Random(1), SystemClock().now_ms, EnsembleConditions(0.0005, 0.005))
    return ensemble.connect("test")


Opener = Callable[[], EmbeddedStore]


@pytest.fixture
def reopen(tmp_path: Path) -> Opener:
    """Opens the embedded store of this test, each time anew."""
    return lambda: EmbeddedStore(RealDisk(), str(tmp_path / "data"))
