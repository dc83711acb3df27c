"""Fetch sessions: resolved from requests alone, bounded, and in step with the reader or gone."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.wire import ZERO_UUID
from ottla.replication.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    NOTHING_REPORTED,
    FetchPlan,
    FetchSessions,
    Reported,
    WantedKey,
)
from ottla.testing.raw_requests import fetch
from ottla.testing.steps import finished

TOPIC_ID = UUID(int=9)
QUIET = {"has_records": False, "has_trouble": False}
RECORDS = {"has_records": True, "has_trouble": False}
TROUBLE = {"has_records": False, "has_trouble": True}


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(random.Random(1), slots)


def plan_of(cache: FetchSessions, *arguments: Any) -> FetchPlan:
    return finished(cache.plan(*arguments))


def opened(cache: FetchSessions, partitions: tuple[int, ...] = (0, 1), now_ms: int = 0) -> FetchPlan:
    return plan_of(cache, fetch("t", partitions=partitions, session_epoch=0), 12, now_ms)


def more(cache: FetchSessions, session: int, epoch: int, version: int = 12, now_ms: int = 0, **entry: Any) -> FetchPlan:
    request = fetch("t", session_id=session, session_epoch=epoch, **{"partitions": (), **entry})
    return plan_of(cache, request, version, now_ms)


def indexes(plan: FetchPlan) -> list[int]:
    return [key.partition for key, _ in plan.wanted]


def test_old_versions_and_final_epochs_have_no_session() -> None:
    cache = sessions()
    for request, version in ((fetch("t"), 6), (fetch("t", session_epoch=-1), 12)):
        plan = plan_of(cache, request, version, 0)
        assert (plan.session_id, indexes(plan), len(cache)) == (0, [0], 0)


def test_an_incremental_request_wants_what_was_named_before() -> None:
    cache = sessions()
    session = opened(cache).session_id
    assert indexes(more(cache, session, 1)) == [0, 1]
    assert indexes(more(cache, session, 2, partitions=(5,))) == [0, 1, 5]
    assert indexes(more(cache, session, 3, forgotten=(0, 77))) == [1, 5]
    plan = more(cache, session, 4, partitions=(5,), offset=44)
    assert {key.partition: entry.fetch_offset for key, entry in plan.wanted} == {1: 0, 5: 44}


def test_a_partition_named_twice_is_wanted_once() -> None:
    plan = plan_of(sessions(), fetch("t", partitions=(0, 0, 1)), 12, 0)
    assert indexes(plan) == [0, 1]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "code"),
    [
        (0, 5, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_who_does_not_agree_is_told_so_and_nothing_changes(
    session: int, epoch: int, version: int, code: ErrorCode
) -> None:
    cache = sessions()
    known = opened(cache).session_id
    with pytest.raises(ApiError) as caught:
        more(cache, known + session, epoch, version)
    assert caught.value.code == code
    assert indexes(more(cache, known, 1)) == [0, 1]


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    session = opened(cache).session_id
    plan = more(cache, session, 1, forgotten=(0, 1))
    assert (plan.session_id, plan.wanted, len(cache)) == (0, [], 0)


def test_closing_and_opening_anew_forget_the_session() -> None:
    cache = sessions()
    session = opened(cache).session_id
    more(cache, session, -1)
    assert len(cache) == 0
    session = opened(cache).session_id
    anew = plan_of(cache, fetch("t", session_id=session, session_epoch=0), 12, 0)
    assert anew.session_id not in (0, session)
    assert len(cache) == 1


def test_a_full_cache_evicts_only_who_was_silent_for_long() -> None:
    cache = sessions(slots=2)
    silent, busy = opened(cache).session_id, opened(cache).session_id
    assert opened(cache, now_ms=EVICTION_MS - 1).session_id == 0, "both are young"
    more(cache, busy, 1, now_ms=EVICTION_MS - 1)
    assert opened(cache, now_ms=EVICTION_MS).session_id > 0
    assert cache.evicted_count == 1
    more(cache, busy, 2)
    with pytest.raises(ApiError):
        more(cache, silent, 1)


def test_no_slots_means_no_sessions() -> None:
    assert opened(sessions(slots=0)).session_id == 0


def test_only_news_are_told_and_each_once() -> None:
    cache = sessions()
    plan = opened(cache)
    first, second = (key for key, _ in plan.wanted)
    assert plan.note_reported(first, Reported(0, 0), **QUIET), "a full answer tells everything"
    assert plan.note_reported(second, Reported(0, 0), **QUIET)
    plan = more(cache, plan.session_id, 1)
    assert not plan.note_reported(first, Reported(0, 0), **QUIET)
    assert plan.note_reported(second, Reported(7, 0), **QUIET), "the high watermark moved"
    plan = more(cache, plan.session_id, 2)
    assert not plan.note_reported(second, Reported(7, 0), **QUIET)
    assert plan.note_reported(second, Reported(7, 3), **QUIET), "the log start moved"
    assert plan.note_reported(first, Reported(0, 0), **RECORDS)


def test_a_follower_in_a_new_epoch_is_told_again() -> None:
    """What was reported in the epoch before it did not listen to."""
    cache = sessions()
    session = opened(cache, (0,)).session_id
    key = WantedKey("t", ZERO_UUID, 0)

    def reported(epoch: int, leader_epoch: int, replica_id: int) -> bool:
        request = fetch("t", partitions=[0], session_id=session, session_epoch=epoch, current_leader_epoch=leader_epoch)
        request.replica_id = replica_id
        plan = plan_of(cache, request, 12, 0)
        return plan.note_reported(key, Reported(5, 0), has_records=False, has_trouble=False)

    assert reported(1, 3, replica_id=2)
    assert not reported(2, 3, replica_id=2)
    assert reported(3, 4, replica_id=2)
    assert not reported(4, 5, replica_id=-1)


def test_what_stood_beside_an_error_or_a_divergence_is_told_again() -> None:
    """A follower that truncates takes nothing else from the answer: it would never learn what is committed."""
    cache = sessions()
    session = opened(cache, (0,)).session_id
    key = WantedKey("t", ZERO_UUID, 0)
    assert more(cache, session, 1).note_reported(key, Reported(5, 0), **TROUBLE)
    assert more(cache, session, 2).note_reported(key, Reported(5, 0), **QUIET)
    assert not more(cache, session, 3).note_reported(key, Reported(5, 0), **QUIET)


def test_whoever_got_something_goes_to_the_end_of_the_row() -> None:
    cache = sessions()
    plan = opened(cache, (0, 1, 2))
    plan = more(cache, plan.session_id, 1)
    plan.note_reported(plan.wanted[0][0], Reported(1, 0), **RECORDS)
    assert indexes(more(cache, plan.session_id, 2)) == [1, 2, 0]


def test_whoever_got_an_error_is_told_and_keeps_its_place() -> None:
    cache = sessions()
    plan = opened(cache, (0, 1, 2))
    plan = more(cache, plan.session_id, 1)
    for _ in range(2):
        assert plan.note_reported(plan.wanted[0][0], NOTHING_REPORTED, **TROUBLE)
    assert indexes(more(cache, plan.session_id, 2)) == [0, 1, 2]


def test_the_first_row_is_that_of_the_first_answer() -> None:
    cache = sessions()
    plan = opened(cache, (0, 1, 2))
    keys = [key for key, _ in plan.wanted]
    for key in (keys[1], keys[2], keys[0]):
        assert plan.note_reported(key, Reported(1, 0), **QUIET)
    assert indexes(more(cache, plan.session_id, 1)) == [1, 2, 0]


def test_what_a_request_names_and_forgets_is_answered_once_without_a_session() -> None:
    cache = sessions()
    session = opened(cache).session_id
    plan = more(cache, session, 1, partitions=(5,), forgotten=(0, 1, 5))
    assert (plan.session_id, indexes(plan), len(cache)) == (0, [5], 0)
    assert plan.note_reported(plan.wanted[0][0], Reported(0, 0), **QUIET)


def test_what_the_first_request_of_a_session_forgets_is_not_heard() -> None:
    cache = sessions()
    session = plan_of(cache, fetch("t", partitions=(0, 1), session_epoch=0, forgotten=(0,)), 12, 0).session_id
    assert indexes(more(cache, session, 1)) == [0, 1]


def test_a_session_remembers_what_a_topic_was_called() -> None:
    cache = sessions()
    entry: dict[str, Any] = {"topic_id": TOPIC_ID, "partitions": (0,)}
    plan = plan_of(cache, fetch("", session_epoch=0, **entry), 13, 0, {TOPIC_ID: "t"})
    ((key, _),) = plan.wanted
    assert plan.name_of(key) == "t"
    later = plan_of(cache, fetch("", session_id=plan.session_id, session_epoch=1, partitions=()), 13, 0, {})
    assert later.name_of(key) == "t"
    assert plan_of(cache, fetch("", **entry), 13, 0, {}).name_of(key) is None
    assert plan_of(cache, fetch("", **entry), 13, 0, {TOPIC_ID: "t"}).name_of(key) == "t"


def test_epochs_start_again_behind_the_last() -> None:
    cache = sessions()
    session = opened(cache).session_id
    cache._sessions[session].epoch = EPOCH_MAX
    more(cache, session, EPOCH_MAX)
    more(cache, session, 1)


def test_topics_by_id_and_by_name_are_told_apart() -> None:
    cache = sessions()
    plan = plan_of(cache, fetch("", topic_id=TOPIC_ID, session_epoch=0), 13, 0)
    assert plan.wanted[0][0] == ("", TOPIC_ID, 0)
    plan = more(cache, plan.session_id, 1, 13, topic_id=TOPIC_ID, partitions=(4,))
    assert [(key.topic_id, key.partition) for key, _ in plan.wanted] == [(TOPIC_ID, 0), (TOPIC_ID, 4)]


def test_very_many_partitions_are_planned_in_steps_whether_named_added_or_forgotten() -> None:
    cache, many = sessions(), tuple(range(200))
    opening = fetch("t", partitions=many, session_epoch=0)
    assert sum(1 for _ in cache.plan(opening, 12, 0)) >= 20, "read, and noted"
    session = opened(cache, partitions=(0, 1)).session_id
    changing = fetch("t", partitions=many, session_id=session, session_epoch=1, forgotten=many[1:])
    assert sum(1 for _ in cache.plan(changing, 12, 0)) >= 30, "read, noted and forgotten"
    assert indexes(more(cache, session, 2)) == [0]


def test_a_request_that_comes_while_the_one_before_is_planned_meets_the_next_epoch() -> None:
    cache = sessions()
    session = opened(cache).session_id
    first = cache.plan(fetch("t", partitions=range(100), session_id=session, session_epoch=1), 12, 0)
    for _ in range(8):
        next(first)
    with pytest.raises(ApiError) as refusal:
        more(cache, session, 1)
    assert refusal.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert len(finished(first).wanted) == 100
