"""Decoded records as changes of a table: rows with their keys, and which of them are gone.

A record without a value deletes the row of its key. In Debezium's envelope `op` says what happened, and the row is in
`after`, or in `before` where it was deleted; the empty record that follows a deletion says nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.types import StructType

from ottla.errors import ConfigError
from ottla.spark.tables.delta import DELETED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Envelope = Literal["none", "debezium"]

DECODED: Final = "decoded"
KEY_DECODED: Final = "key_decoded"
ORDER: Final = "_order"
OPERATION: Final = "_op"
# Where a row came from, kept beside what was decoded.
ORIGIN: Final = {"_topic": "topic", "_partition": "partition", "_offset": "offset", "_timestamp": "timestamp"}


def appended(rows: DataFrame, envelope: Envelope) -> DataFrame:
    """Decoded records as rows to append: their columns, and where they came from. Without a value: without columns."""
    if DECODED not in rows.columns:
        return rows
    if envelope == "debezium":
        # What happened stays beside the row: without it a row that was deleted would look like a new one.
        rows = rows.withColumn(OPERATION, _payload(rows)["op"]).withColumn(DECODED, _after(rows))
        return rows.where(F.col(DECODED).isNotNull()).select(f"{DECODED}.*", OPERATION, *_origin(rows))
    return rows.select(f"{DECODED}.*", *_origin(rows))


def changed(rows: DataFrame, keys: Sequence[str], envelope: Envelope) -> DataFrame:
    """Decoded records as changes: columns, keys, `_deleted` and `_order`."""
    order = F.col("offset").alias(ORDER)
    if DECODED not in rows.columns:
        return rows.select("*", F.col("value").isNull().alias(DELETED), order)
    if envelope == "debezium":
        rows = rows.where(F.col("value").isNotNull())
        rows = rows.withColumn(DELETED, _payload(rows)["op"] == "d").withColumn(DECODED, _after(rows))
    else:
        rows = rows.withColumn(DELETED, F.col("value").isNull())
    names = _fields(rows, DECODED)
    columns = [_key(rows, name, names) if name in keys else F.col(f"{DECODED}.`{name}`").alias(name) for name in names]
    columns += [_key(rows, name, names) for name in keys if name not in names]
    return rows.select(*columns, *_origin(rows), F.coalesce(F.col(DELETED), F.lit(False)).alias(DELETED), order)


def latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The last change of each key of a batch."""
    others = [name for name in rows.columns if name not in (*keys, ORDER)]
    packed = F.max_by(F.struct(*[F.col(f"`{name}`") for name in others]), F.col(ORDER)).alias("_last")
    grouped = rows.groupBy(*[F.col(f"`{key}`") for key in keys]).agg(packed)
    return grouped.select(*[F.col(f"`{key}`") for key in keys], "_last.*")


def without_keys(keys: Sequence[str]) -> Column:
    """Whether a row lacks a key: it can be neither found nor told apart."""
    found = F.lit(False)
    for key in keys:
        found = found | F.col(f"`{key}`").isNull()
    return found


def _key(rows: DataFrame, name: str, names: Sequence[str]) -> Column:
    """A key column: of the value, and where there is none, of the record's key."""
    found: list[Column] = []
    if name in names:
        found.append(F.col(f"{DECODED}.`{name}`"))
    if KEY_DECODED in rows.columns and name in _fields(rows, KEY_DECODED):
        found.append(F.col(f"{KEY_DECODED}.`{name}`"))
    elif name == "key" and not found:
        found.append(F.col("key"))
    if not found:
        raise ConfigError(f"the key column {name} is neither in the value nor in the decoded key")
    return F.coalesce(*found).alias(name)


def _fields(rows: DataFrame, column: str) -> list[str]:
    kind = rows.schema[column].dataType
    assert isinstance(kind, StructType), "what was decoded is a struct"
    return kind.names


def _payload(rows: DataFrame) -> Column:
    """Debezium's envelope, which Connect's JSON converter wraps again with its schema."""
    kind = rows.schema[DECODED].dataType
    assert isinstance(kind, StructType), "what was decoded is a struct"
    payload = F.col(DECODED)
    if "payload" in kind.names:
        payload, kind = payload["payload"], kind["payload"].dataType
        assert isinstance(kind, StructType), "a payload is a struct"
    if missing := {"before", "after", "op"} - set(kind.names):
        raise ConfigError(
            f"Debezium's envelope has before, after and op; the schema lacks {', '.join(sorted(missing))}"
        )
    return payload


def _after(rows: DataFrame) -> Column:
    payload = _payload(rows)
    return F.when(payload["op"] == "d", payload["before"]).otherwise(payload["after"])


def _origin(rows: DataFrame) -> list[Column]:
    return [F.col(column).alias(name) for name, column in ORIGIN.items() if column in rows.columns]
