"""Real ZooKeeper servers for tests of a cluster. Where there is no Java, those tests say so and are skipped."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(autouse=True, scope="session")
def java() -> None:
    if shutil.which("java") is None:
        pytest.skip("ZooKeeper runs on Java, which is not installed here")
