"""Finds where partitions start, in the background: what the group committed, where the reset policy points, whether a
new leader has what was read. Says once per partition where it starts and why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from ottla.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from ottla.client.consumer.lookups import epoch_ends
from ottla.client.consumer.parts import Parts
from ottla.client.consumer.positions import NO_EPOCH, Position, Start
from ottla.client.consumer.reset import ResetPolicy
from ottla.client.errors import TimedOutError
from ottla.client.offsets import Isolation, list_offsets
from ottla.client.retrying import Deadline, is_passing
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

log = logging.getLogger("ottla.client.consumer")

NO_OFFSET = -1


class PositionFinder:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: OttlaError | None = None

    def look(self, now: float) -> None:
        """Asks for whatever is missing and not asked for yet."""
        positions = self._parts.positions
        if self._parts.group is not None and (initializing := positions.initializing(now)):
            positions.asked(initializing)
            self._start(initializing, self._find_committed(initializing))
        resets = positions.to_reset(now)
        lost = [partition for partition, (_, policy) in resets.items() if policy.is_none]
        if lost:
            self._failure = NoOffsetForPartitionError(lost)
            self._parts.moved.fire()
        resets = {partition: each for partition, each in resets.items() if not each[1].is_none}
        if resets:
            positions.asked(resets)
            attempts = {partition: attempt for partition, (attempt, _) in resets.items()}
            policies = {partition: policy for partition, (_, policy) in resets.items()}
            self._start(attempts, self._find_reset(attempts, policies))
        if validations := positions.to_validate(now):
            positions.asked(validations)
            attempts = {partition: attempt for partition, (attempt, _) in validations.items()}
            found = {partition: position for partition, (_, position) in validations.items()}
            self._start(attempts, self._validate(attempts, found))

    def _start(self, attempts: Mapping[TopicPartition, int], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(attempts, work), name="ottla-positions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, attempts: Mapping[TopicPartition, int], work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except OttlaError as error:
            pause_s = next(iter(self._parts.pauses))
            self._parts.positions.ask_again(attempts, self._parts.now() + pause_s)
            if not (is_passing(error) or isinstance(error, TimedOutError)):
                self._failure = error
            log.debug("positions could not be found and are asked for again: %s", error)
        finally:
            self._parts.moved.fire()

    async def _find_committed(self, attempts: Mapping[TopicPartition, int]) -> None:
        assert self._parts.group is not None, "somebody committed"
        committed = await self._parts.group.commits.fetch(attempts, self._parts.settings.request_timeout_s)
        for partition, attempt in attempts.items():
            found = committed.get(partition)
            position = None
            if found is not None:
                position = Position(found.offset, NO_EPOCH if found.leader_epoch is None else found.leader_epoch)
            self._note(self._parts.positions.committed_found(partition, attempt, position))

    async def _find_reset(
        self, attempts: Mapping[TopicPartition, int], policies: Mapping[TopicPartition, ResetPolicy]
    ) -> None:
        parts = self._parts
        now_ms = parts.clock.now_ms()
        isolation = Isolation[parts.settings.isolation_level.upper()]
        specs = {partition: policy.timestamp(now_ms) for partition, policy in policies.items()}
        found = await list_offsets(parts.cluster, specs, isolation, Deadline.after(parts.settings.request_timeout_s))
        for partition, each in found.items():
            if each.offset == NO_OFFSET:
                # No record is that young. As in Java's client the place is looked for again later.
                later = parts.now() + parts.settings.request_timeout_s
                parts.positions.ask_again({partition: attempts[partition]}, later)
                continue
            # The epoch of a place that nobody has read from says nothing about what was read.
            self._note(parts.positions.reset_found(partition, attempts[partition], Position(each.offset)))

    async def _validate(
        self, attempts: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, Position]
    ) -> None:
        ends = await epoch_ends(self._parts.cluster, positions, self._parts.settings.request_timeout_s)
        for partition, end in ends.items():
            found = self._parts.positions.epoch_end_found(partition, attempts[partition], end.epoch, end.offset)
            if found is not None:
                error = LogTruncationError(found)
                log.warning("%s", error)
                if self._parts.positions.is_without_policy:
                    self._failure = error

    def _note(self, start: Start | None) -> None:
        if start is not None:
            log.info("%s starts at offset %d: %s", start.partition, start.offset, start.reason)

    def raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
