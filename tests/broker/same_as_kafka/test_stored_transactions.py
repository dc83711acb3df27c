"""What transactions leave in `__transaction_state`: Kafka's own formatter prints our records as it prints its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import list_offsets, metadata
from ottla.testing.raw_transactions import RawProducer
from ottla.testing.side_by_side import Brokers, Side

pytestmark = pytest.mark.slow

TOPIC = "__transaction_state"
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"


def record_count(bootstrap_servers: str) -> int:
    """How many records transactions have left so far."""
    with RawClient(bootstrap_servers) as client:
        partitions = client.ask(metadata(TOPIC), 12).topics[0].partitions
        ends = [
            client.ask(list_offsets(TOPIC, -1, partition=one.partition_index), 7).topics[0].partitions[0].offset
            for one in partitions
        ]
    return sum(ends)


def printed(kafka: ApacheKafka, bootstrap_servers: str, transactional_id: str) -> list[Any]:
    """The records of a transactional id as Kafka's own tool prints them, ids and times by their order."""
    arguments = [
        "--bootstrap-server",
        bootstrap_servers,
        "--topic",
        TOPIC,
        "--from-beginning",
        "--formatter",
        FORMATTER,
    ]
    # It ends with the last record; where there are fewer, compacted away, some time later.
    arguments += ["--max-messages", str(record_count(bootstrap_servers)), "--timeout-ms", "60000"]
    command = kafka.java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "256m", arguments, {"defaultLogLevel": "error"}
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    names: dict[Any, str] = {}
    records = []
    for record in _objects(done.stdout):
        if record["key"]["data"]["transactionalId"] != transactional_id:
            continue
        value = record["value"] and record["value"]["data"]
        for field in ("producerId", "previousProducerId", "nextProducerId") if value else ():
            if value.get(field, -1) >= 0:
                value[field] = names.setdefault(value[field], f"id {len(names)}")
        for field in ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs") if value else ():
            value[field] = value[field] > 0
        records.append(record)
    return records


def _objects(text: str) -> Iterator[Any]:
    """The tool prints one object after the other, on one line."""
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        yield found
        rest = rest[end:].lstrip()


def play(side: Side) -> str:
    """Ends of both kinds by producers of both versions; the transactional id of all of them."""
    topic, _ = side.new_topic("t")
    side.new_producer_id()
    producer = RawProducer(side.client, side.name("tx"))
    producer.init()
    for commit in (True, False):
        producer.send(topic, b"v")
        producer.end(commit=commit)
        producer.wait_for_state("CompleteCommit", "CompleteAbort")
    older = RawProducer(side.client, producer.transactional_id, version=1)
    older.init()
    older.send(topic, b"v")
    older.end(commit=True)
    older.wait_for_state("CompleteCommit")
    older.init(producer_id=older.producer_id, producer_epoch=older.epoch)
    return producer.transactional_id


def test_kafkas_formatter_prints_our_records_as_its_own(brokers: Brokers) -> None:
    kafka = ApacheKafka.resolve(KAFKA_4)
    seen = []
    for bootstrap_servers in (brokers.kafka, brokers.ours):
        with Side(bootstrap_servers, "stored") as side:
            transactional_id = play(side)
        seen.append(printed(kafka, bootstrap_servers, transactional_id))
    theirs, ours = seen
    assert len(theirs) >= 12
    for expected, actual in zip(theirs, ours, strict=True):
        assert actual == expected
