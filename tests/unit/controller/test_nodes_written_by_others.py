"""A controller and what others do: tools, hands and brokers of Kafka write beside it, in old forms, damaged, at any
time; brokers answer that something failed, answer late or never, and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster import nodes
from ottla.cluster.control_batch import BEING_DELETED, ControlRequest
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import NO_LEADER, BrokerEndpoint, BrokerNode, PartitionState, TopicState
from ottla.controller import controller as controller_module
from ottla.controller.brokers import shut_down
from ottla.controller.controller import Controller
from ottla.controller.elections import elect_by_request
from ottla.controller.peers import OnAnswer
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition, topic_id_text
from ottla.protocol.messages.replication import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from ottla.store.api import Create, Delete, Node, Operation, Put
from ottla.testing.loop import SimulatedLoop
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble

QUIET_S = 1.0
US, OTHER, NEWCOMER = 1, 2, 3
TOPIC_IDS = {"t": UUID(int=7), "u": UUID(int=8), "v": UUID(int=9)}
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


class Settings:
    listener_name = "PLAINTEXT"
    deletes_topics = True
    rebalances_leaders = False
    imbalance_check_s = 300.0
    imbalance_percent = 10

    def elects_unclean(self, topic: str) -> bool:
        return False


@dataclass
class Brokers:
    """Implements `Peers`: what was sent is kept; who answers is said by `answers`, and otherwise nobody does."""

    answers: Callable[[int, ControlRequest], Any] = lambda node_id, request: None
    offline: dict[TopicPartition, list[int]] = field(default_factory=dict)  # replicas, as the last UpdateMetadata says
    deleted: list[tuple[int, TopicPartition]] = field(default_factory=list)  # by whom what was to be deleted
    ports: dict[int, int] = field(default_factory=dict)  # of the live brokers, as the last UpdateMetadata says
    topic_ids: dict[TopicPartition, UUID] = field(default_factory=dict)  # as LeaderAndIsr says
    leaders: dict[int, list[dict[TopicPartition, int]]] = field(default_factory=dict)  # as each UpdateMetadata says

    def add(self, broker: BrokerNode) -> None:
        return

    def remove(self, node_id: int) -> None:
        return

    def send(self, node_id: int, request: ControlRequest, on_answer: OnAnswer) -> None:
        match request:
            case UpdateMetadataRequest():
                self.ports = {broker.id: broker.endpoints[0].port for broker in request.live_brokers}
                leaders = {
                    TopicPartition(topic.topic_name, state.partition_index): state.leader
                    for topic in request.topic_states
                    for state in topic.partition_states
                }
                self.leaders.setdefault(node_id, []).append(leaders)
                self.offline |= {
                    TopicPartition(topic.topic_name, state.partition_index): state.offline_replicas
                    for topic in request.topic_states
                    for state in topic.partition_states
                }
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        self.topic_ids[TopicPartition(topic.topic_name, state.partition_index)] = topic.topic_id
            case StopReplicaRequest():
                self.deleted += [(node_id, partition) for partition in to_delete(request)]
        answer = self.answers(node_id, request)
        if answer is not None:
            asyncio.get_running_loop().call_soon(on_answer, answer)

    async def wait_until_answered(self) -> None:
        return

    def close(self) -> None:
        return


def to_delete(request: ControlRequest) -> list[TopicPartition]:
    if not isinstance(request, StopReplicaRequest):
        return []
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.delete_partition
    ]


def stopped(request: ControlRequest, code: ErrorCode = ErrorCode.NONE) -> StopReplicaResponse | None:
    """The answer of a broker to what it is to delete."""
    errors = [
        StopReplicaPartitionError(topic_name=each.topic, partition_index=each.partition, error_code=code)
        for each in to_delete(request)
    ]
    return StopReplicaResponse(partition_errors=errors) if errors else None


class Scene:
    """Two brokers are registered; `controls` has broker 1 elected."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.settings = Settings()
        self.after_read: dict[str, Operation] = {}  # what is written as soon as the controller has read a node
        self.pause_after_read_s = 0.0  # until it goes on then
        self._loop = SimulatedLoop()
        conditions = EnsembleConditions(message_s_max=0.0, lag_s_max=0.0)
        self.ensemble = SimulatedEnsemble(self._loop, Random(1), lambda: 0, conditions)
        for path in (*nodes.CLUSTER_ROOTS, nodes.topic_path("t"), nodes.topic_path("u")):
            self.write(Create(path))
        for node_id in (US, OTHER):
            self.write(Create(nodes.broker_path(node_id), registration(node_id, 9092)))
        for name in ("t", "u"):
            self.write(Put(nodes.topic_path(name), topic(name, 1)))

    def write(self, *operations: Operation) -> None:
        self.ensemble.commit(0, operations)

    def add_partition(self, partition: TopicPartition, state: bytes) -> None:
        if self.ensemble.tree.entry(nodes.partitions_path(partition.topic)) is None:
            self.write(Create(nodes.partitions_path(partition.topic)))
        self.write(Create(nodes.partition_path(*partition)), Create(nodes.state_path(*partition), state))

    def encoded(self, path: str) -> bytes:
        entry = self.ensemble.tree.entry(path)
        assert entry is not None
        return entry.data

    def data(self, path: str) -> dict[str, Any]:
        return nodes.decode(path, self.encoded(path))

    def is_there(self, path: str) -> bool:
        return self.ensemble.tree.entry(path) is not None

    async def register_again(self, node_id: int) -> None:
        """Its session has ended, or it has restarted."""
        self.write(Delete(nodes.broker_path(node_id)))
        await asyncio.sleep(QUIET_S)
        self.write(Create(nodes.broker_path(node_id), registration(node_id, 9092)))
        await asyncio.sleep(QUIET_S)

    @property
    def epoch(self) -> int:
        return int(self.encoded(nodes.CONTROLLER_EPOCH))

    def plays(self, play: Callable[[Controller], Awaitable[None]]) -> None:
        async def main() -> None:
            store = self.ensemble.connect("broker-1")
            read = store.get

            async def get(path: str) -> Node | None:
                node = await read(path)
                if path in self.after_read:
                    self.write(self.after_read.pop(path))
                    await asyncio.sleep(self.pause_after_read_s)
                return node

            store.get = get  # type: ignore[method-assign]
            controller = Controller(US, store, lambda: self.brokers, self.settings, Random(2), lambda: 0)
            task = asyncio.ensure_future(controller.run())
            await asyncio.sleep(QUIET_S)
            await play(controller)
            task.cancel()
            await asyncio.wait([task])
            store.vanish()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())


