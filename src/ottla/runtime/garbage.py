"""How Python's garbage collector runs in a broker: rarely, over little at a time.

A collection cannot give way, so what it looks at bounds how long everybody waits for it. After the start most objects
live as long as the broker and are looked at no more (`gc.freeze`); what requests allocate is freed by reference counts.
The youngest are looked at by the 50,000, those that survived it by the 250,000: a few milliseconds each.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 5, 400)


def collect_rarely() -> None:
    """To be called once everything that lives long is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
