"""What clients were promised, and whether it holds: the judge of simulated runs.

Every record has a name of its own, `<stream>.<number>`, numbers rising: a stream is what one producer sends over one
connection or under one producer id, so its records must be found in that order, each once. The ledger notes what was
acknowledged, what was read and what somebody asked to be taken away (`Licence`), and finds out when two of these cannot
both be true. AssertionError where something does not hold.

A power loss takes back promises about what was not synced: `losses` counts them, and what was asked before a loss and
answered after it is not a promise. A partition whose disk failed is not there for a while; its promises wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.records import batch

NAME_HEADER = "name"  # of a tombstone, which has no value to carry it


class PartitionKey(NamedTuple):
    """A partition of one topic; a topic of the same name that is made later has another id."""

    topic_id: UUID
    partition: int
    topic: str = ""


class Written(NamedTuple):
    """A record as its producer sent it."""

    name: bytes
    key: bytes | None = None
    timestamp: int = 0
    is_tombstone: bool = False

    @property
    def stream(self) -> bytes:
        return self.name.rpartition(b".")[0]

    @property
    def number(self) -> int:
        return int(self.name.rpartition(b".")[2])


class Stored(NamedTuple):
    offset: int
    record: Written


def build_batch(records: Sequence[Written], **options: int) -> bytes:
    """The records as one batch."""
    return bytes(
        batch.build(
            [record.key for record in records],
            [None if record.is_tombstone else record.name for record in records],
            [record.timestamp for record in records],
            headers=[[(NAME_HEADER, record.name)] if record.is_tombstone else [] for record in records],
            **options,  # type: ignore[arg-type]
        )
    )


# -- what may go -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Licence:
    """What may leave a partition, because somebody asked for it; without one everything stays."""

    below: float = 0  # DeleteRecords: offsets below this one
    retention_ms: float = math.inf
    retention_bytes: float = math.inf
    compacts: bool = False
    tombstones_ms: float = math.inf  # delete.retention.ms: so old must a tombstone be that compaction takes

    def __or__(self, other: Licence) -> Licence:
        return Licence(
            max(self.below, other.below),
            min(self.retention_ms, other.retention_ms),
            min(self.retention_bytes, other.retention_bytes),
            self.compacts or other.compacts,
            min(self.tombstones_ms, other.tombstones_ms),
        )

    @property
    def retains_less(self) -> bool:
        return min(self.retention_ms, self.retention_bytes) < math.inf


EVERYTHING: Hashable = ()  # the scope of all partitions


class Licences:
    """Who asked for what to be taken away: for all, a topic by name or by id, or a partition."""

    def __init__(self) -> None:
        self._by_scope: dict[Hashable, list[Licence]] = {}

    def grant(self, scope: Hashable, licence: Licence) -> None:
        self._by_scope.setdefault(scope, []).append(licence)

    @contextmanager
    def asking(self, scope: Hashable, licence: Licence) -> Iterator[None]:
        """Granted while a request is in flight, and for good if its answer never comes.

        By name: a request without a response may still reach the next topic of that name.
        """
        self.grant(scope, licence)
        yield  # an exception leaves the licence where it is
        self._by_scope[scope].remove(licence)

    def of(self, key: PartitionKey) -> Licence:
        licence = Licence()
        for scope in (EVERYTHING, key.topic, (key.topic, key.partition), key.topic_id, key):
            for granted in self._by_scope.get(scope, ()):
                licence |= granted
        return licence


# -- what is known -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionBook:
    """What is known of one partition."""

    acknowledged: dict[int, Written] = field(default_factory=dict)
    read: dict[int, Written] = field(default_factory=dict)
    high_watermark: int = 0
    log_start: int = 0
    synced: int = 0
    has_lost_power: bool = False  # since it was last seen

    def known(self, start: int, end: int) -> Iterator[tuple[int, Written]]:
        """What was acknowledged or read between two offsets."""
        for notes in (self.acknowledged, self.read):
            for offset, record in notes.items():
                if start <= offset < end:
                    yield offset, record


class Bounds(NamedTuple):
    """Where a log begins and ends."""

    start: int
    end: int


class Ledger:
    """Everything that clients know of one broker's records."""

    def __init__(self) -> None:
        self.losses = 0
        self.acknowledged_count = 0
        self.read_count = 0
        self.licences = Licences()
        self._books: dict[PartitionKey, PartitionBook] = {}
        self._homes: dict[bytes, UUID] = {}  # of records that were sent once: their topic, even when it is gone

    def book(self, key: PartitionKey) -> PartitionBook:
        return self._books.setdefault(key, PartitionBook())

    def forget(self, topic_id: UUID) -> None:
        """The topic is deleted."""
        for key in [key for key in self._books if key.topic_id == topic_id]:
            del self._books[key]

    # -- what clients learn --------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        key: PartitionKey,
        base_offset: int,
        records: Iterable[Written],
        *,
        losses: int,
        is_sent_once: bool = False,
    ) -> None:
        """The broker said that it has these records; `losses` as they were when it was asked.

        What was sent once is in one topic; of what was sent again, a part may reach the next topic of the same name.
        """
        if losses != self.losses:
            return
        book = self.book(key)
        for offset, record in enumerate(records, base_offset):
            if is_sent_once:
                self._homes[record.name] = key.topic_id
            other = book.acknowledged.get(offset, record)
            assert other == record, f"{key} acknowledged {record} and {other} at offset {offset}"
            assert book.read.get(offset, record) == record, f"{key} {offset}: {record} acknowledged, other was read"
            book.acknowledged[offset] = record
            self.acknowledged_count += 1

    def high_watermark(self, key: PartitionKey) -> int:
        """The highest in any response so far: no later response may have less."""
        return self.book(key).high_watermark

    def told_high_watermark(self, key: PartitionKey, high_watermark: int, *, known: int, losses: int) -> None:
        """A response arrived; `known` and `losses` as they were when it was asked for."""
        if losses == self.losses:
            assert high_watermark >= known, f"{key}: the high watermark fell from {known} to {high_watermark}"
            book = self.book(key)
            book.high_watermark = max(book.high_watermark, high_watermark)

    def read(
        self, key: PartitionKey, position: int, records: bytes, high_watermark: int, *, known: int, losses: int
    ) -> int:
        """A fetch from `position` was answered with these bytes; returns where to go on.

        `known` and `losses`: the high watermark and the losses as they were when it was asked.
        """
        found = list(whole_batches(records))
        if losses != self.losses:
            return position
        self.told_high_watermark(key, high_watermark, known=known, losses=losses)
        may_have_gaps = self.licences.of(key).compacts
        for number, (header, stored) in enumerate(found):
            is_next = header.base_offset <= position if number == 0 else header.base_offset == position
            is_next = (is_next or may_have_gaps) and position <= header.last_offset
            assert is_next, f"{key}: {header} is not at {position}"
            assert header.last_offset < high_watermark, f"{key}: {header} is not below {high_watermark}"
            for one in stored:
                self._saw(key, one)
            position = header.last_offset + 1
        return position

    def _saw(self, key: PartitionKey, stored: Stored) -> None:
        book, (offset, record) = self.book(key), stored
        known = book.read.setdefault(offset, record)
        assert known == record, f"{key} {offset}: {known} was read before, now {record}"
        promised = book.acknowledged.get(offset, record)
        assert promised == record, f"{key} {offset}: {promised} was acknowledged, not {record}"
        home = self._homes.get(record.name, key.topic_id)
        assert home == key.topic_id, f"{key} {offset}: {record} is of another topic, {home}"
        self.read_count += 1

    def found_by_time(self, key: PartitionKey, asked_ms: int, offset: int, known: Mapping[int, Written]) -> None:
        """The first record not before a time is at `offset`, none at -1; `known` was acknowledged before it was asked.

        Where something may have left the log meanwhile, nobody knows what was the first.
        """
        if self.licences.of(key) != Licence():
            return
        earlier = [at for at, one in known.items() if one.timestamp >= asked_ms and (offset < 0 or at < offset)]
        assert not earlier, f"{key}: at {asked_ms} {offset} was found, and {earlier[:5]} is as late"

    # -- where a log begins --------------------------------------------------------------------------------------------

    def starts_at(self, key: PartitionKey, start: int, now_ms: int, *, size_bytes: float = math.inf) -> None:
        """The log was seen to begin there, with this size; what lies before must have been free to go.

        Within one life of the broker the start does not fall; a crash may undo what no checkpoint says yet.
        """
        book = self.book(key)
        before, book.log_start = book.log_start, start
        if start <= before:
            return
        licence = self.licences.of(key)
        if start <= licence.below:
            return
        assert licence.retains_less, f"{key} starts at {start}, and was asked to go to {licence.below} at most"
        if licence.compacts:
            return  # what was young or large is gone from segments that retention takes later
        if licence.retention_bytes == math.inf:
            floor = int(max(before, licence.below))
            kept = [at for at, one in book.known(floor, start) if one.timestamp > now_ms - licence.retention_ms]
            assert not kept, f"{key} starts at {start}, and {sorted(kept)[:5]} are not {licence.retention_ms} ms old"
        if licence.retention_ms == math.inf:
            assert size_bytes >= licence.retention_bytes, f"{key} kept {size_bytes} of {licence.retention_bytes} bytes"

    # -- crashes -------------------------------------------------------------------------------------------------------

    def lose_power(self, synced: Mapping[PartitionKey, int]) -> None:
        """The power went off; what is below these offsets was synced and must survive."""
        self.losses += 1
        for key, offset in synced.items():
            self.book(key).synced = offset
        for book in self._books.values():
            book.has_lost_power = True
            book.high_watermark = 0

    def restarted(self, logs: Mapping[PartitionKey, Bounds]) -> None:
        """The broker is back, with these logs; others are on disks that do not work for now."""
        for key, (start, end) in logs.items():
            book = self.book(key)
            if book.has_lost_power:
                assert end >= book.synced, f"{key} was synced up to {book.synced} and ends at {end}"
                book.acknowledged = {offset: one for offset, one in book.acknowledged.items() if offset < end}
                book.read = {offset: one for offset, one in book.read.items() if offset < end}
                book.has_lost_power, book.synced = False, 0
            last = max([*book.acknowledged, *book.read, book.high_watermark - 1], default=-1)
            assert last < end, f"{key} ends at {end} after a crash, and offset {last} was acknowledged or read"
            book.log_start = min(book.log_start, start)

    # -- the end -------------------------------------------------------------------------------------------------------

    def check_whole(self, key: PartitionKey, stored: Iterable[Stored], bounds: Bounds, now_ms: int) -> None:
        """All that the partition holds: promises kept, order kept, nothing twice."""
        there: dict[int, Written] = {}
        last_numbers: dict[bytes, int] = {}
        for one in stored:
            if one.offset < bounds.start:
                continue  # in the batch in which the log begins
            self._saw(key, one)
            offset, record = one
            last = last_numbers.get(record.stream, -1)
            assert record.number != last, f"{key}: {one} is there twice"
            assert record.number > last, f"{key}: {one} comes too late"
            last_numbers[record.stream] = record.number
            there[offset] = record
        missing = {at: one for at, one in self.book(key).known(*bounds) if at not in there}
        licence = self.licences.of(key)
        if licence.compacts:
            self._check_compacted(key, there, missing, now_ms - licence.tombstones_ms)
        else:
            assert not missing, f"{key}: acknowledged and not there: {sorted(missing)[:10]}"
            assert [*there] == [*range(*bounds)], f"{key}: offsets are missing in {bounds}"

    @staticmethod
    def _check_compacted(
        key: PartitionKey, there: Mapping[int, Written], missing: Mapping[int, Written], tombstones_until_ms: float
    ) -> None:
        """Only what a later record of the same key took the place of is gone, and tombstones of old."""
        newest: dict[bytes | None, int] = {}
        for offset, record in [*there.items(), *missing.items()]:
            newest[record.key] = max(offset, newest.get(record.key, -1))
        for offset, record in missing.items():
            is_replaced = newest[record.key] > offset
            is_spent = record.is_tombstone and record.timestamp <= tombstones_until_ms
            assert is_replaced or is_spent, f"{key}: the newest of its key is gone: {record} at {offset}"


def whole_batches(records: bytes) -> Iterable[tuple[batch.BatchHeader, list[Stored]]]:
    """The batches of a fetch answer, each of them sound; the limits of the request may cut the last one off."""
    scanned = batch.scan(records, check_crc=False)
    assert scanned.ended in (batch.ScanEnd.END, batch.ScanEnd.CUT), f"a fetch answer ends with {scanned.ended}"
    position = 0
    while position < scanned.end_position:
        header = batch.check(records, position, strict=False).header
        yield header, [_stored(record) for record in batch.iterate(records, position)] if header.record_count else []
        position += header.size_bytes


def _stored(record: batch.Record) -> Stored:
    is_tombstone = record.value is None
    name = record.value if record.value is not None else dict(record.headers)[NAME_HEADER]
    assert name is not None, f"{record} has no name"
    return Stored(record.offset, Written(name, record.key, record.timestamp, is_tombstone))
