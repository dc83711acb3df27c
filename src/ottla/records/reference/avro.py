"""Avro into columns: runs the program of a schema (`ottla.records.avro`) over a batch of values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from ottla.records.avro import MAP_ENTRIES_MAX, PREFIX_BYTES, AvroBuffers, AvroNode, Op, nodes_of
from ottla.records.layout import BinaryColumn
from ottla.records.reference.buffers import byte_view

_WIDTHS: Final = {
    **dict.fromkeys((Op.INT, Op.FLOAT, Op.ENUM), 4),
    **dict.fromkeys((Op.LONG, Op.DOUBLE, Op.MILLIS), 8),
    **dict.fromkeys((Op.DECIMAL, Op.DECIMAL_FIXED), 16),
}
_TEXTS: Final = (Op.BYTES, Op.STRING, Op.FIXED)
_LISTS: Final = (Op.ARRAY, Op.MAP)
_VARINT_BITS_MAX: Final = 64
_DECIMAL_BYTES_MAX: Final = 16
_MILLIS_MIN: Final = -62_135_596_800_000
_MILLIS_MAX: Final = 253_402_300_799_999


class _RefusedError(Exception):
    """The program does not take this value."""


class _Value:
    """The bytes of one value, and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise _RefusedError
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        number = 0
        for shift in range(0, _VARINT_BITS_MAX, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise _RefusedError
        if number >= 1 << _VARINT_BITS_MAX:
            raise _RefusedError
        return (number >> 1) ^ -(number & 1)


class _Run:
    """Columns as lists, with None where there is no value; lists and maps have the ends of their elements, too."""

    def __init__(self, program: bytes) -> None:
        self.nodes = nodes_of(program)
        self.columns: list[list[Any]] = [[] for _ in self.nodes]
        self._ends: list[list[int]] = [[] for _ in self.nodes]  # of lists and maps

    def read(self, value: _Value, at: int, end: int) -> None:
        while at < end:
            node = self.nodes[at]
            if node.null_index >= 0:
                index = value.varint()
                if index not in (0, 1):
                    raise _RefusedError
                if index == node.null_index:
                    self.append_nulls(at)
                    at = node.end
                    continue
            if node.op in _LISTS:
                self._read_elements(value, at)
                at = node.end
            else:
                self.columns[at].append(True if node.op == Op.RECORD else _scalar(value, node))
                at += 1

    def _read_elements(self, value: _Value, at: int) -> None:
        node = self.nodes[at]
        first = len(self.columns[at + 1])
        while count := value.varint():
            if count < 0:
                count = -count
                value.varint()  # the size of the block
            if count > len(value.data) - value.at:
                raise _RefusedError  # each element has a byte at least
            if node.op == Op.MAP and len(self.columns[at + 1]) - first + count > MAP_ENTRIES_MAX:
                raise _RefusedError
            for _ in range(count):
                self.read(value, at + 1, node.end)
        keys = self.columns[at + 1][first:]
        if node.op == Op.MAP and len(set(keys)) < len(keys):
            raise _RefusedError
        self.columns[at].append(True)
        self._ends[at].append(len(self.columns[at + 1]))

    def append_nulls(self, at: int) -> None:
        """No value of a node, so none of its fields either; a list that is not there has no elements."""
        end = self.nodes[at].end
        while at < end:
            self.columns[at].append(None)
            if self.nodes[at].op in _LISTS:
                self._ends[at].append(len(self.columns[at + 1]))
                at = self.nodes[at].end
            else:
                at += 1

    def take_back(self, row_count: int) -> None:
        """As if the values after so many rows had never been read."""
        for number, node in enumerate(self.nodes):
            ends = [] if node.parent < 0 else self._ends[node.parent]
            kept = row_count if node.parent < 0 else ends[-1] if ends else 0
            del self.columns[number][kept:], self._ends[number][kept:]

    def buffers(self, number: int) -> AvroBuffers:
        op, column = self.nodes[number].op, self.columns[number]
        values, data = b"", b""
        if op == Op.BOOLEAN:
            values = _bits([bool(value) for value in column])
        elif op in _LISTS:
            values = _offsets(self._ends[number])
        elif op in _TEXTS:
            values = _offsets(list(accumulate(len(value or b"") for value in column)))
            data = b"".join(value or b"" for value in column)
        elif op != Op.RECORD:
            values = b"".join(value or bytes(_WIDTHS[op]) for value in column)
        return AvroBuffers(len(column), _bits([value is not None for value in column]), values, data)


def _scalar(value: _Value, node: AvroNode) -> Any:
    """A value as the bytes that Arrow has for it, or as a boolean."""
    match node.op:
        case Op.BOOLEAN:
            return _in_range(value.take(1)[0], 0, 1) == 1
        case Op.INT:
            return struct.pack("=i", _in_range(value.varint(), -(2**31), 2**31 - 1))
        case Op.LONG:
            return struct.pack("=q", value.varint())
        case Op.FLOAT | Op.DOUBLE:
            return value.take(_WIDTHS[node.op])
        case Op.BYTES:
            return value.take(value.varint())
        case Op.STRING:
            return _text(value.take(value.varint()))
        case Op.FIXED:
            return value.take(node.size)
        case Op.ENUM:
            return struct.pack("=i", _in_range(value.varint(), 0, node.size - 1))
        case Op.MILLIS:
            return struct.pack("=q", 1000 * _in_range(value.varint(), _MILLIS_MIN, _MILLIS_MAX))
        case _:
            data = value.take(node.size if node.op == Op.DECIMAL_FIXED else value.varint())
            if len(data) > _DECIMAL_BYTES_MAX:
                raise _RefusedError
            limit = 10**node.digits - 1
            number = _in_range(int.from_bytes(data, "big", signed=True), -limit, limit)
            return number.to_bytes(_WIDTHS[node.op], "little", signed=True)


def _in_range(number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise _RefusedError
    return number


def _text(data: bytes) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise _RefusedError from None
    return data


def _bits(flags: Sequence[bool]) -> bytes:
    number = sum(1 << index for index, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def _offsets(ends: Sequence[int]) -> bytes:
    return struct.pack(f"={len(ends) + 1}i", 0, *ends)


def decode_avro(
    program: bytes, values: BinaryColumn, row_count: int, prefixes: bytes
) -> tuple[list[int], list[AvroBuffers]]:
    """The rows that were refused, which are null, and the columns of all nodes.

    prefixes: those that a value may begin with, of five bytes each; empty: values have none.
    """
    run = _Run(program)
    known = {prefixes[at : at + PREFIX_BYTES] for at in range(0, len(prefixes), PREFIX_BYTES)}
    offsets = struct.unpack_from(f"={row_count + 1}i", byte_view(values.offsets))
    data = byte_view(values.data)
    validity = None if values.validity is None else byte_view(values.validity)
    refused = []
    for row in range(row_count):
        bit = values.first_bit + row
        if validity is not None and not validity[bit >> 3] >> (bit & 7) & 1:
            run.append_nulls(0)
            continue
        if not 0 <= offsets[row] <= offsets[row + 1] <= len(data):
            raise ValueError("the offsets of an Arrow column do not fit its data, or a row is not there")
        value = _Value(bytes(data[offsets[row] : offsets[row + 1]]))
        try:
            if known and value.take(PREFIX_BYTES) not in known:
                raise _RefusedError
            run.read(value, 0, len(run.nodes))
            if value.at != len(value.data):
                raise _RefusedError
        except _RefusedError:
            run.take_back(row)
            run.append_nulls(0)
            refused.append(row)
    return refused, [run.buffers(number) for number in range(len(run.nodes))]
