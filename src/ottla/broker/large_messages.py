"""Messages of very many elements: which are too large to be encoded in a turn, and how they are let go of.

To free a message of 50,000 structs takes 25 ms and cannot be interrupted, wherever the last reference to it is dropped:
that of a dead message would be the longest turn of a large request. So its structs are listed, each before those
that it holds, and dropped from the list a few at a time (`Turns.let_go`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from ottla.protocol.schema import Field, schema_of
from ottla.protocol.wire import BYTES

ENCODED_AT_ONCE_MAX = 2000  # elements of an answer
BYTES_LIKE_AN_ELEMENT = 1024  # of what clients wrote: as many are copied in the time that an element takes


def is_large(message: Any) -> bool:
    """Whether a message has more elements, or more bytes of clients in them, than are encoded at once."""
    return _room_after(message, ENCODED_AT_ONCE_MAX) < 0


class _Kind(Enum):
    """What in a field may be large."""

    ARRAY = auto()
    ARRAY_OF_STRUCTS = auto()  # that may be large in turn
    STRUCT = auto()
    BYTES = auto()


def _room_after(message: Any, room: int) -> int:
    for name, kind in _large_fields(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        if kind is _Kind.STRUCT:
            room = _room_after(value, room)
        elif kind is _Kind.BYTES:
            room -= len(value) // BYTES_LIKE_AN_ELEMENT
        else:
            room -= len(value)
            if room >= 0 and kind is _Kind.ARRAY_OF_STRUCTS:
                for element in value:
                    room = _room_after(element, room)
                    if room < 0:
                        return room
        if room < 0:
            return room
    return room


_known_large_fields: dict[type, tuple[tuple[str, _Kind], ...]] = {}


def _large_fields(cls: type) -> tuple[tuple[str, _Kind], ...]:
    """The names of the fields of a message that may be large."""
    known = _known_large_fields.get(cls)
    if known is None:
        kinds = ((one.name, _kind_of(one)) for one in schema_of(cls).fields)
        known = tuple((name, kind) for name, kind in kinds if kind is not None)
        _known_large_fields[cls] = known
    return known


def _kind_of(field: Field) -> _Kind | None:
    may_be_large = field.struct is not None and bool(_large_fields(field.struct))
    if field.is_array:
        return _Kind.ARRAY_OF_STRUCTS if may_be_large else _Kind.ARRAY
    if field.wire_type is BYTES:
        return _Kind.BYTES
    return _Kind.STRUCT if may_be_large else None


def structs_of(message: Any) -> list[Any]:
    """A message and all structs in it, each before those that it holds."""
    found = [message]
    for one in found:  # which grows meanwhile
        for name, is_array in _struct_fields(type(one)):
            value = getattr(one, name)
            if not value:
                continue
            if is_array:
                found.extend(value)
            else:
                found.append(value)
    return found


_known_struct_fields: dict[type, tuple[tuple[str, bool], ...]] = {}


def _struct_fields(cls: type) -> tuple[tuple[str, bool], ...]:
    """The names of the fields of a message that hold structs, and whether they hold several."""
    known = _known_struct_fields.get(cls)
    if known is None:
        known = tuple((one.name, one.is_array) for one in schema_of(cls).fields if one.struct is not None)
        _known_struct_fields[cls] = known
    return known
