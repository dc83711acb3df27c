# The compiled core has the interface of the reference, by definition.
from typing_extensions import Buffer

from ottla.records.reference import ColumnsDecoder as ColumnsDecoder
from ottla.records.reference import KeyOffsetMap as KeyOffsetMap
from ottla.records.reference import check_batch as check_batch
from ottla.records.reference import check_records as check_records
from ottla.records.reference import crc32c as crc32c
from ottla.records.reference import decode_avro as decode_avro
from ottla.records.reference import decode_columns as decode_columns
from ottla.records.reference import decode_named as decode_named
from ottla.records.reference import decode_records as decode_records
from ottla.records.reference import encode_columns as encode_columns
from ottla.records.reference import encode_records as encode_records
from ottla.records.reference import first_at_or_after as first_at_or_after
from ottla.records.reference import group_rows as group_rows
from ottla.records.reference import partitions_of_column as partitions_of_column
from ottla.records.reference import partitions_of_keys as partitions_of_keys
from ottla.records.reference import read_header as read_header
from ottla.records.reference import retain as retain
from ottla.records.reference import scan as scan
from ottla.records.reference import split_columns as split_columns
from ottla.records.reference import stamp_plain as stamp_plain
from ottla.records.reference import walk_run as walk_run

def crc32c_portable(data: Buffer, value: int = 0) -> int: ...
def siphash(secret: bytes, data: Buffer) -> bytes: ...
