"""Where time comes from. Pure code takes `now_ms`; shells take a `Clock`, and tests hand them one that they move."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970: what records and deadlines of the protocol mean."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)
