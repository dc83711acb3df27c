"""What members of a classic group of consumers say to each other: subscriptions, assignments and user data as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeVar

from ottla.client.consumer.assignors.spec import NO_GENERATION, Member
from ottla.client.consumer.assignors.sticky_user_data import StickyUserData
from ottla.errors import ProtocolError
from ottla.ids import TopicPartition
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.embedded import TopicPartition as TopicPartitions
from ottla.protocol.schema import message_schema_of

Message = TypeVar("Message", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

VERSION: Final = 3  # of subscriptions and assignments; readers of older ones pass over what they do not know
_VERSION = Struct(">h")
_GENERATION = Struct(">i")
_STICKY_VERSIONS: Final = (1, 0)


def encode_subscription(
    topics: Iterable[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    version: int = VERSION,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_grouped(owned),
        generation_id=generation,
        rack_id=rack,
    )
    return _VERSION.pack(version) + encode(subscription, version)


def decode_subscription(data: bytes | memoryview, instance_id: str | None = None) -> Member:
    """A member as the leader of its group learns of it."""
    found = _decode(ConsumerProtocolSubscription, data)
    return Member(
        topics=frozenset(found.topics),
        instance_id=instance_id,
        owned=frozenset(_flat(found.owned_partitions)),
        generation=found.generation_id,
        rack=found.rack_id,
        user_data=None if found.user_data is None else bytes(found.user_data),
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions))
    return _VERSION.pack(VERSION) + encode(assignment, VERSION)


def decode_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    return _flat(_decode(ConsumerProtocolAssignment, data).assigned_partitions)


def encode_sticky(assigned: Iterable[TopicPartition], generation: int) -> bytes:
    return encode(StickyUserData(previous_assignment=_grouped(assigned), generation=generation), 1)


def decode_sticky(data: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """What a member had and in which generation: nothing where it says nothing that can be read."""
    for version in _STICKY_VERSIONS if data else ():
        try:
            found = decode(StickyUserData, data or b"", version)
        except ProtocolError:
            continue  # of the older version, or of another assignor's making
        return frozenset(_flat(found.previous_assignment)), found.generation
    return frozenset(), NO_GENERATION


def encode_generation(generation: int) -> bytes:
    return _GENERATION.pack(generation)


def decode_generation(data: bytes) -> int:
    """The user data of the cooperative sticky assignor; whatever else it may be says no generation."""
    return int(_GENERATION.unpack_from(data)[0]) if len(data) >= _GENERATION.size else NO_GENERATION


def _decode(message: type[Message], data: bytes | memoryview) -> Message:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes are no {message.__name__}")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"a {message.__name__} of version {version}")
    # Newer versions have more fields behind those that we know.
    known = min(version, message_schema_of(message).versions.last)
    return decode(message, data, known, _VERSION.size)


def _grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return [TopicPartitions(topic=topic, partitions=found) for topic, found in numbers.items()]


def _flat(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in topics for number in each.partitions]
