"""Directories that earlier versions of Ottla have written are served by this one: one of each layout is kept here.

`directories/layout-N.tar.xz` holds a topic `orders` with 100 records (`value 0` to `value 99`), a committed
transaction, `retention.ms=-1`, and offset 42 committed by the group `readers`. A change of the layout adds one.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ottla.broker.identity import VERSION
from ottla.testing.broker import Broker

KEPT = sorted((Path(__file__).parent / "directories").glob("layout-*.tar.xz"))


def test_the_layout_of_today_is_among_them() -> None:
    assert f"layout-{VERSION}.tar.xz" in {path.name for path in KEPT}


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_directory_of_an_older_version_is_served(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, Debian's, has none
        file.extractall(tmp_path)
    for _ in range(2):  # as it was left, and as this version leaves it
        with Broker(directory=tmp_path / "data") as broker:
            assert values(broker)[:101] == [*(f"value {number}".encode() for number in range(100)), b"committed"]
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "log_level": 0})
            assert consumer.committed([TopicPartition("orders", 0)], timeout=60)[0].offset == 42
            consumer.close()
            resource = ConfigResource(ResourceType.TOPIC, "orders")
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "-1"
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            producer.produce("orders", "new")
            assert producer.flush(60) == 0
            assert values(broker)[-1] == b"new"


def values(broker: Broker) -> list[bytes]:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "values",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = []
    try:
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found
