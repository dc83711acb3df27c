"""Offsets of groups that nobody joined: commit, fetch, delete, expiry, transactions, and the bytes in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, ProtocolError
from ottla.groups.machine import OFFSETS_LOOKED_AT_MAX, GroupMachine
from ottla.groups.offsets import CommittedOffset, OffsetStore, pack, unpack
from ottla.groups.shard import TopicInfo, TopicsView
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import (
    GROUP_RECORDS,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from ottla.protocol.messages.group_records import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

OK = ErrorCode.NONE
DAY_MS = 24 * 60 * 60_000
A0 = ("a", 0)
A1 = ("a", 1)
B0 = ("b", 0)


# --- commit and fetch


def test_what_was_committed_is_fetched_by_partition_and_all_together(driver: Any) -> None:
    assert driver.commit({A0: 5, A1: 6, B0: 7}) == [OK, OK, OK]
    assert driver.fetch({"a": [1, 0]}) == {A1: 6, A0: 5}
    assert driver.fetch() == {A0: 5, A1: 6, B0: 7}


def test_a_partition_without_an_offset_is_minus_one_and_no_error(driver: Any) -> None:
    driver.commit({A0: 5})
    assert driver.fetch({"a": [9], "x": [0]}) == {("a", 9): -1, ("x", 0): -1}


def test_an_unknown_group_has_no_offsets_and_that_is_no_error(driver: Any) -> None:
    assert driver.fetch({"a": [0]}, group="nobody") == {A0: -1}
    assert driver.fetch(group="nobody") == {}


def test_leader_epoch_and_metadata_come_back(driver: Any) -> None:
    driver.commit({A0: 5}, metadata="née", leader_epoch=3)
    driver.fetch({"a": [0]})
    (found,) = driver.replies[driver.ticket].topics[0].partitions
    assert (found.committed_leader_epoch, found.metadata) == (3, "née")


def test_null_metadata_is_stored_as_empty(driver: Any) -> None:
    driver.commit({A0: 5}, metadata=None)
    driver.fetch({"a": [0]})
    assert driver.replies[driver.ticket].topics[0].partitions[0].metadata == ""


def test_a_generation_without_a_group_is_refused_in_the_words_of_the_version(driver: Any) -> None:
    assert driver.commit({A0: 5}, generation=1, member="m", version=8) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.commit({A0: 5}, generation=1, member="m", version=9) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert driver.commit_in_transaction({A0: 5}, generation=1, member="m") == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.log == []


def test_metadata_that_is_too_long_is_refused_for_its_partition_only(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(offset_metadata_max_bytes=3)
    assert driver.commit({A0: 1}, metadata="1234") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert driver.commit({A0: 1}, metadata="123") == [OK]
    assert driver.commit_in_transaction({A0: 1}, metadata="1234") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


# --- the log


def test_records_are_written_in_version_4_and_with_an_expiry_in_version_1(driver: Any) -> None:
    driver.create_topics(a=2)
    driver.commit({A0: 5}, leader_epoch=2, metadata="m")
    driver.commit({A1: 6}, retention_ms=1000, version=3)
    (key, value, _), (_, with_expiry, _) = driver.log
    assert decode_key(GROUP_RECORDS, key) == OffsetCommitKey(group="g", topic="a", partition=0)
    assert (value[:2], with_expiry[:2]) == (b"\0\4", b"\0\1")
    assert decode_value(GROUP_RECORDS[1], value) == OffsetCommitValue(
        offset=5,
        leader_epoch=2,
        metadata="m",
        commit_timestamp=driver.now_ms,
        topic_id=driver.id_of("a"),
    )
    assert decode_value(GROUP_RECORDS[1], with_expiry).expire_timestamp == driver.now_ms + 1000


@pytest.mark.parametrize(
    "committed",
    [
        CommittedOffset(5, 2, "", 77),
        CommittedOffset(5, 2, "é" * 100, 77),
        CommittedOffset(5, 2, "", 77, topic_id=UUID(int=1 << 100)),
        CommittedOffset(5, 2, "é" * 100, 77, topic_id=UUID(int=7)),
        CommittedOffset(5, 2, "x" * 9, 77),  # as long as the one with an id and without metadata
        CommittedOffset(1 << 60, -1, "", 77, 1000),
        CommittedOffset(0, -1, "note", 77, 1000),
    ],
)
def test_a_stored_offset_is_the_bytes_of_its_record(committed: CommittedOffset) -> None:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = 4 if committed.expire_timestamp_ms == -1 else 1
    assert pack(committed) == encode_value(value, version)
    assert unpack(pack(committed)) == committed


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("metadata", ["", "x"])
@pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=7)])
@pytest.mark.parametrize("key", [OffsetCommitKey, LegacyOffsetCommitKey])
def test_offsets_of_every_format_are_loaded(
    driver: Any, version: int, metadata: str, topic_id: UUID, key: type
) -> None:
    value = OffsetCommitValue(offset=9, leader_epoch=4, metadata=metadata, commit_timestamp=1 << 40, topic_id=topic_id)
    driver.log.append((encode_key(key(group="g", topic="a", partition=300)), encode_value(value, version), -1))
    driver.restart()
    found = driver.machine._shard.offsets.get("g", TopicPartition("a", 300))
    expected = CommittedOffset(9, 4 if version >= 3 else -1, metadata, 1 << 40)
    assert found == (expected._replace(topic_id=topic_id) if version >= 4 else expected)


def test_a_value_that_ends_early_is_not_loaded(driver: Any) -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="a", partition=0))
    for topic_id in (UUID(int=0), UUID(int=7)):
        value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=1, topic_id=topic_id)
        for version in range(5):
            whole = encode_value(value, version)
            for end in range(len(whole)):
                with pytest.raises(ProtocolError):
                    driver.machine.replay(key, whole[:end])


def test_tagged_fields_of_newer_brokers_do_not_stand_in_the_way(driver: Any) -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="a", partition=0))
    value = encode_value(OffsetCommitValue(offset=1, metadata="", commit_timestamp=1, topic_id=UUID(int=7)), 4)
    # A tag that nobody knows yet, of a length that makes the whole as long as a value with a topic id.
    without_tags = value[: -len(b"\1\0\x10") - 16]
    for tags in (b"\1\x05\x10" + bytes(16), b"\2\0\x10" + UUID(int=7).bytes + b"\x05\1x"):
        driver.machine.replay(key, without_tags + tags)
        expected = CommittedOffset(1, -1, "", 1, topic_id=UUID(int=7 if tags[0] == 2 else 0))
        assert driver.machine._shard.offsets.get("g", TopicPartition("a", 0)) == expected


def test_loading_the_log_gives_the_same_offsets(driver: Any) -> None:
    driver.commit({A0: 5, A1: 6, B0: 7})
    driver.commit({A0: 8}, group="h")
    driver.delete_offsets({"a": [1]})
    driver.restart()
    assert driver.fetch() == {A0: 5, B0: 7}
    assert driver.fetch(group="h") == {A0: 8}


def test_records_of_kinds_that_are_not_ours_are_left_alone(driver: Any) -> None:
    unknown = (99).to_bytes(2, "big") + b"whatever"
    driver.machine.replay(unknown, b"\0\0")
    share_group = next(kind for kind in GROUP_RECORDS.values() if kind.key.__name__ == "ShareGroupMetadataKey")
    driver.machine.replay(encode_key(share_group.key(group_id="s")), None)
    assert driver.machine.group("s") is None


# --- delete


def test_offsets_are_deleted_by_tombstones(driver: Any) -> None:
    driver.commit({A0: 5, B0: 7})
    assert driver.delete_offsets({"a": [0, 1]}) == [OK, OK]
    assert [value for _, value, _ in driver.log[2:]] == [None]
    assert driver.fetch() == {B0: 7}


def test_offsets_of_an_unknown_group_cannot_be_deleted(driver: Any) -> None:
    assert driver.delete_offsets({"a": [0]}) == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_offsets_of_a_deleted_topic_go(driver: Any) -> None:
    driver.create_topics(a=2, b=1)
    driver.commit({A0: 5, B0: 7})
    driver.commit({A1: 5}, group="h")
    driver.create_topics(a=0)
    assert driver.fetch() == {B0: 7}
    assert driver.fetch(group="h") == {}


def test_offsets_of_a_topic_do_not_go_with_the_one_that_had_its_name(driver: Any) -> None:
    driver.create_topics(a=2)
    old_id = driver.id_of("a")
    driver.commit({A0: 5, A1: 6})
    # Only now does the coordinator hear that the topic was made anew; an offset of the new one is there already.
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.recreate_topic("a", UUID(int=99))
    driver.refuse = None
    driver.commit({A0: 1})
    driver.pass_time(2000)
    assert driver.fetch() == {A0: 1}
    assert old_id != driver.id_of("a")


def test_offsets_without_a_topic_id_go_with_the_topic_of_their_name(driver: Any) -> None:
    driver.commit({A0: 5})
    driver.create_topics(a=2)
    driver.commit_in_transaction({A1: 6})
    driver.create_topics(a=0)
    driver.end_transaction(7, True)
    assert driver.fetch() == {}


def test_who_asks_by_id_does_not_get_the_offsets_of_another_topic_of_the_same_name(driver: Any) -> None:
    driver.create_topics(a=2)
    driver.commit({A0: 5})
    driver.commit_in_transaction({A1: 6})
    driver.end_transaction(7, True)
    assert driver.fetch({"a": [0, 1]}, by_id=True) == {A0: 5, A1: 6}
    # The shard was not loaded when the topic was deleted and made anew: nobody took the offsets away.
    driver.topics = TopicsView.of({"a": TopicInfo(UUID(int=99), 2)})
    driver.restart()
    assert driver.fetch({"a": [0, 1]}) == {A0: 5, A1: 6}
    assert driver.fetch() == {A0: 5, A1: 6}
    # One of a transaction does not say of which topic it is.
    assert driver.fetch({"a": [0, 1]}, by_id=True) == {A0: -1, A1: 6}


def test_the_offsets_of_a_deleted_topic_that_many_groups_read_go_a_part_at_a_time(driver: Any) -> None:
    driver.create_topics(a=10, b=1)
    group_count = OFFSETS_LOOKED_AT_MAX // 4
    for group in range(group_count):
        driver.commit({("a", partition): 1 for partition in range(10)} | {B0: 1}, group=f"g{group}")
    driver.commit_in_transaction({A0: 5}, group="g")
    written = len(driver.log)
    driver.create_topics(a=0)
    assert 0 < len(driver.log) - written <= OFFSETS_LOOKED_AT_MAX
    turns = 0
    while driver.machine.next_deadline_ms <= driver.now_ms:
        before = len(driver.log)
        driver.carry_out(driver.machine.expire(driver.now_ms))
        assert len(driver.log) - before <= OFFSETS_LOOKED_AT_MAX
        turns += 1
    assert turns >= 2
    assert len(driver.log) == written + 10 * group_count + 1
    driver.end_transaction(7, True)
    assert driver.fetch() == {}
    assert driver.fetch(group="g7") == {B0: 1}


def test_offsets_of_a_deleted_topic_that_could_not_be_taken_away_go_later(driver: Any) -> None:
    driver.create_topics(a=1)
    driver.commit({A0: 5})
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.create_topics(a=0)
    driver.pass_time(1500)
    assert driver.fetch() == {A0: 5}
    driver.refuse = None
    driver.pass_time(1000)
    assert driver.fetch() == {}


# --- expiry


def test_a_group_that_only_stores_offsets_loses_them_a_week_after_their_commit(driver: Any) -> None:
    driver.commit({A0: 5})
    driver.pass_time(4 * DAY_MS)
    driver.commit({B0: 7})
    driver.pass_time(3 * DAY_MS + 600_000)
    assert driver.fetch() == {B0: 7}
    driver.pass_time(4 * DAY_MS)
    assert driver.fetch() == {}
    assert driver.machine.group("g") is None
    assert driver.replayed().group("g") is None


def test_a_retention_that_the_client_asked_for_is_kept(driver: Any) -> None:
    driver.commit({A0: 5}, retention_ms=30 * 60_000, version=4)
    driver.commit({B0: 6}, retention_ms=30 * DAY_MS, version=4)
    driver.pass_time(41 * 60_000)
    assert driver.fetch() == {B0: 6}
    driver.pass_time(20 * DAY_MS)
    assert driver.fetch() == {B0: 6}


def test_a_commit_timestamp_of_version_1_counts(driver: Any) -> None:
    driver.commit({A0: 5}, timestamp_ms=driver.now_ms - 8 * DAY_MS, version=1)
    driver.pass_time(600_000)
    assert driver.fetch() == {}


def test_many_old_offsets_go_a_part_at_a_time(driver: Any) -> None:
    driver.commit({("a", partition): 1 for partition in range(2 * OFFSETS_LOOKED_AT_MAX + 10)})
    driver.now_ms += 8 * DAY_MS
    parts = []
    while driver.machine.next_deadline_ms <= driver.now_ms:
        decision = driver.machine.expire(driver.now_ms)
        parts.append(len(decision.records))
        driver.carry_out(decision)
    assert parts == [OFFSETS_LOOKED_AT_MAX, OFFSETS_LOOKED_AT_MAX, 11]
    assert driver.machine.group("g") is None


def test_a_look_that_finds_nothing_old_gives_others_their_turn_as_well(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `expire` is one turn of the runner: a look without tombstones must not go on to the end in it."""
    looked_at: list[TopicPartition] = []
    get = OffsetStore.get

    def noted(store: OffsetStore, group_id: str, key: TopicPartition) -> Any:
        looked_at.append(key)
        return get(store, group_id, key)

    driver.commit({("a", partition): 1 for partition in range(3 * OFFSETS_LOOKED_AT_MAX)})
    driver.now_ms = driver.machine.next_deadline_ms
    monkeypatch.setattr(OffsetStore, "get", noted)
    turns = 0
    while driver.machine.next_deadline_ms <= driver.now_ms:
        assert not driver.machine.expire(driver.now_ms).records
        assert len(looked_at) <= OFFSETS_LOOKED_AT_MAX
        looked_at.clear()
        turns += 1
    assert turns >= 3


