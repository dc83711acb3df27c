"""Runs a decide/apply machine: carries out what it decides, on a journal that makes records durable.

A request goes through in one turn where the journal commits at once: decide, append, apply, reply, perform. Otherwise
replies and effects wait until everything the machine had applied is committed, so that nothing is answered that could
still be lost; that holds for readers as well. A machine is plain Python over values. This is its shell: tickets,
timers, waiting.

Each decision is a batch of its own, written before the next one is made: what a machine builds on is in its journal.
Sharing batches would save less than waiting for them costs: docs/decisions/0011-a-batch-for-each-decision.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.clock import Clock
from ottla.runtime.signal import Signal
from ottla.runtime.turns import Turns

logger = logging.getLogger(__name__)


class Machine(Protocol):
    """What is run: see ARCHITECTURE.md, "A decision, end to end".

    Every `now_ms` is steady time, and so are deadlines. What a record carries is wall time: `now_ms + wall_ahead_ms`.
    """

    # How far the wall clock is ahead of the steady one; the runner says so before each decision.
    wall_ahead_ms: int

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; earlier than that it does nothing."""
        ...

    def apply_all(self, records: Sequence[CoordinatorRecord], producer_id: int) -> None:
        """Changes the durable state by the records of a decision, after their append; a replay changes it the same way.

        Those of a transaction (`producer_id` is not -1) count from `complete_transaction(producer_id, committed)` on.
        """
        ...

    def loaded(self, now_ms: int) -> Decision:
        """The whole log was applied: time starts to count."""
        ...

    def expire(self, now_ms: int) -> Decision: ...

    def refused(self, decision: Decision, error_code: ErrorCode, now_ms: int) -> Decision:
        """The records could not be appended: what to reply instead. It decides no records."""
        ...

    def unloaded(self) -> Sequence[tuple[Ticket, object]]:
        """The machine is given up: what to reply to those that wait."""
        ...


class Journal(Protocol):
    """Where a machine's records go."""

    @property
    def committed_offset(self) -> int:
        """Everything below cannot be lost any more; -1 where the journal is no longer ours."""
        ...

    @property
    def moved(self) -> Signal:
        """Fires when `committed_offset` should be looked at again."""
        ...

    def append(self, decision: Decision, wall_ms: int) -> int:
        """Writes a decision's records, all or none, and returns the offset behind them; ApiError where it cannot."""
        ...


class Performer(Protocol):
    """Does what a machine's decisions ask for besides records and replies."""

    def perform(self, effect: Any) -> None:
        """The decision is committed and replied to. It may lead to further decisions of the same machine."""
        ...

    def commits_unknown(self) -> None:
        """It took too long to learn whether decisions with effects are committed: they were given up."""
        ...


MachineType = TypeVar("MachineType", bound=Machine)


class PendingReply:
    """The ticket of one request: filled at once, or waited for."""

    __slots__ = ("_future", "is_filled", "reply")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self.is_filled = False
        self.reply: object = None

    def fill(self, reply: object) -> None:
        """Hands the reply over; an `ErrorCode` reaches whoever asked as an ApiError."""
        assert not self.is_filled, "a request has one reply"
        self.is_filled = True
        self.reply = reply
        if self._future is not None and not self._future.done():  # done: the client hung up
            self._future.set_result(None)

    def take(self) -> object:
        if isinstance(self.reply, ErrorCode):
            raise ApiError(self.reply)
        return self.reply

    async def wait(self) -> object:
        if not self.is_filled:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self.take()


class Uncommitted(NamedTuple):
    """Replies and effects that are due when the journal is committed up to an offset."""

    offset: int
    give_up_at: float  # by the loop's clock
    replies: Sequence[tuple[Any, object]]
    effects: Sequence[object]


