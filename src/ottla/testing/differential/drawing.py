"""From a seed to a history: which APIs, in which versions, with what in their fields, and what is wrong with them."""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

from ottla.broker.handlers import HANDLERS
from ottla.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.groups import JoinGroupRequest
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest, WriteTxnMarkersRequest
from ottla.protocol.schema import Field, StructSchema, Versions, schema_of
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import BOOL, BYTES, RECORDS, STRING, UUID16, Primitive
from ottla.testing.differential.history import BodyChange, History, Step
from ottla.testing.differential.values import (
    INTERNAL_TOPICS,
    NO_TOPIC_NAMES,
    STRANGE_NAMES,
    STRANGE_UUIDS,
    Subjects,
    any_value,
    source_of,
    strange_number,
)

STEPS_MAX: Final = 24
CONNECTIONS: Final = 3

# Not drawn, because it outlives a history: quotas throttle those behind it, and Kafka unregisters a broker that runs.
LASTING: Final = frozenset({49, 57, 64})
DRAWN: Final = tuple(key for key in HANDLERS if key not in LASTING)

# What belongs together: most histories keep to one theme, so that requests meet what others left behind.
THEMES: Final[dict[str, tuple[int, ...]]] = {
    "records": (0, 0, 0, 0, 1, 1, 1, 2, 21, 23, 61, 3, 35),
    "fetch sessions": (0, 0, 1, 1, 1, 1, 1, 1, 19, 20),
    "idempotence": (22, 0, 0, 0, 0, 0, 61, 1, 2),
    "classic groups": (11, 11, 11, 11, 14, 14, 14, 12, 12, 13, 8, 9, 15, 16, 42, 47),
    "consumer groups": (68, 68, 68, 68, 68, 68, 8, 9, 69, 15, 16, 42, 47, 13),
    "both group protocols": (11, 11, 14, 12, 68, 68, 68, 13, 69, 15, 8, 9, 42),
    "offsets": (8, 8, 8, 9, 9, 9, 47, 42, 28, 28, 22, 26, 20, 19),
    "transactions": (22, 22, 24, 24, 0, 0, 0, 25, 28, 28, 26, 26, 26, 26, 65, 66, 1, 2, 61, 27, 9),
    "topics": (19, 19, 19, 20, 37, 37, 3, 3, 75, 60, 0, 2, 43, 45, 46),
    "configs": (32, 32, 32, 33, 44, 44, 44, 74, 19),
    "everything": DRAWN,
}


# Kafka announces Produce from version 0 on, for the sake of librdkafka, and serves it from 3 on.
ANNOUNCED_ONLY: Final = {0: 3}


def draw_history(seed: int, theme_name: str | None = None) -> History:
    """The history of a seed; of a theme, where one is named."""
    rng = Random(seed)
    drawn = rng.choice(tuple(THEMES))
    theme = THEMES[theme_name or drawn]
    sequences: dict[tuple[str | None, str, int], int] = {}
    count = rng.randint(2, STEPS_MAX)
    return History(seed, tuple((number, _draw_step(rng, theme, sequences)) for number in range(count)))


def common_versions(key: int) -> Versions:
    """The versions that Kafka announces: we announce them all, as a conversation about ApiVersions holds."""
    advertised = API_TABLE[key].advertised
    assert advertised is not None
    return Versions(ANNOUNCED_ONLY.get(key, advertised.first), advertised.last)


def _draw_step(rng: Random, theme: tuple[int, ...], sequences: dict[tuple[str | None, str, int], int]) -> Step:
    key = rng.choice(theme) if rng.random() < 0.93 else rng.choice(DRAWN)
    versions = common_versions(key)
    version = versions.last if rng.random() < 0.5 else rng.randint(versions.first, versions.last)
    subjects = Subjects(rng, version, sequences)
    request = draw_message(API_TABLE[key].request, subjects)
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 2))):
        mutate(request, version, rng)
    keep_harmless(request)
    header_version, change = None, None
    if rng.random() < 0.02:
        header_version = rng.choice((versions.first - 1, versions.last + 1, 32767))
    elif rng.random() < 0.03:
        change = _draw_change(rng)
    return Step(key, version, request, rng.randrange(CONNECTIONS), header_version, change)


def _draw_change(rng: Random) -> BodyChange:
    match rng.choice(("cut", "replaced", "added")):
        case "cut":
            return BodyChange(kept=rng.random())
        case "replaced":
            return BodyChange(at=rng.random(), byte=rng.choice((0, 1, 0x7F, 0x80, 0xFF)))
        case _:
            return BodyChange(added=rng.choice((b"\0", b"junk", b"\0" * 100)))


# -- messages ----------------------------------------------------------------------------------------------------------


def draw_message(cls: type, subjects: Subjects) -> Any:
    """A message that makes sense more often than not."""
    schema = schema_of(cls)
    version = subjects.version
    return cls(
        **{
            field.name: _draw_field(schema, field, subjects)
            for field in schema.fields
            if version in field.versions and not (field.tag is not None and subjects.odds(0.9))
        }
    )


def _draw_field(schema: StructSchema, field: Field, subjects: Subjects) -> Any:
    if not field.is_array:
        if field.struct is not None and subjects.version in field.nullable and subjects.odds(0.7):
            return None
        value = _draw_one(schema, field, subjects)
        return _not_null(value, field, subjects.version)
    if subjects.version in field.nullable and subjects.odds(0.3):
        return None
    count = subjects.one_of(*(1,) * 12, 2, 2, 2, 3, 0)
    return [_not_null(_draw_one(schema, field, subjects), field, None) for _ in range(count)]


