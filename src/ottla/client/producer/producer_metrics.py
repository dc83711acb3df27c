"""The numbers of a producer: what it sent, how large, how long it took, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.client.metrics import Meter, Metrics, counted, measured
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"
MS_PER_S: Final = 1000


class ProducerMetrics:
    def __init__(self, metrics: Metrics, accumulator: Accumulator) -> None:
        self._metrics = metrics
        self._sent = metrics.meter(GROUP, counted("record-send"))
        self._retried = metrics.meter(GROUP, counted("record-retry"))
        self._failed = metrics.meter(GROUP, counted("record-error"))
        self._split = metrics.meter(GROUP, counted("batch-split"))
        self._batch_size = metrics.meter(GROUP, measured("batch-size"))
        self._compression = metrics.meter(GROUP, {"avg": "compression-rate-avg"})
        self._queue_time = metrics.meter(GROUP, measured("record-queue-time"))
        self._latency = metrics.meter(GROUP, measured("request-latency"))
        self._requests = metrics.meter(GROUP, counted("request"))
        self._request_size = metrics.meter(GROUP, measured("request-size"))
        self._per_request = metrics.meter(GROUP, {"avg": "records-per-request-avg"})
        self._throttle_time = metrics.meter(GROUP, measured("produce-throttle-time"))
        self._topics: dict[tuple[str, str], Meter] = {}
        pool = accumulator.pool
        metrics.gauge("buffer-total-bytes", GROUP, lambda: pool.limit_bytes)
        metrics.gauge("buffer-available-bytes", GROUP, lambda: pool.available_bytes)
        metrics.gauge("waiting-threads", GROUP, lambda: pool.waiting_count)

    def _topic(self, topic: str, what: str) -> Meter:
        key = topic, what
        if key not in self._topics:
            self._topics[key] = self._metrics.meter(TOPIC_GROUP, counted(what), topic=topic)
        return self._topics[key]

    def sent(self, batches: Sequence[ProducerBatch], now: float) -> None:
        """A request goes out."""
        self._requests.record(1, now)
        self._per_request.record(sum(batch.record_count for batch in batches), now)
        self._request_size.record(sum(len(batch.data or b"") for batch in batches), now)
        for batch in batches:
            size_bytes = len(batch.data or b"")
            topic = batch.partition.topic
            self._sent.record(batch.record_count, now)
            self._topic(topic, "record-send").record(batch.record_count, now)
            self._topic(topic, "byte").record(size_bytes, now)
            self._batch_size.record(size_bytes, now)
            self._compression.record(size_bytes / max(1, batch.size_bytes), now)
            self._queue_time.record((now - batch.created_at) * MS_PER_S, now)

    def answered(self, sent_at: float, now: float, throttle_ms: int) -> None:
        self._latency.record((now - sent_at) * MS_PER_S, now)
        self._throttle_time.record(throttle_ms, now)

    def retried(self, batch: ProducerBatch, now: float) -> None:
        self._retried.record(batch.record_count, now)
        self._topic(batch.partition.topic, "record-retry").record(batch.record_count, now)

    def failed(self, batch: ProducerBatch, now: float) -> None:
        self._failed.record(batch.record_count, now)
        self._topic(batch.partition.topic, "record-error").record(batch.record_count, now)

    def split(self, now: float) -> None:
        self._split.record(1, now)
