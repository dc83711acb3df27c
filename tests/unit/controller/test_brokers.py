"""What a controller finds to have happened between two looks at who is registered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.cluster.image import BrokerEndpoint, BrokerNode
from ottla.controller.brokers import Changes, compare

ONE = BrokerNode(1, {"PLAINTEXT": BrokerEndpoint("one", 9092, "PLAINTEXT")}, None, epoch=10)
TWO = BrokerNode(2, {"PLAINTEXT": BrokerEndpoint("two", 9092, "PLAINTEXT")}, None, epoch=20)
AGAIN = replace(TWO, epoch=30)  # it restarted, or had a new session, before anybody looked
ELSEWHERE = replace(TWO, endpoints={"PLAINTEXT": BrokerEndpoint("three", 9092, "PLAINTEXT")})


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        ([ONE, TWO], Changes([], [], [])),
        ([ONE], Changes([], [2], [])),
        ([ONE, TWO, replace(TWO, node_id=3)], Changes([replace(TWO, node_id=3)], [], [])),
        ([ONE, AGAIN], Changes([AGAIN], [2], [])),
        ([ONE, replace(ELSEWHERE, epoch=30)], Changes([replace(ELSEWHERE, epoch=30)], [2], [])),
        ([ONE, ELSEWHERE], Changes([], [], [ELSEWHERE])),
        ([ONE, replace(TWO, rack="r")], Changes([], [], [])),  # Kafka does not act on a rack alone either
        ([], Changes([], [1, 2], [])),
    ],
)
def test_who_came_who_went_and_who_did_both(found: list[BrokerNode], changes: Changes) -> None:
    known = {broker.node_id: broker for broker in (ONE, TWO)}
    assert compare(known, {broker.node_id: broker for broker in found}) == changes
