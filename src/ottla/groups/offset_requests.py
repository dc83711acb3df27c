"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets: checks in Kafka's order.

Reads the groups and offsets of a shard and returns decisions; owns nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic import ClassicGroup, ClassicState
from ottla.groups.group import Caller, Commit, Group
from ottla.groups.offsets import NO_EXPIRY, CommittedOffset, GroupOffsets, commit_record, commit_records, tombstone
from ottla.groups.shard import GroupShard
from ottla.ids import NO_TIMESTAMP, ZERO_TOPIC_ID, TopicPartition
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_OFFSET: Final = -1
NO_GENERATION: Final = -1
# OffsetCommit tells an unknown group from a wrong generation since this version.
_COMMIT_KNOWS_GROUP_ID_NOT_FOUND: Final = 9
_COMMIT_WITH_TIMESTAMPS: Final = 1  # the only version in which a client says when it committed
# More offsets than this are answered in steps of this size.
FETCHED_AT_ONCE_MAX: Final = 1000
STEP: Final = 100


PartitionType = TypeVar("PartitionType", OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition)


class OffsetRequests:
    """The decisions about offsets of one shard."""

    __slots__ = ("_shard",)

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    # --- commit

    def commit(self, request: OffsetCommitRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        try:
            self._check_commit(request, caller, now_ms)
        except ApiError as refusal:
            return Decision(replies=[(ticket, refusal.code)])
        wall_ms = self._shard.wall_ms(now_ms)
        retention_ms = request.retention_time_ms
        expire_timestamp_ms = NO_EXPIRY if retention_ms == -1 else wall_ms + retention_ms
        records: list[CoordinatorRecord] = []
        topics = []
        has_times = expire_timestamp_ms != NO_EXPIRY or caller.api_version == _COMMIT_WITH_TIMESTAMPS
        for topic in request.topics:
            accepted, codes = self._accepted(topic.partitions)
            if has_times:
                records += (
                    _record_with_times(request.group_id, topic, each, wall_ms, expire_timestamp_ms) for each in accepted
                )
            else:
                records += commit_records(request.group_id, topic.name, accepted, wall_ms, topic.topic_id)
            answers = [
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each, code in zip(topic.partitions, codes, strict=True)
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return Decision(records, [(ticket, OffsetCommitResponse(topics=topics))])

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> None:
        epoch = request.generation_id_or_member_epoch
        group = self._shard.groups.get(request.group_id)
        if group is None:
            # Without a generation it is a consumer that only keeps its offsets here, or an administrator.
            if epoch < 0:
                return
            knows = caller.api_version >= _COMMIT_KNOWS_GROUP_ID_NOT_FOUND
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION)
        group.check_commit(self._commit_of(request, epoch, caller, is_transactional=False))
        # A commit shows that the member lives; while the leader assigns, only its own requests do.
        if isinstance(group, ClassicGroup) and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            member = group.members.get(request.member_id)
            if member is not None:
                self._shard.touch(group.group_id, member.member_id, member.session_timeout_ms, now_ms)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        try:
            self._check_transactional_commit(request, caller)
        except ApiError as refusal:
            return Decision(replies=[(ticket, refusal.code)])
        wall_ms = self._shard.wall_ms(now_ms)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            accepted, codes = self._accepted(topic.partitions)
            records += commit_records(request.group_id, topic.name, accepted, wall_ms)
            answers = [
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each, code in zip(topic.partitions, codes, strict=True)
            ]
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
        replies: list[tuple[Ticket, object]] = [(ticket, TxnOffsetCommitResponse(topics=topics))]
        return Decision(records, replies, producer_id=request.producer_id, producer_epoch=request.producer_epoch)

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest, caller: Caller) -> None:
        epoch = request.generation_id
        group = self._shard.groups.get(request.group_id)
        if group is None:
            if epoch < 0:
                return
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        try:
            group.check_commit(self._commit_of(request, epoch, caller, is_transactional=True))
        except ApiError as refusal:
            # Producers know generations only.
            if refusal.code == ErrorCode.STALE_MEMBER_EPOCH:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, refusal.message) from refusal
            raise

    def _commit_of(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        epoch: int,
        caller: Caller,
        *,
        is_transactional: bool,
    ) -> Commit:
        partitions = partial(self._partitions, request)
        return Commit(
            request.member_id, request.group_instance_id, epoch, caller.api_version, partitions, is_transactional
        )

    def _partitions(self, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> Iterator[tuple[UUID, int]]:
        """What would be committed: the rest is refused by itself, whoever asks."""
        for topic in request.topics:
            info = self._shard.topics.topics.get(topic.name)
            for partition in topic.partitions:
                if self._check_metadata(partition) == ErrorCode.NONE:
                    yield (ZERO_TOPIC_ID if info is None else info.topic_id), partition.partition_index

    def _accepted(self, partitions: list[PartitionType]) -> tuple[list[PartitionType], list[ErrorCode]]:
        """The partitions whose offset is committed, and the code for each of all."""
        metadata_max = self._shard.settings.offset_metadata_max_bytes
        accepted = [
            each for each in partitions if not each.committed_metadata or len(each.committed_metadata) <= metadata_max
        ]
        if len(accepted) == len(partitions):
            return accepted, [ErrorCode.NONE] * len(partitions)
        return accepted, [self._check_metadata(each) for each in partitions]

    def _check_metadata(self, partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition) -> ErrorCode:
        metadata = partition.committed_metadata
        if metadata and len(metadata) > self._shard.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # --- fetch

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool, ticket: Ticket) -> Decision:
        group = self._shard.groups.get(request.group_id)
        try:
            if group is not None:
                group.check_fetch(request.member_id, request.member_epoch)
        except ApiError as refusal:
            return Decision(replies=[(ticket, refusal.code)])
        offsets = self._shard.offsets.group(request.group_id)
        wanted_count = (
            len(offsets.committed)
            if request.topics is None
            else sum(1 + len(topic.partition_indexes) for topic in request.topics)
        )
        reply: object
        if wanted_count <= FETCHED_AT_ONCE_MAX:
            reply = _finished(_fetched_group(request, offsets, require_stable))
        else:  # of a copy: others have their turn, and the answer is of one moment
            reply = _fetched_group(request, offsets.copied(), require_stable)
        return Decision(replies=[(ticket, reply)])

    # --- delete

    def delete(self, request: OffsetDeleteRequest, ticket: Ticket) -> Decision:
        group = self._shard.groups.get(request.group_id)
        try:
            if group is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
            group.check_offsets_may_be_deleted()
        except ApiError as refusal:
            return Decision(replies=[(ticket, refusal.code)])
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            is_read = group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                if not is_read and self._has_offset(request.group_id, key):
                    records.append(tombstone(request.group_id, key))
            answers = [
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ]
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return Decision(records, [(ticket, OffsetDeleteResponse(topics=topics))])

    def _has_offset(self, group_id: str, key: TopicPartition) -> bool:
        return self._shard.offsets.get(group_id, key) is not None or self._shard.offsets.has_pending(group_id, key)

    def tombstones_of(self, group_id: str) -> list[CoordinatorRecord]:
        """Takes away every offset of a group, also those of open transactions."""
        return [tombstone(group_id, key) for key in self._shard.offsets.keys_of(group_id)]

    def tombstones_of_topics(
        self, group_id: str, keys: Iterable[TopicPartition], topics: Mapping[str, Collection[UUID]]
    ) -> list[CoordinatorRecord]:
        """Takes away those of a group's offsets that are of topics that were deleted: names, and the ids they had."""
        offsets = self._shard.offsets
        return [
            tombstone(group_id, key)
            for key in keys
            if key.topic in topics and offsets.is_of_topic(group_id, key, topics[key.topic])
        ]

    # --- expiry

    def expired(
        self, group: Group, keys: Iterable[TopicPartition], wall_ms: int, is_last: bool
    ) -> list[CoordinatorRecord]:
        """The tombstones of those of a group's offsets that are too old.

        With the last of them also those of the group itself, where it has nothing left.
        """
        offsets = self._shard.offsets
        records: list[CoordinatorRecord] = []
        for key in keys:
            committed = offsets.get(group.group_id, key)
            if committed is not None and self._is_expired(group, key, committed, wall_ms):
                records.append(tombstone(group.group_id, key))
        has_offsets_left = offsets.count_of(group.group_id) > len(records)
        if is_last and group.is_empty and not has_offsets_left and not offsets.has_open_transaction(group.group_id):
            records.extend(group.tombstones())
        return records

    def _is_expired(self, group: Group, key: TopicPartition, committed: CommittedOffset, wall_ms: int) -> bool:
        unused_since_ms = group.unused_since_ms(committed.commit_timestamp_ms)
        if unused_since_ms is None or group.is_subscribed_to(key.topic):
            return False
        expires_ms = committed.expire_timestamp_ms
        if expires_ms == NO_EXPIRY:
            expires_ms = unused_since_ms + self._shard.settings.offsets_retention_ms
        return wall_ms >= expires_ms and not self._shard.offsets.has_pending(group.group_id, key)


