"""Quotas with real clients and real sockets: what librdkafka sees of them, and strangers who never log in."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer

from ottla import Admin
from ottla.client.admin.quotas import QuotaEntity
from ottla.testing.broker import Broker
from ottla.testing.security import Security
from ottla.testing.waiting import WAIT_S, wait_until

STRANGERS = 1000
PRODUCER = QuotaEntity(client_id="quick-producer")
CONSUMER = QuotaEntity(client_id="quick-consumer")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": "1"}) as running:
        yield running


def test_librdkafka_is_told_that_it_is_throttled_and_loses_nothing(broker: Broker) -> None:
    """A quota that a few large records exceed by little: it waits for seconds, not for minutes."""
    throttled: list[object] = []
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.alter_client_quota(PRODUCER, {"producer_byte_rate": 100_000})
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": "quick-producer",
                "throttle_cb": throttled.append,
                "linger.ms": 0,
            }
        )
        for number in range(12):
            producer.produce("limited", b"%02d" % number + bytes(100_000))
        assert producer.flush(WAIT_S) == 0
        wait_until(lambda: producer.poll(0.01) is not None and bool(throttled))
        admin.alter_client_quota(PRODUCER, {"producer_byte_rate": None})

        throttled.clear()
        admin.alter_client_quota(CONSUMER, {"consumer_byte_rate": 115_000})
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": "quick-consumer",
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 150_000,
                "throttle_cb": throttled.append,
            }
        )
        consumer.subscribe(["limited"])
        found: list[bytes] = []

        def all_found() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append((message.value() or b"")[:2])
            return len(found) == 12

        wait_until(all_found)
        assert throttled
        consumer.close()
        admin.alter_client_quota(CONSUMER, {"consumer_byte_rate": None})
    assert found == [b"%02d" % number for number in range(12)]


def test_a_thousand_who_never_finish_to_log_in_keep_nobody_from_being_served() -> None:
    """Each has sent the beginning of a frame as large as may be before a login."""
    with Broker(security=Security("SASL_PLAINTEXT")) as broker, ExitStack() as strangers:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with Admin(broker.client_settings()) as admin:
            assert admin.describe_cluster().controller_id is not None
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(STRANGERS):
                stranger = strangers.enter_context(socket.create_connection((host, int(port))))
                stranger.sendall(struct.pack(">i", 500_000) + bytes(100))
            assert admin.describe_cluster().controller_id is not None
        with Admin(broker.client_settings()) as newcomer:
            assert newcomer.describe_cluster().controller_id is not None
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < 40_000, "a thousand frames of 500 kB were announced, 100 kB came"
