"""Whatever can be decoded is answered: a handler that raises closes a connection over a number or a name."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.errors import ProtocolError
from ottla.protocol.schema import schema_of
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import STRING, UUID16, Primitive
from ottla.testing.messages import random_message, smallest_message
from ottla.testing.raw_requests import one_batch

TOPIC = "there"
CASES_PER_API = 200
PRODUCE, ACLS = 0, {29, 30, 31}


def likely(message: Any, version: int, random: Random, topic_id: Any) -> None:
    """Makes a random message about things that are there, as often as not: most else stops at the first check."""
    for field in schema_of(type(message)).fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        for one in value if isinstance(value, list) else [value]:
            if one is not None and not isinstance(field.wire_type, Primitive):
                likely(one, version, random, topic_id)
        if field.is_array or random.random() < 0.5:
            continue
        if field.wire_type is STRING and "topic" in f"{type(message).__name__} {field.name}".lower():
            setattr(message, field.name, TOPIC)
        elif field.wire_type is UUID16:
            setattr(message, field.name, topic_id)
        elif field.name in ("partition", "index", "partition_index"):
            setattr(message, field.name, random.choice((0, 1, 2, -1, -99)))
        elif field.name == "records":
            message.records = one_batch(b"a", b"b")
        elif field.name.endswith(("timeout_ms", "wait_ms")):
            setattr(message, field.name, random.choice((0, 1, 10_000)))


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: API_TABLE[key].name)
def test_every_request_is_answered(broker: Any, key: int) -> None:
    topic_id = broker.new_topic(TOPIC, 2)
    api = API_TABLE[key]
    for version in api.versions:
        random = Random(f"{key} {version}")
        requests = [smallest_message(api.request, version)]
        for _ in range(CASES_PER_API // len(list(api.versions))):
            request: Any = random_message(api.request, version, random)
            likely(request, version, random, topic_id)
            requests.append(request)
        for request in requests:
            try:
                broker.ask(request, version)
            except ProtocolError:
                # Kafka closes these connections too: there is no answer with acks=0, nor to a rule of no kind.
                assert key in ACLS or (key == PRODUCE and request.acks == 0), request
