"""Offsets that a consumer commits: what is sent, what the answer means, and when it happens by itself.

The offset of a partition is the next one to be read, with the epoch of the record before it. A commit that somebody
waits for is tried again until its time is over; one in the background is tried once, and its callbacks are called in
the order of the commits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ottla.client.arguments import offset_of, partition_of
from ottla.client.consumer.consumer_metrics import CoordinatorMetrics
from ottla.client.consumer.coordinator import Coordinator
from ottla.client.consumer.errors import CommitFailedError, CommitInRebalanceError
from ottla.client.consumer.positions import NO_EPOCH, Position
from ottla.client.leaders import by_topic
from ottla.client.retrying import Deadline, Pauses, error_of, is_passing
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

COMMIT_VERSION_MAX: Final = 9  # later ones have ids of topics in place of names
FETCH_VERSION_MAX: Final = 7  # later ones ask for several groups at once
NO_OFFSET: Final = -1

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, OttlaError | None], Any]

log = logging.getLogger("ottla.client.consumer")


class Identity(NamedTuple):
    """Who commits: a member in a generation or epoch, or nobody in particular."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class Outcome(Enum):
    """What an error code of a commit means."""

    DONE = auto()
    RETRY = auto()
    COORDINATOR = auto()
    REBALANCING = auto()
    OUTDATED = auto()  # the member's epoch has moved on: again, with the new one
    NOT_A_MEMBER = auto()
    FAILED = auto()


_OUTCOMES: Final[Mapping[ErrorCode, Outcome]] = {
    ErrorCode.NONE: Outcome.DONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Outcome.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: Outcome.COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Outcome.COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: Outcome.REBALANCING,
    ErrorCode.STALE_MEMBER_EPOCH: Outcome.OUTDATED,
    ErrorCode.UNKNOWN_MEMBER_ID: Outcome.NOT_A_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Outcome.NOT_A_MEMBER,
    ErrorCode.FENCED_MEMBER_EPOCH: Outcome.NOT_A_MEMBER,
}


def commit_request(group_id: str, identity: Identity, offsets: Offsets) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=committed.offset,
                        committed_leader_epoch=NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                    for number in numbers
                    for committed in (offsets[TopicPartition(topic, number)],)
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


class Answered(NamedTuple):
    outcome: Outcome
    partition: TopicPartition | None = None
    code: int = 0


def answer_of(response: OffsetCommitResponse) -> Answered:
    """The worst that a partition was answered: a commit is done when all of it is."""
    worst = Answered(Outcome.DONE)
    severity = list(Outcome)
    for topic in response.topics:
        for each in topic.partitions:
            outcome = _OUTCOMES.get(ErrorCode.of(each.error_code), Outcome.FAILED)
            if severity.index(outcome) > severity.index(worst.outcome):
                worst = Answered(outcome, TopicPartition(topic.name, each.partition_index), each.error_code)
    return worst


def as_offsets(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        partition: OffsetAndMetadata(
            position.offset, leader_epoch=None if position.epoch == NO_EPOCH else position.epoch
        )
        for partition, position in positions.items()
    }


def _offset_meant(given: Any) -> OffsetAndMetadata:
    found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
    offset_of(found.offset)
    return found


