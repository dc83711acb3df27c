"""Messages with random content, made from their schema: for round trips, comparisons with other codecs, and fuzzing."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar
from uuid import UUID

from ottla.protocol.schema import REQUIRED, Field, schema_of
from ottla.protocol.wire import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID16, Primitive

Message = TypeVar("Message")

_LETTERS = "abcxyz019._- äßЖ中😀"
# Lengths on both sides of where a compact length takes a second byte.
_LENGTHS = (0, 1, 2, 3, 5, 8, 126, 127, 128, 200)


def random_message(cls: type[Message], version: int, random: Random, *, null_chance: float = 0.2) -> Message:
    """A message of which every field that the version has is random; the others keep their defaults.

    Nullable fields are null and tagged fields are left at their default by `null_chance`.
    """
    values: dict[str, Any] = {}
    for field in schema_of(cls).fields:
        if version not in field.versions:
            continue
        if field.tag is not None and random.random() < null_chance:
            continue
        values[field.name] = _random_value(field, version, random, null_chance)
    return cls(**values)


def smallest_message(cls: type[Message], version: int) -> Message:
    """A message with as little as possible: null where allowed, else empty or zero, tagged fields left out."""
    values: dict[str, Any] = {}
    for field in schema_of(cls).fields:
        if version not in field.versions or field.tag is not None:
            continue
        if version in field.nullable:
            values[field.name] = None
        elif field.is_array:
            values[field.name] = []
        elif field.default is REQUIRED:
            values[field.name] = _zero(field, version)
    return cls(**values)


def _zero(field: Field, version: int) -> Any:
    if not isinstance(field.wire_type, Primitive):
        return smallest_message(field.wire_type, version)
    zeros: dict[Primitive, Any] = {
        STRING: "",
        BYTES: b"",
        RECORDS: b"",
        UUID16: UUID(int=0),
        BOOL: False,
        FLOAT64: 0.0,
    }
    return zeros.get(field.wire_type, 0)


def _random_value(field: Field, version: int, random: Random, null_chance: float) -> Any:
    if version in field.nullable and random.random() < null_chance:
        return None
    if not field.is_array:
        return _random_element(field, version, random, null_chance)
    is_struct = field.struct is not None
    count = random.choice((0, 1, 1, 2, 3)) if is_struct or random.random() < 0.95 else 130
    return [_random_element(field, version, random, null_chance) for _ in range(count)]


def _random_element(field: Field, version: int, random: Random, null_chance: float) -> Any:
    kind = field.wire_type
    if not isinstance(kind, Primitive):
        return random_message(kind, version, random, null_chance=null_chance)
    if kind is STRING:
        return "".join(random.choices(_LETTERS, k=random.choice(_LENGTHS)))
    if kind in (BYTES, RECORDS):
        return random.randbytes(random.choice(_LENGTHS))
    if kind is UUID16:
        return UUID(bytes=random.randbytes(16))
    if kind is BOOL:
        return random.random() < 0.5
    if kind is FLOAT64:
        return random.uniform(-1e9, 1e9)
    return _random_integer(kind, random)


def _random_integer(kind: Primitive, random: Random) -> int:
    bits = kind.size * 8
    unsigned = random.choice((0, 1, 127, 128, (1 << (bits - 1)) - 1, (1 << bits) - 1, random.getrandbits(bits)))
    unsigned &= (1 << bits) - 1
    is_negative = kind.code.islower() and unsigned >> (bits - 1)
    return unsigned - (1 << bits) if is_negative else unsigned
