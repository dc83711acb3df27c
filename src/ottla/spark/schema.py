"""The columns of a record, for Spark and for Arrow. The two must fit exactly, or Spark refuses every batch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}

TIMESTAMP = pa.timestamp("us", tz="UTC")
TICKS_PER_MS = 1000
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def spark_schema(columns: Iterable[str]) -> StructType:
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, _ARROW_TYPES[name]) for name in columns])
