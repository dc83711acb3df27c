"""The pytest fixtures of Ottla: `ottla_broker` for each test, `ottla_session_broker` for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
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
