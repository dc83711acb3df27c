"""The runner: decisions are written, applied and answered in this order, and nobody is told what could be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.ids import NO_PRODUCER_ID
from ottla.runtime.machine import Performer, Runner
from ottla.runtime.signal import Signal
from ottla.runtime.tasks import Tasks
from ottla.runtime.turns import Turns
from ottla.testing.loop import run
from ottla.testing.steps import at_once

START_MS = 1_000_000
COMMIT_TIMEOUT_MS = 5000


class Counters:
    """A small machine: counters by name, a request that parks until a time, and a memory of what was refused."""

    def __init__(self) -> None:
        self.wall_ahead_ms = 0
        self.counts: dict[str, int] = {}
        self.in_transaction: dict[int, list[str]] = {}
        self.parked: list[tuple[int, Ticket]] = []
        self.refusals: list[ErrorCode] = []

    # -- what a machine must have --------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        return min((due_ms for due_ms, _ in self.parked), default=None)

    def apply_all(self, records: Sequence[CoordinatorRecord], producer_id: int) -> None:
        for record in records:
            self.apply(record, producer_id)

    def apply(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        assert isinstance(record.key, str)
        if producer_id == NO_PRODUCER_ID:
            self.counts[record.key] = self.counts.get(record.key, 0) + 1
        else:
            self.in_transaction.setdefault(producer_id, []).append(record.key)

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        for key in self.in_transaction.pop(producer_id, ()):
            if committed:
                self.apply(CoordinatorRecord(key, 1))

    def loaded(self, now_ms: int) -> Decision:
        return Decision()

    def expire(self, now_ms: int) -> Decision:
        due = [ticket for due_ms, ticket in self.parked if due_ms <= now_ms]
        self.parked = [(due_ms, ticket) for due_ms, ticket in self.parked if due_ms > now_ms]
        return Decision(replies=[(ticket, now_ms) for ticket in due])

    def refused(self, decision: Decision, error_code: ErrorCode, now_ms: int) -> Decision:
        self.refusals.append(error_code)
        return Decision(replies=[(ticket, error_code) for ticket, _ in decision.replies])

    def unloaded(self) -> list[tuple[Ticket, object]]:
        return [(ticket, ErrorCode.NOT_COORDINATOR) for _, ticket in self.parked]

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, name: str, ticket: Ticket, now_ms: int) -> Decision:
        return Decision([CoordinatorRecord(name, 1)], [(ticket, f"added to {name}")])

    def add_in_transaction(self, name: str, producer_id: int, ticket: Ticket, now_ms: int) -> Decision:
        return Decision([CoordinatorRecord(name, 1)], [(ticket, "pending")], producer_id=producer_id)

    def read(self, name: str, ticket: Ticket, now_ms: int) -> Decision:
        return Decision(replies=[(ticket, self.counts.get(name, 0))])

    def park(self, delay_ms: int, ticket: Ticket, now_ms: int) -> Decision:
        self.parked.append((now_ms + delay_ms, ticket))
        return Decision()


class Paper:
    """A journal in memory. `lag` records at its end are not committed yet."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.lag = 0
        self.is_full = False
        self.moved = Signal()

    @property
    def committed_offset(self) -> int:
        return len(self.records) - self.lag

    def append(self, decision: Decision, now_ms: int) -> int:
        if self.is_full:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")
        self.records += decision.records
        return len(self.records)

    def commit(self) -> None:
        self.lag = 0
        self.moved.fire()


class Clock:
    """Its wall time is `wall_ahead_ms` ahead of its steady time, until a test says otherwise."""

    def __init__(self) -> None:
        self.wall_ahead_ms = START_MS

    def now_ms(self) -> int:
        return self.steady_ms() + self.wall_ahead_ms

    def steady_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Stage:
    """A runner with everything around it. Made inside of a running loop."""

    def __init__(self, performer: Performer | None = None, turns: Turns | None = None) -> None:
        self.machine = Counters()
        self.paper = Paper()
        self.tasks = Tasks()
        self.runner = Runner(
            self.machine,
            self.paper,
            Clock(),
            applied_offset=0,
            commit_timeout_ms=lambda: COMMIT_TIMEOUT_MS,
            in_background=self.tasks.start,
            turns=turns or Turns(),
            performer=performer,
        )
        self.runner.start()


