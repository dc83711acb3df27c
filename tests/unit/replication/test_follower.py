"""What an answer of the leader makes a follower do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.protocol.messages import offsets
from ottla.protocol.messages.fetch import EpochEndOffset, PartitionData
from ottla.replication.fetch_requests import FetchPosition
from ottla.replication.follower import (
    Append,
    AskEpochEnd,
    FindRestartOffset,
    Follower,
    Ignore,
    Pause,
    RestartOffset,
    Step,
    Stop,
    Truncate,
    TruncateTo,
    find_restart_offset,
    follower_high_watermark,
    truncation_offset,
)
from ottla.storage.epochs import LeaderEpochs
from ottla.testing.disk import SimulatedDisk

HERE = FetchPosition(10, leader_epoch=3, last_fetched_epoch=2)


def answer(code: int = 0, diverging: EpochEndOffset | None = None) -> PartitionData:
    return PartitionData(
        partition_index=0, error_code=code, high_watermark=10, diverging_epoch=diverging, records=b"records"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (answer(), Append(answer())),
        (answer(0, EpochEndOffset(epoch=1, end_offset=5)), Truncate(1, 5)),
        (answer(ErrorCode.OFFSET_OUT_OF_RANGE), FindRestartOffset()),
        (answer(ErrorCode.FENCED_LEADER_EPOCH), Stop(ErrorCode.FENCED_LEADER_EPOCH)),
        (answer(ErrorCode.UNKNOWN_LEADER_EPOCH), Pause(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), Pause(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (answer(ErrorCode.UNKNOWN_TOPIC_ID), Pause(ErrorCode.UNKNOWN_TOPIC_ID)),
        (answer(ErrorCode.KAFKA_STORAGE_ERROR), Pause(ErrorCode.KAFKA_STORAGE_ERROR)),
        (answer(12345), Pause(ErrorCode.UNKNOWN_SERVER_ERROR)),
    ],
)
def test_every_answer_has_its_step(data: PartitionData, expected: Step) -> None:
    assert Follower(1, 3, HERE).handle_response(HERE, data) == expected


@pytest.mark.parametrize("asked", [HERE._replace(offset=9), HERE._replace(leader_epoch=2)])
def test_the_answer_to_a_question_of_the_past_is_ignored(asked: FetchPosition) -> None:
    for data in (answer(), answer(ErrorCode.OFFSET_OUT_OF_RANGE), answer(0, EpochEndOffset(epoch=0, end_offset=0))):
        assert Follower(1, 3, HERE).handle_response(asked, data) == Ignore()


def test_one_that_was_stopped_listens_no_more() -> None:
    follower = Follower(1, 3, HERE, is_stopped=True)
    assert follower.handle_response(HERE, answer()) == Ignore()
    assert not follower.is_ready(now=1e9)


@pytest.mark.parametrize(
    ("end", "leader_start", "leader_end", "place"),
    [
        (10, 0, 6, RestartOffset(6, is_new_start=False)),
        (10, 20, 30, RestartOffset(20, is_new_start=True)),
        (10, 0, 10, RestartOffset(10, is_new_start=False)),
        (10, 10, 30, RestartOffset(10, is_new_start=False)),
    ],
)
def test_a_follower_that_the_leader_does_not_know_finds_its_place(
    end: int, leader_start: int, leader_end: int, place: RestartOffset
) -> None:
    assert find_restart_offset(end, leader_start, leader_end) == place


def test_a_follower_knows_as_committed_what_it_has_of_it() -> None:
    assert follower_high_watermark(10, end_offset=7, log_start_offset=2) == 7
    assert follower_high_watermark(10, end_offset=12, log_start_offset=2) == 10
    assert follower_high_watermark(1, end_offset=7, log_start_offset=2) == 2


# -- before the first fetch from a leader whose responses do not report a divergence -----------------------------------

EPOCHS = [(0, 0), (2, 5), (5, 7), (6, 9)]  # of our log, and where they start; it ends at 10
OWN_END, HIGH_WATERMARK = 10, 4
LAST = FetchPosition(OWN_END, leader_epoch=9, last_fetched_epoch=6)


def own_end_of(epoch: int) -> tuple[int, int]:
    known = [number for number, (each, _) in enumerate(EPOCHS) if each <= epoch]
    if not known or epoch > EPOCHS[-1][0]:
        return -1, -1
    ends = [*(start for _, start in EPOCHS[1:]), OWN_END]
    return EPOCHS[known[-1]][0], ends[known[-1]]


def ends_at(epoch: int, end_offset: int, code: int = 0) -> offsets.EpochEndOffset:
    return offsets.EpochEndOffset(partition=0, error_code=code, leader_epoch=epoch, end_offset=end_offset)


def test_it_asks_where_its_last_epoch_ends_if_fetching_does_not_say() -> None:
    follower = Follower(1, 9, LAST)
    assert follower.before_fetch(HIGH_WATERMARK, reports_divergence=False) == AskEpochEnd(6)
    assert follower.before_fetch(HIGH_WATERMARK, reports_divergence=True) is None
    follower.is_truncated = True
    assert follower.before_fetch(HIGH_WATERMARK, reports_divergence=False) is None


@pytest.mark.parametrize("reports_divergence", [False, True])
def test_records_without_epochs_are_kept_as_far_as_they_are_known_to_be_committed(reports_divergence: bool) -> None:
    """Whatever the leader speaks: there is nothing that it could compare."""
    follower = Follower(1, 9, LAST._replace(last_fetched_epoch=-1))
    assert follower.before_fetch(HIGH_WATERMARK, reports_divergence=reports_divergence) == TruncateTo(4, is_last=True)
    assert follower.before_fetch(OWN_END, reports_divergence=reports_divergence) is None, "there is nothing to cut off"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        # Of the epoch that was asked for: both have it, one of them more of it.
        (ends_at(6, 12), TruncateTo(10, is_last=True)),
        (ends_at(6, 9), TruncateTo(9, is_last=True)),
        # Of an earlier one that both have: whoever has less of it.
        (ends_at(5, 8), TruncateTo(8, is_last=True)),
        (ends_at(5, 20), TruncateTo(9, is_last=True)),
        (ends_at(0, 3), TruncateTo(3, is_last=True)),
        # Of one that only the leader has: what is after it goes, and what is before it is asked about.
        (ends_at(4, 20), TruncateTo(7, is_last=False)),
        (ends_at(1, 3), TruncateTo(3, is_last=False)),
        # It knows no epochs, does not say of which epoch, or says what nobody asked for.
        (ends_at(-1, -1), TruncateTo(HIGH_WATERMARK, is_last=True)),
        (ends_at(-1, 8), TruncateTo(8, is_last=True)),
        (ends_at(-1, 80), TruncateTo(10, is_last=True)),
        (ends_at(7, 8), TruncateTo(8, is_last=True)),
        (ends_at(-1, -1, ErrorCode.FENCED_LEADER_EPOCH), Pause(ErrorCode.FENCED_LEADER_EPOCH)),
        (ends_at(-1, -1, ErrorCode.UNKNOWN_LEADER_EPOCH), Pause(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (ends_at(-1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), Pause(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (ends_at(-1, -1, 12345), Pause(ErrorCode.UNKNOWN_SERVER_ERROR)),
    ],
)
def test_every_answer_to_where_an_epoch_ends_has_its_step(
    answer: offsets.EpochEndOffset, expected: TruncateTo | Pause
) -> None:
    assert Follower(1, 9, LAST).handle_epoch_end(answer, own_end_of, HIGH_WATERMARK) == expected


# -- two histories meet ------------------------------------------------------------------------------------------------


@dataclass
class History:
    """The epochs of the records of a log, one for each offset: all that matters for finding where two logs part."""

    epochs: list[int] = field(default_factory=list)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to `epoch` that this log has, and where it ends; as `EpochStarts.end_of` answers."""
        known = max((each for each in self.epochs if each <= epoch), default=-1)
        return known, sum(each <= known for each in self.epochs)

    def answer_to(self, offset: int, last_epoch: int) -> EpochEndOffset | None:
        epoch, end = self.end_of(last_epoch)
        if epoch < 0:
            return EpochEndOffset(epoch=-1, end_offset=0)
        return EpochEndOffset(epoch=epoch, end_offset=end) if epoch < last_epoch or end < offset else None


