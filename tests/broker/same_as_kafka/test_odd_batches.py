"""Produce of batches that no honest producer sends: what is taken all the same, what is refused, and in which words."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.records.codec import crc32c
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX, Compression
from ottla.testing.raw_requests import fetch, one_batch, produce, produce_to_many
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

LAST_OFFSET_DELTA_AT = 23
MAX_TIMESTAMP_AT = 35
RECORD_COUNT_AT = 57
LOG_APPEND_TIME = 0x08


def sealed(data: bytes | bytearray) -> bytes:
    """The same batch with the checksum and the length that its bytes have now."""
    changed = bytearray(data)
    struct.pack_into(">i", changed, LENGTH_AT, len(changed) - LENGTH_PREFIX)
    struct.pack_into(">I", changed, CRC_AT, crc32c(changed[ATTRIBUTES_AT:]))
    return bytes(changed)


def with_field(data: bytes, form: str, position: int, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, position, value)
    return sealed(changed)


def with_attributes(data: bytes, bits: int) -> bytes:
    (attributes,) = struct.unpack_from(">H", data, ATTRIBUTES_AT)
    return with_field(data, ">H", ATTRIBUTES_AT, attributes | bits)


def with_deltas(deltas: Sequence[int], compression: Compression = Compression.NONE) -> bytes:
    """Records with these offset deltas in a batch that claims as many offsets as it has records."""
    values = [b"%d" % delta for delta in deltas]
    data = one_batch(*values, offset_deltas=deltas, compression=compression)
    return with_field(data, ">i", LAST_OFFSET_DELTA_AT, len(deltas) - 1)


def is_refused(answer: Any) -> bool:
    """For what Kafka fails on (UNKNOWN_SERVER_ERROR) and we refuse with a code that says why."""
    return bool(answer.responses[0].partition_responses[0].error_code)


@conversations.add
def offset_deltas_that_are_out_of_order(side: Side) -> None:
    topic, _ = side.new_topic("deltas")
    for deltas in ((0, 0, 0), (2, 1, 0), (5, 6, 7), (0, 2, 4), (0, 1, 2)):
        side.ask(produce(topic, with_deltas(deltas)), 9)
        side.ask(produce(topic, with_deltas(deltas, Compression.GZIP)), 9, note=is_refused)
    recompressed, _ = side.new_topic("recompressed", compression_type="lz4")
    side.ask(produce(recompressed, with_deltas((3, 1, 1))), 9)
    # A count that is not that of the claimed offsets is refused, whatever the records say.
    side.ask(produce(recompressed, one_batch(b"a", b"b", offset_deltas=(0, 2))), 9)


@conversations.add
def attributes_that_nobody_knows(side: Side) -> None:
    topic, _ = side.new_topic("attributes")
    good = one_batch(b"a", b"b")
    for bits in (0x40, 0x80, 0x100, 0x8000, 0xFF80):
        side.ask(produce(topic, with_attributes(good, bits)), 9)
    for codec in (5, 6, 7):
        side.ask(produce(topic, with_attributes(good, codec)), 9, note=is_refused)
    zipped = one_batch(b"a", compression=Compression.GZIP)
    side.ask(produce(topic, with_attributes(zipped, 0x80)), 9)
    recompressed, _ = side.new_topic("recompressed", compression_type="gzip")
    side.ask(produce(recompressed, with_attributes(good, 0x80)), 9)
    side.ask(fetch(topic), 11)


@conversations.add
def bytes_behind_a_batch(side: Side) -> None:
    topic, _ = side.new_topic("behind")
    good = one_batch(b"a", b"b")
    unfinished = bytearray(good)
    struct.pack_into(">i", unfinished, LENGTH_AT, len(good) * 2)
    small = bytearray(good)
    struct.pack_into(">i", small, LENGTH_AT, 3)
    tails = [b"x", bytes(11), bytes(12), bytes(17), bytes(100), good[:12], good[:16], good[:17], good[:18], good[:60]]
    tails += [good[:-1], bytes(unfinished), bytes(small), b"\xff" * 30, good]
    for tail in tails:
        for version in (7, 11):
            side.ask(produce(topic, good + tail), version)
        side.ask(produce(topic, tail), 11)
    side.ask(produce(topic, good + good, acks=7), 11)  # the records are looked at before anything else
    side.ask(fetch(topic), 11)
    inside = sealed(good + b"\0")  # not behind the batch but within it, behind its last record
    side.ask(produce(topic, inside), 9)
    limited, _ = side.new_topic("limited", max_message_bytes=str(len(good)))
    side.ask(produce(limited, good + b"x"), 9)
    side.ask(produce(limited, good), 9)


@conversations.add
def batches_that_claim_log_append_time(side: Side) -> None:
    now_ms = int(time.time() * 1000)
    claims = with_attributes(one_batch(b"a", b"b", timestamps=now_ms), LOG_APPEND_TIME)
    topic, _ = side.new_topic("created")
    stamped, _ = side.new_topic("stamped", message_timestamp_type="LogAppendTime")
    for version in (7, 8, 11):
        side.ask(produce(topic, claims), version)
        side.ask(produce(stamped, claims), version)
    zipped = with_attributes(one_batch(b"a", b"b", timestamps=now_ms, compression=Compression.GZIP), LOG_APPEND_TIME)
    side.ask(produce(topic, zipped), 9)
    side.ask(produce(stamped, zipped), 9)
    side.ask(produce(topic, with_field(claims, ">q", MAX_TIMESTAMP_AT, -1)), 9)
    side.ask(produce(topic, with_field(claims, ">q", MAX_TIMESTAMP_AT, now_ms + 90_000_000)), 9)
    late = with_attributes(one_batch(b"a", b"b", timestamps=[now_ms, now_ms + 90_000_000]), LOG_APPEND_TIME)
    side.ask(produce(topic, with_field(late, ">q", MAX_TIMESTAMP_AT, now_ms)), 9)


@conversations.add
def batches_without_records(side: Side) -> None:
    topic, _ = side.new_topic("none")
    header = bytearray(one_batch(b"a")[:HEADER_BYTES])
    for count, delta in ((0, -1), (0, 0), (-1, 0), (-1, -2), (1, -1), (2, 1), (1, -(2**31)), (0, 2**31 - 1)):
        struct.pack_into(">i", header, RECORD_COUNT_AT, count)
        struct.pack_into(">i", header, LAST_OFFSET_DELTA_AT, delta)
        for version in (3, 9, 11):
            side.ask(produce(topic, sealed(header)), version)


@conversations.add
def every_bad_record_is_told(side: Side) -> None:
    now_ms = int(time.time() * 1000)
    hour_ms = 3_600_000
    compacted, _ = side.new_topic("compacted", cleanup_policy="compact")
    timed, _ = side.new_topic("timed", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="60000")
    both, _ = side.new_topic("both", cleanup_policy="compact", message_timestamp_before_max_ms="60000")
    for version in (7, 8, 11):
        for codec in (Compression.NONE, Compression.GZIP):
            keys = [None, b"k", None, None]
            side.ask(produce(compacted, one_batch(b"a", keys=[None], compression=codec)), version)
            side.ask(produce(compacted, one_batch(b"a", b"b", b"c", b"d", keys=keys, compression=codec)), version)
            times = [now_ms, now_ms + hour_ms, now_ms - hour_ms, -1, now_ms + 2 * hour_ms]
            five = [b"v"] * 5
            side.ask(produce(timed, one_batch(*five, timestamps=times, compression=codec)), version)
            times = [now_ms, now_ms - hour_ms, now_ms - hour_ms, now_ms, now_ms]
            keys = [None, None, b"k", b"k", None]
            batched = one_batch(*five, keys=keys, timestamps=times, compression=codec)
            side.ask(produce(both, batched), version)
    stamped, _ = side.new_topic("stamped", cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    claims = with_attributes(one_batch(b"a", b"b", keys=[None, b"k"], timestamps=now_ms), LOG_APPEND_TIME)
    side.ask(produce(stamped, claims), 9)
    side.ask(produce_to_many(compacted, [(0, one_batch(b"a")), (0, one_batch(b"a", b"b"))]), 9)


# length, attributes, timestamp delta, offset delta, key length, value length, header count
UNREADABLE = (
    b"\x0a\x00\x00\x00\x01\x01",  # shorter than any record
    b"\x10\x00\x00\x00\x01\x01\x00",  # longer than the batch
    b"\x01\x00\x00\x00\x01\x01\x00",  # negative length
    b"\x0c\x00\x00\x00\x10\x01\x00",  # a key longer than the record
    b"\x0c\x00\x00\x00\x01\x10\x00",  # a value longer than the record
    b"\x0c\x00\x00\x00\x01\x01\x01",  # a negative number of headers
    b"\x0c\x00\x00\x00\x01\x01\x02",  # more headers than bytes
    b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without a key
    b"\x10\x00\x00\x00\x01\x01\x02\x0a\x01",  # a header's key longer than the record
    b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # bytes left in the record
    b"\x18\x00" + b"\x80" * 11,  # a timestamp without an end
    b"\x16\x00\x00" + b"\x80" * 5 + b"\x00\x01\x01\x00",  # an offset delta of six bytes
    b"\x0c\x00\x00\x00\x01\x01\x80",  # a number that runs out of the record
)


@conversations.add
def records_that_cannot_be_read(side: Side) -> None:
    topic, _ = side.new_topic("unreadable")
    header = one_batch(b"a", b"b")[:HEADER_BYTES]
    good = one_batch(b"a")[HEADER_BYTES:]
    for record in UNREADABLE:
        side.ask(produce(topic, sealed(header + good + record)), 9)
    for sections in (good, good * 3):  # fewer and more than the header says
        side.ask(produce(topic, sealed(header + sections)), 9)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
