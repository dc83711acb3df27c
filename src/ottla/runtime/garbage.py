"""How Python's garbage collector runs in a broker: rarely, over little at a time.

A collection cannot give way, so what it looks at bounds how long everybody waits for it. After the start most objects
live as long as the broker and are looked at no more (`gc.freeze`); what requests allocate is freed by reference counts.
The youngest are looked at by the 10,000, those that survived it by the 50,000: 3 and 20 ms each. Five times as many
took 15 and 80 ms, which was the longest wait beside most large requests.
"""

from __future__ import annotations

import gc

THRESHOLDS = (10_000, 5, 2_000)


def collect_rarely() -> None:
    """To be called once everything that lives long is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
