"""One store of each kind, and a short way to run a coroutine."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.disk import RealDisk
from ottla.store.api import Store
from ottla.store.embedded import EmbeddedStore
from ottla.store.memory import MemoryStore

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Runs a coroutine; all of a test's share one loop, as the store's own tasks need."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=["memory", "embedded"])
def store(request: pytest.FixtureRequest, tmp_path: Path, run: Run[Any]) -> Iterator[Store]:
    """The contract's subject. A store that needs more than this to start adds itself here."""
    made: Store = MemoryStore() if request.param == "memory" else EmbeddedStore(RealDisk(), str(tmp_path / "data"))
    yield made
    run(made.close())


Opener = Callable[[], EmbeddedStore]


@pytest.fixture
def reopen(tmp_path: Path) -> Opener:
    """Opens the embedded store of this test, each time anew."""
    return lambda: EmbeddedStore(RealDisk(), str(tmp_path / "data"))
