"""What must not be in a history: lost and duplicate writes, reads of aborted records, wrong order.

The checker does not look at a broker, only at what clients saw. From all sends and reads it computes which value was at
which offset, and checks each operation against that. The names of anomalies are those of Jepsen's workload for Kafka
where it has them. Interleaved writes of transactions are not an anomaly: Kafka does not promise an order between them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla.ids import TopicPartition
from ottla.testing.history import History, Operation, Outcome, Read


class Anomaly(Enum):
    """An anomaly, in a sentence."""

    INCONSISTENT_OFFSETS = "two values stand at one offset"
    DUPLICATE = "a value that was sent once stands at two offsets"
    LOST_WRITE = "an acknowledged value was passed over by readers who went further"
    UNSEEN = "an acknowledged value was not there when everything was read at the end"
    ABORTED_READ = "a value was read whose operation failed for certain"
    TORN_TRANSACTION = "a part of a transaction was read, and another part never"
    UNWRITTEN_READ = "a value was read that nobody sent there"
    POLL_SKIP = "a reader left out values between two that it read"
    NONMONOTONIC_POLL = "a reader went back without having asked for it"
    NONMONOTONIC_SEND = "a process's later value stands before its earlier one"
    OFFSET_WENT_BACK = "an offset that only rises was seen to fall"
    WRITE_READ_CYCLE = "transactions read from each other in a circle"


class Finding(NamedTuple):
    anomaly: Anomaly
    words: str

    def __str__(self) -> str:
        return f"{self.anomaly.name.lower().replace('_', ' ')}: {self.words} ({self.anomaly.value})"


class Place(NamedTuple):
    partition: TopicPartition
    offset: int


@dataclass(frozen=True)
class _Facts:
    """What all clients together know."""

    senders: dict[int, Operation]  # by value
    sent_to: dict[int, TopicPartition]  # where a value was sent to
    read: dict[int, set[Place]]  # where a value was read
    places: dict[int, set[Place]]  # where a value is, by reads and by answers
    standing: dict[TopicPartition, dict[int, set[int]]]  # values by offset
    furthest: dict[TopicPartition, int]  # the highest offset that was read

    @staticmethod
    def of(operations: Iterable[Operation]) -> _Facts:
        facts = _Facts({}, {}, defaultdict(set), defaultdict(set), defaultdict(lambda: defaultdict(set)), {})
        for operation in operations:
            for send in operation.sends:
                facts.senders[send.value] = operation
                facts.sent_to[send.value] = send.partition
                if send.offset is not None and operation.outcome is not Outcome.FAILED:
                    facts._note(send.value, Place(send.partition, send.offset))
            for partition, offset, value in operation.reads:
                place = Place(partition, offset)
                facts._note(value, place)
                facts.read[value].add(place)
                facts.furthest[partition] = max(offset, facts.furthest.get(partition, -1))
        return facts

    def _note(self, value: int, place: Place) -> None:
        self.places[value].add(place)
        self.standing[place.partition][place.offset].add(value)


def check(history: History | Iterable[Operation], *, is_drained: bool = True) -> list[Finding]:
    """All anomalies. `is_drained`: every partition was read up to its end at the end."""
    operations = list(history.operations if isinstance(history, History) else history)
    facts = _Facts.of(operations)
    return [
        *_places(facts),
        *_fates(operations, facts, is_drained),
        *_orders(operations, facts),
        *_falls(operations),
        *_cycles(operations, facts),
    ]


# -- values and places -------------------------------------------------------------------------------------------------


def _places(facts: _Facts) -> Iterator[Finding]:
    for partition, offsets in facts.standing.items():
        for offset, values in sorted(offsets.items()):
            if len(values) > 1:
                yield Finding(Anomaly.INCONSISTENT_OFFSETS, f"{partition} offset {offset} holds {sorted(values)}")
    for value, places in facts.places.items():
        if len(places) > 1:
            where = sorted((str(place.partition), place.offset) for place in places)
            yield Finding(Anomaly.DUPLICATE, f"{value} stands at {where}")
    for value, places in facts.read.items():
        if any(place.partition != facts.sent_to.get(value) for place in places):
            yield Finding(Anomaly.UNWRITTEN_READ, f"{value} was read from {sorted(places)}")


def _fates(operations: list[Operation], facts: _Facts, is_drained: bool) -> Iterator[Finding]:
    """What became of each value, beside what its process knows."""
    for operation in operations:
        values = [send.value for send in operation.sends]
        read = [value for value in values if value in facts.read]
        unread = [value for value in values if value not in facts.read]
        match operation.outcome:
            case Outcome.FAILED:
                for value in read:
                    yield Finding(Anomaly.ABORTED_READ, f"{value} of process {operation.process}, {operation.note}")
            case Outcome.OK:
                for send in operation.sends:
                    if send.value not in unread:
                        continue
                    was_passed = send.offset is not None and facts.furthest.get(send.partition, -1) > send.offset
                    if was_passed or is_drained:
                        anomaly = Anomaly.LOST_WRITE if was_passed else Anomaly.UNSEEN
                        yield Finding(
                            anomaly,
                            f"{send.value} of process {operation.process} in {send.partition} at {send.offset}; "
                            f"read up to {facts.furthest.get(send.partition)}",
                        )
            case Outcome.UNKNOWN if operation.is_transaction and is_drained and read and unread:
                yield Finding(Anomaly.TORN_TRANSACTION, f"of process {operation.process}: {read} and not {unread}")


# -- order -------------------------------------------------------------------------------------------------------------


def _orders(operations: list[Operation], facts: _Facts) -> Iterator[Finding]:
    by_process: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_process[operation.process].append(operation)
    visible = {
        partition: sorted(offset for offset, values in offsets.items() if any(value in facts.read for value in values))
        for partition, offsets in facts.standing.items()
    }
    for process, own in by_process.items():
        yield from _poll_order(process, own, visible)
        yield from _send_order(process, own, facts)


def _poll_order(
    process: int, operations: list[Operation], visible: dict[TopicPartition, list[int]]
) -> Iterator[Finding]:
    last: dict[TopicPartition, Read] = {}
    for operation in operations:
        if operation.is_new_position:
            last.clear()
        for read in operation.reads:
            previous = last.get(read.partition)
            last[read.partition] = read
            if previous is None:
                continue
            if read.offset <= previous.offset:
                yield Finding(
                    Anomaly.NONMONOTONIC_POLL,
                    f"process {process} read {read.partition} at {previous.offset}, then at {read.offset}",
                )
            else:
                offsets = visible[read.partition]
                skipped = offsets[bisect_right(offsets, previous.offset) : bisect_left(offsets, read.offset)]
                if skipped:
                    yield Finding(
                        Anomaly.POLL_SKIP,
                        f"process {process} read {read.partition} at {previous.offset} and {read.offset}, "
                        f"not at {skipped[:5]}",
                    )


def _send_order(process: int, operations: list[Operation], facts: _Facts) -> Iterator[Finding]:
    last: dict[TopicPartition, tuple[int, int]] = {}
    for operation in operations:
        for send in operation.sends:
            places = facts.places.get(send.value)
            if not places or operation.outcome is Outcome.FAILED:
                continue
            offset = min(place.offset for place in places)
            previous = last.get(send.partition)
            if previous is not None and offset <= previous[1]:
                yield Finding(
                    Anomaly.NONMONOTONIC_SEND,
                    f"process {process} sent {previous[0]}, then {send.value} to {send.partition}: they stand at "
                    f"{previous[1]} and {offset}",
                )
            last[send.partition] = (send.value, offset)


def _falls(operations: list[Operation]) -> Iterator[Finding]:
    """Offsets that were seen to fall: by somebody who asked after somebody else had an answer."""
    moments: list[tuple[int, bool, str, TopicPartition, int]] = []
    for number, operation in enumerate(operations):
        if operation.outcome is not Outcome.OK or operation.completed is None:
            continue
        for what, partition, offset in operation.seen:
            moments.append((operation.invoked, False, what, partition, number))
            moments.append((operation.completed, True, what, partition, offset))
    highest: dict[tuple[str, TopicPartition], int] = defaultdict(lambda: -1)
    floor: dict[tuple[str, TopicPartition, int], int] = {}
    for _, is_answer, what, partition, fact in sorted(moments, key=lambda moment: moment[0]):
        if is_answer:
            highest[what, partition] = max(highest[what, partition], fact)
        else:
            floor[what, partition, fact] = highest[what, partition]
    for number, operation in enumerate(operations):
        for what, partition, offset in operation.seen:
            before = floor.get((what, partition, number), -1)
            if offset < before:
                yield Finding(Anomaly.OFFSET_WENT_BACK, f"the {what} of {partition} was {before}, then {offset}")


# -- transactions that read from each other ----------------------------------------------------------------------------


def _cycles(operations: list[Operation], facts: _Facts) -> Iterator[Finding]:
    """A transaction that read a value comes after the one that wrote it; nobody can come after itself."""
    transactions = {id(one): one for one in operations if one.is_transaction and one.outcome is not Outcome.FAILED}
    after: dict[int, set[int]] = {key: set() for key in transactions}
    for key, reader in transactions.items():
        for _, _, value in reader.reads:
            writer = facts.senders.get(value)
            if writer is not None and writer is not reader and id(writer) in transactions:
                after[id(writer)].add(key)
    for component in _components(after):
        members = ", ".join(
            f"process {transactions[key].process} at {transactions[key].invoked}" for key in sorted(component)
        )
        yield Finding(Anomaly.WRITE_READ_CYCLE, members)


def _components(edges: dict[int, set[int]]) -> Iterator[list[int]]:
    """The strongly connected components of more than one member: Tarjan's, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, neighbours = work[-1]
            for neighbour in neighbours:
                if neighbour not in index:
                    index[neighbour] = low[neighbour] = len(index)
                    stack.append(neighbour)
                    on_stack.add(neighbour)
                    work.append((neighbour, iter(edges[neighbour])))
                    break
                if neighbour in on_stack:
                    low[node] = min(low[node], index[neighbour])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1:
                        yield component
