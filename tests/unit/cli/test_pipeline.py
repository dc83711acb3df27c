"""`ottla pipeline status`: what pipelines report, as a person and as a program sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.cli.main import main
from ottla.client.admin.blocking import Admin
from ottla.client.blocking import Blocking
from ottla.client.pipelines import PipelineReport, PipelineState, ensure_topic, write_report
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.testing.broker import Broker

RUNNING = PipelineReport(
    "id-1", "run-1", "orders", PipelineState.RUNNING, 1_700_000_000_000, 3, 70, 10.0, 35.5, 120, {"a-0": 4, "a-1": 1}
)
FAILED = PipelineReport("id-2", "run-2", "audit", PipelineState.FAILED, 1_700_000_000_000, error="it broke\nat a place")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def status(broker: Broker, *arguments: str) -> int:
    return main(["pipeline", "status", *arguments, "--bootstrap-server", broker.bootstrap_servers])


def test_a_cluster_without_reports_says_how_to_make_some(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(broker) == 0
    assert "ottla.spark.report(spark, servers)" in capsys.readouterr().out
    assert status(broker, "--json") == 0
    assert capsys.readouterr().out == ""


def test_the_last_report_of_every_pipeline_is_shown(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with Blocking(broker.bootstrap_servers) as client:
        for _ in range(2):
            client.wait(ensure_topic(client.cluster))
        producer = ClusterProducer(client.cluster)
        client.close_with(producer.close)
        for report in (PipelineReport("id-1", "run-0", "orders", PipelineState.STOPPED, 1), RUNNING, FAILED):
            client.wait(write_report(producer, report))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_pipelines() == [FAILED, RUNNING]
    assert status(broker) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("audit  failed  ")
    assert first.endswith("(2023-11-14T22:13:20.000Z)  it broke")
    assert second.startswith("orders  running  batch 3  70 rows  36 rows/s  120 ms  lag 5  ")
    assert status(broker, "--json", "id-1") == 0
    (shown,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (shown["name"], shown["state"], shown["lag"], shown["lag_offsets"]) == (
        "orders", "running", {"a-0": 4, "a-1": 1}, 5,
    )  # fmt: skip


def test_a_report_of_a_later_version_is_read_and_other_bytes_are_not() -> None:
    later = {**json.loads(RUNNING.to_json()), "colour": "red"}
    assert PipelineReport.from_json(json.dumps(later).encode()) == RUNNING
    for text in (b"{}", b"[]", b'"x"', b"not JSON"):
        with pytest.raises(ValueError, match=r"not the report|Expecting"):
            PipelineReport.from_json(text)
