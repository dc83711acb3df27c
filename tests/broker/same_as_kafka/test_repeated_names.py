"""Topics, partitions and groups that one request names more than once: which word counts, and how often it is answered.

Kafka keeps most of them in hash maps, so the order of its answers is nobody's; what is told of which name is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest
from ottla.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transactions import DescribeTransactionsRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import creatable, fetch, metadata, one_batch, produce, produce_to_many
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

NOBODY = UUID(int=7)


def by_name(*path: str) -> Callable[[Any], Any]:
    """A note that sorts the lists along a path of fields, each by what its entries say."""

    def sort(answer: Any, fields: tuple[str, ...]) -> None:
        if fields:
            entries = getattr(answer, fields[0])
            for entry in entries:
                sort(entry, fields[1:])
            entries.sort(key=repr)

    def note(answer: Any) -> Any:
        sort(answer, path)
        return answer

    return note


@conversations.add
def repeated_partitions_of_a_produce(side: Side) -> None:
    topic, _ = side.new_topic("t", 2)
    note = by_name("responses", "partition_responses")
    first, second = one_batch(b"a"), one_batch(b"b", b"c")
    side.ask(produce_to_many(topic, [(0, first), (0, second)]), 9)
    side.ask(produce_to_many(topic, [(0, first), (1, first), (0, second)]), 9, note=note)
    side.ask(produce_to_many(topic, [(7, first), (7, second)]), 9)
    for partition in (0, 1):
        twice = produce_to_many(topic, [(0, first)])
        twice.topic_data += produce_to_many(topic, [(partition, second)]).topic_data
        side.ask(twice, 9, note=note)
    side.ask(fetch(topic, partitions=(0, 1)), 11)


@conversations.add
def repeated_partitions_of_a_fetch(side: Side) -> None:
    topic, topic_id = side.new_topic("t", 2)
    side.ask(produce(topic, one_batch(b"a", b"b", b"c")), 9)
    for version in (4, 11, 13):

        def item(*offsets: tuple[int, int], by_id: bool = version >= 13) -> FetchTopic:
            partitions = [
                FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=10_000)
                for partition, offset in offsets
            ]
            return FetchTopic(**({"topic_id": topic_id} if by_id else {"topic": topic}), partitions=partitions)

        for topics in (
            [item((0, 0), (0, 2))],
            [item((0, 2), (0, 0))],
            [item((0, 3)), item((1, 0)), item((0, 0))],
            [item((9, 0), (9, 0))],
        ):
            side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), version)


@conversations.add
def repeated_partitions_of_other_requests(side: Side) -> None:
    topic, _ = side.new_topic("t", 2)
    never = side.name("never")
    side.ask(produce(topic, one_batch(b"a", b"b", b"c")), 9)
    names: list[list[tuple[str, tuple[int, ...]]]] = [
        [(topic, (0, 0, 1))],
        [(topic, (0,)), (topic, (0,))],
        [(topic, (0,)), (topic, (1,))],
    ]
    names += [[(topic, (8, 8))], [(never, (0, 0)), (topic, (1, 1))]]

    def offsets_of(indexes: tuple[int, ...]) -> list[tuple[int, int]]:
        return [(index, place) for place, index in enumerate(indexes)]

    for version in (1, 7):
        for wanted in names:
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1 - place)
                        for index, place in offsets_of(indexes)
                    ],
                )
                for name, indexes in wanted
            ]
            note = by_name("topics", "partitions")
            side.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version, note=note)
    for wanted in names:
        epochs = [
            OffsetForLeaderTopic(
                topic=name, partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
            )
            for name, indexes in wanted
        ]
        side.ask(OffsetForLeaderEpochRequest(topics=epochs), 4, note=by_name("topics", "partitions"))
        producers = [
            DescribeProducersRequestTopicRequest(name=name, partition_indexes=list(indexes)) for name, indexes in wanted
        ]
        side.ask(DescribeProducersRequest(topics=producers), 0, note=by_name("topics", "partitions"))
        logs = [DescribableLogDirTopic(topic=name, partitions=list(indexes)) for name, indexes in wanted]
        side.ask(DescribeLogDirsRequest(topics=logs), 4, note=by_name("results", "topics", "partitions"))
    for version in (0, 2):
        for wanted in names:
            records = [
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=place)
                        for index, place in offsets_of(indexes)
                    ],
                )
                for name, indexes in wanted
            ]
            note = by_name("topics", "partitions")
            side.ask(DeleteRecordsRequest(timeout_ms=1000, topics=records), version, note=note)


@conversations.add
def repeated_topics_of_a_metadata(side: Side) -> None:
    topic, topic_id = side.new_topic("t")
    never = side.name("never")
    for version in (4, 9, 12):
        side.ask(metadata(topic, never, topic, never, auto_create=False), version, note=by_name("topics"))
    side.ask(metadata(topic_id, topic_id), 12)
    side.ask(metadata(NOBODY, NOBODY), 12)
    side.ask(metadata(topic, topic_id), 12)  # where some have an id, names are not looked at
    side.ask(metadata(topic, NOBODY), 12)
    side.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic, topic_id=topic_id)]), 12)


@conversations.add
def repeated_topics_that_are_made_and_deleted(side: Side) -> None:
    def codes(answer: Any) -> Any:
        return sorted((topic.name, topic.error_code) for topic in answer.topics)

    def create(*topics: CreatableTopic) -> None:
        side.ask(CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=False), 5, note=codes)

    x, y = side.name("x"), side.name("y")
    create(creatable(x), creatable(x))
    create(creatable(x), creatable(y), creatable(x))
    _, z_id = side.new_topic("z")
    z = side.name("z")
    more = CreatePartitionsTopic(name=y, count=2, assignments=None)
    side.ask(CreatePartitionsRequest(timeout_ms=1000, validate_only=False, topics=[more, more]), 3)
    for version in (1, 5):
        for names in ([x, x], [y, y], [y, x, y]):
            request = DeleteTopicsRequest(timeout_ms=1000, topic_names=names)
            side.ask(request, version, note=by_name("responses"))

    def delete(*items: str | UUID | None) -> None:
        topics = [
            DeleteTopicState(name=None, topic_id=item)
            if isinstance(item, UUID)
            else DeleteTopicState(name=item, topic_id=ZERO_UUID)
            for item in items
        ]
        side.ask(DeleteTopicsRequest(timeout_ms=1000, topics=topics), 6, note=by_name("responses"))

    delete(y, y)
    delete(NOBODY, NOBODY)
    delete(z, z_id)
    delete(z_id, z_id)
    delete(z, z, x)
    delete(None)
    delete(None, z)
    side.settle()
    delete(z)


@conversations.add
def repeated_names_of_configs(side: Side) -> None:
    topic, _ = side.new_topic("t")

    def describe(*items: tuple[str, list[str]]) -> None:
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys)
            for name, keys in items
        ]
        side.ask(DescribeConfigsRequest(resources=resources), 4)

    describe((topic, ["retention.ms"]), (topic, ["retention.ms"]))
    describe((topic, ["retention.ms"]), (topic, ["segment.ms"]))
    describe((topic, ["retention.ms", "retention.ms"]))
    entries = [AlterConfigsRequestAlterableConfig(name="retention.ms", value=value) for value in ("5", "6")]
    resource = AlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=topic, configs=entries)
    # A resource that is named twice here is one that Kafka 4.3 never answers for.
    side.ask(AlterConfigsRequest(resources=[resource], validate_only=False), 2)
    for repeats in (1, 2):
        changes = [
            IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", config_operation=0, value="5")
        ] * repeats
        item = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
        side.ask(IncrementalAlterConfigsRequest(resources=[item, item], validate_only=False), 1)
        side.ask(IncrementalAlterConfigsRequest(resources=[item], validate_only=False), 1)
    for kinds in ([16, 16], [4, 4, 32], [4, 0], [-1]):
        side.ask(ListConfigResourcesRequest(resource_types=kinds), 1)


@conversations.add
def repeated_groups_and_offsets(side: Side) -> None:
    group, topic = side.name("group"), side.new_topic("t", 2)[0]
    never = side.name("never")
    for kind in (0, 1):
        side.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[group]), 4, note=lambda _: "asked")
    side.settle()
    side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group, group]), 4)
    side.ask(DescribeGroupsRequest(groups=[group, group]), 5)
    side.ask(DeleteGroupsRequest(groups_names=[group, group]), 2)
    side.ask(DescribeTransactionsRequest(transactional_ids=[group, group]), 0)

    def commit(*items: tuple[str, tuple[int, ...]]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=place, committed_metadata=None)
                    for place, index in enumerate(indexes)
                ],
            )
            for name, indexes in items
        ]
        for version in (2, 8):
            side.ask(OffsetCommitRequest(group_id=group, topics=topics), version)

    def read(*items: tuple[str, list[int]]) -> None:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in items]
        side.ask(OffsetFetchRequest(group_id=group, topics=topics), 5)

    commit((topic, (0, 0)))
    read((topic, [0]))
    commit((topic, (0,)), (topic, (1, 0)))
    read((topic, [0, 0]))
    read((topic, [0]), (topic, [0, 1]))
    commit((topic, (0, 8, 8)))
    commit((never, (0,)), (topic, (8,)), (never, (8,)))
    side.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)] * 2), 8)
    for names in ([(topic, [0, 0])], [(topic, [0]), (topic, [0])], [(topic, [9, 9]), (never, [0, 9])]):
        deleted = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in names
        ]
        side.ask(OffsetDeleteRequest(group_id=group, topics=deleted), 0)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
