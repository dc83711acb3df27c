"""One Apache Kafka and one broker of ours for all files here: starting a JVM takes longer than most conversations.

And one more of each, with logins and ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.apache_kafka import missing_programs
from ottla.testing.side_by_side import Brokers, both_brokers
from ottla.testing.side_by_side.rights import USERS
from ottla.testing.side_by_side.secured import secured_brokers


@pytest.fixture(scope="package")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    if missing_programs():
        pytest.skip(f"needs {', '.join(missing_programs())}")
    with both_brokers(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    if missing_programs():
        pytest.skip(f"needs {', '.join(missing_programs())}")
    with secured_brokers(tmp_path_factory.mktemp("secured"), USERS) as running:
        yield running
