"""Our brokers in the place of Kafka's: what brokers of Apache Kafka 3.9 answered to each other, ours answer too.

A request that was refused as a whole is made again to a cluster of ours, with epochs that are as far from its own as
the captured ones were from those of Kafka's. And everything that controllers sent to one broker, from its first start
on, is sent to a broker of ours, which answers each request, and each partition in it, as that one did.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster import nodes
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import TopicState
from ottla.errors import ErrorCode, StorageError
from ottla.ids import TopicPartition
from ottla.store.api import Create
from ottla.testing.captures import (
    MISSING,
    Capture,
    CapturedRequest,
    captures,
    operations_of,
    request_from_json,
    response_from_json,
    to_json,
)
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

pytestmark = pytest.mark.skipif(not captures(), reason=MISSING)

FETCH, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 1, 4, 5, 6
BOTH_AT_ONCE = 55  # a Fetch, and the UpdateMetadata after which it would have been answered otherwise
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
CONTROLLED_SHUTDOWN, CREATE_TOPICS, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS = 7, 19, 56, 67
OF_CONTROLLERS = (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
TO_CONTROLLERS = (CONTROLLED_SHUTDOWN, CREATE_TOPICS, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS)
BROKERS = (1, 2, 3)
FIRST_AFTER_A_GAP = 73  # what happened before it was not captured
ANY_BROKER_EPOCH = -1
WORLD_S = 100_000
DIRECTORIES = 40  # more than any broker has replicas: each is alone in its own, and can be lost alone
SETTINGS = {
    "log.dirs": ",".join(f"/disk-{number:02}" for number in range(DIRECTORIES)),
    "replica.lag.time.max.ms": "600000",
    "controlled.shutdown.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A captured request, and what was so in Kafka's cluster when it was made."""

    capture: Capture
    request: CapturedRequest
    controller: int
    controller_epoch: int
    epochs: dict[int, int]  # of the brokers, by their latest registrations
    starts: dict[int, int]  # of the brokers, how many by then

    def __str__(self) -> str:
        return f"{self.capture.number}: {self.request.api_key} to {self.request.receiver} at {self.request.done_ms}"


@cache
def asked() -> list[Asked]:
    """All requests that were answered, in order."""
    controller, controller_epoch = -1, 0
    epochs: dict[int, int] = {}
    starts: dict[int, int] = {}
    found = []
    for capture in captures():
        events: list[tuple[int, int, Any]] = [(each["ms"], 0, each) for each in capture.transactions]
        events += [(each.done_ms, 1, each) for each in capture.requests if each.response is not None]
        for _, kind, event in sorted(events, key=lambda each: each[:2]):
            if kind:
                found.append(Asked(capture, event, controller, controller_epoch, dict(epochs), dict(starts)))
                continue
            if event["op"] == "createSession" and event["by"].startswith("broker") and "expiry" not in str(capture):
                node_id = int(event["by"].rpartition(" ")[2])
                starts[node_id] = starts.get(node_id, 0) + 1
            for operation in operations_of(event):
                parent, _, name = operation.get("path", "").rpartition("/")
                if operation["op"] == "create" and parent == nodes.BROKER_IDS:
                    epochs[int(name)] = event["zxid"]
                elif operation["op"] == "create" and operation["path"] == nodes.CONTROLLER:
                    controller = nodes.decode(nodes.CONTROLLER, operation["data"].encode())["brokerid"]
                elif operation["op"] == "setData" and operation["path"] == nodes.CONTROLLER_EPOCH:
                    controller_epoch = int(operation["data"])
    return found


def codes(answer: Any) -> dict[object, int]:
    """The errors of an answer: as a whole, and of what it lists."""
    found: dict[object, int] = {}
    if hasattr(answer, "error_code"):
        found["all"] = answer.error_code
    for topic in getattr(answer, "topics", ()):
        for each in getattr(topic, "partition_errors", ()):
            found[topic.topic_id, each.partition_index] = each.error_code
        if hasattr(topic, "error_code"):
            found[topic.name] = topic.error_code
    for topic in getattr(answer, "responses", ()):
        found.update({(topic.topic_id, each.partition_index): each.error_code for each in topic.partitions})
    for each in getattr(answer, "partition_errors", ()):
        found[each.topic_name, each.partition_index] = each.error_code
    return found


