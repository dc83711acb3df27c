"""The compiled steps of a repeated Produce request do what their Python reference does, on any bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker import repeated_produce as reference

compiled = pytest.importorskip("ottla.broker._repeat", reason="the compiled core was not built here")

KEY = b"the bytes before the records"
KEY_END = reference.KEY_START + len(KEY)


def frame_of(version: int, size_field: bytes, rest: bytes) -> memoryview:
    return memoryview(bytes([0, 0, 0, version]) + b"\0\0\0\7" + KEY + size_field + rest)


def target(version: int) -> dict[int, dict[bytes, Any]]:
    return {KEY_END: {KEY: SimpleNamespace(head=bytes([0, 0, 0, version]))}, 9: {b"x": None}}


RECORDS = bytes(16) + b"\2" + bytes(50)


@given(st.sampled_from([7, 8, 9, 13]), st.binary(max_size=6), st.binary(max_size=90))
@example(8, len(RECORDS).to_bytes(4, "big"), RECORDS)
@example(9, bytes([len(RECORDS) + 1]), RECORDS + b"\0\0\0")
@example(9, bytes([len(RECORDS) + 1]), RECORDS + b"\0\1\0")
@example(9, b"\xff\xff\xff\xff", RECORDS)
@example(8, b"\xff\xff\xff\xff", RECORDS)
@example(9, b"", b"")
def test_both_find_the_same_records(version: int, size_field: bytes, rest: bytes) -> None:
    frame = frame_of(version, size_field, rest)
    targets = target(version)
    expected = reference.locate(frame, targets)
    found = compiled.locate(frame, targets)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0] is expected[0]
        assert bytes(found[1]) == bytes(expected[1])


def test_the_records_of_a_repeated_request_are_found() -> None:
    for version, size_field, rest in (
        (8, len(RECORDS).to_bytes(4, "big"), RECORDS),
        (9, bytes([len(RECORDS) + 1]), RECORDS + b"\0\0\0"),
    ):
        found = compiled.locate(frame_of(version, size_field, rest), target(version))
        assert bytes(found[1]) == RECORDS


@pytest.mark.parametrize("length", range(8))
def test_a_frame_that_is_too_short_is_nobodys(length: int) -> None:
    assert compiled.locate(memoryview(bytes(length)), target(9)) is None


int64s = st.integers(-(2**63), 2**63 - 1)


@given(st.binary(min_size=0, max_size=40), st.binary(max_size=40), int64s, int64s, int64s)
def test_both_fill_an_answer_alike(before: bytes, after: bytes, base: int, time_ms: int, start: int) -> None:
    answer = bytes(8) + before + bytes(24) + after
    frame = frame_of(9, b"\1", b"")
    at = 8 + len(before)
    expected = reference.fill(answer, at, frame, base, time_ms, start)
    assert compiled.fill(answer, at, frame, base, time_ms, start) == expected
