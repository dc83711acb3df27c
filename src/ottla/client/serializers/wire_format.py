"""Confluent's wire format: how bytes say which schema they were written with. Pure.

| form   | where                                       | bytes                                                     |
|--------|---------------------------------------------|-----------------------------------------------------------|
| prefix | before the value                            | 0, the id in 4 bytes, (indexes)                           |
| header | header `__key_schema_id`, `__value_schema_id` | 1, the GUID in 16 bytes, (indexes); the value is bare     |

The indexes are Protobuf's alone: the path to the message type in its file, outermost first, as zigzag varints after
their number; the usual path, the first message of the file, is the single byte 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

BY_ID: Final = 0
BY_GUID: Final = 1
PREFIX_BYTES: Final = 5
GUID_BYTES: Final = 17
KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

INDEXES_MAX: Final = 64  # how deep messages may be nested
_VARINT_BYTES_MAX: Final = 5
_FIRST_MESSAGE: Final = (0,)

SchemaKey = int | UUID


class FormatError(ValueError):
    """Bytes that are not in the wire format. `data` has them as they came."""

    def __init__(self, message: str, data: bytes) -> None:
        super().__init__(message)
        self.data = data


class Framed(NamedTuple):
    """A value apart from what says how to read it. `indexes` is empty but for Protobuf."""

    schema: SchemaKey
    indexes: tuple[int, ...]
    body: bytes


def header_name(is_key: bool) -> str:
    return KEY_HEADER if is_key else VALUE_HEADER


def prefix_of(schema_id: int, indexes: Sequence[int] | None = None) -> bytes:
    return struct.pack(">BI", BY_ID, schema_id) + _indexes(indexes)


def header_of(guid: UUID, indexes: Sequence[int] | None = None) -> bytes:
    return bytes((BY_GUID,)) + guid.bytes + _indexes(indexes)


def unframed(
    data: bytes, headers: Iterable[tuple[str, bytes | None]], *, is_key: bool, has_indexes: bool = False
) -> Framed:
    """Takes a value apart: the header counts where there is one, else the prefix."""
    wanted = header_name(is_key)
    for name, mark in headers:
        if name == wanted and mark is not None:
            schema, indexes, end = _mark(mark, has_indexes)
            if end != len(mark):
                raise FormatError(f"the header {wanted} has {len(mark)} bytes, and only {end} belong to it", mark)
            return Framed(schema, indexes, data)
    schema, indexes, end = _mark(data, has_indexes)
    return Framed(schema, indexes, data[end:])


def _mark(data: bytes, has_indexes: bool) -> tuple[SchemaKey, tuple[int, ...], int]:
    magic = data[0] if data else None
    schema: SchemaKey
    if magic == BY_ID and len(data) >= PREFIX_BYTES:
        schema, end = int.from_bytes(data[1:PREFIX_BYTES], "big"), PREFIX_BYTES
    elif magic == BY_GUID and len(data) >= GUID_BYTES:
        schema, end = UUID(bytes=bytes(data[1:GUID_BYTES])), GUID_BYTES
    elif magic in (BY_ID, BY_GUID):
        raise FormatError(f"{len(data)} bytes are too few to name a schema", data)
    else:
        begins = "nothing" if magic is None else f"byte {magic}"
        raise FormatError(f"not written with a schema registry: it begins with {begins}, not with 0 and an id", data)
    if not has_indexes:
        return schema, (), end
    indexes, end = _read_indexes(data, end)
    return schema, indexes, end


def _indexes(indexes: Sequence[int] | None) -> bytes:
    if indexes is None:
        return b""
    if tuple(indexes) == _FIRST_MESSAGE:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    """Zigzag; numbers are never negative here, so that is twice the number."""
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for count in range(_VARINT_BYTES_MAX):
        if at + count >= len(data):
            break
        byte = data[at + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if number & 1:
                break  # negative
            return number >> 1, at + count + 1
    raise FormatError("the message indexes after the schema id cannot be read", data)


def _read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _read_varint(data, at)
    if count > INDEXES_MAX:
        raise FormatError(f"{count} message indexes, and messages are nested at most {INDEXES_MAX} deep", data)
    if not count:
        return _FIRST_MESSAGE, at
    found: list[int] = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        found.append(index)
    return tuple(found), at
