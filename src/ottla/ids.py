"""The nouns that name things: ids, offsets, epochs and partitions."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1
NO_SEQUENCE = -1
ZERO_TOPIC_ID = UUID(int=0)

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_valid_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def topic_id_text(topic_id: UUID) -> str:
    """The 22 characters by which Kafka's files and tools write a topic id: base64, URL-safe, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> UUID:
    """The topic id that `topic_id_text` wrote; ValueError for anything else."""
    if len(text) != 22:
        raise ValueError(f"a topic id has 22 characters, this one has {len(text)}: {text!r}")
    return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
