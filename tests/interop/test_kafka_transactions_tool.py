"""`kafka-transactions` of Apache Kafka against our broker: it lists, describes, finds what hangs and aborts it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import RawProducer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

TOOL_TIMEOUT_S = 120
HANGING_ID = 4242
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": "3"}
    with Broker(settings) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def tool(broker: Broker, *arguments: str) -> list[list[str]]:
    """The table that the tool prints, a list of cells for each line."""
    command = ApacheKafka.resolve(KAFKA_4).java(
        "org.apache.kafka.tools.TransactionsCommand",
        "128m",
        ["--bootstrap-server", broker.bootstrap_servers, *arguments],
        {"defaultLogLevel": "error"},
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def test_the_tool_sees_transactions_as_they_are(broker: Broker, client: RawClient) -> None:
    client.ask(create_topic("t", 2), 7)
    producer = RawProducer(client, "tx")
    producer.init()
    producer.send("t", b"v", partition=1)
    (listed,) = tool(broker, "list")[1:]
    assert listed == ["tx", "1", str(producer.producer_id), "Ongoing"]
    (described,) = tool(broker, "describe", "--transactional-id", "tx")[1:]
    assert described[:6] == ["1", "tx", str(producer.producer_id), "0", "Ongoing", "60000"]
    assert described[-1] == "t-1"
    (seen,) = tool(broker, "describe-producers", "--topic", "t", "--partition", "1")[1:]
    assert seen[:2] == [str(producer.producer_id), "0"]


def test_the_tool_finds_and_aborts_a_hanging_transaction(broker: Broker, client: RawClient) -> None:
    client.ask(create_topic("t"), 7)
    RawProducer(client, "tx").init()
    records = one_batch(
        b"v",
        timestamps=LONG_AGO_MS,
        producer_id=HANGING_ID,
        producer_epoch=5,
        base_sequence=0,
        is_transactional=True,
    )
    client.ask(produce("t", records, transactional_id="nobody"), 9)
    (found,) = tool(broker, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")[1:]
    assert found[:4] == ["t", "0", str(HANGING_ID), "5"]
    tool(broker, "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    assert client.ask(fetch("t", isolation_level=1), 11).responses[0].partitions[0].last_stable_offset == 2
    assert tool(broker, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")[1:] == []
