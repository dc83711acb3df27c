"""What a batch of Avro values is decoded with, and into: a schema as a flat program, and the buffers of Arrow columns.

A program is a row of nodes in the order of their bytes, a parent before its children. A value that a program does not
take is refused, whether it is sound or not: who runs it decodes those in another way.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

PREFIX_BYTES: Final = 5  # of Confluent's wire format: 0 and the id of the schema
MAP_ENTRIES_MAX: Final = 32  # each key is compared with those before it; a map with more is refused
_NODE: Final = struct.Struct("=6i")


class Op(IntEnum):
    """What a node reads, and the column that it fills."""

    BOOLEAN = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    BYTES = 5
    STRING = 6
    FIXED = 7  # as bytes
    ENUM = 8  # its index, as an int
    MILLIS = 9  # in the years 1 to 9999, as microseconds
    DECIMAL = 10
    DECIMAL_FIXED = 11
    RECORD = 12
    ARRAY = 13
    MAP = 14


class AvroNode(NamedTuple):
    op: Op
    null_index: int  # of the union [null, this]; -1: it is in none
    end: int  # the node behind its children
    parent: int  # the list or map that its values are elements of; -1: none
    size: int = 0  # of a fixed; how many symbols an enum has
    digits: int = 0  # of a decimal, at most


class AvroBuffers(NamedTuple):
    """A node's column: a bit for each value that is there, values or offsets, and what the offsets point into."""

    value_count: int
    validity: bytes
    values: bytes
    data: bytes


def assembled(nodes: list[AvroNode]) -> bytes:
    return b"".join(_NODE.pack(*node) for node in nodes)


def nodes_of(program: bytes) -> list[AvroNode]:
    return [AvroNode(Op(op), *rest) for op, *rest in _NODE.iter_unpack(program)]
