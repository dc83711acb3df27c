"""librdkafka as tests of a cluster use it: every record acknowledged by all replicas in sync, and read again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.clients import Driver, Sent, StepError
from ottla.testing.cluster import BrokersOfCluster
from ottla.testing.waiting import WAIT_S, wait_until


class Bootstrap(Protocol):
    """A cluster, as a client finds it."""

    @property
    def bootstrap_servers(self) -> str: ...


def create_topic(cluster: BrokersOfCluster, name: str, partitions: int = 1, replicas: int = 3) -> None:
    """A topic that every broker knows when this returns."""
    _create(cluster, NewTopic(name, partitions, replicas), partitions)


def _create(cluster: BrokersOfCluster, topic: NewTopic, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for name, future in admin.create_topics([topic]).items():
        future.result(WAIT_S)
        cluster.wait_for_topic(name, partitions)


def create_assigned(
    cluster: BrokersOfCluster, name: str, *assignment: list[int], config: dict[str, str] | None = None
) -> None:
    """A topic whose replicas are where the test wants them: for each partition its brokers, the preferred one first."""
    topic = NewTopic(name, len(assignment), replica_assignment=[*assignment], config=config or {})
    _create(cluster, topic, len(assignment))


def elect_preferred(cluster: Bootstrap, *partitions: TopicPartition) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for error in admin.elect_leaders(ElectionType.PREFERRED, [*partitions]).result(WAIT_S).values():
        assert error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED, error


def produce(producer: Producer, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Every record is acknowledged by all replicas in sync."""
    failures: list[object] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(cluster: Bootstrap, topic: str, amount: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while len(found) < amount:
            message = consumer.poll(WAIT_S)
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


# -- load: one record after the other, each acknowledged by all replicas in sync --------------------------------------

IN_FLIGHT_MAX: Final = 20
PAUSE_S: Final = 0.002


class Load:
    """Writes numbers to a partition with an idempotent producer of librdkafka until `end`."""

    def __init__(self, cluster: Bootstrap, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self._open(cluster)
        self._thread.start()

    def _open(self, cluster: Bootstrap) -> None:
        self._producer = new_producer(cluster, **{"enable.idempotence": True})

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set() and not self.failures:
            value = b"%d" % number
            self._write(value)
            number += 1

    def _write(self, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=self._partition, on_delivery=self._delivered)
        assert self._producer.flush(WAIT_S) == 0
        self.acknowledged.append(value)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failures.append(error)

    def wait_for_more(self, count: int = 20) -> None:
        enough = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= enough or self.failures)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


class LoadInFlight(Load):
    """The same with several records in flight at a time: what is retried must not overtake or double the others."""

    def _write(self, value: bytes) -> None:
        def delivered(error: KafkaError | None, message: object) -> None:
            self._delivered(error, message)
            if error is None:
                self.acknowledged.append(value)

        self._producer.produce(self._topic, value, partition=self._partition, on_delivery=delivered)
        self._producer.poll(PAUSE_S)
        while len(self._producer) >= IN_FLIGHT_MAX and not self.failures:
            self._producer.poll(PAUSE_S)

    def end(self) -> None:
        super().end()
        assert self._producer.flush(WAIT_S) == 0


class JavaLoad(Load):
    """The same with Java's producer; `command` starts its driver."""

    def __init__(self, cluster: Bootstrap, topic: str, partition: int, command: Sequence[str]) -> None:
        self._command = command
        super().__init__(cluster, topic, partition)

    def _open(self, cluster: Bootstrap) -> None:
        self._driver = Driver(self._command, cluster.bootstrap_servers)

    def _write(self, value: bytes) -> None:
        try:
            self._driver.send(self._topic, [Sent(value, partition=self._partition)])
            self.acknowledged.append(value)
        except StepError as error:
            self.failures.append(error)

    def end(self) -> None:
        super().end()
        self._driver.close()


# -- groups whose coordinator moves: until the client knows the new one, its calls fail --------------------------------


def commit(consumer: Consumer, **what: Any) -> None:
    """Commits what the consumer has read, or the given message; it is committed when this returns."""

    def is_committed() -> bool:
        try:
            consumer.commit(asynchronous=False, **what)
        except KafkaException:
            return False
        return True

    wait_until(is_committed)


def wait_for_committed(consumer: Consumer, topic: str, *offsets: int) -> None:
    """Until the consumer's group has committed these offsets in the first partitions of a topic."""
    partitions = [TopicPartition(topic, partition) for partition in range(len(offsets))]

    def committed() -> list[int]:
        try:
            return [found.offset for found in consumer.committed(partitions, WAIT_S)]
        except KafkaException:
            return []

    wait_until(lambda: committed() == [*offsets])
