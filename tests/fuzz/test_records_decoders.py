"""Bytes from strangers to every decoder of records: one exception type, whatever comes.

Sound batches are damaged at random, half of them with a checksum that fits again, so that the damage is met behind it.
`OTTLA_FUZZ_CASES` (1000 if not set) times 300 is what each test tries in all; chance is seeded, so a failure returns.
"""

from __future__ import annotations

import os
import random
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator

import pytest

from ottla.errors import RecordsError
from ottla.records import batch, codec, control, legacy, reference
from ottla.records.compression import compress, decompress
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, Compression

CASES = 300 * int(os.environ.get("OTTLA_FUZZ_CASES", "1000"))
SEEDS = range(6)
DECOMPRESSED_BYTES_MAX = 1 << 20
T = 1_700_000_000_000
INTERESTING = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def sound_batch(rng: random.Random, compression: Compression) -> bytes:
    count = rng.choice((1, 2, 3, 8, 70))
    keys = [rng.choice((None, b"", b"a", b"b", rng.randbytes(9))) for _ in range(count)]
    values = [rng.choice((None, b"", rng.randbytes(rng.randrange(90)))) for _ in range(count)]
    headers = [[("h", rng.choice((None, b"x")))] * rng.choice((0, 0, 0, 1, 3)) for _ in range(count)]
    times = [T + rng.randrange(-100, 100) for _ in range(count)]
    return bytes(
        batch.build(
            keys,
            values,
            times,
            headers=headers,
            compression=compression,
            base_offset=rng.choice((0, 5, 2**40)),
            log_append_time=rng.random() < 0.1,
        )
    )


def corpus(rng: random.Random) -> list[bytes]:
    plain = [sound_batch(rng, Compression.NONE) for _ in range(30)]
    others = [sound_batch(rng, compression) for compression in Compression for _ in range(6)]
    marker = control.build_marker(7, 1, control.EndTransactionMarker(True, 3), T)
    return [*plain, *others, bytes(marker), b"".join(plain[:3])]


def mutated(rng: random.Random, original: bytes, others: list[bytes]) -> bytearray:
    data = bytearray(original)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(7):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1 | 2:
                data[at] = rng.choice(INTERESTING)
            case 3:
                data[at : at + 4] = rng.randbytes(4)
            case 4:
                del data[at : at + rng.randrange(1, 9)]
            case 5:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                other = rng.choice(others)
                cut = rng.randrange(len(other))
                data[at : at + 16] = other[cut : cut + 16]
    if rng.random() < 0.1:
        del data[rng.randrange(len(data) + 1) :]
    return data


def resealed(data: bytearray) -> bytearray:
    """The damage behind a length and a checksum that fit."""
    if len(data) >= HEADER_BYTES:
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[16] = 2
        data[CRC_AT:ATTRIBUTES_AT] = codec.crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return data


def exact(data: bytearray) -> array[int]:
    """The data in a block of memory without a spare byte, so that the address sanitizer sees the first one too far."""
    return array("B", bytes(data))[:]


def cases(seed: int, count: int) -> Iterator[array[int]]:
    rng = random.Random(seed)
    originals = corpus(rng)
    for _ in range(count):
        data = mutated(rng, rng.choice(originals), originals)
        yield exact(resealed(data) if rng.random() < 0.6 else data)


def refusable(function: Callable[..., object], *arguments: object, **options: object) -> bool:
    """Whether it was refused; anything but a RecordsError falls through and fails the test."""
    try:
        function(*arguments, **options)
    except RecordsError:
        return True
    return False


