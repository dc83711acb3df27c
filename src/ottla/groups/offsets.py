"""Committed offsets of all groups of a shard, and those that wait for the end of a transaction.

An offset is kept as the bytes of its record's value: version 3, or version 1 if it has an expiry of its own (commits of
old clients). A million of them then cost a quarter of what objects would, the garbage collector has nothing to look
at, and loading the log is a matter of storing slices of it. Keys are shared between the groups of a shard.

State: the offsets, and the pending ones by producer id. Written only by `apply`, `replay` and `complete_transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from ottla.decisions import CoordinatorRecord
from ottla.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.coordinator_records import GROUP_RECORDS, decode_key, decode_value, encode_key
from ottla.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

# Record types of committed offsets: the oldest format, read only, and the one that is written.
OFFSET_RECORD_TYPES: Final = (0, 1)
_VERSION_WITH_EXPIRY: Final = 1
_VERSION: Final = 3

_V3_HEAD: Final = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_V1_HEAD: Final = Struct(">hqh")  # version, offset, length of the metadata
_V3_TAIL: Final = Struct(">q")  # commit timestamp
_V1_TAIL: Final = Struct(">qq")  # commit timestamp, expire timestamp
_V3_BARE: Final = Struct(">hqihq")  # version 3 with empty metadata, which is what nearly all are
_V3_PREFIX: Final = b"\x00\x03"
_V3_LENGTH: Final = _V3_BARE.size
_V3_METADATA_LENGTH_AT: Final = _V3_HEAD.size - 2

NO_EXPIRY: Final = -1
_KEY_HEADS_MAX: Final = 4096


class CommittedOffset(NamedTuple):
    """An offset that a group committed."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY


class _Pending(NamedTuple):
    """An offset of an open transaction; `value` is empty once a newer commit has made it pointless."""

    order: int
    value: bytes


def pack(committed: CommittedOffset) -> bytes:
    """The bytes of the value that Kafka writes for that offset."""
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
    if expire_timestamp_ms != NO_EXPIRY:
        text = metadata.encode()
        head = _V1_HEAD.pack(_VERSION_WITH_EXPIRY, offset, len(text))
        return head + text + _V1_TAIL.pack(commit_timestamp_ms, expire_timestamp_ms)
    if not metadata:
        return _V3_BARE.pack(_VERSION, offset, leader_epoch, 0, commit_timestamp_ms)
    text = metadata.encode()
    return _V3_HEAD.pack(_VERSION, offset, leader_epoch, len(text)) + text + _V3_TAIL.pack(commit_timestamp_ms)


def unpack(value: bytes) -> CommittedOffset:
    if len(value) == _V3_LENGTH and value.startswith(_V3_PREFIX):
        _, offset, leader_epoch, _, commit_timestamp_ms = _V3_BARE.unpack(value)
        return CommittedOffset(offset, leader_epoch, "", commit_timestamp_ms)
    if value.startswith(_V3_PREFIX):
        _, offset, leader_epoch, length = _V3_HEAD.unpack_from(value)
        (commit_timestamp_ms,) = _V3_TAIL.unpack_from(value, _V3_HEAD.size + length)
        metadata = value[_V3_HEAD.size : _V3_HEAD.size + length].decode()
        return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms)
    _, offset, length = _V1_HEAD.unpack_from(value)
    commit_timestamp_ms, expire_timestamp_ms = _V1_TAIL.unpack_from(value, _V1_HEAD.size + length)
    metadata = value[_V1_HEAD.size : _V1_HEAD.size + length].decode()
    return CommittedOffset(offset, -1, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _pack_record(value: OffsetCommitValue) -> bytes:
    if not value.metadata and value.expire_timestamp == NO_EXPIRY:
        return _V3_BARE.pack(_VERSION, value.offset, value.leader_epoch, 0, value.commit_timestamp)
    return pack(
        CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
        )
    )


def _stored_form(value: bytes) -> bytes:
    """The value of a record in the form in which it is kept, which is nearly always its own."""
    has_length = len(value) == _V3_LENGTH and value.startswith(_V3_PREFIX)
    if has_length and value[_V3_METADATA_LENGTH_AT : _V3_METADATA_LENGTH_AT + 2] == b"\0\0":
        return value
    return _pack_record(decode_value(GROUP_RECORDS[1], value))


def commit_record(group_id: str, key: TopicPartition, committed: CommittedOffset) -> CoordinatorRecord:
    """The record as the bytes that are written and kept: commits are the most frequent decision there is."""
    return CoordinatorRecord(_key_bytes(group_id, key), pack(committed))


def tombstone(group_id: str, key: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(_key_bytes(group_id, key), None)


def _key_bytes(group_id: str, key: TopicPartition) -> bytes:
    return _key_head(group_id, key.topic) + key.partition.to_bytes(4, "big", signed=True)


@lru_cache(maxsize=_KEY_HEADS_MAX)
def _key_head(group_id: str, topic: str) -> bytes:
    """What all keys of a group in a topic begin with."""
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=0))[:-4]


