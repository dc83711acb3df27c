"""Where time comes from. Pure code takes `now_ms`; shells take a `Clock`, and tests hand them one that they move.

Wall time is what records carry and what people read. It jumps: by an hour when somebody sets the clock, by years when
a machine without a battery finds its time server. So whatever measures how long something takes (sessions, timeouts,
pauses) does it by steady time, which only goes forward and means nothing outside of this process.
"""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970: what the timestamps of the protocol and of records mean."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment, however the wall clock is set."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def steady_ms(self) -> int:
        return int(time.monotonic() * 1000)


# Wall time in nanoseconds: a producer asks for every record, and a method around it costs more than the clock itself.
wall_time_ns: Final = time.time_ns
