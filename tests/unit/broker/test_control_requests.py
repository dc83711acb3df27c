"""What a broker of a cluster does about requests that its controller sent, or did not: epochs, ids, roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from ottla.cluster import nodes
from ottla.cluster.image import NO_LEADER
from ottla.errors import ErrorCode, StorageError
from ottla.ids import TopicPartition
from ottla.protocol.messages.cluster import UpdateFeaturesRequest
from ottla.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.schema import schema_of
from ottla.protocol.wire import ZERO_UUID
from ottla.store.api import SessionState
from ottla.testing.raw_requests import create_topic
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN, ALTER_PARTITION, CREATE_TOPICS = 7, 4, 8, 3, 3, 5
ALLOCATE_PRODUCER_IDS, DELETE_TOPICS, CREATE_PARTITIONS = 0, 6, 3
WITHOUT_TOPIC_IDS = 4  # of LeaderAndIsr
WITH_BROKER_EPOCHS = 3  # of AlterPartition
NEXT_CONTROLLER = 100  # an epoch that no real controller of these tests has
Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario, size: int = 2, excused: str | None = None) -> None:
    """A cluster with a topic of one partition on all brokers. `excused`: in the errors that the scenario provokes."""
    world = World(1)
    world.excuses = lambda message: excused is not None and excused in message
    cluster = SimulatedCluster(world, size)

    async def main() -> None:
        await cluster.start()
        await cluster.create_topic("t", 1)
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=100)


def epoch_of(cluster: SimulatedCluster, node_id: int) -> int:
    member = cluster.brokers[node_id].broker.cluster
    assert member is not None
    return member.membership.epoch


def topic_id(cluster: SimulatedCluster) -> UUID:
    return cluster.brokers[1].broker.image.topics["t"].topic_id


def leader_and_isr(
    cluster: SimulatedCluster,
    *,
    leader: int = 1,
    leader_epoch: int = 10,
    version: int | None = None,
    replicas: tuple[int, ...] = (1, 2),
    controller_epoch: int = NEXT_CONTROLLER,
    broker_epoch: int = -1,
    of_topic: UUID | None = None,
) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(replicas),
        partition_epoch=leader_epoch if version is None else version,
        replicas=list(replicas),
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=of_topic or topic_id(cluster), partition_states=[state])
    return LeaderAndIsrRequest(
        controller_id=2,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[topic],
        live_leaders=[],
    )


def stop_replica(
    leader_epoch: int, *, deletes: bool = False, controller_epoch: int = NEXT_CONTROLLER, broker_epoch: int = -1
) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=deletes)
    return StopReplicaRequest(
        controller_id=2,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )


def test_requests_of_a_controller_or_to_a_run_that_is_over_change_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        partition = cluster.brokers[1].broker.replicas.find("t", 0)
        before = partition.leader_epoch
        old = leader_and_isr(cluster, controller_epoch=0)
        assert (await cluster.asked(1, old, LEADER_AND_ISR)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        update = UpdateMetadataRequest(controller_id=9, controller_epoch=0, live_brokers=[])
        assert (await cluster.asked(1, update, UPDATE_METADATA)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        earlier = leader_and_isr(cluster, broker_epoch=epoch_of(cluster, 1) - 1)
        assert (await cluster.asked(1, earlier, LEADER_AND_ISR)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert partition.leader_epoch == before
        assert cluster.brokers[1].broker.image.controller_id != 9

    play(scenario)


def test_a_request_to_a_run_that_is_over_is_refused_for_that_also_where_its_controller_is_over() -> None:
    """The order of Kafka's checks."""

    async def scenario(cluster: SimulatedCluster) -> None:
        earlier = epoch_of(cluster, 1) - 1
        update = UpdateMetadataRequest(controller_id=9, controller_epoch=0, broker_epoch=earlier, live_brokers=[])
        stop = stop_replica(-1, controller_epoch=0, broker_epoch=earlier)
        lead = leader_and_isr(cluster, controller_epoch=0, broker_epoch=earlier)
        for request, version in ((lead, LEADER_AND_ISR), (update, UPDATE_METADATA), (stop, STOP_REPLICA)):
            assert (await cluster.asked(1, request, version)).error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scenario)


