"""Which partition and which batch a record goes to. Pure: columns in, columns by partition and by size out.

A record with a key goes where every Kafka client sends that key (murmur2). Records without a key stay together, a batch
of them in one partition and the next batch in another, so that batches are large and partitions fill evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol, Self

from ottla.records import batch, codec
from ottla.records.layout import RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from typing import Unpack

Headers = Sequence[tuple[str | bytes, bytes | None]]

HEADER_OVERHEAD_BYTES: Final = 10


class Records(Protocol):
    """Records as a producer needs them, whatever they are made of."""

    def __len__(self) -> int: ...

    def slice(self, start: int, end: int) -> Self: ...

    def by_partition(self, partition_count: int) -> dict[int | None, Self]:
        """The records of each partition, in their order; under None those that choose none, for want of a key. Where
        there is one partition only, all of them have the order in which they came."""

    def pieces(self, batch_bytes_max: int) -> list[Self]:
        """The records in pieces of at most `batch_bytes_max`; a record that is larger alone stands alone."""

    def size_bytes(self) -> int:
        """About how many bytes they take in a batch; never less than they do."""

    def build(self, **options: Unpack[batch.BatchOptions]) -> bytearray:
        """The batch of all of them."""


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

    def by_partition(self, partition_count: int) -> dict[int | None, RecordColumns]:
        if partition_count == 1:
            return {0: self}
        if self.keys is None:
            return {None: self}
        keyless = partition_count  # one more than there are
        groups = codec.group_rows(codec.partitions_of_keys(self.keys, partition_count, keyless), partition_count + 1)
        return {
            None if number == keyless else number: self if len(groups) == 1 else self.take(rows.cast("i"))
            for number, rows in groups
        }

    def pieces(self, batch_bytes_max: int) -> list[RecordColumns]:
        ends = list(accumulate(self.sizes()))  # where each record ends, if all stood in one row
        pieces: list[RecordColumns] = []
        start, start_byte = 0, 0
        while start < len(ends):
            end = max(start + 1, bisect_right(ends, start_byte + batch_bytes_max, lo=start))
            pieces.append(self.slice(start, end))
            start, start_byte = end, ends[end - 1]
        return pieces

    def size_bytes(self) -> int:
        return sum(self.sizes())

    def build(self, **options: Unpack[batch.BatchOptions]) -> bytearray:
        return batch.build(self.keys, self.values, self.timestamps, headers=self.headers, **options)

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
