"""Which partition a record goes to.

In this order: the partition that the record names, the producer's own partitioner, the hash of the key, and for a
record without a key the partition that its topic sticks to for the moment (KIP-794): full batches to one partition
after another, to those with short queues more often.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

from ottla.client.errors import SettingsError
from ottla.records import codec


def partition_by_murmur2(key: bytes, partition_count: int) -> int:
    """Where every Kafka client sends a key, by Java's hash."""
    (partition,) = memoryview(codec.partitions_of_keys([key], partition_count, 0)).cast("B").cast("i")
    return partition


@runtime_checkable
class Partitioner(Protocol):
    """Chooses for every record that names no partition. None leaves the choice to the sticky one."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        """`available` are the partitions that have a leader now."""


class Murmur2:
    """Where every Kafka client sends a key, by Java's hash; keyless records are left to the sticky one."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        return None if key is None else partition_by_murmur2(key, partition_count)


class Crc32:
    """Where librdkafka, and so confluent-kafka, sends a key by default. An empty key counts as none."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        return zlib.crc32(key) % partition_count if key else None


class RoundRobin:
    """A record to each partition in turn, whatever its key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        choices = available or range(partition_count)
        return choices[turn % len(choices)]


class Keyless:
    """Every record to the sticky partition, whatever its key (`partitioner.ignore.keys`)."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        return None


class OwnFunction:
    """A function `(key, all_partitions, available_partitions) -> partition`, as kafka-python and aiokafka take one."""

    def __init__(self, function: Callable[[bytes | None, list[int], list[int]], int]) -> None:
        self._function = function

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int | None:
        return self._function(key, list(range(partition_count)), list(available))


_NAMED: dict[str, Callable[[], Partitioner]] = {
    "murmur2": Murmur2,
    "murmur2_random": Murmur2,
    "crc32": Crc32,
    "consistent_random": Crc32,
    "round_robin": RoundRobin,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": RoundRobin,
}


def partitioner_of(given: Any, *, ignores_keys: bool) -> Partitioner:
    """The partitioner of a setting: a name, a Partitioner, a function, or None for Kafka's own way."""
    if given is None:
        return Keyless() if ignores_keys else Murmur2()
    if isinstance(given, str):
        if given not in _NAMED:
            raise SettingsError("partitioner", f"no partitioner is called {given!r}: {', '.join(_NAMED)} are")
        return _NAMED[given]()
    if isinstance(given, Partitioner):
        return given
    if callable(given):
        return OwnFunction(given)
    raise SettingsError("partitioner", f"{given!r} is neither the name of a partitioner nor one nor a function")


class Sticky:
    """The partition that the keyless records of one topic stick to, until about a batch of bytes went there."""

    __slots__ = ("_rng", "_weights", "partition", "produced_bytes", "switch_bytes")

    def __init__(self, switch_bytes: int, rng: random.Random) -> None:
        self.partition = -1  # none yet
        self.produced_bytes = 0
        self.switch_bytes = max(1, switch_bytes)
        self._rng = rng
        self._weights: tuple[list[int], list[int]] | None = None  # partitions, running sums of their weights

    def load(self, queues: Sequence[int], available: Sequence[int]) -> None:
        """Takes the lengths of the queues of all partitions: those with less to do are chosen more often."""
        self._weights = None
        if len(queues) < 2 or not available:
            return
        if len(available) == len(queues) and len(set(queues)) == 1:
            return
        longest = max(queues[number] for number in available)
        weights = [longest + 1 - queues[number] for number in available]
        self._weights = (list(available), list(accumulate(weights)))

    def choose(self, partition_count: int, available: Sequence[int]) -> int:
        """The partition for the next record."""
        if not 0 <= self.partition < partition_count:
            self.switch(partition_count, available)
        return self.partition

    def take_turn(self, choices: Sequence[int]) -> int:
        """The first of these behind the last one that was taken; they are in order."""
        if self.partition < 0:
            self.partition = choices[self._rng.randrange(len(choices))]
        else:
            self.partition = choices[bisect_right(choices, self.partition) % len(choices)]
        self.produced_bytes = 0
        return self.partition

    def appended(self, size_bytes: int) -> None:
        self.produced_bytes += size_bytes

    @property
    def has_produced_a_batch(self) -> bool:
        """Enough for another partition's turn, between batches."""
        return self.produced_bytes >= self.switch_bytes

    @property
    def has_produced_two(self) -> bool:
        """Enough in any case: a batch that never fills must not keep the others waiting."""
        return self.produced_bytes >= 2 * self.switch_bytes

    @property
    def bytes_left(self) -> int:
        """Until it is enough in any case."""
        return 2 * self.switch_bytes - self.produced_bytes

    def switch(self, partition_count: int, available: Sequence[int]) -> None:
        self.produced_bytes = 0
        if self._weights is not None:
            partitions, sums = self._weights
            chosen = partitions[bisect_right(sums, self._rng.randrange(sums[-1]))]
            if chosen < partition_count:
                self.partition = chosen
                return
        choices = available or range(partition_count)
        self.partition = choices[self._rng.randrange(len(choices))]
