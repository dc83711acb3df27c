"""The commit protocol of the exactly-once sink, with every interleaving of crashes, failures and retries.

A model of Spark's driver, its tasks and the transaction coordinator, whose decisions are those of the real rules
(`ottla.spark.delivery.decision`). From every state every next step is tried, so that a crash comes at every point:
after any part of a batch is written, before and after a decision, between the ends of two transactions. A driver that
is replaced may have left a decision on its way, which arrives later or never. A failed commit is followed by an abort
and then by the same batch, in the same run (`foreachBatch`) or in another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import pytest

from ottla.client.prepared import Prepared
from ottla.spark.delivery import decision as rules
from ottla.spark.delivery.decision import Decision, Steps, Writer, is_decided, steps_of_abort, steps_of_commit

PARTITIONS = 2
BATCHES = 2
FAILURES = 2
steps_of = steps_of_commit  # a test puts a mistake in its place
SKIPPED = Prepared("", -1, -1, True)  # the message of a task that found its batch decided


class Is(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(frozen=True)
class Transaction:
    """The last transaction of a transactional id, as its coordinator has it."""

    epoch: int
    status: Is
    batch: int
    partition: int


@dataclass(frozen=True)
class Worker:
    """A Python process of an executor. It keeps a transactional id for its next task."""

    kept_id: str | None = None
    last_batch: int = -1


Ids = tuple[tuple[str, Transaction], ...]


@dataclass(frozen=True)
class World:
    # What brokers know.
    transactions: Ids = ()
    visible: tuple[tuple[int, int], ...] = ()  # batch and partition of every committed transaction, in order
    last: Decision | None = None
    fence: int = 0  # whoever introduced itself last may write decisions
    delayed: tuple[int, Decision] | None = None  # of a driver that is gone, with its fence
    # What Spark knows.
    committed_batch: int = -1
    run: int = 0
    offered: tuple[Prepared | None, ...] = (None,) * PARTITIONS
    steps: tuple[tuple[str, object], ...] | None = None  # of a commit or an abort under way
    workers: tuple[Worker, ...] = (Worker(),) * PARTITIONS
    ids_made: int = 0
    failures_left: int = FAILURES

    @property
    def batch(self) -> int:
        return self.committed_batch + 1

    @property
    def writer(self) -> Writer:
        return Writer("query", f"run{self.run}")

    def of_id(self, transactional_id: str) -> Transaction:
        return dict(self.transactions)[transactional_id]

    def with_transaction(self, transactional_id: str, transaction: Transaction) -> World:
        changed = {**dict(self.transactions), transactional_id: transaction}
        return replace(self, transactions=tuple(sorted(changed.items(), key=lambda item: item[0])))


# -- brokers -----------------------------------------------------------------------------------------------------------


def end(world: World, prepared: Prepared, *, commits: bool) -> World:
    """EndTxn: a repeated one is answered as the first was; anybody else's transaction is left alone."""
    now = world.of_id(prepared.transactional_id)
    wanted = Is.COMMITTED if commits else Is.ABORTED
    if now.epoch == prepared.producer_epoch and now.status is Is.OPEN:
        world = world.with_transaction(prepared.transactional_id, replace(now, status=wanted))
        if commits:
            world = replace(world, visible=tuple(sorted([*world.visible, (now.batch, now.partition)])))
        return world
    is_repeated = now.epoch == prepared.producer_epoch and now.status is wanted
    assert is_repeated or not commits, f"{prepared} was decided and cannot be committed: it is {now}"
    assert is_repeated or now.status is not Is.COMMITTED or now.epoch != prepared.producer_epoch, "aborted too late"
    return world


def sweep(world: World, prefix: str) -> World:
    for transactional_id, now in world.transactions:
        if transactional_id.startswith(prefix) and now.status is Is.OPEN:
            world = world.with_transaction(transactional_id, replace(now, status=Is.ABORTED))
    return world


# -- tasks -------------------------------------------------------------------------------------------------------------


def attempts(world: World, partition: int, worker_number: int) -> Iterator[tuple[World, Prepared]]:
    """One attempt of a task, up to its message."""
    worker = world.workers[worker_number]
    # First what became of the kept id, then whether the batch is decided: the other way round an id could be taken
    # again whose transaction was decided in between.
    kept = worker.kept_id
    may_take_again = kept is not None and world.of_id(kept).status is not Is.OPEN
    must_look = worker.last_batch >= world.batch
    for looks in {True, must_look}:
        if looks and is_decided(world.last, world.batch):
            yield _with_worker(world, worker_number, replace(worker, last_batch=world.batch)), SKIPPED
            continue
        if may_take_again:
            assert kept is not None
            transactional_id, epoch, made = kept, world.of_id(kept).epoch + 1, 0
        else:
            transactional_id, epoch, made = f"{world.writer.run_prefix}{world.ids_made}", 0, 1
        written = Transaction(epoch, Is.OPEN, world.batch, partition)
        after = replace(world, ids_made=world.ids_made + made).with_transaction(transactional_id, written)
        after = _with_worker(after, worker_number, Worker(transactional_id, world.batch))
        yield after, Prepared(transactional_id, 7, epoch, True)


def _with_worker(world: World, number: int, worker: Worker) -> World:
    return replace(world, workers=(*world.workers[:number], worker, *world.workers[number + 1 :]))


