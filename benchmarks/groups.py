"""Groups beside Apache Kafka: committing offsets, becoming stable, and remembering a million offsets.

Raw connections with ready-made requests keep the generator light. What counts is the CPU of the broker; wall time on a
small machine measures the generator too. Everybody is warm and takes turns, see turns.py. The memory of a broker in
Java is what its collector has touched, not what it needs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import selectors
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import floor
import peers
from ottla.errors import ErrorCode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, list_offsets
from turns import Plan, Work, take_turns
from wire import Peer, RawConnection, frame_of

SETTINGS = {"offsets.topic.num.partitions": "50"}
TOPIC = "read"
PARTITIONS = 100
CONNECTIONS = 8
COMMITS = 8_000
STARTS = 3
ANSWER_BYTES = 48  # of the floor, about as long as a broker's
MEMBER_COUNTS = (1, 10, 100)
GROUPS = 10_000
HEARTBEAT_S = 0.05
WAIT_S = 120.0
COMMIT_VERSION = 8


@dataclass
class Restartable:
    """A broker that comes back on the same data; `peer` is its running process."""

    name: str
    start: Callable[[], tuple[str, int]]
    stop: Callable[[], None]
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        started = time.perf_counter()
        bootstrap, pid = self.start()
        self.peer = Peer(self.name, bootstrap, pid, time.perf_counter() - started)


@contextlib.contextmanager
def ottla() -> Iterator[Restartable]:
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as directory:
        broker = Broker({**peers.SETTINGS, **SETTINGS}, directory=directory, in_process=False)

        def start() -> tuple[str, int]:
            broker.start()
            return broker.bootstrap_servers, broker.pid

        try:
            yield Restartable("ottla", start, broker.stop)
        finally:
            broker.stop()


@contextlib.contextmanager
def kafka() -> Iterator[Restartable]:
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as directory:
        broker = peers.kafka_in(Path(directory), SETTINGS)

        def start() -> tuple[str, int]:
            broker.start()
            return broker.bootstrap, broker.pid

        try:
            yield Restartable("kafka", start, broker.stop)
        finally:
            broker.stop()


def prepare(peer: Peer) -> None:
    """Makes the topic that groups read, and has the broker make its own."""
    with RawClient(peer.bootstrap) as client:
        client.ask(create_topic(TOPIC, PARTITIONS), 7)
        wait_for(lambda: not any(_error_of_partition(client, partition) for partition in range(PARTITIONS)))
        wait_for(lambda: not client.ask(FindCoordinatorRequest(key="any"), 3).error_code)
        wait_for(lambda: not unloaded(client, [f"group-{number}" for number in range(500)]))


def _error_of_partition(client: RawClient, index: int) -> int:
    return int(client.ask(list_offsets(TOPIC, -1, partition=index), 7).topics[0].partitions[0].error_code)


def unloaded(client: RawClient, groups: list[str]) -> int:
    """How many of the groups have no coordinator that answers yet."""
    one = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    entries = [OffsetFetchRequestGroup(group_id=group, topics=one) for group in groups]
    answer = client.ask(OffsetFetchRequest(groups=entries), 8)
    return sum(bool(group.error_code) for group in answer.groups)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the broker never got there"
        time.sleep(0.02)


# -- commits -----------------------------------------------------------------------------------------------------------


def commit(group: str, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=12_345, committed_metadata="")
                    for index in range(partitions)
                ],
            )
        ],
    )


def costs_of(peer: Peer, count: int, work: Callable[[], None]) -> dict[str, float]:
    started, before = time.perf_counter(), peer.cpu_s()
    work()
    return {
        "cpu_us_per_commit": (peer.cpu_s() - before) / count * 1e6,
        "us_per_commit": (time.perf_counter() - started) / count * 1e6,
    }


def commit_all(clients: list[RawClient], requests: list[OffsetCommitRequest], count: int) -> None:
    """Commits by several groups at once, each of which waits for its answer."""
    for _ in range(count // CONNECTIONS):
        for client, request in zip(clients, requests, strict=True):
            client.send(request, COMMIT_VERSION)
        for client in clients:
            answer, _ = client.receive()
            assert not answer.topics[0].partitions[0].error_code, answer


def commit_all_on_the_floor(connections: list[RawConnection], frame: bytes, count: int) -> None:
    for _ in range(count // CONNECTIONS):
        for connection in connections:
            connection.send(frame)
        for connection in connections:
            connection.receive(ANSWER_BYTES)


def commits(everybody: Mapping[str, Peer], partitions: int, count: int, plan: Plan) -> dict[str, Any]:
    """What a commit of so many offsets costs."""
    requests = [commit(f"committing-{number}", partitions) for number in range(CONNECTIONS)]
    with contextlib.ExitStack() as stack:
        works: dict[str, Work] = {}
        for name, peer in everybody.items():
            if name == "floor":
                connections = [RawConnection(peer.bootstrap) for _ in range(CONNECTIONS)]
                for connection in connections:
                    stack.callback(connection.close)
                floor.set_answer_size(connections[0], ANSWER_BYTES)
                frame = frame_of(requests[0], COMMIT_VERSION)
                work = partial(commit_all_on_the_floor, connections, frame, count)
            else:
                clients = [stack.enter_context(RawClient(peer.bootstrap)) for _ in range(CONNECTIONS)]
                work = partial(commit_all, clients, requests, count)
            works[name] = partial(costs_of, peer, count, work)
        return take_turns(works, plan)


# -- becoming stable ---------------------------------------------------------------------------------------------------


class Member:
    """A member of a classic group that does what the answers ask for."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.client = RawClient(bootstrap)
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._wakes_at: float | None = None
        self.stable_generation: int | None = None
        self._join()

    def _join(self) -> None:
        self.stable_generation = None
        protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(32))]
        self.client.send(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=protocols,
            ),
            5,
        )

    def hear(self) -> None:
        """Takes the answer that has come, and sends what follows from it."""
        answer, _ = self.client.receive()
        code = ErrorCode(answer.error_code)
        match type(answer).__name__:
            case "JoinGroupResponse":
                self._member_id, self._generation = answer.member_id, answer.generation_id
                if code == ErrorCode.NONE:
                    self._sync([each.member_id for each in answer.members])
                else:
                    assert code == ErrorCode.MEMBER_ID_REQUIRED, code
                    self._join()
            case "SyncGroupResponse" if code == ErrorCode.NONE:
                self.stable_generation = self._generation
                self._wakes_at = time.perf_counter() + HEARTBEAT_S
            case "HeartbeatResponse" if code == ErrorCode.NONE:
                self._wakes_at = time.perf_counter() + HEARTBEAT_S
            case _:
                assert code == ErrorCode.REBALANCE_IN_PROGRESS, code
                self._join()

    def _sync(self, members: list[str]) -> None:
        assignments = [SyncGroupRequestAssignment(member_id=member, assignment=bytes(64)) for member in members]
        self.client.send(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                assignments=assignments,
            ),
            3,
        )

    def beat_if_due(self, now: float) -> None:
        if self._wakes_at is not None and self._wakes_at <= now:
            self._wakes_at = None
            request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
            self.client.send(request, 3)


