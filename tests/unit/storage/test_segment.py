import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ottla.disk import RealDisk
from ottla.errors import CorruptFileError, StorageError
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.storage.index import OffsetPosition, TimestampOffset
from ottla.storage.segment import DELETED_SUFFIX, RECENT_BATCHES_MAX, Segment, file_name

NOW = 1_700_000_000_000
BASE = 100


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


def new(directory: str, *, index_interval_bytes: int = 0, base_offset: int = BASE) -> Segment:
    return Segment.create(RealDisk(), directory, base_offset, index_interval_bytes=index_interval_bytes, created_ms=NOW)


def reopened(segment: Segment, *, index_interval_bytes: int = 0) -> Segment:
    return Segment(
        RealDisk(),
        segment.directory,
        segment.base_offset,
        size_bytes=segment.size_bytes,
        index_interval_bytes=index_interval_bytes,
    )


def add(segment: Segment, offset: int, *values: bytes, at: int | list[int] = NOW, **options: Any) -> int:
    """Adds a batch and returns where it stands."""
    data = batch.build(None, values or (b"v",), at, base_offset=offset, **options)
    position = segment.write(data)
    segment.note_headed(batch.read_header(data), position)
    return position


def recover(segment: Segment) -> Any:
    return segment.recover(lambda header, data, position: None)


def flip(segment: Segment, position: int) -> None:
    byte = segment.file.read(position, 1)[0]
    segment.file.write(position, bytes([byte ^ 0xFF]))


# -- names -------------------------------------------------------------------------------------------------------------


def test_files_are_named_by_twenty_digits_of_the_base_offset() -> None:
    assert file_name(1042, ".log") == "00000000000000001042.log"
    assert file_name(2**63 - 1, ".index") == "09223372036854775807.index"


def test_renaming_takes_all_files_of_the_segment_along(directory: str) -> None:
    segment = new(directory)
    add(segment, 100)
    segment.seal()
    segment.change_suffix(DELETED_SUFFIX)
    assert sorted(path.name for path in Path(directory).iterdir()) == [
        "00000000000000000100.index.deleted",
        "00000000000000000100.log.deleted",
        "00000000000000000100.timeindex.deleted",
    ]
    found = segment.find(100)
    assert found is not None
    segment.change_suffix("")
    assert (Path(directory) / "00000000000000000100.log").exists()
    segment.unlink()
    assert list(Path(directory).iterdir()) == []


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_found_by_any_offset_in_it(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, b"a", b"b")
    second = add(segment, 102, b"c", b"d", b"e")
    for offset in (102, 103, 104):
        found = segment.find(offset)
        assert found is not None
        assert (found.position, found.header.base_offset) == (second, 102)
    assert segment.find(105) is None


def test_an_offset_in_a_gap_finds_the_next_batch(directory: str) -> None:
    segment = new(directory)
    add(segment, 100)
    add(segment, 110)
    found = segment.find(105)
    assert found is not None
    assert found.header.base_offset == 110


def test_every_batch_is_found_far_behind_the_tail_and_without_any_memory(directory: str) -> None:
    segment = new(directory, index_interval_bytes=500)
    positions = {100 + number: add(segment, 100 + number) for number in range(3 * RECENT_BATCHES_MAX)}
    segment.seal()
    cold = reopened(segment)
    for offset, position in positions.items():
        found = cold.find(offset)
        assert found is not None
        assert found.position == position


def test_an_index_entry_names_the_last_offset_of_the_batch_at_its_position(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, b"a", b"b")
    second = add(segment, 102, b"c", b"d", b"e")
    assert list(segment.offset_index.entries()) == [OffsetPosition(104, second)]


@pytest.mark.parametrize(("extra", "indexed"), [(0, 1), (-1, 2)])
def test_an_entry_is_made_once_more_than_the_interval_was_written(directory: str, extra: int, indexed: int) -> None:
    size = len(batch.build(None, [b"v"], NOW))
    segment = new(directory, index_interval_bytes=2 * size + extra)
    for number in range(6):
        add(segment, 100 + number)
    # The entry comes with the batch behind the interval: the fourth for "more than two", the third and fifth else.
    assert segment.offset_index.entry_count == indexed


