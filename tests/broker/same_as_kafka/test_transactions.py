"""Transactions: lives, introductions, strangers, markers, offsets, lists, time."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.testing.side_by_side import Brokers, Conversations, TransactionSide
from ottla.testing.side_by_side.groups import wait_for_group_coordinator

pytestmark = pytest.mark.slow

conversations = Conversations(TransactionSide)


@conversations.add
def a_life_in_version_2(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx")
    side.describe(producer.transactional_id)
    side.produce(producer, topic, 0)
    side.describe(producer.transactional_id)
    side.readable(topic)
    side.end(producer, commit=True)
    side.rest(producer)
    side.readable(topic)
    side.end(producer, commit=True)  # asked again
    side.end(producer, commit=False)
    producer.epoch += 1
    side.end(producer, commit=True)  # nothing was begun
    side.end(producer, commit=False)
    side.rest(producer)
    side.end(producer, commit=False)  # asked again
    side.end(producer, commit=True)
    producer.epoch += 1
    side.produce(producer, topic, 3)
    side.produce(producer, topic, 0)
    side.produce(producer, topic, 0)
    side.end(producer, commit=False)
    side.rest(producer)
    side.readable(topic)
    side.producers(topic)


@conversations.add
def a_life_in_version_1(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx", version=1)
    side.end(producer, commit=True, version=4)
    side.end(producer, commit=False, version=4)
    side.produce(producer, topic, 0, version=10)
    side.produce(producer, topic, 0, version=11)
    side.add(producer, topic, 0)
    side.add(producer, topic, 0, version=0)
    side.add(producer, topic, 0, 1)
    side.describe(producer.transactional_id)
    side.produce(producer, topic, 0, version=11)
    side.produce(producer, topic, 0, version=9)  # sent again
    side.produce(producer, topic, 5, version=11)
    side.produce(producer, topic, 1, version=11, id=None, is_transactional=False)
    side.end(producer, commit=True, version=3)
    side.rest(producer)
    side.end(producer, commit=True, version=4)
    side.end(producer, commit=False, version=4)
    side.produce(producer, topic, 1, version=11)
    side.add(producer, topic, 0)
    side.produce(producer, topic, 1, version=11)
    side.end(producer, commit=False, version=4)
    side.rest(producer)
    side.readable(topic)
    side.producers(topic)


@conversations.add
def introductions(side: TransactionSide) -> None:
    side.producer("other")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        side.init("tx", timeout_ms=timeout_ms, waits=False)
    side.init("", waits=False)
    side.init("tx", producer_id=5, waits=False)
    side.init("tx", producer_epoch=5, waits=False)
    first = side.init("tx", producer_id=5, producer_epoch=3)
    known = {"producer_id": first.producer_id}
    side.init("tx", **known, producer_epoch=0)
    side.init("tx", **known, producer_epoch=0)  # the answer was lost
    side.init("tx", **known, producer_epoch=1)
    side.init("tx", **known, producer_epoch=0)
    side.init("tx", **known, producer_epoch=0, version=3)
    side.init("tx")
    side.init("tx", **known, producer_epoch=2)
    side.init("tx", producer_id=first.producer_id + 1000, producer_epoch=3)
    side.describe(side.name("tx"))


@conversations.add
def a_successor_fences(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    for version in (1, 2):
        producer = side.producer(f"tx-{version}", version=version)
        assert not producer.send(topic, b"v").error_code
        side.init(f"tx-{version}", waits=False)
        side.rest(producer)
        side.end(producer, commit=True)
        side.end(producer, commit=False)
        side.end(producer, commit=True, version=4)
        side.end(producer, commit=True, version=1)
        side.add(producer, topic, 0)
        side.add(producer, topic, 0, version=1)
        side.produce(producer, topic, 1, version=11)
        side.produce(producer, topic, 1, version=12)
        side.init(f"tx-{version}", producer_id=producer.producer_id, producer_epoch=producer.epoch)
        side.init(f"tx-{version}")


@conversations.add
def strangers_and_nonsense(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx")
    for other in ({"epoch": 7}, {"producer_id": 10**9}, {"id": "nobody"}, {"id": ""}):
        side.add(producer, topic, 0, **other)
        side.end(producer, commit=True, **other)
        side.end(producer, commit=False, version=4, **other)
        side.produce(producer, topic, 0, version=12, **other)
        side.produce(producer, topic, 0, version=11, **other)
    side.add(producer, side.name("nothing"), 0)
    side.add(producer, topic, 0, 9)
    side.produce(producer, topic, 0, version=12, id=None)
    side.produce(producer, topic, 0, version=9, id=None)
    side.describe("nobody")
    side.describe("")


@conversations.add
def brokers_ask_for_many(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx")

    def entry(partition: int, **fields: Any) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            **{
                "transactional_id": producer.transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "topics": [AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
                **fields,
            }
        )

    for version in (4, 5):
        side.add_many(version, entry(0, verify_only=True))
        side.add_many(version, entry(0), entry(0, transactional_id="nobody"))
        side.add_many(version, entry(0, verify_only=True), entry(0, verify_only=True, transactional_id="nobody"))
        side.add_many(version, entry(1, verify_only=True))
        side.add_many(version, entry(0, producer_epoch=9))
        side.add_many(version, entry(0, producer_epoch=9, verify_only=True))
        side.add_many(version, entry(0, producer_id=9, verify_only=True))
        side.add_many(version, entry(9))
    side.end(producer, commit=False)
    side.rest(producer)


@conversations.add
def markers_by_request(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx")
    side.produce(producer, topic, 0)
    side.markers(2, producer, topic, 0, commit=False, transaction_version=2)
    side.markers(2, producer, topic, 0, 5, commit=False, epoch=1, transaction_version=2)
    side.producers(topic)
    side.readable(topic)
    side.markers(2, producer, topic, 0, commit=False, epoch=1, transaction_version=2)
    side.markers(1, producer, topic, 0, commit=False)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=-1)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=7)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=6)
    side.markers(1, producer, side.name("nothing"), 0, commit=True, epoch=2)
    side.produce(producer, topic, 1, version=12)
    side.produce(producer, topic, 1, version=11)
    side.producers(topic)


@conversations.add
def a_hanging_transaction(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    producer = side.producer("tx", version=1)
    side.add(producer, topic, 0)
    side.produce(producer, topic, 0, version=11)
    side.markers(1, producer, topic, 0, commit=False)  # somebody aborts by hand
    side.produce(producer, topic, 1, version=11)
    side.producers(topic)
    side.readable(topic)
    side.end(producer, commit=True, version=4)
    side.rest(producer)
    side.readable(topic)


@conversations.add
def offsets_in_transactions(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    wait_for_group_coordinator(side.client, side.name("group"))
    producer = side.producer("tx")
    for version in (0, 2, 3, 4):
        side.offsets(producer, topic, version)
    for version in (3, 5):
        side.offsets(producer, topic, version, epoch=7)
        side.offsets(producer, topic, version, id="nobody")
        side.offsets(producer, topic, version, id="")
        side.offsets(producer, topic, version, group="")
        side.offsets(producer, side.name("nothing"), version)
    side.offsets(producer, topic, 5)
    side.offsets(producer, topic, 5, offset=6)
    side.offsets(producer, topic, 3, offset=7)
    side.committed(topic, stable=True)
    side.committed(topic, stable=False)
    side.end(producer, commit=True)
    side.rest(producer)
    side.committed(topic, stable=True)
    side.offsets(producer, topic, 4)
    producer.epoch += 1
    for version, epoch in ((3, 1), (1, 1), (3, 0), (1, 0)):
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            group_id=side.name("group"),
        )
        side.note("add offsets", version, epoch, ErrorCode(side.client.ask(request, version).error_code).name)
    side.offsets(producer, topic, 3, offset=99)
    side.end(producer, commit=False)
    side.rest(producer)
    side.committed(topic, stable=True)


@conversations.add
def lists(side: TransactionSide) -> None:
    topic, _ = side.new_topic("t", 2)
    busy = side.producer("busy")
    side.producer("idle")
    side.produce(busy, topic, 0)
    side.list(0)
    side.list(state_filters=["Ongoing"])
    side.list(state_filters=["Ongoing", "Empty", "Nonsense", "Dead"])
    side.list(state_filters=["ongoing"])
    side.list(producer_id_filters=[busy.producer_id])
    side.list(producer_id_filters=[10**9])
    side.list(1, duration_filter=0)
    side.list(1, duration_filter=10**9)
    side.list(1, duration_filter=-5)
    side.list(transactional_id_pattern=".*busy")
    side.list(transactional_id_pattern="busy")
    side.list(transactional_id_pattern="")
    side.list(transactional_id_pattern="[")
    side.end(busy, commit=False)
    side.rest(busy)


@conversations.add
def time_is_up(side: TransactionSide) -> None:
    for version in (1, 2):
        producer, topic = side.begin_briefly(f"tx-{version}", timeout_ms=300, version=version)
        side.rest(producer)
        side.readable(topic)
        for end_version in (4, 5):
            side.end(producer, commit=True, version=end_version)
            side.end(producer, commit=False, version=end_version)
        side.produce(producer, topic, 1, version=11)
        side.init(side.own_name(producer.transactional_id), producer_id=producer.producer_id, producer_epoch=0)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
