"""Which replicas to move so that brokers carry equally much. Pure.

Load is the number of replicas and the number of partitions that a broker leads when the preferred leader leads. A plan
moves as little as it can: what lies well stays where it is. The steps, each leaving what the one before has reached:

    leave      replicas on brokers that are to be empty, and those above the replication factor, go
    fill       what is missing goes to the least loaded broker, on a rack of its own where there is one
    spread     two replicas on one rack move apart while a rack is unused
    balance    a replica goes from the most loaded broker to the least loaded one, until all differ by one at most
    lead       another replica becomes the first, the preferred leader, where leaders are unequal; that moves no data

Racks count where every broker has one. Between equals the smallest broker id wins, so a plan is the same every time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]


def balance(
    current: Assignment,
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
    elsewhere: Assignment | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that each partition of `current` is to have, the preferred leader first.

    `racks` names the brokers that may hold them, each with its rack. The replication factor of a partition stays
    unless one is given. `elsewhere` are partitions that stay as they are and count as load.
    """
    if not racks:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker is allowed to hold the replicas")
    plan = _Plan(current, racks, elsewhere or {})
    for partition in sorted(current):
        plan.resize(partition, replication_factor or len(current[partition]))
    for partition in sorted(current):
        plan.spread(partition)
    plan.balance_replicas()
    plan.balance_leaders()
    return {partition: tuple(plan.replicas[partition]) for partition in sorted(current)}


