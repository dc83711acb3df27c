"""Users' code that clients call: callbacks, listeners, handlers and hooks that wait, send, close, fail or exit."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

import pytest

import ottla
from ottla import aio
from ottla.client.consumer.listeners import RebalanceListener
from ottla.client.consumer.processing import HandlerCancelledError
from ottla.client.errors import ClosedError, UsageError
from ottla.client.values import ConsumerRecord, RecordMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.testing.broker import Broker

NewTopic = Callable[..., tuple[str, UUID]]
LIMIT_S = 120.0


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()[0]


def error_in_callback(producer: ottla.Producer[bytes, bytes], topic: str, work: Callable[[], object]) -> object:
    """What `work` raises inside of a callback; None where it does not."""
    found: list[object] = []

    def delivered(metadata: RecordMetadata | None, error: BaseException | None) -> None:
        try:
            work()
        except BaseException as raised:
            found.append(raised)
        else:
            found.append(None)

    producer.send(topic, b"value", on_delivery=delivered).result(LIMIT_S)
    producer.flush(LIMIT_S)
    return found[0]


@pytest.mark.parametrize("call", ["flush", "close", "result", "columns"])
def test_a_callback_that_would_wait_for_its_own_thread_is_refused_and_the_producer_goes_on(
    broker: Broker, topic: str, call: str
) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        works: dict[str, Callable[[], object]] = {
            "flush": producer.flush,
            "close": producer.close,
            "result": lambda: producer.send(topic, b"another").result(),
            "columns": lambda: producer.send_columns(topic, [b"another"]),
        }
        assert isinstance(error_in_callback(producer, topic, works[call]), UsageError)
        assert producer.send(topic, b"last").result(LIMIT_S).offset > 0


def test_a_callback_may_send_to_a_topic_that_is_not_known_yet(broker: Broker, new_topic: NewTopic) -> None:
    first, second = new_topic()[0], new_topic()[0]
    sent: list[Any] = []
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        work = lambda: sent.extend(producer.send(second, b"%d" % number) for number in range(3))  # noqa: E731
        assert error_in_callback(producer, first, work) is None
        assert [each.result(LIMIT_S).offset for each in sent] == [0, 1, 2]


def test_a_callback_that_exits_ends_neither_the_producer_nor_the_callbacks_behind_it(
    broker: Broker, topic: str
) -> None:
    seen: list[int] = []

    def delivered(metadata: RecordMetadata | None, error: BaseException | None) -> None:
        assert metadata is not None
        seen.append(metadata.offset)
        sys.exit(1)

    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, on_delivery=delivered)
        producer.flush(LIMIT_S)
    assert seen == [0, 1, 2]


def test_on_asyncio_a_callback_that_exits_ends_the_program_when_all_records_have_their_outcome(
    broker: Broker, topic: str
) -> None:
    program = f"""
import asyncio, sys
from ottla import aio

async def main():
    producer = aio.Producer(bootstrap_servers={broker.bootstrap_servers!r})
    futures = [producer.send({topic!r}, b"", on_delivery=lambda metadata, error: sys.exit(7)) for _ in range(3)]
    try:
        await producer.flush()
        await asyncio.sleep(120)
    finally:
        print([each.result().offset for each in futures], flush=True)

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (ran.stdout, ran.returncode) == ("[0, 1, 2]\n", 7), ran.stderr


def test_waiting_in_the_loop_for_what_the_loop_would_do_is_refused(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(2):  # the topic is unknown, then known
                future = producer.send(topic, b"value")
                with pytest.raises(UsageError, match="await the future"):
                    future.result()
                await future
                assert future.result().topic == topic
            columns = await producer.send_columns(topic, [b"value"])
            with pytest.raises(UsageError, match="await the future"):
                columns.result()

    asyncio.run(main())


def test_two_threads_may_close_a_producer_at_once(broker: Broker, topic: str) -> None:
    producer: ottla.Producer[bytes, bytes] = ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=0.5)
    future = producer.send(topic, b"value")
    threads = [threading.Thread(target=producer.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert future.result(0).offset == 0


def test_a_thread_that_waits_to_send_hears_that_another_one_has_closed(broker: Broker) -> None:
    """Its topic cannot be known: nobody is there to be asked."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        producer: ottla.Producer[bytes, bytes] = ottla.Producer(bootstrap_servers=address, max_block_s=LIMIT_S)
        raised: list[BaseException] = []

        def send() -> None:
            try:
                producer.send("orders", b"value")
            except OttlaError as error:
                raised.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        while not producer.metrics():
            time.sleep(0.01)
        producer.close(0)
        thread.join(LIMIT_S)
        assert [type(each) for each in raised] == [ClosedError]


def test_a_hook_that_returns_no_record_is_left_out(broker: Broker, topic: str) -> None:
    class Forgetful:
        def on_send(self, record: object) -> None: ...
        def on_acknowledgement(self, metadata: object, error: object) -> None: ...
        def close(self) -> None: ...

    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[Forgetful()]) as producer:
        assert producer.send(topic, b"value").result(LIMIT_S).offset == 0


def test_listeners_of_the_blocking_consumer_may_be_coroutines(broker: Broker, topic: str) -> None:
    seen: list[tuple[str, list[TopicPartition]]] = []

    class Watch(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            seen.append(("assigned", list(partitions)))

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            seen.append(("revoked", list(partitions)))

    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=Watch())
        while not consumer.assignment():
            consumer.poll(1.0)
    partition = TopicPartition(topic, 0)
    assert seen == [("assigned", [partition]), ("revoked", [partition])]


def test_a_handler_whose_work_is_cancelled_has_failed(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(4):
                await producer.send(topic, b"%d" % number, b"key")
        seen: list[int] = []

        async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
            seen.append(record.offset)
            if record.offset == 2:
                work = asyncio.ensure_future(asyncio.sleep(3600))
                work.cancel()
                await work

        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
        async with aio.Consumer(topic, settings) as consumer:
            with pytest.raises(HandlerCancelledError, match="offset 2"):
                await asyncio.wait_for(consumer.process(handle), LIMIT_S)
            committed = (await consumer.committed([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
        assert seen == [0, 1, 2]
        assert committed is not None
        assert committed.offset == 2

    asyncio.run(main())


def test_an_interrupt_does_not_wait_for_handlers_in_threads(broker: Broker, topic: str) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"value").result(LIMIT_S)
    begun, may_end = threading.Event(), threading.Event()

    def handle(record: object) -> None:
        begun.set()
        may_end.wait(LIMIT_S)

    def interrupt() -> None:
        begun.wait(LIMIT_S)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
    with ottla.Consumer(topic, settings) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.process(handle)
        # The handler is still at work, and everything else goes on.
        assert consumer.committed([TopicPartition(topic, 0)], timeout_s=LIMIT_S) == {TopicPartition(topic, 0): None}
        consumer.close(LIMIT_S)
        assert not may_end.is_set()
        may_end.set()


def test_topics_that_are_no_names_are_refused_at_once(broker: Broker) -> None:
    for wrong in (["orders"], None, 7):
        with pytest.raises(TypeError, match="topics are given one by one"):
            aio.Consumer(wrong, bootstrap_servers=broker.bootstrap_servers, group_id="g")  # type: ignore[call-overload]
