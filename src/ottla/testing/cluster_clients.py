"""librdkafka as tests of a cluster use it: every record acknowledged by all replicas in sync, and read again."""

from __future__ import annotations

from typing import Any, Protocol

from confluent_kafka import Consumer, ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]


class Bootstrap(Protocol):
    """A cluster, as a client finds it."""

    @property
    def bootstrap_servers(self) -> str: ...


def create_topic(cluster: Bootstrap, name: str, partitions: int = 1, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(60)


def create_assigned(
    cluster: Bootstrap, name: str, *assignment: list[int], config: dict[str, str] | None = None
) -> None:
    """A topic whose replicas are where the test wants them: for each partition its brokers, the preferred one first."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic(name, len(assignment), replica_assignment=[*assignment], config=config or {})
    for future in admin.create_topics([topic]).values():
        future.result(60)


def elect_preferred(cluster: Bootstrap, *partitions: TopicPartition) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for error in admin.elect_leaders(ElectionType.PREFERRED, [*partitions]).result(60).values():
        assert error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED, error


def produce(producer: Producer, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Every record is acknowledged by all replicas in sync."""
    failures: list[object] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert failures == []


def consume(cluster: Bootstrap, topic: str, amount: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        while len(found) < amount:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {amount} came"
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        return found
    finally:
        consumer.close()


def new_producer(cluster: Bootstrap, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0, **settings})
