"""The metadata log of Apache Kafka, played back: changes, deletions, transactions, snapshots, damage."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.cli.takeover.metadata_log import FoundPartition, read_metadata_log
from ottla.errors import CorruptFileError
from ottla.protocol.codec import encode
from ottla.protocol.messages.metadata_log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.schema import message_schema_of
from ottla.protocol.wire import encode_uvarint
from ottla.records import batch

ID = UUID(int=7)
OTHER_ID = UUID(int=8)
TOPIC = 2


def framed(record: object, version: int = 0) -> bytes:
    number = message_schema_of(type(record)).record_type
    assert number is not None
    return b"".join(map(encode_uvarint, (1, number, version))) + encode(record, version)


def write_segment(directory: Path, name: str, base_offset: int, *values: bytes) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_bytes(bytes(batch.build(None, values, 1, base_offset=base_offset)))
    return path


def write_log(directory: Path, base_offset: int, *records: object) -> Path:
    return write_segment(directory, f"{base_offset:020}.log", base_offset, *map(framed, records))


def partition(index: int = 0, topic_id: UUID = ID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=3,
        partition_epoch=0,
        directories=[],
    )


def test_changes_are_applied_in_their_order(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        0,
        TopicRecord(name="t", topic_id=ID),
        partition(),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="a", value="1"),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="b", value="2"),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="a", value=None),
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1, isr=[]),
        PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=[1, 2]),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
    )
    log = read_metadata_log(tmp_path)
    assert log.names == {ID: "t"}
    assert log.partitions == {ID: {0: FoundPartition((1, 2), (), -1, 4)}}
    assert log.configs == {("topics", "t"): {"b": "2"}}
    assert log.next_producer_id == 2000


def test_a_topic_that_was_deleted_takes_its_settings_with_it(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        0,
        TopicRecord(name="t", topic_id=ID),
        partition(),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="a", value="1"),
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER_ID),
    )
    log = read_metadata_log(tmp_path)
    assert log.names == {OTHER_ID: "t"}
    assert log.configs == {}


def test_a_replica_that_left_in_order_has_everything(tmp_path: Path) -> None:
    change = PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1, isr=[], eligible_leader_replicas=[1])
    values = [framed(TopicRecord(name="t", topic_id=ID)), framed(partition()), framed(change, 2)]
    write_segment(tmp_path, f"{0:020}.log", 0, *values)
    assert read_metadata_log(tmp_path).partitions[ID][0].has_all_on(1)


@pytest.mark.parametrize(("end", "is_there"), [(EndTransactionRecord(), True), (AbortTransactionRecord(), False)])
def test_a_transaction_has_effect_when_it_ended_and_only_then(tmp_path: Path, end: object, is_there: bool) -> None:
    write_log(tmp_path, 0, BeginTransactionRecord(), TopicRecord(name="t", topic_id=ID), end)
    write_log(tmp_path, 3, BeginTransactionRecord(), TopicRecord(name="u", topic_id=OTHER_ID))
    assert read_metadata_log(tmp_path).names == ({ID: "t"} if is_there else {})


def test_the_log_goes_on_behind_the_newest_snapshot(tmp_path: Path) -> None:
    """What the snapshot covers may be in the log as well; a change of it must not be applied twice."""
    write_log(tmp_path, 0, TopicRecord(name="gone", topic_id=OTHER_ID), TopicRecord(name="t", topic_id=ID))
    write_log(
        tmp_path,
        2,
        partition(),
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1),
    )
    snapshot = [framed(TopicRecord(name="t", topic_id=ID)), framed(partition())]
    write_segment(tmp_path, f"{3:020}-0000000001.checkpoint", 0, *snapshot)
    write_segment(tmp_path, f"{1:020}-0000000001.checkpoint", 0, framed(TopicRecord(name="old", topic_id=OTHER_ID)))
    log = read_metadata_log(tmp_path)
    assert log.names == {ID: "t"}
    assert log.partitions[ID][0].leader_epoch == 5


def test_what_is_not_taken_over_is_counted(tmp_path: Path) -> None:
    acl = b"".join(map(encode_uvarint, (1, 18, 0))) + b"whatever"
    write_segment(tmp_path, f"{0:020}.log", 0, acl, acl, framed(TopicRecord(name="t", topic_id=ID)))
    log = read_metadata_log(tmp_path)
    assert log.left_out == {"ACLs": 2}
    assert log.names == {ID: "t"}


def test_the_tail_that_a_crash_left_is_ignored_and_damage_before_it_is_not(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, TopicRecord(name="t", topic_id=ID))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert read_metadata_log(tmp_path).names == {ID: "t"}
    path.write_bytes(whole + bytes(1000))  # space that Kafka has reserved
    assert read_metadata_log(tmp_path).names == {ID: "t"}
    second = bytes(batch.build(None, [framed(TopicRecord(name="u", topic_id=OTHER_ID))], 1, base_offset=1))
    path.write_bytes(b"x" * 30 + whole[30:] + second)
    with pytest.raises(CorruptFileError):
        read_metadata_log(tmp_path)
    path.write_bytes(bytes(batch.build(None, [b"\x07\x02\x00"], 1)))
    with pytest.raises(CorruptFileError, match="frame version 7"):
        read_metadata_log(tmp_path)
    path.write_bytes(bytes(batch.build(None, [b"\x01\x02\x00\x7f"], 1)))
    with pytest.raises(CorruptFileError, match="cannot be decoded"):
        read_metadata_log(tmp_path)
