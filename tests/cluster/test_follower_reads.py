"""Consumers read from the follower in their rack (KIP-392), on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

import ottla
from ottla.errors import ErrorCode
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_clients import create_assigned, new_producer, produce
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import fetch, list_offsets
from ottla.testing.scene import values_of
from ottla.testing.waiting import wait_until

SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.fetch.wait.max.ms": "1500",  # a follower hears of a new high watermark at once, not then
    "replica.lag.time.max.ms": "60000",
    "min.insync.replicas": "1",
}


@pytest.fixture(scope="module")
def cluster(shared_ensemble) -> Iterator[Cluster]:
    connect = f"{shared_ensemble.connect}/follower-reads"
    with Cluster(connect, size=2, settings=SETTINGS, racks={1: "a", 2: "b"}) as made:
        yield made


def sessions_of_consumers(cluster: Cluster, node_id: int) -> int:
    """How many readers a broker has that leads nothing: nobody replicates from it."""
    return len(cluster.brokers[node_id].running.fetch_sessions)


def consumer_of_librdkafka(cluster: Cluster, topic: str, rack: str, read_from: list[int]) -> Consumer:
    """`read_from` gets the brokers that it says it reads from."""

    def note(statistics: str) -> None:
        partitions = json.loads(statistics)["topics"].get(topic, {"partitions": {}})["partitions"]
        read_from.extend(each["broker"] for name, each in partitions.items() if name == "0")

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "client.rack": rack,
            "enable.auto.commit": False,
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def read(consumer: Consumer, amount: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < amount:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {amount} came"
        assert message.error() is None, message.error()
        found.append(message.value())
    return found


def test_a_consumer_of_librdkafka_reads_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    create_assigned(cluster, "rd", [1, 2])
    producer = new_producer(cluster)
    produce(producer, "rd", [b"%d" % number for number in range(100)])
    read_from: list[int] = []
    consumer = consumer_of_librdkafka(cluster, "rd", "b", read_from)
    try:
        assert read(consumer, 100) == [b"%d" % number for number in range(100)]
        for number in range(100, 105):  # one at a time: each is committed there before the follower hears of it
            produce(producer, "rd", [b"%d" % number])
            assert read(consumer, 1) == [b"%d" % number]
        wait_until(lambda: consumer.poll(0.1) is None and 2 in read_from)
    finally:
        consumer.close()


def test_our_consumer_reads_from_the_follower_in_its_rack_and_elsewhere_when_that_is_gone(cluster: Cluster) -> None:
    create_assigned(cluster, "own", [1, 2])
    producer = new_producer(cluster)
    produce(producer, "own", [b"%d" % number for number in range(10)])
    before = sessions_of_consumers(cluster, 2)
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap_servers, client_rack="b") as consumer:
        consumer.assign([ottla.TopicPartition("own", 0)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < 10:
            found += [record.value for each in consumer.poll(1).values() for record in each]
        assert sessions_of_consumers(cluster, 2) == before + 1
        cluster.brokers[2].restart()
        produce(producer, "own", [b"10"])
        while len(found) < 11:
            found += [record.value for each in consumer.poll(1).values() for record in each]
    assert found == [b"%d" % number for number in range(11)]
    cluster.wait_for_isr("own", 0, 1, 2)


def test_what_a_follower_serves_and_refuses(cluster: Cluster) -> None:
    create_assigned(cluster, "raw", [1, 2])
    produce(new_producer(cluster), "raw", [b"a", b"b"])
    follower = cluster.brokers[2]
    wait_until(lambda: follower.running.replicas.find("raw", 0).high_watermark == 2)
    epoch = follower.running.replicas.find("raw", 0).leader_epoch

    with RawClient(follower.bootstrap_servers) as client:

        def code(version: int, offset: int = 0, current_leader_epoch: int = -1) -> ErrorCode:
            request = fetch("raw", offset, current_leader_epoch=current_leader_epoch)
            return ErrorCode(client.ask(request, version).responses[0].partitions[0].error_code)

        answer = client.ask(fetch("raw"), 12).responses[0].partitions[0]
        assert values_of(bytes(answer.records)) == [b"a", b"b"]
        assert (answer.high_watermark, answer.preferred_read_replica) == (2, -1)
        assert code(10) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code(11, offset=2) == ErrorCode.NONE
        assert code(11, offset=3) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert code(11, current_leader_epoch=epoch) == ErrorCode.NONE
        assert code(11, current_leader_epoch=epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        latest = client.ask(list_offsets("raw", -1), 7).topics[0].partitions[0]
        assert latest.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
