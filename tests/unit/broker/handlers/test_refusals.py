"""What Kafka refuses is refused, with its code: beside real Kafka in tests/broker/same_as_kafka, here in no time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, ProtocolError
from ottla.protocol.messages.acls import DescribeAclsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
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
from ottla.protocol.messages.sasl import SaslHandshakeRequest
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import (
    creatable,
    create_topic,
    fetch,
    list_offsets,
    metadata,
    one_batch,
    produce,
    produce_to_many,
)

NOBODY = UUID(int=9)


def described(broker: Any, cursor: tuple[str, int] | None, *names: str, limit: int = 2000) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(request, 0)


@pytest.mark.parametrize("cursor", [("a", -1), ("a", -99), ("c", 0), ("", 0), ("zzz", 0)], ids=str)
def test_a_cursor_that_no_answer_had_is_refused(broker: Any, cursor: tuple[str, int]) -> None:
    broker.new_topic("a", 3)
    answer = described(broker, cursor, "a", "b")
    told = [(topic.name, topic.error_code, topic.partitions) for topic in answer.topics]
    assert told == [("a", ErrorCode.INVALID_REQUEST, []), ("b", ErrorCode.INVALID_REQUEST, [])]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
def test_pages_of_topic_partitions_hold_everything_once(broker: Any, limit: int) -> None:
    broker.new_topic("a", 3)
    broker.new_topic("b", 2)
    seen: list[tuple[str, int | None]] = []
    cursor, page_count = None, 0
    while page_count == 0 or cursor is not None:
        answer = described(broker, cursor, "a", "b", "never", limit=limit)
        assert sum(len(topic.partitions) for topic in answer.topics) <= limit
        for topic in answer.topics:
            seen += [(topic.name, part.partition_index) for part in topic.partitions] or [(topic.name, None)]
        cursor = answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        page_count += 1
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("never", None)]


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_topic_without_name_and_id_is_refused(broker: Any, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None), MetadataRequestTopic(name="t")])
    answer = broker.ask(request, version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("", 42), ("t", 42)]
    assert (answer.brokers, answer.controller_id) == ([], -1)


def test_ids_of_topics_are_asked_for_from_version_12_on(broker: Any) -> None:
    topic_id = broker.new_topic("t")
    assert broker.ask(metadata(topic_id), 11).topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert broker.ask(metadata(topic_id), 12).topics[0].name == "t"
    assert [topic.topic_id for topic in broker.ask(metadata("t", NOBODY), 12).topics] == [NOBODY]


def test_what_may_be_done_is_told_of_topics_that_are_not_there(broker: Any) -> None:
    entries = [MetadataRequestTopic(name="never")]
    request = MetadataRequest(topics=entries, include_topic_authorized_operations=True)
    (told,) = broker.ask(request, 9).topics
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told.topic_authorized_operations == 3576


def fetched(broker: Any, version: int = 11, *, replica_id: int = -1, isolation_level: int = 0, offset: int = 0) -> Any:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic="t", partitions=[entry])],
    )
    return broker.ask(request, version)


@pytest.mark.parametrize("replica_id", [0, 1, 2, 77])
def test_who_is_no_follower_does_not_fetch_as_one(broker: Any, replica_id: int) -> None:
    broker.new_topic("t")
    (told,) = fetched(broker, replica_id=replica_id).responses[0].partitions
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("replica_id", [-1, -2, -3, -99])
def test_every_negative_id_is_a_consumers(broker: Any, replica_id: int) -> None:
    broker.new_topic("t")
    broker.ask(produce("t", one_batch(b"a")), 9)
    (told,) = fetched(broker, replica_id=replica_id).responses[0].partitions
    assert told.error_code == ErrorCode.NONE
    assert told.records


@pytest.mark.parametrize("level", [2, 7, -1, 127])
def test_there_are_two_isolation_levels(broker: Any, level: int) -> None:
    broker.new_topic("t")
    answer = fetched(broker, isolation_level=level)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert fetched(broker, 4, isolation_level=level).responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    offsets = broker.ask(list_offsets("t", -1, isolation_level=level), 7)
    assert offsets.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_reader_of_committed_records_is_told_that_none_were_aborted(broker: Any) -> None:
    broker.new_topic("t")
    broker.ask(produce("t", one_batch(b"a")), 9)
    for offset in (0, 1):
        (told,) = fetched(broker, isolation_level=1, offset=offset).responses[0].partitions
        assert told.aborted_transactions == []
        (told,) = fetched(broker, isolation_level=0, offset=offset).responses[0].partitions
        assert told.aborted_transactions is None


def test_no_topic_has_the_id_zero(broker: Any) -> None:
    told = broker.ask(fetch("", topic_id=ZERO_UUID), 13).responses[0].partitions[0]
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    told = broker.ask(produce("", one_batch(b"a"), topic_id=ZERO_UUID), 13).responses[0].partition_responses[0]
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "current", "expected"),
    [(0, -1, (0, 0, 1)), (0, -2, (74, -1, -1)), (0, 1, (75, -1, -1)), (-1, -1, (0, -1, -1)), (-2, -1, (0, -2, 0))],
)
def test_only_minus_one_says_nothing_of_an_epoch(
    broker: Any, epoch: int, current: int, expected: tuple[int, int, int]
) -> None:
    broker.new_topic("t")
    broker.ask(produce("t", one_batch(b"a")), 9)
    entry = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[entry])])
    told = broker.ask(request, 4).topics[0].partitions[0]
    assert (told.error_code, told.leader_epoch, told.end_offset) == expected


def test_a_partition_that_is_named_twice_is_answered_once(broker: Any) -> None:
    broker.new_topic("t")
    answer = broker.ask(produce_to_many("t", [(0, one_batch(b"a")), (0, one_batch(b"b", b"c"))]), 9)
    assert [told.base_offset for told in answer.responses[0].partition_responses] == [0]
    assert broker.ask(list_offsets("t", -1), 7).topics[0].partitions[0].offset == 2
    entry = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = broker.ask(ListOffsetsRequest(replica_id=-1, topics=[entry, entry]), 7)
    (topic,) = answer.topics
    assert [told.error_code for told in topic.partitions] == [ErrorCode.INVALID_REQUEST]
    deleted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (2, 1)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=deleted)], timeout_ms=1000)
    assert [told.low_watermark for told in broker.ask(request, 2).topics[0].partitions] == [1]


def test_a_topic_that_is_named_twice_is_neither_made_nor_deleted(broker: Any) -> None:
    request = CreateTopicsRequest(
        topics=[creatable("a"), creatable("b"), creatable("a")], timeout_ms=1000, validate_only=False
    )
    assert [(one.name, one.error_code) for one in broker.ask(request, 7).topics] == [("b", 0), ("a", 42)]
    topic_id = broker.new_topic("t")
    for entries in ([("t", ZERO_UUID)] * 2, [(None, topic_id)] * 2, [("t", ZERO_UUID), (None, topic_id)]):
        topics = [DeleteTopicState(name=name, topic_id=known) for name, known in entries]
        told = broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses
        assert [one.error_code for one in told] == [ErrorCode.INVALID_REQUEST]
    assert broker.ask(metadata("t"), 12).topics[0].error_code == ErrorCode.NONE


def test_kafkas_metadata_log_is_no_topic(new_broker: Any) -> None:
    broker = new_broker()
    assert broker.ask(create_topic("__cluster_metadata"), 7).topics[0].error_code == ErrorCode.INVALID_REQUEST
    (told,) = broker.ask(metadata("__cluster_metadata"), 9).topics
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "__cluster_metadata" not in broker.broker.image.topics


def test_whoever_authenticates_where_nobody_asks_is_told_so(broker: Any) -> None:
    answer = broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert broker.ask(metadata(), 9).brokers


def test_without_an_authorizer_security_is_disabled(broker: Any) -> None:
    def rules(operation: int) -> DescribeAclsRequest:
        return DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=operation,
            permission_type=1,
        )

    assert broker.ask(rules(1), 3).error_code == ErrorCode.SECURITY_DISABLED
    with pytest.raises(ProtocolError):
        broker.ask(rules(0), 3)


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (2, 114), (0, 115), (3, 115), (-1, 115)])
def test_clusters_are_described_by_their_brokers(broker: Any, kind: int, code: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
    answer = broker.ask(request, 1)
    assert (answer.error_code, answer.endpoint_type) == (code, 1)


def test_every_bad_record_is_named_on_the_short_way_too(broker: Any) -> None:
    broker.new_topic("t", cleanup_policy="compact")
    good = one_batch(b"a", keys=[b"k"])
    for _ in range(2):  # the second is repeated from what the first was like
        assert not broker.ask(produce("t", good), 9).responses[0].partition_responses[0].error_code
    bad = one_batch(b"a", b"b", b"c", keys=[None, b"k", None])
    (told,) = broker.ask(produce("t", bad), 9).responses[0].partition_responses
    assert told.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in told.record_errors] == [0, 2]


def test_the_last_entry_of_a_partition_says_whether_it_is_of_a_transaction(broker: Any) -> None:
    broker.new_topic("t")
    of_transaction = one_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce_to_many("t", [(0, of_transaction), (0, one_batch(b"b"))])
    request.transactional_id = "tx"
    answers = broker.ask(request, 9).responses[0].partition_responses
    assert [(each.index, each.error_code, each.base_offset) for each in answers] == [(0, ErrorCode.NONE, 0)]