# -- refused as a whole ------------------------------------------------------------------------------------------------


def refused() -> list[Asked]:
    """What was asked by brokers, or in their place, and answered with one error for all of it."""
    found = []
    for each in asked():
        if each.request.api_key in (*OF_CONTROLLERS, *TO_CONTROLLERS):
            answered = codes(response_from_json(each.request))
            if len(answered) == 1 and ErrorCode.NONE not in answered.values():
                found.append(each)
    return found


@pytest.mark.parametrize("each", refused(), ids=str)
def test_what_kafkas_brokers_refuse_is_refused_by_ours_with_the_same_error(each: Asked) -> None:
    world = World(1)
    cluster = SimulatedCluster(world, len(BROKERS))

    async def main() -> Any:
        await cluster.start()
        controller = cluster.brokers[1].broker.image.controller_id
        others = [node_id for node_id in BROKERS if node_id != controller]
        kafkas_others = [node_id for node_id in BROKERS if node_id != each.controller]
        ours = {each.controller: controller, **dict(zip(kafkas_others, others, strict=False))}
        request = in_our_epochs(cluster, each, ours)
        answer = await cluster.asked(ours[each.request.receiver], request, each.request.version)
        await cluster.close()
        return answer

    assert each.request.response is not None
    answer = to_json(world.run(main(), seconds=WORLD_S), each.request.version, each.request.response)
    assert without_messages(answer) == without_messages(each.request.response)


def without_messages(document: Any) -> Any:
    """The words of an error are ours."""
    if isinstance(document, list):
        return [without_messages(each) for each in document]
    if isinstance(document, dict):
        return {name: without_messages(value) for name, value in document.items() if name != "errorMessage"}
    return document


def test_every_kind_of_refusal_was_captured() -> None:
    """Else the tests above would be about nothing."""
    found = {(each.request.api_key, *codes(response_from_json(each.request)).values()) for each in refused()}
    assert found == {
        *((api_key, code) for api_key in OF_CONTROLLERS for code in (11, 77)),
        *((ALTER_PARTITION, code) for code in (41, 77)),
        *((ALLOCATE_PRODUCER_IDS, code) for code in (41, 77, 102)),
        *((CONTROLLED_SHUTDOWN, code) for code in (11, 77, -1)),
        (CREATE_TOPICS, 41),
    }


def in_our_epochs(cluster: SimulatedCluster, each: Asked, ours: dict[int, int]) -> Any:
    """The request, with epochs that are as old, or as new, as they were. `ours`: who stands for each of Kafka's."""
    request = request_from_json(each.request)
    of_broker = each.request.receiver
    if each.request.api_key in OF_CONTROLLERS:
        request.controller_epoch += controller_epoch(cluster) - each.controller_epoch
    else:
        of_broker = getattr(request, "broker_id", -1)
    if of_broker in ours and request.broker_epoch != ANY_BROKER_EPOCH:
        request.broker_epoch += epoch_of(cluster, ours[of_broker]) - each.epochs[of_broker]
    if hasattr(request, "broker_id"):
        request.broker_id = ours.get(of_broker, of_broker)
    return request


def epoch_of(cluster: SimulatedCluster, node_id: int) -> int:
    entry = cluster.ensemble.tree.entry(nodes.broker_path(node_id))
    assert entry is not None
    return entry.created


def controller_epoch(cluster: SimulatedCluster) -> int:
    entry = cluster.ensemble.tree.entry(nodes.CONTROLLER_EPOCH)
    assert entry is not None
    return int(entry.data)


# -- all that a broker was told by controllers -------------------------------------------------------------------------


def told(node_id: int) -> list[Asked]:
    """What it was asked by controllers, and by followers that it did not know the partitions of."""
    return [
        each
        for each in asked()
        if each.request.receiver == node_id
        and each.capture.number < FIRST_AFTER_A_GAP
        and (each.request.api_key in OF_CONTROLLERS or is_fetch_of_unknown(each))
    ]


def is_fetch_of_unknown(each: Asked) -> bool:
    """Of nothing else: what is known depends on logs, which were not captured."""
    if each.request.api_key != FETCH or each.capture.number == BOTH_AT_ONCE:
        return False
    named = {
        (topic.topic_id, entry.partition)
        for topic in request_from_json(each.request).topics
        for entry in topic.partitions
    }
    answered = codes(response_from_json(each.request))
    unknown = {what for what, code in answered.items() if code in UNKNOWN}
    return bool(unknown) and unknown == named


