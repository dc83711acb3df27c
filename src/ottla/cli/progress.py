"""Progress of long work: one line on a terminal that is written over, and nothing anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from ottla.cli.terminal import Style, is_coloured, paint

EVERY_S: Final = 0.2
_ERASE_LINE: Final = "\r\x1b[K"


class Progress:
    """Shows the newest text on standard error, at most a few times a second, and removes it at the end.

    with Progress() as progress:
        for batch in batches:
            send(batch)
            progress.show(lambda: f"{sent:,} records")
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_wanted: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_wanted`: False where the line would stand between others, such as records on the same terminal."""
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        # Nothing on a dumb terminal, which cannot go back to the beginning of a line; without colour, it can.
        self._is_shown = is_wanted and self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._next_s = clock() + EVERY_S  # work that is done at once shows nothing
        self._has_line = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: Callable[[], str]) -> None:
        """`text` is asked for only when the line is written: work in small steps can call this in each of them."""
        if self._is_shown and (now := self._clock()) >= self._next_s:
            self._next_s = now + EVERY_S
            self._has_line = True
            line = paint(text(), Style.FAINT, is_coloured=is_coloured(self._stream))
            self._stream.write(f"{_ERASE_LINE}{line}")
            self._stream.flush()

    def clear(self) -> None:
        """Makes room for other output."""
        if self._has_line:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
            self._has_line = False
