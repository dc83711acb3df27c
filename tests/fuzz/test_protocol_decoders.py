"""Bytes from strangers: every decoder in every version meets noise and damaged messages.

Whatever comes, the answer is a message or a ProtocolError, and memory stays in proportion to the frame.
OTTLA_FUZZ_CASES sets the number of damaged messages per decoder and version.
"""

import os
import tracemalloc
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, decode_at, encode
from ottla.protocol.coordinator_records import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordType,
    decode_key,
    decode_value,
)
from ottla.protocol.headers import decode_request_header
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import all_messages
from ottla.testing.frame_parser import FrameParser
from ottla.testing.messages import random_message, smallest_message

CASES = int(os.environ.get("OTTLA_FUZZ_CASES", "1000"))
MESSAGES = all_messages()
# Frames that are mostly counts and lengths: small ones, and both ends of every width.
TELLING_BYTES = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
# An object and the list slot that holds it cost about this much for each byte that asked for them.
MEMORY_PER_BYTE_MAX = 400
MEMORY_FIXED_MAX = 100_000


def flip_bits(data: bytearray, random: Random) -> None:
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def write_telling_bytes(data: bytearray, random: Random) -> None:
    for _ in range(random.randint(1, 6)):
        data[random.randrange(len(data))] = random.choice(TELLING_BYTES)


def cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def remove_some(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.randint(1, 8)]


def insert_noise(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    data[start:start] = random.randbytes(random.randint(1, 8))


def repeat_some(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    data[start:start] = data[start : start + random.randint(1, 64)]


DAMAGE: list[Callable[[bytearray, Random], None]] = [
    flip_bits,
    write_telling_bytes,
    cut,
    remove_some,
    insert_noise,
    repeat_some,
]


def decode_or_refuse(cls: type, data: bytes, version: int) -> None:
    """Any exception but ProtocolError fails the test; what was read can be written again."""
    message: Any
    for buffer in (data, memoryview(data)):
        try:
            message, end = decode_at(cls, buffer, version)
        except ProtocolError:
            continue
        assert end <= len(data)
        # Bytes are compared, not messages: a quota may be read as NaN, which is not equal to itself.
        written = encode(message, version)
        assert encode(decode(cls, written, version), version) == written


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_damaged_message_is_read_or_refused(cls: type) -> None:
    for version in message_schema_of(cls).versions:
        random = Random(f"damage {cls.__name__} {version}")
        originals = [encode(random_message(cls, version, random), version) for _ in range(8)]
        for case in range(CASES):
            data = bytearray(originals[case % len(originals)])
            for damage in random.choices(DAMAGE, k=random.choice((1, 1, 2))):
                if data:
                    damage(data, random)
            decode_or_refuse(cls, bytes(data), version)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_noise_is_read_or_refused(cls: type) -> None:
    for version in message_schema_of(cls).versions:
        random = Random(f"noise {cls.__name__} {version}")
        for _ in range(CASES // 4):
            size = random.choice((0, 1, 2, 4, 8, 16, 50, 200))
            decode_or_refuse(cls, random.randbytes(size), version)
            decode_or_refuse(cls, bytes(random.choices(TELLING_BYTES, k=size)), version)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_hostile_counts_do_not_take_memory(cls: type) -> None:
    """Every place of a small message claims in turn to be a very long something, in a frame of 4 KB."""
    for version in message_schema_of(cls).versions:
        encoded = encode(smallest_message(cls, version), version)
        for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\x0f\x42\x40", b"\xff\x1f"):
            for position in range(min(len(encoded), 64)):
                frame = encoded[:position] + claim + encoded[position:] + bytes(4096)
                assert peak_memory(cls, frame, version) < MEMORY_FIXED_MAX + MEMORY_PER_BYTE_MAX * len(frame)


def peak_memory(cls: type, frame: bytes, version: int) -> int:
    decode_or_refuse(cls, b"", version)  # makes the codec outside the measurement
    tracemalloc.start()
    try:
        decode(cls, frame, version)
    except ProtocolError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def read_or_refuse(read: Callable[..., object], *arguments: object) -> None:
    try:
        read(*arguments)
    except ProtocolError:
        return


def test_headers_of_noise_are_read_or_refused() -> None:
    random = Random("headers")
    for _ in range(CASES * 100):
        api_key = random.choice((-1, 0, 1, 3, 7, 18, 52, 1000)).to_bytes(2, "big", signed=True)
        read_or_refuse(decode_request_header, api_key + random.randbytes(random.randrange(30)))


@pytest.mark.parametrize("table", [GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_STATE_RECORDS])
def test_coordinator_records_of_noise_are_read_or_refused(table: Mapping[int, RecordType]) -> None:
    random = Random("records")
    for record_type in table.values():
        for _ in range(CASES):
            number = random.choice((record_type.number, 0, 999)).to_bytes(2, "big")
            version = random.choice((0, 1, 3, 999)).to_bytes(2, "big")
            noise = random.randbytes(random.randrange(40))
            read_or_refuse(decode_key, table, number + noise)
            read_or_refuse(decode_value, record_type, version + noise)


def test_a_stream_of_noise_is_cut_into_frames_or_refused() -> None:
    random = Random("frames")
    for _ in range(CASES):
        parser = FrameParser(frame_bytes_max=1000)
        try:
            for _ in range(50):
                small = random.randrange(300).to_bytes(4, "big")
                for received in parser.feed(small + random.randbytes(random.randrange(400))):
                    assert len(received) <= 1000
        except ProtocolError:
            continue
        assert parser.pending_bytes <= 1000 + 4 + 404
