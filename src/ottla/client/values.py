"""The values that users of the clients hold in their hands: records, and where they are in the log.

All are frozen, can be compared, pickled and made by anybody. No error hides inside one. Times are milliseconds since
1970, as in the log; `time` is the same as a datetime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.ids import TopicPartition

Key = TypeVar("Key")
Value = TypeVar("Value")

RecordHeaders = tuple[tuple[str, bytes | None], ...]
# What a caller may write: a mapping, or pairs where a name comes several times.
HeadersLike = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(timestamp: int) -> datetime:
    """A timestamp of a record as a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=timestamp)


@dataclass(frozen=True, slots=True)
class ProducerRecord(Generic[Key, Value]):
    """A record to be sent. Without a partition its key decides, without a timestamp the time of the call."""

    topic: str
    value: Value | None
    key: Key | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: RecordHeaders = ()


class ConsumerRecord(NamedTuple, Generic[Key, Value]):
    """A record as it was read. `timestamp_type`: CREATE_TIME (the producer's) or LOG_APPEND_TIME (the broker's)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Key | None
    value: Value | None
    headers: RecordHeaders = ()
    leader_epoch: int | None = None
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def time(self) -> datetime:
        return time_of(self.timestamp)


class RecordMetadata(NamedTuple):
    """Where a record that was sent is. The offset is -1 where the broker did not say: with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def time(self) -> datetime:
        return time_of(self.timestamp)


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to be read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and its own time."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who a consumer is in its group: what a transaction needs to commit offsets for it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
