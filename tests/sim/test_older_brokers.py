"""Brokers that have older versions of what brokers ask of each other.

The responses of a leader with an older Fetch do not say where two histories part: its followers ask for that before
they fetch, and end with the same log. What a controller and leaders send is said as the other side's version says it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ottla.broker.handlers.api_versions import advertised
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.replication.follower import Follower, TruncateTo
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.raw_transactions import TRANSACTION_KEY, WAITED_FOR, add_request, end_request, init_request
from ottla.testing.simulated_cluster import SimulatedCluster, contents
from ottla.testing.world import SimulationError, World

FETCH_KEY, EPOCH_END_KEY = 1, 23
LEADER_AND_ISR_KEY, STOP_REPLICA_KEY, UPDATE_METADATA_KEY, ALTER_PARTITION_KEY = 4, 5, 6, 56
ADD_PARTITIONS_KEY = 24
FIND_VERSION, INIT_VERSION, ADD_VERSION, END_VERSION = 4, 4, 3, 3
CREATE_VERSION, PRODUCE_VERSION, DELETE_VERSION = 5, 9, 5
NAME = TopicPartition("t", 0)
CONTROLLER, ONE, OTHER = 1, 2, 3
# What brokers of Apache Kafka announce of the two, as their last versions.
VERSIONS = {"kafka-2.6": (11, 3), "kafka-2.0": (8, 1)}

Scenario = Callable[[SimulatedCluster], Awaitable[None]]


@pytest.fixture(params=[*VERSIONS.values()], ids=[*VERSIONS])
def older_leaders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, dict(zip((FETCH_KEY, EPOCH_END_KEY), request.param, strict=True)))


def announce(monkeypatch: pytest.MonkeyPatch, last: Mapping[int, int]) -> None:
    """Brokers announce no later versions than these."""

    def older(*arguments: Any, **options: Any) -> list[ApiVersion]:
        announced = advertised(*arguments, **options)
        for each in announced:
            each.max_version = min(each.max_version, last.get(each.api_key, each.max_version))
        return announced

    monkeypatch.setattr("ottla.broker.broker.advertised", older)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What followers did after they had asked where an epoch ends."""
    found: list[object] = []
    handle = Follower.handle_epoch_end

    def noted(follower: Follower, *arguments: Any) -> Any:
        step = handle(follower, *arguments)
        found.append(step)
        return step

    monkeypatch.setattr(Follower, "handle_epoch_end", noted)
    return found


def play(scenario: Scenario, *, seed: int = 1) -> None:
    world = World(seed)
    cluster = SimulatedCluster(world, settings={"min.insync.replicas": "1", "auto.leader.rebalance.enable": "false"})

    async def main() -> None:
        await cluster.start()
        await until(lambda: all(len(cluster.brokers[each].broker.image.brokers) == 3 for each in cluster.brokers))
        request = create_topic(
            NAME.topic,
            -1,
            -1,
            assignments={0: [ONE, OTHER]},
            config={"unclean.leader.election.enable": "true"},
        )
        response = await cluster.asked(CONTROLLER, request, CREATE_VERSION, timeout_s=60)
        assert response.topics[0].error_code == ErrorCode.NONE
        await cluster.settle(is_quiet=True)
        await scenario(cluster)
        await cluster.settle(is_quiet=True)
        cluster.compare(NAME, committed_only=False)
        await cluster.close()

    world.run(main(), seconds=3000)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def write(cluster: SimulatedCluster, node_id: int, *values: bytes, acks: int = -1) -> None:
    for value in values:
        response = await cluster.asked(
            node_id, produce(NAME.topic, one_batch(value), acks=acks), PRODUCE_VERSION, timeout_s=30
        )
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def alone(cluster: SimulatedCluster, node_id: int, *values: bytes) -> None:
    """One of the two leads while the other is down, and takes records."""
    other = ONE + OTHER - node_id
    await cluster.crash(other, power_loss=False)
    cluster.begin_start(node_id)
    await until(lambda: cluster.states()[NAME].isr == (node_id,) and cluster.is_current_leader(NAME, node_id))
    await write(cluster, node_id, *values)


def values(cluster: SimulatedCluster) -> list[bytes]:
    return [*contents(cluster.replicas(NAME)[0]).values()]


async def one_tail(cluster: SimulatedCluster) -> None:
    """A leader that nobody hears of takes records, and others are written meanwhile."""
    await write(cluster, ONE, b"both")
    names = [process.name for process in cluster.brokers.values()]
    cluster.ensemble.cut(cluster.brokers[ONE].name)
    for name in names:
        if name != cluster.brokers[ONE].name:
            cluster.world.network.cut(name, cluster.brokers[ONE].name)
    await write(cluster, ONE, b"lost 1", b"lost 2", b"lost 3", acks=1)
    await until(lambda: cluster.is_current_leader(NAME, OTHER))
    await write(cluster, OTHER, b"kept 1", b"kept 2", b"kept 3", b"kept 4")


