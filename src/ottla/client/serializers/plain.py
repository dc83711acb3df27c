"""Bytes, text, numbers and UUIDs, as Java's serializers write them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.serializers.base import Context


class RawBytes:
    def dumps(self, value: bytes, context: Context) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"bytes are wanted, not {type(value).__name__}; name a serializer for anything else")
        return bytes(value)

    def loads(self, data: bytes, context: Context) -> bytes:
        return data


@dataclass(frozen=True, slots=True)
class Text:
    encoding: str = "utf-8"

    def dumps(self, value: str, context: Context) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"text is wanted, not {type(value).__name__}")
        return value.encode(self.encoding)

    def loads(self, data: bytes, context: Context) -> str:
        return data.decode(self.encoding)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A signed number, big end first: 2 bytes as Java's Short, 4 as its Integer, 8 as its Long."""

    size_bytes: int

    def dumps(self, value: int, context: Context) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"a whole number is wanted, not {type(value).__name__}")
        return value.to_bytes(self.size_bytes, "big", signed=True)

    def loads(self, data: bytes, context: Context) -> int:
        if len(data) != self.size_bytes:
            raise ValueError(f"{self.size_bytes} bytes are wanted, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)


@dataclass(frozen=True, slots=True)
class FloatingPoint:
    """IEEE 754, big end first: `>f` as Java's Float, `>d` as its Double."""

    layout: str

    def dumps(self, value: float, context: Context) -> bytes:
        return struct.pack(self.layout, value)

    def loads(self, data: bytes, context: Context) -> float:
        size = struct.calcsize(self.layout)
        if len(data) != size:
            raise ValueError(f"{size} bytes are wanted, not {len(data)}")
        (number,) = struct.unpack(self.layout, data)
        return float(number)


class UuidText:
    """As text of 36 characters, in the manner of Java's UUIDSerializer."""

    def dumps(self, value: UUID, context: Context) -> bytes:
        if not isinstance(value, UUID):
            raise TypeError(f"a UUID is wanted, not {type(value).__name__}")
        return str(value).encode("ascii")

    def loads(self, data: bytes, context: Context) -> UUID:
        return UUID(data.decode("ascii"))


raw_bytes: Final = RawBytes()
text: Final = Text()
big_endian_short: Final = WholeNumber(2)
big_endian_int: Final = WholeNumber(4)
big_endian_long: Final = WholeNumber(8)
big_endian_float: Final = FloatingPoint(">f")
big_endian_double: Final = FloatingPoint(">d")
uuid_text: Final = UuidText()
