"""Numbers about clients: what they mean, and that their names are Kafka's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ottla.aio import Consumer, Producer
from ottla.client.metrics import Meter
from ottla.ids import TopicPartition
from ottla.testing.loop import run

TABLE = Path(__file__).parents[4] / "shared" / "protocol" / "clients" / "client_metrics.json"


def test_nothing_measured_is_nothing():
    meter = Meter(30, 2)
    assert math.isnan(meter.average(0))
    assert math.isnan(meter.maximum(0))
    assert (meter.rate(0), meter.total) == (0, 0)


def test_windows_are_left_behind_and_totals_stay():
    meter = Meter(30, 2)
    for now, value in ((0, 10), (1, 20), (31, 60)):
        meter.record(value, now)
    assert (meter.average(40), meter.maximum(40), meter.total) == (30, 60, 90)
    assert meter.rate(40) == 90 / 40
    assert (meter.average(65), meter.maximum(65)) == (60, 60)
    assert math.isnan(meter.average(200))
    assert (meter.rate(200), meter.total) == (0, 90)


def test_a_rate_does_not_leap_at_the_start():
    meter = Meter(30, 2)
    meter.record(30, 0)
    assert meter.rate(0.001) == 1


class Reporter:
    def __init__(self):
        self.metrics = None
        self.is_closed = False

    def init(self, metrics):
        self.metrics = metrics

    def close(self):
        self.is_closed = True


def test_the_names_of_a_consumers_numbers_are_kafkas():
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} of Java's clients is not here")
    known = {
        (entry["name"], entry["group"], frozenset(entry["tags"]))
        for entry in json.loads(TABLE.read_text())["metrics"]
        if entry["client"] == "consumer"
    }
    consumer = Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g")
    place = TopicPartition("orders", 0)
    consumer.assign([place])
    consumer.seek(place, 7)
    state = consumer._parts.positions.state(place)
    state.high_watermark, state.log_start_offset = 10, 2
    consumer._parts.metrics.fetches.taken({"orders": (100, 3)}, 0.0)
    values = consumer.metrics()
    used = {(name.name, name.group, frozenset(tag for tag, _ in name.tags)) for name in values}
    assert used <= known
    by_name = {name.name: value for name, value in values.items() if not dict(name.tags).get("topic")}
    assert (by_name["records-lag-max"], by_name["records-lead-min"]) == (3, 5)
    assert (by_name["bytes-consumed-total"], by_name["records-consumed-total"]) == (100, 3)
    assert by_name["assigned-partitions"] == 1


def test_the_names_of_a_producers_numbers_are_kafkas():
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} of Java's clients is not here")
    known = {
        (entry["name"], entry["group"], frozenset(entry["tags"]))
        for entry in json.loads(TABLE.read_text())["metrics"]
        if entry["client"] == "producer"
    }

    async def main():
        reporter = Reporter()
        async with Producer(bootstrap_servers="broker:9001", metric_reporters=[reporter]) as producer:
            found = producer.metrics()
            assert reporter.metrics is not None
            assert found.keys() == reporter.metrics.values().keys()
            ours = {(name.name, name.group, frozenset(tag for tag, _ in name.tags)) for name in found}
            assert ours <= known
            assert len(ours) > 20
        assert reporter.is_closed

    run(main())
