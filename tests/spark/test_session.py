"""The session that `ottla.spark.session` makes, on real Spark."""

from __future__ import annotations

import gc
import sys

import pytest
from pyspark.sql import SparkSession

import ottla.spark
from ottla.runtime.cache import cache_directory
from ottla.spark import class_archive


def test_every_setting_reaches_spark(spark: SparkSession) -> None:
    for name, value in ottla.spark.settings().items():
        assert spark.conf.get(name) == value


def test_what_the_caller_sets_wins_over_the_switches(spark: SparkSession) -> None:
    same = ottla.spark.session("tests", config={"spark.sql.python.filterPushdown.enabled": "false"})
    try:
        assert same.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_workers_run_this_python_and_freeze_what_their_first_task_loaded(spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize(range(2), numSlices=2)
    for _ in range(4):  # more tasks than workers
        facts = numbers.map(lambda _: (sys.executable, gc.get_freeze_count())).collect()
    assert {python for python, _ in facts} == {sys.executable}
    assert all(frozen_count > 10_000 for _, frozen_count in facts)


def test_the_classes_come_from_the_archive(spark: SparkSession) -> None:
    failures = [path.read_text() for path in (cache_directory() / "spark").glob(f"*{class_archive.FAILED_SUFFIX}")]
    if class_archive.find() is None and class_archive.OUT_OF_TIME in failures:
        pytest.skip("the archive was not made within its time: this machine does much else")
    assert "-XX:SharedArchiveFile=" in (spark.conf.get("spark.driver.extraJavaOptions") or "")
