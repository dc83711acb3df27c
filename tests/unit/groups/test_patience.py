"""Members that are slow, or hear nothing for a while, and have to be borne: what shows that somebody lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode

SESSION_MS = 10_000
A_WHILE_MS = SESSION_MS * 6 // 10


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> Any:
    driver = make_driver(consumer_assignment_interval_ms=0)
    driver.create_topics(a=4, b=1)
    return driver


def test_who_waits_for_its_assignment_is_not_missed_however_long_the_leader_takes(driver: Any) -> None:
    leader, *others = driver.join_together(3)
    group = driver.machine.group("g")
    tickets = []
    for other in others:
        assert driver.sync(other, group.generation) is None
        tickets.append(driver.ticket)
    for _ in range(8):  # several sessions
        driver.pass_time(A_WHILE_MS)
        assert driver.heartbeat(leader, group.generation) == ErrorCode.NONE
    assert driver.sync(leader, group.generation, {each: each.encode() for each in (leader, *others)}) == leader.encode()
    assert [driver.replies[ticket].assignment for ticket in tickets] == [other.encode() for other in others]
    # From its answer on a member has to show that it lives again.
    driver.pass_time(SESSION_MS + 1)
    assert [driver.heartbeat(other, group.generation) for other in others] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_who_waits_for_a_rebalance_is_not_missed_however_long_others_take(driver: Any) -> None:
    first, second = driver.stable_group(2)
    generation = driver.machine.group("g").generation
    assert driver.join(first, protocols={"range": b"other"}) is None
    ticket = driver.ticket
    for _ in range(5):
        driver.pass_time(A_WHILE_MS)
        assert driver.heartbeat(second, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(second).generation_id == generation + 1
    assert driver.replies[ticket].generation_id == generation + 1


def test_a_static_member_that_returns_before_its_sync_is_waited_for_under_its_new_id(driver: Any) -> None:
    """It joined, was restarted before it asked for its assignment, and joins again: it has to ask under its new id."""
    tickets = {}
    for name in ("one", "two"):
        driver.join(instance=name)
        tickets[name] = driver.ticket
    driver.pass_time(driver.settings.initial_rebalance_delay_ms * 2)
    one, old = (driver.replies[ticket].member_id for ticket in tickets.values())
    group = driver.machine.group("g")
    driver.sync(one, group.generation, {one: b"1", old: b"2"}, instance="one")
    assert driver.join(instance="two").generation_id == group.generation
    two = group.static_members["two"]
    assert two != old
    # It lives and never asks: when the time of the rebalance is over it is gone, and the group goes on without it.
    for _ in range(12):
        driver.pass_time(A_WHILE_MS)
        driver.heartbeat(one, group.generation, instance="one")
        driver.heartbeat(two, group.generation, instance="two")
    assert two not in group.members


@pytest.mark.parametrize("shows_by", ["commit", "heartbeat"])
def test_a_member_that_works_on_while_others_join_stays(driver: Any, shows_by: str) -> None:
    first, second = driver.stable_group(2)
    group = driver.machine.group("g")
    generation = group.generation
    assert driver.join(second, protocols={"range": b"other"}) is None
    assert group.state_name == "PreparingRebalance"
    for number in range(5):  # it finishes what it has, and says so in between
        driver.pass_time(A_WHILE_MS)
        if shows_by == "commit":
            assert driver.commit({("a", 0): number}, member=first, generation=generation) == [ErrorCode.NONE]
        else:
            assert driver.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(first).member_id == first
    assert len(group.members) == 2


def held(driver: Any, member: str) -> dict[str, set[int]]:
    names = driver.topics.names
    return {names[topic]: set(found) for topic, found in driver.machine.group("g").members[member].assigned.items()}


def settle(driver: Any, *members: str) -> None:
    """Everybody gives up what it is to give up and gets what it is to have."""
    for _ in range(4):
        for member in members:
            driver.beat(member, driver.machine.group("g").members[member].epoch, owned=held(driver, member))
    assert driver.machine.group("g").state_name == "Stable"


def test_a_member_may_miss_several_replies_in_a_row(driver: Any) -> None:
    """It says the epoch that it knows, until it hears of another; meanwhile it is given what others give up."""
    for member in ("m1", "m2"):
        driver.start(member)
        settle(driver, *driver.machine.group("g").members)
    members = driver.machine.group("g").members
    known_epoch, owned = members["m2"].epoch, held(driver, "m2")
    driver.beat("m1", members["m1"].epoch, topics=("b",), owned=held(driver, "m1"), rebalance_ms=60_000)

    def beat_of_the_one_that_hears_nothing() -> None:
        reply = driver.beat("m2", known_epoch, owned=owned)
        assert not isinstance(reply, ErrorCode), reply

    beat_of_the_one_that_hears_nothing()
    assert members["m2"].epoch > known_epoch
    assert held(driver, "m2") == owned, "the other one has not given up anything yet"
    driver.beat("m1", members["m1"].epoch, owned={})
    for _ in range(3):
        beat_of_the_one_that_hears_nothing()
        assert held(driver, "m2") == {"a": {0, 1, 2, 3}}
