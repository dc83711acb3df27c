"""The partitions on this broker, by name and by topic id.

One broker alone keeps them in step with its image (`prepare`, `apply`, `finish`). In a cluster the image is what all
brokers know, and the controller says to each broker which partitions it holds, leads and follows (`hold`, `lead`,
`follow`, `stop`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from uuid import UUID

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.partition import Partition
from ottla.cluster.image import ClusterImage, PartitionState, TopicState
from ottla.errors import ApiError, ErrorCode, OutOfDescriptorsError, StorageError
from ottla.ids import TopicPartition
from ottla.protocol.wire import ZERO_UUID
from ottla.replication.leader import Leader
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload
from ottla.runtime.turns import Turns
from ottla.storage.log import Log
from ottla.storage.log_directory import LogDirectory, LogPlan, RenamePlan
from ottla.storage.logs import Logs

logger = logging.getLogger(__name__)

LOGS_MADE_AT_ONCE = 4  # they wait for the disk, not for each other


class Replicas:
    """Owns the partition objects; the logs are `Logs`', the assignment is the image's."""

    def __init__(self, node_id: int, logs: Logs, clock: Clock, failures: DiskFailures) -> None:
        self.node_id = node_id
        self._logs = logs
        self._clock = clock
        self._failures = failures
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._image: ClusterImage | None = None
        self._high_watermarks: dict[TopicPartition, int] = {}
        # Ours by the image, with a log that cannot be had. Another log in its place would be empty, as if all that
        # was acknowledged had never been.
        self._offline: dict[TopicPartition, UUID] = {}
        # Ours by the image, without a descriptor to open or to make the log: of which topic, and whether it is new.
        self._delayed: dict[TopicPartition, tuple[UUID, bool]] = {}
        # Made already, of an image that is about to be applied.
        self._prepared: set[TopicPartition] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    # -- finding -------------------------------------------------------------------------------------------------------

    @property
    def offline(self) -> list[TopicPartition]:
        """The partitions that should be here and whose logs cannot be had."""
        return list(self._offline)

    def find(self, topic: str, index: int) -> Partition:
        """The partition; ApiError says whether it is unknown or elsewhere."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._missing(TopicPartition(topic, index))
        return partition

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic that are here."""
        state = None if self._image is None else self._image.topics.get(topic)
        indexes = range(0 if state is None else len(state.partitions))
        return [self._partitions[topic, index] for index in indexes if (topic, index) in self._partitions]

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        name = self._name_of(topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return self.find(name, index)

    def find_named_or_by_id(self, topic: str, topic_id: UUID, index: int) -> Partition:
        return self.find(topic, index) if topic_id == ZERO_UUID else self.find_by_id(topic_id, index)

    def _name_of(self, topic_id: UUID) -> str | None:
        return None if self._image is None else self._image.names_by_id.get(topic_id)

    def _missing(self, name: TopicPartition) -> ApiError:
        state = None if self._image is None else self._image.partition(name)
        if state is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not known")
        if name in self._delayed:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"too many open files to open the log of {name}; try again")
        if name in self._offline:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline on this broker")
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not on this broker, or not yet")

    # -- keeping in step -----------------------------------------------------------------------------------------------

    def load_high_watermarks(self) -> None:
        """What the last run knew to be committed; a partition starts from there."""
        self._high_watermarks = self._logs.checkpointed_high_watermarks()

    def update_image(self, image: ClusterImage) -> None:
        """Takes over a new image; changes no role."""
        self._image = image

    async def prepare(self, image: ClusterImage, offload: Offload, turns: Turns) -> None:
        """Makes the partitions that an image adds, in turns; their logs in threads, for each costs several syncs.

        `apply` finds them. What could not be made here it tries again, and has the words for it.
        """
        for topic in image.changes_since(self._image).changed:
            await self._prepare_topic(topic, offload, turns)

    async def _prepare_topic(self, topic: TopicState, offload: Offload, turns: Turns) -> None:
        missing: dict[TopicPartition, PartitionState] = {}
        async for index, state in turns.over(enumerate(topic.partitions)):
            name = TopicPartition(topic.name, index)
            if self.node_id not in state.replicas or name in self._partitions:
                continue
            if self._offline.get(name) != topic.topic_id:
                await self._set_strays_aside(name, topic.topic_id, offload)
                missing[name] = state
        await self._make_logs({name: state.leader_epoch for name, state in missing.items()}, topic.topic_id, offload)
        async for name, state in turns.over(missing.items()):
            if self._logs.owner_of(name) == topic.topic_id:
                self._add(name, topic.topic_id, state, is_new=True)
                self._prepared.add(name)

    async def _make_logs(self, missing: Mapping[TopicPartition, int | None], topic_id: UUID, offload: Offload) -> None:
        """Logs of new partitions of a topic, each with its first leader epoch where this broker leads it."""
        names = [name for name in missing if self._logs.get(name) is None and name not in self._logs.unreadable]
        if names and any(directory.is_online for directory in self._logs.directories):
            new = self._logs.begin_create(names, now_ms=self._clock.now_ms(), topic_id=topic_id)
            plans = deque((plan, missing[plan.partition]) for plan in new)
            await asyncio.gather(*(self._make(plans, offload) for _ in range(min(LOGS_MADE_AT_ONCE, len(plans)))))

    async def _make(self, plans: deque[tuple[LogPlan, int | None]], offload: Offload) -> None:
        while plans:
            plan, epoch = plans.popleft()
            if not plan.directory.is_online:
                continue
            try:
                self._logs.adopt(plan, await offload.in_thread(partial(_made, plan, epoch)))
            except StorageError as error:
                self.take_offline(plan.directory, error)
            if plan.directory.failure is not None:
                # Something of it may be there. Made elsewhere as well, it would be there twice after a restart.
                assert plan.topic_id is not None
                self._offline[plan.partition] = plan.topic_id

    async def _set_strays_aside(self, name: TopicPartition, topic_id: UUID, offload: Offload) -> None:
        directory = self._logs.directory_of(name)
        if directory is None:
            return
        try:
            for plan in self._logs.begin_set_strays_aside(name, topic_id, is_new=True):
                await offload.in_thread(plan.run)
        except StorageError as error:
            if error.is_disk_failure:
                self.take_offline(directory, error)
            # Else `apply` finds the same and has the words for it.

    def apply(self, image: ClusterImage) -> None:
        """Brings the partitions in line with a new image: makes, leads and lets go what it says; see `finish`."""
        previous, self._image = self._image, image
        changes = image.changes_since(previous)
        for topic in changes.removed:
            self._drop_topic(topic)
        for topic in changes.changed:
            before = None if previous is None else previous.topics.get(topic.name)
            known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
            for index, state in enumerate(topic.partitions):
                name = TopicPartition(topic.name, index)
                if name in self._prepared or (index < len(known) and known[index] is state):
                    continue
                if self.node_id in state.replicas and self._offline.get(name) != topic.topic_id:
                    self._add(name, topic.topic_id, state, is_new=previous is not None)
        self._prepared.clear()

    def _add(self, name: TopicPartition, topic_id: UUID, state: PartitionState, *, is_new: bool) -> None:
        """Has the partition here, and leads it if the image says so."""
        try:
            partition = self._partition(name, topic_id, is_new=is_new)
            self._delayed.pop(name, None)
            if state.leader == self.node_id:
                self.lead(partition, state)
        except OutOfDescriptorsError as error:
            if name not in self._delayed:
                logger.warning("%s; %s is not served until that changes", error, name)
            self._delayed[name] = topic_id, is_new
        except StorageError as error:
            logger.error("%s; %s is offline", error, name)
            self._offline[name] = topic_id

    def add_delayed(self) -> bool:
        """Tries the partitions again for which there were no descriptors; whether there were any."""
        assert self._image is not None
        had_delayed = bool(self._delayed)
        for name, (topic_id, is_new) in list(self._delayed.items()):
            state = self._image.partition(name)
            if state is None or self._image.topics[name.topic].topic_id != topic_id:
                del self._delayed[name]
            else:
                self._add(name, topic_id, state, is_new=is_new)
        return had_delayed

    def _partition(self, name: TopicPartition, topic_id: UUID, *, is_new: bool) -> Partition:
        partition = self._partitions.get(name)
        assert partition is None or partition.topic_id == topic_id, f"{name} of an earlier topic was let go"
        if partition is None:
            self._logs.set_strays_aside(name, topic_id, is_new=is_new)
            if not is_new:
                self._check_may_be_made(name)
            log = self._logs.create(name, now_ms=self._clock.now_ms(), topic_id=topic_id)
            self._logs.claim(name, topic_id)
            partition = self._partitions[name] = Partition(name, topic_id, log, self._failures, self._truncate)
        return partition

    def _truncate(self, name: TopicPartition, offset: int, now_ms: int) -> None:
        self._logs.truncate(name, offset, now_ms=now_ms)

    def _check_may_be_made(self, name: TopicPartition) -> None:
        """A partition that was here before and is missing now may be on the directory that failed: no second one."""
        failed = next((directory for directory in self._logs.directories if not directory.is_online), None)
        if failed is not None and self._logs.owner_of(name) is None:
            raise StorageError(failed.path, f"is offline and may hold {name}")

    def lead(self, partition: Partition, state: PartitionState) -> None:
        """This broker leads a partition from now on; what was committed before stays so."""
        log = partition.log
        partition.lead(
            Leader(
                self.node_id,
                state.leader_epoch,
                state.replicas,
                state.isr,
                end_offset=log.end_offset,
                high_watermark=max(self._known_high_watermark(partition), log.log_start_offset),
                version=state.version,
                now_ms=self._clock.steady_ms(),
            )
        )
        log.producers.passed_high_watermark(partition.leader.high_watermark)

    def follow(self, partition: Partition, state: PartitionState) -> None:
        """This broker follows the leader of a partition from now on."""
        partition.follow(state.leader, state.leader_epoch, self._known_high_watermark(partition))

    def _known_high_watermark(self, partition: Partition) -> int:
        """From the role before, or from the run before."""
        remembered = min(self._high_watermarks.pop(partition.name, 0), partition.log.end_offset)
        return max(remembered, partition.high_watermark)

    # -- what a controller says ----------------------------------------------------------------------------------------

    async def hold(
        self, topic: str, topic_id: UUID, states: Mapping[int, PartitionState], new: Collection[int], offload: Offload
    ) -> dict[int, Partition | ErrorCode]:
        """Has these partitions of a topic here: each, or why it cannot be. `new`: those that never were anywhere."""
        held: dict[int, Partition | ErrorCode] = {}
        missing: dict[TopicPartition, int | None] = {}
        for index, state in states.items():
            name = TopicPartition(topic, index)
            partition = self._partitions.get(name)
            if partition is not None:
                held[index] = partition if partition.topic_id == topic_id else ErrorCode.INCONSISTENT_TOPIC_ID
            elif self._offline.get(name) == topic_id:
                held[index] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                # A log of another topic of that name was left here while the controller could not reach this broker.
                if index in new or self._logs.owner_of(name) not in (None, topic_id):
                    await self._set_strays_aside(name, topic_id, offload)
                if index in new:
                    missing[name] = state.leader_epoch if state.leader == self.node_id else None
        await self._make_logs(missing, topic_id, offload)
        for index in [index for index in states if index not in held]:
            held[index] = self._held(TopicPartition(topic, index), topic_id)
        return held

    def _held(self, name: TopicPartition, topic_id: UUID) -> Partition | ErrorCode:
        if name in self._offline:  # its directory failed while it was made
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            return self._partition(name, topic_id, is_new=False)
        except OutOfDescriptorsError as error:
            logger.warning("%s; %s is not served until it is asked for again", error, name)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except StorageError as error:
            logger.error("%s; %s is offline", error, name)
            self._offline[name] = topic_id
            return ErrorCode.KAFKA_STORAGE_ERROR

    def get(self, name: TopicPartition) -> Partition | None:
        return self._partitions.get(name)

    def is_offline(self, name: TopicPartition) -> bool:
        """Whether a partition should be here and its log cannot be had."""
        return name in self._offline

    def drop(self, name: TopicPartition) -> None:
        """A partition is to be deleted here; one that nobody claimed as well. `finish` takes it away."""
        self._offline.pop(name, None)
        self._high_watermarks.pop(name, None)
        partition = self._partitions.pop(name, None)
        if partition is not None:
            partition.leave()
        directory = self._logs.directory_of(name)
        if directory is not None:
            self._logs.detach(directory, name)
        self._logs.moves.cancel(name)

    def finish_deletion(self, topic: str, topic_id: UUID) -> None:
        """Deletes what a crash left of a deleted topic; one of the same name with another id is not touched."""
        for log in [log for log in self._logs if log.name.topic == topic]:
            if log.name not in self._partitions and self._logs.owner_of(log.name) in (topic_id, None):
                self._logs.delete(log.name, now_ms=self._clock.steady_ms())

    def unclaimed(self) -> list[Log]:
        """Logs on this broker that no topic of the image has."""
        return [log for log in self._logs if log.name not in self._partitions and log.name not in self._offline]

    def owner_of(self, name: TopicPartition) -> UUID | None:
        """The id of the topic that a log on this broker belongs to; None where its directory does not say."""
        return self._logs.owner_of(name)

    def _drop_topic(self, topic: TopicState) -> None:
        """The partitions of a topic that is gone: nobody finds them from here on, and `finish` deletes their logs."""
        for index in range(len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            self._offline.pop(name, None)
            self._delayed.pop(name, None)
            if name in self._partitions:
                self.drop(name)

    async def finish(self, offload: Offload) -> None:
        """Renames the directories of the logs that were dropped, in a thread: renames and syncs.

        Whoever deletes topics waits for it before the next change: a new topic of the name needs the place.
        """
        for directory in self._logs.directories:
            if directory.detached and directory.is_online:
                await asyncio.sleep(0)  # dropping thousands of logs was a turn by itself
                await self._delete(self._logs.begin_delete(directory, self._clock.steady_ms()), offload)

    async def finish_delayed(self, offload: Offload) -> None:
        """Goes on with what `finish` could not do for want of descriptors."""
        for deletion in self._logs.take_unfinished():
            await self._delete(deletion, offload)

    async def _delete(self, deletion: RenamePlan, offload: Offload) -> None:
        try:
            await offload.in_thread(deletion.run)
            self._logs.end_delete(deletion)
        except OutOfDescriptorsError as error:
            # The names are gone already, which takes no descriptor; that they stay so after a crash is yet to come.
            logger.warning("%s; the deletion of logs in %s is continued later", error, deletion.directory.path)
            self._logs.finish_delete_later(deletion)
        except StorageError as error:
            self.take_offline(deletion.directory, error)

    def directory_failed(self, log: Log, error: StorageError) -> None:
        """The disk under a log failed: its directory goes offline, and every partition in it."""
        directory = self._logs.directory_of(log.name)
        # A log that was deleted meanwhile failed for that reason, whatever has its name now.
        if directory is not None and directory.logs[log.name] is log:
            self.take_offline(directory, error)

    def take_offline(self, directory: LogDirectory, error: StorageError) -> None:
        """After an error of its disk, a directory goes offline with its partitions; other errors are only logged."""
        if not error.is_disk_failure:
            logger.warning("%s; the log directory stays online", error)
            return
        lost = self._logs.fail(directory, error)
        for name in lost:
            partition = self._partitions.pop(name, None)
            if partition is not None:
                self._offline[name] = partition.topic_id
                partition.leave()
        self._failures.record_lost(lost)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What is known to be committed, for the checkpoint."""
        return {partition.name: partition.high_watermark for partition in self}


def _made(plan: LogPlan, leader_epoch: int | None) -> Log:
    """A new log. A leader's has its first epoch, which costs a sync as well; a follower's learns epochs by fetching."""
    log = plan.make()
    if leader_epoch is not None:
        log.assign_epoch(leader_epoch)
    return log
