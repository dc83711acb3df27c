"""Positions of a consumer, as values: phases, answers that come too late, leaders that change."""

from __future__ import annotations

import pytest

from ottla.client.consumer.positions import Leader, Phase, Position, Positions, Start, Truncation
from ottla.client.consumer.reset import EARLIEST, LATEST, NONE, ResetPolicy, parse_reset
from ottla.client.errors import SettingsError, UsageError
from ottla.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 100.0


def of_group(*partitions: TopicPartition, policy: ResetPolicy = EARLIEST) -> Positions:
    positions = Positions(policy)
    positions.assign(partitions, asks_group=True)
    return positions


def at(partition: TopicPartition, position: Position, policy: ResetPolicy = EARLIEST) -> Positions:
    positions = of_group(partition, policy=policy)
    positions.state(partition).seek(position)
    return positions


def test_a_partition_of_a_group_starts_where_the_group_committed() -> None:
    positions = of_group(P0)
    attempts = positions.initializing(NOW)
    assert attempts.keys() == {P0}
    positions.asked(attempts)
    assert not positions.initializing(NOW), "it is asked for once"
    start = positions.committed_found(P0, attempts[P0], Position(7, 3))
    assert start == Start(P0, 7, "committed by the group")
    assert positions.state(P0).is_fetchable
    assert positions.offsets() == {P0: Position(7, 3)}


def test_without_a_commit_the_policy_decides() -> None:
    positions = of_group(P0, policy=LATEST)
    assert positions.committed_found(P0, positions.initializing(NOW)[P0], None) is None
    (attempt, policy) = positions.to_reset(NOW)[P0]
    assert policy is LATEST
    assert positions.offsets() == {}
    assert positions.reset_found(P0, attempt, Position(42)) == Start(P0, 42, "the policy latest")
    assert positions.offsets() == {P0: Position(42)}


def test_a_partition_of_nobody_starts_with_the_policy() -> None:
    positions = Positions(EARLIEST)
    positions.assign([P0], asks_group=False)
    assert not positions.initializing(NOW)
    assert positions.to_reset(NOW).keys() == {P0}


def test_an_answer_for_a_partition_that_was_sought_elsewhere_is_not_for_it() -> None:
    positions = of_group(P0)
    attempt = positions.initializing(NOW)[P0]
    positions.state(P0).seek(Position(5))
    assert positions.committed_found(P0, attempt, Position(1)) is None
    assert positions.offsets() == {P0: Position(5)}


def test_a_lookup_that_failed_is_tried_again_later() -> None:
    positions = of_group(P0)
    attempts = positions.initializing(NOW)
    positions.asked(attempts)
    positions.ask_again(attempts, NOW + 1)
    assert not positions.initializing(NOW)
    assert positions.next_look(NOW) == NOW + 1
    assert positions.initializing(NOW + 1)


def test_who_stays_in_an_assignment_keeps_its_state() -> None:
    positions = at(P0, Position(5))
    positions.state(P0).is_paused = True
    positions.assign([P0, P1], asks_group=True, announced=False)
    assert positions.state(P0).is_paused
    assert positions.offsets() == {P0: Position(5)}
    positions.state(P1).seek(Position(0))
    assert not positions.state(P1).is_fetchable, "the listener has not heard of it"
    positions.announce([P1])
    assert positions.state(P1).is_fetchable
    positions.revoke_soon([P1])
    assert not positions.state(P1).is_fetchable
    positions.assign([P1], asks_group=True)
    with pytest.raises(UsageError, match="t-0 is not assigned"):
        positions.state(P0)


def test_a_new_leader_has_to_confirm_what_was_read() -> None:
    positions = at(P0, Position(10, 3))
    positions.leader_seen(P0, Leader(1, 3), can_validate=True)
    (attempt, position) = positions.to_validate(NOW)[P0]
    assert position == Position(10, 3)
    assert not positions.state(P0).is_fetchable
    assert positions.epoch_end_found(P0, attempt, 3, 12) is None
    assert positions.state(P0).is_fetchable
    positions.leader_seen(P0, Leader(1, 3), can_validate=True)
    assert positions.state(P0).is_fetchable, "the same leader in the same epoch"
    positions.leader_seen(P0, Leader(2, 4), can_validate=True)
    assert positions.state(P0).phase is Phase.AWAIT_VALIDATION


def test_a_position_without_an_epoch_cannot_be_confirmed() -> None:
    positions = at(P0, Position(10))
    positions.leader_seen(P0, Leader(2, 4), can_validate=True)
    assert positions.state(P0).is_fetchable


@pytest.mark.parametrize(
    ("policy", "epoch", "end", "goes_on"),
    [
        (EARLIEST, 2, 8, Position(8, 2)),
        (EARLIEST, -1, -1, None),
        (NONE, 2, 8, None),
    ],
)
def test_records_that_are_gone_are_told(policy: ResetPolicy, epoch: int, end: int, goes_on: Position | None) -> None:
    positions = at(P0, Position(10, 3), policy)
    positions.leader_seen(P0, Leader(2, 4), can_validate=True)
    attempt, _ = positions.to_validate(NOW)[P0]
    assert positions.epoch_end_found(P0, attempt, epoch, end) == Truncation(P0, Position(10, 3), end, epoch)
    assert positions.state(P0).position == goes_on
    assert (positions.state(P0).phase is Phase.AWAIT_RESET) == (goes_on is None)


def test_an_offset_out_of_range_counts_only_while_it_is_the_position() -> None:
    positions = at(P0, Position(10))
    assert not positions.out_of_range(P0, 9)
    assert positions.out_of_range(P0, 10)
    assert positions.to_reset(NOW)[P0][1] is EARLIEST
    assert not positions.out_of_range(P1, 0)


def test_lag_is_known_once_an_answer_told_where_the_log_ends() -> None:
    positions = at(P0, Position(10))
    assert positions.lag(P0, committed_only=False) is None
    positions.state(P0).high_watermark, positions.state(P0).last_stable_offset = 15, 12
    assert positions.lag(P0, committed_only=False) == 5
    assert positions.lag(P0, committed_only=True) == 2


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", -2),
        ("Latest", -1),
        ("smallest", -2),
        ("largest", -1),
        ("by_duration:PT1H30M", 10_000_000 - 5_400_000),
        ("by_duration:P0DT0.5S", 10_000_000 - 500),
        ("by_duration:P7D", 0),
    ],
)
def test_policies_say_what_to_ask_for(text: str, timestamp: int) -> None:
    assert parse_reset(text).timestamp(now_ms=10_000_000) == timestamp


@pytest.mark.parametrize("text", ["", "erliest", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_reset(text)


def test_none_and_error_are_the_same_policy() -> None:
    assert parse_reset("none").is_none
    assert parse_reset("error").is_none