def test_an_offset_that_is_committed_while_old_ones_are_looked_for_keeps_its_group(driver: Any) -> None:
    driver.commit({("a", partition): 1 for partition in range(OFFSETS_LOOKED_AT_MAX + 10)})
    driver.now_ms += 8 * DAY_MS
    driver.carry_out(driver.machine.expire(driver.now_ms))
    driver.commit({A0: 7})
    driver.pass_time(0)
    assert driver.fetch() == {A0: 7}
    assert driver.machine.group("g") is not None


# --- transactions


def test_offsets_of_a_transaction_count_from_its_marker_on(driver: Any) -> None:
    driver.commit({A0: 1})
    assert driver.commit_in_transaction({A0: 5, A1: 6}) == [OK, OK]
    assert driver.fetch() == {A0: 1}
    driver.end_transaction(7, True)
    assert driver.fetch() == {A0: 5, A1: 6}
    assert [producer_id for _, _, producer_id in driver.log] == [-1, 7, 7]


def test_offsets_of_an_aborted_transaction_never_were(driver: Any) -> None:
    driver.commit({A0: 1})
    driver.commit_in_transaction({A0: 5, A1: 6})
    driver.end_transaction(7, False)
    assert driver.fetch(stable=True) == {A0: 1}


def test_a_reader_that_wants_stable_offsets_waits_for_the_transaction(driver: Any) -> None:
    driver.commit({A0: 1, B0: 2})
    driver.commit_in_transaction({A0: 5, A1: 6})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert driver.fetch({"a": [0, 1], "b": [0]}, stable=True) == {A0: unstable, A1: unstable, B0: 2}
    assert driver.fetch(stable=True) == {A0: unstable, B0: 2}
    driver.end_transaction(7, True)
    assert driver.fetch(stable=True) == {A0: 5, A1: 6, B0: 2}


