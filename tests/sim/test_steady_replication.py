"""While nothing but records comes, followers' fetches take their short way, on both sides; whatever else comes goes the
general one and loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from ottla.broker import steady_fetches
from ottla.broker.fetchers import _Fetcher
from ottla.broker.follower_fetches import FollowerFetches
from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.steady_fetches import SteadyFetches
from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.replication.leader import Leader
from ottla.testing.network import Conditions
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.wire_client import WireClient
from ottla.testing.world import World

CREATE_VERSION, PRODUCE_VERSION, ALTER_VERSION, DELETE_VERSION = 5, 9, 1, 5
PARTITIONS = 4
LEADER, FOLLOWER, OTHER = 1, 2, 3
LATE = TopicPartition("t", 0)

Play = Callable[[SimulatedCluster, WireClient], Awaitable[None]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each way was taken."""
    counts: Counter[str] = Counter()
    repeat, general, taken, ask = (
        FollowerFetches.repeat,
        fetch_handler._Reading.answer,
        SteadyFetches._taken,
        _Fetcher._ask,
    )

    def counted_repeat(fetches: FollowerFetches, *arguments: Any) -> Any:
        found = repeat(fetches, *arguments)
        counts["led short" if found is not None else "left to the general way"] += 1
        return found

    async def counted_answer(reading: Any) -> Any:
        counts["led generally"] += 1
        return await general(reading)

    def counted_taken(run: SteadyFetches, frame: memoryview) -> Any:
        found = taken(run, frame)
        counts["followed short" if found is not None else "unusual"] += 1
        return found

    async def counted_ask(fetcher: Any, *arguments: Any) -> Any:
        counts["followed generally"] += 1
        return await ask(fetcher, *arguments)

    monkeypatch.setattr(FollowerFetches, "repeat", counted_repeat)
    monkeypatch.setattr(fetch_handler._Reading, "answer", counted_answer)
    monkeypatch.setattr(SteadyFetches, "_taken", counted_taken)
    monkeypatch.setattr(_Fetcher, "_ask", counted_ask)
    return counts


def run(play: Play, *, settings: dict[str, str] | None = None, seed: int = 1) -> None:
    world = World(seed, Conditions(latency_s=0.001, jitter_s=0.002))
    cluster = SimulatedCluster(world, settings=settings)

    async def main() -> None:
        await cluster.start()
        replicas = [LEADER, FOLLOWER, OTHER]
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        await cluster.asked(LEADER, create_topic("t", -1, -1, assignments=assignments), CREATE_VERSION)
        await cluster.settle(is_quiet=True)
        client = await cluster.connected(LEADER)
        await play(cluster, client)
        client.close()
        await cluster.settle(is_quiet=True)
        for index in range(PARTITIONS):
            cluster.compare(TopicPartition("t", index), committed_only=False)
        await cluster.close()

    world.run(main(), seconds=600)


async def write(client: WireClient, count: int, *, partition: int | None = None) -> None:
    for number in range(count):
        index = number % PARTITIONS if partition is None else partition
        response = await client.call(produce("t", one_batch(b"%d" % number), partition=index), PRODUCE_VERSION)
        assert not response.responses[0].partition_responses[0].error_code


def test_records_under_a_steady_load_take_the_short_way(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 20)
        await asyncio.sleep(2)
        seen.clear()
        await write(client, 400)
        assert seen["led short"] > 700
        assert seen["followed short"] > 700
        assert seen["led generally"] + seen["followed generally"] < 60, "two followers, once a second each"
        assert seen["unusual"] == 0

    run(play)


def test_a_follower_at_rest_asks_on_the_short_way(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 4)
        await asyncio.sleep(5)
        seen.clear()
        await asyncio.sleep(20)
        assert seen["led short"] > 150
        assert seen["led generally"] == 0
        assert 0 < seen["followed generally"] < seen["followed short"]

    run(play, settings={"replica.fetch.wait.max.ms": "200"})


