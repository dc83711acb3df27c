"""Lines to records and records to bytes: nothing lost, nothing invented."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.command import CommandError, ExitCode
from ottla.cli.formats import (
    BadLineError,
    LineFormat,
    LineSplitter,
    compile_format,
    json_renderer,
    parse_json_line,
    unescape,
)
from ottla.ids import TopicPartition
from ottla.records.layout import Columns

PLACE = TopicPartition("orders", 3)
RECORDS = Columns(
    offsets=range(7, 10),
    timestamps=[100, 200, 300],
    keys=[b"k", None, b"\xff"],
    values=[b"v", b"100%", None],
    headers=[(("a", b"1"), ("b", None)), (), ()],
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("%v\\n", b"v\n100%\nnull\n"),
        ("%s\\n", b"v\n100%\nnull\n"),
        ("%t-%p-%o %k:%v\\n", b"orders-3-7 k:v\norders-3-8 null:100%\norders-3-9 \xff:null\n"),
        ("%T %S %K|", b"100 1 1|200 4 -1|300 -1 1|"),
        ("%h;", b"a=1,b=null;;;"),
        ("%%%o\\t\\x00\\x25", b"%7\t\x00%%8\t\x00%%9\t\x00%"),
        ("→%o", "→7→8→9".encode()),
        ("x", b"xxx"),
        ("", b""),
        ("%p", b"333"),
    ],
)
def test_a_format_says_how_a_record_is_written(text, lines):
    assert compile_format(text, b"null")(PLACE, RECORDS) == lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%q", "%q is not a field"),
        ("100%", "% is not a field"),
        ("\\q", "\\q is not an escape sequence"),
        ("\\x1", "\\x is not an escape sequence"),
        ("\\", "\\ is not an escape sequence"),
    ],
)
def test_a_bad_format_is_refused_with_what_would_be_good(text, words):
    with pytest.raises(CommandError) as caught:
        compile_format(text, b"")
    assert caught.value.code is ExitCode.USAGE
    assert words in str(caught.value)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_lines_do_not_depend_on_the_pieces_they_come_in(lines, piece_bytes):
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = [line for at in range(0, len(data), piece_bytes) for line in splitter.feed(data[at : at + piece_bytes])]
    assert found == lines
    assert splitter.end() == []


def test_the_last_line_needs_no_end():
    splitter = LineSplitter()
    assert splitter.feed(b"a\r\n\nb") == [b"a\r", b""]
    assert splitter.end() == [b"b"]
    assert splitter.end() == []


def test_a_line_is_a_value():
    records = LineFormat().parse([b"a:b", b"", b"\xff"], 5)
    assert (records.keys, records.values, records.headers) == (None, [b"a:b", b"", b"\xff"], None)


def test_the_first_separator_parts_key_and_value():
    records = LineFormat(key_separator=b"::").parse([b"k::v::w", b"::", b"k::null"], 5)
    assert records.keys == [b"k", b"", b"k"]
    assert records.values == [b"v::w", b"", b"null"]


def test_the_null_marker_is_null():
    records = LineFormat(key_separator=b":", null_marker=b"NULL", headers=(("h", b"1"),)).parse([b"NULL:NULL"], 5)
    assert (records.keys, records.values, records.headers) == ([None], [None], [(("h", b"1"),)])


def test_a_line_without_its_separator_is_named():
    with pytest.raises(BadLineError) as caught:
        LineFormat(key_separator=b":\xff").parse([b"a:\xffb", b"ab"], 5)
    assert caught.value.index == 1
    assert "the separator ':\\\\xff' after the key" in str(caught.value)


@given(
    st.none() | st.binary(max_size=10),
    st.none() | st.binary(max_size=10),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    st.integers(0, 2**62),
)
def test_what_consume_writes_as_json_produce_reads(key, value, headers, timestamp):
    columns = Columns([4], [timestamp], [key], [value], [tuple(headers)])
    record = parse_json_line(0, json_renderer()(PLACE, columns))
    assert (record.key, record.value, list(record.headers)) == (key, value, headers)
    assert (record.timestamp, record.partition) == (timestamp, 3)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"value": 5}',
        b'{"value": {"base64": "?"}}',
        b'{"value": {"hex": "00"}}',
        b'{"headers": [1]}',
        b'{"headers": "ab"}',
        b'{"headers": [["a"]]}',
        b'{"kye": "a"}',
        b'{"timestamp": "now"}',
        b'{"timestamp": 9223372036854775808}',
        b'{"partition": -1}',
        b'{"partition": true}',
    ],
)
def test_what_is_no_json_record_is_refused(line):
    with pytest.raises(BadLineError):
        parse_json_line(0, line)


def test_a_field_with_a_typo_gets_a_suggestion():
    with pytest.raises(BadLineError, match="no field 'vlaue'; did you mean `value`"):
        parse_json_line(0, b'{"vlaue": "a"}')
    assert parse_json_line(0, b'{"topic": "t", "offset": 7}').key is None  # what consume --json writes


def test_headers_may_be_an_object():
    assert parse_json_line(0, b'{"headers": {"ab": "d", "e": null}}').headers == (("ab", b"d"), ("e", None))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\\t", b"\t"), ("\\x00;", b"\0;"), ("\\\\n", b"\\n"), ("\\q", b"\\q"), ("é\\n", "é\n".encode())],
)
def test_escapes_of_separators(text, expected):
    assert unescape(text) == expected


def test_headers_and_keys_of_lines():
    parsed = LineFormat(key_separator=b":", headers_separator=b" ", headers=(("of", b"all"),)).parse(
        [b"a=1,b=2 k:v", b" k2:v2"], 7
    )
    assert parsed.headers == [(("of", b"all"), ("a", b"1"), ("b", b"2")), (("of", b"all"),)]
    assert (parsed.keys, parsed.values) == ([b"k", b"k2"], [b"v", b"v2"])
    for line in (b"no-separator", b"noequals k:v", b"a=1 no-colon"):
        with pytest.raises(BadLineError) as bad:
            LineFormat(key_separator=b":", headers_separator=b" ").parse([b"a=1 k:v", line], 7)
        assert bad.value.index == 1


def test_a_json_record_needs_no_field():
    record = parse_json_line(0, b"{}")
    assert (record.key, record.value, record.headers, record.timestamp, record.partition) == (
        None,
        None,
        (),
        None,
        None,
    )


def test_json_has_everything_of_a_record():
    first = json.loads(json_renderer()(PLACE, RECORDS).splitlines()[0])
    assert first == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": 100,
        "key": "k",
        "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }
