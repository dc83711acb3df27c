"""Apache Kafka and our broker beside each other, with the same settings. Starting Kafka takes seconds: share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker
from ottla.testing.broker import Broker

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "60000",
    # Assignments at once: while one is due we tell members to come back earlier than Kafka does.
    "group.consumer.assignment.interval.ms": "0",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
# Kafka's node is number 1 as well; without ZooKeeper it has no `broker.id`.
OUR_SETTINGS = {**SETTINGS, "broker.id": "1"}
# Its controller gathers changes before it writes them, 25 ms as a rule: it need not where every change is waited for.
KAFKA_SETTINGS = {**SETTINGS, "controller.quorum.append.linger.ms": "0"}


@dataclass(frozen=True, slots=True)
class Brokers:
    """Where the two are."""

    kafka: str
    ours: str


@contextmanager
def both_brokers(directory: Path) -> Iterator[Brokers]:
    """Both, until the end of the block; Kafka keeps its files in the directory."""
    apache_kafka = ApacheKafka.resolve(KAFKA_4)
    with KafkaBroker(apache_kafka, directory, KAFKA_SETTINGS) as kafka, Broker(OUR_SETTINGS) as ours:
        yield Brokers(kafka.bootstrap, ours.bootstrap_servers)
