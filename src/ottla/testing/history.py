"""A history of what clients did and which responses they got, like Jepsen's workload for Kafka.

Processes send and poll, alone or in transactions, while faults are injected. Each operation is recorded with when it
was invoked, when it returned, and its result. `history_check.check` then looks for what must not happen. A value is
sent only once, so it identifies the operation that sent it.

    history = History()
    with history.operation(process=1) as operation:
        operation.send(TopicPartition("t", 0), 42)
        ...
        operation.sent(42, offset=17)
        operation.succeed()
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.ids import TopicPartition


class Outcome(Enum):
    """What became of an operation, as far as its process knows."""

    OK = "ok"
    FAILED = "failed"  # for certain: nothing of it may ever be seen
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """A value that is sent to a partition; the offset is known if the broker reported it."""

    partition: TopicPartition
    value: int
    offset: int | None = None


class Read(NamedTuple):
    """A value that was polled."""

    partition: TopicPartition
    offset: int
    value: int


class Seen(NamedTuple):
    """An offset that must not go back: the end of a partition, or how far a group has committed."""

    what: str
    partition: TopicPartition
    offset: int


@dataclass(slots=True)
class Operation:
    """What one process did in one go. In a transaction all of it counts or none."""

    process: int
    invoked: int  # in the order of all invocations and completions
    is_transaction: bool = False
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    # The process begins to read again, from wherever: what follows need not follow what it read before.
    is_new_position: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    completed: int | None = None
    note: str = ""

    def send(self, partition: TopicPartition, value: int) -> None:
        self.sends.append(Send(partition, value))

    def sent(self, value: int, offset: int) -> None:
        """The broker has reported the offset of a value."""
        next(send for send in self.sends if send.value == value).offset = offset

    def read(self, partition: TopicPartition, offset: int, value: int) -> None:
        self.reads.append(Read(partition, offset, value))

    def saw(self, what: str, partition: TopicPartition, offset: int) -> None:
        self.seen.append(Seen(what, partition, offset))

    def succeed(self) -> None:
        self.outcome = Outcome.OK

    def fail(self, note: str = "") -> None:
        self.outcome, self.note = Outcome.FAILED, note


class History:
    """All operations, in the order in which they were invoked. Processes may be threads."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.operations = list(operations)
        self._moments = itertools.count()
        self._values = itertools.count()
        self._lock = threading.Lock()

    def new_value(self) -> int:
        """A value that has not been sent yet."""
        with self._lock:
            return next(self._values)

    @contextmanager
    def operation(self, process: int, *, is_transaction: bool = False) -> Iterator[Operation]:
        """Records an operation; an exception leaves its outcome unknown unless it was set before."""
        with self._lock:
            operation = Operation(process, next(self._moments), is_transaction)
            self.operations.append(operation)
        try:
            yield operation
        finally:
            with self._lock:
                operation.completed = next(self._moments)

    def transactions(self) -> dict[str, int]:
        """How many transactions had each outcome so far; those in progress are unknown."""
        with self._lock:
            outcomes = [operation.outcome for operation in self.operations if operation.is_transaction]
        return {outcome.value: outcomes.count(outcome) for outcome in Outcome}

    def save(self, path: Path) -> None:
        """Writes one operation per line, to find out what happened."""
        with path.open("w") as file:
            for operation in self.operations:
                file.write(json.dumps(_plain(operation)) + "\n")


def _plain(operation: Operation) -> dict[str, object]:
    return {
        "process": operation.process,
        "invoked": operation.invoked,
        "completed": operation.completed,
        "transaction": operation.is_transaction,
        "outcome": operation.outcome.value,
        "new_position": operation.is_new_position,
        "sends": [[str(send.partition), send.value, send.offset] for send in operation.sends],
        "reads": [[str(read.partition), read.offset, read.value] for read in operation.reads],
        "seen": [[seen.what, str(seen.partition), seen.offset] for seen in operation.seen],
        "note": operation.note,
    }
