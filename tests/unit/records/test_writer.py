"""Batches that are filled record by record, on both cores: the same bytes as of records that are encoded together."""

from __future__ import annotations

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import RecordsError
from ottla.hashing import partition_of_key
from ottla.records import batch, reference
from ottla.records.layout import HEADER_BYTES

NOW_MS = 1_700_000_000_123

nullable = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.sampled_from(["", "h", "ü"]), st.none() | st.binary(max_size=5)), max_size=2)
rows = st.lists(st.tuples(nullable, nullable, st.integers(0, 2**50), headers.map(tuple)), min_size=1, max_size=12)


def make_writer(core, limit_bytes=1000, callbacks=None):
    future = type("Future", (core.RecordPlace,), {"__slots__": ()})
    return core.BatchWriter(limit_bytes, future, "the delivery", [] if callbacks is None else callbacks)


def make_open_batches(core, partitions=1, record_bytes_max=10_000, now_ms=NOW_MS):
    made = core.OpenBatches(record_bytes_max, lambda: now_ms * 1_000_000 + 999_999)
    made.resize(partitions)
    return made


def opened(core, batches, partition, limit_bytes=1000, callbacks=None):
    """A batch with a first record, open for others."""
    writer = make_writer(core, limit_bytes, callbacks)
    writer.append(None, b"first", NOW_MS, (), None)
    batches.open(partition, writer)
    return writer


def values_of(writer):
    return decoded(writer).values


def decoded(writer):
    written, count = writer.finish(), writer.record_count
    return batch.decode(batch.wrap(written.records, count, count - 1, written.base_timestamp, written.max_timestamp))


def test_a_record_has_its_place_and_the_batch_its_bytes(core):
    writer = make_writer(core)
    places = [writer.append(b"k", b"v%d" % number, NOW_MS + number, (), None) for number in range(3)]
    assert [(place.delivery, place.index) for place in places] == [("the delivery", number) for number in range(3)]
    assert list(writer.timestamps) == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
    columns = decoded(writer)
    assert columns.values == [b"v0", b"v1", b"v2"]
    assert columns.keys == [b"k"] * 3
    assert list(columns.timestamps) == list(writer.timestamps)


@given(rows)
def test_the_bytes_are_those_of_records_that_are_encoded_together(given_rows):
    native = pytest.importorskip("ottla.records._native")
    keys, values, times, of_headers = zip(*given_rows, strict=True)
    expected = reference.encode_records(keys, values, times, of_headers, None, times[0], HEADER_BYTES)
    for core in (reference, native):
        writer = make_writer(core, 1 << 30)
        for row in given_rows:
            assert writer.append(*row, None) is not None
        assert writer.size_bytes == len(expected)
        assert writer.finish() == (expected, times[0], max(times))


@given(rows, st.integers(HEADER_BYTES, 1000))
def test_both_cores_find_the_same_batches_full(given_rows, limit_bytes):
    native = pytest.importorskip("ottla.records._native")
    ours, theirs = make_writer(native, limit_bytes), make_writer(reference, limit_bytes)
    for row in given_rows:
        assert (ours.append(*row, None) is None) == (theirs.append(*row, None) is None)
        assert ours.size_bytes == theirs.size_bytes
    assert ours.record_count == 1 or ours.size_bytes <= limit_bytes
    assert ours.finish() == theirs.finish()


def test_the_first_record_fits_always_and_the_next_only_into_the_limit(core):
    writer = make_writer(core, 100)
    assert writer.append(None, bytes(500), NOW_MS, (), None) is not None
    assert writer.append(None, b"", NOW_MS, (), None) is None
    assert writer.record_count == 1


def test_a_closed_batch_takes_nothing(core):
    writer = make_writer(core)
    writer.append(None, b"v", NOW_MS, (), None)
    writer.close()
    assert writer.is_closed
    assert writer.append(None, b"w", NOW_MS, (), None) is None
    assert writer.append_below(None, b"w", NOW_MS, None) is None
    assert values_of(writer) == [b"v"]


def test_what_is_finished_stays_as_it_is_while_somebody_looks_at_it(core):
    writer = make_writer(core)
    writer.append(None, b"v", NOW_MS, (), None)
    with memoryview(writer.finish().records) as view:
        assert bytes(view) == bytes(writer.finish().records)


def test_a_batch_without_records_is_a_header(core):
    assert make_writer(core).finish() == (bytearray(HEADER_BYTES), 0, 0)


def test_callbacks_have_the_number_of_their_record(core):
    callbacks: list[object] = []
    writer = make_writer(core, callbacks=callbacks)
    writer.append(None, b"v", NOW_MS, (), None)
    writer.append(None, b"v", NOW_MS, (), print)
    writer.append(None, bytes(2000), NOW_MS, (), len)
    assert callbacks == [(1, print)]


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_a_time_that_no_record_can_have_is_refused_and_changes_nothing(core, timestamp):
    writer = make_writer(core)
    with pytest.raises(RecordsError):
        writer.append(None, b"v", timestamp, (), None)
    assert writer.record_count == 0
    writer.append(None, b"v", -(2**63), (), None)
    with pytest.raises(RecordsError):
        writer.append(None, b"v", 2**63 - 1, (), None)
    assert values_of(writer) == [b"v"]


