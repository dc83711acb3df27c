"""What a leader remembers of a follower's session answers its next requests as the general way would, or leaves them
to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.follower_fetches import FRAME_BYTES_MAX, LOOKED_AT_MAX, FollowerFetches, FollowerSession, Leading
from ottla.broker.partition import Partition
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.net.connection import Connection
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.records import batch
from ottla.replication.fetch_frames import (
    AskedPartition,
    FetchedPartitions,
    FetchTemplate,
    read_response,
)
from ottla.replication.fetch_requests import FetchPosition
from ottla.replication.fetch_sessions import FetchSessions, WantedKey
from ottla.replication.leader import Leader
from ottla.storage.recovery import open_log
from ottla.testing import loop
from ottla.testing.disk import SimulatedDisk

TOPIC_ID = UUID(int=7)
VERSION = 17
LEADER, FOLLOWER, THIRD = 1, 2, 3
WAIT_S = 0.5
BYTES_MAX = 1_000_000
BROKER_EPOCH = 40
EPOCH = 5
CORRELATION_ID = 77


class Clock:
    """The loop's time."""

    def now_ms(self) -> int:
        return self.steady_ms()

    def steady_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class Dispatcher:
    """Counts."""

    answered = 0

    def answered_late(self, key: int, connection: Connection, total_ns: int) -> None:
        self.answered += 1


