"""What a Python worker does with a batch of rows: bytes into values and back, row by row, columns in Arrow.

A `Plan` says how and can be pickled; a `Codec` is made of it in a worker, once, and kept for the next tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from ottla.client.serializers.wire_format import unframed
from ottla.spark.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ERROR_CHARACTERS_MAX: Final = 500
CODECS_MAX: Final = 64
# The fields of what `DecodeRows` returns.
DECODED: Final = "decoded"
ERROR: Final = "error"
_UNFIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)

Headers = list[tuple[str, bytes | None]]
# From bytes and headers to a dict that fits the columns; from a dict to bytes.
Decoder = Callable[[bytes, Headers], dict[str, Any]]
Encoder = Callable[[dict[str, Any]], bytes]


class Codec(Protocol):
    decode: Decoder
    encode: Encoder

    def decode_together(self, data: pa.Array, pairs: list[Headers]) -> tuple[pa.Array, list[int]] | None:
        """A column of what could be decoded in one step, and the rows for `decode`; None: it has all of them."""


class Plan(Protocol):
    @property
    def columns(self) -> StructType: ...

    @property
    def reads_headers(self) -> bool: ...

    def codec(self) -> Codec: ...


class DecodingError(ValueError):
    """A row cannot be decoded, and the mode is `failfast`."""


_codecs: dict[bytes, Codec] = {}


def codec_of(plan: Plan) -> Codec:
    """The codec of this process for a plan: what it has learned from a registry outlives a task."""
    key = pickle.dumps(plan)
    found = _codecs.get(key)
    if found is None:
        if len(_codecs) >= CODECS_MAX:
            _codecs.clear()
        found = _codecs[key] = plan.codec()
    return found


@dataclass(frozen=True)
class DecodeRows:
    """A column of bytes as one of structs: what was decoded, and the reason why there is nothing."""

    plan: Plan
    fails_fast: bool

    # Spark calls these with the batches of a task. It reads their annotations: arrays in, an array out.

    def run(self, data: pa.Array) -> pa.Array:
        return self._decoded(data, [])

    def run_with_headers(self, data: pa.Array, headers: pa.Array) -> pa.Array:
        return self._decoded(data, _pairs(headers))

    def _decoded(self, data: pa.Array, pairs: list[Headers]) -> pa.Array:
        codec, kind = codec_of(self.plan), arrow_type(self.plan.columns)
        column, rows = codec.decode_together(data, pairs) or (None, list(range(len(data))))
        values: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for row, each in zip(rows, _at(data, rows).to_pylist(), strict=True):
            value, error = None, None
            if each is not None:
                try:
                    value = codec.decode(each, pairs[row] if pairs else [])
                except Exception as failure:
                    # Whatever a library raises for bytes that it cannot read: the row carries the reason.
                    error = reason_of(failure)
            values.append(value)
            errors.append(error)
        decoded = fitting(values, errors, kind)
        if self.fails_fast and (first := next(filter(None, errors), None)) is not None:
            raise DecodingError(f"a row cannot be decoded: {first}")
        reasons = pa.array(errors, pa.string())
        if column is not None:
            decoded = _put(decoded, column, rows)
            reasons = _put(reasons, pa.nulls(len(data), pa.string()), rows)
        return pa.StructArray.from_arrays([decoded, reasons], [DECODED, ERROR])


def _at(data: pa.Array, rows: list[int]) -> pa.Array:
    return data if len(rows) == len(data) else data.take(pa.array(rows, pa.int64()))


def _put(values: pa.Array, column: pa.Array, rows: list[int]) -> pa.Array:
    """The column with these values in these rows, where it has nulls."""
    if values.null_count == len(values):
        return column
    places = list(range(len(column)))
    for index, row in enumerate(rows):
        places[row] = len(column) + index
    return pa.concat_arrays([column, values]).take(pa.array(places, pa.int64()))


def _pairs(headers: pa.Array) -> list[Headers]:
    if headers.null_count == len(headers):
        return []
    return [[(each["key"], each["value"]) for each in pairs or ()] for pairs in headers.to_pylist()]


def fitting(values: list[dict[str, Any] | None], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """Values as a column. One that does not fit it becomes null, with the reason among the errors."""
    try:
        return pa.array(values, kind)
    except _UNFIT:
        pass  # find out which
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except _UNFIT as failure:
            values[row], errors[row] = None, reason_of(failure)
    return pa.array(values, kind)


@dataclass(frozen=True)
class EncodeRows:
    """A column of structs as one of bytes. What cannot be encoded fails the task: there are no bytes to keep."""

    plan: Plan

    def run(self, rows: pa.Array) -> pa.Array:
        encode = codec_of(self.plan).encode
        return pa.array([None if row is None else encode(row) for row in rows.to_pylist()], pa.binary())


def reason_of(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}"[:ERROR_CHARACTERS_MAX]


def body_of(data: bytes, headers: Headers, *, has_indexes: bool = False) -> Any:
    """A value apart from its schema's id."""
    return unframed(data, headers, is_key=False, has_indexes=has_indexes)
