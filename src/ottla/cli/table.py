"""Tables for people: a line of titles, and columns that are aligned. `--json` is for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.terminal import Style, is_coloured, note, paint, printable, width

GAP: Final = "  "
NOTHING: Final = "-"  # stands for None


@dataclass(frozen=True, slots=True)
class Cell:
    """A text or number with a meaning, which a terminal shows as a colour."""

    value: str | int
    style: Style | None = None


# Numbers are aligned to the right and get commas; ids are texts. None is shown as a dash.
Value = str | int | float | None | Cell


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[Value]], *, if_empty: str = "", indent: str = ""
) -> None:
    """Prints a table, or says on standard error that there is nothing: what reads a pipe gets no line then."""
    found = list(rows)
    if found:
        for line in table_lines(titles, found, is_coloured=is_coloured(sys.stdout)):
            print(f"{indent}{line}")
    elif if_empty:
        note(if_empty)


def print_names(titles: Sequence[str], rows: Iterable[Sequence[Value]], *, if_empty: str) -> None:
    """A list of names: a table on a terminal, and in a pipe the first column alone, one per line, as `ls` does it."""
    found = list(rows)
    if sys.stdout.isatty() or not found:
        print_table(titles, found, if_empty=if_empty)
    else:
        for row in found:
            print(_text(row[0]))


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[Value]], *, is_coloured: bool) -> Iterator[str]:
    """The lines of a table. A column is as wide as its widest cell; one of numbers is aligned to the right."""
    texts = [list(titles), *([_text(value) for value in row] for row in rows)]
    headings: list[Style | None] = [Style.HEADING] * len(titles)
    styles = [headings, *([_style(value) for value in row] for row in rows)]
    widths = [max(map(width, column)) for column in zip(*texts, strict=True)]
    to_the_right = [_are_numbers(column) for column in zip(*rows, strict=True)]
    for row, row_styles in zip(texts, styles, strict=True):
        parts = []
        for text, style, wide, is_right in zip(row, row_styles, widths, to_the_right, strict=True):
            padding = " " * (wide - width(text))
            painted = paint(text, style, is_coloured=is_coloured)
            parts.append(f"{padding}{painted}" if is_right else f"{painted}{padding}")
        yield GAP.join(parts).rstrip()


def _text(value: Value) -> str:
    match value:
        case Cell(value=inner):
            return _text(inner)
        case None:
            return NOTHING
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case str():
            return printable(value)


def _style(value: Value) -> Style | None:
    match value:
        case Cell(style=style):
            return style
        case None:
            return Style.FAINT
    return None


def _are_numbers(column: Sequence[Value]) -> bool:
    """Whether there are numbers and nothing else; what is not known does not count."""
    values = [each.value if isinstance(each, Cell) else each for each in column if each is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)
