import mmap
import random

import pytest

# RFC 3720, B.4, and the check value of the CRC catalogue.
KNOWN = {
    b"": 0x00000000,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
}


@pytest.mark.parametrize("data", KNOWN)
def test_known_bytes_have_the_known_checksum(core, data):
    assert core.crc32c(data) == KNOWN[data]


def test_a_checksum_goes_on_where_another_ended(core):
    data = random.Random(1).randbytes(10_000)
    for cut in (0, 1, 7, 8, 385, 3071, 3072, 3073, 9_999, 10_000):
        assert core.crc32c(data[cut:], core.crc32c(data[:cut])) == core.crc32c(data)


def test_any_contiguous_buffer_is_taken(core):
    data = random.Random(2).randbytes(5000)
    with mmap.mmap(-1, len(data)) as mapped:
        mapped.write(data)
        assert core.crc32c(mapped) == core.crc32c(data)
    assert core.crc32c(bytearray(data)) == core.crc32c(memoryview(data)) == core.crc32c(data)
    assert core.crc32c(memoryview(data)[3:4001]) == core.crc32c(data[3:4001])


def test_instruction_tables_and_reference_agree_at_every_length_and_alignment():
    native = pytest.importorskip("ottla.records._native")
    from ottla.records import reference

    data = random.Random(3).randbytes(8192)
    view = memoryview(data)
    lengths = [*range(420), *range(3060, 3090), *range(3450, 3460), 6144, 8000]
    for length in lengths:
        start = length % 13
        part = view[start : start + length]
        assert native.crc32c(part) == native.crc32c_portable(part) == reference.crc32c(part), length
