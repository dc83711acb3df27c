"""Our controller in the place of Kafka's: each captured operation happens to it, and what comes of it is compared.

The tree is the one that Kafka's brokers had left. What brokers, clients and hands wrote during the capture is written
again, requests to the controller are made again, and brokers answer as they did. Then every node that a peer reads
holds the same, and the last that each broker was sent of each partition is the same.

Not compared: how many leader epochs and versions it took (where Kafka takes a leader away and then elects one, we elect
at once), and requests that repeat what a broker knows already.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import pytest

from ottla.broker.controller_requests import ControllerRequests
from ottla.cluster import nodes
from ottla.cluster.control_batch import BEING_DELETED, ControlRequest
from ottla.cluster.image import BrokerNode
from ottla.controller import moves
from ottla.controller.controller import Controller
from ottla.controller.elections import elect_by_request
from ottla.controller.peers import OnAnswer
from ottla.controller.term import Term
from ottla.errors import ErrorCode
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
    UpdateMetadataResponse,
)
from ottla.store.api import Create, Delete, Operation, Put
from ottla.testing.captures import (
    MISSING,
    Capture,
    CapturedRequest,
    captures,
    operations_of,
    request_from_json,
)
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble, SimulatedStore
from ottla.testing.world import World

pytestmark = pytest.mark.skipif(not captures(), reason=MISSING)

ALTER_PARTITION, CONTROLLED_SHUTDOWN, ELECT_LEADERS, MOVE = 56, 7, 43, 45
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
QUIET_S = 1.0
FIRST_OF_FOREIGN_CONTROLLER = 73
OF_FOREIGN_CONTROLLER = range(73, 77)
FOREIGN = 9
NODE_IDS = {4: 1001}  # the fourth broker had a generated id
STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
# What the controller alone decides, or deletes once it has seen it.
OURS = re.compile(
    r"/brokers/topics/.*|/admin/.*|/isr_change_notification/.*|/log_dir_event_notification/.*|/config/topics/.*"
)


class Settings:
    listener_name = "PLAINTEXT"
    deletes_topics = True
    rebalances_leaders = False
    imbalance_check_s = 300.0
    imbalance_percent = 10

    def elects_unclean(self, topic: str) -> bool:
        return False


# -- the tree before each capture --------------------------------------------------------------------------------------


Tree = dict[str, tuple[str | None, int]]  # data and version by path


@cache
def trees() -> list[tuple[Tree, Tree]]:
    """Every node before and after each capture."""
    tree: Tree = {}
    found = []
    for capture in captures():
        tree.update(capture.before)
        if capture.number == FIRST_OF_FOREIGN_CONTROLLER:
            # What happened since the last capture is not among them.
            del tree[nodes.broker_path(3)]
            tree[nodes.topic_path("fc")] = _assignment_sent(capture, "fc"), 0
        before = dict(tree)
        for path, data in {**capture.created, **capture.changed}.items():
            version = tree[path][1] if path in tree else 0
            tree[path] = data, _version_after(capture, path, version)
        for path in capture.deleted:
            tree.pop(path, None)
        found.append((before, dict(tree)))
    return found


def _assignment_sent(capture: Capture, name: str) -> str:
    """The node of a topic, by what brokers were sent of it."""
    topic = next(
        topic
        for each in capture.requests
        if each.api_key == LEADER_AND_ISR
        for topic in each.request["topicStates"]
        if topic["topicName"] == name
    )
    partitions = {str(state["partitionIndex"]): state["replicas"] for state in topic["partitionStates"]}
    return json.dumps({"version": 3, "topic_id": topic["topicId"], "partitions": partitions})


def _version_after(capture: Capture, path: str, version: int) -> int:
    for transaction in capture.transactions:
        for operation in operations_of(transaction):
            if operation.get("path") == path and operation["op"] == "create":
                version = 0
            elif operation.get("path") == path and operation["op"] == "setData":
                version = operation["newVersion"]
    return version


# -- brokers that answer as captured -----------------------------------------------------------------------------------


@dataclass
class Sent:
    """The last that a broker was sent of each partition, and whom it knows to be alive."""

    states: dict[TopicPartition, tuple[object, ...]] = field(default_factory=dict)
    new: set[TopicPartition] = field(default_factory=set)
    metadata: dict[TopicPartition, tuple[object, ...]] = field(default_factory=dict)
    first: set[TopicPartition] = field(default_factory=set)  # of which the metadata was, the first time that it was any
    stopped: dict[TopicPartition, bool] = field(default_factory=dict)  # whether it was deleted in the end
    live: set[int] = field(default_factory=set)
    controller: int = -1

    def take(self, request: ControlRequest) -> None:
        self.controller = request.controller_id
        match request:
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        name = TopicPartition(topic.topic_name, state.partition_index)
                        self.states[name] = (
                            state.leader,
                            tuple(state.isr),
                            frozenset(state.replicas),
                            tuple(state.adding_replicas),
                            tuple(state.removing_replicas),
                            state.leader_recovery_state,
                        )
                        if state.is_new:
                            self.new.add(name)
                        self.stopped.pop(name, None)
            case UpdateMetadataRequest():
                self.live = {broker.id for broker in request.live_brokers}
                self.first = self.first or {
                    TopicPartition(sent.topic_name, each.partition_index)
                    for sent in request.topic_states
                    for each in sent.partition_states
                }
                for sent in request.topic_states:
                    for each in sent.partition_states:
                        self.metadata[TopicPartition(sent.topic_name, each.partition_index)] = (
                            (BEING_DELETED,)
                            if each.leader == BEING_DELETED
                            else (each.leader, tuple(each.isr), tuple(each.replicas), frozenset(each.offline_replicas))
                        )
            case StopReplicaRequest():
                for stopped in request.topic_states:
                    for one in stopped.partition_states:
                        self.stopped[TopicPartition(stopped.topic_name, one.partition_index)] = one.delete_partition


class Brokers:
    """Implements `Peers`: every broker answers at once, and says that it lost what it said to have lost."""

    def __init__(self, lost: dict[int, set[TopicPartition]]) -> None:
        self.sent: dict[int, Sent] = {}
        self.during: dict[int, Sent] = {}
        self.lost = lost
        self._known: set[int] = set()

    def add(self, broker: BrokerNode) -> None:
        self._known.add(broker.node_id)

    def remove(self, node_id: int) -> None:
        self._known.discard(node_id)

    def send(self, node_id: int, request: ControlRequest, on_answer: OnAnswer) -> None:
        if node_id in self._known:
            self.sent.setdefault(node_id, Sent()).take(request)
            self.during.setdefault(node_id, Sent()).take(request)
            asyncio.get_running_loop().call_soon(on_answer, self._answer(node_id, request))

    async def wait_until_answered(self) -> None:
        return

    def close(self) -> None:
        self._known.clear()

    def _answer(self, node_id: int, request: ControlRequest) -> object:
        match request:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(
                    topics=[
                        LeaderAndIsrTopicError(
                            topic_id=topic.topic_id,
                            partition_errors=[
                                LeaderAndIsrPartitionError(
                                    partition_index=state.partition_index,
                                    error_code=self._code(node_id, topic.topic_name, state.partition_index),
                                )
                                for state in topic.partition_states
                            ],
                        )
                        for topic in request.topic_states
                    ]
                )
            case UpdateMetadataRequest():
                return UpdateMetadataResponse()
            case StopReplicaRequest():
                return StopReplicaResponse(
                    partition_errors=[
                        StopReplicaPartitionError(
                            topic_name=topic.topic_name,
                            partition_index=state.partition_index,
                            error_code=self._code(node_id, topic.topic_name, state.partition_index),
                        )
                        for topic in request.topic_states
                        for state in topic.partition_states
                    ]
                )

    def _code(self, node_id: int, topic: str, index: int) -> ErrorCode:
        is_lost = TopicPartition(topic, index) in self.lost.get(node_id, ())
        return ErrorCode.KAFKA_STORAGE_ERROR if is_lost else ErrorCode.NONE


@cache
def lost_replicas() -> list[dict[int, set[TopicPartition]]]:
    """The replicas that brokers said to have lost since their last start: before the first capture, after each."""
    lost: dict[int, set[TopicPartition]] = {}
    found = [dict(lost)]
    for capture in captures():
        for path in capture.created:
            if path.startswith(f"{nodes.BROKER_IDS}/"):
                lost.pop(int(path.rpartition("/")[2]), None)
        names = {
            topic["topicId"]: topic["topicName"]
            for each in capture.requests
            if each.api_key == LEADER_AND_ISR
            for topic in each.request["topicStates"]
        }
        for each in capture.requests:
            if each.api_key == LEADER_AND_ISR and each.response is not None:
                for topic in each.response["topics"]:
                    for error in topic["partitionErrors"]:
                        if error["errorCode"] == ErrorCode.KAFKA_STORAGE_ERROR:
                            name = TopicPartition(names[topic["topicId"]], error["partitionIndex"])
                            lost.setdefault(each.receiver, set()).add(name)
        found.append({node_id: set(partitions) for node_id, partitions in lost.items()})
    return found


# -- a capture, played to our controller -------------------------------------------------------------------------------


class Replay:
    """One capture. `sent` is what our controllers have sent since it began."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.before = trees()[capture.number][0]
        self._world = World(capture.number)
        conditions = EnsembleConditions(message_s_max=0.0, lag_s_max=0.0)
        self.ensemble = SimulatedEnsemble(self._world.loop, Random(1), lambda: 0, conditions)
        self.active: list[int] = []
        self.brokers = Brokers(lost_replicas()[capture.number])
        self._controllers: dict[int, Controller] = {}
        self._stores: dict[int, SimulatedStore] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def play(self) -> None:
        self._world.run(self._play(), seconds=10_000)

    async def _play(self) -> None:
        before, after = self.controller_before, self.elected
        self._plant(without_controller=before in self._kafka_brokers)
        for node_id in (before, after):
            if node_id in self._kafka_brokers and node_id not in self._tasks:
                self._start(node_id)
                await asyncio.sleep(QUIET_S)
        self.brokers.lost = lost_replicas()[self.capture.number + 1]
        self.brokers.during.clear()
        for event in self._events():
            await self._happen(event)
            await asyncio.sleep(QUIET_S)
        self.active = [node_id for node_id, each in self._controllers.items() if each.is_active]
        for node_id in list(self._tasks):
            await self._end(node_id)
        for store in self._stores.values():
            store.vanish()

    @property
    def _kafka_brokers(self) -> set[int]:
        return {1, 2, 3}

    @property
    def controller_before(self) -> int | None:
        data = self.before.get(nodes.CONTROLLER, (None, 0))[0]
        return None if data is None else int(json.loads(data)["brokerid"])

    @property
    def elected(self) -> int | None:
        """Who became the controller in the course of the capture."""
        found = None
        for transaction in self.capture.transactions:
            for operation in operations_of(transaction):
                if operation["op"] == "create" and operation["path"] == nodes.CONTROLLER:
                    found = int(json.loads(operation["data"])["brokerid"])
        return found

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def _plant(self, *, without_controller: bool) -> None:
        """The nodes that were there; brokers first, so that no state is older than the registration of its replicas."""
        paths = sorted(self.before, key=lambda path: (not path.startswith("/brokers/ids"), path))
        made: set[str] = set()
        for path in paths:
            if path == nodes.CONTROLLER and without_controller:
                continue
            parents = [path[:end] for end, letter in enumerate(path) if letter == "/" and end]
            for parent in [each for each in parents if each not in made]:
                self._write(Create(parent))
                made.add(parent)
            data, version = self.before[path]
            content = (data or "").encode()
            if path not in made:
                self._write(Create(path, content))
                made.add(path)
            else:
                self._write(Put(path, content))
            entry = self.ensemble.tree.entry(path)
            assert entry is not None
            for _ in range(version - entry.version):
                self._write(Put(path, content))

    def _write(self, *operations: Operation) -> None:
        self.ensemble.commit(0, operations)

    def _start(self, node_id: int) -> None:
        store = self._stores[node_id] = self.ensemble.connect(f"broker-{node_id}")
        controller = self._controllers[node_id] = Controller(
            node_id, store, lambda: self.brokers, Settings(), Random(2), lambda: 0
        )
        self._tasks[node_id] = asyncio.ensure_future(controller.run())

    async def _end(self, node_id: int) -> None:
        task = self._tasks.pop(node_id)
        task.cancel()
        await asyncio.wait([task])

    # -- events --------------------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[dict[str, Any] | CapturedRequest]:
        """What did not come from the controller, in order."""
        to_controller = (ALTER_PARTITION, CONTROLLED_SHUTDOWN, ELECT_LEADERS, MOVE)
        found: list[tuple[int, dict[str, Any] | CapturedRequest]] = [
            (each.done_ms, each) for each in self.capture.requests if each.api_key in to_controller
        ]
        for transaction in self.capture.transactions:
            first = operations_of(transaction)[0]
            is_fenced = first["op"] == "check" and first["path"] == nodes.CONTROLLER_EPOCH
            if not is_fenced and not transaction["by"].startswith("authorizer"):
                found.append((transaction["ms"], transaction))
        for _, event in sorted(found, key=lambda each: each[0]):
            yield event

    async def _happen(self, event: dict[str, Any] | CapturedRequest) -> None:
        if isinstance(event, CapturedRequest):
            await self._ask(event)
        elif event["op"] == "closeSession":
            await self._session_ends(event["by"])
        else:
            await self._transact(operations_of(event))

    async def _session_ends(self, whose: str) -> None:
        node_id = NODE_IDS.get(int(whose.rpartition(" ")[2]), int(whose.rpartition(" ")[2]))
        path = nodes.broker_path(node_id)
        if self.ensemble.tree.entry(path) is not None:
            self._write(Delete(path))
        if node_id in self._tasks and self._controllers[node_id].is_active:
            await self._end(node_id)
            self.ensemble.end_session(self._stores[node_id].session.session_id)
        elif node_id == FOREIGN and self.ensemble.tree.entry(nodes.CONTROLLER) is not None:
            self._write(Delete(nodes.CONTROLLER))

    async def _transact(self, operations: list[dict[str, Any]]) -> None:
        if any("path" not in operation for operation in operations):
            return  # a session that begins, or what was refused
        if self.elected in self._kafka_brokers and any(each["path"] == nodes.CONTROLLER_EPOCH for each in operations):
            return  # an election: ours is held by our controllers
        if any(each["op"] == "delete" and each["path"] == nodes.CONTROLLER for each in operations):
            before = self.controller_before
            if before in self._tasks and self.elected in self._kafka_brokers and before != self.elected:
                await self._end(before)  # it does not win again
        changes: list[Operation] = []
        for operation in operations:
            path, data = operation["path"], (operation.get("data") or "").encode()
            match operation["op"]:
                case "create":
                    if self.ensemble.tree.entry(path) is None or path == nodes.CONTROLLER:
                        changes.append(Create(path, data))
                case "setData":
                    changes.append(Put(path, data))
                case "delete":
                    changes.append(Delete(path))
        if changes:
            self._write(*changes)

    async def _ask(self, event: CapturedRequest) -> None:
        controller = self._controllers.get(event.receiver)
        if controller is None or not controller.is_active:
            return
        request = request_from_json(event)
        server = ControllerRequests(controller, self._stores[event.receiver])
        assert event.response is not None
        match event.api_key:
            case 56 if event.response["errorCode"] == 0:
                request.broker_epoch = self._epoch_of(request.broker_id)
                self._with_our_epochs(request, event.response)
                answer = await server.alter_partition(request)
                codes = {each.error_code for topic in answer.topics for each in topic.partitions}
                assert answer.error_code == 0
                assert codes <= {0}
            case 7 if event.response["errorCode"] == 0:
                request.broker_epoch = self._epoch_of(request.broker_id)
                shut_down = await server.controlled_shutdown(request)
                remaining = [(each.topic_name, each.partition_index) for each in shut_down.remaining_partitions]
                captured = [
                    (each["topicName"], each["partitionIndex"]) for each in event.response["remainingPartitions"]
                ]
                assert sorted(remaining) == sorted(captured)
            case 43:
                await controller.ask(lambda term: _elect(term, request))
            case 45:
                await controller.ask(lambda term: _move(term, request))

    def _epoch_of(self, node_id: int) -> int:
        entry = self.ensemble.tree.entry(nodes.broker_path(node_id))
        assert entry is not None
        return entry.created

    def _with_our_epochs(self, request: Any, response: dict[str, Any]) -> None:
        """Fewer epochs pass with us: the leader knows the present ones here too. What was refused is left out."""
        granted = {
            (topic["topicId"], each["partitionIndex"])
            for topic in response["topics"]
            for each in topic["partitions"]
            if each["errorCode"] == 0
        }
        names = {}
        for name in self.ensemble.tree.children(nodes.TOPICS):
            entry = self.ensemble.tree.entry(nodes.topic_path(name))
            assert entry is not None
            names[nodes.decode_assignment(name, entry.data).topic_id] = name
        for topic in request.topics:
            topic.partitions = [
                each for each in topic.partitions if (topic_id_text(topic.topic_id), each.partition_index) in granted
            ]
            for each in topic.partitions:
                entry = self.ensemble.tree.entry(nodes.state_path(names[topic.topic_id], each.partition_index))
                assert entry is not None
                state = nodes.decode_state("", entry.data, (), entry.version)
                each.leader_epoch, each.partition_epoch = state.leader_epoch, state.version


