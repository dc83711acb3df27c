"""A partition on this broker: its log, its role, its high watermark, and the signal that something moved.

It leads, follows, or does neither until somebody says which. `moved` fires when a waiting request should look again:
records came, the high watermark or the log start moved, the role changed, the partition went away. `committed` fires
for those of them that say whether records are committed: very many may wait for that, and not all of them look at every
append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.disk_failures import DiskFailures
from ottla.errors import ApiError, ErrorCode, OutOfDescriptorsError, StorageError
from ottla.ids import TopicPartition
from ottla.records.control import EndTransactionMarker
from ottla.replication.fetch_requests import FetchPosition
from ottla.replication.follower import Fetched, Follower, TruncateTo, follower_high_watermark, truncation_offset
from ottla.replication.leader import NO_EPOCH, UNKNOWN_BROKER_EPOCH, Leader, check_epoch
from ottla.runtime.signal import Signal
from ottla.storage.admission import Admitted
from ottla.storage.appended import Appended
from ottla.storage.file_slice import FileSlice
from ottla.storage.index import AbortedTransaction, TimestampOffset
from ottla.storage.log import Log
from ottla.storage.log_slice import LogSlice
from ottla.storage.lookups import Looked

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ALL_REPLICAS = -1  # acks
NO_VERSION = -1


def check_isolation(level: int) -> None:
    """INVALID_REQUEST where a reader asks for an isolation level that is none."""
    if level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {level}")


class Watermarks(NamedTuple):
    """The offsets that an answer has beside the records."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Partition:
    """One replica of a partition, as long as it is on this broker."""

    __slots__ = (
        "_failures",
        "_followed_high_watermark",
        "_follower",
        "_leader",
        "_truncate",
        "committed",
        "is_gone",
        "leader_epoch",
        "leadership",
        "log",
        "moved",
        "name",
        "topic_id",
        "version",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        failures: DiskFailures,
        truncate: Callable[[TopicPartition, int, int], None],
    ) -> None:
        """`truncate` cuts the log at an offset, at a time, and makes that durable with all that depends on it."""
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self._failures = failures
        self.moved = Signal()
        self.committed = Signal()
        # At most one of them: the role.
        self._leader: Leader | None = None
        self._follower: Follower | None = None
        self._followed_high_watermark = log.log_start_offset  # only what was committed is ever deleted
        self._truncate = truncate
        # Which one this is of the times that this broker has led. It goes on over a new epoch of the same leader, whose
        # log nobody has cut.
        self.leadership = 0
        self.leader_epoch = NO_EPOCH  # the latest that this broker knows, in whatever role
        self.version = NO_VERSION  # of the latest state that this broker knows, in whatever role
        self.is_gone = False  # deleted or offline: waiting requests must not wait any longer

    # -- role ----------------------------------------------------------------------------------------------------------

    def lead(self, leader: Leader) -> None:
        """This broker leads the partition from now on, in the leader's epoch."""
        if self._leader is None:
            self.leadership += 1
        self._leader, self._follower = leader, None
        self.leader_epoch = leader.epoch
        self.log.assign_epoch(leader.epoch)
        self._fire_both()

    def follow(self, leader_id: int, leader_epoch: int, high_watermark: int) -> Follower:
        """This broker follows that leader from now on; `high_watermark` is what it knows to be committed."""
        follower = Follower(leader_id, leader_epoch, self._position(leader_epoch))
        self._leader, self._follower = None, follower
        self.leader_epoch = leader_epoch
        log = self.log
        self._followed_high_watermark = follower_high_watermark(high_watermark, log.end_offset, log.log_start_offset)
        self._fire_both()
        return follower

    def go_idle(self, leader_epoch: int) -> None:
        """There is no leader in this epoch, or this replica was stopped: it neither leads nor follows."""
        self._followed_high_watermark = self.high_watermark
        self._leader = self._follower = None
        self.leader_epoch = max(leader_epoch, self.leader_epoch)
        self._fire_both()

    def _position(self, leader_epoch: int) -> FetchPosition:
        log = self.log
        return FetchPosition(log.end_offset, leader_epoch, log.epochs.latest, log.log_start_offset)

    def moved_to(self, log: Log) -> None:
        """The log is in another directory of this broker, with the same records."""
        self.log = log
        self.moved.fire()

    def leave(self) -> None:
        """The partition is no longer here."""
        self._leader = self._follower = None
        self.is_gone = True
        self._fire_both()

    def _fire_both(self) -> None:
        self.committed.fire()
        self.moved.fire()

    @property
    def is_leader(self) -> bool:
        return self._leader is not None

    @property
    def follower(self) -> Follower | None:
        """What this broker does as a follower; None where it is none."""
        return self._follower

    @property
    def leader_id(self) -> int | None:
        """Who leads in this replica's epoch; None where it knows of nobody."""
        if self._leader is not None:
            return self._leader.node_id
        return None if self._follower is None else self._follower.leader_id

    @property
    def current_leader(self) -> Leader | None:
        """The leadership; None where this broker has none."""
        return self._leader

    @property
    def high_watermark(self) -> int:
        """What is known here to be committed, in any role."""
        return self._followed_high_watermark if self._leader is None else self._leader.high_watermark

    @property
    def committed_offset(self) -> int:
        """The high watermark; -1 where this broker does not lead the partition and cannot say."""
        return self._leader.high_watermark if self._leader is not None else -1

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether this broker leads with as many in-sync replicas as the topic asks for (min.insync.replicas)."""
        return self._leader is not None and self._leader.has_enough_in_sync(self.log.config.min_insync_replicas)

    @property
    def is_led_alone(self) -> bool:
        """Whether this broker leads and no other replica is in sync: what is appended is committed at once."""
        return self._leader is not None and self._leader.is_alone

    @property
    def leader(self) -> Leader:
        """The leadership; NOT_LEADER_OR_FOLLOWER where this broker has none, so that the client looks elsewhere."""
        if self._leader is None:
            raise self._not_leader()
        return self._leader

    def _not_leader(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led by this broker")

    def check_leader(self) -> None:
        """NOT_LEADER_OR_FOLLOWER where this broker does not lead the partition."""
        if self._leader is None:
            raise self._not_leader()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Whoever knows the leader epoch must know the same one as this replica, in whatever role; -1 does not say."""
        check_epoch(self.leader_epoch, current_leader_epoch)

    @property
    def watermarks(self) -> Watermarks:
        """As they are known here, in any role."""
        high_watermark = self.high_watermark
        return Watermarks(high_watermark, self.log.last_stable_offset(high_watermark), self.log.log_start_offset)

    def upper_offset(self, isolation: int) -> int:
        """Where a reader of that isolation level must stop."""
        high_watermark = self.leader.high_watermark
        return high_watermark if isolation == READ_UNCOMMITTED else self.log.last_stable_offset(high_watermark)

    # -- data ----------------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, *, acks: int, now_ms: int) -> Appended:
        """Appends a producer's batch as the leader; ApiError says why not.

        TakesLongError, where only a thread may look at all of it: see `append_admitted`.
        """
        leader = self.leader
        leader.check_append(acks, self.log.config.min_insync_replicas)
        try:
            appended = self.log.append(records, leader_epoch=leader.epoch, now_ms=now_ms, at_once=True)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._end_moved(leader)
        return appended

    def append_admitted(self, admitted: Admitted, *, acks: int, now_ms: int) -> Appended:
        """Appends a batch that the log's admission has accepted; leadership is checked again."""
        leader = self.leader
        leader.check_append(acks, self.log.config.min_insync_replicas)
        try:
            appended = self.log.append_admitted(admitted, leader_epoch=leader.epoch, now_ms=now_ms)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._end_moved(leader)
        return appended

    def append_own(self, data: bytearray, record_count: int, *, now_ms: int) -> int:
        """Appends a batch that this broker made now, for all replicas; the offset behind it."""
        leader = self.leader
        leader.check_append(ALL_REPLICAS, self.log.config.min_insync_replicas)
        try:
            end_offset = self.log.append_own(data, record_count, leader_epoch=leader.epoch, now_ms=now_ms)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._end_moved(leader)
        return end_offset

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker, *, raises_epoch: bool, now_ms: int
    ) -> Appended:
        """Ends a transaction here, as its coordinator decided. `raises_epoch`: it is one of version 2."""
        leader = self.leader
        leader.check_append(ALL_REPLICAS, self.log.config.min_insync_replicas)
        if raises_epoch:
            self.log.producers.check_raised_epoch(producer_id, producer_epoch)
        try:
            appended = self.log.append_marker(
                producer_id, producer_epoch, marker, leader_epoch=leader.epoch, now_ms=now_ms
            )
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._end_moved(leader)
        return appended

    def _end_moved(self, leader: Leader) -> None:
        if leader.record_end(leader.node_id, self.log.end_offset):
            self._high_watermark_moved(leader)
        self.moved.fire()

    def _high_watermark_moved(self, leader: Leader) -> None:
        self.log.producers.passed_high_watermark(leader.high_watermark)
        self.committed.fire()

    # -- followers -----------------------------------------------------------------------------------------------------

    def record_fetch(
        self, node_id: int, offset: int, log_start_offset: int, now_ms: int, broker_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> None:
        """A follower fetches from `offset` on: it has everything before."""
        leader = self.leader
        known_start = leader.followers[node_id].log_start_offset
        if leader.record_fetch(node_id, offset, log_start_offset, now_ms, broker_epoch):
            self._high_watermark_moved(leader)
            self.moved.fire()
        elif log_start_offset != known_start:
            self.moved.fire()  # whoever deleted records waits for it

    def isr_changed(self, leader: Leader, isr: tuple[int, ...], version: int) -> None:
        """The controller wrote another set of in-sync replicas."""
        self.version = version
        if leader.commit_isr(isr, version):
            self.log.producers.passed_high_watermark(leader.high_watermark)
        self._fire_both()

    def isr_refused(self, leader: Leader) -> None:
        """The controller refused another set of in-sync replicas: nobody waits for who was proposed any more.

        Where nothing moved nobody is woken: a follower that is refused would ask, and be proposed, again at once.
        """
        if leader.withdraw_proposal():
            self.log.producers.passed_high_watermark(leader.high_watermark)
            self.moved.fire()

    def append_fetched(self, follower: Follower, data: Fetched, now_ms: int) -> None:
        """Appends the leader's records as they are, and takes its watermarks."""
        assert self._follower is follower, "what an earlier leader sent is not appended"
        try:
            if data.records:
                self.log.append_as_follower(data.records, now_ms=now_ms)
            if data.log_start_offset > self.log.log_start_offset:
                self.log.advance_log_start(min(data.log_start_offset, self.log.end_offset))
        except StorageError as error:
            failure = self.disk_failure(error)
            self._note_end(follower)
            raise failure from error
        except ApiError:
            self._note_end(follower)
            raise
        self._settle_follower(follower, data.high_watermark)

    def _note_end(self, follower: Follower) -> None:
        """Batches before the one that could not be appended are in the log: the follower goes on behind them."""
        self._followed_high_watermark = min(self._followed_high_watermark, self.log.end_offset)
        if self._follower is follower:
            follower.position = self._position(follower.leader_epoch)

    def truncate_to_leader(self, follower: Follower, epoch: int, end_offset: int, now_ms: int) -> None:
        """Cuts off what the leader's history does not have: its epoch `epoch` ends at `end_offset`."""
        log = self.log
        _, own_end = log.epochs.end_of(epoch, log.end_offset)
        self._cut(follower, max(0, truncation_offset(own_end, end_offset, log.end_offset)), now_ms)

    def truncate_before_fetch(self, follower: Follower, step: TruncateTo, now_ms: int) -> None:
        """Cuts off what the leader's history does not have, as far as it is known before the first fetch."""
        assert self._follower is follower, "what an earlier leader said is not done"
        self._cut(follower, step.offset, now_ms)
        follower.is_truncated = step.is_last

    def restart_at(self, follower: Follower, offset: int, now_ms: int, *, is_new_start: bool) -> None:
        """Goes on at the leader's offset: truncates to it, or, with `is_new_start`, starts an empty log there."""
        if not is_new_start:
            self._cut(follower, offset, now_ms)
            follower.is_truncated = False  # what is left may differ as well
            return
        try:
            self.log.truncate_fully(offset, now_ms=now_ms)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._followed_high_watermark = offset
        follower.position = self._position(follower.leader_epoch)

    def _cut(self, follower: Follower, offset: int, now_ms: int) -> None:
        if offset < self._followed_high_watermark:
            logger.warning(
                "%s: committed records from %d to %d are truncated: the leader does not have them",
                self.name,
                offset,
                self._followed_high_watermark,
            )
        try:
            self._truncate(self.name, offset, now_ms)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self._followed_high_watermark = min(self._followed_high_watermark, self.log.end_offset)
        follower.position = self._position(follower.leader_epoch)

    def _settle_follower(self, follower: Follower, leader_high_watermark: int) -> None:
        log = self.log
        end_offset, log_start_offset = log.end_offset, log.log_start_offset
        known = follower_high_watermark(leader_high_watermark, end_offset, log_start_offset)
        if known > self._followed_high_watermark:
            self._followed_high_watermark = known
            log.producers.passed_high_watermark(known)
        bytes_max = follower.position.bytes_max
        follower.position = FetchPosition(
            end_offset, follower.leader_epoch, log.epochs.latest, log_start_offset, bytes_max
        )
        follower.is_caught_up = end_offset >= leader_high_watermark
        follower.failures = 0
        follower.is_truncated = True
        self.moved.fire()

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, at_least_one: bool) -> LogSlice | None:
        try:
            return self.log.read(offset, max_bytes, upper_offset=upper_offset, at_least_one=at_least_one)
        except StorageError as error:
            raise self.disk_failure(error) from error

    def tail_from(self, offset: int, bytes_max: int) -> FileSlice | None:
        """What was appended lately from `offset` on, all of it; None where `read` has to look for it."""
        try:
            return self.log.tail_from(offset, bytes_max)
        except StorageError as error:
            raise self.disk_failure(error) from error

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        try:
            return self.log.aborted_transactions(start_offset, upper_offset)
        except StorageError as error:
            raise self.disk_failure(error) from error

    def offset_for_time(self, timestamp: int, looked: Looked) -> TimestampOffset | None:
        """The first record at or after a time; LongLookupError where a thread must look first: see `lookups`."""
        try:
            return self.log.offset_for_time(timestamp, looked)
        except StorageError as error:
            raise self.disk_failure(error) from error

    def offset_of_max_timestamp(self, looked: Looked) -> TimestampOffset | None:
        try:
            return self.log.offset_of_max_timestamp(looked)
        except StorageError as error:
            raise self.disk_failure(error) from error

    def delete_records(self, offset: int) -> int:
        """Moves the log's start up to `offset` (-1: the high watermark), and returns that offset."""
        if "delete" not in self.log.config.cleanup_policy:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"{self.name} is compacted: its cleanup.policy does not include delete"
            )
        high_watermark = self.leader.high_watermark
        target = high_watermark if offset == -1 else offset
        if not 0 <= target <= high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} is committed up to {high_watermark}, asked for {offset}"
            )
        try:
            self.log.advance_log_start(target)
        except StorageError as error:
            raise self.disk_failure(error) from error
        self.moved.fire()
        return target

    def low_watermark(self, alive: Container[int]) -> int:
        """From where on all replicas on brokers that are alive have records; -1: not known. Leader's only."""
        return self.leader.low_watermark(self.log.log_start_offset, alive)

    def disk_failure(self, error: StorageError) -> ApiError:
        """Records what takes the log's directory offline; clients get an error that makes them look elsewhere, without
        our paths.

        A damaged file is not a failing disk: the other partitions of the directory are as good as before. Nor is a full
        table of open files: the client tries again.
        """
        if isinstance(error, OutOfDescriptorsError):
            logger.warning("%s: %s; the client tries again", self.name, error)
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker has too many files open; try again")
        if error.is_disk_failure:
            self._failures.record(self.log, error)
            self.leave()
        else:
            logger.error("%s: %s; what is damaged is not served", self.name, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk failed; its log says how")
