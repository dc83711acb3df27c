"""What clients were promised, and whether it holds: the judge of simulated runs.

Every record has a value of its own, `<producer>.<number>`, numbers rising, so a value tells who wrote it and when. The
ledger notes what was acknowledged and what was read, and finds out when two of these cannot both be true. A power loss
takes back promises about what was not synced: `losses` counts them, and what was asked before a loss and answered after
it is no promise. AssertionError where something does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.records import batch


class PartitionKey(NamedTuple):
    """A partition of one topic; a topic of the same name that is made later has another id."""

    topic_id: UUID
    partition: int


class Stored(NamedTuple):
    offset: int
    value: bytes
    producer_id: int = -1


@dataclass(slots=True)
class PartitionBook:
    """What is known of one partition."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    high_watermark: int = 0


class Ledger:
    """Everything that clients know of one broker's records."""

    def __init__(self) -> None:
        self.losses = 0
        self.acknowledged_count = 0
        self.read_count = 0
        self._books: dict[PartitionKey, PartitionBook] = {}
        self._must_survive: Mapping[PartitionKey, int] | None = None  # between a power loss and the restart

    def book(self, key: PartitionKey) -> PartitionBook:
        return self._books.setdefault(key, PartitionBook())

    def forget(self, topic_id: UUID) -> None:
        """The topic is deleted."""
        for key in [key for key in self._books if key.topic_id == topic_id]:
            del self._books[key]

    # -- what clients learn --------------------------------------------------------------------------------------------

    def acknowledge(self, key: PartitionKey, base_offset: int, values: Iterable[bytes], *, losses: int) -> None:
        """The broker said that it has these records; `losses` as they were when it was asked."""
        if losses != self.losses:
            return
        book = self.book(key)
        for offset, value in enumerate(values, base_offset):
            other = book.acknowledged.get(offset, value)
            assert other == value, f"{key} acknowledged {value!r} and {other!r} at offset {offset}"
            assert book.read.get(offset, value) == value, f"{key} {offset}: {value!r} acknowledged, other was read"
            book.acknowledged[offset] = value
            self.acknowledged_count += 1

    def high_watermark(self, key: PartitionKey) -> int:
        """The highest that anybody was told so far: whoever asks from now on must not be told less."""
        return self.book(key).high_watermark

    def read(
        self, key: PartitionKey, position: int, records: bytes, high_watermark: int, *, known: int, losses: int
    ) -> int:
        """A fetch from `position` was answered with these bytes; returns where to go on.

        `known` and `losses`: the high watermark and the losses as they were when it was asked.
        """
        found = list(whole_batches(records))
        if losses != self.losses:
            return position
        book = self.book(key)
        assert high_watermark >= known, f"{key}: the high watermark fell from {known} to {high_watermark}"
        book.high_watermark = max(book.high_watermark, high_watermark)
        for number, (header, stored) in enumerate(found):
            first = header.base_offset <= position <= header.last_offset
            assert first if number == 0 else header.base_offset == position, f"{key}: {header} is not at {position}"
            assert header.last_offset < high_watermark, f"{key}: {header} is not below {high_watermark}"
            for record in stored:
                self._saw(key, book, record)
            position = header.last_offset + 1
        return position

    def _saw(self, key: PartitionKey, book: PartitionBook, record: Stored) -> None:
        known = book.read.setdefault(record.offset, record.value)
        assert known == record.value, f"{key} {record.offset}: {known!r} was read before, now {record.value!r}"
        promised = book.acknowledged.get(record.offset, record.value)
        assert promised == record.value, f"{key} {record.offset}: {promised!r} was acknowledged, not {record.value!r}"
        self.read_count += 1

    # -- crashes -------------------------------------------------------------------------------------------------------

    def lose_power(self, flushed: Mapping[PartitionKey, int]) -> None:
        """The power went off; what is below these offsets was synced and must survive."""
        self.losses += 1
        self._must_survive = dict(flushed)
        for book in self._books.values():
            book.high_watermark = 0

    def restarted(self, ends: Mapping[PartitionKey, int]) -> None:
        """The broker is back, with logs that end there."""
        must_survive, self._must_survive = self._must_survive, None
        for key, flushed in (must_survive or {}).items():
            if key in ends:
                assert ends[key] >= flushed, f"{key} was synced up to {flushed} and ends at {ends[key]}"
        for key, end in ends.items():
            book = self.book(key)
            if must_survive is not None:
                book.acknowledged = {offset: value for offset, value in book.acknowledged.items() if offset < end}
                book.read = {offset: value for offset, value in book.read.items() if offset < end}
            last = max([*book.acknowledged, *book.read], default=-1)
            assert last < end, f"{key} ends at {end} after a crash, and offset {last} was acknowledged or read"

    # -- the end -------------------------------------------------------------------------------------------------------

    def check_whole(self, key: PartitionKey, stored: Iterable[Stored], end_offset: int) -> None:
        """All that the partition holds in the end: promises kept, order kept, nothing twice."""
        book = self.book(key)
        by_offset: dict[int, bytes] = {}
        last_numbers: dict[int, int] = {}  # of idempotent producers: others may be overtaken by their own retries
        for record in stored:
            self._saw(key, book, record)
            by_offset[record.offset] = record.value
            if record.producer_id >= 0:
                number = int(record.value.rpartition(b".")[2])
                assert number > last_numbers.get(record.producer_id, -1), f"{key}: {record} comes too late"
                last_numbers[record.producer_id] = number
        assert len(set(by_offset.values())) == len(by_offset), f"{key}: something is there twice"
        missing = sorted(book.acknowledged.keys() - by_offset.keys())
        assert not missing, f"{key}: acknowledged and not there: {missing[:10]}"
        assert [*by_offset] == [*range(end_offset)], f"{key}: offsets are missing below {end_offset}"


def whole_batches(records: bytes) -> Iterable[tuple[batch.BatchHeader, list[Stored]]]:
    """The batches of a fetch answer, each of them sound; the limits of the request may cut the last one off."""
    scanned = batch.scan(records, check_crc=False)
    assert scanned.ended in (batch.ScanEnd.END, batch.ScanEnd.CUT), f"a fetch answer ends with {scanned.ended}"
    position = 0
    while position < scanned.end_position:
        header = batch.check(records, position, strict=False).header
        yield (
            header,
            [
                Stored(record.offset, record.value or b"", header.producer_id)
                for record in batch.iterate(records, position)
            ],
        )
        position += header.size_bytes