async def tails_of_several_epochs(cluster: SimulatedCluster) -> None:
    """Each of the two leads without the other again and again: their epochs take turns."""
    await write(cluster, ONE, b"both")
    await alone(cluster, ONE, b"lost 1", b"lost 2", b"lost 3")
    await alone(cluster, OTHER, b"kept 1", b"kept 2")
    await alone(cluster, ONE, b"lost 4", b"lost 5")
    await alone(cluster, OTHER, b"kept 3", b"kept 4")


@pytest.mark.usefixtures("older_leaders")
def test_what_only_a_deposed_leader_has_is_cut_off(steps: list[object]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await one_tail(cluster)
        await cluster.settle(is_quiet=True)
        assert values(cluster) == [b"both", b"kept 1", b"kept 2", b"kept 3", b"kept 4"]

    play(scenario)
    assert TruncateTo(1, is_last=True) in steps


@pytest.mark.usefixtures("older_leaders")
def test_a_tail_of_several_epochs_is_cut_off_epoch_by_epoch(steps: list[object]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await tails_of_several_epochs(cluster)
        steps.clear()
        await cluster.settle(is_quiet=True)
        assert values(cluster) == [b"both", b"kept 1", b"kept 2", b"kept 3", b"kept 4"]

    play(scenario)
    assert steps == [TruncateTo(3, is_last=False), TruncateTo(1, is_last=True)]


@pytest.mark.parametrize("history", [one_tail, tails_of_several_epochs])
@pytest.mark.usefixtures("older_leaders")
def test_a_follower_that_does_not_ask_is_found(history: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log differs from its leader's, and nobody says so to it."""
    monkeypatch.setattr(Follower, "before_fetch", lambda *_, **__: None)
    with pytest.raises(SimulationError, match="the replicas of t-0 differ"):
        play(history)


@pytest.mark.parametrize(("stop_replica", "alter_partition"), [(2, 0), (1, 1), (0, 2)])
def test_a_cluster_works_with_the_requests_of_older_brokers(
    stop_replica: int, alter_partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that are lost and in sync again, unclean elections, a topic that is deleted: all of it remotely."""
    older = {LEADER_AND_ISR_KEY: 5, UPDATE_METADATA_KEY: 7}
    announce(monkeypatch, {**older, STOP_REPLICA_KEY: stop_replica, ALTER_PARTITION_KEY: alter_partition})

    async def scenario(cluster: SimulatedCluster) -> None:
        await tails_of_several_epochs(cluster)
        assert cluster.states()[NAME].is_recovering
        await cluster.settle(is_quiet=True)
        doomed = TopicPartition("doomed", 0)
        assignments = {0: [ONE, OTHER]}
        request = create_topic(doomed.topic, -1, -1, assignments=assignments)
        assert not (await cluster.asked(CONTROLLER, request, CREATE_VERSION)).topics[0].error_code
        await until(lambda: len(cluster.replicas(doomed)) == 2)
        deletion = DeleteTopicsRequest(topic_names=[doomed.topic], timeout_ms=5000)
        response = await cluster.asked(CONTROLLER, deletion, DELETE_VERSION, timeout_s=30)
        assert not response.responses[0].error_code
        await until(lambda: not cluster.replicas(doomed))
        await until(lambda: all(log.name != doomed for each in cluster.brokers.values() for log in each.broker.logs))

    play(scenario)


def test_records_of_a_transaction_are_taken_whose_coordinator_cannot_verify_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announce(monkeypatch, {ADD_PARTITIONS_KEY: 3})

    async def until_ready(cluster: SimulatedCluster, node_id: int, request: object, version: int) -> Any:
        while (answer := await cluster.asked(node_id, request, version)).error_code in WAITED_FOR:
            await asyncio.sleep(0.1)
        return answer

    async def scenario(cluster: SimulatedCluster) -> None:
        leader = cluster.states()[NAME].leader
        coordinators: dict[int, str] = {}
        for transactional_id in map(str, range(10)):
            find = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id])
            while (found := (await cluster.asked(leader, find, FIND_VERSION)).coordinators[0]).error_code:
                await asyncio.sleep(0.1)
            coordinators[found.node_id] = transactional_id
        node_id, transactional_id = next(each for each in coordinators.items() if each[0] != leader)
        begun = await until_ready(cluster, node_id, init_request(transactional_id), INIT_VERSION)
        producer_id, epoch = begun.producer_id, begun.producer_epoch
        add = add_request(transactional_id, producer_id, epoch, *NAME)
        added = await cluster.asked(node_id, add, ADD_VERSION)
        assert not added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        records = one_batch(b"v", is_transactional=True, base_sequence=0, producer_id=producer_id, producer_epoch=epoch)
        request = produce(NAME.topic, records, transactional_id=transactional_id)
        response = await cluster.asked(leader, request, PRODUCE_VERSION)
        assert not response.responses[0].partition_responses[0].error_code
        end = end_request(transactional_id, producer_id, epoch, commit=True)
        assert not (await until_ready(cluster, node_id, end, END_VERSION)).error_code

    play(scenario)
