"""Every short way into a log admits what the long way admits, refuses what it refuses, and leaves the same log.

The long way is `admission.admit`, which looks at everything in order, and `append_admitted`. `append` is shorter for a
plain batch, and `append_own` for a batch that was made here.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config import LogConfig
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.codec import crc32c
from ottla.records.layout import Compression
from ottla.storage.admission import TakesLongError
from ottla.storage.log import Log
from ottla.storage.recovery import open_log
from ottla.testing.audit import batches_of
from ottla.testing.disk import SimulatedDisk

NOW = 1_700_000_000_000
HOUR = 3_600_000
NAME = TopicPartition("t", 0)
CRC_AT, CHECKSUMMED_FROM = 17, 21

Way = Callable[[Log, bytes], object]

# Each of them asks one thing more of a batch than that it is sound, or bounds what is taken the short way.
RULES: list[dict[str, Any]] = [
    {},
    {"cleanup_policy": ("compact",)},
    {"max_message_bytes": 90},
    {"segment_bytes": 90},
    {"segment_bytes": 200},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_after_max_ms": 2**63 - 1},
    {"message_timestamp_before_max_ms": HOUR},
    {"compression_type": "uncompressed"},
    {"compression_type": "gzip"},
]
texts = st.none() | st.binary(max_size=30)


def seldom(usual: Any, others: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 3 * len(others) + others)


configs = st.builds(lambda one, other: LogConfig(**{**one, **other}), st.sampled_from(RULES), seldom({}, RULES[1:]))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A producer's batch; seldom with what a topic may refuse, or with a wrong bit under a checksum right or wrong."""
    count = draw(st.integers(1, 3))
    options: dict[str, Any] = {"compression": draw(seldom(Compression.NONE, list(Compression)))}
    if draw(st.booleans()):
        options |= {
            "producer_id": draw(st.integers(1, 2)),
            "producer_epoch": draw(seldom(1, [0, 2])),
            "base_sequence": draw(st.integers(0, 3)),
            "is_transactional": draw(seldom(False, [True])),
        }
    lacks_key = draw(st.sampled_from([False, False, True]))
    keys = [None if lacks_key else b"key"] * count
    values = draw(st.lists(texts, min_size=count, max_size=count))
    a_time = seldom(NOW, [NOW - 5, NOW + 5, NOW - 2 * HOUR, NOW + 2 * HOUR, -1])
    timestamps = draw(st.lists(a_time, min_size=count, max_size=count))
    data = batch.build(keys, values, timestamps, **options)
    if draw(seldom(False, [True])):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        if draw(st.booleans()):
            struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CHECKSUMMED_FROM:])))
    return bytes(data) + draw(seldom(b"", [b"\0", b"rest" * 4]))


def long_way(log: Log, data: bytes) -> object:
    admitted = log.admission.admit(bytearray(data), NOW)
    return log.append_admitted(admitted, leader_epoch=3, now_ms=NOW)


def short_way(log: Log, data: bytes) -> object:
    return log.append(bytearray(data), leader_epoch=3, now_ms=NOW)


def short_way_of_bytes(log: Log, data: bytes) -> object:
    """Of bytes that nobody may write to."""
    return log.append(data, leader_epoch=3, now_ms=NOW)


def short_way_at_once(log: Log, data: bytes) -> object:
    """As a broker asks: what takes long goes the long way in a thread."""
    try:
        return log.append(bytearray(data), leader_epoch=3, now_ms=NOW, at_once=True)
    except TakesLongError:
        return long_way(log, data)


def outcome(way: Way, log: Log, data: bytes) -> object:
    try:
        return way(log, data)
    except ApiError as error:
        return type(error), error.code, error.message


def new_log(config: LogConfig) -> Log:
    return open_log(SimulatedDisk(), "/t-0", NAME, config, now_ms=NOW, rng=random.Random(1))


def state_of(log: Log) -> object:
    return (
        list(batches_of(log)),
        [segment.base_offset for segment in log.segments],
        log.end_offset,
        log.epochs.entries,
        log.producers.producers,
        log.producers.first_unstable_offset,
        log.active.max_timestamp,
    )


@settings(max_examples=int(os.environ.get("OTTLA_APPEND_EXAMPLES", "400")), deadline=None)
@given(
    config=configs,
    sent=st.lists(batches(), min_size=1, max_size=4),
    again=st.integers(0, 3),
    way=st.sampled_from([short_way, short_way_of_bytes, short_way_at_once]),
)
def test_a_short_way_answers_and_leaves_what_the_long_way_does(
    config: LogConfig, sent: list[bytes], again: int, way: Way
) -> None:
    expected, log = new_log(config), new_log(config)
    for data in [*sent, sent[again % len(sent)]]:
        assert outcome(way, log, data) == outcome(long_way, expected, data)
        assert state_of(log) == state_of(expected)


@settings(max_examples=60, deadline=None)
@given(
    segment_bytes=st.sampled_from([1_000_000, 400, 100]),
    sent=st.lists(st.lists(st.tuples(st.binary(max_size=9), texts), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_a_batch_of_our_own_is_stored_as_if_somebody_had_sent_it(
    segment_bytes: int, sent: list[list[tuple[bytes, bytes | None]]]
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, cleanup_policy=("compact",))
    expected, log = new_log(config), new_log(config)

    def own_way(log: Log, data: bytes) -> object:
        count = batch.read_header(data).record_count
        return log.append_own(bytearray(data), count, leader_epoch=3, now_ms=NOW)

    def long_end(log: Log, data: bytes) -> object:
        long_way(log, data)
        return log.end_offset

    for pairs in sent:
        keys, values = zip(*pairs, strict=True)
        data = bytes(batch.build_plain(keys, values, NOW))
        assert outcome(own_way, log, data) == outcome(long_end, expected, data)
        assert state_of(log) == state_of(expected)
