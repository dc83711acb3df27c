"""Which partition a record goes to. Pure: columns in, columns by partition out.

A record with a key goes where every Kafka client sends that key (murmur2). Records without a key stay together: all of
one call go to one partition, the next call to another, so that batches are large and partitions fill evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from ottla.hashing import murmur2

Headers = Sequence[tuple[str | bytes, bytes | None]]

RECORD_OVERHEAD_BYTES: Final = 24  # lengths, deltas and counts around key and value, at most
HEADER_OVERHEAD_BYTES: Final = 10
HASHES_KEPT: Final = 100_000  # keys repeat; hashing one costs more than all the rest of its record

_hash_of_key = lru_cache(HASHES_KEPT)(murmur2)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records column by column, all of one length. None stands for a column without content.

    Timestamps are milliseconds, one for all records or one each.
    """

    values: Sequence[bytes | None]
    timestamps: int | Sequence[int]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None

    def __post_init__(self) -> None:
        for column in (self.keys, self.headers, self.timestamps):
            if column is not None and not isinstance(column, int) and len(column) != len(self.values):
                raise ValueError(f"columns of different lengths: {len(column)} beside {len(self.values)} values")

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> RecordColumns:
        return self._each(lambda column: column[start:end])

    def take(self, rows: Sequence[int]) -> RecordColumns:
        """Those rows, in that order."""
        return self._each(lambda column: [column[row] for row in rows])

    def _each(self, pick: Callable[[Sequence[object]], Sequence[object]]) -> RecordColumns:
        columns = (self.values, self.timestamps, self.keys, self.headers)
        picked = (column if column is None or isinstance(column, int) else pick(column) for column in columns)
        return RecordColumns(*picked)  # type: ignore[arg-type]  # a pick of a column has its type

    def sizes(self) -> Iterator[int]:
        """About how many bytes each record takes in a batch; never less than it does."""
        lengths = _lengths(self.values)
        if self.keys is not None:
            lengths = map(int.__add__, lengths, _lengths(self.keys))
        if self.headers is not None:
            lengths = map(int.__add__, lengths, map(_headers_length, self.headers))
        return map(RECORD_OVERHEAD_BYTES.__add__, lengths)


def _lengths(column: Sequence[bytes | None]) -> Iterator[int]:
    return (0 if data is None else len(data) for data in column) if None in column else map(len, column)  # type: ignore[arg-type]


def _headers_length(headers: Headers) -> int:
    # A name in text may take up to four bytes a character.
    return sum(4 * len(name) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Where every client of Kafka sends a record with that key."""
    return (_hash_of_key(key) & 0x7FFF_FFFF) % partition_count


def split_by_partition(
    records: RecordColumns, partition_count: int, keyless_partition: int
) -> dict[int, RecordColumns]:
    """The records of each partition, in their order; those without a key go to `keyless_partition`."""
    assert 0 <= keyless_partition < partition_count
    if not len(records):
        return {}
    if partition_count == 1 or records.keys is None:
        return {keyless_partition: records}
    rows: dict[int, list[int]] = {}
    for row, key in enumerate(records.keys):
        partition = keyless_partition if key is None else partition_of_key(key, partition_count)
        rows.setdefault(partition, []).append(row)
    if len(rows) == 1:
        return dict.fromkeys(rows, records)
    return {partition: records.take(chosen) for partition, chosen in rows.items()}


def split_by_size(records: RecordColumns, batch_bytes_max: int) -> list[RecordColumns]:
    """The records in pieces of at most `batch_bytes_max`; a record that is larger alone stands alone."""
    ends = list(accumulate(records.sizes()))  # where each record ends, if all stood in one row
    pieces: list[RecordColumns] = []
    start, start_byte = 0, 0
    while start < len(ends):
        end = max(start + 1, bisect_right(ends, start_byte + batch_bytes_max, lo=start))
        pieces.append(records.slice(start, end))
        start, start_byte = end, ends[end - 1]
    return pieces
