"""How the tours print: a line for each step, and the end where something does not hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def step(title: str) -> Iterator[list[str]]:
    """Prints one line: what was done, how long it took, and what came of it, which the block appends to the notes."""
    print(f"  {title:<38}", end="", flush=True)
    notes: list[str] = []
    started = time.perf_counter()
    yield notes
    print(f"{time.perf_counter() - started:7.2f} s   {', '.join(notes)}", flush=True)


def check(is_right: bool, claim: str) -> str:
    """The claim, for the notes; where it does not hold, the program ends here."""
    if not is_right:
        sys.exit(f"\nit ends here: {claim} does not hold")
    return claim