def test_a_partition_takes_the_role_of_a_later_epoch_only_and_of_its_own_topic() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        partition = cluster.brokers[1].broker.replicas.find("t", 0)

        async def told(**options: Any) -> ErrorCode:
            response = await cluster.asked(1, leader_and_isr(cluster, **options), LEADER_AND_ISR)
            assert response.error_code == ErrorCode.NONE
            return ErrorCode(response.topics[0].partition_errors[0].error_code)

        assert await told(leader=1) == ErrorCode.NONE
        assert (partition.is_leader, partition.leader_epoch) == (True, 10)
        assert await told(leader=2) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert await told(leader=2, leader_epoch=9) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert await told(leader=2, leader_epoch=11, of_topic=UUID(int=7)) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert await told(leader_epoch=11, replicas=(2,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partition.is_leader
        assert await told(leader=2, leader_epoch=11) == ErrorCode.NONE
        assert partition.follower is not None
        assert partition.follower.leader_id == 2
        assert await told(leader=-1, leader_epoch=12) == ErrorCode.NONE
        assert (partition.is_leader, partition.follower) == (False, None)

    play(scenario)


def test_a_role_of_a_later_epoch_in_an_earlier_state_is_passed_over_without_a_word() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        partition = cluster.brokers[1].broker.replicas.find("t", 0)

        async def told(version: int, **options: Any) -> ErrorCode:
            request = leader_and_isr(cluster, version=version, **options)
            return ErrorCode((await cluster.asked(1, request, LEADER_AND_ISR)).topics[0].partition_errors[0].error_code)

        def role() -> tuple[bool, int]:
            return partition.is_leader, partition.leader_epoch

        assert await told(20, leader=2) == ErrorCode.NONE
        assert (await told(19, leader_epoch=11), role()) == (ErrorCode.NONE, (False, 10))
        assert (await told(20, leader_epoch=11), role()) == (ErrorCode.NONE, (True, 11))
        partition.isr_changed(partition.leader, (1, 2), 23)  # as the controller answers a leader
        assert (await told(22, leader=2, leader_epoch=12), role()) == (ErrorCode.NONE, (True, 11))
        assert (await told(23, leader=-1, leader_epoch=12), role()) == (ErrorCode.NONE, (False, 12))
        assert (await told(22, leader=1, leader_epoch=13), role()) == (ErrorCode.NONE, (False, 12))

    play(scenario)


def test_a_controller_that_sends_no_topic_ids_changes_no_role() -> None:
    """As Kafka does with an `inter.broker.protocol.version` below 2.8."""

    async def scenario(cluster: SimulatedCluster) -> None:
        partition = cluster.brokers[1].broker.replicas.find("t", 0)
        before = partition.leader_epoch
        response = await cluster.asked(1, leader_and_isr(cluster), WITHOUT_TOPIC_IDS)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert partition.leader_epoch == before

    play(scenario, excused="sends no topic ids")


def test_a_replica_stops_in_its_epoch_and_goes_when_its_topic_does() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        replicas = cluster.brokers[1].broker.replicas
        partition = replicas.find("t", 0)
        await cluster.asked(1, leader_and_isr(cluster), LEADER_AND_ISR)

        async def stopped(leader_epoch: int, *, deletes: bool = False) -> ErrorCode:
            response = await cluster.asked(1, stop_replica(leader_epoch, deletes=deletes), STOP_REPLICA)
            return ErrorCode(response.partition_errors[0].error_code)

        assert await stopped(9) == ErrorCode.FENCED_LEADER_EPOCH
        assert partition.is_leader
        assert await stopped(10) == ErrorCode.NONE
        assert not partition.is_leader
        assert not partition.is_gone
        assert await stopped(-2, deletes=True) == ErrorCode.NONE
        assert partition.is_gone
        assert replicas.get(TopicPartition("t", 0)) is None
        assert await stopped(-2, deletes=True) == ErrorCode.NONE  # nothing is left

    play(scenario)


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    """Of all requests that Kafka has answered by the controller alone; see what this broker could say instead."""
    of_partition = TopicPartitions(topic="t", partitions=[0])
    moved = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
    requests: list[tuple[object, int]] = [
        (create_topic("u", 1, 1), CREATE_TOPICS),
        (create_topic("t", 1, 1), CREATE_TOPICS),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000), DELETE_TOPICS),
        (DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=UUID(int=7))], timeout_ms=1000), DELETE_TOPICS),
        (more_partitions("t"), CREATE_PARTITIONS),
        (more_partitions("none"), CREATE_PARTITIONS),
        (ElectLeadersRequest(election_type=0, topic_partitions=[of_partition], timeout_ms=1000), 2),
        (ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=1000), 2),
        (AlterPartitionReassignmentsRequest(topics=[moved]), 0),
        (AlterPartitionReassignmentsRequest(topics=[]), 0),
        (ListPartitionReassignmentsRequest(topics=None), 0),
        (UpdateFeaturesRequest(feature_updates=[]), 1),
        (AlterPartitionRequest(broker_id=1, topics=[]), ALTER_PARTITION),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), ALLOCATE_PRODUCER_IDS),
    ]

    async def scenario(cluster: SimulatedCluster) -> None:
        (other,) = {1, 2} - {cluster.brokers[1].broker.image.controller_id}
        for request, version in requests:
            response = await cluster.asked(other, request, version)
            assert errors_of(response) == {ErrorCode.NOT_CONTROLLER}, (request, response)
        leaving = await cluster.asked(other, ControlledShutdownRequest(broker_id=1), CONTROLLED_SHUTDOWN)
        assert leaving.error_code == ErrorCode.STALE_CONTROLLER_EPOCH  # Kafka's word for it here
        assert len(cluster.brokers[other].broker.image.topics) == 1

    play(scenario)