def test_the_first_batch_is_never_indexed(directory: str) -> None:
    segment = new(directory, index_interval_bytes=0)
    add(segment, 100)
    assert segment.offset_index.entry_count == 0
    assert segment.time_index.entry_count == 0


def test_a_wrong_index_is_noticed_and_made_anew(directory: str) -> None:
    segment = new(directory)
    positions = [add(segment, 100 + number) for number in range(5)]
    segment.seal()
    Path(segment.path(".index")).write_bytes(b"\0\0\0\1\0\0\0\7" * 3)  # into the middle of the first batch
    cold = reopened(segment)
    found = cold.find(104)
    assert found is not None
    assert found.position == positions[4]
    assert [entry.position for entry in cold.offset_index.entries()] == positions[1:]


def test_a_cut_index_is_made_anew(directory: str) -> None:
    segment = new(directory)
    positions = [add(segment, 100 + number) for number in range(5)]
    segment.seal()
    path = Path(segment.path(".index"))
    path.write_bytes(path.read_bytes()[:-3])
    found = reopened(segment).find(103)
    assert found is not None
    assert found.position == positions[3]


# -- finding by time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("index_interval_bytes", [0, 4096])
def test_a_record_is_found_by_its_time_inside_of_its_batch(
    directory: str, compression: Compression, index_interval_bytes: int
) -> None:
    segment = new(directory, index_interval_bytes=index_interval_bytes)
    add(segment, 100, b"a", b"b", at=[NOW, NOW + 10], compression=compression)
    add(segment, 102, b"c", b"d", b"e", at=[NOW + 5, NOW + 20, NOW + 30], compression=compression)
    expected = {
        NOW - 1: (NOW, 100),
        NOW: (NOW, 100),
        NOW + 1: (NOW + 10, 101),
        NOW + 10: (NOW + 10, 101),
        NOW + 11: (NOW + 20, 103),
        NOW + 30: (NOW + 30, 104),
    }
    for subject in (segment, _sealed(segment)):
        found = {timestamp: subject.first_at_or_after(timestamp, BASE) for timestamp in expected}
        assert found == expected
        assert subject.first_at_or_after(NOW + 31, BASE) is None


def _sealed(segment: Segment) -> Segment:
    segment.seal()
    return reopened(segment)


def test_the_search_by_time_begins_at_the_start_offset(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, b"a", b"b", b"c", at=[NOW, NOW, NOW])
    assert segment.first_at_or_after(NOW, 101) == TimestampOffset(NOW, 101)
    assert segment.first_at_or_after(NOW, 103) is None


def test_an_older_record_behind_a_newer_one_is_not_the_first_for_its_time(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, at=NOW + 50)
    add(segment, 101, at=NOW)
    add(segment, 102, at=NOW + 60)
    assert segment.first_at_or_after(NOW, BASE) == TimestampOffset(NOW + 50, 100)
    assert segment.first_at_or_after(NOW + 51, BASE) == TimestampOffset(NOW + 60, 102)


def test_the_largest_timestamp_is_known_with_the_first_batch_that_has_it(directory: str) -> None:
    segment = new(directory)
    assert segment.max_timestamp == TimestampOffset(-1, BASE)
    add(segment, 100, at=NOW)
    add(segment, 101, b"a", b"b", at=NOW + 5)
    add(segment, 103, at=NOW + 5)
    assert segment.max_timestamp == TimestampOffset(NOW + 5, 102)
    segment.seal()
    assert reopened(segment).max_timestamp == TimestampOffset(NOW + 5, 102)


def test_a_wrong_time_index_is_noticed_and_made_anew(directory: str) -> None:
    segment = new(directory)
    for number in range(5):
        add(segment, 100 + number, at=NOW + number)
    segment.seal()
    Path(segment.path(".timeindex")).write_bytes(NOW.to_bytes(8, "big") + (4).to_bytes(4, "big"))
    assert reopened(segment).first_at_or_after(NOW + 2, BASE) == TimestampOffset(NOW + 2, 102)


# -- growing and shrinking ---------------------------------------------------------------------------------------------