def test_topics_that_come_and_go_leave_followers_of_others_alone(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        writing = asyncio.create_task(write(client, 600))
        for number in range(3):
            await cluster.create_topic(f"other-{number}", 3)
            await asyncio.sleep(0.5)
        await writing
        assert seen["followed short"] > 300

    run(play)


def test_a_leader_that_is_killed_under_load_is_followed_by_another(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 50)
        await cluster.crash(LEADER, power_loss=False)
        await asyncio.sleep(5)
        new_leader = cluster.states()[LATE].leader
        assert new_leader in (FOLLOWER, OTHER)
        cluster.begin_start(LEADER)
        heir = await cluster.connected(new_leader)
        seen.clear()
        await write(heir, 200)
        heir.close()
        assert seen["followed short"] > 200
        await cluster.settle(is_quiet=True)

    run(play)


def test_a_follower_that_hangs_leaves_the_in_sync_replicas_after_its_time_and_comes_back(seen: Counter[str]) -> None:
    """Its last fetch is noted once for all partitions: each has to know when that was, and no longer."""
    lag_s = 4.0

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 40)
        await asyncio.sleep(1)
        network = cluster.world.network
        names = [cluster.brokers[node_id].name for node_id in (LEADER, FOLLOWER)]
        network.cut(*names)
        cut_at = cluster.world.loop.time()
        await write(client, 1, partition=0)  # acknowledged once the follower is out
        left_after = cluster.world.loop.time() - cut_at
        assert lag_s - 1 < left_after < 2 * lag_s
        network.heal(*names)
        await cluster.settle(is_quiet=True)
        assert set(cluster.states()[LATE].isr) == {LEADER, FOLLOWER, OTHER}

    run(play, settings={"replica.lag.time.max.ms": str(int(lag_s * 1000)), "min.insync.replicas": "1"})


def test_nothing_is_learned_of_a_follower_while_one_of_its_partitions_is_not_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be for nothing with every request, however many partitions are in sync."""
    last = TopicPartition("t", PARTITIONS - 1)  # in the order in which they are looked at
    learned: list[int] = []
    add = FollowerFetches.add

    def counted(fetches: FollowerFetches, *arguments: Any, **options: Any) -> None:
        learned.append(fetches._node_id)
        add(fetches, *arguments, **options)

    monkeypatch.setattr(FollowerFetches, "add", counted)

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        network = cluster.world.network
        names = [cluster.brokers[node_id].name for node_id in (LEADER, FOLLOWER)]
        await write(client, PARTITIONS)
        await asyncio.sleep(1)
        with monkeypatch.context() as patched:
            patched.setattr(Leader, "propose_growth", lambda *_: None)
            network.cut(*names)
            await write(client, 1, partition=last.partition)
            network.heal(*names)
            await asyncio.sleep(5)
            learned.clear()
            await write(client, 40, partition=last.partition)
            assert {*cluster.states()[last].isr} == {LEADER, OTHER}
            assert FOLLOWER in cluster.states()[LATE].isr
            assert FOLLOWER not in learned
        await cluster.settle(is_quiet=True)
        await write(client, 40)
        assert FOLLOWER in learned

    run(play, settings={"min.insync.replicas": "1"})


def test_partitions_that_come_are_fetched_with_the_next_request(
    seen: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only when everything is looked at again."""
    monkeypatch.setattr(steady_fetches, "STEADY_S", 1_000_000.0)

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 20)
        await asyncio.sleep(1)
        await cluster.create_topic("other", 3)
        await cluster.settle(is_quiet=True)
        for index in range(3):
            leader = cluster.states()[TopicPartition("other", index)].leader
            request = produce("other", one_batch(b"v"), partition=index)
            response = await cluster.asked(leader, request, PRODUCE_VERSION)
            assert not response.responses[0].partition_responses[0].error_code
        assert seen["followed short"] > 0

    run(play)