def test_the_last_commit_wins_whichever_transaction_ends_last(driver: Any) -> None:
    driver.commit_in_transaction({A0: 1}, producer_id=1)
    driver.commit_in_transaction({A0: 2}, producer_id=2)
    driver.commit_in_transaction({A1: 1}, producer_id=1)
    driver.commit({A1: 9})
    driver.end_transaction(2, True)
    assert driver.fetch(stable=True) == {A0: ErrorCode.UNSTABLE_OFFSET_COMMIT, A1: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    driver.end_transaction(1, True)
    assert driver.fetch(stable=True) == {A0: 2, A1: 9}


def test_a_commit_after_a_tombstone_counts(driver: Any) -> None:
    driver.commit_in_transaction({A0: 1}, producer_id=1)
    driver.delete_offsets({"a": [0]})
    driver.commit_in_transaction({A0: 2}, producer_id=2)
    driver.end_transaction(1, True)
    driver.end_transaction(2, True)
    assert driver.fetch() == {A0: 2}


def test_offsets_of_an_open_transaction_do_not_expire(driver: Any) -> None:
    driver.commit({A0: 1})
    driver.commit_in_transaction({A0: 5})
    driver.pass_time(8 * DAY_MS)
    assert driver.fetch() == {A0: 1}
    driver.end_transaction(7, False)
    driver.pass_time(DAY_MS)
    assert driver.machine.group("g") is None


def test_open_and_ended_transactions_are_loaded(driver: Any) -> None:
    driver.commit({A0: 1})
    driver.commit_in_transaction({A0: 5}, producer_id=1)
    driver.end_transaction(1, True)
    driver.commit_in_transaction({A1: 6}, producer_id=2)
    driver.end_transaction(2, False)
    driver.commit_in_transaction({B0: 7}, producer_id=3)
    driver.restart()
    assert driver.fetch({"a": [0, 1], "b": [0]}, stable=True) == {A0: 5, A1: -1, B0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    driver.end_transaction(3, True)
    assert driver.fetch() == {A0: 5, B0: 7}


def test_a_marker_without_offsets_changes_nothing(driver: Any) -> None:
    driver.commit({A0: 1})
    driver.end_transaction(99, True)
    assert driver.fetch(stable=True) == {A0: 1}


# --- refusals and size


def test_a_refused_append_leaves_no_trace(driver: Any) -> None:
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.commit({A0: 1}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    driver.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert driver.commit({A0: 1}) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert driver.fetch() == {}
    assert driver.machine.group("g") is None


def test_the_groups_of_a_shard_share_their_keys() -> None:
    store = OffsetStore()
    for group in ("g", "h"):
        key = OffsetCommitKey(group=group, topic="".join(["t", "opic"]), partition=300)
        store.apply(key, OffsetCommitValue(offset=1, metadata="", commit_timestamp=1))
    first, second = (next(iter(store.keys_of(group))) for group in ("g", "h"))
    assert first is second
    store.apply(OffsetCommitKey(group="g", topic="topic", partition=300), None)
    store.apply(OffsetCommitKey(group="h", topic="topic", partition=300), None)
    store.forget_shared_keys()
    assert store._keys == {}
    assert list(store.keys_of("g")) == []
    assert store.get("g", TopicPartition("topic", 300)) is None


def test_a_record_applied_and_its_bytes_replayed_are_the_same(driver: Any) -> None:
    driver.commit({A0: 5, A1: 6, B0: 7}, metadata="m")
    driver.commit_in_transaction({A0: 9})
    replayed: GroupMachine = driver.replayed()
    assert replayed._shard.offsets.snapshot() == driver.machine._shard.offsets.snapshot()
