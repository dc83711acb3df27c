"""Ottla: a Kafka-compatible event streaming platform in Python, with data pipelines on Spark."""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """`__version__` is looked up when asked for: importlib.metadata takes longer to import than most of Ottla."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ottla")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.0.0"
