"""Topics and settings change in a cluster of Apache Kafka 3.9 and Ottla, through either kind and under either kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.cluster_clients import consume, create_assigned, elect_preferred, new_producer, produce
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import one_batch
from ottla.testing.raw_requests import produce as produce_request
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}")

TOPIC, BROKER = 2, 4  # types of resources
SET = 0  # a kind of change
SEGMENTS = 5


@pytest.mark.parametrize("kinds", [(KAFKA, OTTLA, OTTLA), (OTTLA, KAFKA, OTTLA)], ids=["kafka", "ottla"])
def test_topics_and_settings_change_under_a_controller_of_either_kind(
    kinds: tuple[str, ...], connect: str, tmp_path: Path
) -> None:
    with MixedCluster(connect, tmp_path, kinds) as cluster:
        create_assigned(cluster, "t", [1, 2], [2, 1])
        settings_reach_both_kinds(cluster)
        quotas_reach_both_kinds(cluster)
        partitions_are_added(cluster)
        replicas_move(cluster)
        small_segments_are_followed(cluster, tmp_path)
        preferred_replicas_lead_again(cluster)
        topics_go_and_come_again(cluster, tmp_path)


def settings_reach_both_kinds(cluster: MixedCluster) -> None:
    """Whoever is asked, both leaders of a topic reject what the new limit does not allow, and take it once it does."""
    create_assigned(cluster, "u", [1, 2], [2, 1])
    producer = new_producer(cluster)
    for asked, topic, resource, setting in (
        (1, "t", (TOPIC, "t"), "max.message.bytes"),
        (2, "u", (BROKER, ""), "message.max.bytes"),
        (2, "t", (TOPIC, "t"), "max.message.bytes"),
        (1, "u", (BROKER, ""), "message.max.bytes"),
    ):
        for limit, is_allowed in (("2000", False), ("100000", True)):
            alter_config(cluster, asked, *resource, setting, limit)
            for partition in (0, 1):
                wait_until(lambda: takes(producer, topic, partition, 5000) == is_allowed)  # noqa: B023


def quotas_reach_both_kinds(cluster: MixedCluster) -> None:
    """Whoever is asked, each kind reads what is stored as the other writes it, and throttles by it."""
    entity = [EntityData(entity_type="client-id", entity_name="limited")]
    everything = DescribeClientQuotasRequest(components=[], strict=False)

    def alter(asked: int, rate: float | None) -> None:
        op = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
        entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
        with RawClient(cluster.brokers[asked].bootstrap_servers) as client:
            answer = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert answer.entries[0].error_code == 0, answer

    def rates(asked: int) -> list[float]:
        with RawClient(cluster.brokers[asked].bootstrap_servers) as client:
            return [value.value for entry in client.ask(everything, 1).entries for value in entry.values]

    def is_throttled(leader: int, partition: int) -> bool:
        with RawClient(cluster.brokers[leader].bootstrap_servers, client_id="limited") as client:
            request = produce_request("t", one_batch(bytes(20_000)), partition=partition)
            return bool(client.ask(request, 9).throttle_time_ms)

    for asked in (1, 2):
        alter(asked, 1000.0)
        for leader, partition in ((1, 0), (2, 1)):
            wait_until(lambda: rates(leader) == [1000.0])  # noqa: B023
            wait_until(lambda: is_throttled(leader, partition))  # noqa: B023
        alter(3 - asked, None)
        for leader, partition in ((1, 0), (2, 1)):
            wait_until(lambda: rates(leader) == [])  # noqa: B023
            wait_until(lambda: not is_throttled(leader, partition))  # noqa: B023


def alter_config(cluster: MixedCluster, asked: int, resource_type: int, resource: str, name: str, value: str) -> None:
    change = IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=SET, value=value)
    of_resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource_type, resource_name=resource, configs=[change]
    )
    with RawClient(cluster.brokers[asked].bootstrap_servers) as client:
        request = IncrementalAlterConfigsRequest(resources=[of_resource], validate_only=False)
        (response,) = client.ask(request, version=1).responses
        assert response.error_code == 0, response.error_message


def config_of(cluster: MixedCluster, asked: int, topic: str, name: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])
    with RawClient(cluster.brokers[asked].bootstrap_servers) as client:
        (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), version=4).results
    assert result.error_code == 0, result
    value: str | None = result.configs[0].value
    return value


def takes(producer: Producer, topic: str, partition: int, size: int) -> bool:
    errors: list[KafkaError | None] = []
    producer.produce(topic, bytes(size), partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = errors
    assert error is None or error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
    return error is None


def partitions_are_added(cluster: MixedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions("t", 4, [[1, 2], [2, 1]])]).values():
        future.result(WAIT_S)
    cluster.wait_for_topic("t", 4)  # the client may ask any broker, and takes no partition for an answer
    producer = new_producer(cluster)
    for partition in (2, 3):
        produce(producer, "t", [b"more"], partition)
        assert consume(cluster, "t", 1, partition) == [b"more"]


def replicas_move(cluster: MixedCluster) -> None:
    """Each partition goes to a broker that has nothing of it yet. It starts within a batch, which comes whole."""
    wanted = {2: [3, 2], 3: [3, 1]}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for partition in wanted:
        leader = cluster.state("t", partition)["leader"]
        with RawClient(cluster.brokers[leader].bootstrap_servers) as client:
            request = produce_request("t", one_batch(b"deleted", b"more"), partition=partition)
            assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    for future in admin.delete_records([TopicPartition("t", partition, 2) for partition in wanted]).values():
        assert future.result(WAIT_S).low_watermark == 2
    move(cluster, "t", wanted)
    for partition in wanted:
        produce(new_producer(cluster), "t", [b"moved"], partition)
        assert consume(cluster, "t", 2, partition) == [b"more", b"moved"]
        assert b"deleted" in cluster.log_bytes("t", partition, 3)


def move(cluster: MixedCluster, topic: str, wanted: dict[int, list[int]]) -> None:
    """Moves partitions, and returns when they are where they should be."""
    partitions = [
        ReassignablePartition(partition_index=partition, replicas=replicas) for partition, replicas in wanted.items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])
    controller = cluster.controller_id
    assert controller is not None
    with RawClient(cluster.brokers[controller].bootstrap_servers) as client:
        response = client.ask(request, version=0)
        assert response.error_code == 0, response.error_message
    for partition, replicas in wanted.items():
        cluster.wait_for_isr(topic, partition, *replicas)
        stored = f"/brokers/topics/{topic}"
        wait_until(lambda: cluster.stored(stored)["partitions"][str(partition)] == replicas)  # noqa: B023


def small_segments_are_followed(cluster: MixedCluster, directory: Path) -> None:
    """Of a size that only Kafka 3.9 still allows. A follower of that kind takes no more than a segment at a time."""
    kafka, ottla = (1, 2) if cluster.kinds[1] == KAFKA else (2, 1)
    create_assigned(cluster, "small", [ottla])
    alter_config(cluster, kafka, TOPIC, "small", "segment.bytes", "20000")
    wait_until(lambda: config_of(cluster, ottla, "small", "segment.bytes") == "20000")
    producer = new_producer(cluster)
    values: list[bytes] = []

    def is_rolled() -> bool:
        values.append(b"%d" % len(values) + bytes(10_000))
        produce(producer, "small", values[-1:])
        return len([*directory.glob(f"broker-{ottla}/small-0/*.log")]) > SEGMENTS

    wait_until(is_rolled)
    move(cluster, "small", {0: [kafka]})
    assert consume(cluster, "small", len(values)) == values


def preferred_replicas_lead_again(cluster: MixedCluster) -> None:
    cluster.stop_broker(2)
    for partition in (0, 1):
        cluster.wait_for_leader("t", partition, 1)
    cluster.start_broker(2)
    for partition in (0, 1):
        cluster.wait_for_isr("t", partition, 1, 2)
    elect_preferred(cluster, TopicPartition("t", 0), TopicPartition("t", 1))
    assert [cluster.state("t", partition)["leader"] for partition in (0, 1)] == [1, 2]
    for partition in (0, 1):
        assert takes(new_producer(cluster), "t", partition, 10)


def topics_go_and_come_again(cluster: MixedCluster, directory: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.delete_topics(["t"]).values():
        future.result(WAIT_S)
    wait_until(lambda: cluster.stored("/brokers/topics/t") is None)
    wait_until(lambda: not [*directory.glob("broker-*/t-[0-9]")])
    create_assigned(cluster, "t", [1, 2], [2, 1])
    for partition in (0, 1):
        produce(new_producer(cluster), "t", [b"new"], partition)
        assert consume(cluster, "t", 1, partition) == [b"new"]
