"""All groups of one partition of `__consumer_offsets`: what the runner sees.

    machine = GroupMachine(settings, topics, new_id, config_of)

`new_id()` makes the random part of member ids. `config_of(group_id)` returns the settings of a group; without it the
broker's hold.

Every method that decides has the ticket and the time last and returns a `Decision`. The time is steady (it only goes
forward); `wall_ahead_ms` is set to how far the wall clock is ahead of it, for the timestamps of records. The records of
a decision must be applied (or the decision given to `refused`) before the next method is called. A reply is the message
named here, or an `ErrorCode` that stands for the whole request.

    commit_offsets(OffsetCommitRequest, Caller, ticket, now_ms)                   -> OffsetCommitResponse
    commit_offsets_in_transaction(TxnOffsetCommitRequest, Caller, ticket, now_ms) -> TxnOffsetCommitResponse
        The decision carries producer id and epoch; its records count from `complete_transaction` on.
    fetch_offsets(OffsetFetchRequestGroup, require_stable, ticket, now_ms)        -> OffsetFetchResponseGroup
        `topics=None` fetches all. Versions before 8 are a list of one such group. Of very many offsets the reply is a
        generator: the steps to the response, of the offsets as they were when it was asked for.
    delete_offsets(OffsetDeleteRequest, ticket, now_ms)                           -> OffsetDeleteResponse

    join(JoinGroupRequest, Caller, ticket, now_ms)             -> JoinGroupResponse, often later
    sync(SyncGroupRequest, Caller, ticket, now_ms)             -> SyncGroupResponse, often later
    heartbeat(HeartbeatRequest, ticket, now_ms)                -> HeartbeatResponse
    leave(LeaveGroupRequest, Caller, ticket, now_ms)           -> LeaveGroupResponse
        An `ErrorCode` in place of a JoinGroupResponse or LeaveGroupResponse names no members: the handler puts the
        member id of the request in the former.

    consumer_heartbeat(ConsumerGroupHeartbeatRequest, Caller, ticket, now_ms) -> ConsumerGroupHeartbeatResponse
        Refusals have their message in it. An `ErrorCode` comes only from `refused`.
    consumer_describe(group_id, ticket, now_ms)                -> DescribedGroup of ConsumerGroupDescribe
    running_consumer_heartbeat, running_consumer_describe      the same where no group may begin

    describe(group_id, Caller, ticket, now_ms)                 -> DescribedGroup of DescribeGroups; never an ErrorCode
    list(states, types, ticket, now_ms)                        -> list[ListedGroup]; empty filters let all pass
    delete(group_id, ticket, now_ms)                           -> DeletableGroupResult

Topic ids and names are the handler's: it fills in whichever the version lacks before it asks for a commit, and the name
before it asks for a fetch. An offset is kept with the id: who fetches by id does not see offsets of another topic that
had the name before.

Not requests:

    apply(record, producer_id=-1)                   the only writer of durable state
    replay(key, value, producer_id=-1)              the same for a record as its bytes; quick for offsets
    complete_transaction(producer_id, committed)    a marker in this partition, live or in a replay
    loaded(now_ms) -> Decision                      starts the deadlines
    next_deadline_ms, expire(now_ms) -> Decision    stops after the first deadline that decides records: ask again
    refused(decision, error_code, now_ms) -> Decision
    unloaded() -> list[(ticket, ErrorCode)]
    topics_changed(TopicsView, now_ms) -> Decision  topics appeared, grew or went; offsets of deleted topics go
    configure(GroupSettings)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias
from uuid import UUID

from ottla.config.group import GroupConfig
from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.groups.admin import describe_classic, describe_consumer, list_groups, refused_consumer
from ottla.groups.classic import ClassicGroup
from ottla.groups.classic_requests import ClassicRequests, check_group_id
from ottla.groups.consumer import CONSUMER_RECORD_KEYS, ConsumerGroup
from ottla.groups.consumer_requests import JOIN_EPOCH, ConsumerRequests
from ottla.groups.group import Caller, Group, GroupDecision
from ottla.groups.migration import Migration
from ottla.groups.offset_requests import OffsetRequests
from ottla.groups.offsets import OFFSET_KEY_PREFIXES, OffsetWalk
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import GroupShard, TimerKey, TimerKind, TopicsView
from ottla.ids import NO_PRODUCER_ID
from ottla.protocol.coordinator_records import GROUP_RECORDS, decode_key, decode_value, record_type_of
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.groups import (
    DeletableGroupResult,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest

# `list` is the name of a request in the class below.
Records: TypeAlias = list[CoordinatorRecord]
Parked: TypeAlias = list[tuple[Ticket, ErrorCode]]

# How many offsets are looked at for expiry before other work gets a turn, whether they expire or not.
OFFSETS_LOOKED_AT_MAX: Final = 1000
FORGET_RETRY_MS: Final = 1000

NOT_ON_ALL_BROKERS: Final = (
    "a broker of the cluster does not support group.protocol=consumer (group.version 1), as none of Apache Kafka 3.9 "
    "with ZooKeeper does: use group.protocol=classic until it has gone"
)

# What an append that was refused for its size means to a client; other codes are passed on as they are.
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class GroupMachine:
    """One shard of the group coordinator."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicsView,
        new_id: Callable[[], str],
        config_of: Callable[[str], GroupConfig] | None = None,
    ) -> None:
        self._shard = GroupShard(settings, topics, new_id, config_of)
        self._offsets = OffsetRequests(self._shard)
        self._classic = ClassicRequests(self._shard)
        self._consumer = ConsumerRequests(self._shard)
        self._migration = Migration(self._shard, self._classic, self._consumer)
        self._writers: dict[type, Callable[..., None]] = {
            OffsetCommitKey: self._apply_offset,
            LegacyOffsetCommitKey: self._apply_legacy_offset,
            GroupMetadataKey: self._apply_classic_group,
            **dict.fromkeys(CONSUMER_RECORD_KEYS, self._apply_consumer_group),
        }
        # The look for old offsets, and the one for those of deleted topics, each where it stands; None: there is none.
        self._look_for_old: OffsetWalk | None = None
        self._look_for_gone: OffsetWalk | None = None
        # Deleted topics of which there may be offsets left, and the ids that they had.
        self._gone_topics: dict[str, frozenset[UUID]] = {}

    # --- offsets

    def commit_offsets(self, request: OffsetCommitRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        return self._offsets.commit(request, caller, ticket, now_ms)

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        return self._offsets.commit_in_transaction(request, caller, ticket, now_ms)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, require_stable: bool, ticket: Ticket, now_ms: int
    ) -> Decision:
        return self._offsets.fetch(request, require_stable, ticket)

    def delete_offsets(self, request: OffsetDeleteRequest, ticket: Ticket, now_ms: int) -> Decision:
        return self._offsets.delete(request, ticket)

    # --- classic groups

    def join(self, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        try:
            self._classic.check_join(request)
            group = self._shard.consumer_group(request.group_id)
            if group is None:
                return self._classic.join(request, caller, ticket, now_ms)
            if group.is_empty:
                return self._join_emptied(group, request, caller, ticket, now_ms)
            return self._migration.join(group, request, caller, ticket, now_ms)
        except ApiError as refusal:
            return Decision(replies=[(ticket, refusal.code)])

    def _join_emptied(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        """A consumer group that has no members becomes a classic one when somebody joins it so."""
        groups = self._shard.groups
        del groups[group.group_id]
        try:
            decided = self._classic.join(request, caller, ticket, now_ms)
        except ApiError:
            groups[group.group_id] = group
            raise
        decided.records[:0] = group.tombstones()
        decided.undo = partial(self._restore, group)
        return decided

    def _restore(self, group: ConsumerGroup, now_ms: int) -> Decision:
        classic = self._shard.classic_group(group.group_id)
        self._shard.groups[group.group_id] = group
        parked = [] if classic is None else self._classic.parked(classic)
        return Decision(replies=[(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE) for ticket in parked])

    def sync(self, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        return self._of_classic_member(self._classic.sync, self._migration.sync, request, caller, ticket, now_ms)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, now_ms: int) -> Decision:
        return self._of_classic_member(self._classic.heartbeat, self._migration.heartbeat, request, ticket, now_ms)

    def leave(self, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        return self._of_classic_member(self._classic.leave, self._migration.leave, request, caller, ticket, now_ms)

    def _of_classic_member(
        self,
        to_classic_group: Callable[..., Decision],
        to_consumer_group: Callable[..., Decision],
        request: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest,
        *details: Any,
    ) -> Decision:
        """A request of the classic protocol, to the kind of group that there is; `details` end with ticket and time."""
        try:
            check_group_id(request.group_id)
            group = self._shard.consumer_group(request.group_id)
            if group is None:
                return to_classic_group(request, *details)
            return to_consumer_group(group, request, *details)
        except ApiError as refusal:
            ticket = details[-2]
            return Decision(replies=[(ticket, refusal.code)])

    # --- consumer groups

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        try:
            self._consumer.check(request, caller)
            group = self._shard.groups.get(request.group_id)
            if request.member_epoch == JOIN_EPOCH and not isinstance(group, ConsumerGroup):
                return self._migration.join_consumer(group, request, caller, ticket, now_ms)
            if not isinstance(group, ConsumerGroup):
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            if request.member_epoch < JOIN_EPOCH:
                return self._consumer.leave(group, request, ticket, now_ms)
            return self._consumer.heartbeat(group, request, caller, ticket, now_ms)
        except ApiError as refusal:
            reply = ConsumerGroupHeartbeatResponse(
                error_code=refusal.code, error_message=str(refusal), member_epoch=0, heartbeat_interval_ms=0
            )
            return Decision(replies=[(ticket, reply)])

    def running_consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        """Where not every broker serves consumer groups: one that has members goes on, and none begins."""
        if self._runs(request.group_id):
            return self.consumer_heartbeat(request, caller, ticket, now_ms)
        reply = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message=NOT_ON_ALL_BROKERS,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
        return Decision(replies=[(ticket, reply)])

    def running_consumer_describe(self, group_id: str, ticket: Ticket, now_ms: int) -> Decision:
        if self._runs(group_id):
            return self.consumer_describe(group_id, ticket, now_ms)
        refused = refused_consumer(group_id, ErrorCode.UNSUPPORTED_VERSION, NOT_ON_ALL_BROKERS)
        return Decision(replies=[(ticket, refused)])

    def _runs(self, group_id: str) -> bool:
        group = self._shard.groups.get(group_id)
        return isinstance(group, ConsumerGroup) and not group.is_empty

    def consumer_describe(self, group_id: str, ticket: Ticket, now_ms: int) -> Decision:
        group = self._shard.groups.get(group_id)
        default_assignor = self._shard.settings.consumer_assignors[0]
        described = describe_consumer(group_id, group, self._shard.topics, default_assignor)
        return Decision(replies=[(ticket, described)])

    # --- all kinds

    def describe(self, group_id: str, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        group = self._shard.classic_group(group_id)
        return Decision(replies=[(ticket, describe_classic(group_id, group, caller))])

    def list(self, states: Collection[str], types: Collection[str], ticket: Ticket, now_ms: int) -> Decision:
        """The reply is steps to a list of entries of a ListGroups response."""
        return Decision(replies=[(ticket, list_groups(self._shard.groups.values(), states, types))])

    def delete(self, group_id: str, ticket: Ticket, now_ms: int) -> Decision:
        group = self._shard.groups.get(group_id)
        code = ErrorCode.NONE
        records: Records = []
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            records = [*self._offsets.tombstones_of(group_id), *group.tombstones()]
        return Decision(records, [(ticket, DeletableGroupResult(group_id=group_id, error_code=code))])

    # --- the writers of durable state

    def apply_all(self, records: Sequence[CoordinatorRecord], producer_id: int = NO_PRODUCER_ID) -> None:
        """`apply` for the records of a decision: in few steps for those of a commit, which are most."""
        count = 0
        if producer_id == NO_PRODUCER_ID:
            group_id, count = self._shard.offsets.apply_commit(records)
            if count and group_id not in self._shard.groups:
                self._shard.groups[group_id] = ClassicGroup(group_id)
        for record in islice(records, count, None):
            self.apply(record, producer_id)

    def apply(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Records of kinds that this shard does not keep (share groups, Streams) are left alone."""
        key, value, _ = record
        if type(key) is bytes:
            assert value is None or type(value) is bytes
            self.replay(key, value, producer_id)
            return
        write = self._writers.get(type(key))
        if write is not None:
            write(key, value, producer_id)

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        if key[:2] in OFFSET_KEY_PREFIXES:
            shard = self._shard
            group_id = shard.offsets.replay(key, value, producer_id)
            if group_id not in shard.groups and value is not None:
                shard.groups[group_id] = ClassicGroup(group_id)
            return
        record_type = GROUP_RECORDS.get(record_type_of(key))
        if record_type is not None:
            decoded = None if value is None else decode_value(record_type, value)
            self.apply(CoordinatorRecord(decode_key(GROUP_RECORDS, key), decoded), producer_id)

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        self._shard.offsets.complete_transaction(producer_id, committed)

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        if value is not None and key.group not in self._shard.groups:
            # Nobody ever joined it: it only stores offsets.
            self._shard.groups[key.group] = ClassicGroup(key.group)
        self._shard.offsets.apply(key, value, producer_id)

    def _apply_legacy_offset(
        self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None, producer_id: int
    ) -> None:
        newer = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
        committed = None
        if value is not None:
            committed = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        self._apply_offset(newer, committed, producer_id)

    def _apply_classic_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None, producer_id: int) -> None:
        group = self._shard.classic_group(key.group)
        if value is None:
            if group is not None:
                del self._shard.groups[key.group]
            return
        if group is None:
            group = self._shard.groups[key.group] = ClassicGroup(key.group)
        group.apply(value)

    def _apply_consumer_group(self, key: Any, value: object | None, producer_id: int) -> None:
        group = self._shard.consumer_group(key.group_id)
        if value is None:
            if group is None:
                return
            if isinstance(key, ConsumerGroupMetadataKey):
                del self._shard.groups[key.group_id]
                return
        if group is None:
            # A group that only stored offsets, or the one that this was, gives way.
            group = self._shard.groups[key.group_id] = ConsumerGroup(key.group_id)
        group.apply(key, value)

    # --- time

    @property
    def wall_ahead_ms(self) -> int:
        return self._shard.wall_ahead_ms

    @wall_ahead_ms.setter
    def wall_ahead_ms(self, ahead_ms: int) -> None:
        self._shard.wall_ahead_ms = ahead_ms

    @property
    def next_deadline_ms(self) -> int | None:
        return self._shard.timers.next_deadline_ms

    def loaded(self, now_ms: int) -> Decision:
        self._shard.offsets.forget_shared_keys()
        self._schedule_look_for_old_offsets(now_ms + self._shard.settings.offsets_retention_check_interval_ms)
        decided = Decision()
        for group in self._shard.groups.values():
            if isinstance(group, ClassicGroup):
                self._classic.loaded(group, now_ms, decided)
            elif isinstance(group, ConsumerGroup):
                self._consumer.loaded(group, now_ms)
        return decided

    def expire(self, now_ms: int) -> Decision:
        decided = GroupDecision()
        is_turn_over = False
        while not is_turn_over and (key := self._shard.timers.pop_due(now_ms)) is not None:
            following = self._expire_one(key, now_ms)
            decided.replies += following.replies
            if following.records:
                decided.records = following.records
                decided.undo = following.undo if isinstance(following, GroupDecision) else None
            # A look at offsets is a turn by itself, also one that finds nothing: it comes back for the next of them.
            is_turn_over = bool(decided.records) or key.kind in (TimerKind.OFFSETS, TimerKind.TOPICS)
        return decided

    def _expire_one(self, key: TimerKey, now_ms: int) -> Decision:
        match key.kind:
            case TimerKind.OFFSETS:
                return Decision(self._look_for_old_offsets(now_ms))
            case TimerKind.TOPICS:
                return self._forget_gone_topics(now_ms)
            case TimerKind.MIGRATION:
                return self._migration.migrate(key.group_id, now_ms)
        group = self._shard.groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer.expire(group, key, now_ms)
        if isinstance(group, ClassicGroup):
            return self._classic.expire(group, key, now_ms)
        return Decision()

    def _schedule_look_for_old_offsets(self, at_ms: int) -> None:
        self._shard.timers.set(TimerKey(TimerKind.OFFSETS), at_ms)

    def _look_for_old_offsets(self, now_ms: int) -> Records:
        """Looks at some offsets; comes back at once for the others, and after a while for all."""
        shard = self._shard
        if self._look_for_old is None:
            self._look_for_old = OffsetWalk(shard.groups)
        records: Records = []
        for group_id, keys, is_last in self._look_for_old.next(shard.offsets, OFFSETS_LOOKED_AT_MAX):
            group = shard.groups.get(group_id)
            if group is not None:
                records += self._offsets.expired(group, keys, shard.wall_ms(now_ms), is_last)
        if self._look_for_old.is_over:
            self._look_for_old = None
            shard.offsets.forget_shared_keys()
        pause_ms = 0 if self._look_for_old else shard.settings.offsets_retention_check_interval_ms
        self._schedule_look_for_old_offsets(now_ms + pause_ms)
        return records

    # --- around it

    def refused(self, decision: Decision, error_code: ErrorCode, now_ms: int) -> Decision:
        if error_code in _TOO_LARGE:
            is_commit = any(type(record.key) is bytes for record in decision.records)  # all others are in words
            error_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.UNKNOWN_SERVER_ERROR
        instead = Decision(replies=[(ticket, error_code) for ticket, _ in decision.replies])
        if isinstance(decision, GroupDecision) and decision.undo is not None:
            instead.replies += decision.undo(now_ms).replies
        return instead

    def unloaded(self) -> Parked:
        return [
            (ticket, ErrorCode.NOT_COORDINATOR)
            for group in self._shard.groups.values()
            if isinstance(group, ClassicGroup)
            for ticket in self._classic.parked(group)
        ]

    def topics_changed(self, topics: TopicsView, now_ms: int) -> Decision:
        shard = self._shard
        before, shard.topics = shard.topics, topics
        self._note_gone({name: frozenset((topic_id,)) for name, topic_id in topics.gone_since(before).items()})
        return self._forget_gone_topics(now_ms)

    def _note_gone(self, gone: Mapping[str, frozenset[UUID]]) -> None:
        if gone:
            self._look_for_gone = None  # from the beginning, for all of them
        for name, topic_ids in gone.items():
            self._gone_topics[name] = self._gone_topics.get(name, frozenset()) | topic_ids

    def _forget_gone_topics(self, now_ms: int) -> GroupDecision:
        """Takes away offsets of deleted topics, some at a time: there may be more than a batch can hold."""
        if not self._gone_topics:
            return GroupDecision()
        offsets = self._shard.offsets
        gone = dict(self._gone_topics)
        if self._look_for_gone is None:
            self._look_for_gone = OffsetWalk(offsets.group_ids())
        records: Records = []
        for group_id, keys, _ in self._look_for_gone.next(offsets, OFFSETS_LOOKED_AT_MAX):
            records += self._offsets.tombstones_of_topics(group_id, keys, gone)
        if self._look_for_gone.is_over:
            self._look_for_gone = None
            self._gone_topics.clear()
        else:
            self._shard.timers.set(TimerKey(TimerKind.TOPICS), now_ms)
        return GroupDecision(records, undo=partial(self._forget_later, gone))

    def _forget_later(self, gone: Mapping[str, frozenset[UUID]], now_ms: int) -> Decision:
        self._note_gone(gone)
        self._shard.timers.set(TimerKey(TimerKind.TOPICS), now_ms + FORGET_RETRY_MS)
        return Decision()

    def configure(self, settings: GroupSettings) -> None:
        self._shard.settings = settings

    # --- for tests and tools

    def group(self, group_id: str) -> Group | None:
        return self._shard.groups.get(group_id)
