"""What a consumer asks about any partitions: their numbers, where they begin and end, where a time is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.client.arguments import partition_of, partitions_of, time_of
from ottla.client.consumer.parts import Parts
from ottla.client.consumer.positions import NO_EPOCH
from ottla.client.offsets import FoundOffset, Isolation, OffsetSpec, list_offsets
from ottla.client.retrying import Deadline
from ottla.client.settings import ConsumerSettings
from ottla.client.values import OffsetAndTimestamp
from ottla.ids import TopicPartition


class PartitionOffsets:
    """These calls of a consumer."""

    settings: ConsumerSettings
    _parts: Parts

    async def _connected(self, deadline: Deadline) -> None:
        raise NotImplementedError

    def _deadline(self, timeout_s: float | None) -> Deadline:
        raise NotImplementedError

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition has."""
        found = await self._list_offsets(dict.fromkeys(partitions_of(partitions), int(OffsetSpec.EARLIEST)), timeout_s)
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """One past the last record that this consumer may see."""
        found = await self._list_offsets(dict.fromkeys(partitions_of(partitions), int(OffsetSpec.LATEST)), timeout_s)
        return {partition: each.offset for partition, each in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time in milliseconds; None where there is none."""
        found = await self._list_offsets(
            {partition_of(partition): time_of(time) for partition, time in times.items()}, timeout_s
        )
        return {
            partition: None
            if each.offset < 0
            else OffsetAndTimestamp(
                each.offset, each.timestamp, None if each.leader_epoch == NO_EPOCH else each.leader_epoch
            )
            for partition, each in found.items()
        }

    async def _list_offsets(
        self, specs: dict[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        deadline = self._deadline(timeout_s)
        await self._connected(deadline)
        isolation = Isolation.READ_COMMITTED if self._is_read_committed else Isolation.READ_UNCOMMITTED
        return await list_offsets(self._parts.cluster, specs, isolation, deadline)

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The numbers of the partitions of a topic."""
        deadline = self._deadline(timeout_s)
        await self._connected(deadline)
        found = await self._parts.cluster.topic(topic, deadline)
        return [each.partition for each in found.partitions]

    @property
    def _is_read_committed(self) -> bool:
        return self.settings.isolation_level == "read_committed"