def test_places_are_record_places(core):
    with pytest.raises(TypeError):
        core.BatchWriter(100, dict, None, [])


def test_a_key_goes_where_every_client_sends_it(core):
    batches = make_open_batches(core, partitions=5)
    writers = [opened(core, batches, number, 100_000) for number in range(5)]
    keys = [b"key %d" % number for number in range(200)]
    for key in keys:
        assert batches.append(key, key, None, None, None) is not None
    for number, writer in enumerate(writers):
        assert values_of(writer)[1:] == [key for key in keys if partition_of_key(key, 5) == number]


def test_a_record_without_a_time_has_that_of_the_clock(core):
    batches = make_open_batches(core)
    writer = opened(core, batches, 0)
    batches.append(None, b"v", 0, None, None)
    batches.append(None, b"v", 0, 7, None)
    assert list(decoded(writer).timestamps)[1:] == [NOW_MS, 7]


def test_records_without_a_key_stick_to_a_partition_for_so_many_bytes(core):
    batches = make_open_batches(core, partitions=2)
    opened(core, batches, 1)
    assert batches.append(None, b"v" * 10, None, None, None) is None
    batches.stick_to(1, 60)
    assert batches.append(None, b"v" * 10, None, None, None) is not None
    assert batches.append(b"k", b"v" * 10, 1, None, None) is not None  # has chosen: it does not count
    assert batches.sticky_bytes == 34
    assert batches.append(None, b"v" * 10, None, None, None) is not None
    assert batches.append(None, b"v" * 10, None, None, None) is None
    assert batches.sticky_bytes == 68
    batches.stick_to(-1, 100)
    assert batches.sticky_bytes == 0
    assert batches.append(None, b"v" * 10, None, None, None) is None


@pytest.mark.parametrize(
    "record",
    [
        (None, "text", 0, None),
        ("text", b"v", 0, None),
        (None, bytearray(b"v"), 0, None),
        (None, b"v" * 500, 0, None),  # larger than records may be
        (None, b"v", 1, None),  # there is no open batch
        (None, b"v", 2, None),
        (None, b"v", -1, None),
        (None, b"v", 2**70, None),
        (None, b"v", True, None),
        (None, b"v", 0, -1),
        (None, b"v", 0, 2**63),
        (None, b"v", 0, 1.5),
        (None, b"v", None, None),  # sticks to nothing
    ],
)
def test_what_is_not_plain_goes_the_long_way(core, record):
    batches = make_open_batches(core, partitions=2, record_bytes_max=500)
    writer = opened(core, batches, 0, 10_000)
    assert batches.append(*record, None) is None
    assert writer.record_count == 1


def test_a_record_that_would_fill_its_batch_goes_the_long_way(core):
    batches = make_open_batches(core)
    size = opened(core, batches, 0).size_bytes
    assert batches.append(None, b"first", 0, NOW_MS, None) is not None
    after = 2 * size - HEADER_BYTES
    for limit, fits in ((after, False), (after + 1, True)):
        opened(core, batches, 0, limit)
        assert (batches.append(None, b"first", 0, NOW_MS, None) is not None) == fits


def test_nothing_fits_where_there_are_no_partitions_or_the_batch_is_closed(core):
    batches = core.OpenBatches(1000, lambda: 0)
    assert batches.append(None, b"v", 0, None, None) is None
    batches.resize(2)
    writer = opened(core, batches, 1)
    writer.close()
    assert batches.append(None, b"v", 1, None, None) is None
    batches.close(1)
    batches.close(7)
    assert batches.append(None, b"v", 1, None, None) is None
    batches.resize(3)
    opened(core, batches, 2)
    assert batches.append(None, b"v", 2, None, None) is not None
    with pytest.raises(IndexError):
        batches.open(3, writer)
    with pytest.raises(ValueError, match="0 partitions"):
        batches.resize(0)


def test_threads_that_append_while_the_batch_is_closed_lose_nothing():
    """Whoever got a place is in the batch, under that number; everybody else is told so."""
    core = pytest.importorskip("ottla.records._native")
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            callbacks: list[tuple[int, object]] = []
            batches = make_open_batches(core)
            writer = opened(core, batches, 0, 1 << 20, callbacks)
            placed: dict[int, bytes] = {}

            def send(name: int, batches=batches, placed=placed) -> None:
                for number in range(200):
                    value = b"%d %d" % (name, number)
                    place = batches.append(None, value, 0, None, print)
                    if place is None:
                        return
                    placed[place.index] = value

            threads = [threading.Thread(target=send, args=(name,)) for name in range(3)]
            for thread in threads:
                thread.start()
            while writer.record_count < 50:
                pass
            writer.close()
            count = writer.record_count
            for thread in threads:
                thread.join()
            assert writer.record_count == count
            assert [placed[number] for number in range(1, count)] == values_of(writer)[1:]
            assert sorted(number for number, _ in callbacks) == list(range(1, count))
    finally:
        sys.setswitchinterval(interval_s)