def _record_with_times(
    group_id: str,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    wall_ms: int,
    expire_timestamp_ms: int,
) -> CoordinatorRecord:
    """Of an old client, which says when an offset was committed, or when it expires."""
    committed = CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        wall_ms if partition.commit_timestamp == NO_TIMESTAMP else partition.commit_timestamp,
        expire_timestamp_ms,
        topic.topic_id,
    )
    return commit_record(group_id, topic.name, partition.partition_index, committed)


def _fetched_group(
    request: OffsetFetchRequestGroup, offsets: GroupOffsets, require_stable: bool
) -> Generator[None, None, OffsetFetchResponseGroup]:
    wanted = request.topics
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for number, key in enumerate(offsets.committed, 1):
            by_topic.setdefault(key.topic, []).append(key.partition)
            if number % STEP == 0:
                yield
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=found) for topic, found in by_topic.items()]
    topics = []
    count = 0  # of all topics together: most have few partitions
    for topic in wanted:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(_fetched(offsets, TopicPartition(topic.name, index), topic.topic_id, require_stable))
            count += 1
            if count % STEP == 0:
                yield
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        count += 1  # one without partitions, too
        if count % STEP == 0:
            yield
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _finished(steps: Generator[None, None, OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            group: OffsetFetchResponseGroup = done.value
            return group


def _fetched(
    offsets: GroupOffsets, key: TopicPartition, topic_id: UUID, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.has_pending(key):
        return OffsetFetchResponsePartitions(
            partition_index=key.partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = offsets.get(key)
    if committed is None or _are_different(committed.topic_id, topic_id):
        return OffsetFetchResponsePartitions(partition_index=key.partition, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=key.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _are_different(committed_id: UUID, wanted_id: UUID) -> bool:
    """Whether an offset is of a topic that only had the same name. A request by name does not say."""
    return committed_id.int != wanted_id.int and committed_id.int != 0 and wanted_id.int != 0
