"""Coordinators in trouble: damaged logs, full disks, a topic that is deleted under them, logs that are compacted."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
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
from ottla.testing.broker import Broker
from ottla.testing.disk import SimulatedDisk
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets
from ottla.testing.waiting import wait_until

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
        # «a» and «b» are neighbours in Java's eyes: one group for each partition.
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


def test_the_offsets_topic_can_be_read_like_any_other() -> None:
    with Broker(ONE_SHARD) as broker, prepared(broker) as client:
        assert commit(client, 5) == 0
        (answer,) = client.ask(fetch(OFFSETS), 11).responses
        assert b"\x00\x01g\x00\x01t" in bytes(answer.partitions[0].records)