def registration(node_id: int, port: int, protocol: str = "PLAINTEXT") -> bytes:
    endpoint = BrokerEndpoint("host", port, protocol)
    return nodes.encode_broker(BrokerNode(node_id, {"PLAINTEXT": endpoint}), now_ms=0)


def topic(name: str, partition_count: int) -> bytes:
    partitions = tuple(unwritten((US, OTHER)) for _ in range(partition_count))
    return nodes.encode_topic(TopicState(name, TOPIC_IDS[name], partitions))


def without_id(name: str, partition_count: int) -> bytes:
    """As tools write it that are older than topic ids."""
    assignment = {str(index): [US, OTHER] for index in range(partition_count)}
    return nodes.encode({"version": 1, "partitions": assignment})


def test_an_old_tool_that_adds_partitions_leaves_the_topic_its_id() -> None:
    scene = Scene()

    async def play(controller: Controller) -> None:
        scene.write(Put(nodes.topic_path("t"), without_id("t", 2)))
        await asyncio.sleep(QUIET_S)
        assert scene.brokers.topic_ids[TopicPartition("t", 1)] == TOPIC_IDS["t"]
        stored = scene.data(nodes.topic_path("t"))
        assert (stored["topic_id"], len(stored["partitions"])) == (topic_id_text(TOPIC_IDS["t"]), 2)

    scene.plays(play)


def test_a_topic_that_changes_just_after_a_controller_has_read_it_is_read_again() -> None:
    scene = Scene()
    scene.after_read[nodes.topic_path("t")] = Put(nodes.topic_path("t"), topic("t", 2))

    async def play(controller: Controller) -> None:
        assert TopicPartition("t", 1) in scene.brokers.topic_ids
        scene.after_read[nodes.topic_path("v")] = Put(nodes.topic_path("v"), topic("v", 2))
        scene.write(Create(nodes.topic_path("v"), topic("v", 1)))
        await asyncio.sleep(QUIET_S)
        assert TopicPartition("v", 1) in scene.brokers.topic_ids

    scene.plays(play)


def test_a_broker_that_changes_its_address_without_registering_again_is_announced() -> None:
    scene = Scene()

    async def play(controller: Controller) -> None:
        assert scene.brokers.ports == {US: 9092, OTHER: 9092}
        scene.write(Put(nodes.broker_path(OTHER), registration(OTHER, 9999)))
        await asyncio.sleep(QUIET_S)
        assert scene.brokers.ports == {US: 9092, OTHER: 9999}

    scene.plays(play)


