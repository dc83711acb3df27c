"""Values of topic settings at the edge of what they may be: levels of codecs, lists with gaps."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.testing.raw_requests import create_topic
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

TOPIC = 2
LISTS = (
    "delete",
    "compact,delete",
    "delete,",
    ",delete",
    "delete,,compact",
    "delete,delete",
    " delete , compact ",
    "delete compact",
    "DELETE",
    "",
    " ",
    ",",
    "delete,nonsense",
)
LEVELS = {
    "compression.gzip.level": (-2, -1, 0, 1, 6, 9, 10),
    "compression.lz4.level": (-1, 0, 1, 9, 17, 18),
    "compression.zstd.level": (-131073, -131072, -5, 0, 3, 22, 23),
}
THROTTLED = "leader.replication.throttled.replicas"
REPLICAS = ("*", "", "0:1", "0:1,1:2", "0:1,", "0", "a:b", "0:1,0:1", " 0:1 , 1:2 ", "none", "*,0:1")


def try_value(side: Side, number: int, name: str, value: str) -> None:
    """Makes a topic with that setting, and reads it back if it was made."""
    topic = side.name(f"{name}-{number}")
    made = side.client.ask(create_topic(topic, config={name: value}), 7).topics[0]
    side.note("made", name, value, made.error_code)
    if made.error_code:
        return
    side.settle()
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])

    def described(answer: Any) -> Any:
        return [(one.name, one.value, one.config_source) for one in answer.results[0].configs]

    side.ask(DescribeConfigsRequest(resources=[resource]), 4, note=described)


@conversations.add
def policies_of_cleaning(side: Side) -> None:
    for number, value in enumerate(LISTS):
        try_value(side, number, "cleanup.policy", value)


@conversations.add
def throttled_replicas(side: Side) -> None:
    for number, value in enumerate(REPLICAS):
        try_value(side, number, THROTTLED, value)


@conversations.add
def levels_of_compression(side: Side) -> None:
    for name, levels in LEVELS.items():
        for number, level in enumerate(levels):
            try_value(side, number, name, str(level))


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
