"""The leader's rules: what is committed, who may append, whose epoch is current."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.errors import ApiError, ErrorCode
from ottla.replication.leader import LastFetch, Leader, high_watermark


def leader(isr: tuple[int, ...] = (1, 2, 3), *, end_offset: int = 10, known: int = 4) -> Leader:
    return Leader(1, epoch=5, replicas=(1, 2, 3), isr=isr, end_offset=end_offset, high_watermark=known)


def test_the_high_watermark_is_what_every_in_sync_replica_has() -> None:
    assert high_watermark({1: 10, 2: 7, 3: 2}, (1, 2)) == 7
    assert high_watermark({1: 10}, (1,)) == 10


def test_nothing_new_is_committed_before_the_followers_were_heard_of() -> None:
    led = leader()
    assert led.high_watermark == 4
    assert not led.record_end(2, 8)
    assert led.record_end(3, 6)
    assert led.high_watermark == 6
    assert not led.record_end(1, 20)
    assert led.record_end(3, 20)
    assert led.high_watermark == 8


def test_a_leader_that_is_alone_commits_what_it_appends() -> None:
    led = leader((1,))
    assert led.is_alone
    assert led.high_watermark == 10
    assert led.record_end(1, 11)
    assert led.high_watermark == 11


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 100)), max_size=30))
def test_the_high_watermark_never_goes_back(ends: list[tuple[int, int]]) -> None:
    led = leader((1, 2, 3), end_offset=0, known=0)
    before = 0
    for node, end_offset in ends:
        moved = led.record_end(node, end_offset)
        assert moved == (led.high_watermark > before)
        assert led.high_watermark >= before
        before = led.high_watermark


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        *((stale, ErrorCode.FENCED_LEADER_EPOCH) for stale in (4, 3, 0)),
        *((early, ErrorCode.UNKNOWN_LEADER_EPOCH) for early in (6, 7, 2**31 - 1)),
        (5, None),
        (-1, None),
    ],
)
def test_a_client_must_know_the_current_epoch_or_say_nothing(claimed: int, code: ErrorCode | None) -> None:
    if code is None:
        leader().check_epoch(claimed)
        return
    with pytest.raises(ApiError) as caught:
        leader().check_epoch(claimed)
    assert caught.value.code == code


def test_acks_all_needs_as_many_in_sync_as_the_topic_asks_for_but_not_more_than_it_has() -> None:
    leader((1, 2)).check_append(acks=-1, min_insync_replicas=2)
    leader((1, 2)).check_append(acks=1, min_insync_replicas=3)
    leader((1, 2, 3)).check_append(acks=-1, min_insync_replicas=9)
    with pytest.raises(ApiError) as caught:
        leader((1, 2)).check_append(acks=-1, min_insync_replicas=3)
    assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_the_first_epoch_is_one_like_any_other() -> None:
    """0 is an epoch; only what is below says that a client does not know."""
    for epoch, current in [(5, 0), (1, 0), (5, 4)]:
        with pytest.raises(ApiError) as caught:
            Leader(1, epoch, (1,), (1,), end_offset=0, high_watermark=0).check_epoch(current)
        assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
    first = Leader(1, 0, (1,), (1,), end_offset=0, high_watermark=0)
    first.check_epoch(0)
    first.check_epoch(-1)
    with pytest.raises(ApiError) as caught:
        first.check_epoch(1)
    assert caught.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_replica_that_moves_away_is_in_sync_by_name_only() -> None:
    led = Leader(3, epoch=5, replicas=(3, 2), isr=(1, 2, 3), end_offset=10, high_watermark=4)
    assert led.record_end(2, 10)
    assert led.high_watermark == 10
    led.record_end(3, 20)
    shrunk = led.propose_shrink(now_ms=0, lag_ms_max=1000)
    assert shrunk is not None
    assert shrunk.isr == (2, 3)
    only_it = Leader(3, epoch=5, replicas=(3, 2), isr=(1, 3), end_offset=10, high_watermark=4)
    assert not only_it.has_enough_in_sync(2)


def test_the_low_watermark_is_that_of_the_replicas_that_are_alive() -> None:
    known = Leader(1, 0, (1, 2, 3), (1, 2, 3), end_offset=10, high_watermark=0)
    assert known.low_watermark(5, {1, 2, 3}) == -1
    known.record_fetch(2, 10, 4, now_ms=0)
    assert known.low_watermark(5, {1, 2, 3}) == -1
    assert known.low_watermark(5, {1, 2}) == 4
    known.record_fetch(2, 10, 6, now_ms=0)
    assert known.low_watermark(5, {1, 2}) == 5
    assert known.low_watermark(5, {1}) == 5


@example([("append", 1), ("wait", 60), ("wait", 60), ("fetch", 0), ("append", 1)])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),
            st.tuples(st.just("fetch"), st.integers(0, 3)),
            st.tuples(st.just("wait"), st.integers(1, 60)),
        ),
        max_size=40,
    )
)
def test_a_fetch_that_is_noted_once_for_a_session_says_as_much_as_one_that_is_noted_for_each_partition(
    events: list[tuple[str, int]],
) -> None:
    """A follower that stands at the end and asks on is noted by the time of its session alone."""
    lag_ms_max = 100
    exact, noted = leader(end_offset=0, known=0), leader(end_offset=0, known=0)
    session = LastFetch(0)
    noted.followers[2].last_fetch = session
    end_offset = offset = now_ms = 0
    for kind, amount in events:
        if kind == "append":
            end_offset += amount
            for led in (exact, noted):
                led.record_end(1, end_offset)
        elif kind == "wait":
            now_ms += amount
        else:
            was_at_end = noted.followers[2].end_offset == end_offset
            offset = min(end_offset, offset + amount)
            exact.record_fetch(2, offset, 0, now_ms)
            session.at_ms = now_ms
            if not was_at_end or offset < end_offset:
                noted.record_fetch(2, offset, 0, now_ms)
        known = [led.followers[2].is_caught_up(end_offset, now_ms, lag_ms_max) for led in (exact, noted)]
        assert known[0] == known[1]
