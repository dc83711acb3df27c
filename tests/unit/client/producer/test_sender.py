"""Batches to brokers that fail in every way: nothing lost, nothing twice, in order, and memory comes back."""

from __future__ import annotations

import asyncio

import pytest

from ottla.aio import Producer
from ottla.client.error_codes import MessageTooLargeError, TopicAuthorizationFailedError
from ottla.client.errors import BufferExhaustedError, ClosedError, DeliveryTimeoutError, TimedOutError
from ottla.client.producer.interceptors import ProducerInterceptor
from ottla.client.values import ProducerRecord
from ottla.errors import ApiError, ErrorCode
from ottla.net.client import Address
from ottla.protocol.messages.produce import ProduceRequest
from ottla.testing.loop import run

TOPIC = "orders"
LOSE, DROP, SILENT = "lose", "drop", "silent"


def producer_of(cluster, **settings) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers="broker:9001", connector=cluster.network.connector, **settings)


async def send_numbers(producer, count: int, partition: int | None = 0) -> list:
    return [producer.send(TOPIC, b"%d" % number, partition=partition) for number in range(count)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def check_nothing_left(producer) -> None:
    assert producer._accumulator.pool.available_bytes == producer._accumulator.pool.limit_bytes
    assert not producer._accumulator.incomplete
    assert not producer._tasks
    assert not producer._sender._tasks


RETRIABLE = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
]


@pytest.mark.parametrize("trouble", [*RETRIABLE, LOSE, DROP, SILENT], ids=str)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_may_pass_is_tried_again_in_order_and_once(cluster, trouble, at):
    async def main():
        cluster.plan = [None] * at + [trouble]
        async with producer_of(cluster, batch_size=0, linger_s=0) as producer:
            futures = await send_numbers(producer, 20)
            offsets = [(await future).offset for future in futures]
        assert offsets == list(range(20))
        assert cluster.values() == numbers(20)
        check_nothing_left(producer)

    run(main())


def test_several_requests_are_in_flight_after_the_first(cluster):
    async def main():
        broker = cluster.network.brokers[1]
        async with producer_of(cluster, batch_size=0, linger_s=0) as producer:
            await producer.send(TOPIC, b"first", partition=0)
            broker.is_holding = True
            await send_numbers(producer, 20)
            await asyncio.sleep(1)
            assert len(broker.held) == 5
            broker.release()
        assert cluster.values() == [b"first", *numbers(20)]

    run(main())


def test_one_request_in_flight_mutes_partitions(cluster):
    async def main():
        broker = cluster.network.brokers[1]
        cluster.network.leaders = [1, 1]
        async with producer_of(cluster, batch_size=0, linger_s=0, max_in_flight=1, acks=1) as producer:
            await producer.send(TOPIC, b"first", partition=0)
            broker.is_holding = True
            await send_numbers(producer, 5)
            await asyncio.sleep(1)
            assert len(broker.held) == 1
            cluster.plan = [ErrorCode.NOT_ENOUGH_REPLICAS]
            broker.release()
        assert cluster.values() == [b"first", *numbers(5)]

    run(main())


def test_a_leader_that_moves_is_followed(cluster):
    async def main():
        cluster.add(2)
        async with producer_of(cluster, linger_s=0) as producer:
            await producer.send(TOPIC, b"0")
            cluster.network.leaders = [2]
            await producer.send(TOPIC, b"1")
        assert cluster.values() == [b"0", b"1"]
        assert cluster.network.brokers[2].requests(ProduceRequest)

    run(main())


def test_a_broker_that_comes_late_is_waited_for(cluster):
    async def main():
        cluster.network.brokers[1].is_down = True
        async with producer_of(cluster) as producer:
            future = producer.send(TOPIC, b"value")
            await asyncio.sleep(20)
            assert not future.done()
            cluster.network.brokers[1].is_down = False
            assert (await future).offset == 0

    run(main())


def test_no_broker_at_all_is_an_error_after_max_block_that_names_the_cause(cluster):
    async def main():
        cluster.network.brokers[1].is_down = True
        async with producer_of(cluster, max_block_s=5) as producer:
            with pytest.raises(TimedOutError, match="given up after 5 s: broker:9001: no connection") as caught:
                await producer.send(TOPIC, b"value")
            assert caught.value.cause is not None

    run(main())


def test_an_unknown_topic_is_an_error_after_max_block(cluster):
    async def main():
        async with producer_of(cluster, max_block_s=5) as producer:
            with pytest.raises(TimedOutError, match="the topic others does not exist"):
                await producer.send("others", b"value")
            assert (await producer.send(TOPIC, b"value")).offset == 0

    run(main())


