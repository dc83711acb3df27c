"""Values to bytes and back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from ottla.client import serializers
from ottla.client.errors import SerializationError, SettingsError
from ottla.client.serializers import Context
from ottla.client.serializers.base import serialize

VALUE = Context("orders", is_key=False)


@dataclass(frozen=True)
class Line:
    article: str
    count: int


@dataclass(frozen=True)
class Order:
    number: int
    lines: list[Line]
    gift: Line | None = None
    tags: tuple[str, ...] = ()
    by_name: dict[str, Line] = field(default_factory=dict)


ORDER = Order(7, [Line("pen", 2)], Line("card", 1), ("new",), {"x": Line("ink", 3)})


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serializers.raw_bytes, b"\x00\xff", b"\x00\xff"),
        (serializers.text, "grün", "grün".encode()),
        (serializers.big_endian_short, -2, b"\xff\xfe"),
        (serializers.big_endian_int, -2, b"\xff\xff\xff\xfe"),
        (serializers.big_endian_long, 258, b"\0\0\0\0\0\0\x01\x02"),
        (serializers.big_endian_float, 1.5, b"\x3f\xc0\0\0"),
        (serializers.big_endian_double, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (serializers.uuid_text, UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (serializers.json_values, {"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        (serializers.dataclass_values(Line), Line("pen", 2), b'{"article":"pen","count":2}'),
    ],
)
def test_a_value_survives_as_java_would_write_it(serde, value, data):
    assert serde.dumps(value, VALUE) == data
    assert serde.loads(data, VALUE) == value


def test_dataclasses_may_hold_others():
    serde = serializers.dataclass_values(Order)
    assert serde.loads(serde.dumps(ORDER, VALUE), VALUE) == ORDER


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Everything:
    id: UUID
    at: datetime
    day: date
    price: Decimal
    colour: Colour
    raw: bytes
    took: timedelta
    share: float
    tags: frozenset[str]
    either: Line | Colour | int
    maybe: Line | Colour | None
    counts: dict[int, float]
    nothing: UUID | None = None


EVERYTHING = Everything(
    UUID(int=1),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    date(2026, 1, 2),
    Decimal("1.50"),
    Colour.RED,
    b"\xff\0",
    timedelta(seconds=1.5),
    2.0,
    frozenset({"a"}),
    5,
    Line("pen", 1),
    {1: 2.0},
)


def test_fields_may_have_types_that_json_lacks():
    serde = serializers.dataclass_values(Everything)
    assert serde.loads(serde.dumps(EVERYTHING, VALUE), VALUE) == EVERYTHING
    red = replace(EVERYTHING, either=Colour.RED, maybe=None)
    assert serde.loads(serde.dumps(red, VALUE), VALUE) == red


def test_what_fits_no_kind_of_a_union_is_refused():
    serde = serializers.dataclass_values(Everything)
    data = serde.dumps(EVERYTHING, VALUE).replace(b'"either":5', b'"either":[5]')
    with pytest.raises(TypeError, match="list fits none of"):
        serde.loads(data, VALUE)


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (serializers.raw_bytes, "text", "the value of a record for orders cannot be serialized: bytes are wanted"),
        (serializers.text, b"bytes", "text is wanted, not bytes"),
        (serializers.big_endian_int, 2**31, "too big"),
        (serializers.big_endian_int, True, "a whole number is wanted"),
        (serializers.json_values, {1, 2}, "not JSON serializable"),
        (serializers.json_values, float("nan"), "JSON compliant"),
        (serializers.dataclass_values(Line), ORDER, "a Line is wanted, not Order"),
        (lambda value: value + 1, 1, "returned int, not bytes"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_says_where(serde, value, message):
    dump = serializers.serializer_of(serde, "value_serializer")
    assert dump is not None
    with pytest.raises(SerializationError) as caught:
        serialize(dump, value, VALUE)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serializers.big_endian_long, b"\0"),
        (serializers.big_endian_double, b"\0"),
        (serializers.dataclass_values(Line), b"[]"),
        (serializers.dataclass_values(Line), b'{"article":"pen","colour":1}'),
    ],
)
def test_bytes_of_something_else_are_refused(serde, data):
    with pytest.raises((ValueError, TypeError)):
        serde.loads(data, VALUE)


def test_a_serializer_is_an_object_or_a_callable():
    assert serializers.serializer_of(None, "key_serializer") is None
    dump = serializers.serializer_of(str.encode, "key_serializer")
    assert dump is not None
    assert dump("a", VALUE) == b"a"
    load = serializers.deserializer_of(bytes.decode, "key_deserializer")
    assert load is not None
    assert load(b"a", VALUE) == "a"
    with pytest.raises(SettingsError, match="neither a Serializer nor callable: 5"):
        serializers.serializer_of(5, "key_serializer")


def test_nothing_stays_nothing():
    dump = serializers.serializer_of(serializers.text, "x")
    assert dump is not None
    assert serialize(dump, None, VALUE) is None
