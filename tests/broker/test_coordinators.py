"""Coordinators in trouble: damaged logs, full disks, a topic that is deleted under them, logs that are compacted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.broker.coordinators import Coordinator, CoordinatorParts
from ottla.broker.group_coordinator import offsets_topic
from ottla.broker.journal import Replay
from ottla.cluster.image import ClusterImage
from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from ottla.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.records.batch import read_header
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.disk import SimulatedDisk
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets
from ottla.testing.waiting import wait_until

LOAD_S = 120.0
OFFSETS = "__consumer_offsets"
ONE_SHARD = {"offsets.topic.num.partitions": "1"}


def commit(client: RawClient, offset: int, group: str = "g", note: str = "") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=note)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    answer = client.ask(OffsetCommitRequest(group_id=group, topics=topics), 7)
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: RawClient, group: str = "g") -> tuple[int, list[int]]:
    """The error code of the group, and the offsets that it has; waits while it is being loaded."""
    answers = []

    def is_loaded() -> bool:
        answers.append(client.ask(OffsetFetchRequest(group_id=group, topics=None), 7))
        return answers[-1].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    wait_until(is_loaded)
    offsets = [each.committed_offset for topic in answers[-1].topics for each in topic.partitions]
    return answers[-1].error_code, offsets


def prepared(broker: Broker) -> RawClient:
    client = RawClient(broker.bootstrap_servers)
    client.ask(create_topic("t"), 7)
    client.ask(FindCoordinatorRequest(key="g"), 3)
    return client


def test_a_log_that_cannot_be_read_takes_its_groups_out_of_service_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"offsets.topic.num.partitions": "2"}
    with Broker(settings, directory=tmp_path) as broker, prepared(broker) as client:
        # "a" and "b" are neighbours in Java's eyes: one group for each partition.
        assert [commit(client, 5, group) for group in ("a", "b")] == [0, 0]
    log = next(file for file in tmp_path.glob(f"{OFFSETS}-1/*.log") if file.stat().st_size)
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    with Broker(settings, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        outcomes = {group: committed(client, group) for group in ("a", "b")}
        assert sorted(outcomes.values()) == [(0, [5]), (ErrorCode.NOT_COORDINATOR, [])]
        (broken,) = (group for group, (code, _) in outcomes.items() if code)
        assert commit(client, 6, broken) == ErrorCode.NOT_COORDINATOR
        listed = client.ask(ListGroupsRequest(), 4)
        assert (listed.error_code, [each.group_id for each in listed.groups]) == (0, [({"a", "b"} - {broken}).pop()])
    assert f"{OFFSETS}-1 cannot be loaded" in caplog.text


class Keys:
    """A machine that notes the keys of its log, and falls over one of them as nobody thought it could."""

    next_deadline_ms: int | None = None
    wall_ahead_ms = 0

    def __init__(self, poison: bytes | None, is_slow_poison: bool) -> None:
        self._poison = poison
        self._is_slow_poison = is_slow_poison
        self.seen: list[bytes] = []

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        self.seen.append(key)
        if not self._is_slow_poison:
            self._digest()

    def _digest(self) -> None:
        if self._poison is not None and any(self._poison in key for key in self.seen):
            raise ZeroDivisionError("who would have thought")

    def apply_all(self, records: Sequence[CoordinatorRecord], producer_id: int) -> None:
        raise AssertionError("nothing is decided here")

    def loaded(self, now_ms: int) -> Decision:
        self._digest()
        return Decision()

    def expire(self, now_ms: int) -> Decision:
        return Decision()

    def refused(self, decision: Decision, error_code: ErrorCode, now_ms: int) -> Decision:
        return Decision()

    def unloaded(self) -> list[tuple[Ticket, object]]:
        return []


class KeysCoordinator(Coordinator[Keys]):
    """Keeps the keys of the offsets topic, on a broker that coordinates groups with it as well."""

    def __init__(self, broker: RunningBroker, poison: bytes, is_slow_poison: bool) -> None:
        parts = CoordinatorParts(
            broker.node_id,
            lambda: broker.image,
            lambda: broker.config,
            broker.replicas,
            lambda: broker.controller,
            broker.clock,
            broker.turns,
            broker.in_background,
        )
        super().__init__(
            parts,
            OFFSETS,
            make_machine=lambda: Keys(self.poison, is_slow_poison),
            make_replay=lambda machine: Replay(machine.replay, lambda producer_id, committed: None),
            new_topic=offsets_topic,
        )
        self.poison: bytes | None = poison

    async def states(self, *groups: str) -> list[int | ErrorCode]:
        """How many keys the machine of each group has, or why it cannot be asked; waits while one is being loaded."""
        async with asyncio.timeout(LOAD_S):
            while ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in (states := [self._state(group) for group in groups]):
                await asyncio.sleep(0)
        return states

    def _state(self, group: str) -> int | ErrorCode:
        try:
            return len(self.runner_of(group).machine.seen)
        except ApiError as error:
            return error.code


def in_later_epochs(image: ClusterImage, epochs: int) -> ClusterImage:
    """The cluster after so many elections in the offsets topic; another value in any case."""
    topic = image.topics[OFFSETS]
    partitions = tuple(replace(state, leader_epoch=state.leader_epoch + epochs) for state in topic.partitions)
    return replace(image, topics={**image.topics, OFFSETS: replace(topic, partitions=partitions)})


@pytest.mark.parametrize(("falls_at_its_end", "offset"), [(False, 0), (True, 1)])
def test_a_load_that_falls_over_holds_up_no_other_and_is_tried_again_with_the_next_leader_epoch(
    falls_at_its_end: bool, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: RunningBroker) -> None:
        group_b = b"\x00\x01b"  # as it stands in a key
        coordinator = KeysCoordinator(broker, poison=group_b, is_slow_poison=falls_at_its_end)
        coordinator.follow(broker.image)
        assert await coordinator.states("a", "b") == [1, ErrorCode.NOT_COORDINATOR]
        loaded = coordinator.runner_of("a")
        assert coordinator.runners() == [loaded]

        coordinator.poison = None
        coordinator.follow(in_later_epochs(broker.image, 0))
        assert await coordinator.states("a", "b") == [1, ErrorCode.NOT_COORDINATOR]
        coordinator.follow(in_later_epochs(broker.image, 1))
        assert await coordinator.states("a", "b") == [1, 1]
        assert coordinator.runner_of("a") is loaded
        coordinator.stop()

    with Broker({"offsets.topic.num.partitions": "2"}) as broker, prepared(broker) as client:
        # "b" is in partition 0, which is loaded first, and "a" in the one behind it.
        assert [commit(client, 5, group) for group in ("a", "b")] == [0, 0]
        broker.call(scenario(broker.running))
    told = f"{OFFSETS}-0 cannot be loaded from offset {offset} on"
    failures = [entry for entry in caplog.records if told in entry.getMessage()]
    assert [entry.exc_info is not None for entry in failures] == [True]


def test_a_full_disk_refuses_commits_and_keeps_what_was_there() -> None:
    disk = SimulatedDisk()
    with Broker(ONE_SHARD, directory="/data", disk=disk) as broker, prepared(broker) as client:
        assert commit(client, 5) == 0
        disk.fail(f"*/{OFFSETS}-0/*.log", "write", errno.ENOSPC)
        assert commit(client, 6) == ErrorCode.NOT_COORDINATOR
        assert committed(client) == (ErrorCode.NOT_COORDINATOR, [])
    disk.heal()
    with Broker(ONE_SHARD, directory="/data", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        assert committed(client) == (0, [5])
        assert commit(client, 7) == 0
        assert committed(client) == (0, [7])


def test_a_coordinator_whose_topic_is_deleted_answers_those_who_wait_and_starts_anew() -> None:
    settings = {**ONE_SHARD, "group.initial.rebalance.delay.ms": "60000"}
    with Broker(settings) as broker, prepared(broker) as client, RawClient(broker.bootstrap_servers) as other:
        assert commit(client, 5) == 0
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joining = JoinGroupRequest(
            group_id="h", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols
        )
        other.send(joining, 3)
        wait_until(lambda: len(client.ask(DescribeGroupsRequest(groups=["h"]), 5).groups[0].members) == 1)
        client.ask(DeleteTopicsRequest(topic_names=[OFFSETS], timeout_ms=5000), 5)
        assert other.receive()[0].error_code == ErrorCode.NOT_COORDINATOR
        assert commit(client, 6) == ErrorCode.NOT_COORDINATOR
        assert client.ask(FindCoordinatorRequest(key="g"), 3).error_code == 0
        assert committed(client) == (0, [])
        assert commit(client, 7) == 0
        assert committed(client) == (0, [7])


def test_compaction_keeps_the_last_offset_of_each_group(tmp_path: Path) -> None:
    settings = {
        **ONE_SHARD,
        "offsets.topic.segment.bytes": "1048576",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with Broker(settings, directory=tmp_path) as broker:
        with prepared(broker) as client:
            note = "x" * 4000
            for offset in range(700):
                assert commit(client, offset, f"g{offset % 7}", note) == 0
            # Two segments of a megabyte are sealed; compaction leaves a record for each group of them.
            log = broker.running.replicas.find(OFFSETS, 0).log
            wait_until(lambda: log.size_bytes < 1_500_000)
            end = client.ask(list_offsets(OFFSETS, -1), 7).topics[0].partitions[0].offset
            assert end == 700
        broker.restart()
        with RawClient(broker.bootstrap_servers) as client:
            assert [committed(client, f"g{number}") for number in range(7)] == [
                (0, [693 + number]) for number in range(7)
            ]


def test_offsets_are_written_under_the_codec_that_is_asked_for_and_found_again(tmp_path: Path) -> None:
    settings = {**ONE_SHARD, "offsets.topic.compression.codec": str(int(Compression.ZSTD))}
    with Broker(settings, directory=tmp_path) as broker:
        with prepared(broker) as client:
            assert commit(client, 5, note="x" * 1000) == 0
            (answer,) = client.ask(fetch(OFFSETS), 11).responses
            assert read_header(answer.partitions[0].records).compression == Compression.ZSTD
        broker.restart()
        with RawClient(broker.bootstrap_servers) as client:
            assert committed(client) == (0, [5])


def test_the_offsets_topic_can_be_read_like_any_other() -> None:
    with Broker(ONE_SHARD) as broker, prepared(broker) as client:
        assert commit(client, 5) == 0
        (answer,) = client.ask(fetch(OFFSETS), 11).responses
        assert b"\x00\x01g\x00\x01t" in bytes(answer.partitions[0].records)
