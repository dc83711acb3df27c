"""From values to bytes and back.

    Producer(..., key_serializer=text, value_serializer=json_values)
    Producer(..., value_serializer=dataclass_values(Order))
    Producer(..., value_serializer=lambda order: order.to_bytes())

A `Serde` does both directions and knows for what: the topic, whether it is a key or a value, and the headers, which it
may add to. A plain callable will do as well. None stays None in both directions: it marks a deletion.
"""

from __future__ import annotations

from ottla.client.serializers.base import (
    BadRecordPolicy,
    Context,
    Deserializer,
    Serde,
    Serializer,
    deserializer_of,
    serializer_of,
)
from ottla.client.serializers.plain import (
    big_endian_double,
    big_endian_int,
    big_endian_long,
    raw_bytes,
    text,
    uuid_text,
)
from ottla.client.serializers.structured import dataclass_values, json_values

__all__ = [
    "BadRecordPolicy",
    "Context",
    "Deserializer",
    "Serde",
    "Serializer",
    "big_endian_double",
    "big_endian_int",
    "big_endian_long",
    "dataclass_values",
    "deserializer_of",
    "json_values",
    "raw_bytes",
    "serializer_of",
    "text",
    "uuid_text",
]
