"""A broker in this process for each module, and raw connections to it."""

from __future__ import annotations

import gc
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[[], RawClient]]:
    """Opens connections that are closed after the test."""
    opened = []

    def connect() -> RawClient:
        opened.append(RawClient(broker.bootstrap_servers))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[[], RawClient]) -> RawClient:
    return connect()


@pytest.fixture
def new_topic(client: RawClient) -> Callable[..., tuple[str, UUID]]:
    """Makes a topic of a name that no other test has, and tells name and id."""

    def new_topic(partitions: int = 1, config: dict[str, str] | None = None) -> tuple[str, UUID]:
        name = f"topic-{next(_numbers)}"
        made = client.ask(create_topic(name, partitions, config=config), 7).topics[0]
        assert not made.error_code, made
        return name, made.topic_id

    return new_topic


@pytest.fixture
def run_examples(broker: Broker) -> Callable[[Path], dict[str, Any]]:
    """Runs the examples of a page, one after the other, with the broker at the address that they name; their names."""

    def run_examples(page: Path) -> dict[str, Any]:
        shared: dict[str, Any] = {}
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        assert len(blocks) >= 3
        for block in blocks:
            exec(compile(block.replace("127.0.0.1:9092", broker.bootstrap_servers), str(page), "exec"), shared)
        return shared

    return run_examples


@pytest.fixture
def leaves_sockets() -> Iterator[None]:
    """For kafka-python, which forgets to close a socket that is still being connected when the client is closed.

    It is collected while its test runs or here, and not as a failure of whichever test runs by then.
    """
    warnings.filterwarnings("ignore", "unclosed <(socket|ssl)", ResourceWarning)  # pytest resets it after the test
    yield
    gc.collect()
