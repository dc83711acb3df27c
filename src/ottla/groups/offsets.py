"""Committed offsets of all groups of a shard, and those that wait for the end of a transaction.

An offset is kept as the bytes of its record's value: version 4, with the topic's id where it is known, or version 1 if
it has an expiry of its own (commits of old clients). A million of them then cost a quarter of what objects would, the
garbage collector has nothing to look at, and loading the log is a matter of storing slices of it. Keys are shared
between the groups of a shard.

State: the offsets, and the pending ones by producer id. Written only by `apply`, `replay` and `complete_transaction`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.decisions import CoordinatorRecord
from ottla.ids import NO_PRODUCER_ID, ZERO_TOPIC_ID, TopicPartition
from ottla.protocol.coordinator_records import GROUP_RECORDS, decode_key, decode_value, encode_key, encode_value
from ottla.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.wire import encode_uvarint, read_uvarint, uuid_of

# What the keys of committed offsets begin with: the oldest format, read only, and the one that is written.
OFFSET_KEY_PREFIXES: Final = frozenset((b"\x00\x00", b"\x00\x01"))
_VERSION_WITH_EXPIRY: Final = 1
_VERSION: Final = 4
_PREFIX: Final = b"\x00\x04"
_PREFIX_V3: Final = b"\x00\x03"

# Version 4: a head, the metadata as a compact string, and a tail. A topic id is a tagged field; zero is left out.
_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_TAIL: Final = Struct(">qB")  # commit timestamp, number of tagged fields
_TAIL_WITH_ID: Final = Struct(">q3s16s")  # commit timestamp, _TAG, topic id
_TAG: Final = b"\x01\x00\x10"  # one tagged field: number 0, 16 bytes long
# The same with empty metadata, which is what nearly all have.
_BARE: Final = Struct(">hqiBqB")
_BARE_WITH_ID: Final = Struct(">hqiBq3s16s")
_NO_METADATA: Final = 1  # the length of an empty compact string
_EMPTY_METADATA: Final = bytes([_NO_METADATA])
_PARTITION: Final = Struct(">i")  # the end of a key
_METADATA_AT: Final = _HEAD.size
_TAGS_IN_TAIL: Final = _TAIL.size - 1
_BARE_TAG: Final = slice(_BARE.size - 1, _BARE.size - 1 + len(_TAG))
_BARE_V3_SIZE: Final = 24

_pack_head: Final = _HEAD.pack
_pack_partition: Final = _PARTITION.pack
_unpack_partition: Final = _PARTITION.unpack_from
_new_tuple: Final = tuple.__new__

NO_EXPIRY: Final = -1
_KEY_HEADS_MAX: Final = 4096


class CommittedOffset(NamedTuple):
    """An offset that a group committed."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    # Zero where it is not known: older brokers did not write it, and transactions do not.
    topic_id: UUID = ZERO_TOPIC_ID


