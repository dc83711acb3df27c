"""The pytest fixtures that Ottla brings: `ottla_broker` for each test, `ottla_session_broker` for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


@pytest.fixture
def ottla_broker() -> Iterator[Broker]:
    """A broker of this test's own: empty, on a free port, gone afterwards."""
    from ottla.testing.broker import Broker  # not at the top: every pytest run loads this plugin, few use it

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker() -> Iterator[Broker]:
    """One broker for the whole run, for tests that name their topics apart."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker
