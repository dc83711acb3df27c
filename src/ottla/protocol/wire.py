"""The primitive types of the wire, their limits, and how variable-length integers are read and written.

Everything is big-endian. A length that comes from a peer is checked against what is left of the frame, and
against the limits below, before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Protocol
from uuid import UUID

from ottla.errors import ProtocolError

ARRAY_ELEMENTS_MAX: Final = 1_000_000
TAGGED_FIELDS_MAX: Final = 10_000
STRING_BYTES_MAX: Final = 32_767

ZERO_UUID: Final = UUID(int=0)
# The types of records that are in memory; anything else is a `FilePart`.
IN_MEMORY: Final = frozenset((bytes, bytearray, memoryview))


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type that is not a struct. `code` is its letter for `struct`, empty for what has a length prefix."""

    name: str
    code: str = ""

    @property
    def size(self) -> int:
        return struct.calcsize(">" + self.code)

    def __repr__(self) -> str:
        return self.name


BOOL = Primitive("bool", "?")
INT8 = Primitive("int8", "b")
INT16 = Primitive("int16", "h")
UINT16 = Primitive("uint16", "H")
INT32 = Primitive("int32", "i")
UINT32 = Primitive("uint32", "I")
INT64 = Primitive("int64", "q")
FLOAT64 = Primitive("float64", "d")
UUID16 = Primitive("uuid", "16s")
STRING = Primitive("string")
BYTES = Primitive("bytes")
RECORDS = Primitive("records")


class FilePart(Protocol):
    """Bytes that are not in memory, such as a slice of a segment file; connections know how to send them."""

    @property
    def size_bytes(self) -> int: ...


# The words of message classes: a type checker sees the Python type, the schema sees the wire type.
Bool = Annotated[bool, BOOL]
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
UInt32 = Annotated[int, UINT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[UUID, UUID16]
String = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
# Decoded as a memoryview of the frame: whoever keeps it longer than the frame copies it.
Records = Annotated[bytes | memoryview, RECORDS]
# Records on their way out may stay in a file; see `codec.encode_parts`.
RecordsOut = Annotated[bytes | memoryview | FilePart, RECORDS]


def read_uvarint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The unsigned 32-bit varint at `position`, and the position after it."""
    # Unrolled: the length of nearly every record batch takes two or three bytes and comes through here.
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, position + 2
    byte = buffer[position + 2]
    value += (byte << 14) - 0x4000
    if byte < 0x80:
        return value, position + 3
    byte = buffer[position + 3]
    value += (byte << 21) - 0x20_0000
    if byte < 0x80:
        return value, position + 4
    byte = buffer[position + 4]
    if byte > 0x0F:
        raise ProtocolError("a varint is longer than 32 bits")
    return value + (byte << 28) - 0x1000_0000, position + 5


def encode_uvarint(value: int) -> bytes:
    """The unsigned varint of `value`, which must not be negative."""
    if value < 0x80:
        return UVARINT_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


UVARINT_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Topic ids repeat from request to request, and a UUID is slow to build."""
    return UUID(bytes=raw)


@lru_cache(maxsize=256)
def array_unpacker(code: str, count: int) -> Callable[[bytes | memoryview, int], tuple[Any, ...]]:
    return struct.Struct(f">{count}{code}").unpack_from


@lru_cache(maxsize=256)
def array_packer(code: str, count: int) -> Callable[..., bytes]:
    return struct.Struct(f">{count}{code}").pack


# What generated decoders call off their fast path.


def read_string_length(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The length plus one of a compact string that does not fit in one byte, and the position after it."""
    length_plus_one, position = read_uvarint(buffer, position)
    if length_plus_one > STRING_BYTES_MAX + 1:
        raise ProtocolError(f"a string of {length_plus_one - 1} bytes: at most {STRING_BYTES_MAX} are allowed")
    return length_plus_one, position


def read_array_count(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The count plus one of a compact array that does not fit in one byte, and the position after it."""
    count_plus_one, position = read_uvarint(buffer, position)
    if count_plus_one > ARRAY_ELEMENTS_MAX + 1:
        raise ProtocolError(f"an array of {count_plus_one - 1} elements: at most {ARRAY_ELEMENTS_MAX} are allowed")
    return count_plus_one, position


def read_tag_count(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """How many tagged fields follow, and the position of the first."""
    count, position = read_uvarint(buffer, position)
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields: at most {TAGGED_FIELDS_MAX} are allowed")
    return count, position


def read_tag(buffer: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """The number of a tagged field, the position of its value and the position after it."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise ProtocolError(f"tagged field {tag} of {size} bytes runs past the end")
    return tag, position, end


def skip_tags(buffer: bytes | memoryview, position: int) -> int:
    """The position after a tag section of which no tag is known."""
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        _, _, position = read_tag(buffer, position)
    return position
