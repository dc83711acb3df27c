"""Groups of KIP-848 in a cluster with brokers of Apache Kafka 3.9, which do not serve them: none begins, and one that
runs goes on while its coordinator stays where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

from ottla.cluster import nodes
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.store.api import Create, Delete
from ottla.testing.raw_groups import beat, first_beat
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

HEARTBEAT, DESCRIBE, API_VERSIONS, FIND_COORDINATOR = 1, 0, 4, 4
KAFKA = 9
# As Kafka 3.9 registers.
REGISTRATION = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://kafka:9092"],'
    b'"jmx_port":-1,"port":9092,"host":"kafka","version":5,"timestamp":"1794810273327"}'
)
LEAVE = -1


def play(scenario: Callable[[SimulatedCluster], Coroutine[Any, Any, None]]) -> None:
    world = World(1)
    cluster = SimulatedCluster(world, 3)

    async def main() -> None:
        await cluster.start()
        await cluster.create_topic("t", 1)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        async with asyncio.timeout(60):  # its topic is made for that
            while (await cluster.asked(1, request, FIND_COORDINATOR)).coordinators[0].error_code:
                await asyncio.sleep(0.1)
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=300)


async def finalized(cluster: SimulatedCluster, node_id: int) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await cluster.asked(node_id, request, API_VERSIONS)
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def until_all_have_consumer_groups(cluster: SimulatedCluster, expected: bool) -> None:
    async with asyncio.timeout(30):
        while any([("group.version" in await finalized(cluster, node_id)) != expected for node_id in (1, 2, 3)]):
            await asyncio.sleep(0.05)


async def told(cluster: SimulatedCluster, request: ConsumerGroupHeartbeatRequest) -> Any:
    """The answer of the group's coordinator."""
    while True:
        for node_id in (1, 2, 3):
            answer = await cluster.asked(node_id, request, HEARTBEAT)
            if not ErrorCode(answer.error_code).retriable:
                return answer
        await asyncio.sleep(0.1)


async def described(cluster: SimulatedCluster, group: str) -> Any:
    while True:
        for node_id in (1, 2, 3):
            request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
            answer = await cluster.asked(node_id, request, DESCRIBE)
            if not ErrorCode(answer.groups[0].error_code).retriable:
                return answer.groups[0]
        await asyncio.sleep(0.1)


def test_no_group_begins_beside_a_broker_that_does_not_serve_it_and_one_that_runs_goes_on() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await until_all_have_consumer_groups(cluster, True)
        before, other = str(uuid4()), str(uuid4())
        joined = await told(cluster, first_beat("running", before, "t"))
        assert not joined.error_code

        kafka = cluster.ensemble.connect("kafka")
        async with asyncio.timeout(10):
            while not kafka.session.session_id:
                await asyncio.sleep(0.05)
        await kafka.commit(Create(nodes.broker_path(KAFKA), REGISTRATION, ephemeral=True))
        await until_all_have_consumer_groups(cluster, False)

        refused = await told(cluster, first_beat("new", other, "t"))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in refused.error_message
        refused = await described(cluster, "new")
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in refused.error_message
        assert not (await told(cluster, beat("running", before, joined.member_epoch))).error_code
        assert [member.member_id for member in (await described(cluster, "running")).members] == [before]
        second = await told(cluster, first_beat("running", other, "t"))
        assert not second.error_code, "a group that runs may replace its members"
        for member in (before, other):
            assert not (await told(cluster, beat("running", member, LEAVE))).error_code
        again = await told(cluster, first_beat("running", before, "t"))
        assert again.error_code == ErrorCode.UNSUPPORTED_VERSION, "it has ended"

        await kafka.commit(Delete(nodes.broker_path(KAFKA)))
        await until_all_have_consumer_groups(cluster, True)
        assert not (await told(cluster, first_beat("new", other, "t"))).error_code
        assert (await described(cluster, "missing")).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(scenario)


def test_a_broker_that_does_not_know_what_the_others_serve_yet_is_asked_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        member = str(uuid4())
        assert not (await told(cluster, first_beat("g", member, "t"))).error_code
        for process in cluster.brokers.values():
            assert process.broker.cluster is not None
            process.broker.cluster.features.epoch = -1
        answers = [await cluster.asked(node_id, first_beat("g", member, "t"), HEARTBEAT) for node_id in (1, 2, 3)]
        assert {answer.error_code for answer in answers} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    play(scenario)
