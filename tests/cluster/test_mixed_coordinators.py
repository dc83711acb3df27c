"""Groups and transactions in a cluster of Apache Kafka 3.9 and Ottla: either kind coordinates and takes over."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.clients import CLIENTS, Driver
from ottla.testing.cluster_clients import commit, create_assigned, new_producer, wait_for_committed
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import first_beat
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}")

JAVA_CLIENT = CLIENTS[0]
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"
API_VERSIONS_VERSION = 4
HEARTBEAT_VERSION = 1
# The survivor of two brokers is alone in sync.
SETTINGS = {
    "min.insync.replicas": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COMPACTED = {"cleanup.policy": "compact", "compression.type": "producer"}
COORDINATORS = ("__consumer_offsets", "__transaction_state")
# One led by each broker: the markers of a transaction always go to both kinds.
ASSIGNMENT = ([1, 2], [2, 1])


def test_groups_and_transactions_move_between_the_kinds(connect: str, tmp_path: Path) -> None:
    with MixedCluster(connect, tmp_path, [KAFKA, OTTLA], SETTINGS) as cluster:
        for name in COORDINATORS:
            create_assigned(cluster, name, [1, 2], config=COMPACTED)
        consumer = new_consumer(cluster, "g")
        of_producer = new_consumer(cluster, "of-producer")
        read: list[bytes] = []
        for coordinator, heir in ((1, 2), (2, 1)):
            assert [cluster.state(name, 0)["leader"] for name in COORDINATORS] == [coordinator, coordinator]
            # The same transactional id, and a client without coordinators in its cache: librdkafka (issues 5511, 5456)
            # may send the offsets of a transaction to nobody once a coordinator that it had cached was gone.
            producer = new_producer(cluster, **{"transactional.id": "x"})
            producer.init_transactions(WAIT_S)
            topic = f"of-{coordinator}"
            create_assigned(cluster, topic, *ASSIGNMENT)
            consumer.subscribe([topic])
            write(producer, topic, b"aborted by %d" % coordinator)
            producer.abort_transaction(WAIT_S)
            write(producer, topic, b"committed by %d" % coordinator)
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, coordinator)], of_producer.consumer_group_metadata(), WAIT_S
            )
            producer.commit_transaction(WAIT_S)
            read += read_and_commit(consumer, 2)

            write(producer, topic, b"begun at %d" % coordinator)
            cluster.kill(coordinator)
            producer.commit_transaction(WAIT_S)
            read += read_and_commit(consumer, 2)
            # Three transactions, each a record and a marker, but for the last marker.
            wait_for_committed(consumer, topic, 5, 5)
            for name in COORDINATORS:
                cluster.wait_for_leader(name, 0, heir)
            wait_for_committed(of_producer, topic, coordinator)

            cluster.start_broker(coordinator)
            for name in (*COORDINATORS, topic):
                cluster.wait_for_isr(name, 0, 1, 2)
                cluster.wait_for_equal_logs(name, 0)
        of_producer.close()
        assert sorted(read) == sorted(2 * [b"committed by 1", b"begun at 1", b"committed by 2", b"begun at 2"])
        consumer.close()


def test_a_client_uses_the_transactions_that_all_brokers_have(connect: str, tmp_path: Path) -> None:
    """Java's client takes transactions of version 2 as soon as one broker says that the cluster has them."""
    with (
        MixedCluster(connect, tmp_path, [KAFKA, OTTLA], SETTINGS) as cluster,
        Driver(JAVA_CLIENT.command(DRIVERS), cluster.bootstrap_servers) as java,
    ):
        create_assigned(cluster, "__transaction_state", [1, 2], config=COMPACTED)
        for leader, follower in ASSIGNMENT:
            create_assigned(cluster, f"led-by-{leader}", [leader, follower])
        assert transaction_version(cluster, 2) == 0
        for leader, _ in ASSIGNMENT:
            java_transactions(java, f"led-by-{leader}")
        cluster.stop_broker(1)
        wait_until(lambda: transaction_version(cluster, 2) == 2)
        for leader, _ in ASSIGNMENT:
            java_transactions(java, f"led-by-{leader}")
            values = java.consume(f"led-by-{leader}", 2)
            assert [record.value for record in values] == [b"committed", b"committed"]


def test_groups_begin_the_protocol_of_kip_848_once_all_brokers_have_it(connect: str, tmp_path: Path) -> None:
    with MixedCluster(connect, tmp_path, [KAFKA, OTTLA], SETTINGS) as cluster:
        create_assigned(cluster, "__consumer_offsets", [2, 1], config=COMPACTED)
        create_assigned(cluster, "t", [2, 1])
        assert join_consumer_group(cluster, 2) == ErrorCode.UNSUPPORTED_VERSION
        cluster.stop_broker(1)
        wait_until(lambda: join_consumer_group(cluster, 2) == ErrorCode.NONE)


def join_consumer_group(cluster: MixedCluster, node_id: int) -> ErrorCode:
    """What the coordinator of the group answers, once it is one."""
    with RawClient(cluster.broker(node_id).bootstrap_servers) as client:
        while True:
            answer = client.ask(first_beat("g", str(uuid4()), "t"), HEARTBEAT_VERSION)
            if not ErrorCode(answer.error_code).retriable:
                return ErrorCode(answer.error_code)
            time.sleep(0.1)


def transaction_version(cluster: MixedCluster, node_id: int) -> int:
    """What a broker says that the whole cluster has; 0 where it does not say."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(cluster.broker(node_id).bootstrap_servers) as client:
        features = client.ask(request, API_VERSIONS_VERSION).finalized_features
    return next((each.max_version_level for each in features if each.name == "transaction.version"), 0)


def java_transactions(java: Driver, topic: str) -> None:
    """One that is aborted and one that is committed, each by a producer of its own with the same id."""
    for value, is_committed in ((b"aborted", False), (b"committed", True)):
        values = [base64.b64encode(value).decode()]
        java.do("transact", topic=topic, transactional_id=f"of-{topic}", values=values, commit=is_committed)


def new_consumer(cluster: MixedCluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def write(producer: Producer, topic: str, value: bytes) -> None:
    """A transaction of one record for each kind; it is left open."""
    producer.begin_transaction()
    for partition in range(len(ASSIGNMENT)):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WAIT_S) == 0


def read_and_commit(consumer: Consumer, amount: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < amount:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {amount} came"
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
        commit(consumer, message=message)
    return found
