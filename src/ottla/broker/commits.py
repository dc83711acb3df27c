"""Waiting until records are committed: every in-sync replica has them, or this broker can no longer say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.partition import Partition
from ottla.errors import ErrorCode
from ottla.runtime.signal import wait_any


class PendingCommit(NamedTuple):
    """Records in the log of a partition that this broker leads, up to `end_offset`."""

    partition: Partition
    end_offset: int

    @property
    def is_committed(self) -> bool:
        return self.partition.committed_offset >= self.end_offset

    @property
    def outcome(self) -> ErrorCode | None:
        """NONE once the records are committed, an error where this leader will never say so, and None before."""
        if not self.partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.is_committed else None


async def committed(pending: Sequence[PendingCommit], deadline: float) -> list[ErrorCode]:
    """Waits until the outcome of all is known, or until `deadline` by the loop's clock; the outcomes, in order.

    REQUEST_TIMED_OUT where the time was up: the records may be committed later.
    """
    loop = asyncio.get_running_loop()
    while (left_s := deadline - loop.time()) > 0:
        unknown = [one.partition.moved for one in pending if one.outcome is None]
        if not unknown:
            break
        await wait_any(unknown, left_s)
    outcomes = (one.outcome for one in pending)
    return [ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome for outcome in outcomes]
