"""Ottla on Spark: topics as DataFrames, in batches and streams, through PySpark and without a jar."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.sessions import session, settings

__all__ = ["session", "settings"]


def __getattr__(name: str) -> Any:
    # Late, because every Python worker of Spark imports this package and none of them makes a session.
    if name in __all__:
        from ottla.spark import sessions

        return getattr(sessions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