def test_a_damaged_state_or_registration_costs_no_more_than_its_topic_or_broker() -> None:
    scene = Scene()
    scene.add_partition(T, b"{}")
    scene.add_partition(U, nodes.encode_state(PartitionState((US, OTHER), US, 3, (US, OTHER)), 1))
    scene.write(Put(nodes.broker_path(OTHER), registration(OTHER, 9092, "EXTERNAL")))

    async def play(controller: Controller) -> None:
        assert controller.is_active
        assert set(scene.brokers.topic_ids) == {U}
        assert set(scene.brokers.ports) == {US}
        scene.write(Put(nodes.state_path(*T), nodes.encode_state(PartitionState((US, OTHER), US, 3, (US, OTHER)), 1)))
        scene.write(Put(nodes.topic_path("t"), topic("t", 1)))
        scene.write(Put(nodes.broker_path(OTHER), registration(OTHER, 9092)))
        await asyncio.sleep(QUIET_S)
        assert set(scene.brokers.topic_ids) == {T, U}
        assert set(scene.brokers.ports) == {US, OTHER}

    scene.plays(play)


def test_a_controller_that_goes_right_behind_the_answer_is_succeeded() -> None:
    """The notice that its node is gone comes before the answer that it is there has been looked at."""
    scene = Scene()
    scene.write(Create(nodes.CONTROLLER, nodes.encode_controller(OTHER, 0)))
    scene.after_read[nodes.CONTROLLER] = Delete(nodes.CONTROLLER)
    scene.pause_after_read_s = QUIET_S / 10

    async def play(controller: Controller) -> None:
        assert controller.is_active
        scene.after_read[nodes.CONTROLLER] = Delete(nodes.CONTROLLER)  # an operator wants another election
        epoch = scene.epoch
        scene.write(Put(nodes.CONTROLLER, scene.encoded(nodes.CONTROLLER)))
        await asyncio.sleep(QUIET_S)
        assert controller.is_active
        assert scene.epoch == epoch + 1

    scene.plays(play)


def test_a_broker_that_joins_learns_of_what_stays_and_then_that_the_rest_is_going() -> None:
    """It may have been there before, in an earlier session, and know the topic."""
    scene = Scene()

    async def play(controller: Controller) -> None:
        scene.write(Create(nodes.deletion_path("t")))
        await asyncio.sleep(QUIET_S)
        scene.write(Create(nodes.broker_path(NEWCOMER), registration(NEWCOMER, 9092)))
        await asyncio.sleep(QUIET_S)
        first, *others = scene.brokers.leaders[NEWCOMER]
        assert first == {U: US}
        assert {T: BEING_DELETED} in others

    scene.plays(play)


def test_marks_of_topics_to_delete_are_dropped_where_no_topic_may_be_deleted() -> None:
    scene = Scene()
    scene.settings.deletes_topics = False
    scene.write(Create(nodes.deletion_path("t")))

    async def play(controller: Controller) -> None:
        assert scene.ensemble.tree.children(nodes.DELETIONS) == []
        scene.write(Create(nodes.deletion_path("u")))
        await asyncio.sleep(QUIET_S)
        assert scene.ensemble.tree.children(nodes.DELETIONS) == []
        assert BEING_DELETED not in {leader for told in scene.brokers.leaders[OTHER] for leader in told.values()}
        scene.settings.deletes_topics = True
        scene.write(Create(nodes.deletion_path("u")))
        await asyncio.sleep(QUIET_S)
        assert scene.brokers.leaders[OTHER][-1] == {U: BEING_DELETED}

    scene.plays(play)


def test_an_unclean_election_by_hand_warns_of_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(Delete(nodes.broker_path(OTHER)))
    scene.add_partition(T, nodes.encode_state(PartitionState((US, OTHER), NO_LEADER, 3, (OTHER,)), 1))

    async def play(controller: Controller) -> None:
        outcomes = await controller.ask(lambda term: elect_by_request(term, [T], unclean=True))
        assert outcomes == {T: ErrorCode.NONE}

    scene.plays(play)
    assert f"{T}: unclean election: broker {US} leads; records that only [{OTHER}] had are lost" in caplog.messages


# -- brokers that answer -----------------------------------------------------------------------------------------------


