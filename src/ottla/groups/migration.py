"""Between the classic and the consumer protocol, while a group is in use.

A member of the new protocol that joins a classic group makes it a consumer group; the members that are there keep their
partitions and go on in the classic protocol, whose requests are served from the state of the consumer group: their
generation is their member epoch, and nobody leads. When the last member of the new protocol goes, the group becomes a
classic one again.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode, ProtocolError
from ottla.groups.classic import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember, Protocols, protocols_of
from ottla.groups.classic_requests import (
    ClassicRequests,
    check_sync_protocol,
    leave_each,
    member_id_required,
    rebalance_timeout_ms,
    requires_member_id,
)
from ottla.groups.consumer import (
    CONSUMER_RECORD_KEYS,
    ClassicDetails,
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    MemberState,
)
from ottla.groups.consumer_records import (
    assignment_epoch_record,
    current_record,
    group_record,
    member_record,
    metadata_hash,
    target_record,
)
from ottla.groups.consumer_requests import ConsumerRequests, MemberUpdate
from ottla.groups.group import Caller, Group, GroupDecision
from ottla.groups.partitions import NO_PARTITIONS, Partitions, each_partition
from ottla.groups.shard import GroupShard, TimerKey, TimerKind
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

_SUBSCRIPTION_VERSION_MAX: Final = 3
_MIGRATION_RETRY_MS: Final = 1000


class Migration:
    """The decisions about groups that are between the protocols, of one shard."""

    __slots__ = ("_classic", "_consumer", "_shard")

    def __init__(self, shard: GroupShard, classic: ClassicRequests, consumer: ConsumerRequests) -> None:
        self._shard = shard
        self._classic = classic
        self._consumer = consumer

    # --- classic to consumer

    def join_consumer(
        self,
        group: Group | None,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        ticket: Ticket,
        now_ms: int,
    ) -> Decision:
        """The first heartbeat of a member to a group that is not a consumer group yet, or not at all."""
        records = [] if group is None else self._upgrade(group)
        upgraded = ConsumerGroup(request.group_id)
        for record in records:
            if isinstance(record.key, CONSUMER_RECORD_KEYS):
                upgraded.apply(record.key, record.value)
        decided = self._consumer.heartbeat(upgraded, request, caller, ticket, now_ms)
        decided.records[:0] = records
        if isinstance(group, ClassicGroup):
            # Whoever waits is sent back, and finds a consumer group.
            decided.replies += [(parked, ErrorCode.REBALANCE_IN_PROGRESS) for parked in self._classic.parked(group)]
            for member in group.members.values():
                member.join_ticket = member.sync_ticket = None
                self._shard.touch(group.group_id, member.member_id, member.session_timeout_ms, now_ms)
        return decided

    def _upgrade(self, group: Group) -> list[CoordinatorRecord]:
        """The records by which a classic group becomes a consumer group; one without members just goes."""
        if group.is_empty:
            return group.tombstones()
        settings = self._shard.settings
        if not (isinstance(group, ClassicGroup) and group.is_consumer_group and settings.allows_upgrade):
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group.group_id} is not a consumer group, and may not become one "
                "(group.consumer.migration.policy).",
            )
        if len(group.members) > settings.consumer_max_size:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group.group_id} has more than {settings.consumer_max_size} members (group.consumer.max.size).",
            )
        return [*group.tombstones(), *self._converted(group)]

    def _converted(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        group_id, epoch = group.group_id, group.generation
        taken: set[tuple[UUID, int]] = set()
        members = []
        for member in group.members.values():
            assigned = self._assigned(member, taken)
            subscription = read_whole_subscription(member.metadata_of(group.protocol_name) or member.protocols[0][1])
            members.append(
                ConsumerMember(
                    member.member_id,
                    instance_id=member.instance_id,
                    rack_id=subscription.rack_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    topics=frozenset(subscription.topics),
                    classic=ClassicDetails(member.session_timeout_ms, member.protocols),
                    epoch=epoch,
                    previous_epoch=epoch,
                    assigned=assigned,
                    assignment_epochs=dict.fromkeys(each_partition(assigned), epoch),
                )
            )
        topics = frozenset(topic for member in members for topic in member.topics)
        return [
            *(member_record(group_id, member) for member in members),
            group_record(group_id, epoch, metadata_hash(topics, self._shard.topics)),
            *(target_record(group_id, member.member_id, member.assigned) for member in members),
            assignment_epoch_record(group_id, epoch, 0),
            *(current_record(group_id, member) for member in members),
        ]

    def _assigned(self, member: ClassicMember, taken: set[tuple[UUID, int]]) -> Partitions:
        """What the leader assigned to the member: existing partitions that it gave to nobody else."""
        if len(member.assignment) < 2:
            return NO_PARTITIONS
        try:
            assignment = decode(ConsumerProtocolAssignment, member.assignment, 0, 2)
        except ProtocolError as error:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"the assignment of {member.member_id} cannot be read: {error}"
            ) from error
        return self._partitions(assignment.assigned_partitions, taken)

    def _partitions(self, named: list[TopicPartition], taken: set[tuple[UUID, int]]) -> Partitions:
        found: dict[UUID, frozenset[int]] = {}
        for topic in named:
            info = self._shard.topics.topics.get(topic.topic)
            if info is None:
                continue
            free = frozenset(
                partition
                for partition in topic.partitions
                if 0 <= partition < info.partition_count and (info.topic_id, partition) not in taken
            )
            taken |= {(info.topic_id, partition) for partition in free}
            if free:
                found[info.topic_id] = free
        return found

    # --- consumer to classic

    def migrate(self, group_id: str, now_ms: int) -> Decision:
        """The deadline of a migration: first the group is written again, then its members are called to rejoin.

        They are not if everybody has what it is to have: a static member has just changed the protocol, no more.
        """
        decided = GroupDecision(undo=partial(self._migrate_later, group_id))
        classic = self._shard.classic_group(group_id)
        if classic is not None:
            if classic.members and not classic.is_empty:
                self._classic.prepare_rebalance(classic, now_ms, decided)
            return decided
        group = self._shard.consumer_group(group_id)
        if group is None or not self._may_downgrade(group):
            return decided
        decided.records += group.tombstones()
        decided.records.append(self._downgraded(group, now_ms).record())
        if group.state != ConsumerState.STABLE:
            self._shard.timers.set(TimerKey(TimerKind.MIGRATION, group_id), now_ms)
        for member in group.members.values():
            assert member.classic is not None
            self._consumer.forget_timers(group_id, member.member_id)
            self._shard.touch(group_id, member.member_id, member.classic.session_timeout_ms, now_ms)
        return decided

    def _migrate_later(self, group_id: str, now_ms: int) -> Decision:
        self._shard.timers.set(TimerKey(TimerKind.MIGRATION, group_id), now_ms + _MIGRATION_RETRY_MS)
        return Decision()

    def _may_downgrade(self, group: ConsumerGroup) -> bool:
        settings = self._shard.settings
        return (
            settings.allows_downgrade
            and 0 < len(group.members) <= settings.max_size
            and group.classic_member_count == len(group.members)
        )

    def _downgraded(self, group: ConsumerGroup, now_ms: int) -> ClassicGroup:
        classic = ClassicGroup(group.group_id)
        # A bump that no assignment has followed is the rebalance that comes next, and that counts its own generation.
        classic.generation = group.epoch - (group.epoch > group.assignment_epoch)
        classic.state_timestamp_ms = self._shard.wall_ms(now_ms)
        for member in group.members.values():
            assert member.classic is not None
            classic.add(
                ClassicMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.classic.session_timeout_ms,
                    member.classic.protocols,
                    self._written_assignment(member),
                ),
                CONSUMER_PROTOCOL_TYPE,
            )
        classic.protocol_name = classic.select_protocol()
        if group.state != ConsumerState.STABLE:
            # They must agree again, also if another coordinator takes over before they were called: see `is_unled`.
            classic.leader_id = None
        return classic

    def _written_assignment(self, member: ConsumerMember) -> bytes:
        """A member's partitions in the words of the classic protocol, in the version that it speaks."""
        assert member.classic is not None
        version = _version_of(member.classic.protocols[0][1])
        names = self._shard.topics.names
        assignment = ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartition(topic=names[topic_id], partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                if topic_id in names
            ]
        )
        return version.to_bytes(2, "big") + encode(assignment, version)

    # --- requests of the classic protocol to a consumer group

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        protocols = protocols_of(request.protocols)
        if not (self._shard.settings.allows_upgrade or self._shard.settings.allows_downgrade):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{group.group_id} is a consumer group, and groups may not change (group.consumer.migration.policy)",
            )
        member_id = request.member_id or f"{request.group_instance_id or caller.client_id}-{self._shard.new_id()}"
        self._consumer.check_room(group, member_id, request.group_instance_id)
        if not _supports(group, request.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocols of {member_id} are not supported")
        if requires_member_id(request, caller):
            return Decision(replies=[(ticket, member_id_required(member_id, caller))])
        member, records = self._joining_member(group, member_id, request)
        subscription = read_whole_subscription(protocols[0][1])
        update = MemberUpdate(
            member_id,
            caller.client_id,
            caller.client_host,
            request.group_instance_id,
            subscription.rack_id,
            rebalance_timeout_ms(request),
            frozenset(subscription.topics),
            regex="",
            owned=self._partitions(subscription.owned_partitions, set()),
            classic=ClassicDetails(request.session_timeout_ms, protocols),
            may_describe=caller.may_describe,
        )
        is_downgrade = self._is_last_to_go_back(group, request.group_instance_id)
        step = self._consumer.advance(group, member, update, records, now_ms, may_assign=not is_downgrade)
        self._consumer.forget_timers(group.group_id, member_id)
        self._shard.touch(group.group_id, member_id, request.session_timeout_ms, now_ms)
        self._set_timer(TimerKind.SYNC, group, step.after, now_ms)
        if is_downgrade:
            self._shard.timers.set(TimerKey(TimerKind.MIGRATION, group.group_id), now_ms)
        reply = JoinGroupResponse(
            generation_id=step.after.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            leader="",
            member_id=member_id,
            members=[],
        )
        return self._consumer.decision(group, step, (ticket, reply))

    def _joining_member(
        self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest
    ) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id), []
        if request.member_id:
            return group.check_member(member_id, instance_id), []
        existing = group.static_member(instance_id)
        if existing is None:
            return ConsumerMember(member_id), []
        return self._consumer.take_over(group, existing, member_id)

    def _is_last_to_go_back(self, group: ConsumerGroup, instance_id: str | None) -> bool:
        """Whether all speak the classic protocol once this static member, which joins so, has taken its place."""
        existing = group.static_member(instance_id)
        settings = self._shard.settings
        return (
            existing is not None
            and settings.allows_downgrade
            and len(group.members) <= settings.max_size
            and all(member.is_classic for member in group.members.values() if member is not existing)
        )

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        member, classic = self._check_classic(group, request.member_id, request.group_instance_id)
        group.check_epoch(member, request.generation_id)
        check_sync_protocol(request, caller, CONSUMER_PROTOCOL_TYPE, classic.protocols[0][0])
        # Not the group's epoch: while the assignment of that is put off, joining again would bring nothing new.
        if group.assignment_epoch > member.epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
            self._set_timer(TimerKind.JOIN, group, member, now_ms)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._shard.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id, member.member_id))
        self._shard.touch(group.group_id, member.member_id, classic.session_timeout_ms, now_ms)
        reply = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._written_assignment(member),
        )
        return Decision(replies=[(ticket, reply)])

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, ticket: Ticket, now_ms: int) -> Decision:
        member, classic = self._check_classic(group, request.member_id, request.group_instance_id)
        group.check_epoch(member, request.generation_id)
        self._shard.touch(group.group_id, member.member_id, classic.session_timeout_ms, now_ms)
        if (
            member.epoch < group.assignment_epoch
            or member.state == MemberState.UNREVOKED_PARTITIONS
            or (member.state == MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
        ):
            self._set_timer(TimerKind.JOIN, group, member, now_ms)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Decision(replies=[(ticket, HeartbeatResponse())])

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        gone: dict[str, ConsumerMember] = {}

        def leave_one(member_id: str, instance_id: str | None) -> None:
            gone[member_id] = group.check_member(member_id, instance_id)

        reply = leave_each(group, request, caller, leave_one)
        decided = self._consumer.fence(group, list(gone.values()), now_ms) if gone else Decision()
        decided.replies.append((ticket, reply))
        return decided

    def _set_timer(self, kind: TimerKind, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A classic member has its rebalance timeout to join or to sync; being called again does not prolong it."""
        key = TimerKey(kind, group.group_id, member.member_id)
        if key not in self._shard.timers:
            self._shard.timers.set(key, now_ms + member.rebalance_timeout_ms)

    @staticmethod
    def _check_classic(
        group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicDetails]:
        member = group.check_member(member_id, instance_id)
        if member.classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} does not use the classic protocol")
        return member, member.classic


def read_whole_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A consumer's subscription in its own version; ApiError if the bytes are none."""
    try:
        return decode(ConsumerProtocolSubscription, metadata, _version_of(metadata), 2)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}") from error


def _version_of(metadata: bytes) -> int:
    """A newer version begins like the newest that is known here."""
    return min(max(int.from_bytes(metadata[:2], "big", signed=True), 0), _SUBSCRIPTION_VERSION_MAX)


def _supports(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a classic member that speaks these gets on with the classic members that are there."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
        return False
    spoken = [dict(member.classic.protocols) for member in group.members.values() if member.classic is not None]
    return any(all(name in others for others in spoken) for name, _ in protocols)
