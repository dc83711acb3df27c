"""Avro by the batch gives what fastavro gives row by row: columns, rows that cannot be decoded, and their reasons."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from datetime import UTC
from decimal import Context as DecimalContext
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.serializers import AvroSerde, Context, SchemaRegistry
from ottla.records import codec, reference
from ottla.spark.decode import avro_batch, avro_rows, rows
from ottla.spark.decode.avro_rows import AvroPlan
from ottla.spark.decode.formats import Avro
from ottla.spark.decode.rows import DecodeRows, DecodingError
from ottla.testing.schema_registry import SchemaRegistryServer

CORES: list[Any] = [reference, codec.core] if codec.NATIVE else [reference]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "NATIVE", True)  # on the reference, too
    monkeypatch.setattr(rows, "_codecs", {})


WIDE = DecimalContext(prec=60)

# -- schemas, and values of them ---------------------------------------------------------------------------------------

PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20) | st.sampled_from(["x" * 40, "ü" * 9, "\U0010ffff", "\ud7ff\ue000", "\x00"])),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "int", "logicalType": "time-millis"}, st.times().map(lambda time: time.replace(microsecond=0))),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}, st.integers(-(10**38) + 1, 10**38 - 1)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, st.integers(-9999, 9999)),
    *(
        ({"type": "long", "logicalType": f"timestamp-{unit}"}, st.datetimes().map(lambda at: at.replace(tzinfo=UTC)))
        for unit in ("millis", "micros")
    ),
    *(
        ({"type": "long", "logicalType": f"local-timestamp-{unit}"}, st.datetimes())
        for unit in ("millis", "micros")
    ),
]  # fmt: skip


@st.composite
def typed(draw: Any, names: Iterator[int], depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and the values it has."""
    kind = draw(
        st.sampled_from(["plain", "plain", "union", "enum", "fixed", *["record", "array", "map"] * (depth < 3)])
    )
    name = f"N{next(names)}"
    if kind == "plain":
        schema, values = draw(st.sampled_from(PLAIN))
        if isinstance(schema, dict) and schema["logicalType"] == "decimal":
            values = values.map(lambda number, scale=schema["scale"]: Decimal(number).scaleb(-scale, WIDE))
        return schema, values
    if kind == "union":
        schema, values = draw(typed(names, depth))
        if isinstance(schema, list):
            return schema, values
        return draw(st.permutations(["null", schema])), st.none() | values
    if kind == "enum":
        symbols = ["A", "BB", "CCC"]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.sampled_from([0, 1, 7, 16]))
        if size == 7 and draw(st.booleans()):
            decimal = {"type": "fixed", "name": name, "size": 7, "logicalType": "decimal", "precision": 9, "scale": 0}
            return decimal, st.integers(-(10**9) + 1, 10**9 - 1).map(Decimal)
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        return draw(record(names, depth + 1))
    schema, values = draw(typed(names, depth + 1))
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=3), values, max_size=4)


@st.composite
def record(draw: Any, names: Iterator[int], depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [draw(typed(names, depth)) for _ in range(draw(st.integers(0, 4)))]
    schema = {
        "type": "record",
        "name": f"N{next(names)}",
        "fields": [{"name": f"f{number}", "type": each} for number, (each, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(fields)})


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    parsed, made = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        made.append(buffer.getvalue())
    return made


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """Bytes as they are, or changed, cut off or with more behind them."""
    how = draw(st.sampled_from(["whole", "whole", "changed", "cut", "longer"]))
    if how == "changed" and data:
        at = draw(st.integers(0, len(data) - 1))
        return data[:at] + bytes([draw(st.integers(0, 255) | st.sampled_from([1, 3, 0x80, 0xFF]))]) + data[at + 1 :]
    if how == "cut":
        return data[: draw(st.integers(0, len(data)))]
    return data + draw(st.binary(min_size=1, max_size=12)) if how == "longer" else data


@st.composite
def batches(draw: Any) -> tuple[Any, list[bytes | None]]:
    schema, values = draw(record(iter(range(1000))))
    whole = encoded(schema, draw(st.lists(values, max_size=6)))
    given = [draw(damaged(data)) for data in whole]
    return schema, [None if draw(st.integers(0, 5)) == 0 else data for data in given]


# -- both ways ---------------------------------------------------------------------------------------------------------


def run(plan: AvroPlan, values: pa.Array, headers: pa.Array | None = None) -> pa.Array:
    rows._codecs.clear()
    work = DecodeRows(plan, fails_fast=False)
    return work.run(values) if headers is None else work.run_with_headers(values, headers)


def as_fastavro(plan: AvroPlan, values: pa.Array, headers: pa.Array | None = None) -> pa.Array:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_rows, "NATIVE", False)
        return run(plan, values, headers)


ADDRESS = re.compile(r"0x[0-9a-f]+")  # of a stream, in errors of fastavro


def plain(array: pa.Array) -> list[Any]:
    """What can be compared: times as numbers, and a NaN like every other."""

    def of(array: pa.Array) -> pa.Array:
        if pa.types.is_struct(array.type):
            fields = [of(each) for each in array.flatten()]
            names = [each.name for each in array.type]
            mask = array.is_null()
            return pa.StructArray.from_arrays(fields, names, mask=mask) if fields else mask
        if pa.types.is_map(array.type):
            return pa.ListArray.from_arrays(
                array.offsets, of(pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])),
                mask=array.is_null(),
            )  # fmt: skip
        if pa.types.is_list(array.type):
            return pa.ListArray.from_arrays(array.offsets, of(array.values), mask=array.is_null())
        if pa.types.is_timestamp(array.type):
            return array.cast(pa.timestamp("us")).cast(pa.int64())
        return array.cast(pa.int32()) if pa.types.is_date(array.type) else array

    return [ADDRESS.sub("", repr(each)) for each in of(array).to_pylist()]