def test_a_reopened_segment_goes_on_indexing_where_it_stopped(directory: str) -> None:
    size = len(batch.build(None, [b"v"], NOW))
    whole = new(directory, index_interval_bytes=2 * size)
    for number in range(12):
        add(whole, 100 + number, at=NOW + number)
    expected = list(whole.offset_index.entries())
    whole.unlink()

    for stop in range(1, 12):
        first_life = new(directory, index_interval_bytes=2 * size)
        for number in range(stop):
            add(first_life, 100 + number, at=NOW + number)
        first_life.write_indexes(sync=False)
        second_life = reopened(first_life, index_interval_bytes=2 * size)
        assert second_life.become_active() == 100 + stop
        for number in range(stop, 12):
            add(second_life, 100 + number, at=NOW + number)
        assert list(second_life.offset_index.entries()) == expected
        assert second_life.max_timestamp == TimestampOffset(NOW + 11, 111)
        second_life.unlink()


def test_truncation_cuts_file_and_indexes_before_the_batch_of_the_offset(directory: str) -> None:
    segment = new(directory)
    for number in range(4):
        add(segment, 100 + 2 * number, b"a", b"b", at=NOW + number)
    position = segment.find(104).position  # type: ignore[union-attr]
    segment.truncate_to(105)
    assert segment.become_active() == 104
    assert segment.size_bytes == segment.file.size() == position
    assert [entry.offset for entry in segment.offset_index.entries()] == [103]
    assert segment.max_timestamp == TimestampOffset(NOW + 1, 103)
    assert segment.find(104) is None


