"""The answer that says one error for a whole request, for any API: in its own field, or for each thing that was named.

Where a response has no error of its own, it has one for each topic, partition, group or resource of the request. Which
of them belong together is read from the names of the fields, so that an API cannot be forgotten. That takes a while for
each, so it is done in steps.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.schema import REQUIRED, Field, schema_of
from ottla.protocol.versions import Api
from ottla.protocol.wire import BYTES, RECORDS, STRING, UUID16, ZERO_UUID, Primitive
from ottla.runtime.turns import Steps

# What a partition is called in requests, and in responses.
PARTITION_NAMES = ("partition_index", "partition", "index")


def error_answer(api: Api, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Steps[Any]:
    """The response of `api` that refuses all of `request`."""
    return (yield from _answer(api.response, request, version, code, message))


def _answer(cls: type, source: Any, version: int, code: ErrorCode, message: str | None) -> Steps[Any]:
    values: dict[str, Any] = {}
    fields = [field for field in schema_of(cls).fields if version in field.versions]
    has_error = any(field.name == "error_code" for field in fields)
    named = _name_of(source)
    for field in fields:
        own = getattr(source, field.name, None)
        if field.name in ("error_code", "partition_error_code"):
            values[field.name] = code
        elif field.name == "error_message":
            values[field.name] = message if message is not None or version in field.nullable else ""
        elif field.is_array:
            items = [] if has_error and not _is_per_item(field, source) else _items_of(field, source)
            answers = values[field.name] = []
            if field.struct is not None:
                for item in items:
                    answers.append((yield from _answer(field.struct, item, version, code, message)))
                    yield
        elif named is not None and _is_like(field, named):
            values[field.name], named = named, None
        elif field.name in PARTITION_NAMES and _partition_of(source) is not None:
            values[field.name] = _partition_of(source)
        elif own is not None and _is_like(field, own):
            values[field.name] = own
        elif field.struct is not None:
            if version not in field.nullable:
                values[field.name] = yield from _answer(field.struct, None, version, code, message)
            else:
                values[field.name] = None
        else:
            values[field.name] = _neutral(field, version)
    return cls(**values)


def _is_per_item(field: Field, source: Any) -> bool:
    """Whether the elements stand for those that the request lists under the same name."""
    return field.struct is not None and bool(getattr(source, field.name, None))


def _items_of(field: Field, source: Any) -> list[Any]:
    """The elements of the request that those of an array in the response stand for."""
    if field.struct is None or source is None or isinstance(source, (int, str)):
        return []
    same = getattr(source, field.name, None)
    if isinstance(same, list):
        return same
    lists = [getattr(source, one.name) for one in schema_of(type(source)).fields if one.is_array]
    return next((items for items in lists if items), [])


def _name_of(source: Any) -> Any:
    """An element that is no more than a name or a number."""
    return source if isinstance(source, (int, str)) else None


def _partition_of(source: Any) -> int | None:
    for name in PARTITION_NAMES:
        value = getattr(source, name, None)
        if isinstance(value, int):
            return value
    return None


def _is_like(field: Field, value: Any) -> bool:
    if field.wire_type is STRING:
        return isinstance(value, str)
    if field.wire_type is UUID16:
        return not isinstance(value, (str, int, bytes, list))
    is_number = isinstance(field.wire_type, Primitive) and field.wire_type not in (BYTES, RECORDS)
    return is_number and isinstance(value, int) and field.name != "throttle_time_ms"


def _neutral(field: Field, version: int) -> Any:
    """What says nothing."""
    if field.default is not REQUIRED:
        return field.default
    if version in field.nullable:
        return None
    if field.wire_type is STRING:
        return ""
    if field.wire_type in (BYTES, RECORDS):
        return b""
    return ZERO_UUID if field.wire_type is UUID16 else -1