def same_on_all(schema: Any, values: list[bytes | None]) -> pa.Array:
    """Decodes on every core, checks that each has done what fastavro does, and returns that."""
    plan = AvroPlan.of(Avro(schema=schema), writes=False)
    data = pa.array([b"before", *values], pa.binary())[1:]
    expected = as_fastavro(plan, data)
    filled = []

    for core in CORES:

        def decode_avro(*given: Any, core: Any = core) -> Any:
            filled.append(core.decode_avro(*given))
            return filled[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro_batch, "core", SimpleNamespace(decode_avro=decode_avro))
            found = run(plan, data)
        found.validate(full=True)
        assert found.type == expected.type
        assert plain(found) == plain(expected)
    assert all(buffers == filled[0] for buffers in filled), "the cores filled different buffers"
    return found


@given(batches())
def test_a_batch_is_what_fastavro_makes_of_its_rows(batch: tuple[Any, list[bytes | None]]) -> None:
    same_on_all(*batch)


# -- by name -----------------------------------------------------------------------------------------------------------


def of_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def is_in_one_step(schema: Any) -> bool:
    return AvroPlan.of(Avro(schema=schema), writes=False).codec()._batch is not None


UNION = ["null", "long"]
ENUM = {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
LONGS = {"type": "array", "items": "long"}
MAP = {"type": "map", "values": "int"}


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("long", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0),  # not the shortest form
        ("long", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -(2**63)),
        ("int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("boolean", b"\x00", False),
        (UNION, b"\x00", None),
        (["long", "null"], b"\x00\x02", 1),
        (ENUM, b"\x02", "BLUE"),
        (FIXED, b"abc", b"abc"),
        ("string", b"\x08\xf4\x8f\xbf\xbf", "\U0010ffff"),
        (DECIMAL, b"\x00", Decimal("0.0")),
        (DECIMAL, b"\x04\xfc\x19", Decimal("-99.9")),
        (LONGS, b"\x03\x7e\x02\x04\x02\x06\x00", [1, 2, 3]),  # a block with any size, and one without
        (MAP, b"\x02\x02k\x02\x00", [("k", 1)]),
    ],
)
def test_bytes_that_are_sound_are_read_in_one_step(kind: Any, data: bytes, value: Any) -> None:
    assert is_in_one_step(of_field(kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_rows.AvroCodec, "_read", None)
        (row,) = (
            DecodeRows(AvroPlan.of(Avro(schema=of_field(kind)), writes=False), False).run(pa.array([data])).to_pylist()
        )
    assert row == {"decoded": {"a": value}, "error": None}
    same_on_all(of_field(kind), [data])


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("long", b""),
        ("long", b"\x80"),
        ("long", b"\x80" * 9 + b"\x02"),
        ("long", b"\x80" * 12 + b"\x00"),
        ("long", b"\x02\x02"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("boolean", b"\x02"),
        ("float", b"\x00\x00\x00"),
        ("double", b"\x00\x00\x00"),
        ("bytes", b"\x06ab"),
        ("bytes", b"\x01ab"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01ab"),
        ("string", b"\x03ab"),
        ("string", b"\x02\xff"),
        ("string", b"\x04\xc0\x80"),
        ("string", b"\x06\xed\xa0\x80"),
        ("string", b"\x06\xe0\x80\x80"),
        ("string", b"\x08\xf4\x90\x80\x80"),
        ("string", b"\x08\xf0\x80\x80\x80"),
        ("string", b"\x04\xe2\x82"),
        (FIXED, b"ab"),
        (ENUM, b"\x04"),
        (ENUM, b"\x01"),
        (UNION, b"\x04\x02"),
        (UNION, b"\x01\x02"),
        (UNION, b"\x03"),
        (MILLIS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (DECIMAL, b"\x04\x03\xe8"),
        (DECIMAL, b"\x24" + b"\x00" * 18),
        (LONGS, b"\x02"),
        (LONGS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"[:3]),
        (LONGS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        (MAP, b"\x04\x02k\x02\x02k\x04\x00"),  # a key twice: the last value of it counts
        (MAP, b"\x42" + b"".join(b"\x02" + bytes([number]) + b"\x02" for number in range(33)) + b"\x00"),
    ],
)
def test_odd_bytes_are_what_fastavro_says_and_leave_their_neighbours_alone(kind: Any, data: bytes) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}, *of_field(kind)["fields"]]}
    same_on_all(schema, [b"\x02t" + data, None, b"", b"\x02t" + data])


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "long", "string"],
        ["long"],
        {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "Nothing", "size": 0}},
        {"type": "long", "logicalType": "date"},
    ],
)
def test_a_schema_with_something_else_is_left_to_fastavro(kind: Any) -> None:
    assert not is_in_one_step(of_field(kind))


