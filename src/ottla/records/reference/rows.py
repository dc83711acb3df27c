"""Which record goes where: partitions by key, rows by partition, rows by size."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.hashing import partition_of_key
from ottla.records.layout import RECORD_OVERHEAD_BYTES, BinaryColumn, HeadersColumn
from ottla.records.reference.arrow import cells_of, header_lists, int32s, selected_cells, selected_rows
from ottla.records.reference.buffers import byte_view
from ottla.records.reference.record import write_headers

if TYPE_CHECKING:
    from typing_extensions import Buffer

HASHES_KEPT = 100_000  # keys repeat; hashing one in Python costs more than all the rest of its record

cached_partition_of_key = lru_cache(HASHES_KEPT)(partition_of_key)


def partitions_of_keys(keys: Sequence[bytes | None], partition_count: int, keyless: int) -> Buffer:
    """The partition of each key, as int32: Kafka's, and the number `keyless` for None."""
    if partition_count < 1:
        raise ValueError(f"keys cannot go to {partition_count} partitions")
    partitions = [keyless if key is None else cached_partition_of_key(bytes(key), partition_count) for key in keys]
    return struct.pack(f"={len(partitions)}i", *partitions)


def partitions_of_column(row_count: int, keys: BinaryColumn, partition_count: int, keyless: int) -> Buffer:
    """The same for the keys of an Arrow column."""
    return partitions_of_keys(cells_of(keys, row_count), partition_count, keyless)


def group_rows(numbers: Buffer, group_count: int) -> list[tuple[int, memoryview]]:
    """The rows of each group that has any, by the group's number. `numbers` says the group of each row; rows keep
    their order in it. All of these are int32."""
    groups: dict[int, list[int]] = {}
    with byte_view(numbers) as view:
        for row, number in enumerate(int32s(view, len(view) // 4)):
            if not 0 <= number < group_count:
                raise ValueError(f"a row belongs to a group that is none of {group_count}")
            groups.setdefault(number, []).append(row)
    return [(number, memoryview(struct.pack(f"={len(rows)}i", *rows))) for number, rows in sorted(groups.items())]


def split_columns(
    row_count: int,
    keys: BinaryColumn | None,
    values: BinaryColumn,
    headers: HeadersColumn | None,
    bytes_max: int,
    rows: Buffer | None = None,
) -> list[int]:
    """Where the records of these Arrow columns, or of the selected `rows`, are to be cut so that no piece takes more
    than `bytes_max` in a batch: the end of each. A record that is larger alone stands alone."""
    selected = selected_rows(rows, row_count)
    sizes = [RECORD_OVERHEAD_BYTES + len(value or b"") for value in selected_cells(values, row_count, selected)]
    if keys is not None:
        for index, key in enumerate(selected_cells(keys, row_count, selected)):
            sizes[index] += len(key or b"")
    if headers is not None:
        for index, of_record in enumerate(header_lists(headers, row_count, selected)):
            encoded = bytearray()
            write_headers(encoded, of_record)
            sizes[index] += len(encoded)
    ends: list[int] = []
    total = 0
    for index, size in enumerate(sizes):
        if total and total + size > bytes_max:
            ends.append(index)
            total = 0
        total += size
    return [*ends, len(sizes)] if sizes else []
