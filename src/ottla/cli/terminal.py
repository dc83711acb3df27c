"""What people see: colour where a terminal shows it, and remarks beside the output, on standard error."""

from __future__ import annotations

import os
import sys
import unicodedata
from enum import Enum
from typing import TextIO


class Style(Enum):
    """What a text means; the value is how a terminal shows it (ECMA-48, SGR)."""

    HEADING = "1"  # bold
    GOOD = "32"  # green
    WARNING = "33"  # yellow
    BAD = "31"  # red
    FAINT = "2"


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal, unless the user has said no (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, style: Style | None, *, is_coloured: bool) -> str:
    return f"\x1b[{style.value}m{text}\x1b[0m" if style is not None and is_coloured and text else text


def printable(text: str) -> str:
    """The text with control characters escaped: a name must not move the cursor or hide what stands beside it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def width(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(each) for each in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def report_error(text: str) -> None:
    """Says why a command failed."""
    _remark(text, Style.BAD)


def warn(text: str) -> None:
    """Says what may not be what the user wants; the command goes on."""
    _remark(f"warning: {text}", Style.WARNING)


def note(text: str) -> None:
    """Says something that belongs to no output, such as that a list is empty."""
    _remark(text, None)


def _remark(text: str, style: Style | None) -> None:
    prefix = paint("ottla:", style, is_coloured=is_coloured(sys.stderr))
    print(f"{prefix} {text}", file=sys.stderr, flush=True)
