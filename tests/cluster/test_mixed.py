"""Apache Kafka 3.9 and Ottla in one cluster: each leads, follows and controls the other."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing.apache_kafka import missing_programs
from ottla.testing.cluster_clients import consume, create_assigned, create_topic, new_producer, produce
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.waiting import WAIT_S

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}")


@pytest.mark.parametrize("kinds", [(KAFKA, OTTLA, OTTLA), (OTTLA, KAFKA, OTTLA)], ids=["kafka", "ottla"])
def test_brokers_of_both_kinds_replicate_under_a_controller_of_either(
    kinds: tuple[str, ...], connect: str, tmp_path: Path
) -> None:
    with MixedCluster(connect, tmp_path, kinds) as cluster:
        assert cluster.controller_id == 1
        for broker in cluster.brokers.values():
            found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WAIT_S)
            assert sorted(found.brokers) == [1, 2, 3]
        create_topic(cluster, "t", partitions=3)
        assert {cluster.state("t", partition)["leader"] for partition in range(3)} == {1, 2, 3}
        values = [b"%d" % number for number in range(100)]
        producer = new_producer(cluster)
        for partition in range(3):
            produce(producer, "t", values, partition)
            assert consume(cluster, "t", 100, partition) == values
            cluster.wait_for_equal_logs("t", partition)


@pytest.mark.parametrize("killed", [KAFKA, OTTLA])
def test_a_leader_of_either_kind_is_killed_and_the_other_kind_leads_without_a_loss(
    killed: str, connect: str, tmp_path: Path
) -> None:
    heir = OTTLA if killed == KAFKA else KAFKA
    with MixedCluster(connect, tmp_path, [OTTLA, killed, heir]) as cluster:
        create_assigned(cluster, "t", [2, 3, 1])
        producer = new_producer(cluster)
        produce(producer, "t", [b"before"])
        first = cluster.state("t", 0)
        assert first["leader"] == 2
        write_where_nobody_follows(cluster, "t")
        produce(producer, "t", [b"after"])
        second = cluster.state("t", 0)
        assert second["leader"] == 3
        assert second["leader_epoch"] > first["leader_epoch"]
        assert cluster.log_bytes("t", 0, 2) != cluster.log_bytes("t", 0, 3)
        cluster.start_broker(2)
        cluster.wait_for_isr("t", 0, 1, 2, 3)
        cluster.wait_for_equal_logs("t", 0)
        log = cluster.log_bytes("t", 0, 2)
        assert b"before" in log
        assert b"after" in log
        assert b"nobody has it" not in log


SOMEBODY_MAY_HAVE = 30  # one after the other, by the end of which a waiting fetch has been answered


def write_where_nobody_follows(cluster: MixedCluster, topic: str) -> None:
    """The leader takes records that no follower has, and is killed."""
    leader = cluster.state(topic, 0)["leader"]
    followers = [broker.pid for node_id, broker in cluster.brokers.items() if node_id != leader]
    hasty = new_producer(cluster, acks=1)
    produce(hasty, topic, [b"hasty"])  # finds its leader while there is somebody to ask
    for pid in followers:
        os.kill(pid, signal.SIGSTOP)
    try:
        # Fetches that were waiting take the first ones along, which are read once the followers go on. Kafka answers
        # such a fetch only after the Produce that it waited for, so a second record may be in it as well.
        for _ in range(SOMEBODY_MAY_HAVE):
            produce(hasty, topic, [b"somebody may have it"])
        produce(hasty, topic, [b"nobody has it"])
        cluster.kill(leader)
    finally:
        for pid in followers:
            os.kill(pid, signal.SIGCONT)


def test_a_controller_of_either_kind_is_killed_and_the_other_kind_controls(connect: str, tmp_path: Path) -> None:
    settings = {"min.insync.replicas": "1"}
    with MixedCluster(connect, tmp_path, [KAFKA, OTTLA], settings) as cluster:
        create_assigned(cluster, "t", [1, 2])
        producer = new_producer(cluster)
        values: list[bytes] = []
        for controller, heir in ((1, 2), (2, 1)):
            assert cluster.controller_id == controller
            epochs = cluster.stored("/controller_epoch"), cluster.state("t", 0)["leader_epoch"]
            cluster.kill(controller)
            values.append(b"%d" % heir)
            produce(producer, "t", values[-1:])
            assert cluster.controller_id == heir
            assert cluster.stored("/controller_epoch") == epochs[0] + 1
            assert cluster.state("t", 0)["leader"] == heir
            assert cluster.state("t", 0)["leader_epoch"] > epochs[1]
            create_topic(cluster, f"of-{heir}", replicas=1)
            cluster.start_broker(controller)
            cluster.wait_for_isr("t", 0, 1, 2)
        assert consume(cluster, "t", 2) == values
        cluster.wait_for_equal_logs("t", 0)
