"""Brokers that form a cluster on a real ZooKeeper, asked by librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.testing.cluster import Cluster
from ottla.testing.waiting import wait_until

numbers = count(1)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    made = ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def connect(ensemble: ZooKeeperEnsemble) -> str:
    """A place in the ensemble for each test."""
    return f"{ensemble.connect}/cluster-{next(numbers)}"


def create_topic(cluster: Cluster, name: str, partitions: int = 1, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(60)


def produce(producer: Producer, topic: str, values: list[bytes]) -> None:
    """Every record is acknowledged by all replicas in sync."""
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert failures == []


def consume(cluster: Cluster, topic: str, amount: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < amount:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {amount} came"
            assert message.error() is None, message.error()
            found.append(message.value())
        return found
    finally:
        consumer.close()


def new_producer(cluster: Cluster, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0, **settings})


def test_a_topic_of_three_replicas_takes_records_and_gives_them_back(connect: str) -> None:
    with Cluster(connect) as cluster:
        create_topic(cluster, "t", partitions=3)
        assert cluster.stored("/brokers/topics/t")["version"] == 3
        assert sorted(cluster.state("t", 0)["isr"]) == [1, 2, 3]
        values = [b"%d" % number for number in range(100)]
        produce(new_producer(cluster), "t", values)
        assert consume(cluster, "t", 100) == values
        partitions = [broker.running.replicas.find("t", 0) for broker in cluster.brokers.values()]
        assert [partition.is_leader for partition in partitions].count(True) == 1
        wait_until(lambda: [partition.high_watermark for partition in partitions] == [100, 100, 100])
