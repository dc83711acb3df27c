"""Brokers that form a cluster on a real ZooKeeper, asked by librdkafka."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.errors import ConfigError, ErrorCode
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.process import ProcessFailedError
from ottla.net.ports import free_ports
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.broker import Broker
from ottla.testing.cluster import CLUSTER_SETTINGS, Cluster
from ottla.testing.cluster_clients import consume, create_assigned, create_topic, new_producer, produce
from ottla.testing.in_zookeeper import InZooKeeper
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic as raw_create_topic
from ottla.testing.waiting import WAIT_S, wait_until

TOPIC = ConfigScope(ConfigResourceType.TOPIC, "t")


def partition_counts(cluster: Cluster, topic: str) -> set[int]:
    """How many partitions a topic has, as the brokers were told."""
    images = [broker.running.image for broker in cluster.brokers.values()]
    return {len(image.topics[topic].partitions) if topic in image.topics else 0 for image in images}


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


def test_a_cluster_lives_below_a_path_of_several_names(connect: str) -> None:
    above, below = InZooKeeper(connect), f"{connect}/kafka/production"
    with Cluster(below) as cluster:
        create_topic(cluster, "t", partitions=1)
        produce(new_producer(cluster), "t", [b"v"])
        assert consume(cluster, "t", 1) == [b"v"]
        assert above.stored("/kafka/production/brokers/topics/t") == cluster.stored("/brokers/topics/t") is not None
        assert above.stored("/brokers/topics/t") is None


def test_topics_grow_and_go_and_come_again_and_settings_reach_every_broker(connect: str) -> None:
    with Cluster(connect) as cluster:
        create_topic(cluster, "t", partitions=2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_partitions([NewPartitions("t", 5)]).values():
            future.result(WAIT_S)
        assert len(cluster.stored("/brokers/topics/t")["partitions"]) == 5
        running = [broker.running for broker in cluster.brokers.values()]
        wait_until(lambda: partition_counts(cluster, "t") == {5})

        change = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)
        wait_until(lambda: all(broker.replicas.find("t", 0).log.config.retention_ms == 12345 for broker in running))

        for future in admin.delete_topics(["t"]).values():
            future.result(WAIT_S)
        assert cluster.stored("/brokers/topics/t") is None
        assert cluster.stored("/config/topics/t") is None
        create_topic(cluster, "t")
        wait_until(lambda: partition_counts(cluster, "t") == {1})
        wait_until(lambda: all("retention.ms" not in str(broker.configs.overrides_of(TOPIC)) for broker in running))
        produce(new_producer(cluster), "t", [b"new"])
        assert consume(cluster, "t", 1) == [b"new"]


def test_groups_keep_their_offsets_on_whichever_broker_coordinates_them(connect: str) -> None:
    with Cluster(connect) as cluster:
        create_topic(cluster, "t")
        produce(new_producer(cluster), "t", [b"%d" % number for number in range(10)])
        for group in ("a", "b", "c", "d"):  # of several partitions of the offsets topic
            settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
            consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
            consumer.subscribe(["t"])
            messages: list[Message] = []
            while len(messages) < 10:
                messages += consumer.consume(10, WAIT_S)
            consumer.commit(asynchronous=False)
            (committed,) = consumer.committed([TopicPartition("t", 0)], WAIT_S)
            assert committed.offset == 10
            consumer.close()
        assert len(cluster.stored("/brokers/topics/__consumer_offsets")["partitions"]["0"]) == 3


def test_a_transaction_ends_on_partitions_of_every_broker(connect: str) -> None:
    with Cluster(connect) as cluster:
        create_topic(cluster, "t", partitions=3)
        for number, transactional_id in enumerate(("a", "b", "c", "d")):  # of several coordinators
            producer = new_producer(cluster, **{"transactional.id": transactional_id})
            producer.init_transactions(WAIT_S)
            for is_commit in (False, True):
                producer.begin_transaction()
                for partition in range(3):
                    producer.produce("t", b"%d %d" % (number, is_commit), partition=partition)
                producer.flush(WAIT_S)
                if is_commit:
                    producer.commit_transaction(WAIT_S)
                else:
                    producer.abort_transaction(WAIT_S)
        for partition in range(3):
            found = consume(cluster, "t", 4, partition)
            assert sorted(found) == [b"%d 1" % number for number in range(4)]
        leaders = [
            broker.running.replicas.find("t", 0)
            for broker in cluster.brokers.values()
            if broker.running.replicas.find("t", 0).is_leader
        ]
        (leader,) = leaders
        wait_until(lambda: leader.watermarks.last_stable_offset == leader.log.end_offset)


def delete_below(client: RawClient, offset: int, timeout_ms: int) -> tuple[ErrorCode, int]:
    entry = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])], timeout_ms=timeout_ms)
    result = client.ask(request, 2).topics[0].partitions[0]
    return ErrorCode(result.error_code), result.low_watermark


def test_deleted_records_are_gone_on_all_replicas_when_the_answer_comes(connect: str) -> None:
    with Cluster(connect, size=2, settings={"log.retention.check.interval.ms": "300"}) as cluster:
        create_assigned(cluster, "t", [1, 2], config={"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
        produce(new_producer(cluster), "t", [bytes(300_000)] * 10)
        leader, follower = (cluster.brokers[node].running.replicas.find("t", 0) for node in (1, 2))
        with RawClient(cluster.brokers[1].bootstrap_servers) as client:
            assert delete_below(client, 7, 60_000) == (ErrorCode.NONE, 7)
            assert (leader.log.log_start_offset, follower.log.log_start_offset) == (7, 7)
            # On both, what lies before goes from the disk as well.
            wait_until(lambda: leader.log.segments[0].base_offset > 0 and follower.log.segments[0].base_offset > 0)
            code, low_watermark = delete_below(client, 8, 0)  # nobody waits for the follower
            assert (code, low_watermark) in ((ErrorCode.REQUEST_TIMED_OUT, 7), (ErrorCode.NONE, 8))


def test_what_takes_longer_than_the_client_waits_goes_on(connect: str) -> None:
    with Cluster(connect, size=2) as cluster:
        node_id = cluster.controller_id
        assert node_id is not None
        with RawClient(cluster.brokers[node_id].bootstrap_servers) as client:
            for name in ("a", "b"):
                client.ask(raw_create_topic(name, 1), 7)
            wait_until(lambda: partition_counts(cluster, "a") == partition_counts(cluster, "b") == {1})
            more = CreatePartitionsTopic(name="a", count=3, assignments=None)
            late = client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=False), 3)
            assert late.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            wait_until(lambda: partition_counts(cluster, "a") == {3})
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="b", topic_id=ZERO_UUID)], timeout_ms=0)
            assert client.ask(gone, 6).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            wait_until(lambda: partition_counts(cluster, "b") == {0})


def test_followers_compact_their_logs_too(connect: str) -> None:
    with Cluster(connect, size=2, settings={"log.cleaner.backoff.ms": "300"}) as cluster:
        config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
        create_assigned(cluster, "t", [1, 2], config=config)
        producer = new_producer(cluster)
        for _ in range(10):
            producer.produce("t", bytes(300_000), key=b"k")
            assert producer.flush(WAIT_S) == 0
        logs = [cluster.brokers[node].running.replicas.find("t", 0).log for node in (1, 2)]
        wait_until(lambda: all(log.end_offset == 10 and log.size_bytes < 2_000_000 for log in logs))


def test_a_second_broker_with_the_same_id_does_not_start_and_does_not_harm_the_first(connect: str) -> None:
    with Cluster(connect, size=1) as cluster:
        create_topic(cluster, "t", replicas=1)
        settings = {**CLUSTER_SETTINGS, "broker.id": "1", "zookeeper.connect": connect}
        with pytest.raises(ConfigError, match=r"broker\.id 1 is in use"), Broker(settings):
            pytest.fail("it started")
        produce(new_producer(cluster), "t", [b"x"])
        assert consume(cluster, "t", 1) == [b"x"]


def test_a_broker_that_is_sent_to_another_path_of_zookeeper_says_where_to_look(connect: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    first = BrokerProcess(1, tmp_path, port, {}, connect)
    first.launch()
    first.wait_ready()
    first.stop()
    elsewhere = BrokerProcess(1, tmp_path, port, {}, f"{connect}/elsewhere")
    elsewhere.launch()
    with pytest.raises(
        ProcessFailedError, match=r"there is none in ZooKeeper at .*/elsewhere: check zookeeper\.connect"
    ):
        elsewhere.wait_ready()


def test_a_broker_that_waits_for_a_controller_to_know_it_ends_when_it_is_stopped(connect: str, tmp_path: Path) -> None:
    first, second = (
        BrokerProcess(number, tmp_path / f"{number}", port, {"zookeeper.session.timeout.ms": "60000"}, connect)
        for number, port in enumerate(free_ports(2), 1)
    )
    with ExitStack() as stack:
        for broker in (first, second):
            stack.callback(broker.kill)
        first.launch()
        first.wait_ready()
        first.process.send(signal.SIGSTOP)  # the controller: nobody lets the other one in
        second.launch()
        wait_until(lambda: InZooKeeper(connect).stored("/brokers/ids/2"))
        assert second.stop()
        assert not second.is_ready()