class Wire:
    """Where answers leave."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []

    def answer_deferred(self, deferred: object, parts: list[Any], *, is_last: bool) -> None:
        assert is_last
        self.sent.append(parts)


class Stage:
    """Partitions led by one broker, and a follower whose session has been learned."""

    def __init__(self, partitions: int = 2, *, response_bytes_max: int = 10_000_000) -> None:
        self.disk = SimulatedDisk()
        self.partitions = [self._partition(index) for index in range(partitions)]
        self.sessions = FetchSessions(random.Random(1))
        self.is_stopping = False
        self.wire = Wire()
        quota = ReplicationQuota(LEADER, lambda: 1, lambda config: (), lambda: 0.0)
        self.clock = Clock()
        self.leading = Leading(self.sessions, quota, self.clock, lambda: response_bytes_max, lambda: self.is_stopping)
        entries = [
            FetchPartition(
                partition=index,
                current_leader_epoch=EPOCH,
                fetch_offset=partition.log.end_offset,
                last_fetched_epoch=-1,
                log_start_offset=0,
                partition_max_bytes=BYTES_MAX,
            )
            for index, partition in enumerate(self.partitions)
        ]
        request = FetchRequest(
            replica_id=FOLLOWER,
            max_wait_ms=int(WAIT_S * 1000),
            min_bytes=1,
            max_bytes=10_000_000,
            session_epoch=0,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=entries)],
        )
        plan = finished(self.sessions.plan(request, VERSION, 0))
        assert plan is not None
        self.session = self.sessions._sessions[plan.session_id]
        self.template = FetchTemplate(bytes((0, 1, 0, VERSION)), b"start", b"end")
        self.fetches = FollowerFetches(
            self.leading,
            FollowerSession(FOLLOWER, BROKER_EPOCH, self.session, 0, self.session.changes),
            self.template,
            request,
        )
        for index, partition in enumerate(self.partitions):
            partition.record_fetch(FOLLOWER, 0, 0, 0)
            key = WantedKey("", TOPIC_ID, index)
            self.fetches.add(key, self.session.partitions[key], partition, partition.leader, has_moved=False)
        self.fetches.dispatcher = Dispatcher()  # type: ignore[assignment]
        self.offsets = [partition.log.end_offset for partition in self.partitions]

    def _partition(self, index: int) -> Partition:
        name = TopicPartition("t", index)
        log = open_log(self.disk, f"/data/t-{index}", name, LogConfig(), now_ms=0)
        partition = Partition(name, TOPIC_ID, log, DiskFailures(), lambda name, offset, now_ms: None)
        replicas = (LEADER, FOLLOWER, THIRD)
        partition.lead(Leader(LEADER, EPOCH, replicas, replicas, end_offset=0, high_watermark=0))
        return partition

    def append(self, index: int = 0, value: bytes = b"v") -> None:
        self.partitions[index].append(batch.build(None, [value], 0), acks=-1, now_ms=0)

    def place(self, index: int, offset: int | None = None, **position: int) -> AskedPartition:
        known = {"leader_epoch": EPOCH, "last_fetched_epoch": -1, "log_start_offset": 0, "bytes_max": BYTES_MAX}
        at = self.offsets[index] if offset is None else offset
        return AskedPartition(TOPIC_ID.bytes, index, FetchPosition(at, **{**known, **position}))

    def ask(self, *asked: AskedPartition, epoch: int | None = None) -> Any:
        """What the next request comes to."""
        frame = self.template.write(CORRELATION_ID, self.session.epoch if epoch is None else epoch, asked)
        found = self.fetches.repeat(self.wire, memoryview(frame))  # type: ignore[arg-type]
        if found is self.fetches:
            self.fetches.begun(self.fetches.dispatcher, 0)  # type: ignore[arg-type]
        return found

    def taken(self, parts: list[Any]) -> FetchedPartitions:
        """A response as the follower reads it; it takes the records."""
        data = b"".join(part if isinstance(part, bytes) else part.read() for part in parts)
        assert int.from_bytes(data[:4]) == len(data) - 4
        assert int.from_bytes(data[4:8]) == CORRELATION_ID
        response = read_response(memoryview(data)[4:])
        assert response is not None
        for one in response.partitions:
            if len(one.records):
                self.offsets[one.partition] = batch.scan(one.records).headers[-1].end_offset
        return response


def finished(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.run(scenario())


def test_a_request_waits_and_is_answered_with_what_came_and_the_next_one_moves_the_high_watermark() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert stage.ask() is stage.fetches
        stage.append(1, b"new")
        assert stage.wire.sent == [], "in another turn, with all that comes until then"
        stage.append(1, b"newer")
        await asyncio.sleep(0)
        response = stage.taken(stage.wire.sent.pop())
        assert response.session_id == stage.session.session_id
        assert [(one.partition, one.high_watermark) for one in response.partitions] == [(1, 0)]
        assert stage.offsets == [0, 2]
        assert stage.ask(stage.place(1)) is stage.fetches
        leader = stage.partitions[1].leader
        assert leader.followers[FOLLOWER].end_offset == 2
        assert leader.record_end(THIRD, 2)
        assert leader.high_watermark == 2

    play(scenario)


def test_a_request_that_finds_more_is_answered_at_once() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append(0)
        response = stage.taken(stage.ask())
        assert [one.partition for one in response.partitions] == [0]

    play(scenario)


def test_records_that_the_follower_did_not_take_are_sent_again() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append(0)
        stage.taken(stage.ask())
        stage.offsets[0] = 0
        response = stage.taken(stage.ask())
        assert [(one.partition, len(one.records) > 0) for one in response.partitions] == [(0, True)]

    play(scenario)


def test_a_request_whose_time_is_up_says_what_moved_besides_records() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append(0)
        stage.taken(stage.ask())
        assert stage.ask(stage.place(0)) is stage.fetches
        leader = stage.partitions[0].leader
        leader.record_end(THIRD, 1)
        stage.partitions[0].moved.fire()
        await asyncio.sleep(WAIT_S - 0.01)
        assert stage.wire.sent == []
        await asyncio.sleep(0.02)
        response = stage.taken(stage.wire.sent.pop())
        assert [(one.partition, one.high_watermark, len(one.records)) for one in response.partitions] == [(0, 1, 0)]
        assert stage.ask() is stage.fetches
        await asyncio.sleep(WAIT_S + 0.01)
        assert stage.taken(stage.wire.sent.pop()).partitions == [], "it was reported"

    play(scenario)


def test_several_partitions_share_the_room_of_a_response_and_none_is_forgotten() -> None:
    async def scenario() -> None:
        stage = Stage(4, response_bytes_max=100)  # of one batch and a half
        for index in range(4):
            stage.append(index)
        seen: list[int] = []
        asked: list[AskedPartition] = []
        for _ in range(4):
            response = stage.taken(stage.ask(*asked))
            (index,) = (one.partition for one in response.partitions if len(one.records))
            seen.append(index)
            asked = [stage.place(seen[-1])]
        assert sorted(seen) == [0, 1, 2, 3]
        assert stage.ask(*asked) is stage.fetches

    play(scenario)


def test_a_response_about_very_many_partitions_is_made_in_several_requests() -> None:
    async def scenario() -> None:
        stage = Stage(LOOKED_AT_MAX + 10)
        assert stage.ask() is stage.fetches
        for index in range(LOOKED_AT_MAX + 10):
            stage.append(index)
        await asyncio.sleep(0)
        response = stage.taken(stage.wire.sent.pop())
        assert len(response.partitions) == LOOKED_AT_MAX
        assert stage.ask(*(stage.place(one.partition) for one in response.partitions)) is None, "the general way"

    play(scenario)


def test_a_partition_that_is_named_and_has_moved_again_counts_once() -> None:
    async def scenario() -> None:
        stage = Stage(LOOKED_AT_MAX)
        assert stage.ask() is stage.fetches
        for _ in range(3):
            for index in range(LOOKED_AT_MAX):
                stage.append(index)
            await asyncio.sleep(0)
        response = stage.taken(stage.wire.sent.pop())
        assert len(response.partitions) == LOOKED_AT_MAX
        for index in range(LOOKED_AT_MAX):
            stage.append(index)
        again = stage.taken(stage.ask(*(stage.place(one.partition) for one in response.partitions)))
        assert len(again.partitions) == LOOKED_AT_MAX

    play(scenario)


def lose_leadership(stage: Stage) -> None:
    stage.partitions[0].go_idle(EPOCH + 1)


def lead_again(stage: Stage) -> None:
    led = stage.partitions[0]
    led.lead(Leader(LEADER, EPOCH + 1, (1, 2, 3), (1, 2, 3), end_offset=0, high_watermark=0))


def shrink(stage: Stage) -> None:
    stage.partitions[0].leader.isr = (LEADER, THIRD)


def go_on_elsewhere(stage: Stage) -> None:
    """Another connection uses the session."""
    stage.sessions.advance(stage.session, 0)


def evict(stage: Stage) -> None:
    stage.sessions._sessions.clear()


def forget(stage: Stage) -> None:
    stage.fetches.forget()


def change_elsewhere(stage: Stage) -> None:
    """Another connection goes on with the session, and forgets one of its partitions."""
    forgotten = ForgottenTopic(topic_id=TOPIC_ID, partitions=[1])
    request = FetchRequest(
        replica_id=FOLLOWER,
        max_wait_ms=0,
        min_bytes=1,
        session_id=stage.session.session_id,
        session_epoch=stage.session.epoch,
        topics=[],
        forgotten_topics_data=[forgotten],
    )
    finished(stage.sessions.plan(request, VERSION, 0))


def register_again(stage: Stage) -> None:
    """The follower fetches in a later registration; a request of the earlier one was on its way for long."""
    stage.partitions[0].record_fetch(FOLLOWER, 0, 0, 0, BROKER_EPOCH + 1)


def damage(stage: Stage) -> None:
    """The records of a partition cannot be read, which the short way cannot say."""
    stage.append(0)
    stage.partitions[0].log.active.damaged_from = 0
    assert not any(len(one.records) for one in stage.taken(stage.ask()).partitions)


@pytest.mark.parametrize(
    "change", [lose_leadership, lead_again, shrink, evict, forget, change_elsewhere, register_again, damage]
)
def test_whatever_has_changed_is_left_to_the_general_way(change: Callable[[Stage], None]) -> None:
    async def scenario() -> None:
        stage = Stage()
        change(stage)
        assert stage.ask(stage.place(0)) is None

    play(scenario)


def test_a_session_that_another_connection_goes_on_with_is_left_to_the_general_way() -> None:
    async def scenario() -> None:
        stage = Stage()
        epoch = stage.session.epoch
        go_on_elsewhere(stage)
        assert stage.ask(epoch=epoch) is None
        assert stage.ask() is stage.fetches

    play(scenario)


@pytest.mark.parametrize(
    "asked",
    [
        {"leader_epoch": EPOCH - 1},
        {"leader_epoch": EPOCH + 1},
        {"offset": 4},
        {"offset": -1},
        {"last_fetched_epoch": EPOCH + 1},
        {"last_fetched_epoch": 3, "offset": 3},
        {"bytes_max": 0},
    ],
    ids=str,
)
def test_a_position_out_of_the_ordinary_is_left_to_the_general_way_and_changes_nothing(asked: dict[str, int]) -> None:
    async def scenario() -> None:
        stage = Stage()
        for _ in range(3):
            stage.append(0)
        before = stage.session.epoch
        assert stage.ask(stage.place(0, **asked)) is None
        assert stage.session.epoch == before
        assert stage.partitions[0].leader.followers[FOLLOWER].end_offset <= 0

    play(scenario)


def test_a_session_that_changed_before_it_was_learned_is_left_to_the_general_way() -> None:
    async def scenario() -> None:
        stage = Stage()
        follower = FollowerSession(FOLLOWER, BROKER_EPOCH, stage.session, 0, stage.session.changes)
        change_elsewhere(stage)
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[])
        stage.fetches = FollowerFetches(stage.leading, follower, stage.template, request)
        assert stage.ask() is None

    play(scenario)


def test_a_request_that_names_very_many_partitions_is_not_even_read() -> None:
    async def scenario() -> None:
        stage = Stage()
        very_many = [AskedPartition(TOPIC_ID.bytes, index, FetchPosition(0, EPOCH)) for index in range(1000)]
        frame = stage.template.write(CORRELATION_ID, stage.session.epoch, very_many)
        assert len(frame) > FRAME_BYTES_MAX
        reading = stage.fetches._template = Mock(wraps=stage.template)
        assert stage.fetches.repeat(stage.wire, memoryview(frame)) is None  # type: ignore[arg-type]
        assert not reading.read.called

    play(scenario)


def test_partitions_that_are_not_in_the_session_or_named_twice_are_left_to_the_general_way() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert stage.ask(AskedPartition(TOPIC_ID.bytes, 9, FetchPosition(0, EPOCH))) is None
        assert stage.ask(AskedPartition(bytes(16), 0, FetchPosition(0, EPOCH))) is None
        assert stage.ask(stage.place(0), stage.place(0)) is None

    play(scenario)


def test_a_request_that_waits_is_answered_when_its_partition_gets_another_leader_or_the_broker_stops() -> None:
    async def scenario() -> None:
        for change in (lose_leadership, lead_again):
            stage = Stage()
            assert stage.ask() is stage.fetches
            change(stage)
            await asyncio.sleep(0)
            assert stage.taken(stage.wire.sent.pop()).partitions == []
            assert stage.ask() is None
        stage = Stage()
        assert stage.ask() is stage.fetches
        stage.is_stopping = True
        stage.partitions[0].moved.fire()
        await asyncio.sleep(0)
        assert len(stage.wire.sent) == 1

    play(scenario)


def test_what_is_forgotten_while_a_request_waits_answers_it_and_watches_nothing() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert stage.ask() is stage.fetches
        assert [one.moved.waiter_count for one in stage.partitions] == [1, 1]
        stage.fetches.forget()
        await asyncio.sleep(0)
        assert stage.taken(stage.wire.sent.pop()).partitions == []
        assert [one.moved.waiter_count for one in stage.partitions] == [0, 0]

    play(scenario)


def test_a_connection_that_closes_leaves_nothing_to_be_answered() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert stage.ask() is stage.fetches
        stage.fetches.cancel()
        stage.fetches.forget()
        stage.append(0)
        await asyncio.sleep(2 * WAIT_S)
        assert stage.wire.sent == []

    play(scenario)


def test_a_follower_that_asks_on_is_caught_up_in_every_partition_of_its_session() -> None:
    async def scenario() -> None:
        stage, lag_ms_max = Stage(), 2000
        await asyncio.sleep(60)
        assert stage.ask() is stage.fetches
        stage.append(0)
        progress = stage.partitions[0].leader.followers[FOLLOWER]
        assert progress.is_caught_up(1, stage.clock.steady_ms() + lag_ms_max, lag_ms_max)
        assert not progress.is_caught_up(1, stage.clock.steady_ms() + lag_ms_max + 1, lag_ms_max)

    play(scenario)


def test_large_records_are_sent_from_their_file_and_small_ones_in_one_piece() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append(0)
        stage.append(1, bytes(100_000))
        parts = stage.ask()
        assert [isinstance(part, bytes) for part in parts] == [True, False, True]
        stage.taken(parts)
        assert stage.offsets == [1, 1]
        stage.append(0)
        assert len(stage.ask(stage.place(0, 1), stage.place(1))) == 1

    play(scenario)
