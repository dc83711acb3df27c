"""All brokers of one kind are replaced by the other kind, one after the other under load, and back again."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.apache_kafka import missing_programs
from ottla.testing.cluster_clients import Load, consume, create_topic
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.waiting import WAIT_S

pytestmark = [
    pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}"),
    pytest.mark.long,
]


def test_every_broker_is_replaced_in_place_and_back_and_no_write_fails(connect: str, tmp_path: Path) -> None:
    with MixedCluster(connect, tmp_path, [KAFKA, KAFKA, KAFKA]) as cluster:
        create_topic(cluster, "t", partitions=3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        loads = [Load(cluster, "t", partition) for partition in range(3)]
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
