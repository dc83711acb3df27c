from pathlib import Path

import pytest

from ottla.disk import RealDisk
from ottla.errors import CorruptFileError
from ottla.storage.index import (
    RELATIVE_OFFSET_MAX,
    AbortedTransaction,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)

T = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


# -- offset index ------------------------------------------------------------------------------------------------------


def offset_index(disk: RealDisk, path: Path, *entries: tuple[int, int], base_offset: int = 1000) -> OffsetIndex:
    index = OffsetIndex(disk, str(path), base_offset)
    index.reset()
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_an_offset_entry_has_kafkas_eight_bytes(disk: RealDisk, path: Path) -> None:
    offset_index(disk, path, (1042, 4096)).seal()
    assert path.read_bytes().hex() == "0000002a00001000"


def test_a_lookup_finds_the_last_entry_at_or_before_the_offset(disk: RealDisk, path: Path) -> None:
    index = offset_index(disk, path, (1010, 100), (1020, 200), (1030, 300))
    expected = {
        1009: OffsetPosition(1000, 0),
        1010: OffsetPosition(1010, 100),
        1019: OffsetPosition(1010, 100),
        1020: OffsetPosition(1020, 200),
        1030: OffsetPosition(1030, 300),
        5000: OffsetPosition(1030, 300),
    }
    assert {offset: index.lookup(offset) for offset in expected} == expected


def test_an_empty_index_points_at_the_start_of_the_segment(disk: RealDisk, path: Path) -> None:
    index = offset_index(disk, path)
    assert index.lookup(1500) == index.last() == OffsetPosition(1000, 0)
    assert index.entry_count == 0


def test_a_sealed_index_answers_from_its_file_as_it_did_from_memory(disk: RealDisk, path: Path) -> None:
    index = offset_index(disk, path, (1010, 100), (1020, 200))
    index.seal()
    assert index.lookup(1015) == OffsetPosition(1010, 100)
    assert index.last() == OffsetPosition(1020, 200)
    index.release()
    assert list(index.entries()) == [OffsetPosition(1010, 100), OffsetPosition(1020, 200)]


def test_the_largest_relative_offset_fits_and_the_next_does_not(disk: RealDisk, path: Path) -> None:
    index = offset_index(disk, path, (1000 + RELATIVE_OFFSET_MAX, 7))
    assert index.last() == OffsetPosition(1000 + RELATIVE_OFFSET_MAX, 7)
    with pytest.raises(AssertionError):
        index.append(1000 + RELATIVE_OFFSET_MAX + 1, 8)


def test_the_first_entry_from_a_position_is_that_of_the_first_batch_that_starts_there_or_behind_it(
    disk: RealDisk, path: Path
) -> None:
    index = offset_index(disk, path, (1010, 100), (1020, 200))
    assert index.first_from(100) == OffsetPosition(1010, 100)
    assert index.first_from(101) == OffsetPosition(1020, 200)
    assert index.first_from(201) is None


def test_truncation_drops_the_entries_from_an_offset_on_and_the_file_follows(disk: RealDisk, path: Path) -> None:
    index = offset_index(disk, path, (1010, 100), (1020, 200), (1030, 300))
    index.write_pending()
    index.truncate_to(1020)
    index.append(1025, 250)
    index.seal()
    assert [tuple(entry) for entry in index.entries()] == [(1010, 100), (1025, 250)]
    assert path.stat().st_size == 16


def test_pending_entries_are_added_to_those_on_disk(disk: RealDisk, path: Path) -> None:
    offset_index(disk, path, (1010, 100)).seal()
    index = OffsetIndex(disk, str(path), 1000)
    index.activate()
    index.append(1020, 200)
    index.write_pending(sync=True)
    assert path.read_bytes().hex() == "0000000a0000006400000014000000c8"


def test_an_index_that_starts_anew_forgets_what_is_on_disk(disk: RealDisk, path: Path) -> None:
    offset_index(disk, path, (1010, 100), (1020, 200)).seal()
    index = OffsetIndex(disk, str(path), 1000)
    index.reset()
    index.append(1005, 50)
    index.seal()
    assert path.read_bytes().hex() == "0000000500000032"


def test_a_cut_index_is_reported_not_read(disk: RealDisk, path: Path) -> None:
    path.write_bytes(b"\0" * 12)
    with pytest.raises(CorruptFileError, match="12 bytes are no whole number of 8-byte entries"):
        OffsetIndex(disk, str(path), 0).lookup(5)


def test_an_empty_sealed_index_has_a_file_because_kafka_wants_one(disk: RealDisk, path: Path) -> None:
    index = OffsetIndex(disk, str(path), 0)
    index.reset()
    index.seal()
    assert path.read_bytes() == b""


