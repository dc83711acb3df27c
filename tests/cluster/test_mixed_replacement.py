"""All brokers of one kind are replaced by the other kind, one after the other under load, and back again."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.clients import CLIENTS
from ottla.testing.cluster_clients import JavaLoad, Load, LoadInFlight, consume, create_topic, new_producer
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}"),
]

JAVA_CLIENT = CLIENTS[0]
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"


def test_every_broker_is_replaced_and_back_with_records_in_flight_and_no_write_fails(
    connect: str, tmp_path: Path
) -> None:
    """What runs every time; those below take longer, with more clients."""
    with MixedCluster(connect, tmp_path, [KAFKA, KAFKA, KAFKA]) as cluster:
        create_topic(cluster, "t")
        load = LoadInFlight(cluster, "t", 0)
        try:
            for kind in (OTTLA, KAFKA):
                for node_id in (1, 2, 3):
                    cluster.replace(node_id, kind)
                    cluster.wait_for_isr("t", 0, 1, 2, 3)
                    load.wait_for_more()
        finally:
            load.end()
        assert load.failures == []
        assert consume(cluster, "t", len(load.acknowledged)) == load.acknowledged
        cluster.wait_for_equal_logs("t", 0)


@pytest.mark.long
def test_every_broker_is_replaced_in_place_and_back_and_no_write_fails(connect: str, tmp_path: Path) -> None:
    """The first two loads are librdkafka's, the third is Java's."""
    with MixedCluster(connect, tmp_path, [KAFKA, KAFKA, KAFKA]) as cluster:
        create_topic(cluster, "t", partitions=3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        java = JAVA_CLIENT.command(DRIVERS)
        loads = [Load(cluster, "t", 0), LoadInFlight(cluster, "t", 1), JavaLoad(cluster, "t", 2, java)]
        try:
            for kind in (OTTLA, KAFKA):
                for node_id in (1, 2, 3):
                    cluster.replace(node_id, kind)
                    for topic, count in (("t", 3), ("__consumer_offsets", 2)):
                        for partition in range(count):
                            cluster.wait_for_isr(topic, partition, 1, 2, 3)
                    (committed,) = consumer.committed([TopicPartition("t", 0)], WAIT_S)
                    assert committed.offset == 7
        finally:
            for load in loads:
                load.end()
            consumer.close()
        for partition, load in enumerate(loads):
            assert load.failures == []
            assert consume(cluster, "t", len(load.acknowledged), partition) == load.acknowledged
            cluster.wait_for_equal_logs("t", partition)


@pytest.mark.long
def test_transactions_and_a_group_go_on_while_every_broker_is_replaced_and_back(connect: str, tmp_path: Path) -> None:
    with MixedCluster(connect, tmp_path, [KAFKA, KAFKA, KAFKA]) as cluster:
        create_topic(cluster, "t", partitions=PARTITIONS)
        transactions, group = Transactions(cluster), Group(cluster)
        try:
            for kind in (OTTLA, KAFKA):
                for node_id in (1, 2, 3):
                    cluster.replace(node_id, kind)
                    for topic, count in (("t", PARTITIONS), ("__consumer_offsets", 2), ("__transaction_state", 2)):
                        for partition in range(count):
                            cluster.wait_for_isr(topic, partition, 1, 2, 3)
                    transactions.wait_for_more()
            transactions.end()
            wait_until(lambda: len(group.values) >= len(transactions.committed))
        finally:
            transactions.end()
            group.end()
        assert transactions.failures == group.failures == []
        assert sorted(group.values) == sorted(transactions.committed)
        for partition in range(PARTITIONS):
            cluster.wait_for_equal_logs("t", partition)


@pytest.mark.long
@pytest.mark.parametrize(("kills", "first"), [(True, True), (False, False)], ids=["killed", "stopped"])
def test_every_broker_is_replaced_and_back_while_zookeeper_loses_its_leader(
    kills: bool, first: bool, tmp_path: Path
) -> None:
    """The controller is the first of them to be replaced, or the last one. Transactions and a group go on meanwhile."""
    with ExitStack() as stack:
        ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper", size=3)
        stack.callback(ensemble.kill)
        ensemble.start()
        # A broker that stops waits four times as long for the next leader of ZooKeeper.
        settings = {"controlled.shutdown.retry.backoff.ms": "5000"}
        cluster = stack.enter_context(MixedCluster(ensemble.connect, tmp_path, [KAFKA, KAFKA, KAFKA], settings))
        create_topic(cluster, "t", partitions=PARTITIONS)
        create_topic(cluster, "u")
        load = LoadInFlight(cluster, "u", 0)
        stack.callback(load.end)
        transactions, group = Transactions(cluster), Group(cluster)
        try:
            for kind in (OTTLA, KAFKA):
                controller = cluster.controller_id
                others = [node_id for node_id in (1, 2, 3) if node_id != controller]
                for place, node_id in enumerate([controller, *others] if first else [*others, controller]):
                    assert node_id is not None
                    lost = next(server for server in ensemble.servers if server.is_leader()) if place == 1 else None
                    if lost is not None:
                        lost.kill()
                    cluster.replace(node_id, kind, kills=kills)
                    for topic, count in (("t", PARTITIONS), ("__consumer_offsets", 2), ("__transaction_state", 2)):
                        for partition in range(count):
                            cluster.wait_for_isr(topic, partition, 1, 2, 3)
                    transactions.wait_for_more()
                    load.wait_for_more()
                    if lost is not None:
                        lost.launch()
                        lost.wait_ready()
            transactions.end()
            wait_until(lambda: len(group.values) >= len(transactions.committed))
        finally:
            transactions.end()
            group.end()
        load.end()
        assert transactions.failures == group.failures == load.failures == []
        assert sorted(group.values) == sorted(transactions.committed)
        assert consume(cluster, "u", len(load.acknowledged)) == load.acknowledged
        for partition in range(PARTITIONS):
            cluster.wait_for_equal_logs("t", partition)


PARTITIONS = 3
EVERY_FOURTH = 4


class Worker:
    """Something that is done again and again in a thread of its own until `end`."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.step()
        except Exception as error:  # for the test to see
            self.failures.append(error)

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


class Transactions(Worker):
    """One transaction after the other, with a record for each partition; every fourth is aborted."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.committed: list[bytes] = []
        self._count = 0
        self._producer = new_producer(cluster, **{"transactional.id": "x"})
        self._producer.init_transactions(WAIT_S)
        super().__init__()

    def step(self) -> None:
        self._count += 1
        values = [b"%d of %d" % (self._count, partition) for partition in range(PARTITIONS)]
        self._producer.begin_transaction()
        for partition, value in enumerate(values):
            self._producer.produce("t", value, partition=partition)
        # librdkafka may end a transaction that it has not yet begun at the coordinator, which is an error there.
        assert self._producer.flush(WAIT_S) == 0
        if self._count % EVERY_FOURTH:
            self._producer.commit_transaction(WAIT_S)
            self.committed += values
        else:
            self._producer.abort_transaction(WAIT_S)

    def wait_for_more(self) -> None:
        enough = self._count + 2 * EVERY_FOURTH
        wait_until(lambda: self._count >= enough or self.failures)


class Group(Worker):
    """A group of one member that commits what it has read."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["t"])
        super().__init__()

    def step(self) -> None:
        found = self._consumer.consume(100, 0.1)
        for message in found:
            assert message.error() is None, message.error()
            self.values.append(message.value() or b"")
        if found:
            self._consumer.commit(asynchronous=False)

    def end(self) -> None:
        super().end()
        self._consumer.close()
