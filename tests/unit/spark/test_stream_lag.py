"""How far a stream is behind, from what Spark reports."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import ottla.spark
from ottla.ids import TopicPartition


def progress(end: object, latest: object) -> dict[str, object]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}]}


def test_each_partition_is_behind_by_what_it_has_and_the_batch_has_not() -> None:
    lag = ottla.spark.lag(progress({"orders": {"0": 3, "1": 10}}, {"orders": {"0": 5, "1": 10, "2": 4}}))
    assert lag.partitions == {
        TopicPartition("orders", 0): 2,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 4,
    }
    assert (lag.total_offsets, lag.max_offsets, lag.min_offsets, lag.avg_offsets) == (6, 4, 0, 2.0)
    assert lag.metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.0",
    }


def test_offsets_may_be_text_and_a_progress_an_object_as_listeners_get_it() -> None:
    source = SimpleNamespace(endOffset='{"orders":{"0":3}}', latestOffset='{"orders":{"0":5}}')
    assert ottla.spark.lag(SimpleNamespace(sources=[source])).total_offsets == 2


def test_a_log_that_lost_records_and_a_stream_that_begins_at_its_end_are_not_behind() -> None:
    assert ottla.spark.lag(progress({"orders": {"0": 9, "1": -1}}, {"orders": {"0": 5, "1": 7}})).max_offsets == 0


@pytest.mark.parametrize(
    "given",
    [None, {}, {"sources": []}, progress(None, None), progress("7", "9"), progress({"logOffset": 3}, "not JSON")],
    ids=str,
)
def test_what_is_no_offset_of_a_topic_has_no_part_in_it(given: object) -> None:
    assert ottla.spark.lag(given).partitions == {}
    assert ottla.spark.lag(given).metrics()["avgOffsetsBehindLatest"] == "0.0"
