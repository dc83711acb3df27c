"""In-sync replicas as their leader sees them: who joins, who leaves, what counts while a change is but proposed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ApiError, ErrorCode
from ottla.replication.leader import IsrProposal, Leader

LAG_MS = 100
ALIVE = (1, 2, 3)


def leader(isr: tuple[int, ...] = (1, 2, 3), *, end_offset: int = 10, known: int = 4) -> Leader:
    return Leader(
        1, epoch=5, replicas=(1, 2, 3), isr=isr, end_offset=end_offset, high_watermark=known, version=7, now_ms=0
    )


def test_a_follower_at_the_end_is_in_sync_however_long_it_was_silent() -> None:
    led = leader((1, 2))
    led.record_fetch(2, 10, 0, now_ms=5)
    assert led.propose_shrink(1_000_000, LAG_MS) is None


def test_a_follower_that_is_stuck_leaves_after_the_lag_and_not_before() -> None:
    led = leader((1, 2))
    led.record_fetch(2, 10, 0, now_ms=50)
    led.record_end(1, 11)
    assert led.propose_shrink(150, LAG_MS) is None
    assert led.propose_shrink(151, LAG_MS) == IsrProposal(leader_epoch=5, version=7, isr=(1,))


def test_a_follower_that_was_never_heard_of_has_the_lag_from_the_start_of_the_epoch() -> None:
    led = leader((1, 2))
    assert led.propose_shrink(100, LAG_MS) is None
    assert led.propose_shrink(101, LAG_MS) is not None


def test_a_follower_that_is_slow_leaves_though_it_fetches_all_the_time() -> None:
    led = leader((1, 2))
    for step in range(1, 30):
        led.record_end(1, 10 + 10 * step)  # the leader gains more than the follower
        led.record_fetch(2, 4 + step, 0, now_ms=10 * step)
        if led.propose_shrink(10 * step, LAG_MS) is not None:
            break
    assert 100 < 10 * step <= 120


def test_a_follower_one_fetch_behind_steady_writes_stays() -> None:
    led = leader((1, 2))
    for step in range(1, 100):
        led.record_fetch(2, 10 + 10 * (step - 1), 0, now_ms=10 * step)
        led.record_end(1, 10 + 10 * step)
        assert led.propose_shrink(10 * step, LAG_MS) is None


def test_a_follower_joins_when_it_has_all_that_is_committed_and_all_from_before_the_epoch() -> None:
    led = leader((1,), end_offset=10, known=4)
    assert led.high_watermark == 10
    led.record_fetch(2, 9, 0, now_ms=1)
    assert led.propose_growth(2, ALIVE) is None
    led.record_fetch(2, 10, 0, now_ms=2)
    assert led.propose_growth(2, eligible=(1, 3)) is None, "it is about to leave"
    assert led.propose_growth(2, ALIVE) == IsrProposal(leader_epoch=5, version=7, isr=(1, 2), broker_epochs={2: -1})
    assert led.propose_growth(2, ALIVE) is None, "one proposal at a time"


def test_a_new_leader_lets_nobody_join_who_lacks_what_it_had_when_its_epoch_began() -> None:
    led = leader((1, 2), end_offset=10, known=4)
    led.record_fetch(3, 6, 0, now_ms=1)
    assert led.high_watermark == 4
    assert led.propose_growth(3, ALIVE) is None


def test_while_a_follower_is_proposed_its_lag_holds_the_high_watermark_and_it_does_not_count_for_min_isr() -> None:
    led = leader((1,))
    led.record_fetch(2, 10, 0, now_ms=1)
    assert led.propose_growth(2, ALIVE) is not None
    assert not led.is_alone
    assert not led.record_end(1, 20)
    assert led.high_watermark == 10
    with pytest.raises(ApiError, match="1 replicas are in sync"):
        led.check_append(-1, min_insync_replicas=2)
    assert not led.commit_isr((1, 2), version=8)
    led.check_append(-1, min_insync_replicas=2)
    assert led.record_fetch(2, 20, 0, now_ms=2)
    assert led.high_watermark == 20


def test_while_a_follower_is_to_leave_it_still_holds_the_high_watermark() -> None:
    led = leader((1, 2))
    led.record_fetch(2, 10, 0, now_ms=1)
    led.record_end(1, 20)
    assert led.propose_shrink(1000, LAG_MS) is not None
    assert led.high_watermark == 10
    assert led.commit_isr((1,), version=8)
    assert led.high_watermark == 20


def test_a_refused_proposal_leaves_things_as_they_were() -> None:
    led = leader((1,))
    led.record_fetch(2, 10, 0, now_ms=1)
    led.propose_growth(2, ALIVE)
    led.record_end(1, 20)
    assert led.high_watermark == 10
    assert led.withdraw_proposal()
    assert led.high_watermark == 20
    assert led.isr == (1,)
    assert led.is_alone
    assert led.record_end(1, 21)
    assert not led.withdraw_proposal()


def test_an_answer_that_is_older_than_what_is_known_changes_nothing() -> None:
    led = leader((1, 2, 3))
    led.commit_isr((1, 2), version=9)
    assert not led.commit_isr((1,), version=8)
    assert (led.isr, led.version) == ((1, 2), 9)


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
@pytest.mark.parametrize("stranger", [1, 4])
def test_only_a_follower_may_fetch_as_one(stranger: int, epoch: int, code: ErrorCode) -> None:
    leader().check_follower(2, epoch)
    with pytest.raises(ApiError) as caught:
        leader().check_follower(stranger, epoch)
    assert caught.value.code == code


def test_what_a_follower_had_in_an_earlier_registration_does_not_count() -> None:
    """It may have lost that since (KIP-903); a request of the earlier one may still be on its way."""
    led = leader((1,), known=10)
    led.record_fetch(2, 4, 0, now_ms=1, broker_epoch=31)
    with pytest.raises(ApiError) as caught:
        led.check_follower(2, 5, broker_epoch=30)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    led.check_follower(2, 5, broker_epoch=31)
    led.check_follower(2, 5, broker_epoch=32)
    led.check_follower(2, 5)


def test_a_proposal_says_in_which_registration_who_joins_has_caught_up() -> None:
    led = leader((1, 3))
    led.record_fetch(3, 10, 0, now_ms=1, broker_epoch=20)
    led.record_fetch(2, 10, 0, now_ms=1, broker_epoch=31)
    assert led.propose_growth(2, ALIVE) == IsrProposal(leader_epoch=5, version=7, isr=(1, 3, 2), broker_epochs={2: 31})


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3])),
    st.tuples(st.just("grow"), st.sampled_from([2, 3])),
    st.tuples(st.just("shrink"), st.integers(0, 200)),
    st.tuples(st.sampled_from(["commit", "refuse"]), st.just(0)),
)


@given(st.sampled_from([(1,), (1, 2), (1, 2, 3)]), st.lists(STEPS, max_size=60))
def test_whatever_the_controller_decides_every_member_of_the_isr_has_what_is_committed(
    isr: tuple[int, ...], steps: list[tuple[str, int]]
) -> None:
    led = leader(isr, end_offset=0, known=0)
    ends = {1: 0, 2: 0, 3: 0}
    now_ms = 0
    for what, amount in steps:
        now_ms += 10
        before = led.high_watermark
        match what:
            case "append":
                ends[1] += amount
                led.record_end(1, ends[1])
            case "fetch":
                led.record_fetch(amount, ends[amount], 0, now_ms)
                ends[amount] = ends[1]  # it has them once the answer came; the next fetch says so
            case "grow":
                led.propose_growth(amount, ALIVE)
            case "shrink":
                now_ms += amount
                led.propose_shrink(now_ms, LAG_MS)
            case "commit" if led.proposal is not None:
                led.commit_isr(led.proposal.isr, led.version + 1)
            case "refuse":
                led.withdraw_proposal()
        assert led.high_watermark >= before
        possible = {*led.isr, *(led.proposal.isr if led.proposal else ())}
        assert 1 in led.isr
        assert all(ends[node] >= led.high_watermark for node in possible)
