"""A whole batch of Avro values into a column in one call, without an object for any of them.

For schemas of the usual types that are read as they were written. What it refuses, a schema or a value, is left to
fastavro, which decides whether it can be read and says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from ottla.records.arrow import binary_buffers
from ottla.records.avro import AvroBuffers, AvroNode, Op, assembled
from ottla.records.codec import core

NODES_MAX: Final = 1000
LISTS_MAX: Final = 16  # within each other
DATA_BYTES_MAX: Final = 2**31 - 1  # offsets have 32 bits
_DECIMAL_DIGITS_MAX: Final = 38
_TYPES: Final = {
    ("boolean", None): Op.BOOLEAN,
    ("int", None): Op.INT,
    ("int", "date"): Op.INT,
    ("long", None): Op.LONG,
    ("long", "timestamp-millis"): Op.MILLIS,
    ("long", "timestamp-micros"): Op.LONG,
    ("long", "local-timestamp-millis"): Op.MILLIS,
    ("long", "local-timestamp-micros"): Op.LONG,
    ("float", None): Op.FLOAT,
    ("double", None): Op.DOUBLE,
    ("bytes", None): Op.BYTES,
    ("bytes", "decimal"): Op.DECIMAL,
    ("string", None): Op.STRING,
    ("fixed", None): Op.FIXED,
    ("fixed", "decimal"): Op.DECIMAL_FIXED,
    ("enum", None): Op.ENUM,
    ("record", None): Op.RECORD,
    ("array", None): Op.ARRAY,
    ("map", None): Op.MAP,
}


class UnusualSchemaError(ValueError):
    """A schema that is left to fastavro."""


class AvroBatch:
    """The program of one schema, and how its columns become an array of `kind`."""

    def __init__(self, parsed: Any, kind: Any) -> None:
        self._kind = kind
        self._named: dict[str, Any] = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
        self._nodes: list[AvroNode] = []
        self._symbols: dict[int, Any] = {}  # of enums
        self._add(parsed, parent=-1, depth=0)
        if self._nodes[0].op != Op.RECORD or self._nodes[0].null_index >= 0:
            raise UnusualSchemaError
        self._program = assembled(self._nodes)

    @staticmethod
    def of(parsed: Any, kind: Any) -> AvroBatch | None:
        """None for a schema that is left to fastavro."""
        try:
            return AvroBatch(parsed, kind)
        except UnusualSchemaError:
            return None

    def _add(self, schema: Any, parent: int, depth: int, null_index: int = -1) -> bool:
        """Adds the nodes of a type; says whether each of its values has a byte at least."""
        schema = self._declared(schema)
        if isinstance(schema, list):
            if len(schema) != 2 or schema.count("null") != 1 or null_index >= 0:
                raise UnusualSchemaError
            null_index = schema.index("null")
            self._add(schema[1 - null_index], parent, depth, null_index)
            return True
        op = _TYPES.get((schema["type"], schema.get("logicalType"))) if isinstance(schema["type"], str) else None
        if op is None or len(self._nodes) >= NODES_MAX or depth > LISTS_MAX:
            raise UnusualSchemaError
        number = len(self._nodes)
        node = AvroNode(op, null_index, number + 1, parent)
        self._nodes.append(node)
        has_bytes = True
        match op:
            case Op.RECORD:
                self._named[schema["name"]] = schema
                has_bytes = sum(self._add(each["type"], parent, depth) for each in schema["fields"]) > 0
            case Op.ARRAY | Op.MAP:
                if op == Op.MAP:
                    self._add("string", number, depth + 1)
                if not self._add(schema["items" if op == Op.ARRAY else "values"], number, depth + 1) and op == Op.ARRAY:
                    raise UnusualSchemaError  # a few bytes could stand for any number of elements
            case Op.ENUM:
                self._named[schema["name"]] = schema
                self._symbols[number] = pa.array(schema["symbols"], pa.string())
                node = node._replace(size=len(schema["symbols"]))
            case Op.FIXED | Op.DECIMAL_FIXED:
                self._named[schema["name"]] = schema
                if not 0 <= schema["size"] <= DATA_BYTES_MAX:
                    raise UnusualSchemaError
                node = node._replace(size=schema["size"])
                has_bytes = schema["size"] > 0
        if op in (Op.DECIMAL, Op.DECIMAL_FIXED):
            digits, scale = schema["precision"], schema.get("scale", 0)
            if not (1 <= digits <= _DECIMAL_DIGITS_MAX and 0 <= scale <= digits):
                raise UnusualSchemaError
            node = node._replace(digits=digits)
        self._nodes[number] = node._replace(end=len(self._nodes))
        return has_bytes

    def _declared(self, schema: Any) -> list[Any] | Mapping[str, Any]:
        found: list[Any] | Mapping[str, Any] = schema
        if isinstance(schema, str):
            found = self._named.get(schema, {"type": schema})
        return found

    def decode(self, data: Any, prefixes: bytes = b"") -> tuple[Any, list[int]]:
        """The column, null where a row is or was refused, and the rows that were refused.

        prefixes: those that values may begin with; without any, values are bare.
        """
        refused, columns = core.decode_avro(self._program, binary_buffers(data), len(data), prefixes)
        return self._array(0, self._kind, columns), refused

    def _array(self, number: int, kind: Any, columns: list[AvroBuffers]) -> Any:
        node, (count, validity, values, data) = self._nodes[number], columns[number]
        buffers = [pa.py_buffer(validity), pa.py_buffer(values), pa.py_buffer(data)]
        match node.op:
            case Op.RECORD:
                return pa.Array.from_buffers(kind, count, buffers[:1], children=self._fields(number, kind, columns))
            case Op.ARRAY:
                elements = self._array(number + 1, kind.value_type, columns)
                return pa.Array.from_buffers(kind, count, buffers[:2], children=[elements])
            case Op.MAP:
                pair = pa.struct([kind.key_field, kind.item_field])
                children = self._fields(number, pair, columns)
                pairs = pa.Array.from_buffers(pair, len(children[0]), [None], children=children)
                return pa.Array.from_buffers(kind, count, buffers[:2], children=[pairs])
            case Op.ENUM:
                return self._symbols[number].take(pa.Array.from_buffers(pa.int32(), count, buffers[:2]))
            case Op.BYTES | Op.STRING | Op.FIXED:
                return pa.Array.from_buffers(kind, count, buffers)
            case _:
                return pa.Array.from_buffers(kind, count, buffers[:2])

    def _fields(self, number: int, kind: Any, columns: list[AvroBuffers]) -> list[Any]:
        arrays, at = [], number + 1
        for each in kind:
            arrays.append(self._array(at, each.type, columns))
            at = self._nodes[at].end
        return arrays
