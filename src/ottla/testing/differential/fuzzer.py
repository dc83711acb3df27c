"""Runs histories until one shows a difference, and tells it so that somebody can mend it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pprint import pformat
from types import TracebackType
from typing import Any, Self

from ottla.testing.differential.drawing import draw_history
from ottla.testing.differential.history import History
from ottla.testing.differential.playing import Play, Table
from ottla.testing.differential.shrinking import shrunk
from ottla.testing.side_by_side.brokers import Brokers


@dataclass(slots=True)
class Tally:
    """What a run has seen."""

    histories: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)

    def add(self, play: Play) -> None:
        self.histories += 1
        for exchange in play.exchanges:
            self.requests[exchange.step.api.name] += 1
            self.allowed.update({entry.reason for entry in exchange.permissions})


class Fuzzer:
    """Plays histories to both brokers; a context manager."""

    def __init__(self, brokers: Brokers, run: str = "diff") -> None:
        self._table = Table(brokers, run)
        self.tally = Tally()

    def __enter__(self) -> Self:
        self._table.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._table.__exit__(kind, error, traceback)

    def run(self, seeds: Iterable[int], *, seconds: float) -> None:
        """Plays the histories of the seeds, as many as the time allows. AssertionError where the two differ."""
        deadline = time.monotonic() + seconds
        for seed in seeds:
            if time.monotonic() > deadline:
                return
            if report := self.try_seed(seed):
                raise AssertionError(report)

    def try_seed(
        self, seed: int, steps: set[int] | None = None, *, theme: str | None = None, known: Iterable[str] = ()
    ) -> str | None:
        """Plays the history of a seed, or some steps of it, and tells the difference that it shows, if any."""
        history = draw_history(seed, theme)
        return self.report(history if steps is None else history.only(steps), known=known)

    def report(self, history: History, *, known: Iterable[str] = ()) -> str | None:
        """Plays the history and tells the difference that it shows, unless that is known."""
        play = self._table.play(history)
        self.tally.add(play)
        if play.bad is None or play.bad.signature in known:
            return None
        return described(self._short(play))

    def _short(self, play: Play) -> Play:
        """The play of a history as short as can be that shows the same kind of difference."""
        assert play.bad is not None
        signature = play.bad.signature
        best = play

        def shows(history: History) -> bool:
            nonlocal best
            again = self._table.play(history)
            if again.bad is None or again.bad.signature != signature:
                return False
            best = again
            return True

        last = [number for number, _ in play.history.steps].index(play.bad.number)
        start = History(play.history.seed, play.history.steps[: last + 1])
        if not shows(start):
            return play  # it does not come again; the whole of it is all there is to tell
        shrunk(start, shows)
        return best


def described(play: Play) -> str:
    """A transcript of both sides, the differences, and how to see them again."""
    assert play.bad is not None
    lines = [f"seed {play.history.seed}: {play.bad.signature}"]
    for exchange in play.exchanges:
        lines.append(f"  {exchange.number}. {exchange.step}")
        if exchange is play.bad:
            lines += [f"       {difference}" for difference in exchange.differences]
            lines += [f"       our log: {line}" for line in exchange.complaint.splitlines()]
        lines.append(f"       Kafka: {_compact(exchange.kafka)}")
        if exchange.ours != exchange.kafka:
            lines.append(f"       we:    {_compact(exchange.ours)}")
    numbers = ",".join(str(number) for number, _ in play.history.steps)
    lines.append(f"  again: make differential SEED={play.history.seed} STEPS={numbers}")
    return "\n".join(lines)


def _compact(answer: Any) -> str:
    return pformat(_telling(answer), width=160, compact=True, sort_dicts=False).replace("\n", "\n              ")


def _telling(value: Any) -> Any:
    """A plain value without what says nothing."""
    if isinstance(value, dict):
        return {name: _telling(one) for name, one in value.items() if one not in (None, "", [], "words or none")}
    if isinstance(value, list):
        return [_telling(one) for one in value]
    return value
