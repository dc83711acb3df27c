"""What every store promises, asked of a real ZooKeeper: the tests of tests/unit/store/test_contract.py."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.store.zookeeper import ZooKeeperOptions, ZooKeeperStore, connect

CONTRACT = Path(__file__).parents[1] / "unit" / "store" / "test_contract.py"
CHROOTS = count()


def _contract() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("store_contract", CONTRACT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


globals().update(_contract())


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def store(shared_ensemble: ZooKeeperEnsemble, run: Any) -> Iterator[ZooKeeperStore]:
    """Each test works below a path of its own."""
    made = run(connect(ZooKeeperOptions(f"{shared_ensemble.connect}/test-{next(CHROOTS)}")))
    yield made
    run(made.close())
