"""Records that are put into an open batch at once keep every promise of those that go the long way."""

from __future__ import annotations

import pytest

from ottla.aio import Producer
from ottla.client.errors import ClosedError, ForkedError
from ottla.client.producer.interceptors import ProducerInterceptor
from ottla.records import batch, codec
from ottla.testing.loop import run

TOPIC = "orders"

pytestmark = pytest.mark.skipif(not codec.NATIVE, reason="the short way is that of the compiled core")


def producer_of(cluster, **settings):
    return Producer(bootstrap_servers="broker:9001", connector=cluster.network.connector, **settings)


def short_way_of(producer):
    """Where a record would go at once; it counts those that did."""
    return producer.short_ways[TOPIC]


def test_both_ways_lead_into_the_same_batch_in_the_order_of_the_calls(cluster):
    async def main():
        seen: list[int] = []
        async with producer_of(cluster, linger_s=0.1) as producer:
            await producer.send(TOPIC, b"first", partition=0)
            futures = []
            for number in range(30):
                headers = {"h": b"x"} if number % 3 == 0 else None  # these go the long way
                futures.append(
                    producer.send(
                        TOPIC,
                        b"%d" % number,
                        partition=0,
                        timestamp=1000 + number,
                        headers=headers,
                        on_delivery=lambda metadata, error, number=number: seen.append(number),
                    )
                )
            found = [await future for future in futures]
        assert cluster.values() == [b"first", *(b"%d" % number for number in range(30))]
        assert len(cluster.requests) == 2
        assert [(each.offset, each.timestamp) for each in found] == [(1 + n, 1000 + n) for n in range(30)]
        assert seen == list(range(30))
        records = batch.decode(bytes(cluster.requests[1].topic_data[0].partition_data[0].records))
        assert [bool(each) for each in records.headers] == [number % 3 == 0 for number in range(30)]

    run(main())


def test_keyless_records_take_the_short_way_and_change_partitions_with_full_batches(cluster):
    async def main():
        cluster.network.leaders[:] = [1, 1, 1]
        async with producer_of(cluster, linger_s=0.1, batch_size=2000) as producer:
            await producer.send(TOPIC, b"first")
            futures = [producer.send(TOPIC, bytes(100)) for _ in range(300)]
            assert short_way_of(producer).sticky_bytes > 0
            found = [await future for future in futures]
        assert len({each.partition for each in found}) == 3

    run(main())


def test_a_closed_producer_refuses_though_a_batch_was_open(cluster):
    async def main():
        producer = producer_of(cluster, linger_s=60)
        producer.send(TOPIC, b"first", partition=0)
        await producer.flush()
        late = producer.send(TOPIC, b"second", partition=0)
        assert late is not None
        await producer.close()
        with pytest.raises(ClosedError):
            producer.send(TOPIC, b"third", partition=0)
        assert cluster.values() == [b"first", b"second"]

    run(main())


@pytest.mark.parametrize("reason", ["fork", "failure"])
def test_a_producer_of_no_use_any_more_refuses_though_a_batch_was_open(cluster, reason):
    async def main():
        producer = producer_of(cluster, linger_s=60)
        producer.send(TOPIC, b"first", partition=0)
        await producer.flush()
        called = []
        producer.send(TOPIC, b"second", partition=0)
        failed = producer.send(TOPIC, b"third", partition=0, on_delivery=lambda *outcome: called.append(outcome))
        if reason == "fork":
            refusal = producer._lifetime.refusal = ForkedError("the child has a producer of its own")
        else:
            refusal = ForkedError("nothing can be sent any more")
            producer._sender.fail_all(refusal)
            assert failed.exception(0) is refusal
            assert called == [(None, refusal)]
        with pytest.raises(ForkedError):
            producer.send(TOPIC, b"fourth", partition=0)
        producer._lifetime.refusal = None
        await producer.close()

    run(main())


class Counting(ProducerInterceptor):
    def __init__(self) -> None:
        self.count = 0

    def on_send(self, record):
        self.count += 1
        return record


def test_interceptors_see_every_record(cluster):
    async def main():
        interceptor = Counting()
        async with producer_of(cluster, linger_s=0.1, interceptors=[interceptor]) as producer:
            for number in range(10):
                producer.send(TOPIC, b"%d" % number, partition=0)
                await producer.partitions_for(TOPIC)
            assert producer.short_ways == {}
        assert interceptor.count == 10
        assert len(cluster.values()) == 10

    run(main())


@pytest.mark.parametrize("settings", [{"value_serializer": str.encode}, {"partitioner": "crc32"}], ids=str)
def test_serializers_and_other_partitioners_have_no_short_way(cluster, settings):
    async def main():
        async with producer_of(cluster, linger_s=0, **settings) as producer:
            await producer.send(TOPIC, "text" if "value_serializer" in settings else b"text", b"key")
            assert producer.short_ways == {}

    run(main())
