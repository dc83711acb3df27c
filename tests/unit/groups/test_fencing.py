"""Members that missed something: one, two and many generations or epochs behind, and ahead. They change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode

GENERATION = 9
OTHERS = (0, 1, GENERATION - 7, GENERATION - 2, GENERATION - 1, GENERATION + 1, GENERATION + 2, 2**31 - 1)
ILLEGAL, STALE = ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH
FENCED, FENCED_INSTANCE = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID
OFFSETS = {("a", 0): 5}


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> Any:
    driver = make_driver(consumer_assignment_interval_ms=0)
    driver.create_topics(a=4)
    return driver


def at_generation(driver: Any, instance: str | None = None) -> str:
    """A classic member alone in its group, in a late generation."""
    (member,) = driver.stable_group(1, instance=instance)
    while driver.machine.group("g").generation < GENERATION:
        generation = driver.join(member, instance=instance).generation_id
        driver.sync(member, generation, {member: b"x"}, instance=instance)
    return str(member)


@pytest.mark.parametrize("generation", OTHERS)
@pytest.mark.parametrize("instance", [None, "i1"])
def test_a_classic_member_of_another_generation_does_nothing(
    driver: Any, generation: int, instance: str | None
) -> None:
    member = at_generation(driver, instance)
    records = len(driver.log)
    assert driver.heartbeat(member, generation, instance=instance) == ILLEGAL
    assert driver.sync(member, generation, {member: b"stale"}, instance=instance) == ILLEGAL
    assert driver.commit(OFFSETS, member=member, generation=generation, instance=instance) == [ILLEGAL]
    assert driver.commit_in_transaction(OFFSETS, member=member, generation=generation, instance=instance) == [ILLEGAL]
    assert len(driver.log) == records
    assert driver.sync(member, GENERATION, instance=instance) == b"x"


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_every_process_of_a_static_member_before_the_last_is_fenced(driver: Any, restarts: int) -> None:
    processes = [at_generation(driver, "i1")]
    processes += [driver.join(instance="i1").member_id for _ in range(restarts)]
    records = len(driver.log)
    for member in processes[:-1]:
        assert driver.heartbeat(member, GENERATION, instance="i1") == FENCED_INSTANCE
        assert driver.sync(member, GENERATION, {member: b"stale"}, instance="i1") == FENCED_INSTANCE
        assert driver.join(member, instance="i1") == FENCED_INSTANCE
        assert driver.leave(member, instances=("i1",)) == [FENCED_INSTANCE]
        assert driver.commit(OFFSETS, member=member, generation=GENERATION, instance="i1") == [FENCED_INSTANCE]
        assert driver.heartbeat(member, GENERATION) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(driver.log) == records
    assert driver.heartbeat(processes[-1], GENERATION, instance="i1") == ErrorCode.NONE


def at_epoch(driver: Any, **said: Any) -> None:
    """A member of the new protocol alone in its group, in a late epoch."""
    epoch = driver.start("m1", **said).member_epoch
    while epoch < GENERATION:
        topics = ("a",) if epoch % 2 else ("a", "b")
        epoch = driver.beat("m1", epoch, topics=topics, owned={"a": {0, 1, 2, 3}}, **said).member_epoch


@pytest.mark.parametrize("epoch", [epoch for epoch in OTHERS if epoch])
@pytest.mark.parametrize("instance", [None, "i1"])
def test_a_consumer_of_another_epoch_does_nothing(driver: Any, epoch: int, instance: str | None) -> None:
    at_epoch(driver, instance=instance)
    records = len(driver.log)
    has_all = {"a": {0, 1, 2, 3}}
    # It missed an answer, and has no more than what that gave it: only then may it be one behind.
    is_last = epoch == GENERATION - 1
    assert driver.beat("m1", epoch, instance=instance) == FENCED
    reply = driver.beat("m1", epoch, owned=has_all, instance=instance)
    assert (reply.member_epoch == GENERATION) if is_last else (reply == FENCED)
    assert driver.fetch({"a": [0]}, member="m1", epoch=epoch) == STALE
    if epoch > GENERATION:
        assert driver.commit(OFFSETS, member="m1", generation=epoch) == [STALE]
    assert len(driver.log) == records
    assert driver.beat("m1", GENERATION, instance=instance).member_epoch == GENERATION


@pytest.mark.parametrize("behind", [1, 2, 6])
def test_a_consumer_commits_in_an_earlier_epoch_only_what_it_has_had_since(driver: Any, behind: int) -> None:
    at_epoch(driver)
    kept_since = driver.machine.group("g").members["m1"].assignment_epochs
    assert set(kept_since.values()) == {2}
    assert driver.commit(OFFSETS, member="m1", generation=GENERATION - behind) == [ErrorCode.NONE]
    assert driver.commit(OFFSETS, member="m1", generation=1) == [STALE]
    assert driver.commit({("other", 0): 1}, member="m1", generation=GENERATION - behind) == [STALE]


@pytest.mark.parametrize("returns", [1, 2, 5])
def test_every_consumer_before_the_last_of_an_instance_is_fenced(driver: Any, returns: int) -> None:
    processes = ["p0"]
    driver.start("p0", instance="i1")
    for number in range(1, returns + 1):
        driver.beat(processes[-1], -2, instance="i1")
        processes.append(f"p{number}")
        driver.start(processes[-1], instance="i1")
    records = len(driver.log)
    for member in processes[:-1]:
        for epoch in (1, 2, -1, -2):
            assert driver.beat(member, epoch, instance="i1") == FENCED_INSTANCE
        assert driver.leave(member, instances=("i1",)) == [FENCED_INSTANCE]
        assert driver.commit(OFFSETS, member=member, generation=2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(driver.log) == records
