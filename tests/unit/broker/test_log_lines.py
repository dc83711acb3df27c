"""What a broker's log says at INFO: one line for each event that a person on call wants to know of, and no more."""

from __future__ import annotations

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker import dispatch, slow_requests
from ottla.broker.changed_settings import log_changed_settings
from ottla.broker.dispatch import Context, Dispatcher
from ottla.broker.in_sync import InSyncReplicas, IsrChanges
from ottla.broker.role_changes import RoleChanges
from ottla.broker.serving import by_key, serve
from ottla.broker.session import Sessions
from ottla.broker.slow_requests import PAUSE_MS, SlowRequests
from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.ids import TopicPartition
from ottla.net.connection import Deferred, Parked
from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.replication import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.schema import message_schema_of
from ottla.replication.leader import IsrProposal
from ottla.runtime.clock import SystemClock
from ottla.runtime.listed import LISTED_MAX, Listed
from ottla.runtime.offload import SystemOffload
from ottla.runtime.turns import Turns
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla")


class Moved:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1

    def now_ms(self) -> int:
        return self.ms

    steady_ms = now_ms


def test_a_list_shows_the_first_few_and_how_many_more() -> None:
    assert str(Listed([])) == ""
    assert str(Listed(range(LISTED_MAX))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert str(Listed(range(LISTED_MAX + 2))).endswith("9 and 2 more")


def test_roles_are_counted_and_not_written_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    changes = RoleChanges()
    for index in range(1000):
        changes.add(TopicPartition("new", index), led_before=False, leads=True)
    changes.add(TopicPartition("kept", 0), led_before=True, leads=True)
    changes.add(TopicPartition("lost", 0), led_before=True, leads=False)
    changes.log(7)
    gained, lost, followed = caplog.messages
    assert gained.startswith("leader of 1000 more partitions: new-0, new-1,")
    assert gained.endswith("and 990 more (controller 7)")
    assert lost == "no longer leader of 1 partitions: lost-0 (controller 7)"
    assert followed == "follower of 1 partitions, by controller 7"


def test_changed_settings_are_named_and_their_values_are_not(caplog: pytest.LogCaptureFixture) -> None:
    before, after = {"a": "1", "gone": "secret-1", "same": "2"}, {"a": "secret-2", "same": "2"}
    log_changed_settings(ConfigScope(ConfigResourceType.BROKER, ""), before, after)
    log_changed_settings(ConfigScope(ConfigResourceType.TOPIC, "t"), before, before)
    assert caplog.messages == ["the settings of broker (all) were changed: a, gone"]


def test_slow_requests_are_written_with_pauses_and_those_between_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Moved()
    slow = SlowRequests(clock)
    for _ in range(3):
        slow.note("Produce", "10.0.0.1:5", "a\nclient", 2_500_000_000)
    clock.ms += PAUSE_MS
    slow.note("Metadata", "10.0.0.1:5", None, 1_000_000_001)
    assert caplog.messages == [
        "slow request: Produce of client 'a\\nclient' took 2.5 s (10.0.0.1:5); 0 more since the last such line",
        "slow request: Metadata of client None took 1.0 s (10.0.0.1:5); 2 more since the last such line",
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_request_is_slow_until_its_answer_is_there_but_not_while_a_client_asks_it_to_wait(
    waits: bool, is_slow: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SLOW_NS", -1 if is_slow else slow_requests.SLOW_NS)

    async def heartbeat(broker: Any, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        if waits:
            await asyncio.sleep(0)
        return HeartbeatResponse(error_code=0)

    async def play() -> None:
        offload = SystemOffload()
        dispatcher = Dispatcher(by_key(serve(HeartbeatRequest, heartbeat)), ANY, SystemClock(), offload)
        await ask(dispatcher, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        offload.close()

    asyncio.run(play())
    assert [text.startswith("slow request: Heartbeat of client 'c' took 0.0 s") for text in caplog.messages] == (
        [True] if is_slow else []
    )


def test_the_wait_for_other_members_of_a_group_makes_no_request_slow(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sync(broker: Any, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
        await asyncio.sleep(0)
        # From here on every request is too slow: the part before the wait was not.
        monkeypatch.setattr(dispatch, "SLOW_NS", -1)
        return SyncGroupResponse(error_code=0, assignment=b"")

    async def play() -> None:
        offload = SystemOffload()
        dispatcher = Dispatcher(by_key(serve(SyncGroupRequest, sync)), ANY, SystemClock(), offload)
        await ask(dispatcher, SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), 3)
        offload.close()

    asyncio.run(play())
    assert caplog.messages == []


ANY: Any = SimpleNamespace()


async def ask(dispatcher: Dispatcher, request: object, version: int) -> None:
    key = message_schema_of(type(request)).key
    assert key is not None
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
    connection: Any = SimpleNamespace(session=Sessions().open("PLAINTEXT", "10.0.0.1"))
    frame = memoryview(bytearray(encode_request_header(header) + encode(request, version)))
    reply = dispatcher(connection, frame)
    assert not isinstance(reply, Parked | Deferred)
    if reply is not None and not isinstance(reply, list):
        await reply


def test_a_cluster_says_who_leads_and_who_is_in_sync(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1)
    cluster = SimulatedCluster(world, 3)

    async def main() -> None:
        await cluster.start()
        await cluster.create_topic("t", 3, {"min.insync.replicas": "1"})
        await cluster.settle(is_quiet=True)
        changed = IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", config_operation=0, value="777")
        topic = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=2, resource_name="t", configs=[changed]
        )
        await cluster.ask_controller(IncrementalAlterConfigsRequest(resources=[topic], validate_only=False), 1)
        await cluster.crash(3, power_loss=False)
        await cluster.settle(is_quiet=False)
        cluster.begin_start(3)
        await cluster.settle(is_quiet=True)
        await cluster.create_topic("u", 1)
        await cluster.ask_controller(DeleteTopicsRequest(topic_names=["u"], timeout_ms=1000), 5)
        while "topic u has been deleted" not in caplog.text:
            await asyncio.sleep(0.1)  # of the world's time, which is bounded below
        await cluster.stop(2)
        await cluster.close()

    world.run(main(), seconds=300)
    text = caplog.text
    assert " is the controller, in epoch " in text
    assert "topic t has been created, with 3 partitions" in text
    assert "leader of 1 more partitions: t-" in text
    assert "no longer leader of " in text
    assert re.search(r"\d partitions have more in-sync replicas: t-\d \[", text)
    assert "the settings of topic t were changed: retention.ms" in text
    assert re.search(r"controller \d has stopped 1 replicas: u-0", text)
    assert "broker 3 has left the cluster" in text
    assert "broker 3 has joined the cluster" in text
    assert "the broker has stopped in " in text


class Follower:
    """Fakes of what `IsrChanges` asks: partitions that shrink and grow, and a controller that agrees."""

    def __init__(self, name: TopicPartition, isr: tuple[int, ...], proposed: tuple[int, ...]) -> None:
        self.name = name
        self.topic_id = UUID(int=1)
        self.proposal = IsrProposal(isr=proposed, leader_epoch=1, version=1)
        self.current_leader: Any = SimpleNamespace(
            isr=isr, proposal=self.proposal, propose_shrink=lambda now_ms, lag_ms: self.proposal
        )

    def isr_changed(self, leader: Any, isr: tuple[int, ...], version: int) -> None:
        leader.isr = isr

    def isr_refused(self, leader: Any) -> None:
        raise AssertionError("the controller agrees")


class Agrees:
    async def ask(self, request: Any, cls: type) -> AlterPartitionResponse:
        topics = [
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    AlterPartitionResponsePartitionData(
                        partition_index=one.partition_index,
                        leader_id=1,
                        leader_epoch=1,
                        isr=[broker.broker_id for broker in one.new_isr_with_epochs],
                        partition_epoch=2,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request().topics
        ]
        return AlterPartitionResponse(error_code=0, topics=topics)


def test_in_sync_replicas_that_shrink_and_grow_are_lines_of_many_partitions(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        controller: Any = Agrees()
        changes = IsrChanges(1, lambda: 1, controller)
        shrinking: Any = [Follower(TopicPartition("t", index), (1, 2, 3), (1, 2)) for index in range(12)]
        config: Any = SimpleNamespace(replica_lag_time_max_ms=500)
        await InSyncReplicas(shrinking, lambda: ANY, lambda: config, changes, SystemClock(), Turns()).propose_shrinks()
        grown = Follower(TopicPartition("u", 0), (1,), (1, 2))
        changes.propose(grown, grown.proposal)
        running = asyncio.ensure_future(changes.run())
        while grown.current_leader.isr == (1,):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    behind, fewer, more = caplog.messages
    assert behind == "broker 3 has been behind for 500 ms, with 12 partitions led here"
    assert fewer.startswith("12 partitions have fewer in-sync replicas: t-0 [1, 2], t-1 [1, 2],")
    assert fewer.endswith(" and 2 more")
    assert more == "1 partitions have more in-sync replicas: u-0 [1, 2]"
