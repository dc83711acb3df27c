"""What clients log: whose line it is, and how much they say about brokers that cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import TimedOutError
from ottla.client.producer.producer import Producer
from ottla.testing import loop


def test_a_broker_that_is_away_is_reported_once_a_minute(network: Any, caplog: pytest.LogCaptureFixture) -> None:
    broker = network.add(1)
    broker.is_down = True

    async def main() -> None:
        producer = Producer(bootstrap_servers="broker:9001", client_id="billing", connector=network.connector)
        producer.start()
        sending = asyncio.gather(*(producer.send("orders", b"v") for _ in range(5)), return_exceptions=True)
        await asyncio.sleep(4)
        assert caplog.records == []
        await asyncio.sleep(176)
        assert 3 <= len(caplog.records) <= 4
        broker.is_down = False
        await asyncio.sleep(5)
        await producer.close(0)
        await sending

    with caplog.at_level(logging.INFO, "ottla.client"):
        loop.run(main())
    *complaints, last = [each.getMessage() for each in caplog.records]
    assert all(each.startswith("billing: no connection for ") for each in complaints), complaints
    assert all("broker:9001: no connection: connection refused" in each for each in complaints)
    assert last.startswith("billing: broker:9001 can be reached again")
    assert {vars(each)["client_id"] for each in caplog.records} == {"billing"}


def test_a_consumer_that_only_polls_says_whom_it_cannot_reach(network: Any, caplog: pytest.LogCaptureFixture) -> None:
    network.add(1).is_down = True

    async def main() -> None:
        consumer = Consumer(
            "orders", bootstrap_servers="broker:9001", group_id="g", client_id="reader", connector=network.connector
        )
        for _ in range(10):
            assert await consumer.poll(1.0) == {}
        await consumer.close(1)

    loop.run(main())
    (complaint,) = [each.getMessage() for each in caplog.records if "no connection for" in each.getMessage()]
    assert complaint.startswith("reader: no connection for ")
    assert "broker:9001: no connection: connection refused" in complaint


def test_an_error_names_every_address_with_its_cause(network: Any) -> None:
    network.add(1).is_down = True

    async def main() -> None:
        consumer = Consumer(bootstrap_servers="broker:9001,other:9007", connector=network.connector)
        with pytest.raises(TimedOutError) as caught:
            await consumer.start(1.0)
        for address in ("broker:9001", "other:9007"):
            assert f"{address}: no connection: connection refused" in str(caught.value)
        await consumer.close()

    loop.run(main())


def test_a_program_that_asks_for_no_logs_sees_none() -> None:
    source = "import logging, ottla.client; logging.getLogger('ottla.client.consumer').warning('a line')"
    done = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