async def soon(answer: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has begun to wait."""
    task = asyncio.create_task(answer)
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_a_request_is_answered_at_once_where_its_records_are_committed_at_once() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert at_once(stage.runner.ask(Counters.add, "a")) == "added to a"
        assert at_once(stage.runner.ask(Counters.read, "a")) == 1
        assert [record.key for record in stage.paper.records] == ["a"]

    run(scenario())


def test_a_reply_waits_until_the_records_are_committed_and_so_does_a_reader() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.paper.lag = 1
        added = await soon(stage.runner.ask(Counters.add, "a"))
        read = await soon(stage.runner.ask(Counters.read, "b"))
        stage.paper.moved.fire()  # for nothing
        await asyncio.sleep(1)
        assert not added.done()
        assert not read.done()
        stage.paper.commit()
        assert await added == "added to a"
        assert await read == 0
        assert at_once(stage.runner.ask(Counters.read, "a")) == 1

    run(scenario())


def test_a_commit_that_takes_too_long_is_answered_with_an_error_and_keeps_its_records() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.paper.lag = 1
        with pytest.raises(ApiError) as refusal:
            await stage.runner.ask(Counters.add, "a")
        assert refusal.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() == pytest.approx(COMMIT_TIMEOUT_MS / 1000)
        stage.paper.commit()
        assert at_once(stage.runner.ask(Counters.read, "a")) == 1

    run(scenario())


def test_records_that_cannot_be_written_are_not_applied_and_the_machine_says_what_to_reply() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.paper.is_full = True
        with pytest.raises(ApiError) as refusal:
            at_once(stage.runner.ask(Counters.add, "a"))
        assert refusal.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.machine.refusals == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert stage.machine.counts == {}

    run(scenario())


def test_decisions_of_one_turn_stand_or_fall_by_themselves_and_a_replay_finds_the_same() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert at_once(stage.runner.ask(Counters.add, "a")) == "added to a"
        stage.paper.is_full = True
        with pytest.raises(ApiError):
            at_once(stage.runner.ask(Counters.add, "b"))
        assert at_once(stage.runner.ask(Counters.read, "a")) == 1  # the one before is not refused with it
        stage.paper.is_full = False
        assert at_once(stage.runner.ask(Counters.add, "a")) == "added to a"
        assert at_once(stage.runner.ask(Counters.read, "a")) == 2
        assert stage.machine.refusals == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        replayed = Counters()
        for record in stage.paper.records:
            replayed.apply(record)
        assert replayed.counts == stage.machine.counts == {"a": 2}

    run(scenario())


def test_a_parked_request_is_answered_when_its_time_has_come() -> None:
    async def scenario() -> None:
        stage = Stage()
        late = await soon(stage.runner.ask(Counters.park, 3000))
        early = await soon(stage.runner.ask(Counters.park, 1000))
        assert await early == 1000
        assert await late == 3000

    run(scenario())


def test_a_parked_request_whose_client_hung_up_is_answered_to_nobody() -> None:
    async def scenario() -> None:
        stage = Stage()
        parked = await soon(stage.runner.ask(Counters.park, 1000))
        parked.cancel()
        await asyncio.sleep(2)
        assert stage.machine.parked == []
        assert at_once(stage.runner.ask(Counters.read, "a")) == 0

    run(scenario())


def test_everybody_who_waits_is_told_to_look_elsewhere_when_the_machine_is_given_up() -> None:
    async def scenario() -> None:
        stage = Stage()
        parked = await soon(stage.runner.ask(Counters.park, 1000))
        stage.paper.lag = 1
        added = await soon(stage.runner.ask(Counters.add, "a"))
        stage.runner.stop()
        for answer in (parked, added):
            with pytest.raises(ApiError) as refusal:
                await answer
            assert refusal.value.code == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(10)  # no timer goes off on a machine that is over
        await stage.tasks.stop()

    run(scenario())


def test_records_of_a_transaction_count_once_its_marker_is_in_the_journal() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert at_once(stage.runner.ask(Counters.add_in_transaction, "a", 7)) == "pending"
        assert at_once(stage.runner.ask(Counters.add_in_transaction, "b", 8)) == "pending"
        assert at_once(stage.runner.ask(Counters.read, "a")) == 0
        stage.runner.take_in(lambda machine: machine.complete_transaction(7, True), 2)
        stage.runner.take_in(lambda machine: machine.complete_transaction(8, False), 2)
        assert at_once(stage.runner.ask(Counters.read, "a")) == 1
        assert at_once(stage.runner.ask(Counters.read, "b")) == 0

    run(scenario())


class Noted:
    """A ticket that notes when it was filled."""

    def __init__(self, name: str, filled: list[str]) -> None:
        self._name = name
        self._filled = filled

    def fill(self, reply: object) -> None:
        self._filled.append(self._name)


def test_replies_come_in_the_order_of_the_requests_even_in_the_turn_of_a_commit() -> None:
    """The journal is committed, and those who wait are told in the next turn: nobody who asks in between is first."""

    async def scenario() -> None:
        stage = Stage()
        filled: list[str] = []
        for number in range(3):
            stage.paper.lag = 1
            stage.runner.carry_out(stage.machine.add("a", Noted(f"add {number}", filled), START_MS), START_MS)
            await asyncio.sleep(0)
            stage.paper.commit()
            stage.runner.carry_out(stage.machine.read("a", Noted(f"read {number}", filled), START_MS), START_MS)
            await asyncio.sleep(1)
        assert filled == [f"{what} {number}" for number in range(3) for what in ("add", "read")]
        await stage.tasks.stop()

    run(scenario())


# -- effects


class Noting:
    """A performer that notes what it is given, and what was replied by then."""

    def __init__(self) -> None:
        self.performed: list[object] = []
        self.unknown_count = 0

    def perform(self, effect: object) -> None:
        self.performed.append(effect)

    def commits_unknown(self) -> None:
        self.unknown_count += 1


def with_effect(stage: Stage, name: str, ticket: Noted, *effects: object) -> None:
    decision = stage.machine.add(name, ticket, START_MS)
    decision.effects += effects
    stage.runner.carry_out(decision, START_MS)


def test_effects_are_performed_once_the_records_are_committed_and_after_the_replies() -> None:
    async def scenario() -> None:
        order: list[str] = []

        class Ordered(Noting):
            def perform(self, effect: object) -> None:
                order.append(f"perform {effect}")

        stage = Stage(Ordered())
        with_effect(stage, "a", Noted("reply a", order), "a")
        assert order == ["reply a", "perform a"], "in this turn, where the journal commits at once"
        stage.paper.lag = 1
        with_effect(stage, "b", Noted("reply b", order), "b1", "b2")
        with_effect(stage, "c", Noted("reply c", order), "c")
        await asyncio.sleep(1)
        assert order == ["reply a", "perform a"]
        stage.paper.commit()
        await asyncio.sleep(0.1)
        assert order[2:] == ["reply b", "reply c", "perform b1", "perform b2", "perform c"]
        await stage.tasks.stop()

    run(scenario())


def test_an_effect_may_lead_to_the_next_decision_of_the_machine() -> None:
    async def scenario() -> None:
        filled: list[str] = []

        class Deciding(Noting):
            def perform(self, effect: object) -> None:
                super().perform(effect)
                if effect == "first":
                    with_effect(stage, "b", Noted("b", filled), "second")

        performer = Deciding()
        stage = Stage(performer)
        stage.paper.lag = 1
        with_effect(stage, "a", Noted("a", filled), "first")
        stage.paper.commit()
        await asyncio.sleep(0.1)
        stage.paper.commit()
        await asyncio.sleep(0.1)
        assert performer.performed == ["first", "second"]
        assert filled == ["a", "b"]
        await stage.tasks.stop()

    run(scenario())


def test_effects_of_records_that_are_not_written_are_not_performed() -> None:
    async def scenario() -> None:
        performer = Noting()
        stage = Stage(performer)
        stage.paper.is_full = True
        with_effect(stage, "a", Noted("a", []), "effect")
        assert (performer.performed, performer.unknown_count) == ([], 0)

    run(scenario())


def test_where_it_stays_unknown_whether_a_decision_is_committed_its_performer_is_told_so() -> None:
    async def scenario() -> None:
        performer = Noting()
        stage = Stage(performer)
        stage.paper.lag = 2
        with_effect(stage, "a", Noted("a", []), "effect")
        with_effect(stage, "b", Noted("b", []))
        await asyncio.sleep(COMMIT_TIMEOUT_MS / 1000 + 1)
        assert (performer.performed, performer.unknown_count) == ([], 1)
        await stage.tasks.stop()

    run(scenario())


def test_deadlines_of_many_machines_that_come_together_are_met_one_by_one() -> None:
    async def scenario() -> None:
        turns = Turns()
        stages = [Stage(turns=turns) for _ in range(20)]
        answers = [asyncio.create_task(stage.runner.ask(Counters.park, 1)) for stage in stages]
        most_at_once = answered = 0
        while answered < len(answers):
            await asyncio.sleep(0)
            most_at_once = max(most_at_once, sum(answer.done() for answer in answers) - answered)
            answered = sum(answer.done() for answer in answers)
        assert most_at_once == 1

    asyncio.run(scenario())
