"""The short ways of batches into the log: most of them are plain, and one call finds out.

A leader's batch is stamped then; what a follower fetched is taken as it is, all batches together.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.errors import RecordsError
from ottla.records.layout import (
    COMPRESSION_MASK,
    INT32_MAX,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    IndexedBatch,
    Run,
)
from ottla.records.reference.batches import check_batch, scan
from ottla.records.reference.buffers import byte_view

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BASE_OFFSET_FIELD = struct.Struct(">q")
_LEADER_EPOCH_FIELD = struct.Struct(">i")


def stamp_plain(
    data: Buffer, base_offset: int, leader_epoch: int, size_max: int, timestamp_max: int, needs_keys: bool
) -> tuple[int, int, BatchHeader | None] | None:
    """Gives a plain batch its place in the log; None, and nothing is changed, where `data` is not one.

    Plain is a producer's batch that is sound, alone in `data`, not larger than `size_max`, not compressed, outside of
    transactions, and whose timestamps are right and not above `timestamp_max`. Returned are the number of its records,
    their largest timestamp and, where its producer numbers its batches, the stamped header. Why a batch is not plain
    is for `check_batch` to say.
    """
    with byte_view(data) as view:
        if view.readonly or len(view) > size_max:
            return None
        try:
            header, max_timestamp, _, null_key_index, is_in_order = check_batch(view, 0, True, True)
        except RecordsError:
            return None
        if (
            header.size_bytes != len(view)
            or not is_in_order
            or header.attributes & (COMPRESSION_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT)
            or max_timestamp != header.max_timestamp
            or max_timestamp > timestamp_max
            or (needs_keys and null_key_index >= 0)
        ):
            return None
        _BASE_OFFSET_FIELD.pack_into(view, 0, base_offset)
        _LEADER_EPOCH_FIELD.pack_into(view, LEADER_EPOCH_AT, leader_epoch)
        header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    return header.record_count, max_timestamp, header if header.producer_id >= 0 else None


def walk_run(data: Buffer, end_offset: int, bytes_since_index: int, index_interval_bytes: int) -> Run | None:
    """The whole batches at the start of `data`, where a log that ends at `end_offset` may take them as they are.

    None where they may not, or need a closer look: something in `data` is damaged or no batch, offsets do not rise, the
    leader epoch changes, one is a control batch, or there is no whole batch.

    Returned are the size of the batches; their base offset, last offset and leader epoch; the largest timestamp of the
    first batch and that of all, with the last offset of the first batch that has it; and what comes into indexes and
    producer state:

    - `bytes_since_index` as it is behind them, and for each batch that has more than `index_interval_bytes` between
      itself and the last one indexed: its last offset, its position, the largest timestamp up to it, and that one's
      offset;
    - of each batch with a producer id its header.
    """
    with byte_view(data) as view:
        headers, size_bytes, _, problem = scan(view, 0, len(view), True, INT32_MAX)
    if problem is not None or not headers:
        return None
    first = headers[0]
    max_timestamp, offset_of_max = first.max_timestamp, first.last_offset
    index_entries: list[IndexedBatch] = []
    of_producers: list[BatchHeader] = []
    position = 0
    for header in headers:
        if header.base_offset < end_offset or header.leader_epoch != first.leader_epoch or header.is_control:
            return None
        if header.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
        if bytes_since_index > index_interval_bytes:
            index_entries.append((header.last_offset, position, max_timestamp, offset_of_max))
            bytes_since_index = 0
        if header.producer_id >= 0:
            of_producers.append(header)
        bytes_since_index += header.size_bytes
        position += header.size_bytes
        end_offset = header.end_offset
    return (
        size_bytes,
        first.base_offset,
        end_offset - 1,
        first.leader_epoch,
        first.max_timestamp,
        max_timestamp,
        offset_of_max,
        bytes_since_index,
        index_entries or (),
        of_producers or (),
    )
