"""Clients commit, abort, copy with the offsets of their group, and read only what is committed."""

from __future__ import annotations

import base64
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.clients import CLIENTS, Sent
from ottla.testing.waiting import WAIT_S

COUNT = 30
numbers = count()


@pytest.fixture
def referee(drivers):
    """Another client than the one on trial, whose transactions are known to work."""
    return drivers.of(next(client for client in CLIENTS if client.name == "confluent-kafka"))


def transact(driver, topic, *values, commit):
    encoded = [base64.b64encode(value).decode() for value in values]
    driver.do("transact", topic=topic, transactional_id=f"{topic}-tx", values=encoded, commit=commit)


def values(records):
    return [record.value for record in records]


@pytest.mark.feature("transactions")
def test_what_is_committed_is_read_and_what_is_aborted_is_not(driver, referee, make_topic):
    topic = make_topic()
    transact(driver, topic, b"a", b"b", commit=True)
    transact(driver, topic, b"never", b"seen", commit=False)
    transact(driver, topic, b"c", commit=True)
    assert values(referee.consume(topic, 3)) == [b"a", b"b", b"c"]


@pytest.mark.feature("copy with offsets in a transaction")
def test_a_topic_is_copied_with_the_offsets_of_the_group(driver, referee, judged, make_topic):
    source, target = make_topic(), make_topic()
    referee.produce(source, [Sent(b"value %d" % number) for number in range(COUNT)])
    group = f"copy-{next(numbers)}"
    driver.do("copy", source=source, target=target, group=group, transactional_id=f"{group}-tx", count=COUNT)
    assert values(referee.consume(target, COUNT)) == [b"value %d" % number for number in range(COUNT)]
    consumer = Consumer({"bootstrap.servers": judged.bootstrap, "group.id": group})
    assert consumer.committed([TopicPartition(source, 0)], timeout=WAIT_S)[0].offset == COUNT
    consumer.close()


@pytest.mark.feature("read only what is committed")
def test_aborted_records_are_passed_over(driver, referee, make_topic):
    topic = make_topic()
    for number in range(10):
        transact(referee, topic, b"%d" % number, commit=number % 3 == 0)
    transact(referee, topic, b"last", commit=True)
    assert values(driver.consume(topic, 5)) == [b"0", b"3", b"6", b"9", b"last"]
