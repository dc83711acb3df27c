"""Settings change without a restart, and are still there after one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce
from ottla.testing.waiting import wait_until

TOPIC, BROKER = 2, 4
QUICK = {"log.retention.check.interval.ms": "50", "log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "0"}


def alter(client: RawClient, kind: int, name: str, key: str, value: str | None) -> int:
    """Sets a setting, or deletes it; the error code."""
    entry = IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=int(value is None), value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[entry]
    )
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return int(answer.responses[0].error_code)


def value_of(client: RawClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    (entry,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    return entry.value, entry.config_source


def produced(client: RawClient, topic: str, records: bytes) -> Any:
    return client.ask(produce(topic, records), 9).responses[0].partition_responses[0]


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[tuple[Broker, RawClient]]:
    with Broker(QUICK, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        yield broker, client


def test_the_largest_batch_of_a_topic(quick: tuple[Broker, RawClient]) -> None:
    _, client = quick
    large = one_batch(b"x" * 2000)
    assert produced(client, "t", large).error_code == 0
    assert alter(client, TOPIC, "t", "max.message.bytes", "1000") == 0
    assert produced(client, "t", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, TOPIC, "t", "max.message.bytes", None) == 0
    assert produced(client, "t", large).error_code == 0


def test_a_default_of_the_broker_reaches_its_topics(quick: tuple[Broker, RawClient]) -> None:
    broker, client = quick
    large = one_batch(b"x" * 2000)
    for name in ("", str(broker.running.node_id)):
        assert alter(client, BROKER, name, "message.max.bytes", "1000") == 0
        assert produced(client, "t", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(client, BROKER, name, "message.max.bytes", None) == 0
        assert produced(client, "t", large).error_code == 0


def test_retention_deletes_what_became_too_old(quick: tuple[Broker, RawClient]) -> None:
    _, client = quick
    for _ in range(3):
        produced(client, "t", one_batch(b"x", timestamps=int(time.time() * 1000) - 3_600_000))
    assert alter(client, TOPIC, "t", "retention.ms", "60000") == 0
    wait_until(lambda: client.ask(list_offsets("t", -2), 7).topics[0].partitions[0].offset == 3)
    assert client.ask(fetch("t", 0), 11).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_segments_roll_at_a_new_size_and_small_logs_keep_their_tail(quick: tuple[Broker, RawClient]) -> None:
    broker, client = quick
    assert alter(client, TOPIC, "t", "segment.bytes", "1048576") == 0
    for _ in range(8):
        produced(client, "t", one_batch(os.urandom(500_000), timestamps=int(time.time() * 1000)))
    segments = [name for name in os.listdir(f"{broker.directory}/t-0") if name.endswith(".log")]
    assert len(segments) >= 4
    assert alter(client, TOPIC, "t", "retention.bytes", "1100000") == 0
    wait_until(lambda: client.ask(list_offsets("t", -2), 7).topics[0].partitions[0].offset >= 4)


@pytest.mark.slow
def test_a_topic_becomes_compacted(quick: tuple[Broker, RawClient]) -> None:
    broker, client = quick
    for key in ("min.cleanable.dirty.ratio", "segment.ms", "cleanup.policy"):
        value = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}[key]
        assert alter(client, TOPIC, "t", key, value) == 0
    assert produced(client, "t", one_batch(b"x")).error_code == ErrorCode.INVALID_RECORD, "it has no key"
    now_ms = int(time.time() * 1000)
    for number in range(30):
        produced(client, "t", one_batch(b"%d" % number, keys=[b"k"], timestamps=now_ms + number * 60))

    def kept() -> int:
        sizes = 0
        for path in Path(broker.directory, "t-0").glob("*.log"):
            with suppress(FileNotFoundError):  # compacted away since it was listed
                sizes += path.stat().st_size
        return sizes

    before = kept()
    wait_until(lambda: kept() < before / 2)


def test_limits_of_connections(quick: tuple[Broker, RawClient]) -> None:
    broker, client = quick
    name = str(broker.running.node_id)
    assert alter(client, BROKER, name, "max.connections.per.ip", "1") == 0
    with RawClient(broker.bootstrap_servers) as refused:
        assert refused.is_ended()
    assert alter(client, BROKER, name, "max.connections.per.ip", None) == 0
    assert alter(client, BROKER, name, "max.connections", "1") == 0
    with RawClient(broker.bootstrap_servers) as waiting:
        waiting.send(metadata(), 12)
        assert client.ask(metadata(), 12).brokers
        assert alter(client, BROKER, name, "max.connections", None) == 0
        answer, _ = waiting.receive()
        assert answer.brokers
    with RawClient(broker.bootstrap_servers) as again:
        assert again.ask(metadata(), 12).brokers


def test_changes_outlive_the_broker_and_die_with_the_topic(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("kept", config={"retention.ms": "1000"}), 7)
        client.ask(create_topic("dropped", config={"retention.ms": "1000"}), 7)
        alter(client, TOPIC, "kept", "max.message.bytes", "500")
        alter(client, BROKER, "", "log.cleaner.backoff.ms", "77")
        client.ask(DeleteTopicsRequest(topic_names=["dropped"], timeout_ms=1000), 5)
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert value_of(client, TOPIC, "kept", "retention.ms") == ("1000", 1)
        assert produced(client, "kept", one_batch(b"x" * 600)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert value_of(client, BROKER, str(broker.running.node_id), "log.cleaner.backoff.ms") == ("77", 3)
        client.ask(create_topic("dropped"), 7)
        assert value_of(client, TOPIC, "dropped", "retention.ms")[1] == 5, "the old topic's setting is not inherited"


def test_a_refused_change_changes_nothing(quick: tuple[Broker, RawClient]) -> None:
    _, client = quick
    for key, value in (("retention.ms", "soon"), ("no.such.setting", "1"), ("cleanup.policy", "shred")):
        assert alter(client, TOPIC, "t", key, value) == ErrorCode.INVALID_CONFIG
    assert value_of(client, TOPIC, "t", "retention.ms") == ("604800000", 5)
