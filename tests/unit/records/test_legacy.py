import struct
import zlib

import lz4.frame
import pytest

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch, legacy
from ottla.records.compression import compress
from ottla.records.layout import Compression
from ottla.records.legacy import LegacyMessage

T = 1_700_000_000_000
OLD_CODECS = [codec for codec in Compression if codec is not Compression.ZSTD]


def message(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = T
) -> bytes:
    """One entry of a message set, written from the format's description."""

    def nullable(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    time = struct.pack(">q", timestamp) if magic == 1 else b""
    body = bytes([magic, attributes]) + time + nullable(key) + nullable(value)
    content = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(content)) + content


def wrapped(
    inner: bytes, offset: int, compression: Compression, *, magic: int = 1, attributes: int = 0, timestamp: int = T
) -> bytes:
    value = bytes(compress(compression, inner))
    return message(offset, None, value, magic=magic, attributes=attributes | compression, timestamp=timestamp)


def with_broken_checksum(frame: bytes) -> bytes:
    """The lz4 frame as Kafka 0.8 and its clients wrote it: its header's checksum covers the magic number too."""
    assert frame[:7] == bytes.fromhex("04224d18604082"), "a frame without content size, as lz4 makes it"
    return frame[:6] + b"\x1a" + frame[7:]


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_are_read(magic):
    data = message(5, b"k", b"v", magic=magic) + message(6, None, None, magic=magic)
    timestamp = T if magic else -1
    assert legacy.read(data) == [
        LegacyMessage(5, timestamp, b"k", b"v"),
        LegacyMessage(6, timestamp, None, None),
    ]


@pytest.mark.parametrize("compression", OLD_CODECS[1:])
def test_wrapped_messages_of_magic_1_have_relative_offsets(compression):
    inner = b"".join(message(index, b"k", b"v", timestamp=T + index) for index in range(3))
    found = legacy.read(wrapped(inner, 102, compression))
    assert [(entry.offset, entry.timestamp) for entry in found] == [(100, T), (101, T + 1), (102, T + 2)]


@pytest.mark.parametrize("compression", OLD_CODECS[1:])
def test_wrapped_messages_of_magic_0_have_absolute_offsets(compression):
    inner = b"".join(message(100 + index, b"k", b"v", magic=0) for index in range(3))
    found = legacy.read(wrapped(inner, 102, compression, magic=0))
    assert [entry.offset for entry in found] == [100, 101, 102]


def test_the_wrapper_of_a_producer_whose_offset_is_zero_is_read():
    inner = b"".join(message(index, None, b"v") for index in range(3))
    assert [entry.offset for entry in legacy.read(wrapped(inner, 0, Compression.GZIP))] == [0, 1, 2]


def test_append_time_of_a_wrapper_is_the_time_of_all_it_holds():
    inner = message(0, None, b"a") + message(1, None, b"b")
    found = legacy.read(wrapped(inner, 1, Compression.GZIP, attributes=0x08, timestamp=T + 77))
    assert [entry.timestamp for entry in found] == [T + 77, T + 77]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_broken_lz4_checksum_of_old_clients_is_accepted(magic):
    inner = message(0, b"k", b"v", magic=magic)
    frame = lz4.frame.compress(inner, block_linked=False, store_size=False)
    data = message(0, None, with_broken_checksum(frame), magic=magic, attributes=3)
    assert [entry.value for entry in legacy.read(data)] == [b"v"]


@pytest.mark.parametrize("store_size", [True, False])
def test_our_header_checksum_is_the_one_that_lz4_makes(store_size):
    frame = memoryview(lz4.frame.compress(bytes(77), store_size=store_size))
    end = 14 if store_size else 6
    assert legacy._lz4_header_checksum(frame[4:end]) == frame[end]


def test_an_lz4_checksum_that_is_wrong_in_another_way_is_refused():
    frame = bytearray(lz4.frame.compress(message(0, b"k", b"v"), block_linked=False, store_size=False))
    frame[6] ^= 0x55
    with pytest.raises(RecordsError):
        legacy.read(message(0, None, bytes(frame), attributes=3))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", OLD_CODECS)
def test_messages_are_converted_up_to_one_batch(magic, compression):
    inner = b"".join(
        message(index, b"k%d" % index, b"v" * index, magic=magic, timestamp=T - index) for index in range(5)
    )
    data = inner if compression is Compression.NONE else wrapped(inner, 4, compression, magic=magic)
    converted = legacy.convert_up(data)
    header = batch.check(converted).header
    assert header.compression is compression
    columns = batch.decode(converted)
    assert columns.offsets == range(5)
    assert columns.keys == [b"k%d" % index for index in range(5)]
    assert columns.values == [b"v" * index for index in range(5)]
    assert columns.timestamps == ([T - index for index in range(5)] if magic else [-1] * 5)
    assert batch.read_header(legacy.convert_up(data, compression=Compression.ZSTD)).compression == 4


def test_a_message_that_is_cut_anywhere_is_refused():
    data = message(0, b"key", b"value")
    for size in range(1, len(data)):
        with pytest.raises(RecordsError) as caught:
            legacy.read(data[:size])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_flipped_bit_is_found():
    data = message(0, b"key", b"value")
    for position in range(12, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x04
        with pytest.raises(RecordsError):
            legacy.read(damaged)


WRONG = {
    "magic 2": message(0, b"k", b"v", magic=2),
    "zstd": message(0, None, b"v", attributes=4),
    "a wrapper without a value": message(0, None, None, attributes=1),
    "a wrapper of nothing": wrapped(b"", 0, Compression.GZIP),
    "a wrapper in a wrapper": wrapped(wrapped(message(0, b"k", b"v"), 0, Compression.GZIP), 0, Compression.GZIP),
    "a wrapper of another magic": wrapped(message(0, b"k", b"v", magic=0), 0, Compression.GZIP),
    "a wrapper of garbage": wrapped(b"garbage", 0, Compression.GZIP),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(data):
    with pytest.raises(RecordsError):
        legacy.convert_up(data)


def test_an_empty_set_cannot_be_converted():
    assert legacy.read(b"") == []
    with pytest.raises(RecordsError):
        legacy.convert_up(b"")


def test_the_cap_holds_for_all_wrappers_together():
    inner = message(0, None, bytes(1000))
    data = wrapped(inner, 0, Compression.GZIP) * 10
    assert len(legacy.read(data, limit=10 * len(inner))) == 10
    with pytest.raises(RecordsError) as caught:
        legacy.read(data, limit=10 * len(inner) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