class OffsetStore:
    """The offsets of the groups of one shard."""

    __slots__ = (
        "_committed",
        "_keys",
        "_last_group",
        "_last_head",
        "_last_keys",
        "_last_offsets",
        "_last_topic",
        "_order",
        "_pending",
        "_producers",
    )

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, bytes]] = {}
        # The keys that all groups share, by topic and partition.
        self._keys: dict[str, dict[int, TopicPartition]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, _Pending]]] = {}
        # The producers with pending offsets, by group. Nearly always empty, and looked at before anything else.
        self._producers: dict[str, set[int]] = {}
        self._order = 0
        # A commit of many partitions is a run of keys that differ at the end. What the last one began with, and where
        # that leads, is looked up once for all of them. An empty head: look again.
        self._last_head = b""
        self._last_group = ""
        self._last_topic = ""
        self._last_keys: dict[int, TopicPartition] = {}
        self._last_offsets: dict[TopicPartition, bytes] = {}

    # --- what there is

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, key: TopicPartition) -> CommittedOffset | None:
        value = self._committed.get(group_id, {}).get(key)
        return None if value is None else unpack(value)

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for key, value in self._committed.get(group_id, {}).items():
            yield key, unpack(value)

    def count_of(self, group_id: str) -> int:
        return len(self._committed.get(group_id, ()))

    def has_pending(self, group_id: str, key: TopicPartition) -> bool:
        """Whether an open transaction has committed that partition."""
        producers = self._producers.get(group_id)
        return producers is not None and any(key in self._pending[producer][group_id] for producer in producers)

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._producers

    def keys_of(self, group_id: str) -> Iterable[TopicPartition]:
        """The partitions with an offset, committed or pending."""
        keys = dict.fromkeys(self._committed.get(group_id, ()))
        for producer in self._producers.get(group_id, ()):
            keys.update(dict.fromkeys(self._pending[producer][group_id]))
        return keys

    def of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Groups and their partitions of these topics, committed or pending."""
        keys = [key for topic in topics for key in self._keys.get(topic, {}).values()]
        if not keys:
            return
        for group_id, offsets in self._committed.items():
            for key in keys:
                if key in offsets:
                    yield group_id, key
        for groups in self._pending.values():
            for group_id, entries in groups.items():
                for key in keys:
                    if key in entries and key not in self._committed.get(group_id, ()):
                        yield group_id, key

    def snapshot(self) -> tuple[object, ...]:
        """All of it, to compare two stores by."""
        pending = {
            producer: {group: {key: entry.value for key, entry in keys.items()} for group, keys in groups.items()}
            for producer, groups in self._pending.items()
        }
        return ({group: dict(keys) for group, keys in self._committed.items() if keys}, pending)

    # --- the only writers

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER_ID) -> None:
        partition = self._shared_key(key.topic, key.partition)
        if value is None:
            self._remove(key.group, partition)
        else:
            self._put(key.group, partition, _pack_record(value), producer_id)

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> str:
        """Applies a record of the log as its bytes, and tells whose it is. This is how a million offsets are loaded."""
        if key[:-4] != self._last_head:
            self._turn_to(key)
        index = int.from_bytes(key[-4:], "big", signed=True)
        partition = self._last_keys.get(index)
        if partition is None:
            partition = self._shared_key(self._last_topic, index)
        if value is None:
            self._remove(self._last_group, partition)
        elif producer_id != NO_PRODUCER_ID or self._producers:
            self._put(self._last_group, partition, _stored_form(value), producer_id)
        else:
            self._last_offsets[partition] = _stored_form(value)
        return self._last_group

    def _turn_to(self, key: bytes) -> None:
        decoded = decode_key(GROUP_RECORDS, key)
        self._last_head = key[:-4]
        self._last_group = decoded.group
        self._last_topic = decoded.topic
        self._last_keys = self._keys.setdefault(decoded.topic, {})
        self._last_offsets = self._committed.setdefault(decoded.group, {})

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        """The marker of a transaction: its offsets count from here on, or never did."""
        for group_id, entries in self._pending.pop(producer_id, {}).items():
            producers = self._producers[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._producers[group_id]
            if not committed:
                continue
            for key, entry in entries.items():
                if entry.value:
                    self._supersede(group_id, key, entry.order)
                    self._committed.setdefault(group_id, {})[key] = entry.value

    def forget_unused_keys(self) -> None:
        """Lets go of the shared keys of partitions in which no group has an offset any more."""
        self._last_head = b""
        self._committed = {group_id: offsets for group_id, offsets in self._committed.items() if offsets}
        self._keys = {}
        pending = (entries for groups in self._pending.values() for entries in groups.values())
        used: Iterator[Iterable[TopicPartition]] = chain(self._committed.values(), pending)
        for key in chain.from_iterable(used):
            self._keys.setdefault(key.topic, {})[key.partition] = key

    def _shared_key(self, topic: str, partition: int) -> TopicPartition:
        keys = self._keys.get(topic)
        if keys is None:
            keys = self._keys[topic] = {}
        key = keys.get(partition)
        if key is None:
            key = keys[partition] = TopicPartition(topic, partition)
        return key

    def _put(self, group_id: str, key: TopicPartition, value: bytes, producer_id: int) -> None:
        if producer_id != NO_PRODUCER_ID:
            self._order += 1
            groups = self._pending.setdefault(producer_id, {})
            groups.setdefault(group_id, {})[key] = _Pending(self._order, value)
            self._producers.setdefault(group_id, set()).add(producer_id)
            return
        if group_id in self._producers:
            self._order += 1
            self._supersede(group_id, key, self._order)
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = {}
        offsets[key] = value

    def _supersede(self, group_id: str, key: TopicPartition, order: int) -> None:
        """A commit took effect: what older commits of open transactions say is not to replace it later."""
        for producer in self._producers.get(group_id, ()):
            entries = self._pending[producer][group_id]
            entry = entries.get(key)
            if entry is not None and entry.order < order:
                entries[key] = _Pending(entry.order, b"")

    def _remove(self, group_id: str, key: TopicPartition) -> None:
        offsets = self._committed.get(group_id)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self._committed[group_id]
            self._last_head = b""
        for producer in self._producers.get(group_id, ()):
            self._pending[producer][group_id].pop(key, None)
