"""A group of the consumer protocol (KIP-848): members, epochs, the target assignment and how far each member is.

Everything here but `seen_topics` is durable: it changes by `apply` only, from the records that decisions write.
Members are values; a change is a new value.

State: epochs, members, targets, resolved patterns; worked out from them, who has which partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Final
from uuid import UUID

from ottla.decisions import CoordinatorRecord
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic import Protocols
from ottla.groups.group import NO_EPOCH, Commit, GroupOfMembers, GroupType
from ottla.groups.partitions import (
    NO_PARTITIONS,
    AssignmentEpochs,
    Partitions,
    each_partition,
    read_epochs,
    read_partitions,
)
from ottla.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

# Of a group, and of its target assignment, before anything has changed. It is not 0: a member epoch of 0 means joining.
FIRST_EPOCH: Final = 1
LEAVE_EPOCH: Final = -1
# A static member goes for a while and keeps its partitions.
LEAVE_STATIC_EPOCH: Final = -2
_COMMIT_KNOWS_EPOCHS: Final = 9


class MemberState(IntEnum):
    """How a member stands to its target, by the numbers in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has yet to give up partitions
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have yet to give up
    UNKNOWN = 127  # written by a newer broker


class ConsumerState(StrEnum):
    """The states by the names that the tools print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicDetails:
    """What is known of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: who it is and what it wants, and, from `epoch` on, how far it is."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    server_assignor: str | None = None
    classic: ClassicDetails | None = None

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)
    # Of all that it has and gives up.
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.epoch == epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched, and when."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup(GroupOfMembers[ConsumerMember]):
    """A group whose coordinator assigns."""

    __slots__ = (
        "_subscribed_topics",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "metadata_hash",
        "owners",
        "regexes",
        "seen_topics",
        "target",
    )

    group_type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # Who has a partition, or has yet to give it up.
        self.owners: dict[tuple[UUID, int], str] = {}
        self._subscribed_topics: frozenset[str] | None = None
        # Volatile: the view of the topics that the group last looked at.
        self.seen_topics: object = None

    # --- what follows from the members

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed_topics is None:
            self._subscribed_topics = topics_of(self.members, self.regexes)
        return self._subscribed_topics

    @property
    def classic_member_count(self) -> int:
        return sum(member.is_classic for member in self.members.values())

    def preferred_assignor(self, members: dict[str, ConsumerMember], default: str) -> str:
        """The assignor that most members ask for; of several the default, which Kafka's hash map has first, too."""
        votes = Counter(each.server_assignor for each in members.values() if each.server_assignor is not None)
        return max(votes, key=lambda name: (votes[name], name == default), default=default)

    def has_owner(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether partitions that the member is to have still belong to somebody."""
        return member.state == MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, ()) and self.has_owner(topic_id, partition)
            for topic_id, partition in each_partition(self.target.get(member.member_id, NO_PARTITIONS))
        )

    # --- as others see it

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, commit: Commit) -> None:
        epoch = commit.epoch
        if epoch < 0 and self.is_empty:
            return
        if commit.is_transactional and epoch == NO_EPOCH and not commit.names_member:
            return  # older producers name no member
        member = self.check_member(commit.member_id, None)
        if not commit.is_transactional and not member.is_classic and commit.api_version < _COMMIT_KNOWS_EPOCHS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "members of a consumer group commit with version 9 or later")
        if epoch < member.epoch and all(
            epoch >= member.assignment_epochs.get(each, epoch + 1) for each in commit.partitions()
        ):
            return  # the member has moved on, and has had these partitions all the time (KIP-1251)
        self.check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        self.check_epoch(self.check_member(member_id or "", None), epoch)

    @staticmethod
    def check_epoch(member: ConsumerMember, epoch: int) -> None:
        """The epoch that a member says must be its own; for one of the classic protocol it is its generation."""
        if epoch != member.epoch:
            code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
            raise ApiError(code, f"epoch {epoch}, the member is at {member.epoch}")

    def check_offsets_may_be_deleted(self) -> None:
        """Always: it is known what the members read."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        group_id = self.group_id
        keys: list[object] = [
            *(
                kind(group_id=group_id, member_id=member_id)
                for kind in (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupTargetAssignmentMemberKey)
                for member_id in self.members
            ),
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id) for member_id in self.members),
            *(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex) for regex in self.regexes),
        ]
        # Only older brokers wrote what follows first, and it must go as well.
        keys.append(ConsumerGroupPartitionMetadataKey(group_id=group_id))
        keys.append(ConsumerGroupMetadataKey(group_id=group_id))
        return [CoordinatorRecord(key, None) for key in keys]

    # --- the only writers

    def apply(self, key: object, value: Any) -> None:
        """Applies one record of the group; those of a compacted log come in any order that it can have."""
        _WRITERS[type(key)](self, key, value)

    def _apply_group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        assert value is not None, "the machine takes the group away"
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        self._subscribed_topics = None
        member = self.members.get(key.member_id)
        if value is None:
            if member is not None:
                self._disown(member)
                del self.members[key.member_id]
                if member.instance_id is not None and self.static_members.get(member.instance_id) == key.member_id:
                    del self.static_members[member.instance_id]
            return
        classic = value.classic_member_metadata
        self.members[key.member_id] = replace(
            member or ConsumerMember(key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicDetails(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )
        if value.instance_id is not None:
            self.static_members[value.instance_id] = key.member_id

    def _apply_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        self._subscribed_topics = None
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.timestamp)

    def _apply_assignment_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = read_partitions(value.topic_partitions)

    def _apply_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if member is not None:
            self._disown(member)
        if value is None:
            if member is not None:
                fresh = ConsumerMember(key.member_id)
                self.members[key.member_id] = replace(
                    member,
                    epoch=fresh.epoch,
                    previous_epoch=fresh.previous_epoch,
                    state=fresh.state,
                    assigned=fresh.assigned,
                    revoking=fresh.revoking,
                    assignment_epochs=fresh.assignment_epochs,
                )
            return
        known = value.state in MemberState._value2member_map_
        changed = replace(
            member or ConsumerMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=read_partitions(value.assigned_partitions),
            revoking=read_partitions(value.partitions_pending_revocation),
            assignment_epochs=dict(
                read_epochs(
                    [*value.assigned_partitions, *value.partitions_pending_revocation], max(value.member_epoch, 0)
                )
            ),
        )
        self.members[key.member_id] = changed
        for held in (changed.assigned, changed.revoking):
            for partition in each_partition(held):
                self.owners[partition] = key.member_id

    def _disown(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for partition in each_partition(held):
                if self.owners.get(partition) == member.member_id:
                    del self.owners[partition]


_WRITERS: Final[dict[type, Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._apply_group,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._apply_member,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_regex,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._apply_assignment_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._apply_current,
}
CONSUMER_RECORD_KEYS: Final = tuple(_WRITERS)


def topics_of(members: dict[str, ConsumerMember], regexes: dict[str, ResolvedRegex]) -> frozenset[str]:
    """What these members read, by name and by pattern."""
    topics: set[str] = set()
    for member in members.values():
        topics |= member.topics
        if member.regex in regexes:
            topics |= regexes[member.regex].topics
    return frozenset(topics)
