"""Where a partition begins and ends: offsets by time and by epoch, and records that are deleted."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.layout import Compression
from ottla.testing.raw_requests import fetch, list_offsets, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


@conversations.add
def offsets_by_time_in_every_version(side: Side) -> None:
    topic, _ = side.new_topic("times")
    side.ask(list_offsets(topic, -1), 7)
    side.ask(list_offsets(topic, -2), 7)
    side.ask(list_offsets(topic, -3), 7)
    side.ask(list_offsets(topic, 0), 7)
    start = 1_700_000_000_000
    side.ask(produce(topic, one_batch(b"a", b"b", timestamps=[start, start + 10])), 9)
    mixed = one_batch(b"c", b"d", timestamps=[start + 50, start + 20], compression=Compression.GZIP)
    side.ask(produce(topic, mixed), 9)
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, start, start + 5, start + 10, start + 20, start + 51):
            side.ask(list_offsets(topic, timestamp), version)
        side.ask(list_offsets(topic, -1, partition=4), version)
        side.ask(list_offsets(side.name("never"), -1), version)
        if version >= 2:
            side.ask(list_offsets(topic, -1, isolation_level=1), version)
        if version >= 4:
            for epoch in (0, 3):
                side.ask(list_offsets(topic, -1, current_leader_epoch=epoch), version)


@conversations.add
def epochs_and_their_ends(side: Side) -> None:
    topic, _ = side.new_topic("epochs")
    for round_ in range(2):
        for version in (2, 3, 4):
            for current, wanted in ((-1, 0), (0, 0), (-1, 1), (3, 0), (-1, -1)):
                entry = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=wanted)
                side.ask(
                    OffsetForLeaderEpochRequest(
                        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[entry])]
                    ),
                    version,
                )
            entry = OffsetForLeaderPartition(partition=3, leader_epoch=0)
            side.ask(
                OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[entry])]), version
            )
        if not round_:
            side.ask(produce(topic, one_batch(b"a", b"b")), 9)


@conversations.add
def records_are_deleted_up_to_an_offset(side: Side) -> None:
    topic, _ = side.new_topic("trimmed")
    for _ in range(3):
        side.ask(produce(topic, one_batch(b"a", b"b")), 9)
    for version in range(3):
        for offset in (7, -2, version, version):
            side.ask(_trim(topic, offset), version)
        side.ask(_trim(topic, 0, partition=8), version)
        side.ask(_trim(side.name("never"), 0), version)
    side.ask(fetch(topic, 0), 12)
    side.ask(fetch(topic, 2), 12)
    side.ask(list_offsets(topic, -2), 7)
    side.ask(_trim(topic, -1), 2)
    side.ask(fetch(topic, 6), 12)
    side.ask(list_offsets(topic, -2), 7)


def _trim(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ],
        timeout_ms=5000,
    )


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
