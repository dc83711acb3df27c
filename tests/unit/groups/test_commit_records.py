"""The records of a commit: made together they are those made one by one, and so is their effect."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.decisions import CoordinatorRecord
from ottla.groups.offsets import CommittedOffset, OffsetStore, commit_record, commit_records, tombstone
from ottla.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.coordinator_records import encode_key, encode_value
from ottla.protocol.messages.group_offsets import OffsetCommitRequestPartition
from ottla.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from(["a", "b", "né"])
PARTITIONS = st.lists(
    st.builds(
        OffsetCommitRequestPartition,
        partition_index=INT32,
        committed_offset=INT64,
        committed_leader_epoch=INT32,
        committed_metadata=st.none() | st.text(max_size=200),
    ),
    max_size=5,
)
TOPIC_IDS = st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)])
COMMITS = st.builds(commit_records, NAMES, NAMES, PARTITIONS, INT64, TOPIC_IDS)
TOMBSTONES = st.builds(
    lambda group, topic, index: [tombstone(group, TopicPartition(topic, index))], NAMES, NAMES, INT32
)


@given(group=st.text(max_size=9), topic=st.text(max_size=9), partitions=PARTITIONS, time_ms=INT64, topic_id=TOPIC_IDS)
def test_made_together_they_are_those_of_the_codec(
    group: str, topic: str, partitions: list[OffsetCommitRequestPartition], time_ms: int, topic_id: UUID
) -> None:
    records = commit_records(group, topic, partitions, time_ms, topic_id)
    one_by_one, by_codec = [], []
    for each in partitions:
        metadata = each.committed_metadata or ""
        committed = CommittedOffset(
            each.committed_offset, each.committed_leader_epoch, metadata, time_ms, topic_id=topic_id
        )
        one_by_one.append(commit_record(group, topic, each.partition_index, committed))
        key = OffsetCommitKey(group=group, topic=topic, partition=each.partition_index)
        value = OffsetCommitValue(
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=time_ms,
            topic_id=topic_id,
        )
        by_codec.append(CoordinatorRecord(encode_key(key), encode_value(value, 4)))
    assert records == one_by_one == by_codec
    assert all(type(record) is CoordinatorRecord for record in records)


@given(decisions=st.lists(COMMITS | TOMBSTONES, max_size=8))
def test_applied_together_they_leave_what_they_leave_one_by_one(decisions: list[list[CoordinatorRecord]]) -> None:
    together, one_by_one = OffsetStore(), OffsetStore()
    for records in decisions:
        count = 0
        if records:
            group_id, count = together.apply_commit(records)
            assert not count or group_id in together.group_ids()
        for number, (key, value, _) in enumerate(records):
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            if number >= count:
                together.replay(key, value, NO_PRODUCER_ID)
            one_by_one.replay(key, value, NO_PRODUCER_ID)
    assert together.snapshot() == one_by_one.snapshot()


def test_the_offsets_of_an_open_transaction_are_superseded_one_by_one() -> None:
    store = OffsetStore()
    (pending,) = commit_records("g", "t", [_partition(0)], 1)
    assert isinstance(pending.key, bytes)
    assert isinstance(pending.value, bytes)
    store.replay(pending.key, pending.value, producer_id=7)
    assert store.apply_commit(commit_records("g", "t", [_partition(0)], 2)) == ("", 0)


def _partition(index: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
