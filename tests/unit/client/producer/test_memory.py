"""The bounded pool: fair to those who wait."""

from __future__ import annotations

from ottla.client.producer.memory import MemoryPool


def test_room_is_taken_and_given_back():
    pool = MemoryPool(100)
    assert pool.try_take(60)
    assert not pool.try_take(60)
    pool.give_back(60)
    assert pool.try_take(100)
    assert pool.limit_bytes - pool.available_bytes == 100


def test_who_comes_later_waits_behind_those_who_wait_even_if_there_would_be_room():
    pool = MemoryPool(100)
    served = []
    assert pool.try_take(90)
    pool.wait(50, lambda: served.append("large"))
    pool.wait(5, lambda: served.append("small"))
    assert not pool.try_take(5)
    assert served == []
    pool.give_back(90)
    assert served == ["large", "small"]
    assert pool.available_bytes == 45


def test_who_leaves_the_line_lets_the_next_one_in():
    pool = MemoryPool(100)
    served = []
    assert pool.try_take(90)
    first = pool.wait(50, lambda: served.append("large"))
    pool.wait(5, lambda: served.append("small"))
    pool.cancel(first)
    assert served == ["small"]
    assert pool.limit_bytes - pool.available_bytes == 95


def test_who_waits_for_what_is_there_has_it_at_once():
    pool = MemoryPool(100)
    served = []
    pool.wait(100, lambda: served.append("all"))
    assert served == ["all"]
    assert not pool.has_waiters
