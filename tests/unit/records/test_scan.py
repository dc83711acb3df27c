import mmap

import pytest

from ottla.errors import RecordsError
from ottla.records import batch
from ottla.records.layout import Compression, ScanEnd

pytestmark = pytest.mark.usefixtures("core")


def log_of(count: int) -> bytes:
    return b"".join(
        batch.build(None, [b"v" * index], index, base_offset=index, compression=Compression(index % 5))
        for index in range(count)
    )


def test_a_row_of_batches_is_walked_to_its_end():
    data = log_of(20)
    found = batch.scan(data)
    assert [header.base_offset for header in found.headers] == list(range(20))
    assert (found.end_position, found.ended, found.problem) == (len(data), ScanEnd.END, None)
    assert [batch.read_header(data, position) for position in found.positions] == found.headers


def test_nothing_is_a_whole_scan():
    assert batch.scan(b"") == ([], 0, ScanEnd.END, None)


def test_a_window_of_the_data_is_scanned():
    data = log_of(3)
    first, second, _ = batch.scan(data).headers
    found = batch.scan(data, first.size_bytes, first.size_bytes + second.size_bytes)
    assert found.headers == [second]
    assert found.positions == [first.size_bytes]
    assert found.ended is ScanEnd.END


def test_more_batches_than_there_is_room_for_in_a_chunk():
    data = bytes(batch.build(None, [b""], 0)) * 1300
    assert len(batch.scan(data).headers) == 1300


def test_a_limit_of_batches_is_kept_and_said():
    data = log_of(5)
    found = batch.scan(data, batches_max=2)
    assert (len(found.headers), found.ended) == (2, ScanEnd.MORE)
    rest = batch.scan(data, found.end_position, batches_max=3)
    assert (len(rest.headers), rest.ended) == (3, ScanEnd.END)


def test_a_cut_anywhere_in_the_last_batch_is_a_cut_and_no_damage():
    data = log_of(2)
    start = batch.read_header(data).size_bytes
    for size in range(start + 1, len(data)):
        found = batch.scan(data[:size])
        assert (len(found.headers), found.end_position, found.ended) == (1, start, ScanEnd.CUT)
        assert found.is_cut
        assert found.problem is None


def test_a_flipped_bit_ends_the_scan_before_its_batch():
    data = bytearray(log_of(3))
    start = batch.read_header(data).size_bytes
    data[start + 50] ^= 1
    found = batch.scan(data)
    assert (len(found.headers), found.end_position, found.ended) == (1, start, ScanEnd.BAD)
    assert "checksum" in (found.problem or "")
    assert len(batch.scan(data, check_crc=False).headers) == 3


@pytest.mark.parametrize("tail", [bytes(12), bytes(100), b"\xff" * 100], ids=["zeros", "more zeros", "ones"])
def test_what_never_was_a_batch_is_bad(tail):
    data = log_of(1)
    found = batch.scan(data + tail)
    assert (found.end_position, found.ended) == (len(data), ScanEnd.BAD)
    assert found.problem


@pytest.mark.parametrize(("magic", "ended"), [(0, ScanEnd.LEGACY), (1, ScanEnd.LEGACY), (3, ScanEnd.BAD)])
def test_an_old_magic_is_told_apart_from_damage(magic, ended):
    data = bytearray(log_of(2))
    start = batch.read_header(data).size_bytes
    data[start + 16] = magic
    found = batch.scan(data)
    assert (len(found.headers), found.ended) == (1, ended)
    assert found.is_legacy is (ended is ScanEnd.LEGACY)
    assert found.problem


def test_offsets_that_cannot_be_are_bad():
    data = batch.build(None, [b"v"], 0)
    batch.stamp(data, -5, 0)
    assert batch.scan(data).ended is ScanEnd.BAD


@pytest.mark.parametrize(("position", "end"), [(-1, 0), (0, 10_000), (5, 4)])
def test_a_window_outside_the_data_is_refused(position, end):
    with pytest.raises(RecordsError):
        batch.scan(log_of(1), position, end)


def test_a_mapped_file_can_be_closed_after_a_scan():
    data = log_of(3)
    mapped = mmap.mmap(-1, len(data))
    mapped.write(data)
    assert len(batch.scan(mapped).headers) == 3
    mapped.close()
