"""What a broker's log says of its life at INFO: its start, what it found on its disks, where it serves, its stop."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Collection, Mapping

import ottla
from ottla.cluster.image import BrokerEndpoint
from ottla.runtime.clock import Clock
from ottla.runtime.listed import Listed
from ottla.storage.logs import Logs

logger = logging.getLogger(__name__)


class LifeLog:
    """The lines of one broker, and the moments from which they count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms = self._loading_ms = self._stopping_ms = 0

    def starts(self, directories: Collection[str]) -> None:
        self._started_ms = self._clock.steady_ms()
        if not logger.isEnabledFor(logging.INFO):
            return  # finding the version takes a while
        logger.info(
            "Ottla %s starts: process %d, Python %s, log directories %s",
            ottla.__version__,
            os.getpid(),
            platform.python_version(),
            Listed(directories),
        )

    def loads(self) -> None:
        self._loading_ms = self._clock.steady_ms()

    def loaded(self, logs: Logs) -> None:
        """The logs are open. What is counted here was reported one by one as warnings."""
        reports = logs.reports.values()
        logger.info(
            "%d logs were opened in %.1f s, in %d of %d log directories: %d segments (%d bytes) were checked as after "
            "a crash, %d bytes were cut off, %d logs had problems, %d cannot be read",
            len(logs),
            self._seconds_since(self._loading_ms),
            sum(directory.is_online for directory in logs.directories),
            len(logs.directories),
            sum(report.recovered_segments for report in reports),
            sum(report.recovered_bytes for report in reports),
            sum(report.dropped_bytes for report in reports),
            sum(bool(report.problems) for report in reports),
            len(logs.unreadable),
        )

    def serves(self, node_id: int, cluster_id: str, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        logger.info(
            "broker %d of cluster %s serves after %.1f s: %s",
            node_id,
            cluster_id,
            self._seconds_since(self._started_ms),
            Listed([f"{name}://{one.host}:{one.port}" for name, one in endpoints.items()]),
        )

    def stops(self, connection_count: int) -> None:
        self._stopping_ms = self._clock.steady_ms()
        logger.info("the broker stops, with %d connections", connection_count)

    def stopped(self, logs: Logs) -> None:
        took_s = self._seconds_since(self._stopping_ms)
        logger.info("the broker has stopped in %.1f s; %d logs were closed", took_s, len(logs))

    def _seconds_since(self, since_ms: int) -> float:
        return (self._clock.steady_ms() - since_ms) / 1000
