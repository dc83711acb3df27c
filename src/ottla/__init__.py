"""Ottla: a Kafka-compatible event streaming platform in Python, with data pipelines on Spark."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ottla")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"