def test_a_failed_write_leaves_the_segment_as_it_was(directory: str) -> None:
    class HalfWritten:
        """A file that takes half of the next write and then fails."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, position: int, data: Any) -> None:
            self._file.write(position, memoryview(data)[: len(data) // 2])
            raise StorageError(self._file.path, "cannot write: no more")

    segment = new(directory)
    add(segment, 100)
    size_bytes, whole = segment.size_bytes, segment.file
    segment._file = HalfWritten(whole)  # type: ignore[assignment]
    with pytest.raises(StorageError, match="no more"):
        add(segment, 101)
    segment._file = whole
    assert segment.size_bytes == whole.size() == size_bytes
    assert add(segment, 101) == size_bytes


def test_a_slice_outlives_the_deletion_of_its_segment(directory: str) -> None:
    segment = new(directory)
    add(segment, 100)
    expected = segment.file.read(0, segment.size_bytes)
    slice_ = segment.slice(0, segment.size_bytes)
    segment.seal()
    segment.change_suffix(DELETED_SUFFIX)
    segment.unlink()
    del segment
    assert slice_.read() == expected


def test_an_idle_segment_lets_its_file_go_and_takes_it_again(directory: str) -> None:
    segment = new(directory)
    add(segment, 100)
    segment.seal()
    segment.release_if_idle()  # used since it was made
    assert segment._file is not None
    segment.release_if_idle()
    assert segment._file is None
    assert segment.find(100) is not None
    segment.release_if_idle()
    assert segment._file is not None


# -- recovery ----------------------------------------------------------------------------------------------------------


def test_recovery_of_a_sound_segment_finds_nothing_wrong_and_the_same_indexes(directory: str) -> None:
    segment = new(directory)
    for number in range(5):
        add(segment, 100 + number, at=NOW + number)
    offsets, times = list(segment.offset_index.entries()), list(segment.time_index.entries())
    again = reopened(segment)
    assert recover(again) == (segment.size_bytes, 0, 105, None)
    assert list(again.offset_index.entries()) == offsets
    assert list(again.time_index.entries()) == times
    assert again.max_timestamp == TimestampOffset(NOW + 4, 104)


def test_recovery_cuts_before_the_first_batch_that_does_not_hold(directory: str) -> None:
    segment = new(directory)
    positions = [add(segment, 100 + number) for number in range(5)]
    flip(segment, positions[3] + 65)
    size_bytes = segment.size_bytes
    again = reopened(segment)
    found = recover(again)
    assert (found.valid_bytes, found.dropped_bytes, found.end_offset) == (positions[3], size_bytes - positions[3], 103)
    assert "checksum" in found.problem
    assert again.file.size() == again.size_bytes == positions[3]


@pytest.mark.parametrize("cut_bytes", [1, 30, 60, 61, 68])
def test_recovery_cuts_a_batch_that_was_not_written_whole(directory: str, cut_bytes: int) -> None:
    segment = new(directory)
    add(segment, 100)
    last = add(segment, 101)
    segment.file.truncate(last + cut_bytes)
    again = reopened(segment)
    found = recover(again)
    assert (found.valid_bytes, found.dropped_bytes, found.end_offset) == (last, cut_bytes, 101)
    assert found.problem is not None


def test_recovery_cuts_zeros_behind_the_last_batch(directory: str) -> None:
    segment = new(directory)
    add(segment, 100)
    size_bytes = segment.size_bytes
    segment.file.truncate(size_bytes + 4096)
    found = recover(reopened(segment))
    assert (found.valid_bytes, found.dropped_bytes) == (size_bytes, 4096)


def test_recovery_does_not_take_offsets_that_go_back(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, b"a", b"b")
    position = add(segment, 101)
    found = recover(reopened(segment))
    assert found.valid_bytes == position
    assert found.problem == "offset 101 comes after 101"


def test_recovery_shows_every_batch_to_the_visitor_in_its_chunk(directory: str) -> None:
    segment = new(directory)
    add(segment, 100, b"a", b"b")
    add(segment, 102, b"c")
    seen = []
    reopened(segment).recover(
        lambda header, data, position: seen.append((header.base_offset, batch.decode(data, position).values))
    )
    assert seen == [(100, [b"a", b"b"]), (102, [b"c"])]


def test_recovery_reads_a_batch_that_is_larger_than_its_chunk(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.segment.RECOVERY_BYTES", 100)
    segment = new(directory)
    add(segment, 100)
    add(segment, 101, b"x" * 1000)
    add(segment, 102)
    assert recover(reopened(segment)) == (segment.size_bytes, 0, 103, None)


def test_a_file_of_an_old_format_is_refused_not_cut(directory: str) -> None:
    segment = new(directory)
    message = struct.pack(">bbqii", 1, 0, NOW, -1, 1) + b"v"
    data = struct.pack(">qiI", 100, 4 + len(message), zlib.crc32(message)) + message
    segment.write(data)
    again = reopened(segment)
    with pytest.raises(CorruptFileError, match="formats 0 and 1 are not read from disk"):
        recover(again)
    assert again.file.size() == len(data)


def test_a_torn_batch_is_not_taken_for_one_of_an_old_format(directory: str) -> None:
    segment = new(directory)
    data = batch.build(None, [b"v"], NOW, base_offset=100)
    data[16] = 0  # the sector of the magic was not written
    segment.write(data)
    assert recover(reopened(segment)).valid_bytes == 0


# -- the tail ----------------------------------------------------------------------------------------------------------


def test_what_was_added_lately_is_found_without_a_look_at_the_file(directory: str) -> None:
    segment = new(directory)
    positions = [add(segment, BASE + number, b"%d" % number) for number in range(3)]
    for number, position in enumerate(positions):
        tail = segment.tail_from(BASE + number, 10_000)
        assert tail is not None
        assert (tail.position, tail.size_bytes) == (position, segment.size_bytes - position)
        assert tail.read() == segment.file.read(position, segment.size_bytes - position)
    assert segment.tail_from(BASE + 3, 10_000) is None, "nothing is there yet"
    assert segment.tail_from(BASE + 1, segment.size_bytes - positions[1] - 1) is None, "it is too much"


def test_the_tail_that_a_reader_has_seen_is_that_of_the_file_after_a_truncation_and_another_append(
    directory: str,
) -> None:
    segment = new(directory)
    add(segment, BASE)
    cut = add(segment, BASE + 1, b"cut off", b"and more")
    assert segment.find(BASE + 1) == segment.find(BASE + 1)
    segment.truncate_to(BASE + 1)
    assert segment.tail_from(BASE + 1, 10_000) is None
    assert segment.find(BASE + 1) is None
    assert add(segment, BASE + 1, b"new") == cut
    found = segment.find(BASE + 1)
    assert found is not None
    assert found.header.last_offset == BASE + 1
    tail = segment.tail_from(BASE + 1, 10_000)
    assert tail is not None
    assert batch.decode(tail.read()).values == [b"new"]


def test_a_damaged_tail_is_not_read_past_the_checks(directory: str) -> None:
    segment = new(directory)
    add(segment, BASE)
    segment.damaged_from = 0
    assert segment.tail_from(BASE, 10_000) is None
