"""How far groups have read: what they committed, how far behind they are, and setting that back or forth."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ottla.client.admin.groups import GroupCalls, GroupDescription
from ottla.client.admin.partitions import PartitionCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.consumer.commits import (
    COMMIT_VERSION_MAX,
    FETCH_VERSION_MAX,
    NO_OFFSET,
    Identity,
    commit_request,
)
from ottla.client.error_codes import NonEmptyGroupError, error_of_code
from ottla.client.errors import UsageError
from ottla.client.leaders import by_topic
from ottla.client.offsets import Isolation, OffsetSpec
from ottla.client.retrying import Deadline, error_of, raise_if
from ottla.client.values import OffsetAndMetadata
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

NO_EPOCH = -1

# Where offsets are set to: an end of the log, an offset, a time, or that long ago.
ResetTo = Literal["earliest", "latest"] | int | datetime | timedelta


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition.

    None for what is not known: the group never committed, or the partition does not exist any more. A reader of
    committed records only gets as far as `last_stable_offset`.
    """

    committed: OffsetAndMetadata | None
    end_offset: int | None
    last_stable_offset: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The committed offset of a partition before and after; None: there was none."""

    before: int | None
    after: int


class NoCommittedOffsetError(UsageError):
    """There is no offset to shift from."""


class GroupOffsetCalls(GroupCalls, PartitionCalls, TopicCalls):
    # -- seeing --------------------------------------------------------------------------------------------------------

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, for all partitions or for some; those without a commit are left out."""
        return await self._committed(group_id, partitions, self._deadline(timeout_s))

    async def committed_offsets_of_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError]:
        """What several groups have committed."""
        deadline = self._deadline(timeout_s)
        return await self._for_each(group_ids, lambda group_id: self._committed(group_id, None, deadline))

    async def _committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        response = await self._ask_group(
            group_id,
            OffsetFetchRequest(group_id=group_id, topics=topics),
            OffsetFetchResponse,
            lambda answer: (answer.error_code,),
            deadline,
            version_max=FETCH_VERSION_MAX,
        )
        raise_if(error_of(response.error_code, None, f"the group {group_id}"))
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                raise_if(error_of(each.error_code, None, f"the offset of the group {group_id} in {partition}"))
                if each.committed_offset != NO_OFFSET:
                    epoch = each.committed_leader_epoch
                    offsets[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", None if epoch == NO_EPOCH else epoch
                    )
        return offsets

    async def lag(self, group_id: str, *, timeout_s: float | None = None) -> dict[TopicPartition, PartitionLag]:
        """How far a group is in every partition that it has committed or that a member is assigned."""
        deadline = self._deadline(timeout_s)
        described = await self._if_there(group_id, deadline)
        committed = await self._committed(group_id, None, deadline)
        members = {} if described is None else _owners(described)
        partitions = sorted({*committed, *members})
        ends = await self._offsets_at(partitions, OffsetSpec.LATEST, deadline)
        stable = await self._offsets_at(partitions, OffsetSpec.LATEST, deadline, Isolation.READ_COMMITTED)
        return {
            partition: PartitionLag(
                committed.get(partition), ends.get(partition), stable.get(partition), members.get(partition)
            )
            for partition in partitions
        }

    async def _if_there(self, group_id: str, deadline: Deadline) -> GroupDescription | None:
        """A group may have offsets that some tool committed, and no members."""
        try:
            return await self._describe(group_id, deadline)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None

    async def _offsets_at(
        self,
        partitions: Collection[TopicPartition],
        spec: int,
        deadline: Deadline,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offsets of the partitions that exist."""
        view = await self._cluster.refresh({partition.topic for partition in partitions}, deadline)
        there = [
            partition
            for partition in partitions
            if partition.topic in view.topics and partition.partition < len(view.topics[partition.topic].partitions)
        ]
        found = await self.list_offsets(dict.fromkeys(there, spec), isolation=isolation, timeout_s=deadline.left_s)
        offsets: dict[TopicPartition, int] = {}
        for partition, each in found.items():
            if isinstance(each, ApiError):
                raise each
            offsets[partition] = each.offset
        return offsets

    # -- changing ------------------------------------------------------------------------------------------------------

    async def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Makes these the committed offsets of a group without members; those that it has refuse it."""
        deadline = self._deadline(timeout_s)
        request = commit_request(
            group_id,
            Identity(),
            {
                partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
                for partition, offset in offsets.items()
            },
        )
        response = await self._ask_group(
            group_id, request, OffsetCommitResponse, _commit_codes, deadline, version_max=COMMIT_VERSION_MAX
        )
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, None, f"the offset of the group {group_id} in {topic.name}-{each.partition_index}"
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Forgets what a group has committed in these partitions, where no member is subscribed to the topic."""
        deadline = self._deadline(timeout_s)
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        response = await self._ask_group(
            group_id, request, OffsetDeleteResponse, lambda answer: (answer.error_code,), deadline
        )
        raise_if(error_of(response.error_code, None, f"the group {group_id}"))
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, None, f"the offset of the group {group_id} in {topic.name}-{each.partition_index}"
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def reset_offsets(
        self,
        group_id: str,
        to: ResetTo | None = None,
        *,
        shift_by: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        topics: Collection[str] | None = None,
        partitions: Collection[TopicPartition] | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Sets the committed offsets of a group without members; `dry_run` only says what would be set.

        One of `to` ("earliest", "latest", an offset, a datetime, or a timedelta: that long ago), `shift_by` (so many
        records forward, or back) and `offsets` says where. Without `topics` or `partitions`, every partition with a
        committed offset is set. An offset outside of its partition becomes the nearest one inside.
        """
        deadline = self._deadline(timeout_s)
        if (to is not None) + (shift_by is not None) + (offsets is not None) != 1:
            raise UsageError("give one of to, shift_by and offsets")
        await self._check_is_idle(group_id, deadline)
        committed = await self._committed(group_id, None, deadline)
        if offsets is not None:
            wanted = dict(offsets)
        else:
            chosen = await self._chosen(committed, topics, partitions, deadline)
            if shift_by is not None:
                wanted = _shifted(group_id, committed, chosen, shift_by)
            else:
                assert to is not None
                wanted = await self._places(chosen, to, deadline)
        new = await self._within_partitions(wanted, deadline)
        if not dry_run and new:
            for error in (await self.alter_offsets(group_id, new, timeout_s=deadline.left_s)).values():
                raise_if(error)
        return {
            partition: OffsetReset(committed[partition].offset if partition in committed else None, offset)
            for partition, offset in sorted(new.items())
        }

    async def _check_is_idle(self, group_id: str, deadline: Deadline) -> None:
        """Members would go on from their own positions, and commit over the new offsets."""
        described = await self._if_there(group_id, deadline)
        if described is not None and described.members:
            count = len(described.members)
            raise NonEmptyGroupError(
                f"the group {group_id} has {count} {'member' if count == 1 else 'members'}, "
                "which would continue from their own positions"
            )

    async def _chosen(
        self,
        committed: Collection[TopicPartition],
        topics: Collection[str] | None,
        partitions: Collection[TopicPartition] | None,
        deadline: Deadline,
    ) -> list[TopicPartition]:
        """Those that are named, all of which have to exist; else those with a committed offset that still exist."""
        if topics is None and partitions is None:
            return sorted(await self._offsets_at(committed, OffsetSpec.EARLIEST, deadline))
        chosen = set(partitions or ())
        view = await self._cluster.refresh({*(topics or ()), *(each.topic for each in chosen)}, deadline)
        for name in topics or ():
            chosen |= {TopicPartition(name, each.partition) for each in view.topic(name).partitions}
        for partition in chosen:
            view.topic(partition.topic).partition(partition.partition)
        return sorted(chosen)

    async def _places(
        self, partitions: Collection[TopicPartition], to: ResetTo, deadline: Deadline
    ) -> dict[TopicPartition, int]:
        match to:
            case "earliest":
                return await self._offsets_at(partitions, OffsetSpec.EARLIEST, deadline)
            case "latest":
                return await self._offsets_at(partitions, OffsetSpec.LATEST, deadline)
            case datetime():
                timestamp = int(to.timestamp() * 1000)
            case timedelta():
                timestamp = self._clock.now_ms() - int(to.total_seconds() * 1000)
            case int() if not isinstance(to, bool) and to >= 0:
                return dict.fromkeys(partitions, to)
            case _:
                raise UsageError(f"{to!r} is not a place: use earliest, latest, an offset, a datetime or a timedelta")
        found = await self._offsets_at(partitions, timestamp, deadline)
        ends = await self._offsets_at(partitions, OffsetSpec.LATEST, deadline)
        # No record is that late: those to come are.
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    async def _within_partitions(
        self, wanted: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        begins = await self._offsets_at(wanted, OffsetSpec.EARLIEST, deadline)
        ends = await self._offsets_at(wanted, OffsetSpec.LATEST, deadline)
        for partition in wanted:
            if partition not in ends:
                raise error_of_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return {partition: min(max(offset, begins[partition]), ends[partition]) for partition, offset in wanted.items()}


def _owners(group: GroupDescription) -> dict[TopicPartition, str]:
    return {partition: member.member_id for member in group.members for partition in member.partitions or ()}


def _shifted(
    group_id: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    partitions: Collection[TopicPartition],
    steps: int,
) -> dict[TopicPartition, int]:
    for partition in partitions:
        if partition not in committed:
            raise NoCommittedOffsetError(f"the group {group_id} has no committed offset in {partition} to shift")
    return {partition: committed[partition].offset + steps for partition in partitions}


def _commit_codes(response: OffsetCommitResponse) -> Iterable[int]:
    return (each.error_code for topic in response.topics for each in topic.partitions)