async def _elect(term: Term, request: Any) -> None:
    asked = (
        [partition for partition, _ in term.context.partitions()]
        if request.topic_partitions is None
        else [TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    )
    await elect_by_request(term, asked, unclean=request.election_type == 1)


async def _move(term: Term, request: Any) -> None:
    for topic in request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.replicas is None:
                await moves.cancel(term, partition)
            else:
                await moves.begin(term, partition, each.replicas)


# -- what comes of it --------------------------------------------------------------------------------------------------


def meaning(path: str, data: bytes, deleting: Collection[str]) -> object:
    """What a peer reads of a node; `deleting`: topics on their way out."""
    if match := STATE.fullmatch(path):
        state = nodes.decode_state(path, data, (), 0)
        # Of a topic that is being deleted the in-sync replicas mean nothing any more.
        return state.leader, () if match[1] in deleting else state.isr, state.is_recovering
    document: Any = json.loads(data) if data else None
    if path == nodes.topic_path("hand"):
        document["topic_id"] = "any"  # it had none: the controller draws one
    return document


def expected_sent(capture: Capture) -> dict[int, Sent]:
    found: dict[int, Sent] = {}
    for each in capture.requests:
        is_of_controller = each.api_key in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
        if is_of_controller and each.response is not None and each.response["errorCode"] == 0:
            found.setdefault(NODE_IDS.get(each.receiver, each.receiver), Sent()).take(request_from_json(each))
    return found


def registered(capture: Capture) -> set[int]:
    """The brokers that joined the cluster in the course of a capture: the first that they are sent is everything."""
    return {
        int(operation["path"].rpartition("/")[2])
        for transaction in capture.transactions
        for operation in operations_of(transaction)
        if operation["op"] == "create" and operation["path"].startswith(f"{nodes.BROKER_IDS}/")
    }


def differences(capture: Capture) -> list[str]:
    """What our controller leaves and sends otherwise than Kafka's, a line each."""
    replay = Replay(capture)
    replay.play()
    if capture.number in OF_FOREIGN_CONTROLLER:
        return [f"{replay.active} are controllers as well"] if replay.active else []
    entries = {path: entry.data for path, entry in replay.ensemble.tree.items() if OURS.fullmatch(path)}
    before, after = trees()[capture.number]
    doomed, deleting = _marked(before), _marked(after)
    ours = {path: meaning(path, data, deleting) for path, data in entries.items()}
    kafkas = {
        path: meaning(path, (data or "").encode(), deleting)
        for path, (data, _) in after.items()
        if OURS.fullmatch(path)
    }
    if capture.number > FIRST_OF_FOREIGN_CONTROLLER:  # what happened before it was not captured
        touched = {*capture.created, *capture.changed, *capture.deleted}
        ours = {path: value for path, value in ours.items() if path in touched}
        kafkas = {path: value for path, value in kafkas.items() if path in touched}
    found = list(_compare("node", ours, kafkas))
    for node_id, sent in expected_sent(capture).items():
        mine, during = (each.get(node_id, Sent()) for each in (replay.brokers.sent, replay.brokers.during))
        # What a broker was sent before the capture need not be sent again.
        # Of a replica that is lost, its broker may be sent anything: it cannot do it. Kafka has replicas of a topic
        # that is deleted made once more before they are deleted; we do not.
        lost = lost_replicas()[capture.number + 1].get(node_id, set())
        told = {each for each in {*sent.states, *during.states} - lost if each.topic not in doomed}
        found += _compare(f"state to {node_id}:", _of(mine.states, told), _of(sent.states, told))
        found += _compare(f"metadata to {node_id}:", _of(mine.metadata, sent.metadata), sent.metadata)
        found += _compare(f"stop to {node_id}:", during.stopped, sent.stopped)
        if node_id in registered(capture) and during.first != sent.first:
            found.append(f"first to {node_id}: {during.first - sent.first} more, {sent.first - during.first} less")
        if during.new != sent.new:
            found.append(f"new to {node_id}: {during.new}, Kafka: {sent.new}")
        if (mine.live, mine.controller) != (sent.live, sent.controller):
            found.append(
                f"live to {node_id}: {mine.live} by {mine.controller}, Kafka: {sent.live} by {sent.controller}"
            )
    return found


def _marked(tree: Tree) -> set[str]:
    return {path.rpartition("/")[2] for path in tree if path.startswith(f"{nodes.DELETIONS}/")}


def _of(values: Mapping[TopicPartition, object], keys: Iterable[TopicPartition]) -> dict[TopicPartition, object]:
    return {key: values[key] for key in keys if key in values}


def _compare(kind: str, ours: Mapping[Any, object], kafkas: Mapping[Any, object]) -> Iterator[str]:
    for key in sorted(ours.keys() | kafkas.keys()):
        if ours.get(key, "nothing") != kafkas.get(key, "nothing"):
            yield f"{kind} {key}: {ours.get(key, 'nothing')}, Kafka: {kafkas.get(key, 'nothing')}"


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_our_controller_does_what_kafkas_did(capture: Capture) -> None:
    assert differences(capture) == []
