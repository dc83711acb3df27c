"""How Python's garbage collector runs in a broker: rarely, over little at a time.

A collection cannot give way, so what it looks at bounds how long everybody waits for it. After the start most objects
live as long as the broker and are looked at no more (`gc.freeze`); what requests allocate is freed by reference counts.
The youngest are looked at by the 2,000, those that survived it by the 12,000: less than 1 and about 4 ms each. Five
times as many at a time took 20 ms and more: the longest wait beside most large requests.
"""

from __future__ import annotations

import gc

THRESHOLDS = (2_000, 5, 10_000)


def collect_rarely() -> None:
    """To be called once everything that lives long is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
