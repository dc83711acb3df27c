"""The futures of records: each is decided once, also when its batch is split."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.client.errors import TimedOutError
from ottla.client.producer.deliveries import Delivery, RecordFuture, settled
from ottla.ids import TopicPartition
from ottla.testing.loop import run

PLACE = TopicPartition("orders", 3)


def delivery(count: int) -> Delivery:
    made = Delivery(PLACE)
    made.timestamps = [1000 + number for number in range(count)]
    return made


def test_the_records_of_a_batch_have_its_offsets():
    batch = delivery(3)
    futures = [RecordFuture(batch, number) for number in range(3)]
    assert not futures[0].done()
    batch.acknowledged(70)
    assert [future.result().offset for future in futures] == [70, 71, 72]
    assert futures[1].result() == ("orders", 3, 71, 1001)


def test_the_brokers_time_takes_the_place_of_the_producers():
    batch = delivery(1)
    batch.acknowledged(7, append_time=5000)
    assert RecordFuture(batch, 0).result().timestamp == 5000


def test_an_unknown_offset_is_unknown_for_all():
    batch = delivery(2)
    batch.acknowledged(-1)
    assert RecordFuture(batch, 1).result().offset == -1


def test_records_that_are_the_reason_have_an_error_of_their_own():
    batch = delivery(2)
    batch.failed(ValueError("the batch"), {1: KeyError("the record")})
    assert str(RecordFuture(batch, 0).exception()) == "the batch"
    with pytest.raises(KeyError):
        RecordFuture(batch, 1).result()


def test_callbacks_come_in_order_and_one_that_fails_hurts_nobody(caplog):
    batch = delivery(3)
    seen = []
    batch.add_callback(0, lambda metadata, error: seen.append(metadata and metadata.offset))
    batch.add_callback(1, lambda metadata, error: 1 / 0)
    batch.add_callback(2, lambda metadata, error: seen.append(metadata and metadata.offset))
    batch.acknowledged(5)
    assert seen == [5, 7]
    assert "a callback of a record for orders-3 failed" in caplog.text
    RecordFuture(batch, 1).add_done_callback(lambda future: seen.append(future.result().offset))
    assert seen == [5, 7, 6]


def test_a_split_batch_takes_its_futures_and_callbacks_along():
    batch, first, second = delivery(3), delivery(1), delivery(2)
    seen = []
    batch.add_callback(2, lambda metadata, error: seen.append(metadata and metadata.offset))
    future = RecordFuture(batch, 2)
    batch.moved([(1, first, 0), (2, second, 0)])
    first.failed(ValueError("too large still"))
    assert not future.done()
    second.acknowledged(10)
    assert future.result().offset == 11
    assert seen == [11]
    assert isinstance(RecordFuture(batch, 0).exception(), ValueError)
    later = []
    batch.add_callback(1, lambda metadata, error: later.append(metadata and metadata.offset))
    assert later == [10]


def test_awaiting_follows_a_split():
    async def main():
        batch, first, second = delivery(2), delivery(1), delivery(1)
        waiting = asyncio.ensure_future(RecordFuture(batch, 1))
        everything = asyncio.ensure_future(settled(batch))
        await asyncio.sleep(1)
        batch.moved([(1, first, 0), (1, second, 0)])
        second.acknowledged(4)
        assert (await waiting).offset == 4
        assert not everything.done()
        first.acknowledged(3)
        await everything

    run(main())


def test_a_thread_waits_for_what_another_one_decides():
    batch = delivery(1)
    thread = threading.Thread(target=batch.acknowledged, args=(9,))
    thread.start()
    assert RecordFuture(batch, 0).result(60).offset == 9
    thread.join()


def test_waiting_has_an_end():
    with pytest.raises(TimedOutError, match="waiting for the acknowledgement of a record: given up after 0"):
        RecordFuture(delivery(1), 0).result(0)


def test_a_delivery_ends_once():
    batch = delivery(1)
    batch.acknowledged(0)
    with pytest.raises(AssertionError):
        batch.failed(ValueError())