def test_a_batch_has_its_time_and_the_producer_goes_on_under_the_next_epoch(cluster):
    async def main():
        cluster.plan = [None] + [ErrorCode.NOT_ENOUGH_REPLICAS] * 9
        settings = {"delivery_timeout_s": 3, "request_timeout_s": 2, "linger_s": 0}
        async with producer_of(cluster, **settings) as producer:
            await producer.send(TOPIC, b"first")
            with pytest.raises(DeliveryTimeoutError, match="orders-0: 1 records: given up after 3 s"):
                await producer.send(TOPIC, b"lost")
            cluster.plan = []
            assert (await producer.send(TOPIC, b"last")).offset == 1
        assert cluster.values() == [b"first", b"last"]
        assert [epoch for _, epoch, _ in cluster.log().batches] == [0, 1]
        check_nothing_left(producer)

    run(main())


def test_a_batch_whose_broker_never_answers_fails_in_time(cluster):
    async def main():
        cluster.plan = [SILENT] * 10
        async with producer_of(cluster, delivery_timeout_s=10, request_timeout_s=8, linger_s=0) as producer:
            started = asyncio.get_running_loop().time()
            with pytest.raises(DeliveryTimeoutError):
                await producer.send(TOPIC, b"value")
            assert asyncio.get_running_loop().time() - started < 11

    run(main())


