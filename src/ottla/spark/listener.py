"""Reports what streaming queries do, batch by batch, into the topic `__ottla_pipelines`.

    ottla.spark.report(spark, "127.0.0.1:9092")

`ottla pipeline status` shows them. Reports are sent beside the queries, which never wait for one; a report that cannot
be sent is logged and left out, and the next one says more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.blocking import Blocking
from ottla.client.metadata import ClientOptions
from ottla.client.pipelines import PipelineReport, PipelineState, ensure_topic, write_report
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.errors import OttlaError
from ottla.net.client import ConnectionOptions, connect_tcp
from ottla.runtime.clock import SystemClock
from ottla.spark.option_reader import OptionReader
from ottla.spark.security_options import Security, take_security
from ottla.spark.stream_lag import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)

ERROR_CHARS_MAX: Final = 2000
CLIENT: Final = ClientOptions(ConnectionOptions(client_id="ottla-spark-reports"))


def report(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str] | None = None) -> PipelineListener:
    """Reports all queries of a session from now on; `close` the result to stop that.

    options: those of a source or a sink; what they say of TLS and of the login is used here as well.
    """
    listener = PipelineListener(spark, bootstrap_servers, take_security(OptionReader(options or {}, {})))
    spark.streams.addListener(listener)
    return listener


def report_of_progress(progress: Mapping[str, Any]) -> PipelineReport:
    """What a progress of Spark says, as it comes in JSON."""
    event_time = progress.get("eventTime") or {}
    operators = progress.get("stateOperators") or []
    at_ms = _ms(progress["timestamp"])
    newest = event_time.get("max")
    return PipelineReport(
        query_id=progress["id"],
        run_id=progress["runId"],
        name=progress.get("name") or progress["id"],
        state=PipelineState.RUNNING,
        at_ms=at_ms,
        batch_id=progress["batchId"],
        rows=progress.get("numInputRows", 0),
        input_rows_per_s=progress.get("inputRowsPerSecond") or 0.0,
        processed_rows_per_s=progress.get("processedRowsPerSecond") or 0.0,
        duration_ms=(progress.get("durationMs") or {}).get("triggerExecution", 0),
        lag={str(partition): offsets for partition, offsets in lag(progress).partitions.items()},
        watermark=event_time.get("watermark", ""),
        freshness_ms=None if newest is None else max(0, at_ms - _ms(newest)),
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        state_bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
    )


def _ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


class PipelineListener(StreamingQueryListener):
    """Sends a report after every batch and at the end of every query."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, security: Security | None = None) -> None:
        self._session = spark
        connector = connect_tcp if security is None else security.connector()
        self._client = Blocking(bootstrap_servers, CLIENT, connector).__enter__()
        try:
            self._client.wait(ensure_topic(self._client.cluster))
        except BaseException:
            self._client.__exit__()
            raise
        self._producer = ClusterProducer(self._client.cluster, enable_idempotence=False)
        self._client.close_with(self._producer.close)
        self._last: dict[str, PipelineReport] = {}
        # Spark calls from a thread of its own, also for a while after the listener was removed.
        self._lock = threading.Condition()
        self._is_closed = False
        self._sending: list[Future[None]] = []

    def wait_for_ends(self, timeout_s: float) -> None:
        """Waits until Spark has reported the end of every query whose start it reported; not for longer than that."""
        with self._lock:
            self._lock.wait_for(lambda: not self._last, timeout_s)

    def close(self) -> None:
        """Sends what is on its way, and no more."""
        self._session.streams.removeListener(self)
        with self._lock:
            self._is_closed = True
        for sending in self._sending:
            sending.result()
        self._client.__exit__()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        name = event.name or str(event.id)
        self._send(PipelineReport(str(event.id), str(event.runId), name, PipelineState.RUNNING, _ms(event.timestamp)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        self._send(report_of_progress(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        self._change(str(event.id), PipelineState.IDLE, _ms(event.timestamp))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        error = (event.exception or "")[:ERROR_CHARS_MAX]
        state = PipelineState.FAILED if error else PipelineState.STOPPED
        self._change(str(event.id), state, None, error)
        with self._lock:
            self._last.pop(str(event.id), None)
            self._lock.notify_all()

    def _change(self, query_id: str, state: PipelineState, at_ms: int | None, error: str = "") -> None:
        if (last := self._last.get(query_id)) is not None and last.state is not state:
            self._send(replace(last, state=state, at_ms=at_ms or SystemClock().now_ms(), error=error))

    def _send(self, new: PipelineReport) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._last[new.query_id] = new
            self._sending = [each for each in self._sending if not each.done()]
            self._sending.append(self._client.start(self._write(new)))

    async def _write(self, new: PipelineReport) -> None:
        try:
            await write_report(self._producer, new)
        except OttlaError as error:
            _log.warning("a report of the query %s was not sent: %s", new.name, error)
