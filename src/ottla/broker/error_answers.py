"""The answer that says one error for a whole request, for any API: in its own field, or for each thing that was named.

Where a response has no error of its own, it has one for each topic, partition, group or resource of the request. Which
of them belong together is read from the names of the fields, so that an API cannot be forgotten. Nothing of a request
is repeated but what says which entry is meant; the rest is as in Kafka, where a number that nobody set is 0.
There may be very many entries, so it is done in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.schema import REQUIRED, Field, schema_of
from ottla.protocol.versions import Api
from ottla.protocol.wire import BYTES, RECORDS, STRING, UUID16, ZERO_UUID
from ottla.runtime.turns import Steps

FETCH_KEY: Final = 1
FIRST_TOPIC_ID_VERSION: Final = 13  # of Fetch: from here on its error stands for those of all partitions
ERROR_CODES: Final = ("error_code", "partition_error_code")
# What a topic and a partition are called in requests, and in responses.
TOPIC_NAMES: Final = ("name", "topic", "topic_name", "user")
PLAIN_NAMES: Final = ("name", "user", "group_id", "key", "transactional_id")  # of entries that are no more than a name
PARTITION_NAMES: Final = ("partition_index", "partition", "index", "partition_id")
# What else says which entry of a request an entry of the response is about.
OTHER_NAMES: Final = (
    "topic_id",
    "group_id",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
    "entity_type",
    "entity_name",
)
# Numbers that say "none" otherwise than by 0.
MINUS_ONE: Final = frozenset({"base_offset", "committed_offset", "high_watermark", "low_watermark", "node_id", "port"})


def _moved_topics(request: Any) -> list[Any]:
    return [topic for directory in request.dirs for topic in directory.topics]


def _changed_users(request: Any) -> list[Any]:
    return list(dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions)))


# Entries of responses that stand for others of the request than those of a list, by API key.
ENTRIES: Final[dict[int, Callable[[Any], list[Any]]]] = {
    34: _moved_topics,
    35: lambda _: [],  # of directories, about which nothing is said
    43: lambda request: request.topic_partitions or [],  # also where the response has an error of its own
    45: lambda request: request.topics,  # the same
    46: lambda request: request.topics or [],  # which have no place for an error
    50: lambda _: [""],  # one, of nobody, beside the error of the response: as in Kafka
    51: _changed_users,
}
_NOBODY: Final = {"principal_type": "User", "principal_name": "ANONYMOUS"}
# What Kafka says besides, by API key.
SAID_BESIDES: Final[dict[int, dict[str, Any]]] = {
    22: {"producer_epoch": -1},
    38: {
        **_NOBODY,
        **{f"token_requester_{name}": value for name, value in _NOBODY.items()},
        **dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1),
    },
}


def error_answer(api: Api, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Steps[Any]:
    """The response of `api` that refuses all of `request`."""
    names_all = api.key == FETCH_KEY and version < FIRST_TOPIC_ID_VERSION
    return _answer(_Refusal(version, code, message, names_all=names_all), api, request)


def error_of_entries(api: Api, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Steps[Any]:
    """The same with an entry for each of the request, also where the response has an error of its own."""
    return _answer(_Refusal(version, code, message, names_all=True), api, request)


def _answer(refusal: _Refusal, api: Api, request: Any) -> Steps[Any]:
    entries = ENTRIES.get(api.key)
    answer = yield from refusal.of(api.response, request, None if entries is None else entries(request))
    for name, value in SAID_BESIDES.get(api.key, {}).items():
        if refusal.has(api.response, name):
            setattr(answer, name, value)
    return answer


class _Refusal:
    """One error, in the fields of any response."""

    def __init__(self, version: int, code: ErrorCode, message: str | None, *, names_all: bool) -> None:
        self._version = version
        self._code = code
        self._message = message
        self._names_all = names_all

    def of(self, cls: type, request: Any, entries: list[Any] | None) -> Steps[Any]:
        fields = self._fields(cls)
        values: dict[str, Any] = {}
        for field in fields:
            if entries is not None and field.is_array and field.struct is not None:
                values[field.name] = yield from self._entries(field.struct, entries)
            elif entries is None and _has_errors(field) and self._is_named(field, fields):
                values[field.name] = yield from self._entries(_struct(field), _items_of(field, request))
            else:
                values[field.name] = self._plain(field)
        return cls(**values)

    def _is_named(self, field: Field, fields: list[Field]) -> bool:
        """Whether every element has the error: where there is no other place for it, or where they are asked for."""
        return self._names_all or field.name == "entity" or all(one.name != "error_code" for one in fields)

    def _entries(self, cls: type, sources: list[Any]) -> Steps[list[Any]]:
        entries = []
        for source in sources:
            entries.append((yield from self._entry(cls, source)))
            yield
        return entries

    def _entry(self, cls: type, source: Any) -> Steps[Any]:
        """The entry of the response that stands for `source`, an entry of the request."""
        values: dict[str, Any] = {}
        fields = self._fields(cls)
        for field in fields:
            if field.struct is not None and field.is_array:
                items = _items_of(field, source) if self._is_named(field, fields) else []
                values[field.name] = yield from self._entries(field.struct, items)
            else:
                named = _named(field, source)
                values[field.name] = self._plain(field) if named is None else named
        return cls(**values)

    def has(self, cls: type, name: str) -> bool:
        return any(field.name == name for field in self._fields(cls))

    def _fields(self, cls: type) -> list[Field]:
        return [field for field in schema_of(cls).fields if self._version in field.versions]

    def _plain(self, field: Field) -> Any:
        """The error, or what says nothing."""
        is_nullable = self._version in field.nullable
        if field.name in ERROR_CODES:
            return self._code
        if field.name == "error_message":
            return self._message if self._message is not None or is_nullable else ""
        if field.name in MINUS_ONE:
            return -1
        if field.name == "metadata" and field.wire_type is STRING:
            return ""  # of a committed offset
        if field.default is not REQUIRED:
            return field.default
        if field.wire_type is RECORDS:
            return b""
        if is_nullable:
            return None
        if field.is_array:
            return []
        if field.struct is not None:
            return field.struct(**{one.name: self._plain(one) for one in self._fields(field.struct)})
        if field.wire_type is STRING:
            return ""
        if field.wire_type is BYTES:
            return b""
        return ZERO_UUID if field.wire_type is UUID16 else 0


def _struct(field: Field) -> type:
    assert field.struct is not None, f"{field.name} has no fields of its own"
    return field.struct


def _has_errors(field: Field) -> bool:
    """Whether it is an array whose elements, or theirs, have a place for an error."""
    return (
        field.is_array
        and field.struct is not None
        and any(one.name in ERROR_CODES or _has_errors(one) for one in schema_of(field.struct).fields)
    )


def _items_of(field: Field, source: Any) -> list[Any]:
    """The elements of the request that those of an array in the response stand for."""
    if source is None or isinstance(source, (int, str)):
        return []
    same = getattr(source, field.name, None)
    if isinstance(same, list):
        return same
    lists = [getattr(source, one.name) for one in schema_of(type(source)).fields if one.is_array]
    return next((items for items in lists if items), [])


def _named(field: Field, source: Any) -> Any:
    """What the field says of which entry is meant; None where it is about something else."""
    if isinstance(source, (int, str)):  # an element that is no more than a name or a number
        names = PLAIN_NAMES if isinstance(source, str) else PARTITION_NAMES
        return source if field.name in names else None
    if field.name in OTHER_NAMES:
        return getattr(source, field.name, None)
    for names in (TOPIC_NAMES, PARTITION_NAMES):
        if field.name in names:
            return next((value for name in names if (value := getattr(source, name, None)) is not None), None)
    return None
