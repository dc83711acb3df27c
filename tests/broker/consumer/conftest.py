"""A broker, topics and consumers for the tests of the consumer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient

from .scene import Make, Topic, fill, settings_of

_groups = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Members of consumer groups hear of changes with a heartbeat: let those be frequent."""
    with Broker(
        {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
    ) as running:
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def topic_of(client: RawClient, new_topic: Callable[..., tuple[str, UUID]]) -> Topic:
    """Makes a topic with so many records in each partition: their values are their numbers."""

    def made(*counts: int, compression: Compression = Compression.NONE) -> str:
        name, _ = new_topic(len(counts))
        for partition, count in enumerate(counts):
            fill(client, name, partition, range(count), compression)
        return name

    return made


@pytest.fixture
def consumer_of(broker: Broker) -> Make:
    def made(*topics: str, **settings: Any) -> Consumer[Any, Any]:
        return Consumer(*topics, **{**settings_of(broker), **settings})

    return made
