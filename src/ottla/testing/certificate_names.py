"""As much of a certificate as its subject needs, byte by byte: also names that no library would make."""

from __future__ import annotations

from collections.abc import Iterable

UTF8 = 0x0C
_SEQUENCE, _SET, _INTEGER, _IDENTIFIER, _VERSION = 0x30, 0x31, 0x02, 0x06, 0xA0

# Object identifier, tag and bytes of the value.
Attribute = tuple[str, int, bytes]


def certificate_of(*parts: Iterable[Attribute], has_version: bool = True) -> bytes:
    """A certificate in DER with a subject of these parts, each of one or more attributes."""
    nothing = der(_SEQUENCE)
    version = der(_VERSION, der(_INTEGER, b"\x02")) if has_version else b""
    subject = der(_SEQUENCE, *(der(_SET, *map(_attribute, part)) for part in parts))
    fields = der(_SEQUENCE, version, der(_INTEGER, b"\x05"), nothing, nothing, nothing, subject, nothing)
    return der(_SEQUENCE, fields, nothing)


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _attribute(attribute: Attribute) -> bytes:
    identifier, tag, value = attribute
    first, second, *others = map(int, identifier.split("."))
    numbers = b"".join(map(_base_128, (40 * first + second, *others)))
    return der(_SEQUENCE, der(_IDENTIFIER, numbers), der(tag, value))


def _base_128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
