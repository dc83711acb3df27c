"""A progress of Spark as a report."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from ottla.client.pipelines import PipelineReport, PipelineState
from ottla.spark.listener import report_of_progress

PROGRESS = {
    "id": "q",
    "runId": "r",
    "name": None,
    "timestamp": "2023-11-14T22:13:20.000Z",
    "batchId": 4,
    "numInputRows": 70,
    "inputRowsPerSecond": 7.0,
    "processedRowsPerSecond": 35.0,
    "durationMs": {"triggerExecution": 120, "addBatch": 80},
    "eventTime": {"max": "2023-11-14T22:13:18.500Z", "watermark": "2023-11-14T22:12:18.500Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 100},
        {"numRowsTotal": 6, "memoryUsedBytes": 200},
    ],
    "sources": [{"endOffset": {"a": {"0": 3}}, "latestOffset": {"a": {"0": 10}}}],
}


def test_a_report_has_what_matters_of_a_progress() -> None:
    assert report_of_progress(PROGRESS) == PipelineReport(
        query_id="q",
        run_id="r",
        name="q",
        state=PipelineState.RUNNING,
        at_ms=1_700_000_000_000,
        batch_id=4,
        rows=70,
        input_rows_per_s=7.0,
        processed_rows_per_s=35.0,
        duration_ms=120,
        lag={"a-0": 7},
        watermark="2023-11-14T22:12:18.500Z",
        freshness_ms=1500,
        state_rows=11,
        state_bytes=300,
    )


def test_a_progress_without_events_state_or_topics_is_reported_too() -> None:
    least = {"id": "q", "runId": "r", "name": "n", "timestamp": "2023-11-14T22:13:20.000Z", "batchId": 0, "sources": []}
    report = report_of_progress(least)
    assert (report.name, report.lag, report.freshness_ms, report.state_rows) == ("n", {}, None, 0)
