"""The pytest fixtures of Ottla: `ottla_broker` for each test, `ottla_session_broker` for the whole run."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


@pytest.fixture
def ottla_broker() -> Iterator[Broker]:
    """A broker for one test: empty, on a free port, removed afterwards."""
    from ottla.testing.broker import Broker  # not at the top: every pytest run loads this plugin, few use it

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker() -> Iterator[Broker]:
    """One broker for the whole run, for tests that use different topic names."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test that failed shows what the brokers that still run in their own processes logged."""
    report = yield
    brokers = sys.modules.get("ottla.testing.broker")
    if report.failed and brokers is not None:
        for address, log in brokers.logs_of_started_brokers():
            report.sections.append((f"log of the broker at {address}", log))
    return report
