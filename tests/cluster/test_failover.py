"""Brokers of a cluster as processes that are killed: others lead, nothing acknowledged is lost, and they come back."""

from __future__ import annotations

from confluent_kafka import Consumer, Message

from ottla.hashing import partition_of_coordinator
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_clients import (
    commit,
    consume,
    create_topic,
    new_producer,
    produce,
    wait_for_committed,
)
from ottla.testing.waiting import WAIT_S, wait_until

# Whoever is killed in this way is missed when its session ends by itself.
SHORT_SESSIONS = {"zookeeper.session.timeout.ms": "2000"}


def test_a_leader_is_killed_and_comes_back_in_sync_and_nothing_is_lost(connect: str) -> None:
    with Cluster(connect, in_process=False) as cluster:
        create_topic(cluster, "t")
        producer = new_producer(cluster)
        values = [b"%d" % number for number in range(300)]
        produce(producer, "t", values[:100])
        first = cluster.state("t", 0)
        cluster.kill(first["leader"])
        produce(producer, "t", values[100:200])
        second = cluster.state("t", 0)
        assert second["leader"] != first["leader"]
        assert second["leader_epoch"] > first["leader_epoch"]
        assert first["leader"] not in second["isr"]
        cluster.start_broker(first["leader"])
        cluster.wait_for_isr("t", 0, 1, 2, 3)
        cluster.kill(second["leader"])
        produce(producer, "t", values[200:])
        assert consume(cluster, "t", 300) == values


def test_the_controller_is_killed_and_another_one_creates_topics(connect: str) -> None:
    with Cluster(connect, in_process=False) as cluster:
        first = cluster.controller_id
        assert first is not None
        cluster.kill(first)
        wait_until(lambda: cluster.controller_id not in (None, first))
        create_topic(cluster, "t", replicas=2)
        assert first not in cluster.state("t", 0)["isr"]
        cluster.start_broker(first)
        create_topic(cluster, "u", replicas=3)
        cluster.wait_for_isr("u", 0, 1, 2, 3)


def test_a_broker_that_is_killed_is_missed_when_its_session_ends(connect: str) -> None:
    with Cluster(connect, settings=SHORT_SESSIONS, in_process=False) as cluster:
        create_topic(cluster, "t")
        killed = cluster.state("t", 0)["leader"]
        cluster.broker(killed).kill()
        wait_until(lambda: cluster.state("t", 0)["leader"] not in (-1, killed))
        wait_until(lambda: killed not in cluster.state("t", 0)["isr"])


def test_brokers_restart_one_after_the_other_and_no_write_fails(connect: str) -> None:
    with Cluster(connect, in_process=False) as cluster:
        create_topic(cluster, "t", partitions=3)
        producer = new_producer(cluster)
        values: list[bytes] = []
        for node_id in cluster.brokers:
            values += [b"%d %d" % (node_id, number) for number in range(50)]
            produce(producer, "t", values[-50:])
            cluster.stop_broker(node_id)
            cluster.start_broker(node_id)
            for partition in range(3):
                cluster.wait_for_isr("t", partition, 1, 2, 3)
        assert consume(cluster, "t", len(values)) == values


def test_groups_and_transactions_go_on_where_their_partition_is_led_then(connect: str) -> None:
    settings = {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}
    with Cluster(connect, settings=settings, in_process=False) as cluster:
        create_topic(cluster, "t")
        producer = new_producer(cluster, **{"transactional.id": "tx"})
        producer.init_transactions(WAIT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        group = ("__consumer_offsets", partition_of_coordinator("g", 3))
        transaction = ("__transaction_state", partition_of_coordinator("tx", 3))
        for number, coordinated in enumerate((group, transaction)):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(WAIT_S)
            producer.commit_transaction(WAIT_S)
            found: list[Message] = []
            while not found:
                found = [message for message in consumer.consume(1, WAIT_S) if message.error() is None]
            assert found[0].value() == b"%d" % number
            commit(consumer)
            coordinator = cluster.state(*coordinated)["leader"]
            cluster.kill(coordinator)
            wait_until(lambda: cluster.state(*coordinated)["leader"] not in (-1, coordinator))  # noqa: B023 (called at once)
        producer.begin_transaction()
        producer.produce("t", b"last", partition=0)
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S)
        wait_for_committed(consumer, "t", 3)  # behind the second record; a marker lies between
        consumer.close()
        assert consume(cluster, "t", 3) == [b"0", b"1", b"last"]
