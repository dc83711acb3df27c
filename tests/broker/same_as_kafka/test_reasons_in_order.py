"""Several things wrong at once, as random histories had them: the one that Kafka tells is the one that we tell."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.topics import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records.layout import LENGTH_AT, Compression
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce, produce_to_many
from ottla.testing.raw_transactions import marker_request
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

TOPIC = 2
GROUP = 32
UNKNOWN_TYPE = 3


@conversations.add
def topics_that_cannot_be_in_several_ways(side: Side) -> None:
    topic, _ = side.new_topic("there")
    bad_setting = {"retention.ms": "many"}
    side.ask(create_topic("not a name", 0, 0, config=bad_setting), 7)
    side.ask(create_topic(topic, 0, 0, config=bad_setting), 7)
    for count, factor in ((0, 0), (1, 0), (0, 1), (10_001, 1), (10_001, 2), (-2, 2), (1, 2)):
        side.ask(create_topic(side.name("new"), count, factor), 7)
        side.ask(create_topic(side.name("new"), count, factor, config=bad_setting), 7)
        side.ask(create_topic(side.name("new"), count, factor, config={"retention.ms": None}), 7)
        side.ask(create_topic(side.name("new"), count, factor, assignments={0: [7]}), 7)
    for count in (1, 0, -1, 10_001):
        for brokers in ([[1]], [[1], [1]], [[7]]):
            asked = CreatePartitionsTopic(
                name=topic, count=count, assignments=[CreatePartitionsAssignment(broker_ids=one) for one in brokers]
            )
            side.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=False), 3)


@conversations.add
def settings_that_cannot_be_in_several_ways(side: Side) -> None:
    for name in ("", "not a name", side.name("never")):
        for setting, value in (("retention.ms", "many"), ("retention.ms", "1"), ("retention.ms", None), ("x", "y")):
            entry = AlterConfigsRequestAlterableConfig(name=setting, value=value)
            resource = AlterConfigsRequestAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[entry])
            side.ask(AlterConfigsRequest(resources=[resource], validate_only=True), 2)
    topic, _ = side.new_topic("there")
    keys = ["retention.ms", "segment.ms", "flush.ms", "cleanup.policy"]
    for resources in (
        [(TOPIC, topic)],
        [(TOPIC, topic), (UNKNOWN_TYPE, "x")],
        [(GROUP, "")],
    ):
        all_asked = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ]
        side.ask(DescribeConfigsRequest(resources=all_asked, include_synonyms=True), 4)


@conversations.add
def records_that_cannot_be_in_several_ways(side: Side) -> None:
    topic, _ = side.new_topic("there")
    never = side.name("never")
    producer_id = side.new_producer_id()
    transactional = one_batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    zstd = one_batch(b"a" * 100, compression=Compression.ZSTD)
    for acks in (-1, 7):
        for name in (topic, never):
            side.ask(produce(name, transactional, acks=acks), 9)
            side.ask(produce(name, zstd, acks=acks), 6)
            side.ask(produce(name, b"", acks=acks), 9)
            side.ask(produce(name, one_batch(b"a"), acks=acks), 9)
    side.ask(produce("__consumer_offsets", one_batch(b"a"), acks=7), 9)
    for first, last in ((transactional, b"junk"), (transactional, one_batch(b"a")), (one_batch(b"a"), transactional)):
        for transactional_id in (None, side.name("id")):
            request = produce_to_many(topic, [(0, first), (0, last)])
            request.transactional_id = transactional_id
            side.ask(request, 9)


@conversations.add
def a_batch_of_a_transaction_that_is_cut_off_and_names_no_transaction(side: Side) -> None:
    topic, _ = side.new_topic("there")
    producer_id = side.new_producer_id()
    whole = one_batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    longer = bytearray(whole)
    longer[LENGTH_AT + 3] += 16
    for records in (whole[:-1], bytes(longer), whole[:61], whole[:60], whole + whole[:-1], bytes(longer) + whole):
        for transactional_id in (None, side.name("id")):
            request = produce_to_many(topic, [(0, records)])
            request.transactional_id = transactional_id
            side.ask(request, 9)


@conversations.add
def markers_of_epochs_that_no_producer_has(side: Side) -> None:
    topic, _ = side.new_topic("there")
    producer_id = side.new_producer_id()
    for version in (1, 2):
        for epoch in (-2, -32768):
            side.ask(marker_request(producer_id, epoch, topic, 0, 7, commit=False), version)
    known = one_batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    side.ask(produce(topic, known), 9)
    side.ask(marker_request(producer_id, -2, topic, 0, commit=True), 1)


@conversations.add
def replicas_whose_topic_has_too_long_a_name_to_move(side: Side) -> None:
    lengths = (213, 214, 215, 249, 250)
    for length in lengths:
        name = side.name("x")
        name += "x" * (length - len(name))
        for index in (0, 10, 2**31 - 1, -1):
            side.ask(_move_to_nowhere(name, index), 2)
    for name in ("", "what name?", "."):
        side.ask(_move_to_nowhere(name, 0), 2)


def _move_to_nowhere(topic: str, index: int) -> AlterReplicaLogDirsRequest:
    replica = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=[replica])])


@conversations.add
def readers_that_ask_in_several_wrong_ways(side: Side) -> None:
    topic, topic_id = side.new_topic("there")
    never = side.name("never")
    for timestamp in (-6, -7, -1):
        side.ask(list_offsets(never, timestamp), 7)
        side.ask(list_offsets(topic, timestamp, current_leader_epoch=9), 7)
    side.ask(fetch(topic, 0, partition_max_bytes=-1), 12)
    side.ask(fetch(topic, 9, partition_max_bytes=-1), 12)
    named = MetadataRequestTopic(name=topic, topic_id=UUID(int=5))
    side.ask(MetadataRequest(topics=[named]), 12)
    nameless = MetadataRequestTopic(name=None)
    side.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic, topic_id=topic_id), nameless]), 12)
    twice = [MetadataRequestTopic(name=name, topic_id=topic_id) for name in (topic, never)]
    side.ask(MetadataRequest(topics=twice), 12)


@conversations.add
def a_session_forgets_in_its_first_request(side: Side) -> None:
    topic, _ = side.new_topic("there")
    session = side.ask(fetch(topic, 5, session_epoch=0, forgotten=(0,)), 12).session_id
    side.ask(fetch(topic, partitions=(), session_id=session, session_epoch=1), 12)
    side.ask(fetch(topic, partitions=(), session_id=session, session_epoch=2, forgotten=(0,)), 12)


@conversations.add
def records_of_a_compacted_topic_are_not_deleted(side: Side) -> None:
    for policy in ("compact", "delete", "compact,delete"):
        topic, _ = side.new_topic(policy.replace(",", "-"), cleanup_policy=policy)
        side.client.ask(produce(topic, one_batch(b"a", keys=[b"k"])), 9)
        for offset in (1, 0, 9, -1):
            asked = DeleteRecordsPartition(partition_index=0, offset=offset)
            side.ask(
                DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=5000), 2
            )


@conversations.add
def ids_and_epochs_that_are_negative(side: Side) -> None:
    side.new_producer_id()
    for producer_id, epoch in ((-1, -1), (-1, -2), (-2, -1), (-2, -2), (-1, 0)):
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
        )
        side.ask(request, 5)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