def more_partitions(topic: str) -> CreatePartitionsRequest:
    wanted = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)


def errors_of(response: Any) -> set[int]:
    """All that are in a response, whether of itself or of its entries."""
    found = {response.error_code} if getattr(response, "error_code", 0) else set()
    for field in schema_of(type(response)).fields:
        value = getattr(response, field.name)
        if isinstance(value, list) and value and field.struct is not None:
            for entry in value:
                found |= errors_of(entry)
    return found


def test_a_controller_says_in_the_words_of_kafkas_that_a_broker_is_not_registered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        controller = cluster.brokers[1].broker.image.controller_id

        async def answer(request: object, version: int) -> ErrorCode:
            return ErrorCode((await cluster.asked(controller, request, version)).error_code)

        altering = AlterPartitionRequest(broker_id=77, broker_epoch=1, topics=[])
        assert await answer(altering, ALTER_PARTITION) == ErrorCode.STALE_BROKER_EPOCH
        allocating = AllocateProducerIdsRequest(broker_id=77, broker_epoch=1)
        assert await answer(allocating, ALLOCATE_PRODUCER_IDS) == ErrorCode.BROKER_ID_NOT_REGISTERED
        leaving = ControlledShutdownRequest(broker_id=77, broker_epoch=1)
        assert await answer(leaving, CONTROLLED_SHUTDOWN) == ErrorCode.UNKNOWN_SERVER_ERROR
        leaving = ControlledShutdownRequest(broker_id=77, broker_epoch=-1)  # of a release without epochs of brokers
        assert await answer(leaving, CONTROLLED_SHUTDOWN) == ErrorCode.BROKER_NOT_AVAILABLE

    play(scenario)


def test_a_controller_takes_changes_only_from_the_registered_run_of_a_broker() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        controller = cluster.brokers[1].broker.image.controller_id
        request = AlterPartitionRequest(broker_id=2, broker_epoch=epoch_of(cluster, 2) + 1, topics=[])
        answer = await cluster.asked(controller, request, ALTER_PARTITION)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scenario)


