"""A controller of one kind dies in the middle of moves, and one of the other kind ends them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.cluster_clients import consume, create_assigned, new_producer, produce
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.raw_client import RawClient
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}")

TOPIC = "t"
VALUES = [bytes(1000)] * 3000
SLOW, FAST = "1000", "100000000"  # bytes per second: hours, and at once
# Of the three brokers two are left.
SETTINGS = {"min.insync.replicas": "1", "offsets.topic.replication.factor": "2"}
ALL_THROTTLED = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}


@pytest.mark.parametrize("kinds", [(KAFKA, OTTLA, OTTLA), (OTTLA, KAFKA, KAFKA)], ids=["ottla", "kafka"])
def test_moves_that_one_kind_of_controller_began_are_ended_or_cancelled_by_the_other(
    kinds: tuple[str, ...], connect: str, tmp_path: Path
) -> None:
    with MixedCluster(connect, tmp_path, kinds, SETTINGS) as cluster:
        create_assigned(cluster, TOPIC, [2], [2], config=ALL_THROTTLED)
        for partition in (0, 1):
            produce(new_producer(cluster, **{"linger.ms": 5}), TOPIC, VALUES, partition)
        throttle(cluster, SLOW)
        move(cluster, {0: [3], 1: [3]})
        assert adding(cluster) == {"0": [3], "1": [3]}
        cluster.kill(1)
        wait_until(lambda: cluster.controller_id in (2, 3))
        cluster.wait_until_known()
        move(cluster, {1: None})
        wait_until(lambda: adding(cluster) == {"0": [3]})
        throttle(cluster, FAST)
        wait_until(lambda: adding(cluster) == {})
        assert cluster.stored(f"/brokers/topics/{TOPIC}")["partitions"] == {"0": [3], "1": [2]}
        for partition, holder, other in ((0, 3, 2), (1, 2, 3)):
            cluster.wait_for_isr(TOPIC, partition, holder)
            assert cluster.state(TOPIC, partition)["leader"] == holder
            assert consume(cluster, TOPIC, len(VALUES), partition) == VALUES
            wait_until(lambda: cluster.log_bytes(TOPIC, partition, other) == b"")  # noqa: B023


def adding(cluster: MixedCluster) -> object:
    return cluster.stored(f"/brokers/topics/{TOPIC}")["adding_replicas"]


def throttle(cluster: MixedCluster, rate: str) -> None:
    """The brokers from and to which replicas move."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for node_id in (2, 3):
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        for side in ("leader", "follower"):
            name = f"{side}.replication.throttled.rate"
            resource.add_incremental_config(ConfigEntry(name, rate, incremental_operation=AlterConfigOpType.SET))
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)


def move(cluster: MixedCluster, wanted: dict[int, list[int] | None]) -> None:
    """Asks the controller for these replicas; for none of them where a move is to be cancelled."""
    partitions = [
        ReassignablePartition(partition_index=partition, replicas=replicas) for partition, replicas in wanted.items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=partitions)])
    controller = cluster.controller_id
    assert controller is not None
    with RawClient(cluster.brokers[controller].bootstrap_servers) as client:
        response = client.ask(request, version=0)
    assert response.error_code == 0, response.error_message
    for topic in response.responses:
        assert all(partition.error_code == 0 for partition in topic.partitions), topic