def become_stable(peer: Peer, group: str, count: int) -> float:
    """Seconds from the first join until all members have an assignment of one generation."""
    started = time.perf_counter()
    members = [Member(peer.bootstrap, group) for _ in range(count)]
    try:
        with selectors.DefaultSelector() as selector:
            for member in members:
                selector.register(member.client.socket, selectors.EVENT_READ, member)
            while len({member.stable_generation for member in members} | {None}) != 2 or any(
                member.stable_generation is None for member in members
            ):
                for key, _ in selector.select(HEARTBEAT_S / 5):
                    key.data.hear()
                now = time.perf_counter()
                assert now - started < WAIT_S, "the group never became stable"
                for member in members:
                    member.beat_if_due(now)
        return time.perf_counter() - started
    finally:
        for member in members:
            member.client.close()


def stability(brokers: Mapping[str, Peer], plan: Plan) -> dict[str, Any]:
    numbers = itertools.count()

    def once(peer: Peer, count: int) -> dict[str, float]:
        before = peer.cpu_s()
        seconds = become_stable(peer, f"stable-{next(numbers)}", count)
        return {"stable_ms": seconds * 1000, "broker_cpu_ms": (peer.cpu_s() - before) * 1000}

    return {
        f"{count}_members": take_turns({name: partial(once, peer, count) for name, peer in brokers.items()}, plan)
        for count in MEMBER_COUNTS
    }


# -- a million offsets -------------------------------------------------------------------------------------------------


def remember(broker: Restartable, groups: int) -> dict[str, float]:
    """Memory of many groups with a hundred offsets each, and how long a restart takes to have them again."""
    resident = broker.peer.resident_mb()
    before = broker.peer.cpu_s()
    with RawClient(broker.peer.bootstrap) as client:
        for number in range(groups):
            answer = client.ask(commit(f"group-{number}", PARTITIONS), COMMIT_VERSION)
            assert not answer.topics[0].partitions[0].error_code, answer
    results: dict[str, Any] = {
        "offsets": groups * PARTITIONS,
        "commit_cpu_us_per_offset": (broker.peer.cpu_s() - before) / groups / PARTITIONS * 1e6,
        "resident_mb_more": broker.peer.resident_mb() - resident,
    }
    broker.stop()
    return results


def load_again(broker: Restartable, groups: int) -> dict[str, float]:
    """From the start of the process until it knows all groups; it is stopped again."""
    started = time.perf_counter()
    broker.begin()
    names = [f"group-{number}" for number in range(0, groups, max(1, groups // 500))]
    with RawClient(broker.peer.bootstrap) as client:
        wait_for(lambda: not unloaded(client, names))
    costs = {
        "start_to_loaded_s": time.perf_counter() - started,
        "start_to_loaded_cpu_s": broker.peer.cpu_s(),
        "resident_mb": broker.peer.resident_mb(),
    }
    broker.stop()
    return costs


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    plan = plan or Plan()
    commit_count, groups = int(COMMITS * scale), int(GROUPS * scale)
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        starts = (ottla, kafka) if not missing_programs() else (ottla,)
        brokers = {broker.name: broker for broker in (stack.enter_context(start()) for start in starts)}
        running = {name: broker.peer for name, broker in brokers.items()}
        for peer in running.values():
            prepare(peer)
        everybody = dict(running)
        if floor.missing() is None:
            everybody["floor"] = stack.enter_context(floor.floor())
        print("  commits", flush=True)
        results["commit_of_1_offset"] = commits(everybody, 1, commit_count, plan)
        results["commit_of_10_offsets"] = commits(everybody, 10, commit_count // 4, plan)
        print("  becoming stable", flush=True)
        results["becoming_stable"] = stability(running, plan)
        print("  many groups", flush=True)
        results["many_groups"] = {name: remember(broker, groups) for name, broker in brokers.items()}
        # A start is never warm, so nothing is warmed up for it.
        again: dict[str, Work] = {name: partial(load_again, broker, groups) for name, broker in brokers.items()}
        results["many_groups_again"] = take_turns(again, Plan(min(plan.rounds, STARTS), warm_up_s=0.0))
    return results


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