class Runner(Generic[MachineType]):
    """One machine on its journal, from the end of its loading until it is given up."""

    def __init__(
        self,
        machine: MachineType,
        journal: Journal,
        clock: Clock,
        *,
        applied_offset: int,
        commit_timeout_ms: Callable[[], int],
        in_background: Callable[[str, Coroutine[Any, Any, None]], None],
        turns: Turns,
        performer: Performer | None = None,
    ) -> None:
        """`applied_offset`: where in the journal the machine's state stands. `performer`: for effects of decisions."""
        self.machine = machine
        self._journal = journal
        self._clock = clock
        self._applied_offset = applied_offset
        self._commit_timeout_ms = commit_timeout_ms
        self._in_background = in_background
        self._turns = turns
        self._performer = performer
        self._loop = asyncio.get_running_loop()
        self._uncommitted: deque[Uncommitted] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.is_over = False

    def start(self) -> None:
        now_ms = self.now_ms()
        self.carry_out(self.machine.loaded(now_ms), now_ms)

    def now_ms(self) -> int:
        """The time of a decision; the machine also gets the wall clock's time at it."""
        now_ms = self._clock.steady_ms()
        self.machine.wall_ahead_ms = self._clock.now_ms() - now_ms
        return now_ms

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask(self, decide: Callable[..., Decision], *arguments: Any) -> Any:
        """Lets the machine decide, at once, and waits for the reply.

        `decide` is a method of the machine's class; it is called with the machine, the arguments, a ticket and the
        time. ApiError is a refusal that the caller puts in the words of its API.
        """
        if self.is_over:  # whoever asks several of them gave others a turn in between
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._journal} was given up")
        ticket = PendingReply()
        now_ms = self.now_ms()
        self.carry_out(decide(self.machine, *arguments, ticket, now_ms), now_ms)
        return ticket.take() if ticket.is_filled else await ticket.wait()

    def carry_out(self, decision: Decision, now_ms: int) -> None:
        """Appends and applies what was decided at `now_ms`, and replies when it is committed."""
        if decision.records:
            try:
                self._applied_offset = self._journal.append(decision, now_ms + self.machine.wall_ahead_ms)
            except ApiError as error:
                self._refuse(decision, error, now_ms)
                return
            self.machine.apply_all(decision.records, decision.producer_id)
        if decision.replies or decision.effects:
            self._settle(decision)
        self._set_timer()

    def _refuse(self, decision: Decision, error: ApiError, now_ms: int) -> None:
        logger.warning("%s: %d records were not written: %s", self._journal, len(decision.records), error)
        instead = self.machine.refused(decision, error.code, now_ms)
        assert not instead.records, "what is decided in place of records that cannot be written has none"
        self._settle(instead)
        self._set_timer()

    def take_in(self, apply: Callable[[MachineType], None], end_offset: int) -> None:
        """Something that was not decided here stands in the journal, up to `end_offset`: the machine applies it."""
        self._applied_offset = end_offset
        apply(self.machine)
        self._set_timer()

    # -- replies and effects -------------------------------------------------------------------------------------------

    def _settle(self, decision: Decision) -> None:
        """Replies and performs the effects, in this turn if everything that was applied is committed."""
        tickets: Sequence[tuple[Any, object]] = decision.replies
        if not self._uncommitted and self._applied_offset <= self._journal.committed_offset:
            for ticket, reply in tickets:
                ticket.fill(reply)
            self._perform(decision.effects)
            return
        if not self._uncommitted:
            self._in_background(f"commits of {self._journal}", self._follow_commits())
        give_up_at = self._loop.time() + self._commit_timeout_ms() / 1000
        self._uncommitted.append(Uncommitted(self._applied_offset, give_up_at, tickets, decision.effects))

    def _perform(self, effects: Sequence[object]) -> None:
        for effect in effects:
            assert self._performer is not None, "a machine whose decisions have effects has a performer"
            self._performer.perform(effect)

    async def _follow_commits(self) -> None:
        """Replies as the journal is committed; ends when nothing is left to wait for.

        One task for all that wait, in their order. `broker/commits.py` is the other way round: one request that waits
        for several partitions.
        """
        while self._uncommitted:
            await self._journal.moved.wait(self._uncommitted[0].give_up_at - self._loop.time())
            self._settle_committed()
            self._give_up_overdue()

    def _settle_committed(self) -> None:
        uncommitted = self._uncommitted
        committed_offset = self._journal.committed_offset
        effects: list[object] = []
        while uncommitted and uncommitted[0].offset <= committed_offset:
            committed = uncommitted.popleft()
            for ticket, reply in committed.replies:
                ticket.fill(reply)
            effects += committed.effects
        self._perform(effects)

    def _give_up_overdue(self) -> None:
        """The records may be committed later: the caller has to ask again, as after a lost connection."""
        uncommitted, now = self._uncommitted, self._loop.time()
        has_effects = False
        while uncommitted and uncommitted[0].give_up_at <= now:
            overdue = uncommitted.popleft()
            for ticket, _ in overdue.replies:
                ticket.fill(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            has_effects = has_effects or bool(overdue.effects)
        if has_effects:
            assert self._performer is not None, "a machine whose decisions have effects has a performer"
            self._performer.commits_unknown()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Wakes up at the machine's next deadline. One that moved to later is met early and set again: cheaper."""
        deadline_ms = self.machine.next_deadline_ms
        if deadline_ms is None or self.is_over or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        left_s = max(0.0, (deadline_ms - self._clock.steady_ms()) / 1000)
        self._timer = self._loop.call_later(left_s, self._time_is_up)

    def _time_is_up(self) -> None:
        """What is due waits in line: the deadlines of many machines may have come together."""
        self._turns.in_line(self._expire)

    def _expire(self) -> None:
        if self.is_over:
            return
        self._timer = None
        now_ms = self.now_ms()
        deadline_ms = self.machine.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.carry_out(self.machine.expire(now_ms), now_ms)
        else:
            self._set_timer()

    # -- ending --------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Gives the machine up: every request that waits is answered with NOT_COORDINATOR."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        parked: Sequence[tuple[Any, object]] = self.machine.unloaded()
        for ticket, reply in parked:
            ticket.fill(reply)
        while self._uncommitted:
            for ticket, _ in self._uncommitted.popleft().replies:
                ticket.fill(ErrorCode.NOT_COORDINATOR)