class CommittedPartition(Protocol):
    """A partition in a request that commits offsets."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class _Pending(NamedTuple):
    """An offset of an open transaction; `value` is empty once a newer commit has made it pointless."""

    order: int
    value: bytes


def pack(committed: CommittedOffset) -> bytes:
    """The bytes of the value that Kafka writes for that offset."""
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = committed
    if expire_timestamp_ms != NO_EXPIRY:
        with_expiry = OffsetCommitValue(
            offset=offset,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            expire_timestamp=expire_timestamp_ms,
        )
        return encode_value(with_expiry, _VERSION_WITH_EXPIRY)
    return _HEAD.pack(_VERSION, offset, leader_epoch) + _metadata_bytes(metadata) + _tail(commit_timestamp_ms, topic_id)


def _metadata_bytes(metadata: str) -> bytes:
    text = metadata.encode()
    return encode_uvarint(len(text) + 1) + text


def _tail(commit_timestamp_ms: int, topic_id: UUID) -> bytes:
    if topic_id.int:
        return _TAIL_WITH_ID.pack(commit_timestamp_ms, _TAG, topic_id.bytes)
    return _TAIL.pack(commit_timestamp_ms, 0)


def unpack(value: bytes) -> CommittedOffset:
    """The offset in a value in its stored form."""
    if not value.startswith(_PREFIX):
        return _of_record(decode_value(GROUP_RECORDS[1], value))
    metadata, topic_id = "", ZERO_TOPIC_ID
    if value[_METADATA_AT] == _NO_METADATA:
        if len(value) == _BARE_WITH_ID.size:
            _, offset, leader_epoch, _, commit_timestamp_ms, _, raw_id = _BARE_WITH_ID.unpack(value)
            topic_id = uuid_of(raw_id)
        else:
            _, offset, leader_epoch, _, commit_timestamp_ms, _ = _BARE.unpack(value)
    else:
        _, offset, leader_epoch = _HEAD.unpack_from(value)
        length, start = read_uvarint(value, _METADATA_AT)
        end = start + length - 1
        metadata = value[start:end].decode()
        if len(value) == end + _TAIL_WITH_ID.size:
            commit_timestamp_ms, _, raw_id = _TAIL_WITH_ID.unpack_from(value, end)
            topic_id = uuid_of(raw_id)
        else:
            commit_timestamp_ms, _ = _TAIL.unpack_from(value, end)
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, NO_EXPIRY, topic_id)


def _is_of_topic(value: bytes, topic_ids: Collection[UUID]) -> bool:
    """Whether a stored value is of a topic with one of these ids, where it has one."""
    topic_id = unpack(value).topic_id
    return topic_id == ZERO_TOPIC_ID or topic_id in topic_ids


def _of_record(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _stored_form(value: bytes) -> bytes:
    """The value of a record in the form in which it is kept, which is nearly always its own."""
    if len(value) == _BARE_WITH_ID.size and value[_METADATA_AT] == _NO_METADATA:
        # What nearly all are is told apart without a call.
        if value.startswith(_PREFIX) and value[_BARE_TAG] == _TAG:
            return value
    elif _is_usual(value) or _is_usual_v3(value):
        return value
    return pack(_of_record(decode_value(GROUP_RECORDS[1], value)))


def _is_usual(value: bytes) -> bool:
    """Whether it is whole and of version 4: short metadata in plain letters, no tagged field but the topic id."""
    if not value.startswith(_PREFIX) or len(value) < _BARE.size:
        return False
    length = value[_METADATA_AT]  # one that does not fit in a byte is not a plain letter
    end = _METADATA_AT + length
    tags = value[end + _TAGS_IN_TAIL : end + _TAGS_IN_TAIL + len(_TAG)]
    is_whole = len(value) == end + _TAIL_WITH_ID.size if tags == _TAG else tags == b"\0"
    return is_whole and length > 0 and value[_METADATA_AT:end].isascii()


def _is_usual_v3(value: bytes) -> bool:
    """Whether it is whole, of version 3 and without metadata: the logs of older brokers are full of them."""
    has_size = len(value) == _BARE_V3_SIZE and value.startswith(_PREFIX_V3)
    return has_size and value[_METADATA_AT : _METADATA_AT + 2] == b"\0\0"


def commit_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    """The record as the bytes that are written and kept."""
    return CoordinatorRecord(_key_bytes(group_id, topic, partition), pack(committed))


def commit_records(
    group_id: str,
    topic: str,
    partitions: Iterable[CommittedPartition],
    commit_timestamp_ms: int,
    topic_id: UUID = ZERO_TOPIC_ID,
) -> list[CoordinatorRecord]:
    """`commit_record` for the partitions of a topic, without an expiry: what they have in common is encoded once.

    Commits are the most frequent decision there is.
    """
    key_head, tail = _key_head(group_id, topic), _tail(commit_timestamp_ms, topic_id)
    bare_tail = _EMPTY_METADATA + tail
    return [
        # Not by the constructor of a record, which takes as long as all the rest.
        _new_tuple(
            CoordinatorRecord,
            (
                key_head + _pack_partition(each.partition_index),
                _pack_head(_VERSION, each.committed_offset, each.committed_leader_epoch)
                + (_metadata_bytes(metadata) + tail if (metadata := each.committed_metadata) else bare_tail),
                0,
            ),
        )
        for each in partitions
    ]


def tombstone(group_id: str, key: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(_key_bytes(group_id, key.topic, key.partition), None)


def _key_bytes(group_id: str, topic: str, partition: int) -> bytes:
    return _key_head(group_id, topic) + _PARTITION.pack(partition)


@lru_cache(maxsize=_KEY_HEADS_MAX)
def _key_head(group_id: str, topic: str) -> bytes:
    """What all keys of a group in a topic begin with."""
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=0))[:-4]


@lru_cache(maxsize=_KEY_HEADS_MAX)
def _names_in(key_head: bytes) -> tuple[str, str]:
    """The group and the topic that keys with this beginning name."""
    key = decode_key(GROUP_RECORDS, key_head + _PARTITION.pack(0))
    return key.group, key.topic


class GroupOffsets(NamedTuple):
    """The offsets of one group: those that are committed, and those that wait for the end of a transaction."""

    committed: Mapping[TopicPartition, bytes]
    pending: Sequence[Mapping[TopicPartition, _Pending]]  # by producer

    def get(self, key: TopicPartition) -> CommittedOffset | None:
        value = self.committed.get(key)
        return None if value is None else unpack(value)

    def has_pending(self, key: TopicPartition) -> bool:
        return any(key in entries for entries in self.pending)

    def copied(self) -> GroupOffsets:
        return GroupOffsets(dict(self.committed), [dict(entries) for entries in self.pending])


class OffsetWalk:
    """A look at every offset of some groups, a few at a time, while the store goes on changing.

    The keys of a group are those that it has when the walk comes to it: an offset that is committed later is not old.
    """

    __slots__ = ("_group_id", "_groups", "_keys")

    def __init__(self, group_ids: Iterable[str]) -> None:
        self._groups = list(group_ids)
        self._group_id = ""
        self._keys: Iterator[TopicPartition] | None = None  # of the group that the walk has come to

    @property
    def is_over(self) -> bool:
        return not self._groups and self._keys is None

    def next(self, store: OffsetStore, count_max: int) -> Iterator[tuple[str, list[TopicPartition], bool]]:
        """Groups with some of their keys, and whether these are the last; about `count_max` in all."""
        count = 0
        while count < count_max and not self.is_over:
            if self._keys is None:
                self._group_id = self._groups.pop()
                self._keys = iter(store.keys_of(self._group_id))
            keys = list(islice(self._keys, count_max - count))
            is_last = len(keys) < count_max - count
            count += 1 + len(keys)
            if is_last:
                self._keys = None
            yield self._group_id, keys, is_last


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

    # --- what is stored

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, key: TopicPartition) -> CommittedOffset | None:
        value = self._committed.get(group_id, {}).get(key)
        return None if value is None else unpack(value)

    def group(self, group_id: str) -> GroupOffsets:
        """The offsets of a group as they are, until the next change."""
        producers = self._producers.get(group_id, ())
        return GroupOffsets(self._committed.get(group_id, {}), [self._pending[one][group_id] for one in producers])

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

    def group_ids(self) -> Iterable[str]:
        """The groups with an offset, committed or pending."""
        return self._committed.keys() | self._producers.keys() if self._producers else self._committed.keys()

    def is_of_topic(self, group_id: str, key: TopicPartition, topic_ids: Collection[UUID]) -> bool:
        """Whether the offset of a partition, committed or else pending, is of a topic with one of these ids.

        That of another topic that had or has the same name is not, if its id is known.
        """
        value = self._committed.get(group_id, {}).get(key)
        if value is not None:
            return _is_of_topic(value, topic_ids)
        entries = (self._pending[one][group_id].get(key) for one in self._producers.get(group_id, ()))
        return any(entry is not None and entry.value and _is_of_topic(entry.value, topic_ids) for entry in entries)

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
            self._put(key.group, partition, pack(_of_record(value)), producer_id)

    def apply_commit(self, records: Sequence[CoordinatorRecord]) -> tuple[str, int]:
        """Applies records that were just decided, from the first on, while they are offsets of one group and topic.

        Returns whose they are, and how many it has applied: `replay` does the same for any record.
        """
        first = records[0].key
        if self._producers or type(first) is not bytes or first[:2] not in OFFSET_KEY_PREFIXES:
            return "", 0
        if first[:-4] != self._last_head:
            self._turn_to(first)
        head, keys, offsets = self._last_head, self._last_keys, self._last_offsets
        count = 0
        for key, value, _ in records:
            if type(key) is not bytes or type(value) is not bytes or key[:-4] != head:
                break
            (index,) = _unpack_partition(key, len(key) - 4)
            partition = keys.get(index)
            if partition is None:
                partition = self._shared_key(self._last_topic, index)
            offsets[partition] = value  # in its stored form, as every machine's own is
            count += 1
        return self._last_group, count

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> str:
        """Applies a record of the log as its bytes and returns its key. This is how a million offsets are loaded."""
        if key[:-4] != self._last_head:
            self._turn_to(key)
        (index,) = _unpack_partition(key, len(key) - 4)
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
        self._last_head = key[:-4]
        self._last_group, self._last_topic = _names_in(self._last_head)
        self._last_keys = self._keys.setdefault(self._last_topic, {})
        self._last_offsets = self._committed.setdefault(self._last_group, {})

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

    def forget_shared_keys(self) -> None:
        """Lets go of the table of shared keys, so that those of partitions without an offset go with it.

        Groups keep the keys that they have; new ones are shared with those that commit from here on.
        """
        self._last_head = b""
        self._committed = {group_id: offsets for group_id, offsets in self._committed.items() if offsets}
        self._keys = {}

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
