"""Makes a history that shows a difference short: fewer steps, and less in each."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ottla.protocol.schema import REQUIRED
from ottla.testing.differential.drawing import Place, places
from ottla.testing.differential.history import History, Step

SECONDS: Final = 10.0


def shrunk(history: History, shows: Callable[[History], bool], *, seconds: float = SECONDS) -> History:
    """The shortest history found in the time that still `shows` it."""
    deadline = time.monotonic() + seconds

    def still_shows(candidate: History) -> bool:
        return time.monotonic() < deadline and shows(candidate)

    return _with_less_in_steps(_with_fewer_steps(history, still_shows), still_shows)


def _with_fewer_steps(history: History, shows: Callable[[History], bool]) -> History:
    """Without halves of the steps, quarters, ... single ones; the last step is the one that shows it."""
    size = len(history) // 2
    while size:
        start = 0
        while start < len(history) - 1:
            candidate = History(history.seed, history.steps[:start] + history.steps[start + size :])
            if candidate.steps and shows(candidate):
                history = candidate
            else:
                start += size
        size //= 2
    return history


def _with_less_in_steps(history: History, shows: Callable[[History], bool]) -> History:
    is_simpler = True
    while is_simpler:
        is_simpler = False
        for index, (number, step) in enumerate(history.steps):
            for simpler in _simpler(step):
                steps = list(history.steps)
                steps[index] = number, simpler
                candidate = History(history.seed, tuple(steps))
                if shows(candidate):
                    history, is_simpler = candidate, True
                    break
    return history


def _simpler(step: Step) -> Iterator[Step]:
    if step.connection:
        yield replace(step, connection=0)
    for index in range(len(places(step.request, step.version))):
        for value in _simpler_values(places(step.request, step.version)[index]):
            request = copy.deepcopy(step.request)
            places(request, step.version)[index].set(value)
            yield replace(step, request=request)


def _simpler_values(place: Place) -> Iterator[Any]:
    value, default = place.get(), place.field.default
    if isinstance(value, list):
        if len(value) > 1:
            for index in range(len(value)):
                yield value[:index] + value[index + 1 :]
    elif default is not REQUIRED and value != default and not hasattr(type(value), "__schema__"):
        yield default
