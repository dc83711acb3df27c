"""Topics into Delta tables and back, without a jar: `deltalake` commits, Spark's workers write the files.

    query = topic_to_table(spark, "orders", "./tables/orders", options, how=Json(schema="number long, article string"),
                           checkpoint="./checkpoints/orders")

A micro-batch is one commit of the table, which names the query and the batch: a batch that Spark runs again finds
itself there and writes nothing.
"""

from __future__ import annotations

from ottla.spark.tables.delta import compact, vacuum
from ottla.spark.tables.jobs import read_table, table_to_topic, topic_to_parquet, topic_to_table
from ottla.spark.tables.sink import DeltaSink

__all__ = ["DeltaSink", "compact", "read_table", "table_to_topic", "topic_to_parquet", "topic_to_table", "vacuum"]
