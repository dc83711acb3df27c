"""Tables, colours and progress: what people see, and what a pipe gets instead."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from ottla.cli.progress import Progress
from ottla.cli.table import Cell, Value, print_names, print_table, table_lines
from ottla.cli.terminal import Style, is_coloured, note, paint, printable, report_error, warn, width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
    ],
)
def test_only_a_terminal_that_may_be_coloured_is(stream, environment, expected, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_coloured(stream) is expected


def test_a_terminal_without_a_name_is_taken_for_a_dumb_one(monkeypatch):
    monkeypatch.delenv("TERM")
    assert not is_coloured(Terminal())


def test_columns_are_aligned_and_numbers_stand_on_the_right():
    rows = [("orders", 12, Cell("ok", Style.GOOD)), ("a", 1_000_000, None)]
    assert list(table_lines(("TOPIC", "RECORDS", "STATE"), rows, is_coloured=False)) == [
        "TOPIC     RECORDS  STATE",
        "orders         12  ok",
        "a       1,000,000  -",
    ]


def test_colour_does_not_count_for_the_width():
    rows: list[tuple[Value, ...]] = [(Cell("down", Style.BAD), "x"), ("running", "y")]
    _, first, second = table_lines(("STATE", "NAME"), rows, is_coloured=True)
    assert first == "\x1b[31mdown\x1b[0m     x"
    assert second == "running  y"


def test_wide_characters_take_two_columns_and_marks_none():
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert list(table_lines(("GROUP", "N"), [("日本", 1), ("plain", 2)], is_coloured=False))[1] == "日本   1"


def test_names_cannot_move_the_cursor():
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert "\x1b" not in "".join(table_lines(("GROUP",), [("\x1b[31m",)], is_coloured=False))


def test_an_empty_list_is_a_word_on_standard_error(capsys):
    print_table(("A",), [], if_empty="no topics")
    print_names(("A",), [], if_empty="no groups")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "ottla: no topics\nottla: no groups\n"


def test_names_are_a_table_on_a_terminal_and_lines_in_a_pipe(capsys, monkeypatch):
    rows = [("orders", 3), ("access", 1)]
    print_names(("TOPIC", "PARTITIONS"), rows, if_empty="")
    assert capsys.readouterr().out == "orders\naccess\n"
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    print_names(("TOPIC", "PARTITIONS"), rows, if_empty="")
    assert screen.getvalue() == "TOPIC   PARTITIONS\norders           3\naccess           1\n"


def test_remarks_go_to_standard_error_with_a_colour_of_their_own(capsys, monkeypatch):
    report_error("it failed")
    warn("look out")
    note("nothing to see")
    captured = capsys.readouterr()
    assert captured.err == "ottla: it failed\nottla: warning: look out\nottla: nothing to see\n"
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    report_error("it failed")
    assert screen.getvalue() == "\x1b[31mottla:\x1b[0m it failed\n"


def test_nothing_is_painted_without_a_style_or_a_text():
    assert paint("x", None, is_coloured=True) == "x"
    assert paint("", Style.BAD, is_coloured=True) == ""


def ticks() -> Iterator[float]:
    return (float(number) for number in count())


def test_progress_is_one_line_that_is_removed_at_the_end(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    clock = ticks()
    with Progress(screen, clock=lambda: next(clock)) as progress:
        progress.show(lambda: "1 of 2")
        progress.show(lambda: "2 of 2")
    assert screen.getvalue() == "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K"


def test_progress_is_not_shown_more_often_than_anybody_can_read():
    screen = Terminal()
    with Progress(screen, clock=lambda: 5.0) as progress:
        progress.show(lambda: pytest.fail("asked for a text that is not shown"))
    assert screen.getvalue() == ""


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_progress_is_only_for_terminals(term, monkeypatch):
    monkeypatch.setenv("TERM", term)
    stream = Terminal() if term == "dumb" else io.StringIO()
    clock = ticks()
    with Progress(stream, clock=lambda: next(clock)) as progress:
        progress.show(lambda: "never")
    assert stream.getvalue() == ""
