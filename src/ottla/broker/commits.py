"""Waiting until records are committed, or gone, on the other replicas, or until this broker can no longer say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol

from ottla.broker.partition import Partition
from ottla.errors import ErrorCode
from ottla.runtime.signal import Signal, wait_any


class PendingCommit(NamedTuple):
    """Records in the log of a partition that this broker leads, up to `end_offset`."""

    partition: Partition
    end_offset: int
    leadership: int  # in a later one of this broker, other records may stand there

    @property
    def settled(self) -> Signal:
        return self.partition.committed

    @property
    def is_committed(self) -> bool:
        return self.outcome is ErrorCode.NONE

    @property
    def outcome(self) -> ErrorCode | None:
        """NONE once the records are committed, an error where this leader will never say so, and None before."""
        leader = self.partition.current_leader
        if leader is None or self.partition.leadership != self.leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if leader.high_watermark >= self.end_offset else None


class PendingAcknowledgement(PendingCommit):
    """Records of a producer that asked for acks=all: enough in-sync replicas must have them at the moment at which they
    are committed (min.insync.replicas)."""

    __slots__ = ()

    @property
    def outcome(self) -> ErrorCode | None:
        outcome = super().outcome
        if outcome is ErrorCode.NONE and not self.partition.has_enough_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return outcome


class PendingDeletion(NamedTuple):
    """Records below `offset` that this broker has deleted as the leader, and its followers have to."""

    partition: Partition
    offset: int
    alive: Callable[[], Container[int]]  # the brokers that count

    @property
    def settled(self) -> Signal:
        return self.partition.moved

    @property
    def outcome(self) -> ErrorCode | None:
        if not self.partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.partition.low_watermark(self.alive()) >= self.offset else None


class Pending(Protocol):
    """Something that depends on other replicas."""

    @property
    def settled(self) -> Signal:
        """Fires when the outcome may be known."""
        ...

    @property
    def outcome(self) -> ErrorCode | None:
        """NONE once it is done everywhere, an error where this leader will never say so, and None before."""
        ...


async def committed(pending: Sequence[Pending], deadline: float) -> list[ErrorCode]:
    """Waits until the outcome of all is known, or until `deadline` by the loop's clock; the outcomes, in order.

    REQUEST_TIMED_OUT where the time was up: it may be done later.
    """
    loop = asyncio.get_running_loop()
    # Once known, it stays: a leader that is lost later takes nothing back.
    outcomes = [one.outcome for one in pending]
    while None in outcomes and (left_s := deadline - loop.time()) > 0:
        unknown = [one.settled for one, outcome in zip(pending, outcomes, strict=True) if outcome is None]
        await wait_any(unknown, left_s)
        outcomes = [one.outcome if outcome is None else outcome for one, outcome in zip(pending, outcomes, strict=True)]
    return [ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome for outcome in outcomes]
