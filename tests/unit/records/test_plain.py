"""The short ways of batches into the log: taken for plain batches only, and then as the general way would."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import batch, control, reference
from ottla.records.layout import Compression

NOW = 1_700_000_000_000
ROOM: dict[str, Any] = {"size_max": 1_000_000, "timestamp_max": NOW + 1000, "needs_keys": False}


def built(**options: Any) -> bytearray:
    return batch.build([b"k", None], [b"value", b"other"], NOW, **options)


def test_a_plain_batch_gets_its_place(core: ModuleType) -> None:
    data = built()
    assert core.stamp_plain(data, 77, 5, **ROOM) == (2, NOW, None)
    expected = built()
    batch.stamp(expected, 77, 5)
    assert data == expected


def test_a_batch_of_a_numbering_producer_comes_with_its_stamped_header(core: ModuleType) -> None:
    data = built(producer_id=9, producer_epoch=1, base_sequence=4)
    count, timestamp, header = core.stamp_plain(data, 77, 5, **ROOM)
    assert (count, timestamp) == (2, NOW)
    assert header == batch.read_header(data)
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (77, 5, 4)


@pytest.mark.parametrize(
    ("data", "room"),
    [
        (bytes(built()), {}),
        (built(), {"size_max": len(built()) - 1}),
        (built(), {"timestamp_max": NOW - 1}),
        (built(), {"needs_keys": True}),
        (built(compression=Compression.GZIP), {}),
        (built(producer_id=9, producer_epoch=1, base_sequence=4, is_transactional=True), {}),
        (built(base_offset=1), {}),
        (built() + built(), {}),
        (built()[:-1], {}),
        (bytearray(), {}),
        (bytearray(61), {}),
    ],
    ids=[
        "not writable",
        "too large",
        "too late",
        "without a key",
        "compressed",
        "transactional",
        "with a place",
        "two batches",
        "cut",
        "nothing",
        "zeros",
    ],
)
def test_what_is_not_plain_is_left_as_it_is(core: ModuleType, data: bytearray, room: dict[str, Any]) -> None:
    before = bytes(data)
    assert core.stamp_plain(data, 77, 5, **{**ROOM, **room}) is None
    assert data == before


@given(st.integers(0, len(built()) - 1), st.integers(1, 255))
def test_a_damaged_batch_is_not_plain(position: int, change: int) -> None:
    if 12 <= position < 16:
        return  # the leader epoch is not the producer's to say, and not covered by the checksum
    native = pytest.importorskip("ottla.records._native")
    for core in (reference, native):
        data = built()
        data[position] ^= change
        assert core.stamp_plain(data, 77, 5, **ROOM) is None


def test_wrong_largest_timestamp_is_not_plain(core: ModuleType) -> None:
    data = built()
    batch.stamp_max_timestamp(data, NOW - 5)
    assert core.stamp_plain(data, 77, 5, **ROOM) is None


# -- what a follower fetched -------------------------------------------------------------------------------------------

MARKER = control.EndTransactionMarker(commit=True, coordinator_epoch=0)
RARELY: Any = {"end_offset": 0, "bytes_since_index": 0, "index_interval_bytes": 4096}


def fetched(base_offset: int, timestamp: int = NOW, *, epoch: int = 3, **options: Any) -> bytes:
    """A batch of two records as its leader stored it."""
    data = batch.build(None, [b"one", b"two"], timestamp, base_offset=base_offset, leader_epoch=epoch, **options)
    return bytes(data)


SIZE = len(fetched(0))


def test_batches_of_a_leader_make_a_run(core: ModuleType) -> None:
    data = fetched(4, NOW) + fetched(6, NOW + 9) + fetched(10, NOW + 9) + fetched(12, NOW - 5)
    found = core.walk_run(data, **RARELY)
    assert found == (4 * SIZE, 4, 13, 3, NOW, NOW + 9, 7, 4 * SIZE, (), ())


def test_a_run_ends_with_its_last_whole_batch(core: ModuleType) -> None:
    whole = fetched(0) + fetched(2)
    for size in range(2 * SIZE, 3 * SIZE):
        assert core.walk_run((whole + fetched(4))[:size], **RARELY) == core.walk_run(whole, **RARELY)


def test_batches_of_producers_come_with_their_headers(core: ModuleType) -> None:
    numbered = fetched(2, producer_id=9, producer_epoch=1, base_sequence=4)
    *_, of_producers = core.walk_run(fetched(0) + numbered + fetched(4), **RARELY)
    assert of_producers == [batch.read_header(numbered)]


def test_a_batch_is_indexed_behind_every_interval(core: ModuleType) -> None:
    data = b"".join(fetched(2 * number, NOW - abs(3 - number)) for number in range(7))
    *_, since, entries, _ = core.walk_run(data, 0, SIZE, 2 * SIZE)
    # More than two sizes since the last one: behind one size before the run and two in it, and three later.
    assert entries == [(5, 2 * SIZE, NOW - 1, 5), (11, 5 * SIZE, NOW, 7)]
    assert since == 2 * SIZE
    *_, since, entries, _ = core.walk_run(data, 0, 0, 0)
    assert ([at for _, at, _, _ in entries], since) == ([number * SIZE for number in range(1, 7)], SIZE)


def test_more_batches_than_there_is_room_for_in_a_chunk_make_a_run(core: ModuleType) -> None:
    data = b"".join(fetched(2 * number, NOW + number) for number in range(1300))
    assert core.walk_run(data, **RARELY)[:7] == (1300 * SIZE, 0, 2599, 3, NOW, NOW + 1299, 2599)


@pytest.mark.parametrize(
    ("data", "end_offset"),
    [
        (b"", 0),
        (fetched(0)[:-1], 0),
        (fetched(0), 1),
        (fetched(0) + fetched(1), 0),
        (fetched(0) + fetched(2, epoch=4), 0),
        (fetched(0) + bytes(control.build_marker(9, 0, MARKER, NOW, base_offset=2, leader_epoch=3)), 0),
        (fetched(0) + bytes(61), 0),
        (fetched(0) + fetched(2)[:-1] + b"x" + fetched(4), 0),
        (fetched(0) + b"".join((fetched(2)[:16], b"\1", fetched(2)[17:])), 0),
    ],
    ids=[
        "nothing",
        "no whole batch",
        "before the end",
        "offsets do not rise",
        "another epoch",
        "a marker",
        "zeros",
        "a wrong checksum",
        "an old magic",
    ],
)
def test_what_is_unusual_is_no_run(core: ModuleType, data: bytes, end_offset: int) -> None:
    assert core.walk_run(data, end_offset, 0, 4096) is None
