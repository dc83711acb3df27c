"""How bytes and times look: nothing lost in JSON, nothing dangerous on a terminal."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.render import bytes_json, bytes_text, count_text, json_line, time_text


@given(st.none() | st.binary(max_size=40))
def test_json_keeps_every_byte(data):
    shown = json.loads(json_line({"value": bytes_json(data)}))["value"]
    match shown:
        case {"base64": text}:
            assert base64.b64decode(text) == data
        case str():
            assert shown.encode() == data
        case _:
            assert data is None


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), st.integers(1, 50))
def test_text_is_printable_whatever_the_bytes_are(data, bytes_max):
    assert bytes_text(data, bytes_max).isprintable()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", '""'),
        (b"plain", '"plain"'),
        (b'say "hi"\n', r'"say \"hi\"\n"'),
        ("snow ☃".encode(), '"snow ☃"'),
        (b"\x1b[31mred", "0x1b5b33316d726564"),
        (b"\xff\xfe", "0xfffe"),
        (b"0123456789ab", '"0123456789"... (12 bytes)'),
        ("012345678☃☃".encode(), '"012345678"... (15 bytes)'),
        (bytes(11), "0x00000000000000000000... (11 bytes)"),
    ],
)
def test_bytes_as_text(data, shown):
    assert bytes_text(data, 10) == shown


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "no time"),
        (-2, "1969-12-31T23:59:59.998Z"),
        (2**63 - 1, "9223372036854775807 ms"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_times(timestamp_ms, shown):
    assert time_text(timestamp_ms) == shown


def test_counts_have_their_plural():
    assert [count_text(count, "batch", "batches") for count in (0, 1, 1234)] == [
        "0 batches",
        "1 batch",
        "1,234 batches",
    ]
