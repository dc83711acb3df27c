"""`decode` and `encode`: a column of bytes as a column of values, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs lack it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ottla.client.serializers.wire_format import BY_ID, PREFIX_BYTES, prefix_of
from ottla.errors import ConfigError
from ottla.spark.decode.avro_rows import AvroPlan
from ottla.spark.decode.formats import Avro, Format, Json
from ottla.spark.decode.protobuf_rows import ProtobufPlan
from ottla.spark.decode.rows import DECODED, ERROR, DecodeRows, EncodeRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Mode = Literal["permissive", "failfast"]

# Columns that a record has beside its value: `encode` leaves them as they are.
RECORD_COLUMNS: Final = ("key", "topic", "partition", "headers", "timestamp")
_MADE: Final = "_ottla_made"
_CORRUPT: Final = "_corrupt_record"


def decode(
    rows: DataFrame,
    how: Format,
    *,
    column: str = "value",
    into: str = "decoded",
    error: str = "error",
    mode: Mode = "permissive",
) -> DataFrame:
    """The rows with a struct column `into`, and `error` with the reason where the bytes cannot be decoded.

    Null stays null, without an error. `mode`: permissive keeps such rows, failfast fails the query.
    """
    _check(rows, column, into, error)
    if mode not in ("permissive", "failfast"):
        raise ConfigError(f"mode is permissive or failfast, not {mode!r}")
    if isinstance(how, Json):
        return _decode_json(rows, how, column, into, error, mode)
    plan = AvroPlan.of(how, writes=False) if isinstance(how, Avro) else ProtobufPlan.of(how, writes=False)
    kind = StructType([StructField(DECODED, plan.columns), StructField(ERROR, StringType())])
    work = DecodeRows(plan, mode == "failfast")
    # As if it were not deterministic: Spark must not decode again for each use of the column.
    if plan.reads_headers and "headers" in rows.columns:
        made = arrow_udf(work.run_with_headers, kind).asNondeterministic()(F.col(column), F.col("headers"))
    else:
        made = arrow_udf(work.run, kind).asNondeterministic()(F.col(column))
    return rows.withColumn(_MADE, made).select(
        *[F.col(f"`{name}`") for name in rows.columns],
        F.col(f"{_MADE}.{DECODED}").alias(into),
        F.col(f"{_MADE}.{ERROR}").alias(error),
    )


def encode(rows: DataFrame, how: Format, *, column: str | None = None, into: str = "value") -> DataFrame:
    """The rows with the struct `column` as bytes in `into`; without a column, all but those of a record together.

    With a registry the schema is registered or looked up once, when the query is built.
    """
    if column is None:
        column = "_row"
        packed = [name for name in rows.columns if name not in RECORD_COLUMNS]
        if not packed:
            raise ConfigError("the rows have no columns beside those of a record: there is nothing to encode")
        kept = [F.col(name) for name in rows.columns if name in RECORD_COLUMNS]
        rows = rows.select(*kept, F.struct(*packed).alias(column))
    if column not in rows.columns:
        raise ConfigError(f"there is no column {column} to encode: {', '.join(rows.columns)}")
    if isinstance(how, Json):
        return _encode_json(rows, how, column, into)
    plan: Any = AvroPlan.of(how, writes=True) if isinstance(how, Avro) else ProtobufPlan.of(how, writes=True)
    run = arrow_udf(EncodeRows(plan).run, BinaryType())
    kept_columns = [F.col(f"`{name}`") for name in rows.columns if name != column]
    return rows.select(*kept_columns, run(F.col(column)).alias(into))


def _check(rows: DataFrame, column: str, into: str, error: str) -> None:
    if column not in rows.columns:
        raise ConfigError(f"there is no column {column} to decode: {', '.join(rows.columns)}")
    for name in (into, error):
        if name in rows.columns:
            raise ConfigError(f"the rows have a column {name} already: choose another name for what is decoded")


# -- JSON, which Spark decodes itself ----------------------------------------------------------------------------------


def _columns_of(how: Json) -> StructType:
    found = how.schema if isinstance(how.schema, StructType) else StructType.fromDDL(how.schema)
    if not isinstance(found, StructType):
        raise ConfigError(f"columns are names with types, such as `number long, article string`, not {how.schema!r}")
    return found


def _decode_json(rows: DataFrame, how: Json, column: str, into: str, error: str, mode: Mode) -> DataFrame:
    columns = _columns_of(how)
    if _CORRUPT in columns.names:
        raise ConfigError(f"a column {_CORRUPT} is what Spark puts bytes into that are not JSON: rename it")
    data = F.col(column)
    has_prefix = (F.length(data) >= PREFIX_BYTES) & (F.substring(data, 1, 1) == F.lit(bytes((BY_ID,))))
    text = F.expr(f"substring(`{column}`, {PREFIX_BYTES + 1})") if how.registry is not None else data
    parsed = F.from_json(
        text.cast("string"),
        StructType([*columns.fields, StructField(_CORRUPT, StringType())]),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    # A column of its own, or Spark parses the text again for every field that is taken from it.
    made = F.col(_MADE)
    is_bad = made.isNull() | made[_CORRUPT].isNotNull()
    reason = F.when(data.isNull(), F.lit(None).cast("string"))
    if how.registry is not None:
        reason = reason.when(~has_prefix, F.lit("not written with a schema registry: it has no prefix with an id"))
    reason = reason.when(is_bad, F.lit(f"not JSON that fits {columns.simpleString()}"))
    if mode == "failfast":
        reason = F.when(reason.isNotNull(), F.raise_error(F.concat(F.lit("a row cannot be decoded: "), reason)))
    value = F.struct(*[made[name].alias(name) for name in columns.names])
    known = rows.withColumn(_MADE, parsed).withColumn(error, reason.cast("string"))
    return known.select(
        *[F.col(name) for name in rows.columns],
        F.when(data.isNotNull() & F.col(error).isNull(), value).alias(into),
        F.col(error),
    )


def _encode_json(rows: DataFrame, how: Json, column: str, into: str) -> DataFrame:
    columns = _columns_of(how)
    kind = rows.schema[column].dataType
    present = kind.names if isinstance(kind, StructType) else []
    if missing := [name for name in columns.names if name not in present]:
        raise ConfigError(f"the column {column} is of {kind.simpleString()} and lacks {', '.join(missing)}")
    row = F.struct(*[F.col(column)[each.name].cast(each.dataType).alias(each.name) for each in columns.fields])
    data: Column = F.to_json(row, {"ignoreNullFields": "false"}).cast("binary")
    if how.registry is not None:
        if how.subject is None:
            raise ConfigError("name the subject whose schema is to be used, such as orders-value")
        prefix = prefix_of(how.registry.latest(how.subject).schema_id)
        data = F.concat(F.lit(bytearray(prefix)), data)
    kept = [F.col(name) for name in rows.columns if name != column]
    return rows.select(*kept, F.when(F.col(column).isNotNull(), data).alias(into))
