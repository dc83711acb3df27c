"""What a history cannot say by itself: names of its own, and what a broker made up in earlier answers.

A history is drawn before anything is sent, so that a seed is a history and a part of it can be played alone. Where a
request needs an id or an epoch, it holds a `Reference`; each side fills in what its broker said. What was never said is
filled in with what a client without knowledge sends.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.groups import JoinGroupRequest
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.topics import CreateTopicsResponse
from ottla.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from ottla.protocol.schema import schema_of
from ottla.protocol.wire import ZERO_UUID

EPOCH_BITS = {"int16": 0x7FFF, "int32": 0x7FFF_FFFF}


@dataclass(slots=True)
class Producer:
    """A producer id that was given out, and its epoch."""

    id: int = -1
    epoch: int = -1


@dataclass(slots=True)
class FetchSession:
    """A fetch session, and the epoch that the broker expects next."""

    id: int = 0
    epoch: int = 0


@dataclass(slots=True)
class Known:
    """What a side got in the answers of one history. `prefix` begins all names."""

    prefix: str
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    members: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    generations: dict[str, int] = field(default_factory=dict)
    member_epochs: dict[tuple[str, str], int] = field(default_factory=dict)
    producers: dict[str | None, Producer] = field(default_factory=dict)
    session: FetchSession = field(default_factory=FetchSession)

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def topic_of(self, topic_id: UUID) -> str | None:
        """The name of a topic of this history."""
        return next((name for name, one in self.topic_ids.items() if one == topic_id), None)

    def learn(self, request: Any, answer: Any) -> None:
        """Takes in what the answer to a request tells."""
        match request:
            case JoinGroupRequest() if answer.member_id:
                members = self.members[request.group_id]
                if answer.member_id not in members:
                    members.append(answer.member_id)
                if answer.generation_id > 0:
                    self.generations[request.group_id] = answer.generation_id
            case ConsumerGroupHeartbeatRequest() if not answer.error_code:
                member = answer.member_id or request.member_id
                if member not in self.members[request.group_id]:
                    self.members[request.group_id].append(member)
                self.member_epochs[request.group_id, member] = answer.member_epoch
                self.generations[request.group_id] = answer.member_epoch
            case InitProducerIdRequest() if not answer.error_code:
                self.producers[request.transactional_id] = Producer(answer.producer_id, answer.producer_epoch)
            case EndTxnRequest() if not answer.error_code and answer.producer_id > 0:
                self.producers[request.transactional_id] = Producer(answer.producer_id, answer.producer_epoch)
            case FetchRequest() if not answer.error_code and answer.session_id:
                epoch = request.session_epoch + 1 if request.session_id else 1
                self.session = FetchSession(answer.session_id, epoch)
        if isinstance(answer, CreateTopicsResponse | MetadataResponse):
            self.topic_ids.update(
                {topic.name: topic.topic_id for topic in answer.topics if topic.name and not topic.error_code}
            )


class Reference:
    """Stands in a request for a value that each side has of its own."""

    __slots__ = ()

    def resolve(self, known: Known) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Name(Reference):
    """The name of a topic, group, transactional id or instance of this history."""

    short: str

    def resolve(self, known: Known) -> str:
        return known.name(self.short)


@dataclass(frozen=True, slots=True)
class TopicId(Reference):
    short: str

    def resolve(self, known: Known) -> UUID:
        return known.topic_ids.get(known.name(self.short), ZERO_UUID)


@dataclass(frozen=True, slots=True)
class Member(Reference):
    """A member id that the group's coordinator gave, by its order from the latest on; empty where there is none."""

    group: str
    back: int = 0

    def resolve(self, known: Known) -> str:
        members = known.members.get(known.name(self.group), [])
        return members[-1 - self.back % len(members)] if members else ""


@dataclass(frozen=True, slots=True)
class Generation(Reference):
    """The last generation or epoch of the group in any response, or one beside it."""

    group: str
    delta: int = 0

    def resolve(self, known: Known) -> int:
        generation = known.generations.get(known.name(self.group))
        return -1 if generation is None else generation + self.delta


@dataclass(frozen=True, slots=True)
class MemberEpoch(Reference):
    """The epoch of a member of the new protocol, or one beside it; 0, to join, where it got none."""

    group: str
    member: str | Member
    delta: int = 0

    def resolve(self, known: Known) -> int:
        member = self.member if isinstance(self.member, str) else self.member.resolve(known)
        epoch = known.member_epochs.get((known.name(self.group), member))
        return 0 if epoch is None else epoch + self.delta


@dataclass(frozen=True, slots=True)
class ProducerId(Reference):
    """The producer id of a transactional id, or of the idempotent producer (None)."""

    transactional: str | None

    def resolve(self, known: Known) -> int:
        return _producer(known, self.transactional).id


@dataclass(frozen=True, slots=True)
class ProducerEpoch(Reference):
    transactional: str | None
    delta: int = 0

    def resolve(self, known: Known) -> int:
        return (_producer(known, self.transactional).epoch + self.delta) & EPOCH_BITS["int16"]


@dataclass(frozen=True, slots=True)
class SessionId(Reference):
    def resolve(self, known: Known) -> int:
        return known.session.id


@dataclass(frozen=True, slots=True)
class SessionEpoch(Reference):
    delta: int = 0

    def resolve(self, known: Known) -> int:
        return (known.session.epoch + self.delta) & EPOCH_BITS["int32"]


@dataclass(frozen=True, slots=True)
class Subscription(Reference):
    """The metadata of a consumer that joins: the topics that it wants."""

    topics: tuple[str, ...]

    def resolve(self, known: Known) -> bytes:
        names = [known.name(short).encode() for short in self.topics]
        listed = b"".join(len(name).to_bytes(2) + name for name in names)
        return bytes.fromhex("0000") + len(names).to_bytes(4) + listed + bytes.fromhex("ffffffff")


def _producer(known: Known, transactional: str | None) -> Producer:
    name = None if transactional is None else known.name(transactional)
    return known.producers.get(name, Producer(1_000_000, 0))


def resolved(value: Any, known: Known) -> Any:
    """A message in which every reference is filled in."""
    if isinstance(value, Reference):
        return value.resolve(known)
    if isinstance(value, list):
        return [resolved(one, known) for one in value]
    if hasattr(type(value), "__schema__"):
        fields = schema_of(type(value)).fields
        return type(value)(**{field.name: resolved(getattr(value, field.name), known) for field in fields})
    return value
