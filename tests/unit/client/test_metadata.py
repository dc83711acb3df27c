"""What a client knows of a cluster, and how it finds out."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.consumer.lookups import epoch_ends
from ottla.client.consumer.positions import Position
from ottla.client.errors import TimedOutError
from ottla.client.metadata import Cluster, parse_addresses
from ottla.client.offsets import OffsetSpec, list_offsets
from ottla.client.retrying import UnknownTopicError
from ottla.errors import ConfigError, ErrorCode
from ottla.ids import TopicPartition
from ottla.net.client import Address, CannotConnectError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.testing.loop import run


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses(text, addresses):
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:", "host:port", "host:0", "host:70000", "host:-1", "host:١"])
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_addresses(text)


def test_the_first_contact_is_not_tried_again(network, options):
    async def main() -> None:
        with pytest.raises(CannotConnectError, match="broker:9001: no connection: connection refused"):
            async with Cluster([network.address(1)], options, network.connector):
                pass

    run(main())


def test_the_first_bootstrap_server_that_answers_is_taken(network, options):
    network.add(3)

    async def main() -> None:
        addresses = [network.address(number) for number in (1, 2, 3)]
        async with Cluster(addresses, options, network.connector) as cluster:
            assert (await cluster.any_connection()).address == network.address(3)

    run(main())


def test_a_topic_is_asked_for_once(network, options):
    broker = network.add(1)
    network.leaders = [1, 1]

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            for _ in range(3):
                assert len((await cluster.topic("orders")).partitions) == 2
        assert len(broker.requests(MetadataRequest)) == 1
        assert broker.requests(MetadataRequest)[0].allow_auto_topic_creation is False

    run(main())


def test_an_unknown_topic_or_partition_is_an_error_at_once(network, options):
    network.add(1)

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            with pytest.raises(UnknownTopicError, match="the topic odrers does not exist"):
                await cluster.topic("odrers")
            with pytest.raises(UnknownTopicError, match="orders has no partition 4: it has 1, counted from 0"):
                await cluster.leader_now(TopicPartition("orders", 4))

    run(main())


def test_a_leader_that_is_being_elected_is_waited_for(network, options):
    broker = network.add(1)
    broker.scripts[ListOffsetsRequest] = offsets(network, 1)
    network.leaders = [-1]

    def metadata(request: MetadataRequest, version: int) -> object:
        if len(broker.requests(MetadataRequest)) == 4:
            network.leaders = [1]
        return network.metadata(request, version)

    broker.scripts[MetadataRequest] = metadata

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            asked = TopicPartition("orders", 0)
            assert (await list_offsets(cluster, {asked: OffsetSpec.LATEST}))[asked].offset == 100
        assert len(broker.requests(MetadataRequest)) == 4

    run(main())


def test_callers_that_need_the_same_broker_share_a_connection(network, options):
    network.add(1)
    network.add(2)

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await cluster.topic("orders")
            connections = await asyncio.gather(*(cluster.connection(2) for _ in range(5)))
            assert len(set(map(id, connections))) == 1
        assert network.connections_made == 2

    run(main())


def test_a_broken_connection_is_made_again(network, options):
    broker = network.add(1)

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await cluster.topic("orders")
            broker.pipes[0].close()
            await asyncio.sleep(0)
            cluster.forget(["orders"])
            await cluster.topic("orders")
        assert network.connections_made == 2

    run(main())


def offsets(network, node_id: int):
    def script(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            **(
                                {"offset": 100 * node_id + each.partition_index}
                                if network.leaders[each.partition_index] == node_id
                                else {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
                            ),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return script


def test_partitions_that_have_moved_are_asked_for_at_their_new_leader(network, options):
    for node_id in (1, 2):
        network.add(node_id).scripts[ListOffsetsRequest] = offsets(network, node_id)
    network.leaders = [1, 1, 2]

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await cluster.topic("orders")
            network.leaders = [1, 2, 2]  # behind the client's back
            asked = {TopicPartition("orders", number): OffsetSpec.LATEST for number in range(3)}
            found = await list_offsets(cluster, asked)
            assert [found[partition].offset for partition in asked] == [100, 201, 202]

    run(main())


def test_a_leader_that_never_comes_is_given_up_with_the_last_reason(network, options):
    network.add(1).scripts[ListOffsetsRequest] = offsets(network, 2)
    object.__setattr__(options, "timeout_s", 0.02)

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            with pytest.raises(TimedOutError, match=r"given up after 0\.02 s: orders-0: NOT_LEADER_OR_FOLLOWER"):
                await list_offsets(cluster, {TopicPartition("orders", 0): OffsetSpec.LATEST})

    run(main())


# -- brokers that know less than others --------------------------------------------------------------------------------


def knows_nothing(request: MetadataRequest, version: int) -> MetadataResponse:
    """As Kafka answers before it has heard of its controller."""
    return MetadataResponse(
        brokers=[],
        cluster_id="cluster",
        topics=[
            MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name, partitions=[])
            for topic in request.topics or ()
        ],
    )


def test_a_broker_that_knows_nothing_yet_is_not_believed_and_another_one_is_asked(network, options):
    fresh, other = network.add(1), network.add(2)
    fresh.scripts[MetadataRequest] = knows_nothing

    async def main() -> None:
        async with Cluster([network.address(1), network.address(2)], options, network.connector) as cluster:
            assert (await cluster.topic("orders")).name == "orders"
            assert list((await cluster.refresh(None)).topics) == ["orders"]

    run(main())
    assert len(fresh.requests(MetadataRequest)) == 1, "it was not asked again"
    assert len(other.requests(MetadataRequest)) == 2


def test_of_several_brokers_that_know_nothing_each_is_asked_before_one_is_asked_again(network, options):
    fresh = [network.add(number) for number in (1, 2, 3)]
    for broker in fresh:
        broker.scripts[MetadataRequest] = knows_nothing
    other = network.add(4)

    async def main() -> None:
        addresses = [network.address(number) for number in (1, 2, 3, 4)]
        async with Cluster(addresses, options, network.connector) as cluster:
            assert (await cluster.topic("orders")).name == "orders"
            assert [len(broker.requests(MetadataRequest)) for broker in (*fresh, other)] == [1, 1, 1, 1]
            other.scripts[MetadataRequest] = knows_nothing
            with pytest.raises(TimedOutError):
                await cluster.refresh(None)
            counts = [len(broker.requests(MetadataRequest)) for broker in (*fresh, other)]
            assert max(counts) - min(counts) <= 1, "they are asked in turn"

    run(main())


def test_a_broker_that_knows_nothing_is_asked_again_where_there_is_no_other(network, options):
    broker = network.add(1)

    def later(request: MetadataRequest, version: int) -> MetadataResponse:
        return (knows_nothing if len(broker.requests(MetadataRequest)) < 4 else network.metadata)(request, version)

    broker.scripts[MetadataRequest] = later

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            assert (await cluster.topic("orders")).name == "orders"
            broker.scripts[MetadataRequest] = knows_nothing
            with pytest.raises(TimedOutError, match="has just started and does not know its cluster yet"):
                await cluster.refresh(["orders"])
            assert "orders" in cluster.known_topics(), "what was known is not forgotten"

    run(main())


def test_a_topic_is_missing_only_where_no_broker_knows_it(network, options):
    late, gone = network.add(1), network.add(3)
    network.add(2)

    def unaware(request: MetadataRequest, version: int) -> MetadataResponse:
        answer = network.metadata(request, version)
        for topic in answer.topics:
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        return answer

    late.scripts[MetadataRequest] = unaware
    gone.is_down = True

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            found = await cluster.find_topics(["orders", "nowhere"])
            assert list(found.topics) == ["orders"]
            assert found.errors["nowhere"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert list((await cluster.find_topics(None, expected=["orders"])).topics) == ["orders"]
            with pytest.raises(UnknownTopicError):
                await cluster.topic("nowhere")

    run(main())


def test_a_topic_that_exists_is_waited_for(network, options):
    broker = network.add(1)
    network.topic = "not yet"

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        if len(broker.requests(MetadataRequest)) == 3:
            network.topic = "orders"
        return network.metadata(request, version)

    broker.scripts[MetadataRequest] = metadata

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            assert (await cluster.topic("orders", exists=True)).name == "orders"

    run(main())
    assert len(broker.requests(MetadataRequest)) == 3


def test_the_end_of_an_epoch_is_asked_again_where_its_leader_has_left_the_cluster(network, options):
    broker = network.add(1)
    network.leaders = [2]  # who is not among the brokers

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        if len(broker.requests(MetadataRequest)) == 4:
            network.leaders = [1]
        return network.metadata(request, version)

    def end(request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochResponse:
        found = EpochEndOffset(error_code=0, partition=0, leader_epoch=0, end_offset=7)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="orders", partitions=[found])])

    broker.scripts[MetadataRequest] = metadata
    broker.scripts[OffsetForLeaderEpochRequest] = end
    asked = TopicPartition("orders", 0)

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            assert await epoch_ends(cluster, {asked: Position(9, 0)}, 2.0) == {asked: Position(7, 0)}

    run(main())