class Replay:
    """A broker of ours in the place of one of Kafka's, and what it answers otherwise. Nobody else is there."""

    def __init__(self, node_id: int) -> None:
        self.differences: list[str] = []
        self._node_id = node_id
        self._world = World(1)
        self._world.excuses = lambda message: "/disk-" in message  # a directory is lost
        self._cluster = SimulatedCluster(self._world, len(BROKERS), SETTINGS)
        self._starts = 0

    def play(self) -> None:
        self._world.run(self._play(), seconds=WORLD_S)

    async def _play(self) -> None:
        self._plant()
        for each in told(self._node_id):
            await self._start(each.starts[self._node_id])
            self._lose(each)
            await self._ask(each)
        await self._cluster.close()

    def _plant(self) -> None:
        """Another broker is the controller, and every topic that will ever be is assigned to this one."""
        commit = self._cluster.ensemble.commit
        for path in nodes.CLUSTER_ROOTS:
            commit(0, (Create(path),))
        commit(0, (Create(nodes.CONTROLLER, nodes.encode_controller(9, 0)),))
        for name, (topic_id, count) in topics().items():
            partitions = tuple(unwritten((self._node_id,)) for _ in range(count))
            commit(0, (Create(nodes.topic_path(name), nodes.encode_topic(TopicState(name, topic_id, partitions))),))

    async def _start(self, starts: int) -> None:
        if self._starts < starts:
            if self._starts:
                await self._cluster.stop(self._node_id)
            self._starts = starts
            self._cluster.begin_start(self._node_id)
        while self._cluster.ensemble.tree.entry(nodes.broker_path(self._node_id)) is None:
            await asyncio.sleep(0.1)

    def _lose(self, each: Asked) -> None:
        """What it has lost by then, with the directory, is lost; what else was in it lies elsewhere here."""
        for name in lost_by(each):
            replicas = self._cluster.brokers[self._node_id].broker.replicas
            if (partition := replicas.get(name)) is not None:
                replicas.directory_failed(partition.log, StorageError(partition.log.directory, "it is lost"))

    async def _ask(self, each: Asked) -> None:
        request = request_from_json(each.request)
        if each.request.api_key == FETCH:
            request.session_id, request.session_epoch, request.max_wait_ms = 0, -1, 0
        elif request.broker_epoch != ANY_BROKER_EPOCH:
            request.broker_epoch += epoch_of(self._cluster, self._node_id) - each.epochs[self._node_id]
        answer = await self._cluster.asked(self._node_id, request, each.request.version, timeout_s=60.0)
        kafkas, ours = codes(response_from_json(each.request)), codes(answer)
        self.differences += [
            f"{each}: {what}: {ours.get(what)}, Kafka: {kafkas.get(what)}"
            for what in kafkas.keys() | ours.keys()
            if ours.get(what) != kafkas.get(what)
        ]


def lost_by(each: Asked) -> list[TopicPartition]:
    """The replicas that a broker said to have lost when it answered."""
    names: dict[object, str] = {topic_id: name for name, (topic_id, _) in topics().items()}
    return [
        TopicPartition(names.get(what[0]) or what[0], what[1])
        for what, code in codes(response_from_json(each.request)).items()
        if isinstance(what, tuple) and code == ErrorCode.KAFKA_STORAGE_ERROR
    ]


@cache
def topics() -> dict[str, tuple[UUID, int]]:
    """Ids and numbers of partitions, by what brokers were sent."""
    found: dict[str, tuple[UUID, int]] = {}
    for each in asked():
        if each.request.api_key == LEADER_AND_ISR:
            for topic in request_from_json(each.request).topic_states:
                last = max(state.partition_index for state in topic.partition_states)
                count = found.get(topic.topic_name, (None, 0))[1]
                found[topic.topic_name] = topic.topic_id, max(count, last + 1)
    return found


@pytest.mark.parametrize("node_id", BROKERS)
def test_a_broker_answers_its_controllers_as_kafkas_did(node_id: int) -> None:
    replay = Replay(node_id)
    replay.play()
    assert replay.differences == []
