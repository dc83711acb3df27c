"""The files of a new project."""

from __future__ import annotations

from typing import Final

SPEC: Final = """\
# A pipeline of Spark (Spark Declarative Pipelines): `ottla pipeline run` runs it, and so does `spark-pipelines run`.
name: {name}
# Checkpoints and tables. On a cluster: a place that all machines reach.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""

PYTHON: Final = '''\
"""Orders from a topic as a table; large ones into a topic of their own, each exactly once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
OPTIONS = {"kafka.bootstrap.servers": os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")}


@dp.table
def orders() -> DataFrame:
    source = spark.readStream.format("ottla").options(**OPTIONS, subscribe="orders", startingOffsets="earliest")
    decoded = source.load().selectExpr("from_json(cast(value AS string), 'user string, cents long') AS row")
    return decoded.where("row.user IS NOT NULL").select("row.*")


dp.create_sink("large_orders", "ottla", {**OPTIONS, "topic": "large-orders", "delivery": "exactly-once"})


@dp.append_flow(target="large_orders")
def write_large_orders() -> DataFrame:
    large = spark.readStream.table("orders").where("cents >= 1000")
    return large.selectExpr("user AS key", "to_json(struct(*)) AS value")
'''

SQL: Final = """\
CREATE MATERIALIZED VIEW orders_per_user AS
SELECT user, count(*) AS orders, sum(cents) AS cents
FROM orders
GROUP BY user
"""

TEST: Final = '''\
"""The whole pipeline against a broker of its own: pytest runs it in about half a minute."""

from pathlib import Path

from ottla.testing.spark import PipelineTest

PROJECT = Path(__file__).parents[1]


def test_large_orders_have_a_topic_of_their_own(tmp_path: Path) -> None:
    with PipelineTest() as test:
        test.create_topic("large-orders")
        test.feed("orders", [{{"user": "a", "cents": 1250}}, {{"user": "b", "cents": 800}}, "not an order"])
        test.run_project(PROJECT, storage=tmp_path)
        test.assert_values("large-orders", [{{"user": "a", "cents": 1250}}])
'''

README: Final = """\
# {name}

    ottla topics create orders --partitions 2
    ottla topics create large-orders --partitions 2
    ottla pipeline check
    ottla pipeline run            # until Ctrl-C, or `ottla pipeline stop {name}`
    ottla pipeline status         # in another terminal
    pytest
"""


def files(name: str, storage: str) -> dict[str, str]:
    """The text of each file by its path."""
    return {
        "spark-pipeline.yaml": SPEC.format(name=name, storage=storage),
        "transformations/orders.py": PYTHON,
        "transformations/orders_per_user.sql": SQL,
        "tests/test_pipeline.py": TEST.format(),
        "README.md": README.format(name=name),
    }