# -- time index --------------------------------------------------------------------------------------------------------


def time_index(disk: RealDisk, path: Path, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(disk, str(path), 1000)
    index.reset()
    for timestamp, offset in entries:
        index.append_if_later(timestamp, offset)
    return index


def test_a_time_entry_has_kafkas_twelve_bytes(disk: RealDisk, path: Path) -> None:
    time_index(disk, path, (T, 1042)).seal()
    assert path.read_bytes().hex() == "0000018bcfe568000000002a"


def test_a_time_lookup_finds_the_last_entry_at_or_before_the_moment(disk: RealDisk, path: Path) -> None:
    index = time_index(disk, path, (T, 1010), (T + 10, 1020))
    assert index.lookup(T - 1) == TimestampOffset(-1, 1000)
    assert index.lookup(T) == TimestampOffset(T, 1010)
    assert index.lookup(T + 9) == TimestampOffset(T, 1010)
    assert index.lookup(T + 10) == index.lookup(T + 99) == index.last() == TimestampOffset(T + 10, 1020)


def test_a_time_index_takes_only_later_timestamps(disk: RealDisk, path: Path) -> None:
    index = time_index(disk, path, (T, 1010), (T, 1020), (T - 5, 1030), (T + 1, 1040))
    assert list(index.entries()) == [TimestampOffset(T, 1010), TimestampOffset(T + 1, 1040)]


def test_records_without_a_timestamp_leave_the_time_index_empty(disk: RealDisk, path: Path) -> None:
    assert time_index(disk, path, (-1, 1000)).entry_count == 0


def test_time_entries_are_truncated_by_offset(disk: RealDisk, path: Path) -> None:
    index = time_index(disk, path, (T, 1010), (T + 10, 1020))
    index.truncate_to(1020)
    assert index.last() == TimestampOffset(T, 1010)
    index.truncate_to(1010)
    assert index.entry_count == 0


# -- transaction index -------------------------------------------------------------------------------------------------

ABORTED = AbortedTransaction(producer_id=4000, first_offset=10, last_offset=11, last_stable_offset=10)


def test_an_aborted_transaction_has_kafkas_thirty_four_bytes(disk: RealDisk, path: Path) -> None:
    index = TransactionIndex(disk, str(path))
    index.append(ABORTED)
    index.write_pending()
    assert path.read_bytes().hex() == ("00000000000000000fa0000000000000000a000000000000000b000000000000000a")
    assert list(TransactionIndex(disk, str(path)).entries()) == [ABORTED]


def test_a_segment_without_aborted_transactions_has_no_transaction_index(disk: RealDisk, path: Path) -> None:
    index = TransactionIndex(disk, str(path))
    assert list(index.entries()) == []
    index.write_pending(sync=True)
    assert not path.exists()


def test_aborted_transactions_are_added_to_those_on_disk(disk: RealDisk, path: Path) -> None:
    second = AbortedTransaction(4001, 12, 15, 16)
    first_life = TransactionIndex(disk, str(path))
    first_life.append(ABORTED)
    first_life.write_pending()
    second_life = TransactionIndex(disk, str(path))
    second_life.append(second)
    second_life.write_pending(sync=True)
    assert path.stat().st_size == 68
    assert list(TransactionIndex(disk, str(path)).entries()) == [ABORTED, second]


def test_truncation_drops_the_transactions_that_ended_at_or_past_the_offset(disk: RealDisk, path: Path) -> None:
    index = TransactionIndex(disk, str(path))
    index.append(ABORTED)
    index.append(AbortedTransaction(4001, 12, 15, 16))
    index.write_pending()
    index.truncate_to(15)
    index.write_pending()
    assert list(TransactionIndex(disk, str(path)).entries()) == [ABORTED]
    index.truncate_to(11)
    index.write_pending()
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("00" * 33, "no whole number"),
        ("0001" + "00" * 32, "unknown version 1"),
        ("0000" + "00" * 8 + "000000000000000b" + "000000000000000a" + "00" * 8, "ends before it begins"),
    ],
)
def test_a_damaged_transaction_index_is_reported_not_read(
    disk: RealDisk, path: Path, content: str, complaint: str
) -> None:
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptFileError, match=complaint):
        list(TransactionIndex(disk, str(path)).entries())


def test_transactions_out_of_the_order_of_their_markers_are_reported(disk: RealDisk, path: Path) -> None:
    index = TransactionIndex(disk, str(path))
    index.append(AbortedTransaction(1, 0, 20, 0))
    index.append(AbortedTransaction(2, 0, 19, 0))
    index.write_pending()
    with pytest.raises(CorruptFileError, match="an entry that ends before the one in front of it"):
        list(TransactionIndex(disk, str(path)).entries())
