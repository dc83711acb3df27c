"""A pipeline: orders and clicks from topics, through Spark Structured Streaming, into a table and into topics.

    python examples/pipeline.py 127.0.0.1:9092 ./shop

    orders ─┬─ revenue per minute and country ──────────────────→ Parquet table  ./shop/revenue
            ├─ joined with the clicks of the five minutes before → topic          purchases
    clicks ─┘
    whatever of both cannot be read ─────────────────────────────→ topic          dead-letters

Events may come late by two minutes of their own time. Start it again and it goes on where it was: its checkpoints are
in ./shop too.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import ottla.spark

ORDER = "order_id STRING, user STRING, country STRING, cents BIGINT, at TIMESTAMP"
CLICK = "click_id STRING, user STRING, campaign STRING, at TIMESTAMP"
LATENESS = "2 minutes"


def start(spark: SparkSession, servers: str, home: str) -> dict[str, StreamingQuery]:
    """Starts the three queries of the pipeline and returns them by name."""
    orders, broken_orders = events(spark, servers, "orders", ORDER)
    clicks, broken_clicks = events(spark, servers, "clicks", CLICK)
    orders = orders.withWatermark("at", LATENESS)
    clicks = clicks.withWatermark("at", LATENESS)

    revenue = (
        orders.groupBy(f.window("at", "1 minute"), "country")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .select(f.col("window.start").alias("minute"), "country", "orders", "cents")
    )
    purchases = (
        orders.alias("o")
        .join(clicks.alias("c"), f.expr("o.user = c.user AND c.at BETWEEN o.at - INTERVAL 5 MINUTES AND o.at"))
        .select("o.order_id", "o.user", "o.country", "o.cents", "c.campaign", "c.click_id")
        .select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
    )
    dead_letters = broken_orders.union(broken_clicks)

    return {
        "revenue": revenue.writeStream.format("parquet")
        .option("path", f"{home}/revenue")
        .option("checkpointLocation", f"{home}/checkpoints/revenue")
        .queryName("revenue")
        .start(),
        "purchases": to_topic(purchases, servers, home, "purchases"),
        "dead-letters": to_topic(dead_letters, servers, home, "dead-letters"),
    }


def events(spark: SparkSession, servers: str, topic: str, schema: str) -> tuple[DataFrame, DataFrame]:
    """The events of a topic as columns; and the records in which a field is missing or wrong, as they came."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = records.withColumn("event", f.from_json(f.col("value").cast("string"), schema))
    fields = parsed.select("event.*").columns
    is_whole = f.expr(" AND ".join(f"event.{name} IS NOT NULL" for name in fields))
    where_from = f.concat_ws("-", "topic", "partition", "offset").cast("binary")
    headers = f.array(f.struct(f.lit("from").alias("key"), where_from.alias("value")))
    broken = parsed.where(~is_whole).select("key", "value", headers.alias("headers"))
    return parsed.where(is_whole).select("event.*"), broken


def to_topic(rows: DataFrame, servers: str, home: str, topic: str) -> StreamingQuery:
    return (
        rows.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", f"{home}/checkpoints/{topic}")
        .queryName(topic)
        .start()
    )


if __name__ == "__main__":
    session = ottla.spark.session("shop", config={"spark.sql.shuffle.partitions": "2"})
    start(session, *sys.argv[1:3])
    session.streams.awaitAnyTermination()
