"""The coordinators on this broker: a machine for each partition of their topics that it leads.

A group or a transactional id belongs to one partition of an internal topic, by the hash of its name; the leader of that
partition coordinates it. A machine is loaded from its partition when leadership comes, a stretch at a time, and given
up when it goes. Between the two, requests are asked of its runner.

A partition that cannot be loaded is tried again with the next leader epoch and not before, as in Kafka: a disk that
fails takes its whole directory offline, and a batch that is damaged now is damaged in a minute. Until then nobody is
served by half of a state.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ottla.broker.journal import PartitionJournal, Replay
from ottla.broker.metadata_changes import MetadataChanges, RequestedTopic
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.cluster.image import NO_LEADER, ClusterImage, TopicState
from ottla.config.broker import BrokerConfig
from ottla.decisions import Decision
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.hashing import partition_of_coordinator
from ottla.ids import TopicPartition
from ottla.records.layout import Compression
from ottla.runtime.clock import Clock
from ottla.runtime.machine import Machine, Performer, Runner
from ottla.runtime.turns import Turns

logger = logging.getLogger(__name__)

MachineType = TypeVar("MachineType", bound=Machine)
Response = TypeVar("Response")

LOAD_STRETCH_BYTES = 64 * 1024  # applied before others get their turn: a few milliseconds
PARTITIONS_REMEMBERED_MAX = 100_000  # names whose hash is not worked out again


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """The parts of a broker that a coordinator uses. Image and settings change, so they are functions."""

    node_id: int
    image: Callable[[], ClusterImage]
    config: Callable[[], BrokerConfig]
    replicas: Replicas
    controller: Callable[[], MetadataChanges]
    clock: Clock
    turns: Turns
    in_background: Callable[[str, Coroutine[Any, Any, None]], None]


class CoordinatorShard(Generic[MachineType]):
    """One partition of a coordinator's topic that this broker leads, with its machine."""

    __slots__ = ("has_failed", "leader_epoch", "loaded_offset", "machine", "partition", "runner")

    def __init__(self, partition: Partition, leader_epoch: int, machine: MachineType) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch  # in which it was made
        self.machine = machine
        self.runner: Runner[MachineType] | None = None  # once loaded
        self.loaded_offset = partition.log.log_start_offset  # applied up to here
        self.has_failed = False

    async def load(self, replay: Replay) -> None:
        """Applies the whole log. What comes meanwhile, the markers of transactions, is applied as well."""
        log = self.partition.log
        while self.partition.is_leader and self.loaded_offset < log.end_offset:
            offset = max(self.loaded_offset, log.log_start_offset)
            found = self.partition.read(offset, LOAD_STRETCH_BYTES, upper_offset=log.end_offset, at_least_one=True)
            if found is None:
                break  # compaction took everything from here on
            self.loaded_offset = replay.take(found.records.read())
            await asyncio.sleep(0)

    def fail(self) -> None:
        """Its machine cannot be used: what it stands for is not known."""
        self.has_failed = True
        self.stop()
        self.runner = None

    def stop(self) -> None:
        if self.runner is not None:
            self.runner.stop()


