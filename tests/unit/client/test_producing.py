"""Batches on their way out: numbers, order, and what is tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from ottla.client.metadata import Cluster
from ottla.client.partitioning import RecordColumns
from ottla.client.producing import Acks, BatchProducer, ProducerOptions
from ottla.client.retrying import TimedOutError
from ottla.errors import ApiError, ErrorCode
from ottla.hashing import partition_of_key
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records import batch
from ottla.records.layout import Compression


class Leader:
    """A scripted log: takes batches, unless `refuse` names an error for one."""

    def __init__(self, refuse: Callable[[batch.BatchHeader], ErrorCode] = lambda header: ErrorCode.NONE) -> None:
        self.refuse = refuse
        self.sent: list[tuple[int, bytes]] = []  # partition and batch, also those refused
        self.logs: dict[int, list[bytes | None]] = {}

    def install(self, broker) -> None:
        broker.scripts[ProduceRequest] = self.produce
        broker.scripts[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(
            producer_id=44, producer_epoch=0
        )

    def produce(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        responses = []
        for topic in request.topic_data:
            partitions = []
            for each in topic.partition_data:
                data = bytes(each.records)
                header = batch.check(data).header
                self.sent.append((each.index, data))
                error = self.refuse(header)
                log = self.logs.setdefault(each.index, [])
                partitions.append(
                    PartitionProduceResponse(index=each.index, error_code=error, base_offset=-1 if error else len(log))
                )
                if not error:
                    log += batch.decode(data).values
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        return ProduceResponse(responses=responses) if request.acks else None

    def sequences(self, partition: int = 0) -> list[tuple[int, int]]:
        headers = [batch.read_header(data) for number, data in self.sent if number == partition]
        return [(header.base_sequence, header.record_count) for header in headers]


def run(network, options, work, **settings) -> None:
    async def main() -> None:
        async with Cluster([network.address(1)], options, network.door) as cluster:
            await work(BatchProducer(cluster, ProducerOptions(**settings), random.Random(3)))

    asyncio.run(main())


def values(count: int, size: int = 10) -> RecordColumns:
    return RecordColumns([b"%0*d" % (size, number) for number in range(count)], timestamps=1_700_000_000_000)


def test_records_with_keys_go_to_their_partitions_in_one_request_per_broker(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1, 1, 1]
    keys = [b"key %d" % number for number in range(100)]

    async def work(producer: BatchProducer) -> None:
        appended = await producer.produce("orders", RecordColumns(keys, timestamps=5, keys=keys))
        assert sum(each.record_count for each in appended) == 100
        assert len(broker.requests(ProduceRequest)) == 1
        for partition, log in leader.logs.items():
            assert log == [key for key in keys if partition_of_key(key, 3) == partition]

    run(network, options, work)


def test_records_without_a_key_stay_together_and_change_the_partition_from_call_to_call(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1] * 4

    async def work(producer: BatchProducer) -> None:
        for _ in range(30):
            assert len(await producer.produce("orders", values(10))) == 1
        assert sorted(leader.logs) == [0, 1, 2, 3]

    run(network, options, work)


def test_batches_are_numbered_without_gaps(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        for _ in range(2):
            await producer.produce("orders", values(100))
        assert leader.sequences() == [(0, 29), (29, 29), (58, 29), (87, 13), (100, 29), (129, 29), (158, 29), (187, 13)]
        header = batch.read_header(leader.sent[0][1])
        assert (header.producer_id, header.producer_epoch) == (44, 0)

    run(network, options, work, batch_bytes_max=1000)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_what_may_pass_is_sent_again_byte_for_byte(network, options, code):
    refusals = iter([code, code])
    leader = Leader(lambda header: next(refusals, ErrorCode.NONE))
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        (appended,) = await producer.produce("orders", values(5))
        assert appended.base_offset == 0
        assert len(leader.sent) == 3
        assert len({data for _, data in leader.sent}) == 1

    run(network, options, work)


def test_a_batch_follows_its_leader(network, options):
    old, new = Leader(lambda header: ErrorCode.NOT_LEADER_OR_FOLLOWER), Leader()
    old.install(network.add(1))
    new.install(network.add(2))

    async def work(producer: BatchProducer) -> None:
        await producer._cluster.topic("orders")
        network.leaders = [2]
        await producer.produce("orders", values(5))
        assert (len(old.sent), len(new.sent)) == (1, 1)
        assert old.sent == new.sent

    run(network, options, work)


def test_a_lost_connection_is_no_lost_batch(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    lost = iter([True])

    def produce(request: ProduceRequest, version: int) -> object:
        answer = leader.produce(request, version)
        if next(lost, False):
            broker.pipes[-1].close()
            return None
        return answer

    broker.scripts[ProduceRequest] = produce

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(5))
        assert leader.sequences() == [(0, 5), (0, 5)], "the broker tells a repetition by its number"

    run(network, options, work)


def test_a_batch_that_is_too_large_for_the_topic_is_halved(network, options):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE if header.record_count > 30 else ErrorCode.NONE)
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(100))
        await producer.produce("orders", values(5))
        assert leader.logs[0] == [*values(100).values, *values(5).values]
        taken = [(first, count) for first, count in leader.sequences() if count <= 30]
        assert taken == [(0, 25), (25, 25), (50, 25), (75, 25), (100, 5)]

    run(network, options, work)


def test_a_record_that_is_too_large_alone_is_refused_and_so_is_what_follows(network, options):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE)
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        for _ in range(2):
            with pytest.raises(ApiError, match="orders-0: MESSAGE_TOO_LARGE"):
                await producer.produce("orders", values(1))
        assert len(leader.sent) == 1, "its number is gone: later ones could not be taken"

    run(network, options, work)


def test_without_numbers_a_refusal_is_over_with_the_call(network, options):
    codes = iter([ErrorCode.INVALID_RECORD])
    leader = Leader(lambda header: next(codes, ErrorCode.NONE))
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        with pytest.raises(ApiError):
            await producer.produce("orders", values(1))
        await producer.produce("orders", values(1))
        assert leader.sequences() == [(-1, 1), (-1, 1)]

    run(network, options, work, is_idempotent=False)


def test_without_acknowledgement_nothing_is_waited_for(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        (appended,) = await producer.produce("orders", values(3))
        assert appended.base_offset == -1
        assert leader.logs[0] == values(3).values

    run(network, options, work, acks=Acks.NONE, is_idempotent=False)


def test_calls_that_overlap_keep_their_order(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        calls = [RecordColumns([b"%d" % number], timestamps=0) for number in range(20)]
        await asyncio.gather(*(producer.produce("orders", call) for call in calls))
        assert leader.logs[0] == [b"%d" % number for number in range(20)]

    run(network, options, work)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_codec_is_in_the_batch(network, options, compression):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(50))
        assert batch.read_header(leader.sent[0][1]).compression is compression

    run(network, options, work, compression=compression)


def test_a_partition_may_be_named(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, 1, 1]

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(3), partition=2)
        assert list(leader.logs) == [2]
        with pytest.raises(ApiError, match="orders has no partition 3"):
            await producer.produce("orders", values(3), partition=3)

    run(network, options, work)


def test_numbers_need_acknowledgement():
    with pytest.raises(ValueError, match="acks=all"):
        ProducerOptions(acks=Acks.LEADER)


def test_a_broker_that_never_comes_back_is_the_end(network, options):
    object.__setattr__(options, "timeout_s", 0.05)
    broker = network.add(1)
    Leader().install(broker)

    def go_away(request: ProduceRequest, version: int) -> None:
        broker.is_down = True
        broker.pipes[-1].close()

    broker.scripts[ProduceRequest] = go_away

    async def work(producer: BatchProducer) -> None:

        with pytest.raises(TimedOutError, match=r"given up after 0\.05 s: broker:9001: no connection"):
            await producer.produce("orders", values(1))

    run(network, options, work)