def header_of(data: array[int]) -> batch.BatchHeader | None:
    try:
        return batch.read_header(data)
    except RecordsError:
        return None


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_batches_are_refused_or_read(seed):
    refused = 0
    for data in cases(seed, CASES // len(SEEDS)):
        refused += refusable(batch.check, data, strict=bool(seed % 2), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        batch.scan(data)
        refusable(batch.decode, data, limit=DECOMPRESSED_BYTES_MAX)
        refusable(batch.first_at_or_after, data, T)
        refusable(control.read_marker, data)
    assert refused > CASES // len(SEEDS) // 4, "the damage is met"


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_sections_are_refused_or_compacted(seed):
    key_map = codec.KeyOffsetMap(24 * 50)
    for data in cases(100 + seed, CASES // len(SEEDS)):
        header = header_of(data)
        if header is None:
            continue
        section = memoryview(data)[HEADER_BYTES:]
        count, base = header.record_count, max(header.base_offset, 0) % 2**40
        refusable(key_map.note, section, count, base, 0)
        refusable(codec.retain, section, count, base, key_map, False, 5)
        refusable(codec.decode_columns, section, count, base, header.base_timestamp, None)
        if key_map.is_full:
            key_map = codec.KeyOffsetMap(24 * 50)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_compiled_core_and_the_reference_judge_damage_alike(seed):
    native = pytest.importorskip("ottla.records._native")

    def verdict(function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except RecordsError as error:
            return error.code, error.record_index, str(error)

    for case, data in enumerate(cases(200 + seed, CASES // 100)):
        for name, arguments in (
            ("check_batch", (data, 0, bool(case % 2), True)),
            ("scan", (data, 0, len(data), True, 100)),
        ):
            ours, theirs = (verdict(getattr(core, name), *arguments) for core in (native, reference))
            assert ours == theirs, f"{name}, seed {seed}, case {case}: {bytes(data).hex()}"
        header = header_of(data)
        if header is not None:
            section = (memoryview(data)[HEADER_BYTES:], header.record_count, 0, header.base_timestamp, None)
            ours, theirs = (verdict(core.decode_records, *section) for core in (native, reference))
            assert ours == theirs, f"decode_records, seed {seed}, case {case}: {bytes(data).hex()}"


def response(rng: random.Random) -> array[int]:
    """Batches that follow one another, as a leader sends them; now and then with fields that are not as they should
    be, behind checksums that fit or do not, and cut somewhere."""
    data, offset, epoch = bytearray(), rng.choice((0, 5, 2**63 - 4)), rng.choice((-1, 0, 3))
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        one = batch.build(
            None,
            [b"v"] * rng.choice((1, 2)),
            T + rng.randrange(3),
            base_offset=min(offset, 2**63 - 4),
            leader_epoch=epoch,
            producer_id=rng.choice((-1, 7)),
            producer_epoch=0,
            base_sequence=0,
        )
        if rng.random() < 0.1:
            name, value = rng.choice(WRONG_FIELDS)
            struct.pack_into(name[0], one, name[1], value)
        if rng.random() < 0.03:
            one[rng.randrange(len(one))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.9:
            one[CRC_AT:ATTRIBUTES_AT] = codec.crc32c(memoryview(one)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        data += one
        offset += rng.choice((2, 2, 2, 2, 1, 9))
    if rng.random() < 0.3:
        del data[rng.randrange(len(data) + 1) :]
    return exact(data)


# Where they stand in a batch, and what they must never, or may only just be.
WRONG_FIELDS = [
    ((">q", 0), -1),
    ((">q", 0), 2**63 - 1),
    ((">q", 0), -(2**63)),
    ((">i", 8), -1),
    ((">i", 8), 2**31 - 1),
    ((">i", 8), -(2**31)),
    ((">i", 12), -(2**31)),
    (("b", 16), 1),
    ((">h", 21), 0x7FFF),
    ((">i", 23), -1),
    ((">i", 23), 2**31 - 1),
    ((">q", 35), 2**63 - 1),
    ((">q", 35), -(2**63)),
    ((">q", 43), -2),
    ((">i", 57), -1),
    ((">i", 57), 0),
]


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_compiled_core_and_the_reference_find_the_same_runs(seed):
    native = pytest.importorskip("ottla.records._native")
    rng = random.Random(400 + seed)
    found = 0
    for case in range(CASES // 20):
        data = response(rng)
        # Where the log ends, and since how many bytes and after how many of them an entry of an index is due.
        room = rng.choice((0, 0, 5, 2**63 - 1)), rng.choice((0, 100, 2**40)), rng.choice((0, 100, 2**31 - 1))
        run, expected = native.walk_run(data, *room), reference.walk_run(data, *room)
        assert run == expected, f"seed {seed}, case {case}, {room}: {bytes(data).hex()}"
        found += run is not None
    assert found > CASES // 100, "most are sound"


@pytest.mark.parametrize("compression", [codec_ for codec_ in Compression if codec_])
def test_damaged_streams_are_refused_or_decompressed_within_the_cap(compression):
    rng = random.Random(300 + compression)
    originals = [
        bytes(compress(compression, payload))
        for payload in (b"", b"x", bytes(5000), rng.randbytes(300), b"some text " * 40, bytes(100_000))
    ]
    for _ in range(CASES // 8):
        data = mutated(rng, rng.choice(originals), originals)
        try:
            decompressed = decompress(compression, exact(data), DECOMPRESSED_BYTES_MAX)
        except RecordsError:
            continue
        assert memoryview(decompressed).nbytes <= DECOMPRESSED_BYTES_MAX


def old_message(rng: random.Random, magic: int, compression: Compression) -> bytes:
    def entry(offset: int, value: bytes, attributes: int) -> bytes:
        time = struct.pack(">q", T) if magic else b""
        body = bytes([magic, attributes]) + time + struct.pack(">ii", -1, len(value)) + value
        content = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", offset, len(content)) + content

    inner = b"".join(entry(index, rng.randbytes(20), 0) for index in range(3))
    return entry(2, bytes(compress(compression, inner)), compression) if compression else inner


def with_right_crc(data: bytearray) -> bytearray:
    """An old message whose size and CRC-32 fit again."""
    if len(data) > 17:
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[12:16] = zlib.crc32(memoryview(data)[16:]).to_bytes(4, "big")
    return data


def test_damaged_old_messages_are_refused_or_converted():
    rng = random.Random(400)
    kinds = [(magic, Compression(codec_id)) for magic in (0, 1) for codec_id in range(4)]
    originals = [old_message(rng, magic, compression) for magic, compression in kinds]
    for _ in range(CASES // 6):
        data = mutated(rng, rng.choice(originals), originals)
        if rng.random() < 0.6:
            data = with_right_crc(data)
        refusable(legacy.convert_up, exact(data), limit=DECOMPRESSED_BYTES_MAX)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_random_bytes_are_refused_or_read(seed):
    rng = random.Random(500 + seed)
    for _ in range(CASES // 4):
        noise = bytearray(rng.randbytes(rng.randrange(120)))
        data = exact(resealed(noise) if rng.random() < 0.5 else noise)
        refusable(batch.check, data, strict=False, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        batch.scan(data)
        refusable(codec.decode_records, data, rng.randrange(-1, 40), 0, 0, None)
        refusable(codec.decode_columns, data, rng.randrange(-1, 40), 0, 0, None)
        refusable(legacy.read, data, limit=DECOMPRESSED_BYTES_MAX)