class Coordinator(Generic[MachineType]):
    """One kind of coordinator: of groups, or of transactions."""

    def __init__(
        self,
        parts: CoordinatorParts,
        topic: str,
        make_machine: Callable[[], MachineType],
        make_replay: Callable[[MachineType], Replay],
        new_topic: Callable[[BrokerConfig], RequestedTopic],
        compression: Callable[[], Compression] = lambda: Compression.NONE,
    ) -> None:
        self._parts = parts
        self.topic = topic
        self._make_machine = make_machine
        self._make_replay = make_replay
        self._new_topic = new_topic
        self._compression = compression
        self._shards: dict[int, CoordinatorShard[MachineType]] = {}
        self._followed: TopicState | None = None
        self._partition_count = 0
        self._to_load: deque[CoordinatorShard[MachineType]] = deque()
        self._is_loading = False
        self._partitions: dict[str, int] = {}

    # -- who coordinates what ------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the topic is there."""
        return self.topic in self._parts.image().topics

    async def create_topic(self) -> None:
        """Makes the topic on its first use; ApiError says why it cannot be."""
        config = self._parts.config()
        requested = self._new_topic(config)
        brokers = self._parts.image().brokers
        if not brokers:  # cut off from a new controller, or no UpdateMetadata has arrived yet
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is known to be alive")
        if not config.zookeeper_connect:
            requested = replace(requested, replication_factor=1)
        elif len(brokers) < requested.replication_factor:
            # A topic that began with fewer replicas would keep them, and be lost with its first broker. As Kafka does.
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"its replication factor is {requested.replication_factor}, and {len(brokers)} brokers are alive: it "
                "is created once there are enough; where there will not be, set a smaller factor",
            )
        error = await self._parts.controller().create_unless_there(requested)
        if error is not None:
            raise error

    def partition_of(self, key: str) -> int:
        """The partition to whose leader a name belongs; COORDINATOR_NOT_AVAILABLE where the topic is not there."""
        partition = self._partitions.get(key)
        if partition is None:
            count = self._partition_count
            if count == 0:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
            if len(self._partitions) >= PARTITIONS_REMEMBERED_MAX:
                self._partitions.clear()
            partition = self._partitions[key] = partition_of_coordinator(key, count)
        return partition

    def node_of(self, key: str) -> int:
        """The broker that coordinates a name, -1 where nobody does at the moment."""
        if not self.is_ready:
            return NO_LEADER
        state = self._parts.image().partition(TopicPartition(self.topic, self.partition_of(key)))
        return NO_LEADER if state is None else state.leader

    def runner_of(self, key: str) -> Runner[MachineType]:
        """Where to ask about a name; ApiError says that it is elsewhere, or not there yet."""
        shard = self._shards.get(self.partition_of(key)) if self._shards else None
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate {key}")
        return self._running(shard)

    def runners(self) -> list[Runner[MachineType]]:
        """All machines on this broker, without those that failed; COORDINATOR_LOAD_IN_PROGRESS while one is loaded."""
        return [self._running(shard) for shard in self._shards.values() if not shard.has_failed]

    def _running(self, shard: CoordinatorShard[MachineType]) -> Runner[MachineType]:
        if shard.runner is not None and shard.partition.is_leader:
            return shard.runner
        if shard.has_failed or not shard.partition.is_leader:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{shard.partition.name} is not led by this broker")
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.partition.name} is being loaded")

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask(
        self, key: str, refuse: Callable[[ErrorCode], Response], decide: Callable[..., Decision], *arguments: Any
    ) -> Response:
        """Lets the machine of a name decide: `decide` is a method of its class, called with `arguments`, a ticket and
        the time. `refuse` makes the reply to a failure.
        """
        try:
            answer: Response = await self.runner_of(key).ask(decide, *arguments)
        except ApiError as error:
            return refuse(error.code)
        return answer

    # -- coming and going ----------------------------------------------------------------------------------------------

    def update_image(self, image: ClusterImage) -> None:
        """Takes over a new image; changes nothing of what is coordinated here."""
        topic = image.topics.get(self.topic)
        if topic is None or len(topic.partitions) != self._partition_count:
            self._partitions.clear()
        self._partition_count = 0 if topic is None else len(topic.partitions)

    def follow(self, image: ClusterImage) -> None:
        """Leads what the image gives to this broker, and lets go of the rest."""
        self.update_image(image)
        topic = image.topics.get(self.topic)
        if topic is self._followed:
            return
        self._followed = topic
        led = set()
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            if state.leader == self._parts.node_id:
                led.add(index)
                self._gain(index, state.leader_epoch)
        for index in self._shards.keys() - led:
            self._lose(index)

    def role_changed(self, partition: Partition) -> None:
        """A partition of the topic is led here from now on, or no longer."""
        index = partition.name.partition
        if partition.is_leader:
            self._gain(index, partition.leader_epoch)
        elif index in self._shards:
            self._lose(index)

    def replicas_lost(self, names: Iterable[TopicPartition]) -> None:
        """These are gone with their directory: a controller does not say so to the broker that lost them."""
        for name in names:
            if name.topic == self.topic and name.partition in self._shards:
                self._lose(name.partition)

    def follow_again(self, image: ClusterImage) -> None:
        """The same once more: partitions may be here that were not when the image came."""
        self._followed = None
        self.follow(image)

    def stop(self) -> None:
        """Answers everybody who waits. Nothing is decided after this."""
        for index in list(self._shards):
            self._lose(index)

    def _gain(self, index: int, leader_epoch: int) -> None:
        try:
            partition = self._parts.replicas.find(self.topic, index)
        except ApiError as error:
            logger.error("%s-%d cannot be loaded: %s", self.topic, index, error)
            return
        shard = self._shards.get(index)
        if shard is not None:
            # Where it was ours before and could be loaded, another leader epoch changes nothing.
            is_worth_loading = shard.has_failed and shard.leader_epoch != leader_epoch
            if shard.partition is partition and not is_worth_loading:
                return
            shard.stop()
        shard = self._shards[index] = CoordinatorShard(partition, leader_epoch, self._make_machine())
        if partition.log.log_start_offset == partition.log.end_offset:
            self._start(shard)
            return
        self._to_load.append(shard)
        if not self._is_loading:
            self._is_loading = True
            self._parts.in_background(f"loading {self.topic}", self._load())

    def _lose(self, index: int) -> None:
        self._shards.pop(index).stop()

    async def _load(self) -> None:
        """One after the other: many at once would keep the loop from everybody else."""
        try:
            while self._to_load:
                await self._load_one(self._to_load.popleft())
        finally:
            self._is_loading = False

    async def _load_one(self, shard: CoordinatorShard[MachineType]) -> None:
        since_ms = self._parts.clock.steady_ms()
        try:
            replay = self._make_replay(shard.machine)
            await shard.load(replay)
            took_s = (self._parts.clock.steady_ms() - since_ms) / 1000
            logger.info("%s: %d records were loaded in %.1f s", shard.partition.name, replay.record_count, took_s)
            if self._shards.get(shard.partition.name.partition) is shard:
                self._start(shard)
        except Exception as error:  # whatever it is, the partitions behind this one must not wait for ever
            shard.fail()
            logger.error(
                "%s cannot be loaded from offset %d on, and its groups or transactions are not served: %s; "
                "`ottla dump-log` shows its contents",
                shard.partition.name,
                shard.loaded_offset,
                error,
                exc_info=None if isinstance(error, OttlaError) else error,
            )

    def _start(self, shard: CoordinatorShard[MachineType]) -> None:
        parts = self._parts
        shard.runner = Runner(
            shard.machine,
            PartitionJournal(shard.partition, self._compression()),
            parts.clock,
            applied_offset=shard.partition.log.end_offset,
            commit_timeout_ms=lambda: parts.config().offsets_commit_timeout_ms,
            in_background=parts.in_background,
            turns=parts.turns,
            performer=self._performer_of(shard),
        )
        shard.runner.start()

    def _performer_of(self, shard: CoordinatorShard[MachineType]) -> Performer | None:
        """Who performs the effects of a machine's decisions, where they have any."""
        return None
