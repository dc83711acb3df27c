"""Columns that a user gives: what is taken, and what is refused at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.errors import SerializationError
from ottla.client.producer.columns import columns_of
from ottla.records import batch

pa = pytest.importorskip("pyarrow")


class Series:
    """As pandas and polars give their columns to Arrow."""

    def __init__(self, column: list[Any]) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002 (Arrow's name)
        return pa.array(self._column)


def numpy_of(column: list[Any]) -> Any:
    return pytest.importorskip("numpy").array(column, dtype=object)


KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "arrow": pa.array,
    "chunks": lambda column: pa.chunked_array([pa.array(column)]),
    "series": Series,
    "numpy": numpy_of,
}


@pytest.mark.parametrize("of_keys", KINDS)
@pytest.mark.parametrize("of_values", KINDS)
def test_columns_of_every_kind_go_together(of_values: str, of_keys: str) -> None:
    values, keys = KINDS[of_values]([b"a", None, b"c"]), KINDS[of_keys]([None, b"k", b"l"])
    decoded = batch.decode(bytes(columns_of(values, keys, KINDS[of_keys]([1, 2, 3]), None, 7).build()))
    assert [value and bytes(value) for value in decoded.values] == [b"a", None, b"c"]
    assert [key and bytes(key) for key in decoded.keys] == [None, b"k", b"l"]
    assert list(decoded.timestamps) == [1, 2, 3]


def test_without_timestamps_records_have_the_time_of_the_call() -> None:
    decoded = batch.decode(bytes(columns_of([b"a", b"b"], None, None, [{"x": b"y"}, ()], 7).build()))
    assert list(decoded.timestamps) == [7, 7]
    assert [list(headers) for headers in decoded.headers] == [[("x", b"y")], []]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"values": "text"}, TypeError, "the values are a column.* not str"),
        ({"values": b"bytes"}, TypeError, "the values are a column.* not bytes"),
        ({"values": None}, TypeError, "the values are a column"),
        ({"values": {"a": b"b"}}, TypeError, "the values are a column.* not dict"),
        ({"values": 7}, TypeError, "the values are a column.* not int"),
        ({"values": [b"a", "text"]}, SerializationError, "the values of records are bytes or None, and one is str"),
        ({"values": [1, 2]}, SerializationError, "one is int"),
        ({"keys": ["k", "l"]}, SerializationError, "the keys of records are bytes or None, and one is str"),
        ({"keys": [b"k"]}, ValueError, "1 beside 2"),
        ({"timestamps": ["now", "then"]}, ValueError, "timestamps count milliseconds"),
        ({"timestamps": [1, -2]}, ValueError, "timestamps count milliseconds"),
        ({"timestamps": -1}, ValueError, "timestamps count milliseconds"),
        ({"timestamps": 1.5}, TypeError, "the timestamps are a column"),
        ({"headers": [1, 2]}, TypeError, "pairs of a name and bytes"),
        ({"headers": [["a"], []]}, TypeError, "pairs of a name and bytes"),
        ({"headers": [[("a", "b")], []]}, TypeError, "a header is a name and bytes"),
        ({"values": pa.array([1, 2])}, SerializationError, "columns are of bytes or text"),
        ({"values": pa.table({"a": [b"a", b"b"]})}, SerializationError, "columns are of bytes or text"),
        ({"values": pa.array([b"a", b"b"]), "keys": [b"k"]}, ValueError, "1 keys beside 2 values"),
        ({"values": pa.array([b"a", b"b"]), "timestamps": ["now", "then"]}, SerializationError, "milliseconds"),
        ({"values": pa.array([b"a", b"b"]), "headers": [1, 2]}, SerializationError, "headers"),
    ],
)
def test_what_is_no_column_of_records_is_refused_at_the_call(
    wrong: dict[str, Any], error: type[Exception], words: str
) -> None:
    given: dict[str, Any] = {"values": [b"a", b"b"], "keys": None, "timestamps": None, "headers": None, **wrong}
    with pytest.raises(error, match=words):
        columns_of(**given, now_ms=7)
