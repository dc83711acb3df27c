"""Control batches: records that brokers write for themselves, unseen by clients.

A control record's key is `int16 version, int16 type`. The types that end a transaction are ours to write and
to read; the others (KRaft's leader change, snapshot frames and so on) are recognised and named.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch

if TYPE_CHECKING:
    from typing_extensions import Buffer

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
CURRENT_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The end of a transaction in one partition, and the epoch of the coordinator that wrote it."""

    commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int,
    producer_epoch: int,
    marker: EndTransactionMarker,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch of one record that ends a transaction."""
    control_type = ControlType.COMMIT if marker.commit else ControlType.ABORT
    return batch.build(
        [_KEY.pack(CURRENT_VERSION, control_type)],
        [_MARKER_VALUE.pack(CURRENT_VERSION, marker.coordinator_epoch)],
        timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_type_name(data: Buffer, position: int = 0) -> str:
    """What kind of control batch this is, for people; a type of the future is named by its number."""
    code, _ = _first_record(data, position)
    try:
        return ControlType(code).name
    except ValueError:
        return f"UNKNOWN_{code}"


def read_marker(data: Buffer, position: int = 0) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None if it is of another type."""
    code, value = _first_record(data, position)
    if code not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _MARKER_VALUE.size:
        raise RecordsError(ErrorCode.CORRUPT_MESSAGE, "the value of a transaction marker is too short", 0)
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise RecordsError(ErrorCode.CORRUPT_MESSAGE, f"a transaction marker of version {version}", 0)
    return EndTransactionMarker(code == ControlType.COMMIT, coordinator_epoch)


def _first_record(data: Buffer, position: int) -> tuple[int, bytes | None]:
    """Its type, and its value."""
    columns = batch.decode(data, position)
    keys = columns.keys
    if not keys or (key := keys[0]) is None or len(key) < _KEY.size:
        raise RecordsError(ErrorCode.CORRUPT_MESSAGE, "a control batch without a control record's key", 0)
    version, code = _KEY.unpack_from(key)
    if version < 0:
        raise RecordsError(ErrorCode.CORRUPT_MESSAGE, f"a control record of version {version}", 0)
    return code, columns.values[0]
