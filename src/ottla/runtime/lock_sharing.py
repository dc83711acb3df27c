"""How soon a thread that computes hands over the interpreter's lock: soon, for the loop asks for it very often.

Every call of the system gives the lock up, and to have it back beside a thread that computes takes Python's switch
interval, 5 ms by default. A turn of a dozen such calls, as one that rolls a segment, took 60 ms with 2 ms of work in it
while a large request was decoded in a thread; each answer, three calls, took 15.
"""

from __future__ import annotations

import sys

SWITCH_INTERVAL_S = 0.0005


def share_lock_often() -> None:
    """For the whole process, which must be a broker's own."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
