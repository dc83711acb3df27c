"""What lies in partitions: offsets by place or time, records to be deleted, the producers that are remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.calls import UNKNOWN_TOPIC_WAIT_S, AdminCalls, Item, only
from ottla.client.leaders import Ask, ask_each_leader, by_topic
from ottla.client.offsets import FoundOffset, Isolation, list_each_offset
from ottla.client.retrying import Deadline, error_of
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers; `transaction_start_offset` is -1 while it has no transaction there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class PartitionCalls(AdminCalls):
    async def list_offset(
        self,
        partition: TopicPartition,
        spec: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> FoundOffset:
        """The offset of a partition at an `OffsetSpec`, or the first at or after a time in milliseconds."""
        return only(await self.list_offsets({partition: spec}, isolation=isolation, timeout_s=timeout_s))

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | ApiError]:
        """The offsets of partitions at an `OffsetSpec`, or the first at or after a time in milliseconds."""
        deadline = self._deadline(timeout_s)
        return await list_each_offset(
            self._cluster, specs, isolation, deadline, unknown_topic_wait_s=UNKNOWN_TOPIC_WAIT_S
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | ApiError]:
        """Deletes what lies before the offset given for each partition (-1: everything); the new starts of the logs."""
        deadline = self._deadline(timeout_s)

        async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | ApiError]:
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=number, offset=before[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ]
            connection = await self._cluster.leader_connection(node_id)
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._cluster.broker_timeout_ms(deadline))
            response = await connection.request(request, DeleteRecordsResponse)
            outcomes: dict[TopicPartition, int | ApiError] = {}
            for topic in response.topics:
                for each in topic.partitions:
                    error = error_of(each.error_code, None, f"{topic.name}-{each.partition_index}")
                    partition = TopicPartition(topic.name, each.partition_index)
                    outcomes[partition] = each.low_watermark if error is None else error
            return outcomes

        return await self._ask_leaders(before, ask, deadline)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ApiError]:
        """The producers that each partition remembers."""
        deadline = self._deadline(timeout_s)

        async def ask(
            node_id: int, asked: Sequence[TopicPartition]
        ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ApiError]:
            topics = [
                DescribeProducersRequestTopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(asked).items()
            ]
            connection = await self._cluster.leader_connection(node_id)
            response = await connection.request(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
            outcomes: dict[TopicPartition, tuple[ActiveProducer, ...] | ApiError] = {}
            for topic in response.topics:
                for found in topic.partitions:
                    error = error_of(found.error_code, found.error_message, f"{topic.name}-{found.partition_index}")
                    outcomes[TopicPartition(topic.name, found.partition_index)] = error or tuple(
                        ActiveProducer(
                            each.producer_id,
                            each.producer_epoch,
                            each.last_sequence,
                            each.last_timestamp,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                        )
                        for each in found.active_producers
                    )
            return outcomes

        return await self._ask_leaders(partitions, ask, deadline)

    async def _ask_leaders(
        self, partitions: Iterable[TopicPartition], ask: Ask[Item], deadline: Deadline
    ) -> dict[TopicPartition, Item | ApiError]:
        return await ask_each_leader(
            self._cluster, partitions, ask, deadline, unknown_topic_wait_s=UNKNOWN_TOPIC_WAIT_S
        )