def test_a_leader_learns_why_a_replica_may_not_join_in_an_error_that_its_version_has() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        controller = cluster.brokers[1].broker.image.controller_id
        name = TopicPartition("t", 0)
        state = cluster.states()[name]

        async def told(version: int, **named: Any) -> ErrorCode:
            isr = [*state.isr, 9]  # no such broker is there
            entry = AlterPartitionRequestPartitionData(
                partition_index=0,
                leader_epoch=state.leader_epoch,
                new_isr=isr if version < WITH_BROKER_EPOCHS else [],
                new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr if version >= WITH_BROKER_EPOCHS],
                partition_epoch=state.version,
            )
            topic = AlterPartitionRequestTopicData(partitions=[entry], **named)
            leader = state.leader
            request = AlterPartitionRequest(broker_id=leader, broker_epoch=epoch_of(cluster, leader), topics=[topic])
            answer = await cluster.asked(controller, request, version)
            assert answer.error_code == ErrorCode.NONE
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        by_id = {"topic_id": topic_id(cluster)}
        assert await told(0, topic_name="t") == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await told(1, topic_name="t") == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await told(2, **by_id) == await told(3, **by_id) == ErrorCode.INELIGIBLE_REPLICA
        assert await told(1, topic_name="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await told(3) == await told(3, topic_id=UUID(int=7)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert cluster.states()[name] == state

    play(scenario)


def test_a_run_that_is_not_registered_yet_does_not_take_what_was_meant_for_the_one_before() -> None:
    """Else it would lead, with a log that lacks what the crash took, in an epoch that the others have heard of."""

    async def scenario(cluster: SimulatedCluster) -> None:
        before = epoch_of(cluster, 1)
        request = leader_and_isr(cluster, leader=1, broker_epoch=before, controller_epoch=1)
        await cluster.crash(1, power_loss=True)
        cluster.begin_start(1)
        await asyncio.sleep(0.5)  # it listens, and its earlier session is not over
        asking = asyncio.ensure_future(cluster.asked(1, request, LEADER_AND_ISR, timeout_s=30.0))
        await asyncio.sleep(0.5)
        assert not asking.done()  # it may be meant for this run, whose epoch is not known
        await cluster.settle(is_quiet=True)
        assert (await asking).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert epoch_of(cluster, 1) > before

    play(scenario)


def test_a_coordinator_is_given_up_with_its_directory_although_no_controller_says_so() -> None:
    """It went on to end transactions that had expired, once a second, and no group of the broker could be listed."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create_topic("__consumer_offsets", 1)
        broker = cluster.brokers[1].broker
        while not broker.groups.runners():
            await asyncio.sleep(0.1)
        log = broker.replicas.find("__consumer_offsets", 0).log
        broker.replicas.directory_failed(log, StorageError(log.directory, "it is lost"))
        await asyncio.sleep(1)
        assert broker.groups.runners() == []

    play(scenario, size=1, excused="it is lost")


def test_a_broker_that_stops_while_it_looks_for_a_server_of_zookeeper_stops_in_order_all_the_same() -> None:
    """Else its registration stayed until its session was over, and its leaderships with it."""

    async def scenario(cluster: SimulatedCluster) -> None:
        name = TopicPartition("t", 0)
        leader = cluster.states()[name].leader
        broker = cluster.brokers[leader]
        cluster.ensemble.cut(broker.name)
        while broker.broker.store.session.state is not SessionState.SUSPENDED:
            await asyncio.sleep(0.01)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cluster.stop(leader))
            await asyncio.sleep(0.3)
            cluster.ensemble.heal(broker.name)
        assert cluster.states()[name].leader not in (leader, NO_LEADER)
        await asyncio.sleep(0.1)  # the end of its session is on its way
        assert cluster.ensemble.tree.entry(nodes.broker_path(leader)) is None

    play(scenario)
