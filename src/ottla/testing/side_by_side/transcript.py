"""What a broker said, in a form that can be compared with what another one said to the same questions.

Ids, places and epochs of consumer groups differ from broker to broker and from run to run: each is named by the order
in which it appeared, so that two that are the same stay the same. Times, sizes and words are named by their kind.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.groups import DescribedGroup, JoinGroupResponse

IDS = {"cluster_id", "session_id", "producer_id", "host", "port", "log_dir"}
# Kafka's coordinator may learn of a topic after its first reader came, and moves on once more: only how epochs follow
# each other is compared here. The conversations in `test_group_epochs.py` make sure that it knows, and compare the
# numbers.
EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
KINDS = {"last_timestamp": "a time", "total_bytes": "a size", "usable_bytes": "a size"}
WORDS = {"error_message", "batch_index_error_message", "documentation"}
EMPTY = (None, "", 0, -1)
# Kafka keeps the members of these in hash maps: they have no order.
WITH_UNORDERED_MEMBERS = JoinGroupResponse | DescribedGroup | DescribedConsumerGroup
# The random part of a member id: the generated ids of classic members end with one.
RANDOM_PART = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Line(NamedTuple):
    """A question and what was answered, in plain values."""

    question: str
    answer: Any


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


class Transcript:
    """The lines of a conversation with one broker, and the labels of what it named."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._labels: dict[str, dict[Hashable, str]] = {}

    def add(self, question: str, answer: Any) -> None:
        self.lines.append(Line(question, self.plain(answer)))

    def label(self, kind: str, value: Hashable) -> str:
        """The value by its kind and the order in which values of this kind appeared."""
        labels = self._labels.setdefault(kind, {})
        return labels.setdefault(value, f"<{kind} {len(labels)}>")

    def plain(self, value: Any) -> Any:
        """A message as dicts and lists, with what cannot be equal replaced."""
        match value:
            case list() | tuple():
                return [self.plain(one) for one in value]
            case dict():
                return {name: self.plain(one) for name, one in value.items()}
            case UUID():
                return self.label("id", str(value)) if value.int else value
            case str():
                return RANDOM_PART.sub(lambda found: self.label("id", found[0]), value)
            case memoryview():
                return bytes(value)
            case _ if hasattr(type(value), "__schema__"):
                return self._plain_message(value)
            case _:
                return value

    def _plain_message(self, message: Any) -> dict[str, Any]:
        seen = {name: self._plain_field(name, getattr(message, name)) for name in type(message).__slots__}
        if isinstance(message, WITH_UNORDERED_MEMBERS):
            seen["members"].sort(key=lambda member: str(member["member_id"]))
        if seen.get("error_code"):
            # Reported with some errors and not with others; nobody looks.
            seen.pop("aborted_transactions", None)
        return seen

    def _plain_field(self, name: str, value: Any) -> Any:
        if name in WORDS:
            return "words or none"
        if name in IDS:
            return value if value in EMPTY else self.label(name, value)
        if name in KINDS:
            return value if value in EMPTY else KINDS[name]
        if name in EPOCHS and value > 0:
            return self.label("epoch", value)
        if name == "subscribed_topic_names":
            return sorted(value)  # a set
        return self.plain(value)


def first_difference(theirs: Sequence[Line], ours: Sequence[Line]) -> str | None:
    """The first line in which the two are not the same, shown field by field; None where there is none.

    Only the first: what comes after it often differs because of it.
    """
    missing = Line("nothing", NOTHING)
    for number, (expected, actual) in enumerate(zip_longest(theirs, ours, fillvalue=missing)):
        where = f"line {number}, {expected.question}"
        if expected.question != actual.question:
            return f"{where}: we were asked {actual.question}, because of what was answered before"
        if found := list(differences(expected.answer, actual.answer)):
            return "\n  ".join([f"{where}:", *found])
    return None


def differences(expected: Any, actual: Any, where: str = "the answer") -> Iterator[str]:
    """Where two plain values differ, each as the way to it and what both say."""
    if expected == actual:
        return
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in expected | actual:
            yield from differences(expected.get(name, NOTHING), actual.get(name, NOTHING), f"{where}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list):
        for index, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=NOTHING)):
            yield from differences(one, other, f"{where}[{index}]")
    else:
        yield f"{where}: Kafka says {expected!r}, we say {actual!r}"
