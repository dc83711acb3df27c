"""Answers of both sides, written down so that they can be compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final
from uuid import UUID

from ottla.errors import OttlaError
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from ottla.records import batch
from ottla.records.layout import HEADER_BYTES, LENGTH_PREFIX
from ottla.testing.differential.batches import BASE_TIME_MS
from ottla.testing.differential.references import Known
from ottla.testing.side_by_side.transcript import NOTHING, Transcript

# What is written down where there is no message.
CLOSED: Final = "the connection is closed"
UNANSWERED: Final = "no answer"
OPEN: Final = "no answer, and the connection is open"

# Lists that tell of everything there is, also of what other histories made: field of the answer, name of its elements.
LISTS_OF_ALL: Final = {
    "ListGroupsResponse": ("groups", "group_id"),
    "ListTransactionsResponse": ("transaction_states", "transactional_id"),
    "MetadataResponse": ("topics", "name"),
    "DescribeTopicPartitionsResponse": ("topics", "name"),
    "ListConfigResourcesResponse": ("config_resources", "resource_name"),
    "DescribeLogDirsResult": ("topics", "name"),
    "ElectLeadersResponse": ("replica_election_results", "topic"),
}
# What tells the elements of lists apart. Kafka gathers most answers in hash maps: they have no order.
KEYS: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "group_id",
    "member_id",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
    "user",
    "key",
    "api_key",
)
# Later than any time that a history names: a clock of one of the brokers.
NOW_MS_MIN: Final = BASE_TIME_MS + 10_000_000_000


# Lists that are compared by what they name: one more or less says nothing about the others.
BY_NAME: Final = {
    "ApiVersionsResponse": ("api_keys", "supported_features", "finalized_features"),
    "DescribeConfigsResult": ("configs",),
    "CreatableTopicResult": ("configs",),
}


class AnswerTranscript(Transcript):
    """A transcript that keeps the numbers of epochs, reads records, and leaves out what is not of this history."""

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self.asked_names: set[str] = set()

    def plain(self, value: Any) -> Any:
        if isinstance(value, UUID) and (name := self._known.topic_of(value)):
            return f"<id of {name}>"
        plain = super().plain(value)
        if isinstance(plain, list):
            plain.sort(key=_key)
        return plain

    def _plain_message(self, message: Any) -> dict[str, Any]:
        kind = type(message).__name__
        if kind in LISTS_OF_ALL:
            field, name = LISTS_OF_ALL[kind]
            setattr(message, field, [one for one in getattr(message, field) or [] if self._is_own(getattr(one, name))])
        if isinstance(message, FetchResponse):
            message.responses = _grouped(message.responses)
        plain = super()._plain_message(message)
        for name in BY_NAME.get(kind, ()):
            key = "api_key" if name == "api_keys" else "name"
            plain[name] = {str(one.pop(key)): one for one in plain[name] or []}
        return plain

    def _plain_field(self, name: str, value: Any) -> Any:
        if name in ("member_epoch", "group_epoch", "assignment_epoch"):
            return value
        if name == "records" and value is not None:
            return list(self._plain_records(bytes(value)))
        if isinstance(value, int) and NOW_MS_MIN < value < 2 * NOW_MS_MIN:
            return "now"
        return super()._plain_field(name, value)

    def _is_own(self, name: str | None) -> bool:
        return name is None or name.startswith(self._known.prefix) or name in self.asked_names

    def _plain_records(self, data: bytes) -> Iterator[Any]:
        position = 0
        while position < len(data):
            if len(data) - position < HEADER_BYTES:
                yield "a part of a batch"
                return
            header = batch.read_header(data, position)
            size = header.size_bytes
            if size > len(data) - position or size < LENGTH_PREFIX:
                yield "a part of a batch"
                return
            plain = {
                "base_offset": header.base_offset,
                "leader_epoch": header.leader_epoch,
                "attributes": header.attributes,
                "last_offset_delta": header.last_offset_delta,
                "producer_id": self._plain_field("producer_id", header.producer_id),
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "record_count": header.record_count,
            }
            if header.is_control or header.is_log_append_time:
                plain["times"] = "now"
            else:
                plain["times"] = (header.base_timestamp, header.max_timestamp)
            try:
                batch.check(data, position, strict=False)
                columns = batch.decode(data, position)
                plain["records"] = [[str(value) for value in column] for column in columns[-3:]]
            except OttlaError as error:
                plain["records"] = f"unreadable: {error}"
            yield plain
            position += size


def _grouped(topics: list[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Every topic once: Kafka names one again where another stood between its partitions."""
    grouped: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for topic in topics:
        grouped.setdefault(
            (topic.topic, topic.topic_id),
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[]),
        ).partitions.extend(topic.partitions)
    return list(grouped.values())


def _key(element: Any) -> tuple[Any, ...]:
    """By what an element is told apart from others; all others are alike, and stay in their order."""
    if not isinstance(element, dict):
        return ()
    return tuple((str(type(element[key])), element[key]) for key in KEYS if key in element)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place in an answer where the two are not the same; list indexes are part of the path."""

    path: tuple[str | int, ...]
    kafka: Any
    ours: Any

    @property
    def fields(self) -> str:
        """The path without its indexes."""
        return ".".join(part for part in self.path if isinstance(part, str))

    @property
    def kind(self) -> str:
        """The fields, and the codes if it is one of codes."""
        if self.path[-1:] == ("error_code",):
            return f"{self.fields} {self.kafka}, ours {self.ours}"
        return self.fields or "the whole answer"

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"the answer{where}: Kafka says {self.kafka!r}, we say {self.ours!r}"


def _aligned(kafka: list[Any], ours: list[Any]) -> list[tuple[Any, Any]]:
    """The elements of two lists side by side: those of the same name, or where none have names, of the same place."""
    if not all(_key(one) for one in (*kafka, *ours)):
        return list(zip_longest(kafka, ours, fillvalue=NOTHING))
    pairs = [(one, NOTHING) for one in kafka]
    rest = list(ours)
    for is_same in (lambda one, other: one == other, lambda one, other: _key(one) == _key(other)):
        for index, (one, other) in enumerate(pairs):
            found = next((each for each in rest if is_same(one, each)), NOTHING) if other is NOTHING else NOTHING
            if found is not NOTHING:
                rest.remove(found)
                pairs[index] = one, found
    return [*pairs, *((NOTHING, other) for other in rest)]


def differences(kafka: Any, ours: Any, path: tuple[str | int, ...] = ()) -> Iterator[Difference]:
    """Where two plain values differ."""
    if kafka == ours and type(kafka) is type(ours):
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in kafka | ours:
            yield from differences(kafka.get(name, NOTHING), ours.get(name, NOTHING), (*path, name))
    elif isinstance(kafka, list) and isinstance(ours, list):
        for index, (one, other) in enumerate(_aligned(kafka, ours)):
            yield from differences(one, other, (*path, index))
    else:
        yield Difference(path, kafka, ours)