async def set_fetchers(cluster: SimulatedCluster, count: int) -> None:
    entry = IncrementalAlterConfigsRequestAlterableConfig(
        name="num.replica.fetchers", config_operation=0, value=str(count)
    )
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="", configs=[entry]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await cluster.asked(LEADER, request, ALTER_VERSION)
    assert not response.responses[0].error_code


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "at-rest"])
def test_another_number_of_fetchers_is_used_at_once(seen: Counter[str], is_loaded: bool) -> None:
    """Each fetcher has a session with the leader, and ends it with its last partition."""

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 40)
        sessions = cluster.brokers[LEADER].broker.fetch_sessions
        assert len(sessions) == 2
        writing = asyncio.create_task(write(client, 3000 if is_loaded else 0))
        for count in (3, 1, 4, 2, 1):
            await set_fetchers(cluster, count)
            async with asyncio.timeout(1.0):
                while len(sessions) != 2 * count:
                    await asyncio.sleep(0.01)
            seen.clear()
            await asyncio.sleep(0.5)
            assert len(sessions) == 2 * count
            assert not is_loaded or seen["followed short"] > 30
        assert is_loaded is not writing.done()
        await writing

    run(play)


def test_fetchers_that_come_and_go_all_the_time_leave_no_session_behind(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        writing = asyncio.create_task(write(client, 600))
        rng = cluster.world.rng("fetchers")
        while not writing.done():
            await set_fetchers(cluster, rng.choice([1, 2, 3, 5]))
            await asyncio.sleep(rng.random() * 0.3)
        await writing
        await set_fetchers(cluster, 2)
        await asyncio.sleep(2)
        assert len(cluster.brokers[LEADER].broker.fetch_sessions) == 4

    run(play)


def test_a_leader_keeps_no_session_of_a_follower_of_nothing(seen: Counter[str]) -> None:
    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        sessions = cluster.brokers[OTHER].broker.fetch_sessions
        for _ in range(3):
            request = create_topic("other", -1, -1, assignments={0: [OTHER, FOLLOWER]})
            assert not (await cluster.asked(LEADER, request, CREATE_VERSION)).topics[0].error_code
            async with asyncio.timeout(5):
                while len(sessions) != 1:
                    await asyncio.sleep(0.01)
            deletion = DeleteTopicsRequest(topic_names=["other"], timeout_ms=5000)
            assert not (await cluster.asked(LEADER, deletion, DELETE_VERSION)).responses[0].error_code
            async with asyncio.timeout(1):
                while len(sessions):
                    await asyncio.sleep(0.01)

    run(play)


def test_a_partition_that_pauses_is_not_asked_for_before_its_time(
    seen: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind an error there is no short way: it would meet the same error, and make the pause longer."""

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        await write(client, 20)
        asked_ms: list[int] = []
        read = fetch_handler._Reading._read

        def refused(reading: Any, partition: Any, *arguments: Any, **options: Any) -> Any:
            if reading._follower_id == FOLLOWER and partition.name == LATE and len(asked_ms) < 5:
                asked_ms.append(int(cluster.world.loop.time() * 1000))
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, "for a while")
            return read(reading, partition, *arguments, **options)

        monkeypatch.setattr(fetch_handler._Reading, "_read", refused)
        monkeypatch.setattr(FollowerFetches, "repeat", lambda *_: None)
        await write(client, 8)
        await asyncio.sleep(5)
        gaps = [later - earlier for earlier, later in pairwise(asked_ms)]
        assert len(asked_ms) == 5
        assert all(gap >= 15 for gap in gaps), asked_ms

    run(play)


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_that_stops_in_order_fails_no_write(seen: Counter[str], seed: int) -> None:
    """The controller begins a new epoch of the same leader then."""

    async def play(cluster: SimulatedCluster, client: WireClient) -> None:
        writing = asyncio.create_task(write(client, 300, partition=0))
        await asyncio.sleep(0.2)
        await cluster.stop(FOLLOWER)
        await writing
        assert cluster.states()[LATE].leader_epoch > 0
        cluster.begin_start(FOLLOWER)

    run(play, seed=seed)
