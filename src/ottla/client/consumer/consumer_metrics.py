"""The numbers of a consumer: what it fetched, how far behind it is, and how its group is doing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ottla.client.consumer.positions import Positions
from ottla.client.metrics import Meter, MetricName, Metrics, counted, measured

GROUP: Final = "consumer-metrics"
FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"
MS_PER_S: Final = 1000
S_PER_HOUR: Final = 3600


class FetchMetrics:
    """What Fetch requests brought. `positions` tell lag and lead when somebody reads them."""

    def __init__(self, metrics: Metrics, positions: Positions) -> None:
        self._metrics = metrics
        self._positions = positions
        self._fetches = metrics.meter(FETCH_GROUP, counted("fetch"))
        self._latency = metrics.meter(FETCH_GROUP, measured("fetch-latency"))
        self._throttle_time = metrics.meter(FETCH_GROUP, measured("fetch-throttle-time"))
        self._size = metrics.meter(FETCH_GROUP, measured("fetch-size"))
        self._per_request = metrics.meter(FETCH_GROUP, {"avg": "records-per-request-avg"})
        self._bytes = metrics.meter(FETCH_GROUP, counted("bytes-consumed"))
        self._records = metrics.meter(FETCH_GROUP, counted("records-consumed"))
        self._topics: dict[str, tuple[Meter, Meter]] = {}
        metrics.collect(self._lags)

    def answered(self, asked_at: float, now: float, throttle_ms: int) -> None:
        self._fetches.record(1, now)
        self._latency.record((now - asked_at) * MS_PER_S, now)
        self._throttle_time.record(throttle_ms, now)

    def taken(self, by_topic: dict[str, tuple[int, int]], now: float) -> None:
        """Bytes and records of one answer, by topic."""
        sizes = [size_bytes for size_bytes, _ in by_topic.values()]
        counts = [count for _, count in by_topic.values()]
        self._size.record(sum(sizes), now)
        self._per_request.record(sum(counts), now)
        self._bytes.record(sum(sizes), now)
        self._records.record(sum(counts), now)
        for topic, (size_bytes, count) in by_topic.items():
            of_bytes, of_records = self._topic(topic)
            of_bytes.record(size_bytes, now)
            of_records.record(count, now)

    def _topic(self, topic: str) -> tuple[Meter, Meter]:
        if topic not in self._topics:
            of_bytes = {**counted("bytes-consumed"), **measured("fetch-size")}
            of_records = {**counted("records-consumed"), "avg": "records-per-request-avg"}
            self._topics[topic] = (
                self._metrics.meter(FETCH_GROUP, of_bytes, topic=topic),
                self._metrics.meter(FETCH_GROUP, of_records, topic=topic),
            )
        return self._topics[topic]

    def _lags(self) -> dict[MetricName, float]:
        found: dict[MetricName, float] = {}
        lags, leads = [], []
        for (topic, number), state in list(self._positions.items()):
            if state.position is None:
                continue
            tags = {"topic": topic, "partition": str(number)}
            if state.high_watermark is not None:
                lags.append(max(0, state.high_watermark - state.position.offset))
                found[self._metrics.name("records-lag", FETCH_GROUP, **tags)] = lags[-1]
            if state.log_start_offset is not None:
                leads.append(max(0, state.position.offset - state.log_start_offset))
                found[self._metrics.name("records-lead", FETCH_GROUP, **tags)] = leads[-1]
        found[self._metrics.name("records-lag-max", FETCH_GROUP)] = max(lags, default=math.nan)
        found[self._metrics.name("records-lead-min", FETCH_GROUP)] = min(leads, default=math.nan)
        return found


class CoordinatorMetrics:
    """Of a member: its heartbeats, its rebalances, its commits."""

    def __init__(self, metrics: Metrics, positions: Positions) -> None:
        self._commits = metrics.meter(COORDINATOR_GROUP, counted("commit"))
        self._commit_latency = metrics.meter(COORDINATOR_GROUP, measured("commit-latency"))
        self._heartbeats = metrics.meter(COORDINATOR_GROUP, counted("heartbeat"))
        self._response_time = metrics.meter(COORDINATOR_GROUP, {"max": "heartbeat-response-time-max"})
        self._rebalances = metrics.meter(COORDINATOR_GROUP, {"total": "rebalance-total"})
        self._failed = metrics.meter(COORDINATOR_GROUP, {"total": "failed-rebalance-total"})
        latency = {"total": "rebalance-latency-total", **measured("rebalance-latency")}
        self._rebalance_latency = metrics.meter(COORDINATOR_GROUP, latency)
        self._last_heartbeat: float | None = None
        self._last_rebalance: float | None = None
        self._began_at: float | None = None
        metrics.gauge("assigned-partitions", COORDINATOR_GROUP, lambda: len(positions))
        metrics.gauge(
            "rebalance-rate-per-hour", COORDINATOR_GROUP, lambda: self._rebalances.rate(metrics.now()) * S_PER_HOUR
        )
        metrics.gauge(
            "failed-rebalance-rate-per-hour", COORDINATOR_GROUP, lambda: self._failed.rate(metrics.now()) * S_PER_HOUR
        )
        metrics.gauge("last-heartbeat-seconds-ago", COORDINATOR_GROUP, _ago(metrics, lambda: self._last_heartbeat))
        metrics.gauge("last-rebalance-seconds-ago", COORDINATOR_GROUP, _ago(metrics, lambda: self._last_rebalance))

    def committed(self, asked_at: float, now: float) -> None:
        self._commits.record(1, now)
        self._commit_latency.record((now - asked_at) * MS_PER_S, now)

    def heartbeat_answered(self, asked_at: float, now: float) -> None:
        self._last_heartbeat = now
        self._heartbeats.record(1, now)
        self._response_time.record((now - asked_at) * MS_PER_S, now)

    def rebalance_began(self, now: float) -> None:
        if self._began_at is None:
            self._began_at = now

    def rebalance_ended(self, now: float) -> None:
        """An assignment is taken."""
        began_at = now if self._began_at is None else self._began_at
        self._began_at, self._last_rebalance = None, now
        self._rebalances.record(1, now)
        self._rebalance_latency.record((now - began_at) * MS_PER_S, now)

    def rebalance_failed(self, now: float) -> None:
        """What was held is lost: others may have it."""
        self._began_at = None
        self._failed.record(1, now)


class PollMetrics:
    """How often the user polls, and how much of the time the consumer waits for records."""

    def __init__(self, metrics: Metrics) -> None:
        self._between = metrics.meter(GROUP, measured("time-between-poll"))
        self._idle = metrics.meter(GROUP, {"avg": "poll-idle-ratio-avg"})
        self._began_at: float | None = None
        self._idle_s = 0.0
        metrics.gauge("last-poll-seconds-ago", GROUP, _ago(metrics, lambda: self._began_at))

    def began(self, now: float) -> None:
        if self._began_at is not None and now > self._began_at:
            self._between.record((now - self._began_at) * MS_PER_S, now)
            self._idle.record(min(1.0, self._idle_s / (now - self._began_at)), now)
        self._began_at = now

    def ended(self, now: float) -> None:
        assert self._began_at is not None, "what ends has begun"
        self._idle_s = now - self._began_at


class ConsumerMetrics:
    """All numbers of a consumer."""

    def __init__(self, metrics: Metrics, positions: Positions) -> None:
        self.all = metrics
        self.fetches = FetchMetrics(metrics, positions)
        self.coordinator = CoordinatorMetrics(metrics, positions)
        self.polls = PollMetrics(metrics)


def _ago(metrics: Metrics, when: Callable[[], float | None]) -> Callable[[], float]:
    """Seconds since then; -1 where it never happened, as in Java."""

    def read() -> float:
        at = when()
        return -1.0 if at is None else metrics.now() - at

    return read