def test_a_row_that_is_refused_takes_nothing_from_lists_before_it() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "t", "type": "string"}, {"name": "l", "type": LONGS}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "i", "type": {"type": "array", "items": ["null", inner]}},
            {"name": "b", "type": "boolean"},
        ],
    }
    values = [
        {"i": [{"t": "one", "l": [1, 2]}, None], "b": True},
        {"i": [{"t": "two", "l": [3] * 100}] * 3, "b": False},
    ]
    first, second = encoded(schema, values)
    found = same_on_all(schema, [first, second[:-1] + b"\x07", second[:-2], first + b"x", second])
    found = found.to_pylist()
    assert [row["decoded"] for row in found[-1:]] == [values[1]]
    assert [bool(row["error"]) for row in found] == [False, False, True, True, False]


def test_a_time_that_python_has_not_is_a_time_whatever_is_beside_it() -> None:
    at = {"type": "long", "logicalType": "timestamp-micros"}
    alone, beside = of_field(at), of_field(at)
    beside["fields"].append({"name": "b", "type": "long"})
    number = b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"  # 292,000 years from now
    for schema, data in ((alone, number), (beside, number + b"\x02")):
        column = pa.array([data, data], pa.binary())
        found = run(AvroPlan.of(Avro(schema=schema), writes=False), column)
        assert plain(found) == plain(as_fastavro(AvroPlan.of(Avro(schema=schema), writes=False), column))
        assert found.field("error").null_count == 2


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistryServer() as server:
        yield SchemaRegistry(server.url)


def test_each_id_is_read_by_its_own_schema(registry: SchemaRegistry) -> None:
    new = {
        "type": "record",
        "name": "R",
        "fields": [*of_field("long")["fields"], {"name": "b", "type": "string", "default": "-"}],
    }
    context = Context("t", is_key=False)
    old_values = [AvroSerde(registry, of_field("int")).dumps({"a": number}, context) for number in range(3)]
    new_values = [AvroSerde(registry, new).dumps({"a": number, "b": "x"}, context) for number in range(3)]
    unknown = b"\0\0\0\0\x63" + new_values[0][5:]
    values = [
        *new_values,
        *old_values,
        None,
        unknown,
        b"\0\0",
        b"",
        b"\5" + new_values[0][1:],
        new_values[1] + b"x",
        new_values[2],
    ]
    plan = AvroPlan.of(Avro(registry=registry, subject="t-value"), writes=False)
    data = pa.array(values, pa.binary())
    expected = as_fastavro(plan, data)
    rows._codecs.clear()
    work = DecodeRows(plan, fails_fast=False)
    assert [plain(work.run(data)) for _ in range(2)] == [plain(expected)] * 2  # the second knows the schemas
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_rows.AvroCodec, "_read", None)
        assert plain(work.run(data[:3])) == plain(expected[:3])
    with pytest.raises(DecodingError, match="Schema 99 not found"):
        DecodeRows(plan, fails_fast=True).run(data)


def test_an_id_in_a_header_counts_before_a_prefix(registry: SchemaRegistry) -> None:
    context = Context("t", is_key=False)
    by_header = AvroSerde(registry, of_field("int"), id_place="header").dumps({"a": 7}, context)
    by_prefix = AvroSerde(registry, of_field("int")).dumps({"a": 8}, Context("t", is_key=False))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    marks = [{"key": name, "value": data} for name, data in context.headers]
    values = pa.array([by_header, by_prefix, None, by_header, b"\0", by_header + b"x"], pa.binary())
    headers = pa.array([marks, None, marks, [{"key": "other", "value": b"x"}], [], marks], kind)
    plan = AvroPlan.of(Avro(registry=registry, schema=of_field("int")), writes=False)
    expected = as_fastavro(plan, values, headers)
    rows._codecs.clear()
    work = DecodeRows(plan, fails_fast=False)
    assert [plain(work.run_with_headers(values, headers)) for _ in range(2)] == [plain(expected)] * 2
    assert [row["decoded"] for row in expected.to_pylist()] == [{"a": 7}, {"a": 8}, None, None, None, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_rows.AvroCodec, "_read", None)
        assert plain(work.run_with_headers(values[:3], headers[:3])) == plain(expected[:3])
