"""The short way of a batch into the log: taken for plain batches only, and then as the general way would."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import batch, reference
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