class _Plan:
    """A plan in the making: replicas by partition, and the load that they make."""

    def __init__(self, current: Assignment, racks: Mapping[int, str | None], elsewhere: Assignment) -> None:
        self.replicas = {
            partition: [node for node in replicas if node in racks] for partition, replicas in current.items()
        }
        self._brokers = sorted(racks)
        # A rack for each broker: without racks, or where some have none, each is alone on its own.
        has_racks = all(rack is not None for rack in racks.values())
        self._rack: dict[int, object] = {node: racks[node] if has_racks else node for node in racks}
        self._rack_count = len(set(self._rack.values()))
        self._load: Counter[int] = Counter()
        self._led_elsewhere: Counter[int] = Counter()
        self._load_by_topic: Counter[tuple[str, int]] = Counter()
        for partition, replicas in (*elsewhere.items(), *self.replicas.items()):
            for node in replicas:
                self._count(partition, node, 1)
        self._led_elsewhere.update(replicas[0] for replicas in elsewhere.values() if replicas)

    def _count(self, partition: TopicPartition, node: int, change: int) -> None:
        self._load[node] += change
        self._load_by_topic[partition.topic, node] += change

    # -- as many replicas as there are to be ---------------------------------------------------------------------------

    def resize(self, partition: TopicPartition, count: int) -> None:
        if count > len(self._brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{partition} is to have {count} replicas, and {len(self._brokers)} brokers may hold them",
            )
        replicas = self.replicas[partition]
        while len(replicas) > count:
            self._remove(partition, self._least_missed(replicas))
        while len(replicas) < count:
            self._add(partition, self._best_for(partition, self._brokers))

    def _least_missed(self, replicas: Sequence[int]) -> int:
        """One of a rack that has another, of the broker with the most to carry; the leader only if it must be."""
        on_rack = Counter(self._rack[node] for node in replicas)
        return max(
            replicas,
            key=lambda node: (on_rack[self._rack[node]] > 1, node != replicas[0], self._load[node], node),
        )

    def _best_for(self, partition: TopicPartition, candidates: Iterable[int]) -> int:
        """The broker without this partition that best takes a replica of it."""
        replicas = self.replicas[partition]
        used = {self._rack[node] for node in replicas}
        return min(
            (node for node in candidates if node not in replicas),
            key=lambda node: (
                self._rack[node] in used,
                self._load[node],
                self._load_by_topic[partition.topic, node],
                node,
            ),
        )

    def _add(self, partition: TopicPartition, node: int) -> None:
        self.replicas[partition].append(node)
        self._count(partition, node, 1)

    def _remove(self, partition: TopicPartition, node: int) -> None:
        self.replicas[partition].remove(node)
        self._count(partition, node, -1)

    def _move(self, partition: TopicPartition, source: int, target: int) -> None:
        """In place: where the leader goes, the one that comes is to lead."""
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = target
        self._count(partition, source, -1)
        self._count(partition, target, 1)

    # -- racks ---------------------------------------------------------------------------------------------------------

    def spread(self, partition: TopicPartition) -> None:
        replicas = self.replicas[partition]
        while self._racks_used(replicas) < min(len(replicas), self._rack_count):
            used = {self._rack[node] for node in replicas}
            target = self._best_for(partition, (node for node in self._brokers if self._rack[node] not in used))
            self._move(partition, self._least_missed(replicas), target)

    def _racks_used(self, replicas: Collection[int]) -> int:
        return len({self._rack[node] for node in replicas})

    # -- load ----------------------------------------------------------------------------------------------------------

    def balance_replicas(self) -> None:
        while self._moves_one():
            pass

    def _moves_one(self) -> bool:
        """Moves a replica from a broker to one with at least two fewer: each move makes the loads more equal."""
        by_load = sorted(self._brokers, key=lambda node: (self._load[node], node))
        for source in reversed(by_load):
            for target in by_load:
                if self._load[source] - self._load[target] < 2:
                    break
                if (partition := self._movable(source, target)) is not None:
                    self._move(partition, source, target)
                    return True
        return False

    def _movable(self, source: int, target: int) -> TopicPartition | None:
        """A partition that may go from one to the other: of the topic of which the source has the most too many."""

        def may_go(partition: TopicPartition, replicas: Sequence[int]) -> bool:
            if source not in replicas or target in replicas:
                return False
            after = [target if node == source else node for node in replicas]
            return self._racks_used(after) >= self._racks_used(replicas)

        return min(
            (partition for partition, replicas in self.replicas.items() if may_go(partition, replicas)),
            key=lambda partition: (
                self._load_by_topic[partition.topic, target] - self._load_by_topic[partition.topic, source],
                self.replicas[partition][0] == source,  # a follower goes more cheaply than a leader
                partition,
            ),
            default=None,
        )

    # -- leaders -------------------------------------------------------------------------------------------------------

    def balance_leaders(self) -> None:
        led = Counter(self._led_elsewhere)
        led.update(replicas[0] for replicas in self.replicas.values())
        while (path := self._path_to_equal(led)) is not None:
            for partition, target in path:
                replicas = self.replicas[partition]
                led[replicas[0]] -= 1
                led[target] += 1
                replicas.remove(target)
                replicas.insert(0, target)

    def _path_to_equal(self, led: Counter[int]) -> list[tuple[TopicPartition, int]] | None:
        """Partitions with new leaders, so that one broker leads one less and another, with two fewer or less, one more.

        Brokers between the two pass one on. None where leaders are as equal as the replicas allow.
        """
        next_hops: dict[int, dict[int, TopicPartition]] = {}
        for partition in sorted(self.replicas):
            leader, *followers = self.replicas[partition]
            for follower in followers:
                next_hops.setdefault(leader, {}).setdefault(follower, partition)
        for start in sorted(self._brokers, key=lambda node: (-led[node], node)):
            came_by: dict[int, tuple[int, TopicPartition] | None] = {start: None}
            waiting = deque([start])
            while waiting:
                node = waiting.popleft()
                if led[start] - led[node] >= 2:
                    return _walked_back(came_by, node)
                for follower, partition in sorted(next_hops.get(node, {}).items()):
                    if follower not in came_by:
                        came_by[follower] = (node, partition)
                        waiting.append(follower)
        return None


def _walked_back(
    came_by: Mapping[int, tuple[int, TopicPartition] | None], end: int
) -> list[tuple[TopicPartition, int]]:
    path: list[tuple[TopicPartition, int]] = []
    node = end
    while (step := came_by[node]) is not None:
        before, partition = step
        path.append((partition, node))
        node = before
    return path


def replicas_moved(current: Assignment, proposed: Assignment) -> int:
    """How many replicas would have to be copied to a broker that has none of the partition."""
    return sum(len(set(proposed[partition]) - set(current.get(partition, ()))) for partition in proposed)