def test_what_is_refused_for_good_fails_alone(cluster):
    async def main():
        cluster.plan = [None, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        async with producer_of(cluster, batch_size=0, linger_s=0) as producer:
            futures = await send_numbers(producer, 4)
            await producer.flush()
            assert isinstance(futures[1].exception(0), TopicAuthorizationFailedError)
            assert [future.exception(0) is None for future in futures] == [True, False, True, True]
            await producer.send(TOPIC, b"last")
        assert cluster.values() == [b"0", b"2", b"3", b"last"]

    run(main())


def test_retries_are_counted(cluster):
    async def main():
        cluster.plan = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        async with producer_of(cluster, retries=2) as producer:
            future = producer.send(TOPIC, b"value")
            await producer.flush()
            error = future.exception(0)
            assert isinstance(error, ApiError)
            assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert len(cluster.requests) == 3

    run(main())


def test_a_batch_that_is_too_large_is_split_until_it_fits(cluster):
    async def main():
        cluster.batch_bytes_max = 400
        async with producer_of(cluster, batch_size=10_000) as producer:
            futures = [producer.send(TOPIC, b"%04d" % number * 10) for number in range(100)]
            futures.append(producer.send(TOPIC, b"too large" * 100))
            futures.append(producer.send(TOPIC, b"after"))
            await producer.flush()
            assert isinstance(futures[100].exception(0), MessageTooLargeError)
            assert [future.result(0).offset for future in futures[:100]] == list(range(100))
        assert cluster.values() == [*(b"%04d" % number * 10 for number in range(100)), b"after"]
        check_nothing_left(producer)

    run(main())


def test_memory_is_bounded_and_those_who_wait_are_served_in_order(cluster):
    async def main():
        broker = cluster.network.brokers[1]
        async with producer_of(cluster, buffer_memory=3000, batch_size=1000, linger_s=0) as producer:
            await producer.send(TOPIC, b"first")
            broker.is_holding = True
            futures = [producer.send(TOPIC, b"%d" % number + bytes(300), partition=0) for number in range(12)]
            await asyncio.sleep(1)
            assert producer._accumulator.pool.available_bytes < 1000
            with pytest.raises(BufferExhaustedError, match="line before it"):
                [producer.send(TOPIC, bytes(300)) for _ in range(20)]
            broker.release()
            await producer.room()
            await producer.flush()
            assert [(await future).offset for future in futures] == list(range(1, 13))
        check_nothing_left(producer)

    run(main())


def test_waiting_for_room_has_an_end(cluster):
    async def main():
        broker = cluster.network.brokers[1]
        async with producer_of(cluster, buffer_memory=1000, batch_size=1000, max_block_s=5) as producer:
            await producer.send(TOPIC, b"first")
            broker.is_holding = True
            first = producer.send(TOPIC, bytes(900))
            second = producer.send(TOPIC, bytes(900))
            with pytest.raises(BufferExhaustedError, match="given up after 5 s"):
                await second
            broker.release()
            await first
            assert (await producer.send(TOPIC, bytes(900))).offset == 2
        check_nothing_left(producer)

    run(main())


def test_closing_in_time_fails_what_is_left(cluster):
    async def main():
        cluster.network.brokers[1].is_holding = True
        producer = producer_of(cluster)
        futures = await send_numbers(producer, 3)
        waiting = producer.send("others", b"value")
        started = asyncio.get_running_loop().time()
        await producer.close(timeout_s=2)
        assert asyncio.get_running_loop().time() - started < 3
        for future in [*futures, waiting]:
            with pytest.raises(ClosedError, match="closed before the record was"):
                await future
        check_nothing_left(producer)

    run(main())


def test_flush_does_not_wait_for_linger_and_has_an_end(cluster):
    async def main():
        async with producer_of(cluster, linger_s=100, delivery_timeout_s=200) as producer:
            future = producer.send(TOPIC, b"value")
            await producer.flush()
            assert future.done()
            cluster.network.brokers[1].is_holding = True
            producer.send(TOPIC, b"value")
            with pytest.raises(TimedOutError, match="flushing: given up after 1 s"):
                await producer.flush(1)
            cluster.network.brokers[1].release()

    run(main())


def test_batches_wait_for_linger(cluster):
    async def main():
        async with producer_of(cluster, linger_s=0.05) as producer:
            await producer.send(TOPIC, b"first")
            futures = await send_numbers(producer, 10, partition=0)
            await asyncio.gather(*futures)
            assert len(cluster.requests) == 2

    run(main())


def test_metadata_is_asked_for_again_when_it_is_old_and_unused_topics_are_forgotten(cluster):
    async def main():
        async with producer_of(cluster, metadata_max_age_s=60, metadata_max_idle_s=100, linger_s=0) as producer:
            await producer.send(TOPIC, b"first")
            cluster.network.leaders = [1, 1, 1]
            await asyncio.sleep(61)
            assert producer._accumulator.topic(TOPIC).partition_count == 3
            await asyncio.sleep(120)
            assert TOPIC not in producer._cluster.known_topics()
            assert (await producer.send(TOPIC, b"last", partition=0)).offset == 1

    run(main())


def test_brokers_that_are_all_gone_are_looked_for_at_the_bootstrap_servers(cluster):
    """The whole cluster moved to other addresses: only the name that the user gave leads there."""

    async def main():
        moved = False

        async def connector(make_protocol, address):
            if address.host == "bootstrap":
                address = Address("broker", 9002 if moved else 9001)
            elif moved and address.port == 9001:
                raise ConnectionRefusedError(111, "Connection refused")
            return await cluster.network.connector(make_protocol, address)

        async with Producer(bootstrap_servers="bootstrap:1", connector=connector, linger_s=0) as producer:
            await producer.send(TOPIC, b"first")
            cluster.add(2)
            cluster.network.leaders = [2]
            del cluster.network.brokers[1].pipes[:-1]
            moved = True
            cluster.network.brokers[1].pipes[-1].close()
            cluster.network.brokers.pop(1)
            assert (await producer.send(TOPIC, b"last")).offset == 1

    run(main())


def test_interceptors_see_records_and_what_became_of_them(cluster, caplog):
    class Tracing(ProducerInterceptor):
        def __init__(self):
            self.seen = []
            self.is_closed = False

        def on_send(self, record):
            headers = (*record.headers, ("trace", b"7"))
            return ProducerRecord(record.topic, record.value, record.key, record.partition, None, headers)

        def on_acknowledgement(self, metadata, error):
            self.seen.append(metadata.offset)

        def close(self):
            self.is_closed = True

    class Broken(ProducerInterceptor):
        def on_send(self, record):
            raise ValueError("broken")

    async def main():
        tracing = Tracing()
        async with producer_of(cluster, interceptors=[Broken(), tracing]) as producer:
            await producer.send(TOPIC, b"value")
        assert tracing.seen == [0]
        assert tracing.is_closed
        assert "on_send of Broken failed" in caplog.text

    run(main())


def test_numbers_tell_what_was_sent_tried_again_and_lost(cluster):
    async def main():
        cluster.plan = [None, ErrorCode.NOT_ENOUGH_REPLICAS, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        async with producer_of(cluster, linger_s=0) as producer:
            for number in range(3):
                producer.send(TOPIC, b"%d" % number)
                await producer.flush()
            found = {name.name: value for name, value in producer.metrics().items() if name.group == "producer-metrics"}
            of_topic = {name.name for name in producer.metrics() if ("topic", TOPIC) in name.tags}
        assert found["record-send-total"] == 4
        assert found["record-retry-total"] == 1
        assert found["record-error-total"] == 1
        assert found["buffer-available-bytes"] == found["buffer-total-bytes"] == 32 * 1024 * 1024
        assert found["batch-size-avg"] > 60
        assert {"record-send-total", "byte-total", "record-retry-rate"} <= of_topic

    run(main())
