"""Leaders that an answer names (KIP-951) are followed at once: by producers, consumers and readers of ranges."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.conftest import TOPIC_ID, Network

from ottla.client.consumer.consumer import Consumer
from ottla.client.fetching import Fetcher
from ottla.client.metadata import ClientOptions, Cluster
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages import fetch, produce
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records import batch
from ottla.testing import loop

PLACE = TopicPartition("orders", 0)
NEW_LEADER, NEW_EPOCH = 2, 5


@pytest.fixture
def moved(network: Network) -> Network:
    """Metadata names broker 1 for ever; broker 1 says that broker 2 leads, which no metadata knows of."""
    old, new = network.add(1), network.add(2)
    for broker in (old, new):
        broker.scripts[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(
            producer_id=7, producer_epoch=0
        )
        broker.scripts[MetadataRequest] = lambda request, version: without_the_new_one(network, request, version)
    old.scripts[produce.ProduceRequest] = lambda request, version: produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="orders",
                topic_id=TOPIC_ID,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=0,
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        base_offset=-1,
                        current_leader=produce.LeaderIdAndEpoch(leader_id=NEW_LEADER, leader_epoch=NEW_EPOCH),
                    )
                ],
            )
        ],
        node_endpoints=[produce.NodeEndpoint(node_id=NEW_LEADER, host="broker", port=9002)],
    )
    new.scripts[produce.ProduceRequest] = lambda request, version: produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="orders",
                topic_id=TOPIC_ID,
                partition_responses=[produce.PartitionProduceResponse(index=0, error_code=0, base_offset=41)],
            )
        ]
    )
    old.scripts[fetch.FetchRequest] = lambda request, version: fetched(
        fetch.PartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            high_watermark=-1,
            records=b"",
            current_leader=fetch.LeaderIdAndEpoch(leader_id=NEW_LEADER, leader_epoch=NEW_EPOCH),
        )
    )
    new.scripts[fetch.FetchRequest] = lambda request, version: fetched(
        fetch.PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=1,
            last_stable_offset=1,
            log_start_offset=0,
            records=bytes(batch.build(None, [b"v"], 1)) if request.topics else b"",
        )
    )
    return network


def without_the_new_one(network: Network, request: MetadataRequest, version: int) -> Any:
    answer = network.metadata(request, version)
    answer.brokers[:] = [each for each in answer.brokers if each.node_id != NEW_LEADER]
    return answer


def fetched(partition: fetch.PartitionData) -> fetch.FetchResponse:
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=[fetch.NodeEndpoint(node_id=NEW_LEADER, host="broker", port=9002)],
    )


def test_a_producer_follows(moved: Network) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers="broker:9001", connector=moved.connector, linger_s=0) as producer:
            assert (await producer.send("orders", b"v", partition=0)).offset == 41

    loop.run(main())
    assert len(moved.brokers[1].requests(produce.ProduceRequest)) == 1


def test_a_consumer_follows(moved: Network) -> None:
    async def main() -> None:
        async with Consumer(bootstrap_servers="broker:9001", connector=moved.connector) as consumer:
            consumer.assign([PLACE])
            consumer.seek(PLACE, 0)
            found = await consumer.take(10)
            assert [record.value for record in found] == [b"v"]

    loop.run(main())
    asked = [each for each in moved.brokers[1].requests(fetch.FetchRequest) if each.session_epoch >= 0]
    assert len(asked) == 1


def test_a_reader_of_a_range_follows(moved: Network, options: ClientOptions) -> None:
    async def main() -> None:
        async with (
            Cluster([moved.address(1)], options, moved.connector) as cluster,
            Fetcher(cluster, {PLACE: 0}, {PLACE: 1}) as fetcher,
        ):
            values = []
            while not fetcher.is_done:
                values += [value for each in await fetcher.next() for value in each.columns().values]
            assert [bytes(value or b"") for value in values] == [b"v"]

    loop.run(main())
    assert len(moved.brokers[1].requests(fetch.FetchRequest)) == 1
    assert len(moved.brokers[1].requests(MetadataRequest)) == 1