def test_a_topic_is_forgotten_only_when_a_broker_that_failed_has_deleted_it_after_all() -> None:
    scene = Scene()
    scene.write(Create(nodes.config_path("topics", "t"), b"{}"))
    outcome = {OTHER: ErrorCode.KAFKA_STORAGE_ERROR}
    scene.brokers.answers = lambda node_id, request: stopped(request, outcome.get(node_id, ErrorCode.NONE))

    async def play(controller: Controller) -> None:
        scene.write(Create(nodes.deletion_path("t")))
        await asyncio.sleep(QUIET_S)
        assert scene.is_there(nodes.topic_path("t"))
        outcome.clear()
        await scene.register_again(OTHER)
        for path in (nodes.topic_path("t"), nodes.config_path("topics", "t"), nodes.deletion_path("t")):
            assert not scene.is_there(path)
        assert scene.is_there(nodes.topic_path("u"))

    scene.plays(play)


def test_a_broker_that_went_without_an_answer_is_asked_again_to_delete_its_replicas() -> None:
    scene = Scene()
    silent = {OTHER}
    scene.brokers.answers = lambda node_id, request: None if node_id in silent else stopped(request)

    async def play(controller: Controller) -> None:
        scene.write(Create(nodes.deletion_path("t")))
        await asyncio.sleep(QUIET_S)
        assert scene.brokers.deleted == [(US, T), (OTHER, T)]
        silent.clear()
        await scene.register_again(OTHER)
        assert scene.brokers.deleted == [(US, T), (OTHER, T), (OTHER, T)]
        assert not scene.is_there(nodes.topic_path("t"))

    scene.plays(play)


def test_replicas_that_were_lost_with_a_directory_are_there_again_with_the_next_run_of_their_broker() -> None:
    scene = Scene()
    has_failed = [True]

    def answer(node_id: int, request: ControlRequest) -> LeaderAndIsrResponse | None:
        if not isinstance(request, LeaderAndIsrRequest) or node_id != OTHER or not has_failed[0]:
            return None
        lost = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=TOPIC_IDS["t"], partition_errors=[lost])])

    async def play(controller: Controller) -> None:
        assert scene.data(nodes.state_path(*T))["isr"] == [US, OTHER]
        scene.brokers.answers = answer
        event = nodes.encode_log_dir_event(OTHER)
        scene.write(Create(f"{nodes.LOG_DIR_EVENTS}/log_dir_event_", event, sequential=True))
        await asyncio.sleep(QUIET_S)
        assert scene.data(nodes.state_path(*T))["isr"] == [US]
        assert scene.brokers.offline[T] == [OTHER]
        assert scene.ensemble.tree.children(nodes.LOG_DIR_EVENTS) == []
        has_failed[0] = False
        await scene.register_again(OTHER)
        assert scene.brokers.offline[T] == []

    scene.plays(play)


def test_what_was_announced_before_a_controller_was_elected_is_not_announced_to_it() -> None:
    scene = Scene()
    for parent, name, data in (
        (nodes.ISR_CHANGES, "isr_change_", b'{"version":1,"partitions":[]}'),
        (nodes.LOG_DIR_EVENTS, "log_dir_event_", nodes.encode_log_dir_event(OTHER)),
    ):
        scene.write(Create(f"{parent}/{name}", data, sequential=True))

    async def play(controller: Controller) -> None:
        assert scene.ensemble.tree.children(nodes.ISR_CHANGES) == []
        assert scene.ensemble.tree.children(nodes.LOG_DIR_EVENTS) == []

    scene.plays(play)


def test_a_broker_is_about_to_leave_until_it_registers_again_and_only_in_its_present_run() -> None:
    scene = Scene()

    async def play(controller: Controller) -> None:
        entry = scene.ensemble.tree.entry(nodes.broker_path(OTHER))
        assert entry is not None
        with pytest.raises(ApiError) as caught:
            await controller.ask(lambda term: shut_down(term, OTHER, entry.created - 1))
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert await controller.ask(_leaving) == set()
        assert await controller.ask(lambda term: shut_down(term, OTHER, entry.created)) == []
        assert await controller.ask(_leaving) == {OTHER}
        await scene.register_again(OTHER)
        assert await controller.ask(_leaving) == set()

    scene.plays(play)


async def _leaving(term: Term) -> set[int]:
    return set(term.context.shutting_down)


def test_so_many_requests_wait_for_a_controller_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "REQUESTS_WAITING_MAX", 3)
    scene = Scene()

    async def play(controller: Controller) -> None:
        may_go_on = asyncio.Event()

        async def work(term: Term) -> str:
            await may_go_on.wait()
            return "done"

        waiting = [asyncio.ensure_future(controller.ask(work)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            async with asyncio.timeout(QUIET_S):
                await controller.ask(work)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        may_go_on.set()
        assert await asyncio.gather(*waiting) == ["done"] * 3
        assert await controller.ask(work) == "done"

    scene.plays(play)
