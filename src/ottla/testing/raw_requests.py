"""Requests as tests write them: one topic, one partition, and a default for everything that does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch
from ottla.records.layout import Compression

FETCH_BYTES_MAX = 1 << 30


def one_batch(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamps: int | Sequence[int] = 1_700_000_000_000,
    compression: Compression = Compression.NONE,
    **options: Any,
) -> bytes:
    """A batch of these values, all at one old instant unless the test says otherwise."""
    return bytes(batch.build(keys, values, timestamps, compression=compression, **options))


def produce(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 10_000,
    topic_id: UUID = ZERO_UUID,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


def produce_to_many(topic: str, batches: Iterable[tuple[int, bytes | None]]) -> ProduceRequest:
    """Batches by partition, in the order in which they are sent; a partition may come twice."""
    partition_data = [PartitionProduceData(index=partition, records=records) for partition, records in batches]
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=partition_data)]
    )


def fetch(
    topic: str,
    offset: int = 0,
    *,
    partitions: Sequence[int] = (0,),
    topic_id: UUID = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = FETCH_BYTES_MAX,
    partition_max_bytes: int = FETCH_BYTES_MAX,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    forgotten: Sequence[int] = (),
) -> FetchRequest:
    """A Fetch of some partitions of one topic, all from the same offset; without a session by default."""
    entries = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        for partition in partitions
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=entries)] if entries else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forgotten))]
        if forgotten
        else [],
    )


def list_offsets(
    topic: str,
    timestamp: int,
    *,
    partition: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> ListOffsetsRequest:
    entry = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=current_leader_epoch
    )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=[entry])]
    )


def metadata(*topics: str | UUID, auto_create: bool = True, all_topics: bool = False) -> MetadataRequest:
    """Topics by name or by id; none at all unless all are asked for."""
    entries = [
        MetadataRequestTopic(name=None, topic_id=topic) if isinstance(topic, UUID) else MetadataRequestTopic(name=topic)
        for topic in topics
    ]
    return MetadataRequest(topics=None if all_topics else entries, allow_auto_topic_creation=auto_create)


def create_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    config: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
    validate_only: bool = False,
    timeout_ms: int = 10_000,
) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[creatable(name, partitions, replication_factor, config=config, assignments=assignments)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def creatable(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    config: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )
