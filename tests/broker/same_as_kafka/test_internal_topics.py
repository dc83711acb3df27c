"""What clients may do to the topics of the coordinators, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, TransactionSide
from ottla.testing.side_by_side.groups import wait_for_group_coordinator

pytestmark = pytest.mark.slow

conversations = Conversations(TransactionSide)

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


def _trim(topic: str, partition: int) -> DeleteRecordsRequest:
    entry = DeleteRecordsPartition(partition_index=partition, offset=-1)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[entry])], timeout_ms=5000)


def _codes(answer: Any) -> Any:
    return [topic.error_code for topic in answer.topics]


@conversations.add
def records_are_not_deleted(side: TransactionSide) -> None:
    topic, _ = side.new_topic("plain")
    wait_for_group_coordinator(side.client, side.name("group"))
    side.producer("tx")
    for version in (0, 1, 2):
        for internal in (OFFSETS, TRANSACTIONS):
            side.ask(_trim(internal, 0), version)
            side.ask(_trim(internal, 4_000), version)
        side.ask(_trim(SHARES, 0), version)
        side.ask(_trim(topic, 0), version)


@conversations.add
def records_are_not_produced(side: TransactionSide) -> None:
    wait_for_group_coordinator(side.client, side.name("group"))
    producer = side.producer("tx")
    for version in (7, 9, 12):
        for internal in (OFFSETS, TRANSACTIONS, SHARES):
            side.ask(produce(internal, one_batch(b"mine"), partition=1), version)
    side.produce(producer, OFFSETS, 0)
    side.produce(producer, TRANSACTIONS, 0, version=11)


@conversations.add
def partitions_do_not_take_part_in_a_clients_transaction(side: TransactionSide) -> None:
    topic, _ = side.new_topic("plain")
    wait_for_group_coordinator(side.client, side.name("group"))
    for version in (0, 1, 2, 3):
        producer = side.producer(f"tx-{version}", version=1)
        side.add(producer, OFFSETS, 0, 1, version=version)
        side.add(producer, OFFSETS, 4_000, version=version)
        side.add(producer, SHARES, 0, version=version)
        side.add(producer, TRANSACTIONS, 3, version=version)
        side.add(producer, topic, 0, version=version)
        side.describe(producer.transactional_id)


@conversations.add
def topics_are_made_and_widened_like_others(side: TransactionSide) -> None:
    wait_for_group_coordinator(side.client, side.name("group"))
    for version in (5, 7):
        side.ask(create_topic(OFFSETS, validate_only=True), version, note=_codes)
        side.ask(create_topic(SHARES, validate_only=True), version, note=_codes)
    for version in (2, 3):
        entry = CreatePartitionsTopic(name=OFFSETS, count=1, assignments=None)
        side.ask(CreatePartitionsRequest(topics=[entry], timeout_ms=5000, validate_only=True), version)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
