"""Ottla on Spark: topics as DataFrames, in batches and streams, through PySpark and without a jar."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.sessions import session, settings
    from ottla.spark.stream_lag import lag

__all__ = ["lag", "session", "settings"]

_PLACES = {"lag": "stream_lag", "session": "sessions", "settings": "sessions"}


def __getattr__(name: str) -> Any:
    # Late, because every Python worker of Spark imports this package and none of them makes a session.
    if name in _PLACES:
        return getattr(import_module(f"ottla.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
