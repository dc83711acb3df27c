"""Rows that could not be decoded, as records for another topic: bytes as they came, and headers that say why.

The headers are those of a consumer's dead letters: `ottla.topic`, `ottla.partition`, `ottla.offset`, `ottla.error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from ottla.client.consumer.redelivery import ERROR, ORIGIN
from ottla.spark.batches import write_batch
from ottla.spark.sink_options import parse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "dead-letters"  # of these writes among those of a query
HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"


def dead_letters(decoded: DataFrame, *, error: str = "error") -> DataFrame:
    """The rows with an error as key, value and headers; write them with `format("ottla")` to a topic."""
    present = decoded.columns
    added = [_header(name, F.col(column)) for name, column in _places(present)]
    added.append(_header(ERROR, F.col(error)))
    headers = F.array(*added)
    if "headers" in present:
        own = F.coalesce(F.col("headers").cast(HEADERS_TYPE), F.array().cast(HEADERS_TYPE))
        headers = F.concat(own, headers)
    kept = [F.col(name) for name in ("key", "value") if name in present]
    return decoded.where(F.col(error).isNotNull()).select(*kept, headers.cast(HEADERS_TYPE).alias("headers"))


def _places(present: list[str]) -> list[tuple[str, str]]:
    return [
        (name, column)
        for name, column in zip(ORIGIN, ("topic", "partition", "offset"), strict=True)
        if column in present
    ]


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def with_dead_letters(
    handle: Callable[[DataFrame, int], Any], topic: str, options: Mapping[str, str], *, error: str = "error"
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: writes what could not be decoded to a topic, then hands the rest to `handle`.

    `options` are those of the sink: `{"kafka.bootstrap.servers": "127.0.0.1:9092"}`. A batch that runs again may write
    its dead letters again; with `delivery` set to `exactly-once` it does not. None is lost.
    """
    is_exactly_once = parse({**options, "topic": topic}).is_exactly_once  # what is wrong is said here
    given = {name: value for name, value in options.items() if name.lower() not in ("delivery", "topic")}

    def run(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            letters = dead_letters(batch, error=error)
            if is_exactly_once:
                write_batch(letters, batch_id, NAME, topic=topic, **given)
            else:
                letters.write.format("ottla").mode("append").options(**given, topic=topic).save()
            handle(batch.where(F.col(error).isNull()).drop(error), batch_id)
        finally:
            batch.unpersist()

    return run