def failing(world: World) -> World:
    return replace(world, failures_left=world.failures_left - 1)


def task_steps(world: World) -> Iterator[World]:
    partition = world.offered.index(None)
    for worker in {partition, 0}:
        for after, message in attempts(world, partition, worker):
            offered = (*world.offered[:partition], message, *world.offered[partition + 1 :])
            yield replace(after, offered=offered)
            if world.failures_left:
                yield failing(after)  # the message is lost: Spark runs the task again
                for loser in range(PARTITIONS):  # a speculative attempt that was too late
                    for behind, _ in attempts(replace(after, offered=offered), partition, loser):
                        yield failing(behind)


# -- the driver --------------------------------------------------------------------------------------------------------


def begun(world: World, *, commits: bool) -> World:
    """The driver introduces itself as the writer of decisions, reads the last one and knows what to do."""
    world = replace(world, fence=world.fence + 1)
    offered = [each for each in world.offered if each not in (None, SKIPPED)]
    if commits:
        steps = steps_of(world.last, world.writer, world.batch, offered)
    else:
        steps = steps_of_abort(world.last, world.batch, offered)
    return replace(world, steps=tuple(listed(steps, commits=commits)))


def listed(steps: Steps, *, commits: bool) -> Iterator[tuple[str, object]]:
    if steps.decision is not None:
        yield "decide", steps.decision
    for each in steps.commits:
        yield "commit", each
    for each in steps.aborts:
        yield "abort", each
    if steps.sweep_prefix is not None:
        yield "sweep", steps.sweep_prefix
    yield ("done", None) if commits else ("failed", None)


def driver_steps(world: World) -> Iterator[World]:
    assert world.steps is not None
    (kind, what), rest = world.steps[0], world.steps[1:]
    after = replace(world, steps=rest)
    match kind:
        case "decide":
            assert isinstance(what, Decision)
            yield replace(after, last=what)
            if world.failures_left:
                sent = failing(replace(world, delayed=(world.fence, what)))
                yield from restarted(sent)
                yield begun(sent, commits=False)
        case "commit" | "abort":
            assert isinstance(what, Prepared)
            yield end(after, what, commits=kind == "commit")
        case "sweep":
            assert isinstance(what, str)
            yield sweep(after, what)
        case "done":
            yield replace(after, steps=None, committed_batch=world.batch, offered=(None,) * PARTITIONS)
        case _:  # the batch failed: it is run again
            again = replace(after, steps=None, offered=(None,) * PARTITIONS)
            yield again
            yield from restarted(again)
    if world.failures_left:
        yield from restarted(failing(world))
        if kind != "failed":
            yield begun(failing(world), commits=False)


def restarted(world: World) -> Iterator[World]:
    """Another driver; the workers of the old one may be there still."""
    fresh = replace(world, run=world.run + 1, steps=None, offered=(None,) * PARTITIONS)
    yield replace(fresh, workers=(Worker(),) * PARTITIONS)
    yield replace(fresh, workers=tuple(replace(each, kept_id=None) for each in world.workers))


def next_worlds(world: World) -> Iterator[World]:
    if world.delayed is not None:
        fence, decision = world.delayed
        yield replace(world, delayed=None, last=decision if fence == world.fence else world.last)
    if world.steps is not None:
        yield from driver_steps(world)
    elif None in world.offered:
        yield from task_steps(world)
        if world.failures_left:
            yield from restarted(failing(world))
    else:
        yield begun(world, commits=True)


# -- every state -------------------------------------------------------------------------------------------------------


def explored() -> int:
    """Looks at every state that can be reached; how many there are."""
    seen = {World()}
    unseen = [World()]
    while unseen:
        world = unseen.pop()
        check(world)
        if world.batch == BATCHES:
            continue
        for after in next_worlds(world):
            if after not in seen:
                seen.add(after)
                unseen.append(after)
    return len(seen)


def check(world: World) -> None:
    assert len(set(world.visible)) == len(world.visible), f"written twice: {world}"
    for batch in range(world.committed_batch + 1):
        found = {partition for number, partition in world.visible if number == batch}
        assert len(found) == PARTITIONS, f"batch {batch} is committed and not all of it is there: {world}"
    if world.batch == BATCHES:
        left = [name for name, now in world.transactions if now.status is Is.OPEN]
        assert not left, f"left open: {left} in {world}"


def test_each_row_is_there_once_whatever_fails_and_whenever() -> None:
    assert explored() > 10_000, "the model has become too small to show anything"


# -- the model notices -------------------------------------------------------------------------------------------------


def test_a_decision_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "is_decided", lambda last, batch_id: False)
    with pytest.raises(AssertionError, match=r"written twice|cannot be committed|not all of it"):
        explored()


def test_an_abort_after_the_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_without", lambda offered, last: tuple(offered))
    with pytest.raises(AssertionError, match=r"cannot be committed|aborted too late|not all of it"):
        explored()


def test_leftovers_of_another_run_that_are_not_swept_up_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_own_leftovers_only(last: Decision | None, writer: Writer, *rest: Any) -> Steps:
        return replace(steps_of_commit(last, writer, *rest), sweep_prefix=writer.run_prefix)

    monkeypatch.setitem(globals(), "steps_of", with_own_leftovers_only)
    with pytest.raises(AssertionError, match="left open"):
        explored()
