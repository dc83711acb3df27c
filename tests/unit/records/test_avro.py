"""The program of an Avro schema on both cores. What it means for schemas: tests/unit/spark/test_avro_batch.py."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import reference
from ottla.records.avro import AvroBuffers, AvroNode, Op, assembled
from ottla.records.layout import BinaryColumn

PAIR = assembled([AvroNode(Op.RECORD, -1, 3, -1), AvroNode(Op.LONG, -1, 2, -1), AvroNode(Op.STRING, 0, 3, -1)])


def column(values: Sequence[bytes | None]) -> BinaryColumn:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    bits = sum(1 << index for index, value in enumerate(values) if value is not None)
    validity = bits.to_bytes(len(values) // 8 + 1, "little")
    # In blocks without a spare byte, so that the address sanitizer sees the first one too far.
    offsets, data, bits_of = (
        array("B", each)
        for each in (struct.pack(f"={len(ends)}i", *ends), b"".join(value or b"" for value in values), validity)
    )
    return BinaryColumn(offsets, data, bits_of)


def test_a_program_fills_a_column_for_each_node(core: ModuleType) -> None:
    values = [b"\x02\x02\x02x", None, b"\x04\x00", b"\x06\x02\x04no"]
    refused, columns = core.decode_avro(PAIR, column(values), len(values), b"")
    assert refused == []
    assert columns == [
        AvroBuffers(4, b"\x0d", b"", b""),
        AvroBuffers(4, b"\x0d", struct.pack("=4q", 1, 0, 2, 3), b""),
        AvroBuffers(4, b"\x09", struct.pack("=5i", 0, 1, 1, 1, 3), b"xno"),
    ]


def test_what_is_refused_is_null_and_leaves_nothing_behind(core: ModuleType) -> None:
    values = [b"\x02\x02\x08long", b"\x02\x02\x08long.", b"\x02\x02\x08lon", b"", b"\x02\x02\x02x"]
    refused, columns = core.decode_avro(PAIR, column(values), len(values), b"")
    assert refused == [1, 2, 3]
    assert columns[2] == AvroBuffers(5, b"\x11", struct.pack("=6i", 0, 4, 4, 4, 4, 5), b"longx")


def test_values_have_one_of_the_prefixes(core: ModuleType) -> None:
    values = [b"\0\0\0\0\1\x02\x00", b"\0\0\0\0\2\x04\x00", b"\0\0\0\0\3\x06\x00", b"\0\0\0\0", b"\x02\x00"]
    refused, columns = core.decode_avro(PAIR, column(values), len(values), b"\0\0\0\0\1\0\0\0\0\2")
    assert refused == [2, 3, 4]
    assert columns[1].values == struct.pack("=5q", 1, 2, 0, 0, 0)


@pytest.mark.parametrize("ends", [(0, 9), (-1, 2), (3, 1)])
def test_offsets_that_do_not_fit_are_refused(core: ModuleType, ends: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="do not fit its data"):
        core.decode_avro(PAIR, BinaryColumn(struct.pack("=2i", *ends), b"abcd"), 1, b"")


def test_a_number_of_elements_is_no_reason_to_reserve_memory(core: ModuleType) -> None:
    program = assembled([AvroNode(Op.RECORD, -1, 3, -1), AvroNode(Op.ARRAY, -1, 3, -1), AvroNode(Op.LONG, -1, 3, 1)])
    values = [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"]
    assert core.decode_avro(program, column(values), 2, b"")[0] == [0, 1]


@st.composite
def programs(draw: Any) -> bytes:
    """Those of schemas: elements have a byte at least."""
    nodes: list[AvroNode] = []

    def add(parent: int, depth: int) -> None:
        number = len(nodes)
        op = draw(st.sampled_from(list(Op))) if depth < 4 else Op.LONG
        null_index = draw(st.sampled_from([-1, 0, 1]))
        if parent >= 0 and op in (Op.RECORD, Op.FIXED, Op.DECIMAL_FIXED):
            null_index = 0
        node = AvroNode(op, null_index, 0, parent, draw(st.integers(0, 18)), draw(st.integers(1, 38)))
        nodes.append(node)
        if op == Op.RECORD:
            for _ in range(draw(st.integers(0, 3))):
                add(parent, depth + 1)
        elif op == Op.ARRAY:
            add(number, depth + 1)
        elif op == Op.MAP:
            nodes.append(AvroNode(Op.STRING, -1, number + 2, number))
            add(number, depth + 1)
        nodes[number] = node._replace(end=len(nodes))

    add(-1, 0)
    return assembled(nodes)


SMALL = st.lists(st.sampled_from([0, 0, 1, 2, 2, 4, 6, 0x41, 0x80, 0xC3, 0xFF]), max_size=40).map(bytes)


@given(programs(), st.lists(st.none() | SMALL | st.binary(max_size=30), max_size=6))
def test_both_cores_fill_the_same_buffers_from_any_bytes(program: bytes, values: list[bytes | None]) -> None:
    native = pytest.importorskip("ottla.records._native")
    given_values = column(values)
    expected = reference.decode_avro(program, given_values, len(values), b"")
    assert native.decode_avro(program, given_values, len(values), b"") == expected
