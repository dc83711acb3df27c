"""Picks the record core: the compiled one where it was built, the Python reference otherwise.

`OTTLA_PURE_PYTHON` in the environment forces the reference, to see whether a fault is in the compiled code. Programs
say at their start that the core is missing (`ottla.compiled`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.compiled import is_pure_python_asked_for

if TYPE_CHECKING:
    from ottla.records import reference as core

    NATIVE: bool
elif is_pure_python_asked_for():
    from ottla.records import reference as core

    NATIVE = False
else:
    try:
        from ottla.records import _native as core

        NATIVE = True
    except ImportError:
        from ottla.records import reference as core

        NATIVE = False

BatchWriter = core.BatchWriter
ColumnsDecoder = core.ColumnsDecoder
KeyOffsetMap = core.KeyOffsetMap
OpenBatches = core.OpenBatches
RecordPlace = core.RecordPlace
check_batch = core.check_batch
check_records = core.check_records
crc32c = core.crc32c
decode_columns = core.decode_columns
decode_named = core.decode_named
decode_records = core.decode_records
encode_columns = core.encode_columns
encode_records = core.encode_records
first_at_or_after = core.first_at_or_after
group_rows = core.group_rows
partitions_of_column = core.partitions_of_column
partitions_of_keys = core.partitions_of_keys
read_header = core.read_header
refused_records = core.refused_records
retain = core.retain
scan = core.scan
split_columns = core.split_columns
stamp_plain = core.stamp_plain
walk_run = core.walk_run

__all__ = [
    "NATIVE",
    "BatchWriter",
    "ColumnsDecoder",
    "KeyOffsetMap",
    "OpenBatches",
    "RecordPlace",
    "check_batch",
    "check_records",
    "core",
    "crc32c",
    "decode_columns",
    "decode_named",
    "decode_records",
    "encode_columns",
    "encode_records",
    "first_at_or_after",
    "group_rows",
    "partitions_of_column",
    "partitions_of_keys",
    "read_header",
    "refused_records",
    "retain",
    "scan",
    "split_columns",
    "stamp_plain",
    "walk_run",
]
