"""What administrators ask of a cluster: moves, elections, settings, topics that come and go; on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ottla.cluster import nodes
from ottla.cluster.image import PartitionState
from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from ottla.protocol.messages.replication import AllocateProducerIdsRequest
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import create_topic, metadata
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

CREATE, ALTER_MOVES, LIST_MOVES, ELECT, ALTER_CONFIGS, DELETE, PRODUCER_IDS, METADATA = 5, 1, 0, 2, 1, 6, 0, 9
NAME = TopicPartition("t", 0)
QUARTER_OF_AN_HOUR_MS = 15 * 60_000
LOOK_FOR_OLD_S = 65.0
Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, replicas: tuple[int, ...] = (1, 2), settings: Mapping[str, str] | None = None) -> None:
    """Three brokers, and a topic of one partition on some of them."""
    world = World(1)
    cluster = SimulatedCluster(world, 3, settings)

    async def main() -> None:
        await cluster.start()
        await until(cluster, lambda: all(len(broker.broker.image.brokers) == 3 for broker in cluster.brokers.values()))
        request = create_topic("t", -1, -1, assignments={0: replicas})
        response = await cluster.asked(controller(cluster), request, CREATE, timeout_s=30)
        assert response.topics[0].error_code == ErrorCode.NONE, response
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=3000)


async def until(cluster: SimulatedCluster, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


def controller(cluster: SimulatedCluster) -> int:
    return cluster.brokers[cluster.running[0]].broker.image.controller_id


def state(cluster: SimulatedCluster, node_id: int) -> PartitionState | None:
    return cluster.brokers[node_id].broker.image.partition(NAME)


async def move(cluster: SimulatedCluster, replicas: list[int] | None) -> ErrorCode:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    response = await cluster.asked(controller(cluster), request, ALTER_MOVES)
    assert response.error_code == ErrorCode.NONE
    return ErrorCode(response.responses[0].partitions[0].error_code)


async def moves(cluster: SimulatedCluster) -> list[Any]:
    response = await cluster.asked(controller(cluster), ListPartitionReassignmentsRequest(topics=None), LIST_MOVES)
    return [partition for topic in response.topics for partition in topic.partitions]


def test_a_partition_moves_to_another_broker_and_the_old_replica_goes() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert await move(cluster, [2, 3]) == ErrorCode.NONE
        await until(cluster, lambda: (known := state(cluster, 1)) is not None and known.replicas == (2, 3))
        await until(cluster, lambda: cluster.brokers[1].broker.replicas.get(NAME) is None)
        assert await moves(cluster) == []
        for node_id in (2, 3):
            assert cluster.brokers[node_id].broker.replicas.get(NAME) is not None
        assert await move(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await move(cluster, [2, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scenario)


def test_a_move_to_a_broker_that_cannot_catch_up_is_listed_and_cancelled() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.network.cut("broker-1", "broker-3")
        cluster.world.network.cut("broker-2", "broker-3")
        assert await move(cluster, [2, 3]) == ErrorCode.NONE
        (under_way,) = await moves(cluster)
        assert (under_way.replicas, under_way.adding_replicas, under_way.removing_replicas) == ([2, 3, 1], [3], [1])
        assert await move(cluster, None) == ErrorCode.NONE
        assert await moves(cluster) == []
        await until(cluster, lambda: (known := state(cluster, 1)) is not None and sorted(known.replicas) == [1, 2])

    play(scenario)


def test_the_preferred_leader_leads_again_when_it_is_asked_for() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def elect() -> ErrorCode:
            partitions = [TopicPartitions(topic="t", partitions=[0])]
            request = ElectLeadersRequest(election_type=0, topic_partitions=partitions)
            response = await cluster.asked(controller(cluster), request, ELECT)
            return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)

        assert await elect() == ErrorCode.ELECTION_NOT_NEEDED
        await cluster.brokers[1].stop()
        await until(cluster, lambda: (known := state(cluster, 2)) is not None and known.leader == 2)
        await until(cluster, lambda: controller(cluster) in cluster.running)
        assert await elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        cluster.begin_start(1)
        await until(cluster, lambda: (known := state(cluster, 2)) is not None and sorted(known.isr) == [1, 2])
        assert await elect() in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        await until(cluster, lambda: (known := state(cluster, 2)) is not None and known.leader == 1)

    play(scenario)


def test_all_preferred_leaders_lead_again_when_no_partitions_are_named() -> None:
    """Only those are answered of which something changed, or could not."""

    async def scenario(cluster: SimulatedCluster) -> None:
        name = TopicPartition("u", 0)
        request = create_topic("u", -1, -1, assignments={0: [1, 3], 1: [3, 2]})
        response = await cluster.asked(controller(cluster), request, CREATE, timeout_s=30)
        assert response.topics[0].error_code == ErrorCode.NONE
        await cluster.brokers[1].stop()
        await until(cluster, lambda: {cluster.states()[each].leader for each in (NAME, name)} == {2, 3})
        cluster.begin_start(1)
        await until(cluster, lambda: all(1 in cluster.states()[each].isr for each in (NAME, name)))
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None)
        response = await cluster.asked(controller(cluster), everything, ELECT)
        assert response.error_code == ErrorCode.NONE
        elected = {
            (topic.topic, each.partition_id, each.error_code)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        assert elected == {("t", 0, ErrorCode.NONE), ("u", 0, ErrorCode.NONE)}
        assert {each: state.leader for each, state in cluster.states().items()} == {
            NAME: 1,
            name: 1,
            TopicPartition("u", 1): 3,
        }

    play(scenario, settings={"auto.leader.rebalance.enable": "false"})


def test_a_broker_that_was_away_when_its_replica_moved_deletes_it_when_it_is_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.crash(1, power_loss=False)
        await until(cluster, lambda: 1 not in cluster.brokers[2].broker.image.brokers)
        assert await move(cluster, [2, 3]) == ErrorCode.NONE
        await until(cluster, lambda: (known := state(cluster, 2)) is not None and known.replicas == (2, 3))
        cluster.begin_start(1)
        await until(cluster, lambda: 1 in cluster.running)
        await until(cluster, lambda: not list(cluster.brokers[1].broker.logs))

    play(scenario)


def setting(resource: ConfigScope, name: str, value: str) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=0, value=value)
    asked = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configs=[entry]
    )
    return IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)


def test_settings_are_changed_by_any_broker_followed_by_all_and_their_notifications_go() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        resource = ConfigScope(ConfigResourceType.TOPIC, "t")
        for node_id in cluster.brokers:  # one of them is the controller
            request = setting(resource, "retention.ms", str(1000 + node_id))
            response = await cluster.asked(node_id, request, ALTER_CONFIGS)
            assert response.responses[0].error_code == ErrorCode.NONE

            def is_known_to_all(node_id: int = node_id) -> bool:
                configs = [broker.broker.configs.topic_config("t") for broker in cluster.brokers.values()]
                return {config.retention_ms for config in configs} == {1000 + node_id}

            await until(cluster, is_known_to_all)
        await asyncio.sleep(LOOK_FOR_OLD_S)
        assert len(cluster.ensemble.tree.children(nodes.CONFIG_CHANGES)) == 3
        cluster.brokers[1].clock.skew_ms += QUARTER_OF_AN_HOUR_MS
        await asyncio.sleep(LOOK_FOR_OLD_S)
        assert cluster.ensemble.tree.children(nodes.CONFIG_CHANGES) == []

    play(scenario)


def test_a_broker_that_missed_the_notifications_of_settings_has_them_in_its_next_session() -> None:
    """They are taken away after a quarter of an hour, which it spends cut off from ZooKeeper."""

    async def scenario(cluster: SimulatedCluster) -> None:
        other = next(node_id for node_id in cluster.brokers if node_id != controller(cluster))
        away = cluster.brokers[other]
        asked = next(node_id for node_id in cluster.brokers if node_id != other)
        cluster.ensemble.cut(away.name)
        await until(cluster, lambda: cluster.ensemble.tree.entry(nodes.broker_path(other)) is None)
        for resource, name, value in (
            (ConfigScope(ConfigResourceType.TOPIC, "t"), "retention.ms", "1234"),
            (ConfigScope(ConfigResourceType.BROKER, ""), "log.cleaner.backoff.ms", "77"),
        ):
            response = await cluster.asked(asked, setting(resource, name, value), ALTER_CONFIGS)
            assert response.responses[0].error_code == ErrorCode.NONE
        cluster.brokers[asked].clock.skew_ms += QUARTER_OF_AN_HOUR_MS
        await asyncio.sleep(LOOK_FOR_OLD_S)
        assert cluster.ensemble.tree.children(nodes.CONFIG_CHANGES) == []
        assert away.broker.configs.topic_config("t").retention_ms != 1234
        cluster.ensemble.heal(away.name)
        await until(cluster, lambda: away.broker.configs.topic_config("t").retention_ms == 1234)
        assert away.broker.config.log_cleaner_backoff_ms == 77
        partition = away.broker.replicas.get(NAME)
        assert partition is None or partition.log.config.retention_ms == 1234

    play(scenario, replicas=(1, 2, 3))


def test_settings_of_what_has_none_are_refused_as_by_a_single_broker() -> None:
    """The store is asked first what it has: for some types it has no place, nor Kafka for such topics."""
    refusals = {
        (0, "x"): ErrorCode.INVALID_REQUEST,
        (ConfigResourceType.TOPIC, ".."): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (ConfigResourceType.TOPIC, "."): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (ConfigResourceType.BROKER_LOGGER, "2"): ErrorCode.INVALID_REQUEST,
        (ConfigResourceType.CLIENT_METRICS, "x"): ErrorCode.INVALID_REQUEST,
        (ConfigResourceType.GROUP, "."): ErrorCode.NONE,
        (ConfigResourceType.GROUP, ".."): ErrorCode.NONE,
        (99, "x"): ErrorCode.INVALID_REQUEST,
    }

    async def scenario(cluster: SimulatedCluster) -> None:
        for (resource_type, name), code in refusals.items():
            key = "consumer.session.timeout.ms" if resource_type == ConfigResourceType.GROUP else "retention.ms"
            entry = IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value="50000")
            asked = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=resource_type, resource_name=name, configs=[entry]
            )
            request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
            (answer,) = (await cluster.asked(1, request, ALTER_CONFIGS)).responses
            assert answer.error_code == code, (resource_type, name, answer)
        brokers = [broker.broker for broker in cluster.brokers.values()]
        for name in (".", ".."):
            group = ConfigScope(ConfigResourceType.GROUP, name)
            await until(cluster, lambda: all(broker.configs.overrides_of(group) for broker in brokers))  # noqa: B023

    play(scenario)


async def looked_for(cluster: SimulatedCluster, node_id: int, name: str, *, auto_create: bool = True) -> Any:
    """What a client learns of a topic that it may want to have created."""
    (found,) = (await cluster.asked(node_id, metadata(name, auto_create=auto_create), METADATA)).topics
    return found


def test_a_broker_that_is_not_the_controller_creates_the_topic_that_a_client_looks_for() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, other = {1, 2, 3} - {controller(cluster)}
        found = await looked_for(cluster, other, "new", auto_create=False)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.ensemble.tree.entry(nodes.topic_path("new")) is None
        both = await asyncio.gather(looked_for(cluster, other, "new"), looked_for(cluster, one, "new"))
        assert {each.error_code for each in both} == {ErrorCode.LEADER_NOT_AVAILABLE}
        assert cluster.ensemble.tree.entry(nodes.config_path("topics", "new")) is not None
        for node_id in (1, 2, 3):
            while (found := await looked_for(cluster, node_id, "new", auto_create=False)).error_code:
                await asyncio.sleep(0.05)
            assert len(found.partitions) == 4
            assert all({*each.replica_nodes} == {*each.isr_nodes} == {1, 2, 3} for each in found.partitions)

    play(scenario, settings={"num.partitions": "4"})


def test_a_broker_creates_no_topic_on_its_own_where_it_may_not() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for node_id in (1, 2, 3):
            found = await looked_for(cluster, node_id, "new")
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.ensemble.tree.entry(nodes.topic_path("new")) is None

    play(scenario, settings={"auto.create.topics.enable": "false"})


def test_a_topic_is_deleted_once_all_its_replicas_are_there() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        away = next(node_id for node_id in (1, 2) if node_id != controller(cluster))
        await cluster.crash(away, power_loss=False)
        await until(cluster, lambda: away not in cluster.brokers[3].broker.image.brokers)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=30_000)
        deleted = await cluster.asked(controller(cluster), request, DELETE, timeout_s=60)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        await asyncio.sleep(5)
        assert cluster.ensemble.tree.entry(nodes.topic_path("t")) is not None
        cluster.begin_start(away)
        await until(cluster, lambda: cluster.ensemble.tree.entry(nodes.topic_path("t")) is None)
        await until(cluster, lambda: not any(list(broker.broker.logs) for broker in cluster.brokers.values()))

    play(scenario)


def test_topics_whose_replicas_are_away_are_deleted_as_far_as_they_can_be() -> None:
    """As captured of Kafka: the answer comes once nobody finds them any more."""
    names = ["t", "u", "v", "w"]

    async def scenario(cluster: SimulatedCluster) -> None:
        for name in names[1:]:
            await cluster.asked(controller(cluster), create_topic(name, -1, -1, assignments={0: (1, 2)}), CREATE)
        away = next(node_id for node_id in (1, 2) if node_id != controller(cluster))
        await cluster.crash(away, power_loss=False)
        await until(cluster, lambda: away not in cluster.brokers[3].broker.image.brokers)
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        began = asyncio.get_running_loop().time()
        request = DeleteTopicsRequest(topics=topics, timeout_ms=20_000)
        response = await cluster.asked(controller(cluster), request, DELETE, timeout_s=120)
        assert asyncio.get_running_loop().time() - began < 5, "nobody waits for a broker that is away"
        assert [result.name for result in response.responses] == names
        assert {result.error_code for result in response.responses} == {ErrorCode.NONE}
        again = await cluster.asked(controller(cluster), create_topic("t", 1), CREATE, timeout_s=60)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert again.topics[0].error_message == (
            "topic t is being deleted, and exists until brokers that are away are back "
            f"and have deleted their replicas: {away}"
        )
        marked = [name for name in names if cluster.ensemble.tree.entry(nodes.deletion_path(name)) is not None]
        assert marked == names

    play(scenario)


def test_a_controller_gives_out_blocks_of_producer_ids_to_brokers_that_it_knows() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        member = cluster.brokers[2].broker.cluster
        assert member is not None
        starts = []
        for _ in range(2):
            request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=member.membership.epoch)
            response = await cluster.asked(controller(cluster), request, PRODUCER_IDS)
            starts.append((response.error_code, response.producer_id_start, response.producer_id_len))
        assert starts == [(0, 0, 1000), (0, 1000, 1000)]
        stranger = AllocateProducerIdsRequest(broker_id=2, broker_epoch=member.membership.epoch - 1)
        refused = await cluster.asked(controller(cluster), stranger, PRODUCER_IDS)
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scenario)


# -- quotas ------------------------------------------------------------------------------------------------------------


def quota_request(rate: float | None) -> AlterClientQuotasRequest:
    entity = [
        EntityData(entity_type="user", entity_name="alice"),
        EntityData(entity_type="client-id", entity_name=None),
    ]
    op = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def test_quotas_are_set_by_any_broker_followed_by_all_and_notified_as_kafka_does() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        def limits() -> set[float | None]:
            found = (broker.broker.quotas.limits.limit_of("producer_byte_rate", "alice", "app") for broker in brokers)
            return {None if limit is None else limit.value for limit in found}

        brokers = list(cluster.brokers.values())
        for asked, rate in ((1, 1024.0), (2, 2048.0), (3, None)):
            answer = await cluster.asked(asked, quota_request(rate), 1)
            assert answer.entries[0].error_code == ErrorCode.NONE, answer
            await until(cluster, lambda: limits() == {rate})  # noqa: B023
        store = brokers[0].broker.store
        names = await store.children(nodes.CONFIG_CHANGES)
        changes = [await store.get(f"{nodes.CONFIG_CHANGES}/{name}") for name in names]
        assert [change.data for change in changes if change is not None][-3:] == [
            b'{"version":2,"entity_path":"users/alice/clients/<default>"}'
        ] * 3

    play(scenario)


def test_a_broker_that_was_away_has_the_quotas_when_it_is_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.brokers[3].stop()
        answer = await cluster.asked(1, quota_request(10.0), 1)
        assert answer.entries[0].error_code == ErrorCode.NONE, answer
        await cluster.brokers[3].start()
        assert cluster.brokers[3].broker.quotas.limits.quotas

    play(scenario)
