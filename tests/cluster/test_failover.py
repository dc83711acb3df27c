"""Brokers of a cluster as processes that are killed: others lead, nothing acknowledged is lost, and they come back."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Message

from ottla.hashing import partition_of_coordinator
from ottla.testing.clients import CLIENTS
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_clients import (
    JavaLoad,
    Load,
    commit,
    consume,
    create_topic,
    new_producer,
    produce,
    wait_for_committed,
)
from ottla.testing.waiting import WAIT_S, wait_until

# Whoever is killed in this way is missed when its session ends by itself.
JAVA_CLIENT = CLIENTS[0]
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"
SOON_AGAIN = {"reconnect.backoff.max.ms": 200}  # a client that does not add seconds of its own
FAILOVER_S = 30.0
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
        cluster.wait_until_known()
        assert cluster.controller_id != first
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


def test_writes_go_on_soon_after_the_session_of_a_killed_leader_has_ended(connect: str) -> None:
    """The promise is 2 s, which `tests/sim/test_failover.py` counts on virtual time; a busy machine takes longer."""
    with Cluster(connect, settings=SHORT_SESSIONS, in_process=False) as cluster:
        create_topic(cluster, "t")
        producer = new_producer(cluster, **SOON_AGAIN)
        produce(producer, "t", [b"before"])
        leader = cluster.state("t", 0)["leader"]
        with cluster.noting_end_of_session(leader) as ended:
            cluster.broker(leader).kill()
            produce(producer, "t", [b"after"])
            written = time.monotonic()
        waited_s = written - ended.moment
        print(f"written {waited_s:.2f} s after the end of the session")
        assert waited_s < FAILOVER_S
        assert consume(cluster, "t", 2) == [b"before", b"after"]


def test_all_brokers_restart_one_after_the_other_under_load_and_no_write_fails(connect: str) -> None:
    """The first two loads are librdkafka's, the third is Java's where that can be had."""
    with Cluster(connect, in_process=False) as cluster:
        create_topic(cluster, "t", partitions=3)
        loads = [Load(cluster, "t", 0), Load(cluster, "t", 1)]
        if not JAVA_CLIENT.missing_programs:
            loads.append(JavaLoad(cluster, "t", 2, JAVA_CLIENT.command(DRIVERS)))
        try:
            for node_id in cluster.brokers:
                for load in loads:
                    load.wait_for_more()
                cluster.stop_broker(node_id)
                for load in loads:
                    load.wait_for_more()
                cluster.start_broker(node_id)
                for partition in range(3):
                    cluster.wait_for_isr("t", partition, 1, 2, 3)
        finally:
            for load in loads:
                load.end()
        for partition, load in enumerate(loads):
            assert load.failures == []
            assert consume(cluster, "t", len(load.acknowledged), partition) == load.acknowledged


def test_a_leader_whose_session_ends_under_load_comes_back_and_no_write_fails(connect: str) -> None:
    """It is alive and knows nothing of it; the controller has others lead, and it registers again."""
    with Cluster(connect, in_process=False) as cluster:
        create_topic(cluster, "t")
        load = Load(cluster, "t", 0)
        try:
            for _ in range(3):
                load.wait_for_more()
                before = cluster.state("t", 0)
                cluster.end_session_of(before["leader"])
                wait_until(lambda: cluster.state("t", 0)["leader_epoch"] > before["leader_epoch"])  # noqa: B023
                cluster.wait_for_isr("t", 0, 1, 2, 3)
        finally:
            load.end()
        assert load.failures == []
        assert consume(cluster, "t", len(load.acknowledged)) == load.acknowledged


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
