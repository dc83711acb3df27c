"""The record core in readable Python: what `_native.pyx` does fast, said plainly.

It is the specification that the compiled core is tested against, and what runs where there is no compiler.
Functions take any bytes-like object without copying it and raise `RecordsError`, nothing else, for any bytes
at all. Its parts are those of the compiled core; here is the interface of both, of which `codec` picks one.
"""

from ottla.records.reference.arrow import ColumnsDecoder, decode_columns, encode_columns
from ottla.records.reference.avro import decode_avro
from ottla.records.reference.batches import check_batch, read_header, scan
from ottla.records.reference.checksum import crc32c
from ottla.records.reference.compaction import KeyOffsetMap, retain
from ottla.records.reference.plain import stamp_plain, walk_run
from ottla.records.reference.rows import group_rows, partitions_of_column, partitions_of_keys, split_columns
from ottla.records.reference.sections import (
    check_records,
    decode_named,
    decode_records,
    encode_records,
    first_at_or_after,
    refused_records,
)
from ottla.records.reference.writer import BatchWriter, OpenBatches, RecordPlace

__all__ = [
    "BatchWriter",
    "ColumnsDecoder",
    "KeyOffsetMap",
    "OpenBatches",
    "RecordPlace",
    "check_batch",
    "check_records",
    "crc32c",
    "decode_avro",
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
