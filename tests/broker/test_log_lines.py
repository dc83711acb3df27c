"""The life of a broker that is alone, as its log tells it at INFO."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic, DeleteTopicsRequest
from ottla.storage.clean_mark import CLEAN_SHUTDOWN_FILE
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.waiting import wait_until


def test_start_recovery_topics_settings_and_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla")
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        address = broker.bootstrap_servers
        client.ask(create_topic("t", 2), 7)
        more = CreatePartitionsTopic(name="t", count=3, assignments=None)
        client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1, validate_only=False), 3)
        changed = IncrementalAlterConfigsRequestAlterableConfig(
            name="retention.ms", config_operation=0, value="777000777"
        )
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=2, resource_name="t", configs=[changed]
        )
        client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        client.ask(create_topic("u"), 7)
        client.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=1), 5)
        client.ask(produce("t", one_batch(b"kept")), 9)
    first = [text for text in caplog.messages if "connection" not in text or text.startswith("the broker")]
    assert re.fullmatch(rf"Ottla \S+ starts: process \d+, Python [\d.]+\S*, log directories {tmp_path}", first[0])
    assert first[1].startswith("0 logs were opened in ")
    assert re.fullmatch(rf"broker 1 of cluster \S+ serves after \d+\.\d s: PLAINTEXT://{address}", first[2])
    assert first[3:8] == [
        "topic t has been created, with 2 partitions",
        "topic t grows from 2 to 3 partitions",
        "the settings of topic t were changed: retention.ms",
        "topic u has been created, with 1 partitions",
        "topic u has been deleted, with 1 partitions",
    ]
    assert re.fullmatch(r"the broker stops, with [01] connections", first[8])
    assert re.fullmatch(r"the broker has stopped in \d+\.\d s; 3 logs were closed", first[9])
    assert len(first) == 10, "nothing is written for a request, or a record"
    assert "777000777" not in caplog.text

    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    segment = tmp_path / "t-0" / f"{0:020}.log"
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + b"torn end")
    caplog.clear()
    with Broker(directory=tmp_path):
        pass
    (found,) = (text for text in caplog.messages if "logs were opened" in text)
    assert re.fullmatch(
        r"3 logs were opened in \d+\.\d s, in 1 of 1 log directories: 3 segments "
        rf"\({size}\S* bytes\) were checked as after a crash, "
        r"8 bytes were cut off, 1 logs had problems, 0 cannot be read",
        found,
    ), found


def test_a_coordinator_says_how_much_it_loaded_and_for_how_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla")
    settings = {"offsets.topic.num.partitions": "1"}
    with Broker(settings, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        client.ask(FindCoordinatorRequest(key="g"), 3)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[offset])]
        client.ask(OffsetCommitRequest(group_id="g", topics=topics), 7)
    assert "records were loaded" not in caplog.text, "there was nothing to load"
    with Broker(settings, directory=tmp_path):
        wait_until(lambda: "__consumer_offsets-0: 1 records were loaded in " in caplog.text)
