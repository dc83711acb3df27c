"""Keys and values of the records that coordinators write to their internal topics.

A key is an int16 record type and the body of version 0; a value is an int16 version and the body of that version. The
types are numbered for each topic on its own, so each has its own table. A type that a table lacks was written by a
newer broker: whoever loads the topic may skip the record.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Final

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages import (
    group_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from ottla.protocol.schema import message_schema_of, messages_in

KEY_VERSION: Final = 0
_PREFIX: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class RecordType:
    """One type of record: the classes of its key and of its value."""

    number: int
    key: type
    value: type


def _table(*modules: ModuleType) -> Mapping[int, RecordType]:
    keys: dict[int, type] = {}
    values: dict[int, type] = {}
    for cls in (cls for module in modules for cls in messages_in(vars(module))):
        number = message_schema_of(cls).record_type
        assert number is not None, f"{cls.__name__} needs a record type"
        (keys if cls.__name__.endswith("Key") else values)[number] = cls
    return MappingProxyType({number: RecordType(number, key, values[number]) for number, key in keys.items()})


GROUP_RECORDS: Final = _table(group_records, share_group_records, streams_group_records)
TRANSACTION_RECORDS: Final = _table(transaction_records)
SHARE_STATE_RECORDS: Final = _table(share_state_records)


def encode_key(key: object) -> bytes:
    number = message_schema_of(type(key)).record_type
    assert number is not None, f"{type(key).__name__} is not the key of a record"
    return _PREFIX.pack(number) + encode(key, KEY_VERSION)


def encode_value(value: object, version: int) -> bytes:
    return _PREFIX.pack(version) + encode(value, version)


def record_type_of(key: bytes | memoryview) -> int:
    """The number at the head of a key, whether a table has it or not."""
    return _read_prefix(key, "key")


def decode_key(table: Mapping[int, RecordType], key: bytes | memoryview) -> Any:
    """The key, of the class that its record type has in the table."""
    number = record_type_of(key)
    if number not in table:
        raise ProtocolError(f"there is no record type {number} in this topic")
    return decode(table[number].key, key, KEY_VERSION, _PREFIX.size)


def decode_value(record_type: RecordType, value: bytes | memoryview) -> Any:
    """The value of a record of that type."""
    return decode(record_type.value, value, _read_prefix(value, "value"), _PREFIX.size)


def _read_prefix(data: bytes | memoryview, what: str) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"the {what} of a coordinator's record ends early")
    (number,) = _PREFIX.unpack_from(data)
    return int(number)
