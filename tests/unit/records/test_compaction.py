import pytest

from ottla.errors import RecordsError
from ottla.records.layout import INT64_MAX

T = 1000


def section(core, records):
    """(offset delta, key, value, timestamp) each."""
    deltas, keys, values, timestamps = zip(*records, strict=True)
    return core.encode_records(keys, values, timestamps, None, deltas, T, 0)


def test_the_latest_offset_of_each_key_is_noted(core):
    key_map = core.KeyOffsetMap(24_000)
    records = section(core, [(0, b"a", b"1", T), (1, b"b", b"2", T), (2, b"a", b"3", T), (5, b"", b"4", T)])
    assert key_map.note(records, 4, 100, 0) == 106
    assert (len(key_map), key_map.is_full) == (3, False)
    assert [key_map.latest(key) for key in (b"a", b"b", b"", b"never")] == [102, 101, 105, -1]


def test_null_keys_are_passed_over(core):
    key_map = core.KeyOffsetMap(24_000)
    assert key_map.note(section(core, [(0, None, b"1", T)]), 1, 7, 0) == 8
    assert len(key_map) == 0


def test_records_before_the_start_are_not_noted(core):
    key_map = core.KeyOffsetMap(24_000)
    records = section(core, [(0, b"a", b"1", T), (1, b"b", b"2", T)])
    assert key_map.note(records, 2, 10, 11) == 12
    assert (key_map.latest(b"a"), key_map.latest(b"b")) == (-1, 11)
    assert key_map.note(records, 2, 10, 50) == 50


def test_the_map_stops_before_the_record_that_no_longer_fits(core):
    key_map = core.KeyOffsetMap(24 * 10)
    assert key_map.capacity == 9
    keys = [b"%d" % index for index in range(20)]
    records = section(core, [(index, key, b"v", T) for index, key in enumerate(keys)])
    assert key_map.note(records, 20, 1000, 0) == 1009
    assert key_map.is_full
    assert len(key_map) == 9
    assert [key_map.latest(key) for key in keys] == [*range(1000, 1009), *[-1] * 11]


def test_a_full_map_still_takes_keys_that_it_knows(core):
    key_map = core.KeyOffsetMap(24 * 2)
    assert key_map.capacity == 1
    records = section(core, [(0, b"a", b"1", T), (1, b"a", b"2", T), (2, b"b", b"3", T), (3, b"a", b"4", T)])
    assert key_map.note(records, 4, 0, 0) == 2
    assert (key_map.latest(b"a"), key_map.is_full) == (1, True)


def test_an_older_offset_does_not_replace_a_newer_one(core):
    key_map = core.KeyOffsetMap(24_000)
    key_map.note(section(core, [(0, b"a", b"", T)]), 1, 90, 0)
    key_map.note(section(core, [(0, b"a", b"", T)]), 1, 10, 0)
    assert key_map.latest(b"a") == 90


def test_many_keys_fill_the_map_to_its_capacity_and_are_all_found(core):
    key_map = core.KeyOffsetMap(24 * 5000)
    keys = [b"key-%d" % index for index in range(key_map.capacity)]
    records = section(core, [(index, key, b"", T) for index, key in enumerate(keys)])
    assert key_map.note(records, len(keys), 0, 0) == len(keys)
    assert (len(key_map), key_map.is_full) == (4500, False)
    assert [key_map.latest(key) for key in keys] == list(range(len(keys)))
    assert key_map.latest(b"key-x") == -1


@pytest.mark.parametrize("memory_bytes", [-1, 0, 23, 47])
def test_a_map_without_room_for_a_key_is_a_mistake(core, memory_bytes):
    with pytest.raises(ValueError, match="hold no key"):
        core.KeyOffsetMap(memory_bytes)


def test_damaged_records_are_not_noted(core):
    key_map = core.KeyOffsetMap(24_000)
    records = bytes(section(core, [(0, b"a", b"1", T)]))
    with pytest.raises(RecordsError):
        key_map.note(records[:-1], 1, 0, 0)
    with pytest.raises(RecordsError):
        key_map.note(records, 1, -1, 0)
    key_map.note(records, 1, 0, 0)


def noted(core, latest):
    key_map = core.KeyOffsetMap(24_000)
    for key, offset in latest.items():
        key_map.note(section(core, [(0, key, b"", T)]), 1, offset, 0)
    return key_map


def test_only_the_latest_record_of_a_key_is_kept(core):
    records = section(core, [(0, b"a", b"1", T), (1, b"b", b"2", T + 5), (2, b"a", b"3", T + 2)])
    kept = core.retain(records, 3, 100, noted(core, {b"a": 102, b"b": 101}), False)
    assert kept.records == section(core, [(1, b"b", b"2", T + 5), (2, b"a", b"3", T + 2)])
    assert kept[1:] == (2, 5, False, True)


def test_a_record_newer_than_the_map_is_kept(core):
    records = section(core, [(0, b"a", b"1", T), (1, b"unknown", b"2", T)])
    kept = core.retain(records, 2, 100, noted(core, {b"a": 7}), False)
    assert (kept.record_count, kept.has_dropped, kept.records) == (2, False, records)


def test_tombstones_stay_until_they_may_go(core):
    records = section(core, [(0, b"a", None, T), (1, b"b", b"2", T)])
    key_map = noted(core, {b"a": 100, b"b": 101})
    assert core.retain(records, 2, 100, key_map, False)[1:] == (2, 0, True, False)
    assert core.retain(records, 2, 100, key_map, True)[1:] == (1, 0, False, True)


def test_records_without_a_key_go(core):
    kept = core.retain(section(core, [(0, None, b"1", T)]), 1, 0, noted(core, {}), False)
    assert kept == (b"", 0, 0, False, True)


@pytest.mark.parametrize("shift", [1, -1, 70, -70, 10**12, -(10**12), 2**62])
def test_a_shift_moves_every_timestamp_delta(core, shift):
    records = core.encode_records([b"a", b"b"], [b"1", b"2"], [T, T + 3], [[("h", b"x")], []], [0, 4], T, 0)
    kept = core.retain(records, 2, 0, noted(core, {}), False, shift)
    assert kept[1:] == (2, shift + 3, False, False)
    moved = core.decode_records(kept.records, 2, 0, 0, None)
    before = core.decode_records(records, 2, 0, 0, None)
    assert moved.timestamps == [timestamp + shift for timestamp in before.timestamps]
    assert moved._replace(timestamps=[]) == before._replace(timestamps=[])


def test_a_shift_beyond_64_bits_is_refused(core):
    records = section(core, [(0, b"a", b"1", T + 1)])
    with pytest.raises(RecordsError):
        core.retain(records, 1, 0, noted(core, {}), False, INT64_MAX)


def test_the_hash_of_the_compiled_map_is_siphash():
    """The published vector of SipHash-2-4-128: key 00..0f, message 00..0e; checked by a map that knows its hash."""
    native = pytest.importorskip("ottla.records._native")
    expected = bytes.fromhex("5493e99933b0a8117e08ec0f97cfc3d9")
    assert native.siphash(bytes(range(16)), bytes(range(15))) == expected
    assert native.siphash(bytes(range(16)), b"") == bytes.fromhex("a3817f04ba25a8e66df67214c7550293")