def _draw_one(schema: StructSchema, field: Field, subjects: Subjects) -> Any:
    if not isinstance(field.wire_type, Primitive):
        return draw_message(field.wire_type, subjects)
    source = source_of(schema, field)
    return any_value(field.wire_type, subjects.rng) if source is None else source(subjects)


def _not_null(value: Any, field: Field, version: int | None) -> Any:
    if value is not None or (version is not None and version in field.nullable):
        return value
    return b"" if field.wire_type in (BYTES, RECORDS) else ""


TOPIC_FIELDS: Final = ("topic", "topic_name", "topic_names")
TOPIC_NAMES: Final = (*NO_TOPIC_NAMES, *INTERNAL_TOPICS)

# -- mutations ---------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A field of a message somewhere inside a request."""

    message: Any
    field: Field

    def get(self) -> Any:
        return getattr(self.message, self.field.name)

    def set(self, value: Any) -> None:
        setattr(self.message, self.field.name, value)


def places(message: Any, version: int) -> list[Place]:
    """Every field that stands on the wire, in order."""
    found = []
    for field in schema_of(type(message)).fields:
        if version not in field.versions:
            continue
        found.append(Place(message, field))
        value = getattr(message, field.name)
        for one in value if isinstance(value, list) else [value]:
            if hasattr(type(one), "__schema__"):
                found += places(one, version)
    return found


def mutate(request: Any, version: int, rng: Random) -> None:
    """Makes one field of the request strange; the message can still be encoded."""
    if found := places(request, version):
        place = rng.choice(found)
        place.set(_strange(place, version, rng))


def _strange(place: Place, version: int, rng: Random) -> Any:
    field, value = place.field, place.get()
    if version in field.nullable and rng.random() < 0.4:
        return None
    if field.is_array:
        elements = value or []
        return rng.choice(([], elements + elements[-1:], elements + elements, elements[::-1], elements[1:]))
    kind = field.wire_type
    if not isinstance(kind, Primitive) or kind in (BYTES, RECORDS):
        return value if not isinstance(kind, Primitive) else rng.choice((b"", b"junk"))
    if kind is STRING:
        return rng.choice((*STRANGE_NAMES, *(TOPIC_NAMES if field.name in TOPIC_FIELDS else ())))
    if kind is UUID16:
        return rng.choice(STRANGE_UUIDS)
    if kind is BOOL:
        return not value
    return strange_number(kind, rng)


# -- what no history does ----------------------------------------------------------------------------------------------

PARTITIONS_MAX: Final = 8
REFUSED_PARTITIONS_MIN: Final = 10_001
TIMEOUT_MIN_MS: Final = 10_000
SESSION_TIMEOUT_MIN_MS: Final = 500
WAIT_MAX_MS: Final = 20
OF_TOPICS_OR_GROUPS: Final = (2, 32)


def keep_harmless(request: Any) -> None:
    """Takes out what would break the brokers for all others, or make the answer a matter of time."""
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = TIMEOUT_MIN_MS
    match request:
        case FetchRequest():
            request.max_wait_ms = min(request.max_wait_ms, WAIT_MAX_MS)
        case JoinGroupRequest():
            if SESSION_TIMEOUT_MIN_MS <= request.session_timeout_ms < TIMEOUT_MIN_MS:
                request.session_timeout_ms = TIMEOUT_MIN_MS
            request.rebalance_timeout_ms = max(request.rebalance_timeout_ms, TIMEOUT_MIN_MS)
            # A group in which somebody named a protocol twice counts wrong in Kafka from then on.
            named = {str(protocol.name): protocol for protocol in request.protocols}
            request.protocols = list(named.values())
        case ConsumerGroupHeartbeatRequest():
            if 0 < request.rebalance_timeout_ms < TIMEOUT_MIN_MS:
                request.rebalance_timeout_ms = TIMEOUT_MIN_MS
        case InitProducerIdRequest():
            if 0 < request.transaction_timeout_ms < TIMEOUT_MIN_MS:
                request.transaction_timeout_ms = TIMEOUT_MIN_MS
        case CreateTopicsRequest():
            for topic in request.topics:
                topic.num_partitions = _few_or_far_too_many(topic.num_partitions)
        case CreatePartitionsRequest():
            request.topics = [topic for topic in request.topics if topic.name not in INTERNAL_TOPICS]
            for grown in request.topics:
                if grown.assignments is None:  # else a large count does not fit them, and is refused
                    grown.count = min(grown.count, PARTITIONS_MAX)
        case DeleteTopicsRequest():
            request.topic_names = [name for name in request.topic_names if name not in INTERNAL_TOPICS]
            request.topics = [topic for topic in request.topics if topic.name not in INTERNAL_TOPICS]
        case WriteTxnMarkersRequest():
            for marker in request.markers:
                marker.topics = [topic for topic in marker.topics if topic.name not in INTERNAL_TOPICS]
        case AlterConfigsRequest() | IncrementalAlterConfigsRequest():
            if not all(
                resource.resource_type in OF_TOPICS_OR_GROUPS and resource.resource_name not in INTERNAL_TOPICS
                for resource in request.resources
            ):
                request.validate_only = True


def _few_or_far_too_many(count: int) -> int:
    return min(count, PARTITIONS_MAX) if count < REFUSED_PARTITIONS_MIN else count
