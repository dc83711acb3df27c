"""The small parts of a consumer, as values: subscriptions, cursors, commits, prefixes of what is done."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from ottla.client.consumer.columns import arrow_of
from ottla.client.consumer.commits import (
    Answered,
    AutoCommit,
    Identity,
    Outcome,
    answer_of,
    as_offsets,
    commit_request,
)
from ottla.client.consumer.cursor import Cursor
from ottla.client.consumer.fetched import Answer, Reader
from ottla.client.consumer.interceptors import ConsumerInterceptor, Interceptors
from ottla.client.consumer.positions import Position
from ottla.client.consumer.processing import Prefix, lane_of
from ottla.client.consumer.subscription import BrokerPattern, Pattern, Subscription, checked_topics
from ottla.client.errors import UsageError
from ottla.client.serializers.extras import extra
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.errors import ConfigError, ErrorCode, RecordsError
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.records import batch, codec
from ottla.records.control import EndTransactionMarker, build_marker
from ottla.records.layout import Compression

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, partition: int = 0, key: bytes | None = None) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("t", partition, offset, 0, 0, key, b"v", leader_epoch=4)


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_topics_partitions_and_patterns_exclude_each_other() -> None:
    subscription = Subscription()
    subscription.subscribe(checked_topics(["a", "b"]))
    assert subscription.topics == {"a", "b"}
    with pytest.raises(UsageError, match="unsubscribe"):
        subscription.assign([P0])
    subscription.unsubscribe()
    subscription.assign([P0])
    assert not subscription.is_of_group
    with pytest.raises(UsageError, match="unsubscribe"):
        subscription.subscribe(BrokerPattern("x"))


def test_a_change_is_noticed_and_the_same_again_is_none() -> None:
    subscription = Subscription()
    subscription.subscribe(checked_topics(["a"]))
    version = subscription.version
    subscription.subscribe(checked_topics(["a"]))
    assert subscription.version == version
    subscription.subscribe(checked_topics(["a", "b"]))
    assert subscription.version > version


def test_a_pattern_fits_whole_names_and_leaves_internal_topics_out() -> None:
    subscription = Subscription()
    subscription.subscribe(Pattern(re.compile("a.*|__x")))
    topics = {"a1": False, "ba": False, "__x": True}
    assert subscription.topics_seen(topics, leave_out_internal=True)
    assert subscription.topics == {"a1"}
    assert not subscription.topics_seen(topics, leave_out_internal=True)
    assert subscription.topics_seen(topics, leave_out_internal=False)
    assert subscription.topics == {"a1", "__x"}


def test_names_that_no_topic_can_have_are_refused() -> None:
    with pytest.raises(UsageError, match="a b"):
        checked_topics(["a b"])
    with pytest.raises(TypeError, match=r"write \['abc'\]"):
        checked_topics("abc")


# -- a cursor ----------------------------------------------------------------------------------------------------------


def test_what_an_iteration_has_not_given_out_is_unread() -> None:
    cursor = Cursor()
    records = [record(0), record(1), record(5, 1), record(2)]
    given = cursor.fill(records)
    assert next(given).offset == 0
    assert cursor.unread_count == 3
    assert cursor.unread_positions({P0, P1}) == {P0: Position(1, 4), P1: Position(5, 4)}
    assert cursor.unread_positions({P1}) == {P1: Position(5, 4)}
    cursor.drop([P1])
    assert [each.offset for each in cursor.take(1)] == [1]
    assert [each.offset for each in cursor.iterator] == [2]
    assert cursor.unread() == []


def test_what_is_put_back_is_read_again_from_its_first_record() -> None:
    cursor = Cursor()
    next(cursor.fill([record(0), record(1), record(5, 1)]))
    assert cursor.put_back([P0]) == {P0: Position(1, 4)}
    assert [each.partition for each in cursor.unread()] == [1]


def test_a_hook_may_change_what_is_given_out_and_its_failures_hurt_nobody() -> None:
    class Upper(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
            return [each._replace(value=each.value and each.value.upper()) for each in records]

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
            raise LookupError

    hooks = Interceptors([Broken(), Upper()])
    assert [each.value for each in hooks.on_consume([record(0)])] == [b"V"]
    hooks.on_commit({P0: OffsetAndMetadata(1)})
    hooks.close()
    assert not Interceptors([])


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_carries_who_commits_and_the_epoch_of_what_was_read() -> None:
    offsets = {**as_offsets({P0: Position(5, 2)}), P1: OffsetAndMetadata(7, "note")}
    request = commit_request("g", Identity("m", 3, "i"), offsets)
    assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("g", "m", 3)
    (topic,) = request.topics
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
        for each in topic.partitions
    ] == [(0, 5, 2, ""), (1, 7, -1, "note")]


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ([ErrorCode.NONE, ErrorCode.NONE], Outcome.DONE),
        ([ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], Outcome.RETRY),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], Outcome.COORDINATOR),
        ([ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE], Outcome.REBALANCING),
        ([ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NONE], Outcome.OUTDATED),
        ([ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS], Outcome.NOT_A_MEMBER),
        ([ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_MEMBER_ID], Outcome.FAILED),
        ([12345, ErrorCode.NONE], Outcome.FAILED),
    ],
)
def test_a_commit_is_as_good_as_its_worst_partition(codes: list[int], outcome: Outcome) -> None:
    partitions = [OffsetCommitResponsePartition(partition_index=at, error_code=code) for at, code in enumerate(codes)]
    found = answer_of(OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)]))
    assert found.outcome is outcome
    if outcome is Outcome.DONE:
        assert found == Answered(Outcome.DONE)


def test_automatic_commits_come_an_interval_apart_and_sooner_after_a_failure() -> None:
    auto = AutoCommit(5.0)
    assert not auto.take_due(100.0)
    assert not auto.take_due(104.9)
    assert auto.take_due(105.0)
    assert not auto.take_due(106.0)
    auto.again_at(106.5)
    assert auto.take_due(106.5)


# -- answers -----------------------------------------------------------------------------------------------------------


def batch_at(base_offset: int, count: int, **options: Any) -> bytes:
    values = [b"%d" % number for number in range(base_offset, base_offset + count)]
    return bytes(batch.build(None, values, 7, base_offset=base_offset, leader_epoch=4, **options))


def answer(data: bytes, start: int, aborted: list[AbortedTransaction] | None = None) -> Answer:
    found = PartitionData(partition_index=0, high_watermark=0, aborted_transactions=aborted, records=None)
    return Answer(P0, start, memoryview(data), found)


def test_an_answer_is_handed_out_from_where_it_was_asked_for_in_pieces() -> None:
    found = answer(batch_at(0, 5) + batch_at(5, 5), start=2)
    taken = found.take(4, Reader())
    assert [each.offset for each in taken.records] == [2, 3, 4, 5]
    assert taken.position == Position(6, 4)
    assert not found.is_done()
    assert [each.offset for each in found.take(100, Reader()).records] == [6, 7, 8, 9]
    assert found.is_done()
    assert found.position == Position(10, 4)


def test_what_nobody_may_see_moves_the_position_all_the_same() -> None:
    transaction = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    marker = bytes(build_marker(9, 0, EndTransactionMarker(False, 0), 5, base_offset=3, leader_epoch=4))
    found = answer(
        batch_at(0, 3, **transaction) + marker, 0, aborted=[AbortedTransaction(producer_id=9, first_offset=0)]
    )
    assert not found.is_done(), "its reader has yet to move past it"
    taken = found.take(100, Reader())
    assert taken.records == []
    assert taken.position == Position(4, 4)
    assert found.is_done()


def test_whole_batches_can_be_taken_for_columns() -> None:
    found = answer(batch_at(0, 5) + batch_at(5, 5) + batch_at(10, 5), start=2)
    batches, position = found.take_batches(7)
    assert [(each.start_offset, each.end_offset) for each in batches] == [(2, 5)]
    assert position == Position(5, 4)
    batches, position = found.take_batches(100)
    assert [(each.start_offset, each.end_offset) for each in batches] == [(5, 10), (10, 15)]
    assert found.is_done()


def test_columns_go_on_where_records_were_given_out_one_by_one() -> None:
    found = answer(batch_at(0, 5) + batch_at(5, 5), start=0)
    assert len(found.take(3, Reader()).records) == 3
    batches, _ = found.take_batches(100)
    assert [(each.start_offset, each.end_offset) for each in batches] == [(3, 5), (5, 10)]


def test_a_callable_may_replace_what_cannot_be_read() -> None:
    def load(data: bytes, context: object) -> int:
        if data == b"1":
            raise ValueError("one")
        return int(data)

    reader = Reader(value=load, on_bad_record=lambda bad, error: bad._replace(value=str(error)))
    values = [each.value for each in answer(batch_at(0, 3), 0).take(10, reader).records]
    assert values == [0, "the value of the record at offset 1 of t-0 cannot be read: one", 2]


def test_what_cannot_be_decoded_is_an_error_at_every_call_and_what_came_before_is_given_out_first() -> None:
    damaged = bytearray(batch_at(5, 5, compression=Compression.GZIP))
    damaged[-8:] = bytes(8)  # the checksum is of these bytes, by a producer that compresses badly
    damaged[17:21] = codec.crc32c(memoryview(damaged)[21:]).to_bytes(4, "big")
    found = answer(batch_at(0, 5) + bytes(damaged) + batch_at(10, 5), start=0)
    assert [each.offset for each in found.take(100, Reader()).records] == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(RecordsError):
            found.take(100, Reader())
    assert found.position == Position(5, 4)


def test_a_callable_that_fails_leaves_the_record_where_it_is() -> None:
    def load(data: bytes, context: object) -> int:
        return int(data) // (int(data) - 1)

    def give_up(bad: object, error: object) -> None:
        raise LookupError("no such replacement")

    found = answer(batch_at(0, 1) + batch_at(1, 2), 0)
    reader = Reader(value=load, on_bad_record=give_up)
    assert len(found.take(10, reader).records) == 1
    for _ in range(2):
        with pytest.raises(LookupError):
            found.take(10, reader)
    assert found.position.offset == 1


def test_a_cursor_gives_out_one_partition_at_a_time() -> None:
    cursor = Cursor()
    assert cursor.take_of_one() == []
    cursor.fill([record(1), record(2), record(7, partition=1)])
    assert [each.offset for each in cursor.take_of_one()] == [1, 2]
    assert cursor.unread_positions([P0, P1]) == {P1: Position(7, 4)}
    assert [each.offset for each in cursor.take_of_one()] == [7]


# -- processing --------------------------------------------------------------------------------------------------------


def test_only_a_finished_prefix_counts() -> None:
    prefix = Prefix()
    records = [record(offset) for offset in (3, 4, 7)]
    for each in records:
        prefix.take(each)
    prefix.finish(records[1])
    assert prefix.first_unfinished == Position(3, 4)
    prefix.finish(records[0])
    assert prefix.first_unfinished == Position(7, 4)
    prefix.finish(records[2])
    assert prefix.first_unfinished is None


def test_records_share_a_lane_where_their_order_matters() -> None:
    a, b, c = record(0, key=b"x"), record(1, key=b"x"), record(2, key=b"y")
    assert lane_of(a, "key") == lane_of(b, "key") != lane_of(c, "key")
    assert lane_of(a, "partition") == lane_of(c, "partition") != lane_of(record(0, 1), "partition")
    assert lane_of(a, "none") != lane_of(b, "none")
    assert lane_of(record(0), "key") != lane_of(record(1), "key"), "without a key there is no order to keep"


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_without_arrow_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # an import of it fails
    extra.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[arrow\]'"):
        arrow_of([])
