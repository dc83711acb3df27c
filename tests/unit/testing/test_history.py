"""The checker of histories finds what was planted, and nothing in what is sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.ids import TopicPartition
from ottla.testing.history import History, Operation, Outcome
from ottla.testing.history_check import Anomaly, check

T = TopicPartition("t", 0)
U = TopicPartition("t", 1)


class Story:
    """A history as a test tells it, one operation after the other."""

    def __init__(self) -> None:
        self.history = History()

    def __call__(
        self,
        process: int,
        *,
        sends: dict[int, int | None] | None = None,
        reads: list[tuple[int, int]] | None = None,
        of: TopicPartition = T,
        outcome: Outcome = Outcome.OK,
        is_transaction: bool = False,
        anew: bool = False,
        **seen: int,
    ) -> Operation:
        """`sends` are values with the offsets that were told, `reads` are (offset, value)."""
        with self.history.operation(process, is_transaction=is_transaction) as operation:
            operation.is_new_position = anew
            for value, offset in (sends or {}).items():
                operation.send(of, value)
                if offset is not None:
                    operation.sent(value, offset)
            for offset, value in reads or ():
                operation.read(of, offset, value)
            for what, offset in seen.items():
                operation.saw(what, of, offset)
            operation.outcome = outcome
        return operation

    def findings(self, **how: Any) -> set[Anomaly]:
        return {finding.anomaly for finding in check(self.history, **how)}


@pytest.fixture
def story() -> Story:
    return Story()


def test_nothing_is_found_in_a_sound_history(story: Story) -> None:
    story(1, sends={10: 0, 11: 1})
    story(2, sends={20: 2}, is_transaction=True)
    story(3, reads=[(0, 10), (1, 11)], end=3)
    story(4, sends={30: None}, outcome=Outcome.FAILED, is_transaction=True)
    story(4, sends={31: None}, outcome=Outcome.UNKNOWN, is_transaction=True)
    story(3, reads=[(2, 20), (6, 31)], end=7)
    story(5, reads=[(0, 10), (1, 11), (2, 20), (6, 31)])
    assert check(story.history) == []


def test_an_acknowledged_value_that_readers_passed_over_is_lost(story: Story) -> None:
    story(1, sends={10: 0, 11: 1})
    story(1, sends={12: 2})
    story(2, reads=[(0, 10), (2, 12)])
    assert story.findings(is_drained=False) == {Anomaly.LOST_WRITE}


def test_an_acknowledged_value_that_is_not_there_at_the_end_is_unseen(story: Story) -> None:
    story(1, sends={10: 0, 11: 1})
    story(2, reads=[(0, 10)])
    assert story.findings() == {Anomaly.UNSEEN}
    assert story.findings(is_drained=False) == set(), "somebody may still read it"


def test_a_value_without_a_known_offset_must_be_seen_as_well(story: Story) -> None:
    story(1, sends={10: None})
    assert story.findings() == {Anomaly.UNSEEN}


def test_a_value_at_two_offsets_is_a_duplicate(story: Story) -> None:
    story(1, sends={10: 0})
    story(2, reads=[(0, 10), (1, 10)])
    assert story.findings() == {Anomaly.DUPLICATE}


def test_an_answer_that_names_another_offset_than_readers_see_is_a_duplicate(story: Story) -> None:
    story(1, sends={10: 5})
    story(2, reads=[(0, 10)])
    assert story.findings() == {Anomaly.DUPLICATE}


def test_two_values_at_one_offset_are_inconsistent(story: Story) -> None:
    story(1, sends={10: 0})
    story(2, sends={20: None}, outcome=Outcome.UNKNOWN)
    story(3, reads=[(0, 10)])
    story(4, reads=[(0, 20)])
    assert story.findings() == {Anomaly.INCONSISTENT_OFFSETS}


def test_a_read_of_what_was_aborted_is_found(story: Story) -> None:
    story(1, sends={10: None}, outcome=Outcome.FAILED, is_transaction=True)
    story(2, reads=[(0, 10)])
    assert story.findings() == {Anomaly.ABORTED_READ}


def test_a_transaction_of_unknown_end_is_seen_whole_or_not_at_all(story: Story) -> None:
    story(1, sends={10: None, 11: None}, outcome=Outcome.UNKNOWN, is_transaction=True)
    story(2, reads=[(0, 10)])
    assert story.findings() == {Anomaly.TORN_TRANSACTION}


def test_sends_of_unknown_end_outside_of_transactions_may_be_there_or_not(story: Story) -> None:
    story(1, sends={10: None, 11: None}, outcome=Outcome.UNKNOWN)
    story(2, reads=[(0, 10)])
    assert story.findings() == set()


def test_a_value_that_nobody_sent_there_is_found(story: Story) -> None:
    story(1, sends={10: 0})
    story(2, reads=[(0, 10)])
    story(3, reads=[(0, 99)], of=U)
    assert story.findings() == {Anomaly.UNWRITTEN_READ}


def test_a_reader_that_leaves_out_what_others_see_skips(story: Story) -> None:
    story(1, sends={10: 0, 11: 1, 12: 2})
    story(2, reads=[(0, 10), (1, 11), (2, 12)])
    story(3, reads=[(0, 10)])
    story(3, reads=[(2, 12)])
    assert story.findings() == {Anomaly.POLL_SKIP}


def test_holes_of_markers_and_aborted_values_are_no_skips(story: Story) -> None:
    story(1, sends={10: 0})
    story(2, sends={20: 1}, outcome=Outcome.FAILED, is_transaction=True)
    story(1, sends={11: 3})
    story(3, reads=[(0, 10), (3, 11)])
    assert story.findings() == set()


def test_a_reader_that_goes_back_is_found_unless_it_began_anew(story: Story) -> None:
    story(1, sends={10: 0, 11: 1})
    story(2, reads=[(0, 10), (1, 11)])
    story(2, reads=[(0, 10), (1, 11)], anew=True)
    assert story.findings() == set()
    story(2, reads=[(1, 11)])
    assert story.findings() == {Anomaly.NONMONOTONIC_POLL}


def test_values_of_one_process_must_stand_in_its_order(story: Story) -> None:
    story(1, sends={10: 1})
    story(1, sends={11: 0})
    story(2, reads=[(0, 11), (1, 10)])
    assert story.findings() == {Anomaly.NONMONOTONIC_SEND}


def test_an_offset_that_falls_is_found(story: Story) -> None:
    story(1, end=5, committed=3)
    story(2, end=5, committed=3)
    assert story.findings() == set()
    story(3, end=4)
    assert story.findings() == {Anomaly.OFFSET_WENT_BACK}


def test_answers_to_questions_that_overlap_may_come_in_any_order() -> None:
    story = Story()
    with story.history.operation(1) as first:
        story(2, end=5)
        first.saw("end", T, 4)
        first.succeed()
    assert story.findings() == set()


def test_transactions_that_read_from_each_other_are_a_cycle(story: Story) -> None:
    story(1, sends={10: 0}, reads=[(1, 20)], is_transaction=True)
    story(2, sends={20: 1}, reads=[(0, 10)], is_transaction=True)
    assert story.findings() == {Anomaly.WRITE_READ_CYCLE}


def test_a_chain_of_transactions_is_no_cycle(story: Story) -> None:
    story(1, sends={10: 0}, is_transaction=True)
    story(2, sends={20: 1}, reads=[(0, 10)], is_transaction=True)
    story(3, sends={30: 2}, reads=[(0, 10), (1, 20)], is_transaction=True)
    story(4, reads=[(0, 10), (1, 20), (2, 30)])
    assert story.findings() == set()


def test_a_long_cycle_is_found(story: Story) -> None:
    story(0, sends={0: 0}, reads=[(9, 9)], is_transaction=True)
    for number in range(1, 10):
        story(number, sends={number: number}, reads=[(number - 1, number - 1)], is_transaction=True)
    assert story.findings() == {Anomaly.WRITE_READ_CYCLE}


def test_an_operation_that_raises_is_of_unknown_end() -> None:
    history = History()

    def send_in_vain() -> None:
        with history.operation(1) as operation:
            operation.send(T, history.new_value())
            raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        send_in_vain()
    (operation,) = history.operations
    assert operation.outcome is Outcome.UNKNOWN
    assert operation.completed is not None


def test_a_history_can_be_written_down(story: Story, tmp_path: Path) -> None:
    story(1, sends={10: 0}, end=1)
    story(2, reads=[(0, 10)], anew=True)
    story.history.save(tmp_path / "history")
    first, second = (json.loads(line) for line in (tmp_path / "history").read_text().splitlines())
    assert (first["sends"], first["seen"], first["outcome"]) == ([["t-0", 10, 0]], [["end", "t-0", 1]], "ok")
    assert (second["reads"], second["new_position"]) == ([["t-0", 0, 10]], True)


def test_a_finding_says_what_where_and_why(story: Story) -> None:
    story(1, sends={10: 0})
    (finding,) = check(story.history)
    assert str(finding).startswith("unseen: 10 of process 1 in t-0 at 0")
