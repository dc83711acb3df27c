"""Ottla on Spark: topics as DataFrames, in batches and streams, through PySpark and without a jar."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.batches import write_batch
    from ottla.spark.listener import report
    from ottla.spark.sessions import session, settings
    from ottla.spark.stream_lag import lag

__all__ = ["lag", "report", "session", "settings", "write_batch"]

_PLACES = {
    "lag": "stream_lag",
    "report": "listener",
    "session": "sessions",
    "settings": "sessions",
    "write_batch": "batches",
}


def __getattr__(name: str) -> Any:
    # Late, because every Python worker of Spark imports this package and none of them makes a session.
    if name in _PLACES:
        return getattr(import_module(f"ottla.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