def offsets_meant(what: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a user wants committed: offsets by partition, or a record or records as the last that are done."""
    if isinstance(what, ConsumerRecord):
        what = [what]
    if isinstance(what, Mapping):
        return {partition_of(partition): _offset_meant(offset) for partition, offset in what.items()}
    if isinstance(what, str | bytes) or not isinstance(what, Iterable):
        raise TypeError(f"commit offsets by partition, a record or records, not {what!r}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in what:
        partition = record.topic_partition
        if partition not in found or record.offset >= found[partition].offset:
            found[partition] = OffsetAndMetadata(record.offset + 1, leader_epoch=record.leader_epoch)
    return found


class Committer(Protocol):
    """What tells who commits, and hears that it is no longer a member."""

    def identity(self) -> Identity: ...

    def commit_rejected(self, outcome: Outcome, identity: Identity) -> None: ...


class Commits:
    """Commits of one consumer to the coordinator of its group."""

    def __init__(
        self,
        group_id: str,
        coordinator: Coordinator,
        pauses: Pauses,
        request_timeout_s: float,
        on_end: Callable[[], None],
        on_commit: Callable[[Offsets], None],
        metrics: CoordinatorMetrics,
    ) -> None:
        self.committer: Committer | None = None
        self._group_id = group_id
        self._coordinator = coordinator
        self._pauses = pauses
        self._request_timeout_s = request_timeout_s
        self._on_end, self._on_commit = on_end, on_commit
        self._metrics = metrics
        self._waiting: deque[tuple[asyncio.Task[None], Offsets, CommitCallback | None]] = deque()
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}  # by this consumer, as far as it knows

    def _identity(self) -> Identity:
        return Identity() if self.committer is None else self.committer.identity()

    # -- committing ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, deadline: Deadline, *, persists: bool = False) -> None:
        """Commits, trying again what may pass.

        `persists`: through a rebalance as well, in the generation or epoch that comes of it. That is for what the
        member holds until it says otherwise: nobody else can have read on.
        """
        if not offsets:
            return
        pauses = iter(self._pauses)
        while True:
            identity = self._identity()
            try:
                await self._attempt(offsets, identity, deadline.left_s)
                return
            except CommitInRebalanceError as error:
                if not persists:
                    raise
                reason: OttlaError = error
            except CommitFailedError as error:
                if not persists or identity == self._identity():
                    raise
                reason = error
            except OttlaError as error:
                if not is_passing(error):
                    raise
                reason = error
            await deadline.pause(next(pauses, None), reason)

    async def _attempt(self, offsets: Offsets, identity: Identity, left_s: float) -> None:
        request = commit_request(self._group_id, identity, offsets)
        asked_at = asyncio.get_running_loop().time()
        response = await self._coordinator.ask(
            request,
            OffsetCommitResponse,
            version_max=COMMIT_VERSION_MAX,
            timeout_s=max(0.001, min(self._request_timeout_s, left_s)),
        )
        self._metrics.committed(asked_at, asyncio.get_running_loop().time())
        answered = answer_of(response)
        if answered.outcome is Outcome.DONE:
            self.committed.update(offsets)
            self._on_commit(offsets)
            return
        error = error_of(answered.code, None, f"committing the offset of {answered.partition}")
        assert error is not None, "what is not done has a code"
        if self.committer is not None:
            self.committer.commit_rejected(answered.outcome, identity)
        match answered.outcome:
            case Outcome.COORDINATOR:
                self._coordinator.note(error)
            case Outcome.REBALANCING:
                raise CommitInRebalanceError(f"{error}; poll, then commit again") from error
            case Outcome.OUTDATED | Outcome.NOT_A_MEMBER:
                raise CommitFailedError(
                    f"{error}: the group has given the partitions to others; poll to join it again, and see that "
                    "the time between polls stays below max_poll_interval_s"
                ) from error
        raise error

    def start(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Commits in the background, once. Its callback is called from `call_callbacks`."""
        work = self._attempt(dict(offsets), self._identity(), self._request_timeout_s) if offsets else _nothing()
        task = asyncio.get_running_loop().create_task(work, name="ottla-commit")
        task.add_done_callback(lambda done: self._on_end())
        self._waiting.append((task, offsets, callback))

    async def call_callbacks(self) -> None:
        """Those of commits that have ended, in the order in which they were begun."""
        while self._waiting and self._waiting[0][0].done():
            task, offsets, callback = self._waiting.popleft()
            await self._call(task, offsets, callback)

    async def _call(self, task: asyncio.Task[None], offsets: Offsets, callback: CommitCallback | None) -> None:
        error: OttlaError | None = None
        if task.cancelled():
            error = OttlaError("the consumer was closed before the commit was answered")
        elif (raised := task.exception()) is not None:
            if not isinstance(raised, OttlaError):
                raise raised
            error = raised
        if callback is not None:
            result = callback(offsets, error)
            if inspect.isawaitable(result):
                await result
        elif error is not None:
            log.warning("[group %s] a commit in the background failed: %s", self._group_id, error)

    async def settle(self, deadline: Deadline) -> None:
        """Waits for commits in flight, and calls their callbacks."""
        tasks = [task for task, _, _ in self._waiting]
        if tasks:
            await asyncio.wait(tasks, timeout=deadline.left_s)
        await self.call_callbacks()

    async def stop(self) -> None:
        for task, _, _ in self._waiting:
            task.cancel()
        await asyncio.gather(*(task for task, _, _ in self._waiting), return_exceptions=True)
        await self.call_callbacks()

    # -- looking up ----------------------------------------------------------------------------------------------------

    async def fetch(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, asked once; those without a commit are left out."""
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
            require_stable=True,
        )
        response = await self._coordinator.ask(
            request, OffsetFetchResponse, version_max=FETCH_VERSION_MAX, timeout_s=max(0.001, timeout_s)
        )
        self._raise(response.error_code, f"the offsets of the group {self._group_id}")
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self._raise(each.error_code, f"the offset of the group {self._group_id} in {partition}")
                if each.committed_offset != NO_OFFSET:
                    epoch = None if each.committed_leader_epoch == NO_EPOCH else each.committed_leader_epoch
                    found[partition] = OffsetAndMetadata(each.committed_offset, each.metadata or "", epoch)
        return found

    def _raise(self, code: int, what: str) -> None:
        error = error_of(code, None, what)
        if error is not None:
            if _OUTCOMES.get(error.code) is Outcome.COORDINATOR:
                self._coordinator.note(error)
            raise error


async def _nothing() -> None:
    return


class AutoCommit:
    """When offsets are committed without being asked for. Pure."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due: float | None = None

    def take_due(self, now: float) -> bool:
        """Whether to commit now; the next time is an interval later, and the first an interval after the start."""
        if self._due is not None and now < self._due:
            return False
        is_first = self._due is None
        self._due = now + self._interval_s
        return not is_first

    def again_at(self, at: float) -> None:
        """A commit failed in a way that may pass."""
        if self._due is not None:
            self._due = min(self._due, at)
