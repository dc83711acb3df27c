"""Batches on their way in: ranges, leaders that move, offsets that are not there, transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ottla.client.errors import TimedOutError
from ottla.client.fetching import Fetcher, FetchOptions, OffsetOutOfRangeError
from ottla.client.metadata import Cluster
from ottla.client.offsets import Isolation, OffsetSpec, list_offsets
from ottla.client.retrying import Pauses
from ottla.errors import ErrorCode, RecordsError
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.records import batch
from ottla.records.control import EndTransactionMarker, build_marker
from ottla.testing.loop import run

TRANSACTIONS = {"committed": 5, "aborted": 6}


def batch_at(base_offset: int, count: int, producer_id: int = -1) -> bytes:
    numbers = range(base_offset, base_offset + count)
    return bytes(
        batch.build(
            None,
            [b"%d" % number for number in numbers],
            [1000 + number for number in numbers],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else base_offset,
            is_transactional=producer_id >= 0,
        )
    )


def marker_at(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    marker = EndTransactionMarker(commit=commit, coordinator_epoch=0)
    return bytes(build_marker(producer_id, 0, marker, 5, base_offset=base_offset))


class Log:
    """Scripted partitions: lists of batches, a few per answer, the last one cut as brokers cut it."""

    def __init__(self, partitions: Mapping[int, list[bytes]], batches_max: int = 2, cut: int = 30) -> None:
        self.partitions = dict(partitions)
        self.batches_max = batches_max
        self.cut = cut
        self.aborted: list[AbortedTransaction] = []
        self.errors: dict[int, ErrorCode] = {}
        self.start = 0

    def install(self, broker) -> None:
        broker.scripts[FetchRequest] = self.fetch
        broker.scripts[ListOffsetsRequest] = self.list_offsets

    def end(self, partition: int) -> int:
        batches = self.partitions[partition]
        return batch.read_header(batches[-1]).end_offset if batches else 0

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._read(each.partition, each.fetch_offset) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _read(self, partition: int, offset: int) -> PartitionData:
        error = self.errors.get(partition, ErrorCode.NONE)
        if not error and not self.start <= offset <= self.end(partition):
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error:
            return PartitionData(partition_index=partition, error_code=error, high_watermark=-1, records=None)
        wanted = [data for data in self.partitions[partition] if batch.read_header(data).end_offset > offset]
        data = b"".join(wanted[: self.batches_max]) + b"".join(wanted[self.batches_max :])[: self.cut]
        return PartitionData(
            partition_index=partition,
            high_watermark=self.end(partition),
            aborted_transactions=self.aborted,
            records=data,
        )

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=self.end(each.partition_index) if each.timestamp == -1 else self.start,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def read(network, options, start: dict[int, int], end: dict[int, int] | None, **settings) -> dict[int, list[int]]:
    """The offsets read of each partition, to their ends; values are checked on the way."""
    found: dict[int, list[int]] = {number: [] for number in start}

    def named(offsets: dict[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition("orders", number): offset for number, offset in offsets.items()}

    async def main() -> None:
        async with (
            Cluster([network.address(1)], options, network.connector) as cluster,
            Fetcher(
                cluster,
                named(start),
                None if end is None else named(end),
                FetchOptions(**settings),
            ) as fetcher,
        ):
            while not fetcher.is_done:
                for fetched in await fetcher.next():
                    columns = fetched.columns()
                    assert columns.values == [b"%d" % offset for offset in columns.offsets]
                    assert columns.timestamps == [1000 + offset for offset in columns.offsets]
                    found[fetched.partition.partition] += columns.offsets

    run(main())
    return found


def test_a_range_is_read_from_inside_of_a_batch_to_inside_of_another(network, options):
    Log({0: [batch_at(0, 10), batch_at(10, 10), batch_at(20, 10), batch_at(30, 10)]}).install(network.add(1))
    assert read(network, options, {0: 4}, {0: 27}) == {0: list(range(4, 27))}


@pytest.mark.parametrize("cut", [0, 1, 12, 61, 80, 10_000])
def test_a_batch_that_an_answer_cuts_off_comes_with_the_next(network, options, cut):
    Log({0: [batch_at(10 * number, 10) for number in range(10)]}, cut=cut).install(network.add(1))
    assert read(network, options, {0: 0}, {0: 100}) == {0: list(range(100))}


def test_gaps_that_compaction_left_are_passed_over(network, options):
    Log({0: [batch_at(5, 3), batch_at(20, 2), batch_at(90, 10)]}).install(network.add(1))
    assert read(network, options, {0: 0}, {0: 95}) == {0: [5, 6, 7, 20, 21, 90, 91, 92, 93, 94]}


def test_partitions_of_several_leaders_are_read_side_by_side(network, options):
    network.leaders = [1, 2, 1]
    logs = {number: [batch_at(0, 5), batch_at(5, 5)] for number in range(3)}
    for node_id in (1, 2):
        Log(logs).install(network.add(node_id))
    expected = {number: list(range(10)) for number in range(3)}
    assert read(network, options, dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 10)) == expected
    asked = {
        node_id: {each.partition for request in broker.requests(FetchRequest) for each in request.topics[0].partitions}
        for node_id, broker in network.brokers.items()
    }
    assert asked == {1: {0, 2}, 2: {1}}


def test_a_partition_follows_its_leader(network, options):
    old, new = Log({0: [batch_at(0, 5)]}), Log({0: [batch_at(0, 5), batch_at(5, 5)]})
    first = network.add(1)
    old.install(first)
    new.install(network.add(2))

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        answer = old.fetch(request, version)
        old.errors[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        network.leaders = [2]
        return answer

    first.scripts[FetchRequest] = fetch
    assert read(network, options, {0: 0}, {0: 10}) == {0: list(range(10))}


def test_a_leader_that_has_left_the_cluster_is_looked_for_anew(network, options):
    """The topic is known from before; a question about brokers only has told that its leader is gone."""
    partition = TopicPartition("orders", 0)
    network.leaders = [2]
    Log({0: [batch_at(0, 5)]}).install(network.add(1))
    network.add(2)

    async def main() -> list[int]:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await cluster.topic("orders")
            del network.brokers[2]
            await cluster.view(())
            network.leaders = [1]
            async with Fetcher(cluster, {partition: 0}, {partition: 5}) as fetcher:
                while not fetcher.is_done:
                    for fetched in await fetcher.next():
                        return list(fetched.columns().offsets)
        return []

    assert run(main()) == list(range(5))


def test_the_leaders_of_partitions_are_looked_for_anew_too(network, options):
    network.leaders = [2]
    Log({0: [batch_at(0, 5)]}).install(network.add(1))
    network.add(2)

    async def main() -> int:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await cluster.topic("orders")
            del network.brokers[2]
            await cluster.view(())
            network.leaders = [1]
            partition = TopicPartition("orders", 0)
            return (await list_offsets(cluster, {partition: OffsetSpec.LATEST}))[partition].offset

    assert run(main()) == 5


def test_a_broken_connection_is_made_again_and_nothing_comes_twice(network, options):
    log = Log({0: [batch_at(number, 1) for number in range(20)]})
    broker = network.add(1)
    log.install(broker)
    counter = iter(range(100))

    def fetch(request: FetchRequest, version: int) -> object:
        if next(counter) % 3 == 1:
            broker.pipes[-1].close()
            return None
        return log.fetch(request, version)

    broker.scripts[FetchRequest] = fetch
    assert read(network, options, {0: 0}, {0: 20}) == {0: list(range(20))}


def test_a_broker_that_dies_while_a_connection_is_made_is_asked_again(network, options):
    log = Log({0: [batch_at(number, 1) for number in range(3)]})
    broker = network.add(1)
    log.install(broker)

    def fetch(request: FetchRequest, version: int) -> object:
        if len(broker.requests(FetchRequest)) == 1:
            broker.hang_ups = 2
            broker.pipes[-1].close()
            return None
        return log.fetch(request, version)

    broker.scripts[FetchRequest] = fetch
    assert read(network, options, {0: 0}, {0: 3}) == {0: [0, 1, 2]}
    assert network.connections_made == 4


def test_an_offset_that_is_not_there_is_an_error_that_says_what_is(network, options):
    log = Log({0: [batch_at(0, 10)]})
    log.install(network.add(1))
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 does not have offset 11: it has 0 to 9"):
        read(network, options, {0: 11}, None)


def test_an_empty_log_has_no_records_to_name(network, options):
    Log({0: []}).install(network.add(1))
    with pytest.raises(OffsetOutOfRangeError, match="it has no records; the next one will be 0"):
        read(network, options, {0: 3}, None)


def test_records_that_came_before_an_error_are_handed_out_first(network, options):
    network.leaders = [1, 1]
    log = Log({0: [batch_at(0, 10)], 1: [batch_at(0, 3)]})
    log.errors[1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    log.install(network.add(1))

    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            start = {TopicPartition("orders", number): 0 for number in (0, 1)}
            async with Fetcher(cluster, start) as fetcher:
                (fetched,) = await fetcher.next()
                assert list(fetched.columns().offsets) == list(range(10))
                with pytest.raises(Exception, match="orders-1: TOPIC_AUTHORIZATION_FAILED"):
                    await fetcher.next()

    run(main())


def test_trouble_that_does_not_end_is_given_up(network, options):
    object.__setattr__(options, "timeout_s", 0.02)
    log = Log({0: [batch_at(0, 10)]})
    log.errors[0] = ErrorCode.KAFKA_STORAGE_ERROR
    log.install(network.add(1))
    with pytest.raises(TimedOutError, match=r"given up after 0\.02 s: orders-0: KAFKA_STORAGE_ERROR"):
        read(network, options, {0: 0}, None)


@pytest.mark.parametrize("pause_s", [0, 0.5, 3.0, 1000.0])
def test_each_disturbance_has_its_own_time(network, options, pause_s):
    """Trouble that ends in time is over: the next one, however much later, is borne as long as the first."""
    log = Log({0: [batch_at(10 * number, 10) for number in range(100)]}, batches_max=1, cut=0)
    log.install(network.add(1))
    options = replace(options, pauses=Pauses(first_s=0.1, max_s=0.2, chance=random.Random(1)))

    async def main() -> None:
        async with (
            Cluster([network.address(1)], options, network.connector) as cluster,
            Fetcher(cluster, {TopicPartition("orders", 0): 0}) as fetcher,
        ):
            clock = asyncio.get_running_loop()

            async def disturb(seconds: float) -> None:
                log.errors[0] = ErrorCode.KAFKA_STORAGE_ERROR
                until = clock.time() + seconds
                while clock.time() < until:
                    await fetcher.next()

            for _ in range(3):
                await disturb(options.timeout_s * 0.9)
                log.errors.clear()
                while not await fetcher.next():
                    assert clock.time() < 10_000
                await asyncio.sleep(pause_s)
            with pytest.raises(TimedOutError, match="given up after 2 s: orders-0: KAFKA_STORAGE_ERROR"):
                await disturb(options.timeout_s * 1.1)

    run(main())


def test_damaged_records_are_not_handed_out(network, options):
    damaged = bytearray(batch_at(0, 10))
    damaged[-1] ^= 1
    Log({0: [bytes(damaged)]}).install(network.add(1))
    with pytest.raises(RecordsError, match="checksum"):
        read(network, options, {0: 0}, {0: 10})


def test_a_reader_of_committed_records_sees_neither_markers_nor_what_was_aborted(network, options):
    committed, aborted = TRANSACTIONS.values()
    log = Log(
        {
            0: [
                batch_at(0, 2, aborted),
                batch_at(2, 2, committed),
                marker_at(4, aborted, commit=False),
                batch_at(5, 2, aborted),  # the next transaction of that producer, committed
                marker_at(7, committed, commit=True),
                marker_at(8, aborted, commit=True),
                batch_at(9, 1),
            ]
        },
        batches_max=7,
    )
    log.aborted = [AbortedTransaction(producer_id=aborted, first_offset=0)]
    log.install(network.add(1))
    assert read(network, options, {0: 0}, {0: 10}, isolation=Isolation.READ_COMMITTED) == {0: [2, 3, 5, 6, 9]}


def test_transactions_that_overlap_are_told_apart(network, options):
    """Two are aborted and one is not; each ends while another is open, and one begins in the middle of the answer."""
    log = Log(
        {
            0: [
                batch_at(0, 2, 6),
                batch_at(2, 1, 7),
                batch_at(3, 1, 5),
                marker_at(4, 6, commit=False),
                batch_at(5, 2, 7),  # still aborted, though another one has ended
                batch_at(7, 1, 8),
                marker_at(8, 7, commit=False),
                batch_at(9, 1, 8),
                marker_at(10, 5, commit=True),
                marker_at(11, 8, commit=False),
                batch_at(12, 1),
            ]
        },
        batches_max=20,
    )
    log.aborted = [AbortedTransaction(producer_id=one, first_offset=at) for one, at in ((7, 2), (6, 0), (8, 7))]
    log.install(network.add(1))
    assert read(network, options, {0: 0}, {0: 13}, isolation=Isolation.READ_COMMITTED) == {0: [3, 12]}


def test_a_reader_of_everything_sees_no_markers(network, options):
    Log({0: [batch_at(0, 2, 6), marker_at(2, 6, commit=False), batch_at(3, 1)]}).install(network.add(1))
    assert read(network, options, {0: 0}, {0: 4}) == {0: [0, 1, 3]}


def test_the_next_request_leaves_before_the_records_are_worked_on(network, options):
    broker = network.add(1)
    Log({0: [batch_at(0, 5), batch_at(5, 5)]}, batches_max=1, cut=0).install(broker)

    async def main() -> None:
        async with (
            Cluster([network.address(1)], options, network.connector) as cluster,
            Fetcher(cluster, {TopicPartition("orders", 0): 0}) as fetcher,
        ):
            await fetcher.next()
            await asyncio.sleep(0)
            assert [each.topics[0].partitions[0].fetch_offset for each in broker.requests(FetchRequest)] == [0, 5]
            assert fetcher.positions == {TopicPartition("orders", 0): 5}

    run(main())
