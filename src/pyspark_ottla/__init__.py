"""Where Spark looks for `format("ottla")`: it imports every package named `pyspark_*` and takes its `DefaultSource`."""

from ottla.spark.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
