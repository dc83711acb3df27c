"""The short way of a batch into the log: most batches are plain, and one call finds out and stamps them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.errors import RecordsError
from ottla.records.layout import COMPRESSION_MASK, LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.records.reference.batches import check_batch
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
