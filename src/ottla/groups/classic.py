"""A classic group: its members, its state, and the rules that need nothing else.

The members choose a protocol by vote, one of them leads and assigns; what they subscribe to and are assigned is opaque
bytes, so Connect workers and registries are groups like any other. Only what a finished rebalance agreed on is durable
(the GroupMetadata record). Joining, waiting and the generation of a rebalance in progress are volatile.

State: members, generation, leader, chosen protocol, and the tickets of parked requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from ottla.decisions import CoordinatorRecord, Ticket
from ottla.errors import ApiError, ErrorCode, ProtocolError
from ottla.groups.group import Commit, GroupOfMembers, GroupType
from ottla.protocol.codec import decode
from ottla.protocol.messages.embedded import ConsumerProtocolSubscription
from ottla.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.protocol.messages.groups import JoinGroupRequestProtocol

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
GROUP_METADATA_VERSION: Final = 3
NO_TIMESTAMP: Final = -1
NO_ASSIGNMENT: Final = b""


class ClassicState(StrEnum):
    """The states by the names that the tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


Protocols = tuple[tuple[str, bytes], ...]
"""What a member can speak, by preference: name and metadata of each protocol."""


class ClassicMember:
    """A member of a classic group, with the tickets of its parked requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        # Until its first generation: it does not know its member id yet and sends no heartbeats.
        self.is_new = False

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.sync_ticket is not None

    def metadata_of(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that it likes best among those that everybody speaks."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup(GroupOfMembers[ClassicMember]):
    """A group of the classic protocol; one without a protocol type only stores offsets."""

    __slots__ = (
        "generation",
        "has_new_member",
        "initial_deadline_ms",
        "is_unled",
        "leader_id",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
        "supported",
    )

    group_type = GroupType.CLASSIC

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = ClassicState.EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # Written without a leader: members that are still to agree on who has what, as they left the consumer protocol.
        self.is_unled = False
        # How many members speak each protocol.
        self.supported: Counter[str] | None = None
        # Were given a member id and asked to come back with it.
        self.pending_members: set[str] = set()
        # Have joined the generation and not asked for their assignment yet.
        self.pending_sync: set[str] = set()
        # What the members read; None if they do not say it in the consumers' way.
        self.subscribed_topics: frozenset[str] | None = None
        # The current rebalance is the first of a group that was empty: as long as members come it waits for more,
        # until then.
        self.initial_deadline_ms: int | None = None
        self.has_new_member = False

    # --- members

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.is_awaiting_join for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_members and all(member.is_awaiting_join for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert member.member_id not in self.members, f"{member.member_id} is in the group already"
        assert self.protocol_type == protocol_type, f"{member.member_id} speaks another protocol type"
        self.members[member.member_id] = member
        self._count(member.protocols, +1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Takes out a member, pending or not. The lead passes to the one that has been there longest."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """A static member has a new member id. It keeps its place and its lead."""
        old_id = member.member_id
        self.members = {member_id if each == old_id else each: found for each, found in self.members.items()}
        member.member_id = member_id
        assert member.instance_id is not None, "only static members are replaced"
        self.static_members[member.instance_id] = member_id
        if self.is_leader(old_id):
            self.leader_id = member_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(member_id)

    def update_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, +1)

    def _count(self, protocols: Protocols, change: int) -> None:
        if self.supported is None:
            self.supported = Counter()
        for name, _ in protocols:
            self.supported[name] += change

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one of those who joined; false if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        joined = next((each.member_id for each in self.members.values() if each.is_awaiting_join), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    # --- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that speaks these could be in the group."""
        if self.state == ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(self._is_spoken_by_all(name) for name, _ in protocols)

    def _is_spoken_by_all(self, name: str) -> bool:
        return (0 if self.supported is None else self.supported[name]) == len(self.members)

    def select_protocol(self) -> str:
        """The protocol with the most votes; of several, the one voted for first."""
        candidates = {name for name, count in (self.supported or {}).items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def read_subscriptions(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in read_subscription(member.metadata_of(self.protocol_name)).topics
            )
        except ProtocolError:
            return None

    # --- states

    def move_to(self, state: ClassicState, wall_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """Everybody who will come has come: the members choose a protocol, or there are none left."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.pending_sync.clear()
        self.initial_deadline_ms = None
        self.has_new_member = False
        self.is_unled = False
        self.move_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, wall_ms)

    # --- the record

    def record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as it is stored, with these assignments in place of those it has."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        timestamp_ms = self.state_timestamp_ms
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, GROUP_METADATA_VERSION)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    def apply(self, value: GroupMetadataValue) -> None:
        """Becomes the group that is stored. Members that are here already keep what is not stored of them."""
        known = self.members
        self.members, self.static_members, self.supported = {}, {}, None
        self.leader_id = value.leader
        self.is_unled = value.leader is None and bool(value.members)
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.generation = value.generation
        for stored in value.members:
            member = known.get(stored.member_id)
            if member is None:
                member = _stored_member(stored, value.protocol)
            member.assignment = bytes(stored.assignment)
            self.add(member, value.protocol_type)
        self.subscribed_topics = self.read_subscriptions()
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        timestamp_ms = value.current_state_timestamp
        self.state_timestamp_ms = None if timestamp_ms == NO_TIMESTAMP else timestamp_ms

    # --- as others see it

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state == ClassicState.EMPTY

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, the group is at {self.generation}")

    def check_commit(self, commit: Commit) -> None:
        if self.state == ClassicState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if commit.epoch < 0 and self.is_empty:
            return
        if commit.epoch >= 0 or commit.names_member:
            self.check_member(commit.member_id, commit.instance_id)
            self.check_generation(commit.epoch)
        elif not commit.is_transactional and not self.is_empty:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, only they may commit")
        if not commit.is_transactional and self.state == ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may see the offsets of a classic group."""

    def check_offsets_may_be_deleted(self) -> None:
        if not self.is_empty and not self.is_consumer_group:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "the subscriptions of its members are not known")

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        knows_topics = self.is_consumer_group and self.subscribed_topics is not None
        return commit_timestamp_ms if knows_topics and self.state == ClassicState.STABLE else None


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A consumer's subscription: every version begins like version 0."""
    if len(metadata) < 2:
        raise ProtocolError("a subscription has no version")
    return decode(ConsumerProtocolSubscription, metadata, 0, 2)


def _stored_member(stored: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    timeout_ms = stored.rebalance_timeout
    return ClassicMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout if timeout_ms == -1 else timeout_ms,
        stored.session_timeout,
        ((protocol_name or "", bytes(stored.subscription)),),
    )


def protocols_of(offered: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a JoinGroup; the first of a name counts."""
    found: dict[str, bytes] = {}
    for each in offered:
        found.setdefault(each.name, bytes(each.metadata))
    return tuple(found.items())
