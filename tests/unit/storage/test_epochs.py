from pathlib import Path

import pytest

from ottla.disk import RealDisk
from ottla.storage import checkpoints
from ottla.storage.epochs import EpochStart, LeaderEpochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(RealDisk(), "unused")
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def entries_of(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(epoch, start_offset) for epoch, start_offset in epochs.entries]


def test_epochs_are_noted_where_they_start_and_only_once() -> None:
    epochs = epochs_of((0, 0), (0, 5), (2, 10), (2, 11), (5, 20))
    assert entries_of(epochs) == [(0, 0), (2, 10), (5, 20)]
    assert epochs.latest == 5


def test_without_epochs_the_latest_is_undefined() -> None:
    assert epochs_of().latest == -1
    assert epochs_of().epoch_at(0) == -1


def test_an_undefined_epoch_is_not_noted() -> None:
    assert entries_of(epochs_of((-1, 0))) == []


def test_an_epoch_that_wrote_nothing_gives_way_to_the_one_that_starts_at_the_same_offset() -> None:
    assert entries_of(epochs_of((1, 0), (2, 10), (3, 10))) == [(1, 0), (3, 10)]


def test_an_older_epoch_at_the_end_takes_away_the_newer_ones_it_contradicts() -> None:
    assert entries_of(epochs_of((1, 0), (3, 10), (5, 20), (4, 25))) == [(1, 0), (3, 10), (4, 25)]


def test_the_same_epoch_from_an_earlier_offset_starts_there() -> None:
    assert entries_of(epochs_of((1, 0), (3, 10), (3, 8))) == [(1, 0), (3, 8)]


def test_the_epoch_of_an_offset_is_the_last_that_started_at_or_before_it() -> None:
    epochs = epochs_of((1, 5), (3, 10))
    assert [epochs.epoch_at(offset) for offset in (4, 5, 9, 10, 1000)] == [-1, 1, 1, 3, 3]


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(5, (5, 30), id="the latest ends where the log ends"),
        pytest.param(2, (2, 20), id="a known one ends where the next begins"),
        pytest.param(3, (2, 20), id="one in a gap is answered by the one below it"),
        pytest.param(1, (1, 10), id="one older than all known ended where the first known begins"),
        pytest.param(6, (-1, -1), id="one newer than all known is undefined"),
        pytest.param(-1, (-1, -1), id="the undefined one is undefined"),
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert epochs_of((2, 10), (5, 20)).end_of(asked, log_end_offset=30) == answer


def test_nothing_is_known_of_any_epoch_in_a_log_without_them() -> None:
    assert epochs_of().end_of(0, log_end_offset=30) == (-1, -1)


# -- cutting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [
        (21, [(0, 0), (2, 10), (5, 20)]),
        (20, [(0, 0), (2, 10)]),
        (11, [(0, 0), (2, 10)]),
        (10, [(0, 0)]),
        (0, []),
    ],
)
def test_cutting_the_end_drops_the_epochs_that_start_there_or_later(
    end_offset: int, left: list[tuple[int, int]]
) -> None:
    epochs = epochs_of((0, 0), (2, 10), (5, 20))
    epochs.truncate_from_end(end_offset)
    assert entries_of(epochs) == left


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, [(0, 3), (2, 10), (5, 20)]),
        (3, [(0, 3), (2, 10), (5, 20)]),
        (4, [(0, 4), (2, 10), (5, 20)]),
        (10, [(2, 10), (5, 20)]),
        (15, [(2, 15), (5, 20)]),
        (99, [(5, 99)]),
    ],
)
def test_cutting_the_beginning_keeps_the_epoch_of_the_first_record_that_is_left(
    start_offset: int, left: list[tuple[int, int]]
) -> None:
    epochs = epochs_of((0, 3), (2, 10), (5, 20))
    epochs.truncate_from_start(start_offset)
    assert entries_of(epochs) == left


# -- the checkpoint ----------------------------------------------------------------------------------------------------


def test_what_is_not_on_disk_is_pending_until_it_was_written(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "leader-epoch-checkpoint")
    epochs = LeaderEpochs(disk, path)
    assert epochs.pending(100) is None
    epochs.assign(3, 57)
    pending = epochs.pending(100)
    assert pending == (EpochStart(3, 57),)
    checkpoints.write_epochs(disk, path, pending)
    epochs.written(pending)
    assert epochs.pending(100) is None

    again = LeaderEpochs(disk, path)
    again.load()
    assert again.entries == pending
    assert again.pending(100) is None


def test_an_epoch_that_came_while_the_checkpoint_was_written_is_still_pending() -> None:
    epochs = epochs_of((0, 0))
    being_written = epochs.pending(100)
    assert being_written is not None
    epochs.assign(1, 10)
    epochs.written(being_written)
    assert epochs.pending(100) == (EpochStart(0, 0), EpochStart(1, 10))


def test_cutting_and_clearing_are_pending_only_where_they_changed_something() -> None:
    epochs = epochs_of((0, 0))
    for change in (
        lambda: epochs.truncate_from_end(1),
        lambda: epochs.truncate_from_start(0),
        lambda: epochs.assign(0, 7),
    ):
        epochs.written(epochs.entries)
        change()
        assert epochs.pending(100) is None
    epochs.clear()
    assert epochs.pending(100) == ()


def test_an_epoch_that_wrote_nothing_is_not_written_down() -> None:
    epochs = epochs_of((0, 0), (1, 10))
    assert epochs.pending(10) == (EpochStart(0, 0),)
    epochs.written((EpochStart(0, 0),))
    assert epochs.pending(10) is None
    assert epochs.pending(11) == (EpochStart(0, 0), EpochStart(1, 10))
