"""The compiled core does what the reference does, on sound, damaged and random input."""

import gc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import RecordsError
from ottla.records import reference
from ottla.records.layout import BatchHeader

native = pytest.importorskip("ottla.records._native")

nullable = st.none() | st.binary(max_size=200) | st.sampled_from([b"a", b"b", b""])
header_lists = st.lists(
    st.tuples(st.sampled_from(["", "h", "ü", "\udcff"]), st.none() | st.binary(max_size=5)), max_size=3
)
timestamps = st.integers(-1, 2**41) | st.integers(-(2**63), 2**63 - 1)
rows = st.lists(st.tuples(nullable, nullable, timestamps, header_lists, st.integers(1, 200)), min_size=1, max_size=12)


@st.composite
def sections(draw):
    """An encoded section with its count and base timestamp, whole or damaged."""
    keys, values, times, headers, steps = zip(*draw(rows), strict=True)
    deltas = [sum(steps[:index]) for index in range(len(steps))] if draw(st.booleans()) else None
    base = times[0]
    times = tuple(time if abs(time - base) < 2**62 else base for time in times)
    section = reference.encode_records(keys, values, times, headers, deltas, base, 0)
    count = len(keys)
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        section[draw(st.integers(0, len(section) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 9)) == 0:
        section = section[: draw(st.integers(0, len(section)))]
    if draw(st.integers(0, 9)) == 0:
        count = draw(st.integers(-1, 40))
    return bytes(section), count, base


def outcome(function, *arguments):
    """What a function returns, or how it refuses."""
    try:
        return function(*arguments)
    except RecordsError as error:
        return ("refused", error.code, error.record_index, str(error))


def plain(decoded):
    """Decoded columns with their buffers as bytes."""
    if isinstance(decoded, tuple):
        return tuple(plain(part) for part in decoded)
    if decoded is None or isinstance(decoded, (int, str)):
        return decoded
    return bytes(decoded)


class Named(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple
    leader_epoch: int
    key_size: int
    value_size: int


@given(sections(), st.none() | timestamps, st.integers(0, 2**40), st.integers(-5, 300))
def test_decode_named(given_section, append_time, base_offset, skipped):
    section, count, base = given_section
    arguments = (section, count, base_offset, base, append_time, base_offset + skipped, Named, "t", 3, 1, 7)
    found = outcome(native.decode_named, *arguments)
    assert found == outcome(reference.decode_named, *arguments)
    if isinstance(found, list):
        assert all(type(record) is Named for record in found)


def test_the_collector_does_not_look_through_records_which_cannot_be_part_of_a_cycle():
    section = reference.encode_records([b"k"], [b"v"], 1000, [(("h", b"x"),)], None, 1000, 0)
    (record,) = native.decode_named(section, 1, 0, 1000, None, 0, Named, "t", 3, 1, 7)
    assert not gc.is_tracked(record)


def test_records_become_named_tuples_and_nothing_else():
    for core in (native, reference):
        with pytest.raises(TypeError):
            core.decode_named(b"", 0, 0, 0, None, 0, dict, "t", 0, 0, 0)


@given(sections(), st.booleans(), st.integers(0, 0x7F), st.integers(0, 3000))
def test_check_records(given_section, strict, attributes, last_offset_delta):
    section, count, base = given_section
    header = BatchHeader(0, 0, 0, 2, 0, attributes, last_offset_delta, base, base, -1, -1, -1, count)
    arguments = (section, header, strict)
    assert outcome(native.check_records, *arguments) == outcome(reference.check_records, *arguments)


@given(sections(), st.integers(0, 0x7F), st.booleans(), timestamps, timestamps, st.integers(0, 5))
def test_refused_records(given_section, attributes, needs_keys, lowest, highest, records_max):
    section, count, base = given_section
    header = BatchHeader(0, 0, 0, 2, 0, attributes, count - 1, base, base, -1, -1, -1, count)
    arguments = (section, header, needs_keys, lowest, highest, records_max)
    assert outcome(native.refused_records, *arguments) == outcome(reference.refused_records, *arguments)


@given(sections(), st.integers(-1, 2**63 - 1), st.none() | timestamps)
def test_decode(given_section, base_offset, append_time):
    section, count, base = given_section
    arguments = (section, count, base_offset, base, append_time)
    assert outcome(native.decode_records, *arguments) == outcome(reference.decode_records, *arguments)
    ours, theirs = outcome(native.decode_columns, *arguments), outcome(reference.decode_columns, *arguments)
    assert plain(ours) == plain(theirs)


@given(rows, st.booleans(), st.booleans())
def test_encode(given_rows, with_keys, with_headers):
    keys, values, times, headers, steps = zip(*given_rows, strict=True)
    for each_time in (times, times[0]):
        arguments = (
            keys if with_keys else None, values, each_time, headers if with_headers else None, steps, times[0], 5,
        )  # fmt: skip
        assert outcome(native.encode_records, *arguments) == outcome(reference.encode_records, *arguments)


@given(sections(), st.integers(0, 2**40), st.integers(0, 2500), st.integers(48, 400))
def test_note(given_section, base_offset, skipped, memory_bytes):
    section, count, _ = given_section
    maps = [core.KeyOffsetMap(memory_bytes) for core in (native, reference)]
    arguments = (section, count, base_offset, base_offset + skipped)
    assert outcome(maps[0].note, *arguments) == outcome(maps[1].note, *arguments)
    assert len(maps[0]) == len(maps[1])
    assert maps[0].is_full == maps[1].is_full
    for key in (b"a", b"b", b"", b"c"):
        assert maps[0].latest(key) == maps[1].latest(key)


@given(sections(), sections(), st.integers(0, 2**40), st.booleans(), st.just(0) | timestamps)
def test_retain(noted, given_section, base_offset, drop_tombstones, shift):
    section, count, _ = given_section
    kept = []
    for core in (native, reference):
        key_map = core.KeyOffsetMap(24_000)
        outcome(key_map.note, noted[0], noted[1], base_offset, 0)
        kept.append(outcome(core.retain, section, count, base_offset, key_map, drop_tombstones, shift))
    assert kept[0] == kept[1]


@given(sections(), st.integers(0, 2**40), timestamps, st.none() | timestamps, st.integers(0, 2500))
def test_first_at_or_after(given_section, base_offset, wanted, append_time, skipped):
    section, count, base = given_section
    arguments = (section, count, base_offset, base, append_time, wanted, base_offset + skipped)
    assert outcome(native.first_at_or_after, *arguments) == outcome(reference.first_at_or_after, *arguments)


@given(st.lists(st.tuples(sections(), st.integers(0, 0x7F)), max_size=4), st.data())
def test_scan_and_check_batch(parts, data):
    from ottla.records import batch

    log = bytearray()
    for (section, count, base), attributes in parts:
        header = BatchHeader(len(log), 0, 0, 2, 0, attributes & ~7, max(count, 1) - 1, base, base, -1, -1, -1, count)
        log += batch.rebuild(header, section, record_count=count, max_timestamp=base)
    if log and data.draw(st.booleans()):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        log = log[: data.draw(st.integers(0, len(log)))]
    for check_crc in (True, False):
        for limit in (2, 2**31):
            arguments = (log, 0, len(log), check_crc, limit)
            assert outcome(native.scan, *arguments) == outcome(reference.scan, *arguments)
    room = (data.draw(st.sampled_from([0, 1, 2**40])), data.draw(st.integers(0, 300)), data.draw(st.integers(0, 200)))
    assert outcome(native.walk_run, log, *room) == outcome(reference.walk_run, log, *room)
    for strict, deep in ((True, True), (False, True), (False, False)):
        asked = (log, data.draw(st.integers(-1, 40) | st.just(0)), strict, deep)
        assert outcome(native.check_batch, *asked) == outcome(reference.check_batch, *asked)


@given(st.binary(max_size=200), st.integers(-5, 210), st.booleans())
def test_random_bytes(data, position, flag):
    assert outcome(native.read_header, data, position) == outcome(reference.read_header, data, position)
    assert outcome(native.check_batch, data, position, flag, True) == outcome(
        reference.check_batch, data, position, flag, True
    )
    assert outcome(native.decode_records, data, len(data) // 8, 0, 0, None) == outcome(
        reference.decode_records, data, len(data) // 8, 0, 0, None
    )


text_headers = st.lists(st.tuples(st.sampled_from(["", "h", "ü"]), st.none() | st.binary(max_size=5)), max_size=3)
lists_of_cells = st.lists(st.tuples(nullable, nullable, timestamps, text_headers), min_size=1, max_size=20)


@given(lists_of_cells, st.data())
def test_encode_columns(given_rows, data):
    pa = pytest.importorskip("pyarrow")
    from ottla.records import arrow

    keys, values, times, headers = zip(*given_rows, strict=True)
    start = data.draw(st.integers(0, len(keys) - 1))
    count = data.draw(st.integers(1, len(keys) - start))
    header_array = pa.array([list(entries) for entries in headers], arrow.HEADERS_TYPE)
    arguments = (
        count,
        arrow.binary_buffers(pa.array(keys, pa.binary()).slice(start, count)),
        arrow.binary_buffers(pa.array(values, pa.binary()).slice(start, count)),
        arrow.timestamp_buffer(pa.array(times, pa.int64()).slice(start, count)),
        arrow.headers_buffers(header_array.slice(start, count)) if data.draw(st.booleans()) else None,
        data.draw(st.sampled_from([0, 61])),
    )
    assert outcome(native.encode_columns, *arguments) == outcome(reference.encode_columns, *arguments)
