"""What a consumer is to read: topics, a pattern or partitions. Pure; one of the three at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.client.errors import UsageError
from ottla.ids import TopicPartition, is_valid_topic_name


@dataclass(frozen=True, slots=True)
class Topics:
    """These topics, shared with the group."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topics whose whole name fits an expression of Python's `re`, found by this client."""

    expression: re.Pattern[str]
    matched: frozenset[str] = frozenset()

    def fits(self, topic: str) -> bool:
        return self.expression.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class BrokerPattern:
    """Topics whose whole name fits an expression of RE2, found by the coordinator: KIP-848 only."""

    expression: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions, of nobody else's concern."""

    partitions: frozenset[TopicPartition]


Wanted: TypeAlias = Topics | Pattern | BrokerPattern | Partitions


@dataclass(slots=True)
class Subscription:
    """The state: what is wanted now. `version` goes up with every change, so that a group notices."""

    wanted: Wanted | None = None
    version: int = field(default=0)

    @property
    def is_of_group(self) -> bool:
        """Whether a group decides which partitions are read here."""
        return self.wanted is not None and not isinstance(self.wanted, Partitions)

    @property
    def topics(self) -> frozenset[str]:
        """The names that are known on this side."""
        match self.wanted:
            case Topics(names):
                return names
            case Pattern(_, matched):
                return matched
            case Partitions(partitions):
                return frozenset(each.topic for each in partitions)
            case _:
                return frozenset()

    def subscribe(self, wanted: Topics | Pattern | BrokerPattern) -> None:
        if isinstance(self.wanted, Partitions):
            raise UsageError("partitions were assigned by hand; call unsubscribe() before subscribe()")
        self._change(wanted)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.is_of_group:
            raise UsageError("topics are subscribed to; call unsubscribe() before assign()")
        self._change(Partitions(frozenset(partitions)))

    def unsubscribe(self) -> None:
        self._change(None)

    def topics_seen(self, topics: Mapping[str, bool], *, leave_out_internal: bool) -> bool:
        """Matches a pattern against the topics of the cluster, with whether they are internal; True on a change."""
        if not isinstance(self.wanted, Pattern):
            return False
        pattern = self.wanted
        matched = frozenset(
            name
            for name, is_internal in topics.items()
            if not (is_internal and leave_out_internal) and pattern.fits(name)
        )
        if matched == pattern.matched:
            return False
        self._change(Pattern(pattern.expression, matched))
        return True

    def _change(self, wanted: Wanted | None) -> None:
        if wanted != self.wanted:
            self.wanted = wanted
            self.version += 1


def checked_topics(topics: Collection[str]) -> Topics:
    if isinstance(topics, str):
        raise TypeError(f"a list of topics is wanted, not the text {topics!r}; write [{topics!r}]")
    names = frozenset(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a topic is named by text, not by {name!r}")
        if not is_valid_topic_name(name):
            raise UsageError(f"{name!r} cannot be the name of a topic")
    return Topics(names)
