"""Conversations by their titles, each played to both brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.testing.side_by_side.brokers import Brokers
from ottla.testing.side_by_side.side import Side
from ottla.testing.side_by_side.transcript import first_difference

SomeSide = TypeVar("SomeSide", bound=Side)


class Conversations(Generic[SomeSide]):
    """Those of one test module; `side` is who plays them.

    A title is unlike all others of its brokers: the topics and groups of the conversation begin with it.
    """

    def __init__(self, side: Callable[[str, str], SomeSide]) -> None:
        self._side = side
        self._plays: dict[str, Callable[[SomeSide], None]] = {}

    def add(self, play: Callable[[SomeSide], None]) -> Callable[[SomeSide], None]:
        """A decorator: the name of the function is the title."""
        title = play.__name__.replace("_", " ")
        assert title not in self._plays, f"there is another conversation '{title}'"
        self._plays[title] = play
        return play

    @property
    def titles(self) -> list[str]:
        return list(self._plays)

    def play(self, title: str, brokers: Brokers) -> None:
        """Plays it to Kafka, then to us, and fails where the answers are not the same."""
        transcripts = []
        for bootstrap_servers in (brokers.kafka, brokers.ours):
            with self._side(bootstrap_servers, title.replace(" ", "-")) as side:
                self._plays[title](side)
            transcripts.append(side.transcript.lines)
        theirs, ours = transcripts
        assert theirs, f"'{title}' says nothing"
        if difference := first_difference(theirs, ours):
            raise AssertionError(f"'{title}', {difference}")
