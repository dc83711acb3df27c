"""What groups leave in `__consumer_offsets` is what Apache Kafka leaves there: its own decoder prints both alike."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import beat, first_beat
from ottla.testing.raw_requests import create_topic, list_offsets
from ottla.testing.waiting import WAIT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

GROUP = "stored"
RANDOM_PART = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIMES = re.compile(r'("(?:commitTimestamp|currentStateTimestamp|expireTimestamp|assignmentTimestamp)":)(\d+)')
# What a group knows of its topics in 64 bits; which bits is everybody's own affair.
HASHES = re.compile(r'("metadataHash":)(-?[1-9]\d*)')
TOPIC_IDS = re.compile(r'("topicId":)"([\w-]{22})"')
GIVING_UP = 1  # the state of a member that has yet to give up partitions
# One line of Kafka's dump tool: `... key: {...} payload: {...}`.
RECORD = re.compile(r"key: (\{.*?\}) payload: (.*)$")


def retry(client: RawClient, request: object, version: int, code_of: Any) -> Any:
    """Asks until the answer is no error: Kafka makes the topic behind the first question."""
    deadline = time.monotonic() + WAIT_S
    while code_of(answer := client.ask(request, version)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def commit(offsets: dict[int, int], note: str, **more: Any) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=note
        )
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)], **more
    )


def play(bootstrap_servers: str) -> None:
    with RawClient(bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        retry(client, list_offsets("t", -1, partition=1), 7, lambda answer: answer.topics[0].partitions[0].error_code)
        retry(client, FindCoordinatorRequest(key=GROUP), 3, lambda answer: answer.error_code)
        retry(client, commit({0: 5}, "first"), 8, lambda answer: answer.topics[0].partitions[0].error_code)
        client.ask(commit({0: 6, 1: 7}, ""), 8)
        client.ask(commit({1: 8}, "kept for a while", retention_time_ms=60_000), 4)
        joining = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id="",
            group_instance_id="static",
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),
                JoinGroupRequestProtocol(name="sticky", metadata=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"),
            ],
        )
        joined = client.ask(joining, 7)
        assigned = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\x00\x00" + bytes(8))]
        syncing = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="static",
            protocol_type="consumer",
            protocol_name="range",
            assignments=assigned,
        )
        assert not client.ask(syncing, 5).error_code
        of_member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        client.ask(commit({0: 9}, "", **of_member), 8)
        assert not client.ask(joining, 7).error_code  # the static member is back, under a new id
        leaving = MemberIdentity(member_id="", group_instance_id="static")
        client.ask(LeaveGroupRequest(group_id=GROUP, members=[leaving]), 4)
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        assert not client.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0).error_code


def play_consumers(bootstrap_servers: str) -> None:
    """A group of KIP-848: a static member and what becomes of it."""
    with RawClient(bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        retry(client, FindCoordinatorRequest(key=GROUP), 3, lambda answer: answer.error_code)
        static = {"instance_id": "static", "rack_id": "a rack"}

        def has_no_partitions(answer: Any) -> bool:
            """Kafka's coordinator hears of the topic a moment later."""
            return bool(answer.error_code or (answer.assignment is not None and not answer.assignment.topic_partitions))

        retry(client, first_beat("probe", "probe", "t"), 1, has_no_partitions)
        for request in (
            first_beat(GROUP, "idle"),
            beat(GROUP, "idle", -1),
            first_beat(GROUP, "one", "t", **static),
            beat(GROUP, "one", -2, instance_id="static"),
            first_beat(GROUP, "two", "t", **static),
            beat(GROUP, "two", 3, subscribed_topic_names=["t", "never"], server_assignor="range"),
            beat(GROUP, "two", 4, subscribed_topic_names=["never"]),
            beat(GROUP, "two", 4, topic_partitions=[]),
            beat(GROUP, "two", -1, instance_id="static"),
        ):
            answer = client.ask(request, 1)
            assert not answer.error_code, (request, answer)
        assert not client.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results[0].error_code


def stored(kafka: ApacheKafka, log_directory: Path) -> list[Any]:
    """The records of the group as Kafka's decoder prints them; ids and times by their order."""
    files = sorted(log_directory.glob("__consumer_offsets-*/*.log"))
    dump = kafka.dump_log([file for file in files if file.stat().st_size], print_data=True, extra=["--offsets-decoder"])
    assert dump.complaints == []
    names: dict[str, str] = {}
    records: list[Any] = []
    for line in dump.lines:
        found = RECORD.search(line)
        if found is None or f'"{GROUP}"' not in found[1]:
            continue
        texts = [
            TOPIC_IDS.sub(
                lambda part: f'{part[1]}"{names.setdefault(part[2], f"<{len(names)}>")}"',
                RANDOM_PART.sub(lambda part: names.setdefault(part[0], f"<{len(names)}>"), text),
            )
            for text in found.groups()
        ]
        texts = [HASHES.sub(r'\1"a hash"', TIMES.sub(r'\1"a time"', text)) for text in texts]
        key, value = (_parsed(text) for text in texts)
        if isinstance(value, dict) and value["data"].get("state") == GIVING_UP:
            # We keep the epoch that a member comes with whose replies were lost until it moves on, Kafka for one step.
            del value["data"]["previousMemberEpoch"]
        records.append([key, value])
    return records


def _parsed(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


@pytest.mark.parametrize("conversation", [play, play_consumers])
def test_kafkas_decoder_prints_our_records_as_it_prints_its_own(
    tmp_path: Path, conversation: Callable[[str], None]
) -> None:
    kafka = ApacheKafka.resolve(KAFKA_4)
    settings = {"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0"}
    with KafkaBroker(kafka, tmp_path / "kafka", settings) as theirs:
        conversation(theirs.bootstrap)
    with Broker(settings, directory=tmp_path / "ours") as ours:
        conversation(ours.bootstrap_servers)
    expected = stored(kafka, tmp_path / "kafka" / "data")
    assert len(expected) >= 9
    assert stored(kafka, tmp_path / "ours") == expected
