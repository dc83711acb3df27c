"""What is left of a client after it was closed, in whatever state: no tasks, no threads, no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla import aio
from ottla.client.errors import TimedOutError
from ottla.ids import TopicPartition
from ottla.net.ports import free_ports
from ottla.testing.broker import Broker
from ottla.testing.waiting import wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=False) as running:
        yield running


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """A broker, or where none is."""
    if request.param == "nobody":
        return f"127.0.0.1:{free_ports(1)[0]}"
    running: Broker = request.getfixturevalue("broker")
    return running.bootstrap_servers


def sockets() -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(each).startswith("socket:"):
                found.append(each.name)
        except OSError:
            continue  # the one that lists them
    return found


def threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith(("ottla", "asyncio")))


async def produced(address: str, topic: str) -> None:
    async with aio.Producer(bootstrap_servers=address, max_block_s=0.5) as producer:
        await asyncio.gather(*(producer.send(topic, b"v") for _ in range(10)), return_exceptions=True)


async def produced_and_closed_at_once(address: str, topic: str) -> None:
    producer = aio.Producer(bootstrap_servers=address)
    for _ in range(10):
        producer.send(topic, b"v")
    await producer.close(0)


async def in_transaction(address: str, topic: str) -> None:
    producer = aio.Producer(bootstrap_servers=address, transactional_id=topic, max_block_s=0.5)
    try:
        await producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
    except TimedOutError:
        pass
    await producer.close(1)


async def consumed(address: str, topic: str, protocol: str = "classic") -> None:
    consumer = aio.Consumer(topic, bootstrap_servers=address, group_id=topic, group_protocol=protocol)
    for _ in range(3):
        await consumer.poll(0.2)
    consumer.commit_async({TopicPartition(topic, 0): 1})
    await consumer.close(1)


async def consumed_by_the_new_protocol(address: str, topic: str) -> None:
    await consumed(address, topic, "consumer")


async def closed_in_the_first_poll(address: str, topic: str) -> None:
    consumer = aio.Consumer(topic, bootstrap_servers=address, group_id=topic)
    polling = asyncio.create_task(consumer.poll(60))
    await asyncio.sleep(0.05)
    await consumer.close(1)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)


async def cancelled_in_a_poll(address: str, topic: str) -> None:
    consumer = aio.Consumer(topic, bootstrap_servers=address, group_id=topic)
    polling = asyncio.create_task(consumer.poll(60))
    await asyncio.sleep(0.05)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await consumer.close(1)


async def administered(address: str, topic: str) -> None:
    admin = aio.Admin(bootstrap_servers=address)
    calls = [admin.list_topics(timeout_s=0.3), admin.describe_cluster(timeout_s=0.3), admin.lag(topic, timeout_s=0.3)]
    await asyncio.gather(*calls, return_exceptions=True)
    await admin.close(1)


async def cancelled_while_they_close(address: str, topic: str) -> None:
    """At each of the first turns that closing takes, and some later ones."""
    for turns in (*range(1, 12), 20, 40):
        producer = aio.Producer(bootstrap_servers=address, max_block_s=0.1, delivery_timeout_s=1, request_timeout_s=0.5)
        with contextlib.suppress(TimedOutError):
            await producer.send(topic, b"v")
        consumer = aio.Consumer(topic, bootstrap_servers=address, group_id=topic)
        await consumer.poll(0.05)
        admin = aio.Admin(bootstrap_servers=address)
        with contextlib.suppress(TimedOutError):
            await admin.list_topics(timeout_s=0.1)
        closing = [asyncio.create_task(each.close(1)) for each in (producer, consumer, admin)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)


SCENES = [
    produced,
    produced_and_closed_at_once,
    in_transaction,
    consumed,
    consumed_by_the_new_protocol,
    closed_in_the_first_poll,
    cancelled_in_a_poll,
    administered,
    cancelled_while_they_close,
]


@pytest.mark.parametrize("address", ["broker", "nobody"], indirect=True)
@pytest.mark.parametrize("scene", SCENES)
def test_a_closed_client_leaves_no_tasks_and_no_sockets(
    address: str, scene: Callable[[str, str], Awaitable[None]]
) -> None:
    async def main() -> None:
        before = len(sockets())
        await scene(address, f"leaks-{scene.__name__}")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others
        await asyncio.sleep(0)  # transports close their sockets in the next turn
        assert len(sockets()) == before

    asyncio.run(main())
    gc.collect()  # what was never awaited, or destroyed while it ran, is a warning here


@pytest.mark.parametrize("address", ["broker", "nobody"], indirect=True)
def test_clients_for_threads_end_their_threads_and_loops(address: str) -> None:
    before_threads, before_sockets = threads(), len(sockets())
    producer = ottla.Producer(bootstrap_servers=address, max_block_s=0.3)
    with contextlib.suppress(TimedOutError):
        producer.send("leaks", b"v").result(1)
    producer.close(1)
    consumer: ottla.Consumer[bytes, bytes] = ottla.Consumer("leaks", bootstrap_servers=address, group_id="leaks")
    consumer.poll(0.3)
    consumer.close(1)
    admin = ottla.Admin(bootstrap_servers=address)
    with contextlib.suppress(TimedOutError):
        admin.list_topics(timeout_s=0.3)
    admin.close()
    never_used: list[Any] = [
        ottla.Producer(bootstrap_servers=address),
        ottla.Consumer(bootstrap_servers=address),
        ottla.Admin(bootstrap_servers=address),
    ]
    for each in never_used:
        each.close()
        each.close()
    wait_until(lambda: threads() == before_threads)
    assert len(sockets()) == before_sockets
