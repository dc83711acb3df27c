"""Runs what is done in steps, or begun outside of a task, to its end: for tests that have no loop, or do not wait."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


def finished(steps: Generator[None, None, Result]) -> Result:
    """What the work returns after its last step."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast(Result, done.value)


def at_once(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine returns that must not have to wait."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as done:
        return cast(Result, done.value)
    coroutine.close()
    raise AssertionError(f"it waits for {awaited!r}")
