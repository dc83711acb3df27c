"""Numbers about a client, under Kafka's names.

Totals count for ever; rates, averages and maxima cover the last windows (`metrics.num.samples` of
`metrics.sample.window.ms` each) and are NaN while there was nothing to measure. A number is worked out when somebody
reads it. A reporter is an object with `init(metrics)` and `close()`: it reads `metrics.values()` when it likes.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

log = logging.getLogger("ottla.client")


class MetricName(NamedTuple):
    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


def counted(name: str) -> dict[str, str]:
    """The names of what is counted."""
    return {"total": f"{name}-total", "rate": f"{name}-rate"}


def measured(name: str) -> dict[str, str]:
    """The names of what has a size or takes time."""
    return {"avg": f"{name}-avg", "max": f"{name}-max"}


class _Window:
    __slots__ = ("count", "max", "since", "sum")

    def __init__(self, since: float) -> None:
        self.since = since
        self.sum = 0.0
        self.count = 0
        self.max = -math.inf


class Meter:
    """One thing that is measured: a total, and the last windows."""

    def __init__(self, window_s: float, window_count: int) -> None:
        self.total = 0.0
        self._window_s = window_s
        self._windows: deque[_Window] = deque(maxlen=window_count)

    def record(self, value: float, now: float) -> None:
        self.total += value
        if not self._windows or now - self._windows[-1].since >= self._window_s:
            self._windows.append(_Window(now))
        window = self._windows[-1]
        window.sum += value
        window.count += 1
        window.max = max(window.max, value)

    def rate(self, now: float) -> float:
        windows = self._recent(now)
        if not windows:
            return 0.0
        # As if the windows before the first had been empty: a rate does not leap at the start.
        covered_s = max(now - windows[0].since, self._window_s * ((self._windows.maxlen or 1) - 1), 1e-9)
        return sum(window.sum for window in windows) / covered_s

    def average(self, now: float) -> float:
        windows = self._recent(now)
        count = sum(window.count for window in windows)
        return sum(window.sum for window in windows) / count if count else math.nan

    def maximum(self, now: float) -> float:
        return max((window.max for window in self._recent(now)), default=math.nan)

    def _recent(self, now: float) -> list[_Window]:
        age_s = self._window_s * (self._windows.maxlen or 1)
        return [window for window in self._windows if now - window.since < age_s]


class Metrics:
    """All numbers of one client. `clock` is steady, in seconds."""

    def __init__(
        self, client_id: str, clock: Callable[[], float], window_s: float, window_count: int, reporters: Sequence[Any]
    ) -> None:
        self._client_id = client_id
        self._clock = clock
        self._window_s = window_s
        self._window_count = window_count
        self._reporters = list(reporters)
        self._readers: dict[MetricName, Callable[[float], float]] = {}
        self._collections: list[Callable[[], Mapping[MetricName, float]]] = []

    def start(self) -> None:
        for reporter in self._reporters:
            reporter.init(self)

    def close(self) -> None:
        for reporter in self._reporters:
            try:
                reporter.close()
            except Exception:
                log.exception("closing the metric reporter %s failed", type(reporter).__name__)

    def now(self) -> float:
        return self._clock()

    def name(self, name: str, group: str, **tags: str) -> MetricName:
        return MetricName(name, group, (("client-id", self._client_id), *sorted(tags.items())))

    def gauge(self, name: str, group: str, read: Callable[[], float]) -> None:
        self._readers[self.name(name, group)] = lambda now: read()

    def collect(self, read: Callable[[], Mapping[MetricName, float]]) -> None:
        """Numbers whose names are only known when they are read, such as those of each partition."""
        self._collections.append(read)

    def meter(self, group: str, names: Mapping[str, str], **tags: str) -> Meter:
        """A meter whose numbers are read under these names: `total`, `rate`, `avg` and `max`, as far as given."""
        meter = Meter(self._window_s, self._window_count)
        readers: dict[str, Callable[[float], float]] = {
            "total": lambda now: meter.total,
            "rate": meter.rate,
            "avg": meter.average,
            "max": meter.maximum,
        }
        for kind, name in names.items():
            self._readers[self.name(name, group, **tags)] = readers[kind]
        return meter

    def values(self) -> dict[MetricName, float]:
        now = self._clock()
        found = {name: read(now) for name, read in list(self._readers.items())}
        for collect in self._collections:
            found |= collect()
        return found
