"""Where a consumer stands in each of its partitions, and what has to be found out before it can be read. Pure.

A partition goes through phases:

    INITIALIZING   the group may have committed an offset: ask its coordinator
    AWAIT_RESET    nothing to start from: ask the leader where the reset policy points
    AWAIT_VALIDATION  the leader changed: ask the new one whether it has what was read (KIP-320)
    FETCHING       the position is good

The shell asks (`initializing`, `to_reset`, `to_validate`) and tells (`committed_found`, `reset_found`,
`epoch_end_found`, `leader_seen`). Whatever comes back for a partition that was sought elsewhere or given up meanwhile
is not for it: answers are matched to the `attempt` they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.client.consumer.reset import ResetPolicy
from ottla.client.errors import UsageError
from ottla.ids import TopicPartition

NO_EPOCH: Final = -1


class Phase(Enum):
    INITIALIZING = auto()
    AWAIT_RESET = auto()
    AWAIT_VALIDATION = auto()
    FETCHING = auto()


class Leader(NamedTuple):
    """Who leads a partition, in which epoch; -1 where that is not known."""

    node_id: int
    epoch: int


class Position(NamedTuple):
    """The next offset to be handed out, and the epoch of the record before it."""

    offset: int
    epoch: int = NO_EPOCH


class Start(NamedTuple):
    """Where a partition starts to be read, and why: worth a line in the log."""

    partition: TopicPartition
    offset: int
    reason: str


class PreferredReplica(NamedTuple):
    node_id: int
    until: float


class Truncation(NamedTuple):
    """Records that were read are gone: the new leader has this epoch up to there only."""

    partition: TopicPartition
    position: Position
    end_offset: int
    epoch: int


@dataclass(eq=False, slots=True)
class PartitionState:
    """One partition of the assignment."""

    phase: Phase
    position: Position | None = None
    reset: ResetPolicy | None = None  # where AWAIT_RESET leads to
    attempt: int = 0  # goes up whenever older answers have become meaningless
    is_paused: bool = False
    is_revoked_soon: bool = False  # on its way to another member: nothing is handed out any more
    is_announced: bool = True  # whether the listener has been called for it
    is_asked: bool = False  # a lookup for it is in flight
    not_before: float = 0.0  # a lookup that failed is tried again then
    leader: Leader | None = None  # with which the position was found to be good
    preferred: PreferredReplica | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None

    @property
    def is_fetchable(self) -> bool:
        return self.phase is Phase.FETCHING and self.is_announced and not self.is_paused and not self.is_revoked_soon

    def _go(self, phase: Phase, position: Position | None, reset: ResetPolicy | None = None) -> None:
        self.phase, self.position, self.reset = phase, position, reset
        self.attempt += 1
        self.is_asked = False
        self.not_before = 0.0

    def seek(self, position: Position) -> None:
        self._go(Phase.FETCHING, position)
        self.leader = None
        self.preferred = None

    def await_reset(self, policy: ResetPolicy) -> None:
        self._go(Phase.AWAIT_RESET, None, policy)
        self.preferred = None

    def await_validation(self) -> None:
        self._go(Phase.AWAIT_VALIDATION, self.position)
        self.preferred = None

    def settle(self, position: Position) -> None:
        self._go(Phase.FETCHING, position)


class Positions:
    """The assignment with the state of each partition."""

    def __init__(self, policy: ResetPolicy) -> None:
        self._policy = policy
        self._states: dict[TopicPartition, PartitionState] = {}

    @property
    def is_without_policy(self) -> bool:
        """Whether a position that is lost is the user's to find."""
        return self._policy.is_none

    # -- the assignment ------------------------------------------------------------------------------------------------

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def items(self) -> Iterable[tuple[TopicPartition, PartitionState]]:
        return self._states.items()

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        found = self._states.get(partition)
        if found is None:
            raise UsageError(f"{partition} is not assigned to this consumer")
        return found

    def assign(self, partitions: Iterable[TopicPartition], *, asks_group: bool, announced: bool = True) -> None:
        """Makes these the assignment: those that stay keep their state, new ones begin."""
        phase = Phase.INITIALIZING
        states: dict[TopicPartition, PartitionState] = {}
        for partition in sorted(partitions):
            state = self._states.get(partition)
            if state is None:
                state = PartitionState(phase, is_announced=announced)
                if not asks_group:
                    state.await_reset(self._policy)
            states[partition] = state
        self._states = states

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._states:
                self._states[partition].is_announced = True

    def revoke_soon(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._states:
                self._states[partition].is_revoked_soon = True

    def keep_all(self) -> None:
        """What was to be given up is not, after all."""
        for state in self._states.values():
            state.is_revoked_soon = False

    def rotate(self, partition: TopicPartition) -> None:
        """Who had records waits for the others."""
        self._states[partition] = self._states.pop(partition)

    # -- what has to be asked ------------------------------------------------------------------------------------------

    def _due(self, phase: Phase, now: float) -> Iterator[tuple[TopicPartition, PartitionState]]:
        for partition, state in self._states.items():
            if state.phase is phase and not state.is_asked and state.not_before <= now:
                yield partition, state

    def initializing(self, now: float) -> dict[TopicPartition, int]:
        """Partitions whose committed offset is to be asked for, with the attempt that the answer is for."""
        return {partition: state.attempt for partition, state in self._due(Phase.INITIALIZING, now)}

    def to_reset(self, now: float) -> dict[TopicPartition, tuple[int, ResetPolicy]]:
        return {
            partition: (state.attempt, state.reset)
            for partition, state in self._due(Phase.AWAIT_RESET, now)
            if state.reset is not None
        }

    def to_validate(self, now: float) -> dict[TopicPartition, tuple[int, Position]]:
        return {
            partition: (state.attempt, state.position)
            for partition, state in self._due(Phase.AWAIT_VALIDATION, now)
            if state.position is not None
        }

    def next_look(self, now: float) -> float | None:
        """When a lookup that rests may be tried again."""
        times = [
            state.not_before
            for state in self._states.values()
            if state.phase is not Phase.FETCHING and not state.is_asked and state.not_before > now
        ]
        return min(times, default=None)

    def asked(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._states[partition].is_asked = True

    def ask_again(self, attempts: Mapping[TopicPartition, int], at: float) -> None:
        """The lookups failed in a way that may pass."""
        for partition, attempt in attempts.items():
            state = self._current(partition, attempt)
            if state is not None:
                state.is_asked = False
                state.not_before = at

    def _current(self, partition: TopicPartition, attempt: int) -> PartitionState | None:
        state = self._states.get(partition)
        return state if state is not None and state.attempt == attempt else None

    # -- what was answered ---------------------------------------------------------------------------------------------

    def committed_found(self, partition: TopicPartition, attempt: int, committed: Position | None) -> Start | None:
        """The committed offset of the group, or that there is none: then the reset policy decides."""
        state = self._current(partition, attempt)
        if state is None:
            return None
        if committed is None:
            state.await_reset(self._policy)
            return None
        state.settle(committed)
        return Start(partition, committed.offset, "committed by the group")

    def reset_found(self, partition: TopicPartition, attempt: int, found: Position) -> Start | None:
        state = self._current(partition, attempt)
        if state is None:
            return None
        reason = f"the policy {state.reset}"
        state.settle(found)
        return Start(partition, found.offset, reason)

    def epoch_end_found(
        self, partition: TopicPartition, attempt: int, epoch: int, end_offset: int
    ) -> Truncation | None:
        """Where the new leader's log of the epoch we read in ends: below our position means that records are gone."""
        state = self._current(partition, attempt)
        if state is None:
            return None
        position = state.position
        assert position is not None, "a position is validated"
        if end_offset >= position.offset and epoch != NO_EPOCH:
            state.settle(position)
            return None
        # An undefined answer tells nothing about where the logs part.
        if self._policy.is_none or end_offset < 0 or epoch == NO_EPOCH:
            state.await_reset(self._policy)
        else:
            state.settle(Position(end_offset, epoch))
        return Truncation(partition, position, end_offset, epoch)

    def out_of_range(self, partition: TopicPartition, fetched_offset: int) -> bool:
        """The leader does not have the offset that was asked for; False where that is no longer the position."""
        state = self._states.get(partition)
        if state is None or state.position is None or state.position.offset != fetched_offset:
            return False
        state.await_reset(self._policy)
        return True

    def leader_seen(self, partition: TopicPartition, leader: Leader, *, can_validate: bool) -> None:
        """Metadata names this leader: another one than the position was found with has to confirm it."""
        state = self._states.get(partition)
        if state is None or leader == state.leader:
            return
        known, state.leader = state.leader, leader
        if known is not None and known.node_id != leader.node_id:
            state.preferred = None
        position = state.position
        if (
            can_validate
            and position is not None
            and position.epoch != NO_EPOCH
            and leader.epoch != NO_EPOCH
            and state.phase in (Phase.FETCHING, Phase.AWAIT_VALIDATION)
        ):
            state.await_validation()

    # -- what users ask ------------------------------------------------------------------------------------------------

    def offsets(self) -> dict[TopicPartition, Position]:
        """All positions that are known, handed out and not only fetched."""
        return {
            partition: state.position
            for partition, state in self._states.items()
            if state.position is not None and state.phase is not Phase.AWAIT_RESET
        }

    def lag(self, partition: TopicPartition, *, committed_only: bool) -> int | None:
        """How many records are left to be read, as of the last response."""
        state = self.state(partition)
        end = state.last_stable_offset if committed_only else state.high_watermark
        if state.position is None or end is None:
            return None
        return max(0, end - state.position.offset)