LOGS = st.lists(st.integers(0, 4), max_size=12).map(sorted)


@settings(max_examples=300)
@given(LOGS, LOGS, LOGS)
def test_truncation_ends_where_both_logs_agree_and_nothing_common_is_lost(
    common: list[int], mine: list[int], theirs: list[int]
) -> None:
    """Two logs that share a beginning and part in epochs that only one of them has, as leader epochs make them."""
    top = max(common, default=0)
    leader = History(common + [top + 1 + 2 * epoch for epoch in theirs])
    follower = History(common + [top + 2 + 2 * epoch for epoch in mine])
    for _ in range(30):
        offset = len(follower.epochs)
        last_epoch = follower.epochs[-1] if follower.epochs else -1
        diverging = leader.answer_to(offset, last_epoch) if offset else None
        if diverging is None:
            break
        _, own_end = follower.end_of(diverging.epoch)
        cut = truncation_offset(own_end, diverging.end_offset, offset)
        assert cut < offset, "each round takes something away"
        del follower.epochs[cut:]
    assert follower.epochs == common


def epochs_of(log: list[int], *begun: int) -> LeaderEpochs:
    """What a replica knows of its epochs; `begun`: without a record so far."""
    epochs = LeaderEpochs(SimulatedDisk(), "/leader-epoch-checkpoint")
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    for epoch in begun:
        epochs.assign(epoch, len(log))
    return epochs


@settings(max_examples=300)
@given(LOGS, LOGS, LOGS, st.booleans())
def test_asking_ends_where_both_logs_agree_and_nothing_common_is_lost(
    common: list[int], mine: list[int], theirs: list[int], led_without_records: bool
) -> None:
    top = max(common, default=0)
    leader_log = common + [top + 1 + 2 * epoch for epoch in theirs]
    log = common + [top + 2 + 2 * epoch for epoch in mine]
    leader = epochs_of(leader_log, 99)
    own = epochs_of(log, *[98] * led_without_records)
    for _ in range(len({*mine}) + 2):
        follower = Follower(1, 99, FetchPosition(len(log), 99, own.latest))
        question = follower.before_fetch(0, reports_divergence=False)
        if question is None:
            break
        assert isinstance(question, AskEpochEnd)
        answer = ends_at(*leader.end_of(question.epoch, len(leader_log)))
        step = follower.handle_epoch_end(answer, lambda epoch: own.end_of(epoch, len(log)), 0)
        assert isinstance(step, TruncateTo)
        del log[step.offset :]
        own.truncate_from_end(len(log))
        if step.is_last:
            break
    else:
        pytest.fail("it asks without end")
    assert log == common
    assert own.entries == epochs_of(common).entries


def test_a_follower_asks_again_soon_and_then_ever_later_up_to_the_backoff() -> None:
    follower = Follower(leader_id=2, leader_epoch=5, position=HERE)
    pauses = []
    for _ in range(9):
        follower.pause(100.0, longest_s=1.0)
        pauses.append(round(follower.paused_until - 100.0, 6))
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
    assert not follower.is_ready(100.5)
    follower.failures = 0
    follower.pause(100.0, longest_s=1.0)
    assert follower.is_ready(100.02)
