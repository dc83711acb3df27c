"""Fetch: long polls, order, sessions, limits and what readers of transactions may see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.records import batch
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient, wait_until_read
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import RawProducer

NewTopic = Callable[..., tuple[str, UUID]]
Connect = Callable[[], RawClient]
LONG_MS = 50_000
IS_SHORT_S = LONG_MS / 1000 / 2  # whatever else the machine does: nobody waited for the end of a poll
HUNDRED_YEARS_MS = 100 * 365 * 86_400_000


def partition_of(client: RawClient, request: Any, version: int = 11) -> Any:
    return client.ask(request, version).responses[0].partitions[0]


def elapsed(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_long_poll_ends_when_a_record_comes(connect: Connect, new_topic: NewTopic) -> None:
    topic, topic_id = new_topic()
    reader, writer = connect(), connect()
    for version, named in ((11, {"topic": topic}), (16, {"topic": "", "topic_id": topic_id})):
        offset = writer.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset
        reader.send(fetch(offset=offset, max_wait_ms=LONG_MS, **named), version)
        started = time.monotonic()
        time.sleep(0.1)
        writer.ask(produce(topic, one_batch(b"wake up")), 9)
        answer, _ = reader.receive()
        assert time.monotonic() - started < IS_SHORT_S
        assert bytes(answer.responses[0].partitions[0].records)


def test_a_long_poll_ends_when_its_time_is_up_and_not_before(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    assert 0.29 <= elapsed(lambda: client.ask(fetch(topic, max_wait_ms=300), 11)) < IS_SHORT_S
    assert elapsed(lambda: client.ask(fetch(topic, max_wait_ms=LONG_MS, min_bytes=0), 11)) < IS_SHORT_S
    assert elapsed(lambda: client.ask(fetch(topic, max_wait_ms=0), 11)) < IS_SHORT_S


def test_a_long_poll_waits_for_enough_bytes(connect: Connect, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    reader, writer = connect(), connect()
    reader.send(fetch(topic, max_wait_ms=LONG_MS, min_bytes=200), 11)
    for _ in range(3):
        writer.ask(produce(topic, one_batch(b"x" * 20)), 9)
        time.sleep(0.05)
    answer, _ = reader.receive()
    assert len(bytes(answer.responses[0].partitions[0].records)) >= 200


def test_an_error_is_answered_at_once(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for request in (fetch(topic, 5, max_wait_ms=LONG_MS), fetch("unknown", max_wait_ms=LONG_MS)):
        assert elapsed(lambda request=request: client.ask(request, 11)) < IS_SHORT_S  # type: ignore[misc]


def test_deleting_the_topic_ends_a_long_poll(connect: Connect, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    reader, other = connect(), connect()
    reader.send(fetch(topic, max_wait_ms=LONG_MS), 11)
    time.sleep(0.1)
    other.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    started = time.monotonic()
    answer, _ = reader.receive()
    assert time.monotonic() - started < IS_SHORT_S
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_stopping_the_broker_ends_long_polls_and_those_behind_them() -> None:
    with Broker() as broker:
        client = RawClient(broker.bootstrap_servers)
        client.ask(create_topic("t"), 7)
        client.send_together([(fetch("t", max_wait_ms=LONG_MS), 11)] * 5)
        wait_until_read(broker.bootstrap_servers)
        stopping = threading.Thread(target=broker.stop)
        started = time.monotonic()
        stopping.start()
        answers = [client.receive()[0] for _ in range(5)]
        stopping.join()
        assert time.monotonic() - started < IS_SHORT_S, "five long polls did not hold it up"
    assert [answer.responses[0].partitions[0].error_code for answer in answers] == [0] * 5
    assert client.is_ended()
    client.close()


def test_a_long_poll_tells_what_was_deleted_below_it_while_it_waited(connect: Connect, new_topic: NewTopic) -> None:
    topic, _ = new_topic(2)
    reader, other = connect(), connect()
    for _ in range(3):
        other.ask(produce(topic, one_batch(b"x")), 9)
    reader.send(fetch(topic, 3, max_wait_ms=LONG_MS), 11)
    trim = DeleteRecordsPartition(partition_index=0, offset=-1)
    other.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[trim])], timeout_ms=1), 2)
    other.ask(produce(topic, one_batch(b"wake up")), 9)
    answer, _ = reader.receive()
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.log_start_offset, partition.high_watermark) == (0, 3, 4)


def test_answers_keep_their_order_behind_a_long_poll(connect: Connect, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    pipelined, writer = connect(), connect()
    sent = [
        pipelined.send(list_offsets(topic, -1), 7),
        pipelined.send(fetch(topic, max_wait_ms=LONG_MS), 11),
        pipelined.send(produce(topic, one_batch(b"behind it")), 9),
        pipelined.send(list_offsets(topic, -1), 7),
    ]
    first, first_id = pipelined.receive()
    assert (first_id, first.topics[0].partitions[0].offset) == (sent[0].correlation_id, 0)
    time.sleep(0.2)
    assert writer.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset == 0, "it is not looked at yet"
    writer.ask(produce(topic, one_batch(b"wakes it")), 9)
    rest = [pipelined.receive() for _ in range(3)]
    assert [number for _, number in rest] == [one.correlation_id for one in sent[1:]]
    assert rest[1][0].responses[0].partition_responses[0].base_offset == 1
    assert rest[2][0].topics[0].partitions[0].offset == 2


def test_hundreds_of_requests_in_flight_are_answered_in_order(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    sent = client.send_together((produce(topic, one_batch(b"%d" % number)), 9) for number in range(500))
    for number, one in enumerate(sent):
        answer, correlation_id = client.receive()
        partition = answer.responses[0].partition_responses[0]
        assert (correlation_id, partition.base_offset) == (one.correlation_id, number)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_one_batch_larger_than_every_limit_is_returned_whole(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(2)
    large = one_batch(b"x" * 10_000)
    client.ask(produce(topic, large), 9)
    client.ask(produce(topic, one_batch(b"behind"), partition=1), 9)
    answer = client.ask(fetch(topic, partitions=(0, 1), max_bytes=10, partition_max_bytes=10), 11)
    first, second = answer.responses[0].partitions
    assert bytes(first.records)[21:] == large[21:]
    assert bytes(second.records) == b""


def test_a_batch_that_starts_before_the_asked_offset_is_returned_whole(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    client.ask(produce(topic, one_batch(b"a", b"b", b"c")), 9)
    data = bytes(partition_of(client, fetch(topic, 2)).records)
    assert batch.read_header(data).base_offset == 0


def test_an_answer_is_bounded_by_the_brokers_own_limit() -> None:
    with Broker({"fetch.max.bytes": "1024"}) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        for _ in range(10):
            client.ask(produce("t", one_batch(b"x" * 300)), 9)
        assert len(bytes(partition_of(client, fetch("t")).records)) <= 1024


def test_many_segments_are_read_one_after_the_other(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"segment.bytes": "1048576"})
    for number in range(12):
        client.ask(produce(topic, one_batch(bytes([number]) * 300_000)), 9)
    offset, seen = 0, []
    while offset < 12:
        data = bytes(partition_of(client, fetch(topic, offset)).records)
        position = 0
        while position + 61 <= len(data):
            header = batch.read_header(data, position)
            if position + header.batch_length + 12 > len(data):
                break
            seen += [bytes(record.value or b"")[0] for record in batch.iterate(data, position)]
            offset = header.base_offset + 1
            position += header.batch_length + 12
    assert seen == list(range(12))


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_tells_only_what_is_new(connect: Connect, new_topic: NewTopic) -> None:
    topic, _ = new_topic(10)
    reader, writer = connect(), connect()
    session = reader.ask(fetch(topic, partitions=range(10), session_epoch=0), 12).session_id
    assert session > 0

    def more(epoch: int, **entry: Any) -> Any:
        request = fetch(topic, session_id=session, session_epoch=epoch, **{"partitions": (), **entry})
        return reader.ask(request, 12)

    assert more(1).responses == []
    writer.ask(produce(topic, one_batch(b"x"), partition=7), 9)
    told = more(2).responses[0].partitions
    assert [(one.partition_index, one.high_watermark) for one in told] == [(7, 1)]
    moved_on = more(3, offset=1, partitions=(7,))
    assert moved_on.responses == []
    reader.send(fetch(topic, partitions=(), session_id=session, session_epoch=4, max_wait_ms=LONG_MS), 12)
    time.sleep(0.05)
    writer.ask(produce(topic, one_batch(b"y"), partition=2), 9)
    answer, _ = reader.receive()
    assert [one.partition_index for one in answer.responses[0].partitions] == [2]


def test_a_full_cache_serves_readers_without_a_session() -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "2"}
    with Broker(settings) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        sessions = [client.ask(fetch("t", session_epoch=0), 12).session_id for _ in range(4)]
        assert [session > 0 for session in sessions] == [True, True, False, False]
        client.ask(fetch("t", partitions=(), session_id=sessions[0], session_epoch=-1), 12)
        assert client.ask(fetch("t", session_epoch=0), 12).session_id > 0, "the closed one made room"
        gone = client.ask(fetch("t", partitions=(), session_id=sessions[0], session_epoch=1), 12)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def producer(client: RawClient, new_topic: NewTopic) -> tuple[str, RawProducer]:
    """A topic, and a transactional producer that was let in."""
    # Its records are old and the markers are not: by their times they would not stand in one segment.
    topic, _ = new_topic(config={"segment.ms": str(HUNDRED_YEARS_MS)})
    producer = RawProducer(client, f"producer of {topic}", version=1)
    assert not producer.init().error_code
    return topic, producer


def test_committed_readers_stop_at_the_first_open_transaction(
    client: RawClient, producer: tuple[str, RawProducer]
) -> None:
    topic, transactional = producer
    client.ask(produce(topic, one_batch(b"plain")), 9)
    transactional.send(topic, b"open")
    client.ask(produce(topic, one_batch(b"plain too")), 9)
    uncommitted = partition_of(client, fetch(topic))
    committed = partition_of(client, fetch(topic, isolation_level=1))
    assert (uncommitted.high_watermark, committed.high_watermark, committed.last_stable_offset) == (3, 3, 1)
    assert len(bytes(committed.records)) < len(bytes(uncommitted.records))
    assert batch.read_header(bytes(committed.records)).base_offset == 0
    assert bytes(partition_of(client, fetch(topic, 1, isolation_level=1)).records) == b""
    assert client.ask(list_offsets(topic, -1, isolation_level=1), 7).topics[0].partitions[0].offset == 1
    assert client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset == 3
    transactional.end(commit=True)
    committed = partition_of(client, fetch(topic, 1, isolation_level=1))
    assert (committed.last_stable_offset, committed.aborted_transactions) == (4, [])
    assert bytes(committed.records)


def test_the_end_of_a_transaction_ends_a_long_poll_of_committed_readers(
    connect: Connect, producer: tuple[str, RawProducer]
) -> None:
    topic, transactional = producer
    transactional.send(topic, b"open")
    reader = connect()
    reader.send(fetch(topic, isolation_level=1, max_wait_ms=LONG_MS), 11)
    started = time.monotonic()
    time.sleep(0.1)
    transactional.end(commit=True)
    answer, _ = reader.receive()
    assert time.monotonic() - started < IS_SHORT_S
    assert bytes(answer.responses[0].partitions[0].records)


def test_aborted_transactions_are_listed_for_those_who_read_into_them(
    client: RawClient, producer: tuple[str, RawProducer]
) -> None:
    topic, transactional = producer
    transactional.send(topic, b"a")  # 0
    transactional.end(commit=False)  # 1
    transactional.send(topic, b"b")  # 2
    client.ask(produce(topic, one_batch(b"plain")), 9)  # 3
    transactional.end(commit=False)  # 4
    client.ask(produce(topic, one_batch(b"last")), 9)  # 5

    def aborted(offset: int, isolation_level: int = 1) -> list[tuple[int, int]] | None:
        told = partition_of(client, fetch(topic, offset, isolation_level=isolation_level)).aborted_transactions
        return None if told is None else [(one.producer_id, one.first_offset) for one in told]

    producer_id = transactional.producer_id
    assert aborted(0) == [(producer_id, 0), (producer_id, 2)]
    assert aborted(2) == aborted(3) == [(producer_id, 2)]
    assert aborted(5) == [], "it ended before"
    assert aborted(0, isolation_level=0) is None
