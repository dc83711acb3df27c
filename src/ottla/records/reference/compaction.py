"""Compaction: the latest offset of each key, and what is kept of a section by it."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from ottla.records.layout import INT64_MAX, INT64_MIN, Problem, Retained, refusal
from ottla.records.reference.buffers import byte_view
from ottla.records.reference.record import offset_of, walk, write_varint

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEY_MAP_SLOT_BYTES = 24
KEY_MAP_LOAD_FACTOR = 0.9


class KeyOffsetMap:
    """The latest offset of each key in bounded memory, for compaction.

    Keys are known by a 128-bit hash under a secret of this map. The width makes an accidental collision
    (which would lose a record) as unlikely as a broken disk; the secret makes one that a producer prepares
    just as unlikely.
    """

    def __init__(self, memory_bytes: int, secret: bytes | None = None) -> None:
        self.capacity = int(memory_bytes // KEY_MAP_SLOT_BYTES * KEY_MAP_LOAD_FACTOR)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key: at least {2 * KEY_MAP_SLOT_BYTES} are needed")
        self.is_full = False  # a record did not fit: the last `note` stopped before it
        self._secret = secrets.token_bytes(16) if secret is None else secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def _digest(self, key: Buffer) -> bytes:
        return hashlib.blake2b(key, digest_size=16, key=self._secret).digest()

    def note(self, records: Buffer, record_count: int, base_offset: int, start_offset: int) -> int:
        """Notes the keys from `start_offset` on; returns the offset one past the last record that was looked
        at.

        Stops before a record whose key no longer fits, says so by `is_full` and returns that record's offset.
        Null keys are passed over.
        """
        end_offset = start_offset
        with byte_view(records) as view:
            for index, record in enumerate(walk(view, record_count)):
                offset = offset_of(record, base_offset, index)
                if offset < start_offset:
                    continue
                if record.key is not None:
                    digest = self._digest(record.key)
                    known = self._offsets.get(digest)
                    if known is None and len(self._offsets) >= self.capacity:
                        self.is_full = True
                        return offset
                    self._offsets[digest] = offset if known is None else max(known, offset)
                end_offset = offset + 1
        return end_offset

    def latest(self, key: Buffer) -> int:
        """The latest noted offset of `key`, -1 if it was never noted."""
        return self._offsets.get(self._digest(key), -1)


def retain(
    records: Buffer,
    record_count: int,
    base_offset: int,
    key_map: KeyOffsetMap,
    drop_tombstones: bool,
    timestamp_shift: int = 0,
) -> Retained:
    """What compaction keeps of a section: the latest record of each key, unless it is a tombstone to drop.

    Records without a key have no place in a compacted log and go. `timestamp_shift` is added to each
    timestamp delta, because a delete horizon takes the place of the base timestamp.
    """
    kept = bytearray()
    kept_count = 0
    max_timestamp_delta = INT64_MIN
    has_tombstones = False
    with byte_view(records) as view:
        for index, record in enumerate(walk(view, record_count)):
            offset = offset_of(record, base_offset, index)
            if record.key is None or offset < key_map.latest(record.key):
                continue
            if record.value is None:
                if drop_tombstones:
                    continue
                has_tombstones = True
            timestamp_delta = record.timestamp_delta + timestamp_shift
            if not INT64_MIN <= timestamp_delta <= INT64_MAX:
                raise refusal(Problem.TIMESTAMP, index)
            if timestamp_shift:
                body = bytearray([record.attributes])
                write_varint(body, timestamp_delta)
                body += view[record.after_timestamp : record.end]
                write_varint(kept, len(body))
                kept += body
            else:
                kept += view[record.start : record.end]
            kept_count += 1
            max_timestamp_delta = max(max_timestamp_delta, timestamp_delta)
    if not kept_count:
        max_timestamp_delta = 0
    return Retained(kept, kept_count, max_timestamp_delta, has_tombstones, kept_count < record_count)
