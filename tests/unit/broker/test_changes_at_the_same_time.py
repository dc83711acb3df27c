"""What several change in the metadata store at the same time: nothing of it is lost, however the answers of the store
come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster import nodes
from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.errors import ApiError, ErrorCode
from ottla.ids import topic_id_text
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.store.api import Create, Delete, Operation, Put
from ottla.testing.raw_requests import create_topic
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

CREATE, ALTER_CONFIGS = 5, 1
SET, APPEND = 0, 2
Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]
THERE = [
    ("retention.ms", "86400000"),
    ("max.message.bytes", "5000"),
    ("segment.bytes", "2000000"),
    ("flush.messages", "77"),
    ("min.insync.replicas", "1"),
    ("index.interval.bytes", "512"),
]


def play(scenario: Scenario) -> None:
    """Three brokers, and a topic."""
    world = World(1)
    cluster = SimulatedCluster(world, 3)

    async def main() -> None:
        await cluster.start()
        async with asyncio.timeout(60):
            while not all(len(broker.broker.image.brokers) == 3 for broker in cluster.brokers.values()):
                await asyncio.sleep(0.05)
        await cluster.create_topic("t", 1)
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=3000)


def alter(name: str, value: str, operation: int = SET) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=[entry]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def stored(cluster: SimulatedCluster) -> dict[str, str]:
    entry = cluster.ensemble.tree.entry(nodes.config_path("topics", "t"))
    assert entry is not None
    config: dict[str, str] = json.loads(entry.data)["config"]
    return config


async def until_known(cluster: SimulatedCluster, settings: Mapping[str, str]) -> None:
    scope = ConfigScope(ConfigResourceType.TOPIC, "t")
    async with asyncio.timeout(20):
        while any(broker.broker.configs.overrides_of(scope) != settings for broker in cluster.brokers.values()):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("asked", [(1, 1, 1, 1, 1, 1), (1, 2, 1, 2, 1, 2), (1, 2, 3, 3, 2, 1)])
def test_settings_that_are_changed_at_the_same_time_all_hold(asked: tuple[int, ...]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        requests = [
            cluster.asked(node_id, alter(name, value), ALTER_CONFIGS)
            for node_id, (name, value) in zip(asked, THERE, strict=True)
        ]
        answers = await asyncio.gather(*requests)
        assert {answer.responses[0].error_message for answer in answers} == {None}
        assert stored(cluster) == dict(THERE)
        await until_known(cluster, dict(THERE))

    play(scenario)


def test_a_list_that_two_brokers_append_to_has_what_both_say() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        name = "leader.replication.throttled.replicas"
        requests = [cluster.asked(node_id, alter(name, f"0:{node_id}", APPEND), ALTER_CONFIGS) for node_id in (1, 2, 3)]
        answers = await asyncio.gather(*requests)
        assert [answer.responses[0].error_code for answer in answers] == [ErrorCode.NONE] * 3
        assert sorted(stored(cluster)[name].split(",")) == ["0:1", "0:2", "0:3"]

    play(scenario)


def test_a_change_whose_answer_the_store_loses_is_made_once_and_undoes_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        ensemble = cluster.ensemble
        store = cluster.brokers[2].broker.store
        ensemble.interrupt_after(store.session.session_id, 1, ensemble.break_connections)
        name = "leader.replication.throttled.replicas"
        answer, other = await asyncio.gather(
            cluster.asked(2, alter(name, "0:2", APPEND), ALTER_CONFIGS),
            cluster.asked(3, alter("retention.ms", "1000"), ALTER_CONFIGS),
        )
        assert ensemble.was_interrupted()
        codes = [answer.responses[0].error_code, other.responses[0].error_code]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE]
        assert stored(cluster) == {name: "0:2", "retention.ms": "1000"}
        await until_known(cluster, {name: "0:2", "retention.ms": "1000"})

    play(scenario)


def rival_before(cluster: SimulatedCluster, node_id: int, path: str, *rival: Operation) -> None:
    """Somebody else is faster with the first commit of a broker that touches `path`."""
    store = cluster.brokers[node_id].broker.store
    commit = store.commit
    waiting = [rival]

    async def contended(*operations: Operation) -> list[Any]:
        if waiting and any(operation.path == path for operation in operations):
            await commit(*waiting.pop())
        return await commit(*operations)

    store.commit = contended  # type: ignore[method-assign]


def controller(cluster: SimulatedCluster) -> int:
    return cluster.brokers[1].broker.image.controller_id


def test_a_topic_is_not_created_while_one_of_its_name_is_being_deleted() -> None:
    """The settings of the old one go last: they would be those of the new one."""

    async def scenario(cluster: SimulatedCluster) -> None:
        node_id, path = controller(cluster), nodes.topic_path("gone")
        rival_before(cluster, node_id, path, Create(nodes.deletion_path("gone")))
        answer = await cluster.asked(node_id, create_topic("gone", 1, 1), CREATE)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert cluster.ensemble.tree.entry(path) is None

    play(scenario)


def test_settings_of_an_old_topic_that_go_while_a_new_one_is_created_stop_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        node_id, path = controller(cluster), nodes.config_path("topics", "new")
        store = cluster.brokers[node_id].broker.store
        await store.commit(Create(path, nodes.encode_config({"retention.ms": "1"})))
        commit, commits = store.commit, 0

        async def contended(*operations: Operation) -> list[Any]:
            nonlocal commits
            commits += any(operation.path == path for operation in operations)
            if commits == 2 and isinstance(operations[0], Put):
                await commit(Delete(path))
            return await commit(*operations)

        store.commit = contended  # type: ignore[method-assign]
        answer = await cluster.asked(node_id, create_topic("new", 1, 1), CREATE)
        assert answer.topics[0].error_code == ErrorCode.NONE
        assert commits == 3

    play(scenario)


def test_a_topic_that_is_another_by_now_is_not_deleted() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        node_id, path = controller(cluster), nodes.topic_path("t")
        broker = cluster.brokers[node_id].broker
        old = broker.image.topics["t"]
        entry = cluster.ensemble.tree.entry(path)
        assert entry is not None
        new = entry.data.replace(topic_id_text(old.topic_id).encode(), topic_id_text(UUID(int=77)).encode())
        assert new != entry.data
        rival_before(cluster, node_id, nodes.deletion_path("t"), Put(path, new))
        with pytest.raises(ApiError) as refused:
            await broker.controller.delete_topic("t", old.topic_id)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert cluster.ensemble.tree.entry(nodes.deletion_path("t")) is None
        await broker.store.commit(Put(path, entry.data))

    play(scenario)


def test_partitions_that_are_added_while_a_topic_changes_are_charged_once() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        node_id, path = controller(cluster), nodes.topic_path("t")
        broker = cluster.brokers[node_id].broker
        entry = cluster.ensemble.tree.entry(path)
        assert entry is not None
        rival_before(cluster, node_id, path, Put(path, entry.data))
        charged: list[int] = []
        await broker.controller.create_partitions("t", 3, None, charge=charged.append)
        assert charged == [2]

    play(scenario)
