"""Every short way into a log admits what the long way admits, refuses what it refuses, and leaves the same log.

The long way is `admission.admit`, which looks at everything in order, and `append_admitted`. `append` is shorter for a
plain batch, and `append_own` for a batch that was made here. What a follower fetched goes batch by batch the long way.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config import LogConfig
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.records import batch, control
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

Way = Callable[[Log, Any], object]

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


def outcome(way: Way, log: Log, data: bytes | memoryview) -> object:
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


MARKERS = [control.EndTransactionMarker(commit, 0) for commit in (False, True)]
follower_configs = st.builds(
    lambda one, other: LogConfig(**{**one, **other}),
    seldom({}, [{"segment_bytes": 90}, {"segment_bytes": 250}, {"segment_ms": 100, "segment_jitter_ms": 50}]),
    seldom(
        {},
        [
            {"index_interval_bytes": 0},
            {"index_interval_bytes": 150},
            *({"segment_index_bytes": size} for size in (12, 24, 40)),
        ],
    ),
)


@st.composite
def responses(draw: st.DrawFn) -> list[bytes]:
    """What a leader sends, response by response; seldom with a gap, a new epoch, a marker or damage among it."""
    offset, epoch, sequences = draw(seldom(0, [3, 2**31])), 0, {1: 0, 2: 0}
    sent = []
    for _ in range(draw(st.integers(1, 4))):
        batches = []
        for _ in range(draw(st.integers(0, 5))):
            offset += draw(seldom(0, [1, 2**31, -1]))
            epoch = max(0, epoch + draw(seldom(0, [1, -1])))
            timestamp = draw(seldom(NOW, [-1, NOW + 5, NOW + 80, NOW + 200, NOW - 300]))
            producer_id = draw(seldom(-1, [1, 1, 2]))
            count = draw(st.integers(1, 3))
            place: Any = {"base_offset": max(0, offset), "leader_epoch": epoch}
            if producer_id > 0 and not draw(st.integers(0, 3)):
                count, marker = 1, draw(st.sampled_from(MARKERS))
                data = control.build_marker(producer_id, 0, marker, timestamp, **place)
            else:
                if producer_id > 0:
                    place |= {"producer_id": producer_id, "producer_epoch": 0}
                    place |= {"base_sequence": sequences[producer_id], "is_transactional": draw(st.booleans())}
                    sequences[producer_id] += count
                data = batch.build(None, [b"v" * draw(st.integers(0, 30))] * count, timestamp, **place)
            batches.append(bytes(data))
            offset += count
        piece = bytearray(b"".join(batches))
        if piece and draw(seldom(False, [True])):
            piece[draw(st.integers(0, len(piece) - 1))] ^= 1 << draw(st.integers(0, 7))
        sent.append(bytes(piece[: draw(seldom(len(piece), [len(piece) - 1, len(piece) // 2]))]))
    return sent


def indexed(log: Log) -> object:
    return [
        (
            list(segment.offset_index.entries()),
            list(segment.time_index.entries()),
            list(segment.transaction_index.entries()),
            segment.max_timestamp,
            segment.first_timestamp,
            segment.bytes_since_index,
            segment.index_bytes_needed,
            segment.size_bytes,
        )
        for segment in log.segments
    ]


@settings(max_examples=int(os.environ.get("OTTLA_APPEND_EXAMPLES", "400")), deadline=None)
@given(config=follower_configs, sent=responses(), waits=st.lists(st.sampled_from([0, 60, 200]), min_size=4, max_size=4))
def test_a_follower_takes_a_response_as_if_its_batches_came_one_by_one(
    config: LogConfig, sent: list[bytes], waits: list[int]
) -> None:
    expected, log = new_log(config), new_log(config)
    now_ms = NOW
    for data, wait_ms in zip(sent, waits, strict=False):
        now_ms += wait_ms
        at_once = partial(Log.append_as_follower, now_ms=now_ms)
        one_by_one = partial(Log._append_one_by_one, now_ms=now_ms)
        answer, expected_answer = outcome(at_once, log, data), outcome(one_by_one, expected, memoryview(data))
        assert answer == (log.end_offset if expected_answer is None else expected_answer)
        assert state_of(log) == state_of(expected)
        assert indexed(log) == indexed(expected)
        assert log.producers.snapshot() == expected.producers.snapshot()
        assert log.producers.end_offset == expected.producers.end_offset
