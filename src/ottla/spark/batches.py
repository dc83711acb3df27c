"""`write_batch`: the batches of `foreachBatch` into topics, each exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.compat import QUERY_PROPERTY, RUN_PROPERTY
from ottla.spark.option_reader import OptionError
from ottla.spark.sink_options import BATCH_OPTIONS, EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(rows: DataFrame, batch_id: int, name: str = "", **options: str) -> None:
    """Writes the rows of a batch of `foreachBatch` exactly once, however often Spark calls the function for it.

    The batch is known by the query and its number. A function that writes several DataFrames gives each a `name` that
    stays the same; without one it is the topic. Options are those of the sink, with `**{"kafka.acks": …}` for those
    that have dots.
    """
    context = rows.sparkSession.sparkContext
    query, run = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, RUN_PROPERTY))
    if query is None:
        raise OptionError("write_batch is for the function of foreachBatch, where Spark names the query of a batch")
    scope = f"{query}-{name or options.get('topic', 'rows')}"
    named = dict(zip(BATCH_OPTIONS, (scope, run or query, str(batch_id)), strict=True))
    writer = rows.write.format("ottla").options(**options, **named, delivery=EXACTLY_ONCE)
    writer.mode("append").save()
