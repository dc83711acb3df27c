import pytest

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch, codec
from ottla.records.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    BatchHeader,
    Compression,
)

pytestmark = pytest.mark.usefixtures("core")
T = 1_700_000_000_000


def sealed(data: bytearray) -> bytearray:
    """The batch with a checksum that fits what was done to it."""
    data[CRC_AT:ATTRIBUTES_AT] = codec.crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return data


def of_section(
    section: bytes | bytearray, count: int, *, last_offset_delta: int | None = None, attributes: int = 0
) -> bytearray:
    """A batch around any bytes, however wrong, with a right checksum and length."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    header = BatchHeader(0, 0, -1, 2, 0, attributes, last, T, T, -1, -1, -1, count)
    data = batch.rebuild(header, section, record_count=count, max_timestamp=T)
    return sealed(data)


def refusal_of(data: bytes | bytearray, **options: bool) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        batch.check(data, **options)
    return caught.value


def three() -> bytearray:
    return batch.build([b"k1", None, b"k3"], [b"v1", b"v2", None], [T, T + 9, T + 5])


def test_a_sound_batch_tells_its_header_max_timestamp_and_first_null_key():
    checked = batch.check(three())
    assert checked.header == batch.read_header(three())
    assert (checked.max_timestamp, checked.offset_of_max_timestamp_delta) == (T + 9, 1)
    assert checked.null_key_index == 1


def test_the_first_of_several_records_with_the_max_timestamp_is_named():
    checked = batch.check(batch.build(None, [b"a", b"b", b"c"], [T, T + 1, T + 1]))
    assert checked.offset_of_max_timestamp_delta == 1


def test_even_the_smallest_timestamp_is_the_max_of_records_that_all_have_it():
    checked = batch.check(batch.build(None, [b"a", b"b"], -(2**63)))
    assert checked[1:] == (-(2**63), 0, 0, True)


def test_a_batch_whose_keys_are_all_there_has_no_null_key_index():
    assert batch.check(batch.build([b"", b"k"], [None, None], T)).null_key_index == -1


@pytest.mark.parametrize(
    "length", [b"\x01", b"\x03", b"\x61", b"\xff\xff\xff\xff\x0f"], ids=["-1", "-2", "-49", "smallest"]
)
def test_any_negative_length_is_a_null_as_for_kafka(length):
    body = b"\0\0\0" + length * 2 + b"\0"  # attributes, deltas of time and offset, key, value, no headers
    data = of_section(bytes([2 * len(body)]) + body, 1)
    assert batch.check(data).null_key_index == 0
    assert [(record.key, record.value) for record in batch.iterate(data)] == [(None, None)]


@pytest.mark.parametrize("compression", Compression)
def test_every_codec_is_checked_deep(compression):
    data = batch.build([b"k", None], [b"v" * 1000, b"w" * 1000], [T, T + 1], compression=compression)
    checked = batch.check(data)
    assert checked[1:] == (T + 1, 1, 1, True)
    assert checked.header.compression is compression


def test_a_batch_is_checked_where_it_stands_among_others():
    data = bytes(7) + three() + bytes(9)
    assert batch.check(data, 7).header.record_count == 3


def test_append_time_is_the_timestamp_of_all_records():
    data = three()
    batch.stamp_append_time(data, T + 99)
    assert batch.check(data)[1:3] == (T + 99, 0)


def test_a_shallow_check_repeats_the_claim_of_the_header():
    checked = batch.check(three(), deep=False)
    assert checked[1:] == (T + 9, 2, -1, True)


def test_a_flipped_bit_in_the_checksummed_part_is_found():
    for position in range(ATTRIBUTES_AT, len(three())):
        data = three()
        data[position] ^= 0x10
        assert refusal_of(data).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_is_cut_is_refused():
    for size in range(len(three())):
        assert refusal_of(three()[:size]).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("position", [-1, -61, 97, 2**62])
def test_a_position_outside_the_data_is_refused(position):
    with pytest.raises(RecordsError):
        batch.check(three(), position)
    with pytest.raises(RecordsError):
        batch.read_header(three(), position)


@pytest.mark.parametrize(("magic", "code"), [(0, 87), (1, 87), (3, 2), (255, 2)])
def test_an_old_magic_is_an_invalid_record_and_an_unknown_one_is_corrupt(magic, code):
    data = three()
    data[16] = magic
    assert refusal_of(data).code == code


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_length_below_the_header_is_corrupt(length):
    data = three()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal_of(data).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_refused_by_name(codec_id):
    data = three()
    data[22] |= codec_id
    assert refusal_of(sealed(data)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(RecordsError) as caught:
        batch.decode(data)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("attributes", [0x0080, 0x0100, 0x8000, 0xFF80])
def test_attributes_that_nobody_knows_are_nobodys_business(attributes):
    data = three()
    data[21:23] = attributes.to_bytes(2, "big")
    for strict in (True, False):
        assert batch.check(sealed(data), strict=strict).header.attributes & 0xFFFF == attributes


def test_a_producer_may_not_write_control_batches():
    data = batch.build([b"\0\0\0\1"], [b""], T, is_control=True)
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    assert batch.check(data, strict=False).header.is_control


def test_a_producer_id_wants_a_sequence():
    data = batch.build(None, [b"v"], T, producer_id=5, producer_epoch=0)
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    batch.check(data, strict=False)
    batch.check(batch.build(None, [b"v"], T, producer_id=5, producer_epoch=0, base_sequence=0))


@pytest.mark.parametrize("base_offset", [1, 2**40, -1, -(2**63)])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_place_in_the_log_is_not_for_producers_to_claim(base_offset, compression):
    data = batch.build(None, [b"a", b"b"], T, compression=compression)
    batch.stamp(data, base_offset, 0)
    found = refusal_of(data)
    assert (found.code, found.record_index) == (ErrorCode.INVALID_RECORD, None)
    if base_offset >= 0:
        assert batch.check(data, strict=False).header.base_offset == base_offset


def test_a_claimed_place_is_said_before_a_bad_checksum_and_after_a_cut():
    data = three()
    batch.stamp(data, 1, 0)
    data[-1] ^= 1
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    assert refusal_of(data[:-1]).code is ErrorCode.CORRUPT_MESSAGE


def test_gaps_are_for_the_log_not_for_producers():
    data = batch.build(None, [b"a", b"b"], T, offset_deltas=[0, 7])
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    assert batch.check(data, strict=False).header.last_offset == 7


def test_an_empty_batch_is_for_the_log_not_for_producers():
    full = batch.build(None, [b"a", b"b"], T, compression=Compression.ZSTD)
    data = batch.rebuild(batch.read_header(full), b"", record_count=0, max_timestamp=T)
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    checked = batch.check(data, strict=False)
    assert (checked.header.record_count, checked.header.last_offset) == (0, 1)
    assert checked[1:] == (T, 1, -1, True)
    assert batch.decode(data).values == []


@pytest.mark.parametrize("deltas", [[0, 0], [1, 0], [0, 2], [1, 2]], ids=str)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_whether_a_producers_offset_deltas_count_up_from_zero_is_told(deltas, compression):
    section = codec.encode_records(None, [b"a", b"b"], T, None, deltas, T, 0)
    header = batch.read_header(of_section(section, 2))
    data = batch.rebuild(header, section, record_count=2, max_timestamp=T, compression=compression)
    assert not batch.check(data).is_in_order
    if compression is Compression.NONE:
        renumbered = batch.renumber(data)
        assert batch.check(renumbered).is_in_order
        assert batch.decode(renumbered) == batch.decode(data)._replace(offsets=range(2))


@pytest.mark.parametrize(("deltas", "index"), [([0, 0], 1), ([3, 1], 1), ([0, 9], 1), ([9, 10], 0)], ids=str)
def test_offset_deltas_from_the_log_rise_up_to_the_last_one(deltas, index):
    section = codec.encode_records(None, [b"a", b"b"], T, None, deltas, T, 0)
    found = refusal_of(of_section(section, 2, last_offset_delta=5), strict=False)
    assert (found.code, found.record_index) == (ErrorCode.INVALID_RECORD, index)


# length, attributes, timestamp delta, offset delta, key length, value length, header count
WRONG_RECORDS = {
    "shorter than any record": b"\x0a\x00\x00\x00\x01\x01",
    "longer than the batch": b"\x10\x00\x00\x00\x01\x01\x00",
    "negative length": b"\x01\x00\x00\x00\x01\x01\x00",
    "key longer than the record": b"\x0c\x00\x00\x00\x10\x01\x00",
    "value longer than the record": b"\x0c\x00\x00\x00\x01\x10\x00",
    "negative header count": b"\x0c\x00\x00\x00\x01\x01\x01",
    "more headers than bytes": b"\x0c\x00\x00\x00\x01\x01\x02",
    "null header key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "header key longer than the record": b"\x10\x00\x00\x00\x01\x01\x02\x0a\x01",
    "header value longer than the record": b"\x10\x00\x00\x00\x01\x01\x02\x00\x0a",
    "bytes left in the record": b"\x0e\x00\x00\x00\x01\x01\x00\x00",
    "timestamp without an end": b"\x18\x00" + b"\x80" * 11,
    "timestamp of 65 bits": b"\x1e\x00" + b"\xff" * 9 + b"\x02" + b"\x00\x01\x01\x00",
    "timestamp delta beyond 64 bits": b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00",
    "offset delta of six bytes": b"\x16\x00\x00" + b"\x80" * 5 + b"\x00\x01\x01\x00",
    "offset delta of 33 bits": b"\x14\x00\x00" + b"\x80\x80\x80\x80\x10" + b"\x01\x01\x00",
    "number that runs out of the record": b"\x0c\x00\x00\x00\x01\x01\x80",
}


@pytest.mark.parametrize("record", WRONG_RECORDS.values(), ids=WRONG_RECORDS)
def test_a_wrong_record_is_refused_and_named(record):
    good = codec.encode_records(None, [b"good"], T, None, None, T, 0)
    data = of_section(bytes(good) + record, 2)
    for strict in (True, False):
        found = refusal_of(data, strict=strict)
        assert (found.code, found.record_index) == (ErrorCode.INVALID_RECORD, 1)
    with pytest.raises(RecordsError):
        batch.decode(data)


def test_bytes_behind_the_last_record_are_refused():
    section = bytes(codec.encode_records(None, [b"a", b"b"], T, None, None, T, 0))
    found = refusal_of(of_section(section, 1))
    assert (found.code, found.record_index) == (ErrorCode.INVALID_RECORD, None)


@pytest.mark.parametrize("count", [3, 10, 2**31 - 1])
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_allocated(count):
    section = bytes(codec.encode_records(None, [b"a", b"b"], T, None, None, T, 0))
    data = of_section(section, count)
    assert refusal_of(data).code is ErrorCode.INVALID_RECORD
    with pytest.raises(RecordsError):
        batch.decode(data)


def test_a_negative_count_is_refused():
    assert refusal_of(of_section(b"", -1, last_offset_delta=0), strict=False).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("base_offset", "last_delta"), [(-1, 0), (2**63 - 2, 1), (0, -1)])
def test_offsets_that_cannot_be_are_corrupt(base_offset, last_delta):
    data = of_section(b"", 0, last_offset_delta=last_delta)
    batch.stamp(data, base_offset, 0)
    assert refusal_of(data, strict=False).code is ErrorCode.CORRUPT_MESSAGE


def test_compressed_records_are_checked_like_plain_ones():
    section = codec.encode_records(None, [b"a", b"b"], T, None, [0, 0], T, 0)
    header = batch.read_header(of_section(section, 2))
    data = batch.rebuild(header, section, record_count=2, max_timestamp=T, compression=Compression.LZ4)
    assert refusal_of(data, strict=False).record_index == 1
    batch.check(data, deep=False)


@pytest.mark.parametrize("compression", [codec_ for codec_ in Compression if codec_])
def test_records_that_do_not_decompress_are_invalid(compression):
    data = batch.build(None, [b"some value"], T, compression=compression)
    data[HEADER_BYTES:] = b"\x00\x01\x02\x03 nothing that any codec knows"
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    assert refusal_of(sealed(data)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", [codec_ for codec_ in Compression if codec_])
def test_records_that_decompress_beyond_the_cap_are_too_large(compression):
    data = batch.build(None, [bytes(10_000)], T, compression=compression)
    with pytest.raises(RecordsError) as caught:
        batch.check(data, decompressed_bytes_max=9_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
