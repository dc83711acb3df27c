"""Real ZooKeeper servers for tests of a cluster. Where there is no Java, those tests say so and are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count

import pytest

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble

clusters = count(1)


@pytest.fixture(autouse=True, scope="session")
def java() -> None:
    if shutil.which("java") is None:
        pytest.skip("ZooKeeper runs on Java, which is not installed here")


@pytest.fixture(scope="session")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """One server for all tests that do nothing to it."""
    made = ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def connect(shared_ensemble: ZooKeeperEnsemble) -> str:
    """A place of its own for a cluster."""
    return f"{shared_ensemble.connect}/cluster-{next(clusters)}"
