"""Requests of which one array is as large as it may be: every array of every request, in any version.

`largest_requests` has what hurts where things exist. This has what nobody would send: topics without partitions by the
ten thousand, the same entry again and again, lists in lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any
from uuid import UUID

from ottla.protocol.schema import Field, schema_of
from ottla.protocol.versions import Api
from ottla.protocol.wire import INT8, INT16, STRING, UUID16, Primitive
from ottla.testing.messages import smallest_message

PARTITION_NAMES = frozenset({"partition_index", "partition", "index"})
IDS = frozenset({"group_id", "transactional_id", "v3_and_below_transactional_id", "member_id"})
NUMBERS_MAX: dict[object, int] = {
    INT8: 1 << 7,
    INT16: 1 << 15,
}  # how many there are that fit; of others there are enough
Path = tuple[Field, ...]


class Kind(StrEnum):
    """What the elements of the large array are like."""

    DIFFERENT = "different"
    SAME = "same"
    FULL = "each with one of its own"  # the array around the large one is large instead


def array_paths(cls: type, version: int, outer: Path = ()) -> Iterator[Path]:
    """The fields that lead to each array of a message."""
    for field in schema_of(cls).fields:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (*outer, field)
        if field.struct is not None:
            yield from array_paths(field.struct, version, (*outer, field))


def large_requests(api: Api, version: int, count: int) -> Iterator[tuple[str, Any]]:
    """A request for each array and each kind of elements, with its title."""
    for path in array_paths(api.request, version):
        title = ".".join(field.name for field in path)
        for kind in Kind:
            if kind is Kind.FULL and not (len(path) > 1 and path[-2].is_array):
                continue
            yield f"{api.name} {version}: {title}, {kind}", large_request(api, version, path, count, kind)


def large_request(api: Api, version: int, path: Path, count: int, kind: Kind) -> Any:
    request: Any = smallest_message(api.request, version)
    values = {"timeout_ms": 1000, "acks": 1, "validate_only": True} | dict.fromkeys(IDS, "one")
    for field in schema_of(api.request).fields:
        if version in field.versions and field.name in values:
            setattr(request, field.name, values[field.name])
    if kind is Kind.FULL:
        for one in _filled(request, path[:-1], version, count // 2, kind):
            setattr(one, path[-1].name, [_element(path[-1], 0, version)])
    else:
        _filled(request, path, version, count, kind)
    return request


def _filled(message: Any, path: Path, version: int, count: int, kind: Kind) -> list[Any]:
    """Makes the array at the end of a path large; those on the way have one element."""
    *outer, last = path
    for field in outer:
        inner = getattr(message, field.name)
        if field.is_array:
            inner = [_element(field, 0, version)]
        elif inner is None:
            inner = _element(field, 0, version)
        setattr(message, field.name, inner)
        message = inner[0] if field.is_array else inner
    elements = [_element(last, 0 if kind is Kind.SAME else number, version) for number in range(count)]
    setattr(message, last.name, elements)
    return elements


def _element(field: Field, number: int, version: int) -> Any:
    if isinstance(field.wire_type, Primitive):
        return _value(field, number)
    element: Any = smallest_message(field.wire_type, version)
    for inner in schema_of(field.wire_type).fields:
        is_name = inner.wire_type in (STRING, UUID16) or inner.name in PARTITION_NAMES
        if is_name and version in inner.versions and not inner.is_array:
            setattr(element, inner.name, _value(inner, number))
    return element


def _value(field: Field, number: int) -> Any:
    if field.wire_type is STRING:
        return f"n{number}"
    if field.wire_type is UUID16:
        return UUID(int=number + 1)
    return number % NUMBERS_MAX.get(field.wire_type, number + 1)
