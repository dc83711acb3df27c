"""Deadlines that move and vanish without touching the heap."""

from __future__ import annotations

import random

from ottla.timers import Timers


def test_deadlines_come_up_in_order_and_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    assert timers.next_deadline_ms == 10
    assert timers.pop_due(9) is None
    assert [timers.pop_due(30), timers.pop_due(30), timers.pop_due(30)] == ["a", "b", None]


def test_a_deadline_that_moves_is_due_at_its_new_time_only() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 30)
    assert (timers.pop_due(20), timers.next_deadline_ms) == (None, 30)
    timers.set("a", 15)
    assert (timers.pop_due(20), timers.pop_due(99), timers.next_deadline_ms) == ("a", None, None)


def test_a_heartbeat_leaves_the_heap_alone() -> None:
    timers: Timers[int] = Timers()
    for now in range(10_000):
        timers.set(1, now + 45_000)
    assert len(timers._heap) == 1


def test_cancelled_deadlines_do_not_pile_up() -> None:
    timers: Timers[int] = Timers()
    for key in range(100_000):
        timers.set(key, key)
        timers.cancel(key)
    assert len(timers) == 0
    assert len(timers._heap) < 2000
    assert timers.next_deadline_ms is None


def test_it_does_what_a_plain_table_does() -> None:
    rng = random.Random(7)
    timers: Timers[int] = Timers()
    table: dict[int, int] = {}
    for now in range(5000):
        key = rng.randrange(20)
        match rng.randrange(3):
            case 0 | 1:
                table[key] = now + rng.randrange(50)
                timers.set(key, table[key])
            case _:
                table.pop(key, None)
                timers.cancel(key)
        assert timers.next_deadline_ms == min(table.values(), default=None)
        while (due := timers.pop_due(now)) is not None:
            assert table.pop(due) <= now
        assert all(deadline > now for deadline in table.values())
