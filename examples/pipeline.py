"""A pipeline: orders and clicks from topics, through Spark Structured Streaming, into a table and topics, exactly once.

    python examples/pipeline.py 127.0.0.1:9092 ./shop

    orders ─┬─ revenue per minute and country ──────────────────→ Delta table  ./shop/revenue
            ├─ joined with the clicks of the five minutes before → topic        purchases
    clicks ─┘
    whatever of both cannot be decoded ──────────────────────────→ topic        dead-letters

Events may come late by two minutes of their own time. Each query shows how far it is as a consumer group, such as
shop-revenue. Kill the program and start it again: it continues where it was, as its checkpoints are in ./shop too, and
no row is in a result twice. SIGTERM lets it finish what is there.
"""

from __future__ import annotations

import signal
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import ottla.spark
from ottla.spark.decode import Json, dead_letters, decode
from ottla.spark.tables import DeltaSink

ORDER = "order_id STRING, user STRING, country STRING, cents BIGINT, at TIMESTAMP"
CLICK = "click_id STRING, user STRING, campaign STRING, at TIMESTAMP"
LATENESS = "2 minutes"
QUERIES = ("revenue", "purchases", "dead-letters")
LOOK_S = 0.2


def start(spark: SparkSession, servers: str, home: str) -> list[StreamingQuery]:
    """Starts the three queries of the pipeline."""
    checkpoints = f"{home}/checkpoints"

    orders = whole(events(spark, servers, "orders", ORDER, query="revenue"))
    revenue = (
        orders.groupBy(f.window("at", "1 minute"), "country")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .select(f.col("window.start").alias("minute"), "country", "orders", "cents")
    )
    into_table = revenue.writeStream.foreachBatch(DeltaSink(f"{home}/revenue"))

    orders = whole(events(spark, servers, "orders", ORDER, query="purchases"))
    clicks = whole(events(spark, servers, "clicks", CLICK, query="purchases"))
    purchases = (
        orders.alias("o")
        .join(clicks.alias("c"), f.expr("o.user = c.user AND c.at BETWEEN o.at - INTERVAL 5 MINUTES AND o.at"))
        .select("o.order_id", "o.user", "o.country", "o.cents", "c.campaign", "c.click_id")
        .select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
    )

    broken = [
        dead_letters(events(spark, servers, topic, schema, query="dead-letters"))
        for topic, schema in (("orders", ORDER), ("clicks", CLICK))
    ]

    writers = {
        "revenue": into_table,
        "purchases": to_topic(purchases, servers, "purchases"),
        "dead-letters": to_topic(broken[0].union(broken[1]), servers, "dead-letters"),
    }
    return [
        writers[name].queryName(name).option("checkpointLocation", f"{checkpoints}/{name}").start() for name in QUERIES
    ]


def events(spark: SparkSession, servers: str, topic: str, schema: str, *, query: str) -> DataFrame:
    """The records of a topic with what they say as `decoded`, or the reason as `error` why they say nothing."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", f"shop-{query}")
        .load()
    )
    decoded = decode(records, Json(schema=schema))
    fields = decoded.select("decoded.*").columns
    lacks_one = f.expr(" OR ".join(f"decoded.{name} IS NULL" for name in fields))
    return decoded.withColumn("error", f.coalesce("error", f.when(lacks_one, "a field is missing")))


def whole(decoded: DataFrame) -> DataFrame:
    """The events among the records, as columns; they may be late."""
    return decoded.where("error IS NULL").select("decoded.*").withWatermark("at", LATENESS)


def to_topic(rows: DataFrame, servers: str, topic: str):
    return (
        rows.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("delivery", "exactly-once")
    )


def main(servers: str, home: str) -> None:
    config = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    config["spark.ui.showConsoleProgress"] = "false"
    session = ottla.spark.session("shop", "local[2]", config=config)
    session.sparkContext.setLogLevel("ERROR")
    # A handler, as a signal that is blocked here would reach one of pyspark's threads and end the program at once.
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    queries = start(session, servers, home)
    while not signals:
        time.sleep(LOOK_S)
        for query in queries:
            if not query.isActive:
                sys.exit(f"the query {query.name} has ended: {query.exception()}")
    for query in queries:
        query.processAllAvailable()
        query.stop()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
