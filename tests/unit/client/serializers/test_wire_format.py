"""Confluent's wire format, byte by byte."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.serializers.wire_format import (
    INDEXES_MAX,
    KEY_HEADER,
    VALUE_HEADER,
    FormatError,
    Framed,
    header_of,
    prefix_of,
    unframed,
)

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("indexes", "data"),
    [
        (None, b"\0\0\0\1\2"),
        ((0,), b"\0\0\0\1\2\0"),  # the short form
        ((1,), b"\0\0\0\1\2\2\2"),
        ((2, 0), b"\0\0\0\1\2\4\4\0"),
        ((0, 100), b"\0\0\0\1\2\4\0\xc8\1"),
    ],
)
def test_a_prefix_is_a_zero_the_id_and_the_indexes(indexes, data):
    assert prefix_of(258, indexes) == data
    has_indexes = indexes is not None
    found = unframed(data + b"body", [], is_key=False, has_indexes=has_indexes)
    assert found == Framed(258, indexes or (), b"body")


def test_a_header_has_the_guid_and_the_value_is_bare():
    mark = header_of(GUID, (1,))
    assert mark == b"\1" + GUID.bytes + b"\2\2"
    headers = [("other", b"x"), (VALUE_HEADER, mark)]
    assert unframed(b"body", headers, is_key=False, has_indexes=True) == Framed(GUID, (1,), b"body")


def test_the_header_counts_before_the_prefix_and_the_one_of_the_key_is_not_of_the_value():
    headers = [(KEY_HEADER, header_of(GUID))]
    assert unframed(prefix_of(7) + b"body", headers, is_key=False) == Framed(7, (), b"body")
    assert unframed(prefix_of(7) + b"body", headers, is_key=True) == Framed(GUID, (), prefix_of(7) + b"body")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with nothing"),
        (b"{}", "begins with byte 123"),
        (b"\0\0\0\1", "4 bytes are too few"),
        (b"\1" + bytes(15), "16 bytes are too few"),
    ],
)
def test_other_bytes_are_refused_and_kept_in_the_error(data, message):
    with pytest.raises(FormatError, match=message) as caught:
        unframed(data, [], is_key=False)
    assert caught.value.data == data


@pytest.mark.parametrize("indexes", [b"", b"\2", b"\1", b"\xff\xff\xff\xff\xff\xff", b"\x86\2" + bytes(200)])
def test_indexes_that_cannot_be_are_refused(indexes):
    with pytest.raises(FormatError):
        unframed(b"\0\0\0\0\1" + indexes, [], is_key=False, has_indexes=True)


def test_a_header_with_more_than_it_should_have_is_refused():
    with pytest.raises(FormatError, match="18 bytes, and only 17"):
        unframed(b"", [(VALUE_HEADER, header_of(GUID) + b"x")], is_key=False)


@given(st.binary(max_size=40), st.booleans())
def test_arbitrary_bytes_are_taken_apart_or_refused(data, has_indexes):
    try:
        found = unframed(data, [], is_key=False, has_indexes=has_indexes)
    except FormatError:
        return
    assert data.endswith(found.body)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**30), min_size=1, max_size=INDEXES_MAX), st.binary())
def test_what_is_put_together_comes_apart(schema_id, indexes, body):
    framed = unframed(prefix_of(schema_id, indexes) + body, [], is_key=False, has_indexes=True)
    assert framed == Framed(schema_id, tuple(indexes), body)
