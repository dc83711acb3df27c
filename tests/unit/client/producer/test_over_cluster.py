"""Batches on their way out: numbers, order, and what is tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from ottla.client.error_codes import InvalidRecordError
from ottla.client.errors import TimedOutError, TransactionAbortedError
from ottla.client.metadata import ClientOptions, Cluster
from ottla.client.partitioning import RecordColumns
from ottla.client.prepared import Prepared
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.client.retrying import Pauses
from ottla.errors import ApiError, ErrorCode
from ottla.hashing import partition_of_key
from ottla.ids import TopicPartition
from ottla.net.client import ConnectionOptions
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.records import batch
from ottla.records.layout import Compression
from ottla.testing import loop


def one_by_one(refusals: Iterator[ErrorCode]) -> Callable[[batch.BatchHeader], ErrorCode]:
    return lambda header: next(refusals, ErrorCode.NONE)


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
                data = bytes(each.records or b"")
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


def run(network, options, work, *, run_on=loop.run, **settings) -> None:
    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            producer = ClusterProducer(cluster, **settings)
            producer._rng.seed(3)
            try:
                await work(producer)
            finally:
                await producer.close(0)

    run_on(main())


def values(count: int, size: int = 10) -> RecordColumns:
    return RecordColumns([b"%0*d" % (size, number) for number in range(count)], timestamps=1_700_000_000_000)


def test_records_with_keys_go_to_their_partitions_in_one_request_per_broker(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1, 1, 1]
    keys = [b"key %d" % number for number in range(100)]

    async def work(producer: ClusterProducer) -> None:
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

    async def work(producer: ClusterProducer) -> None:
        for _ in range(30):
            assert len(await producer.produce("orders", values(10))) == 1
        assert sorted(leader.logs) == [0, 1, 2, 3]

    run(network, options, work)


def test_batches_are_numbered_without_gaps(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        for _ in range(2):
            await producer.produce("orders", values(100))
        assert leader.sequences() == [(0, 29), (29, 29), (58, 29), (87, 13), (100, 29), (129, 29), (158, 29), (187, 13)]
        header = batch.read_header(leader.sent[0][1])
        assert (header.producer_id, header.producer_epoch) == (44, 0)

    run(network, options, work, batch_size=1000)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_what_may_pass_is_sent_again_byte_for_byte(network, options, code):
    refusals = iter([code, code])
    leader = Leader(lambda header: next(refusals, ErrorCode.NONE))
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        (appended,) = await producer.produce("orders", values(5))
        assert appended.base_offset == 0
        assert len(leader.sent) == 3
        assert len({data for _, data in leader.sent}) == 1

    run(network, options, work)


def test_a_batch_follows_its_leader(network, options):
    old, new = Leader(lambda header: ErrorCode.NOT_LEADER_OR_FOLLOWER), Leader()
    old.install(network.add(1))
    new.install(network.add(2))

    async def work(producer: ClusterProducer) -> None:
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

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(5))
        assert leader.sequences() == [(0, 5), (0, 5)], "the broker tells a repetition by its number"

    run(network, options, work)


def test_a_batch_that_is_too_large_for_the_topic_is_halved(network, options):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE if header.record_count > 30 else ErrorCode.NONE)
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(100))
        await producer.produce("orders", values(5))
        assert leader.logs[0] == [*values(100).values, *values(5).values]
        taken = [(first, count) for first, count in leader.sequences() if count <= 30]
        assert taken == [(0, 25), (25, 25), (50, 25), (75, 25), (100, 5)]

    run(network, options, work)


def test_a_record_that_is_too_large_alone_is_refused_and_the_next_one_is_numbered_anew(network, options):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE)
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        for _ in range(2):
            with pytest.raises(ApiError, match="orders-0: MESSAGE_TOO_LARGE"):
                await producer.produce("orders", values(1))
        epochs = [batch.read_header(data).producer_epoch for _, data in leader.sent]
        assert (epochs, leader.sequences()) == ([0, 1], [(0, 1), (0, 1)])

    run(network, options, work)


def test_without_numbers_a_refusal_is_over_with_the_call(network, options):
    codes = iter([ErrorCode.INVALID_RECORD])
    leader = Leader(lambda header: next(codes, ErrorCode.NONE))
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        with pytest.raises(ApiError):
            await producer.produce("orders", values(1))
        await producer.produce("orders", values(1))
        assert leader.sequences() == [(-1, 1), (-1, 1)]

    run(network, options, work, enable_idempotence=False)


def test_without_acknowledgement_nothing_is_waited_for(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        (appended,) = await producer.produce("orders", values(3))
        assert appended.base_offset == -1
        assert leader.logs[0] == values(3).values

    run(network, options, work, acks=0, enable_idempotence=False)


def test_calls_that_overlap_keep_their_order(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        calls = [RecordColumns([b"%d" % number], timestamps=0) for number in range(20)]
        await asyncio.gather(*(producer.produce("orders", call) for call in calls))
        assert leader.logs[0] == [b"%d" % number for number in range(20)]

    run(network, options, work)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_codec_is_in_the_batch(network, options, compression):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(50))
        assert batch.read_header(leader.sent[0][1]).compression is compression

    run(network, options, work, compression_type=compression.name.lower())


def test_a_partition_may_be_named(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, 1, 1]

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(3), partition=2)
        assert list(leader.logs) == [2]
        with pytest.raises(ApiError, match="orders has no partition 3"):
            await producer.produce("orders", values(3), partition=3)

    run(network, options, work)


def test_a_broker_that_never_comes_back_is_the_end(network, options):
    object.__setattr__(options, "timeout_s", 0.05)
    broker = network.add(1)
    Leader().install(broker)

    def go_away(request: ProduceRequest, version: int) -> None:
        broker.is_down = True
        broker.pipes[-1].close()

    broker.scripts[ProduceRequest] = go_away

    async def work(producer: ClusterProducer) -> None:

        with pytest.raises(TimedOutError, match=r"given up after 0\.05 s: broker:9001: "):
            await producer.produce("orders", values(1))

    run(network, options, work)


class NumberedLeader(Leader):
    """A log that minds numbers as a broker does: the last five of a producer are known again, a gap is refused."""

    def __init__(self, rng: random.Random, trouble: float) -> None:
        super().__init__(self.judge)
        self.rng = rng
        self.trouble = trouble
        self.taken: list[tuple[int, int]] = []  # base sequence and count

    def judge(self, header: batch.BatchHeader) -> ErrorCode:
        first, count = header.base_sequence, header.record_count
        if (first, count) in self.taken[-5:]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if self.rng.random() < self.trouble:
            return self.rng.choice([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
        if count > 40:
            return ErrorCode.MESSAGE_TOO_LARGE
        if self.taken and first != sum(self.taken[-1]):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.taken.append((first, count))
        return ErrorCode.NONE


@pytest.mark.parametrize("seed", range(25))
def test_whatever_fails_every_record_is_there_once_and_in_order(network, options, seed):
    rng = random.Random(seed)
    leader = NumberedLeader(rng, trouble=0.2)
    broker = network.add(1)
    leader.install(broker)
    broker.delay_s = 0.001

    def produce(request: ProduceRequest, version: int) -> object:
        # Once in a while the connection breaks, before the broker has the request or after.
        chance = rng.random()
        answer = None if chance < 0.03 else leader.produce(request, version)
        if chance < 0.06:
            for pipe in broker.pipes:
                pipe.close()
            return None
        return answer

    broker.scripts[ProduceRequest] = produce
    sent: list[bytes] = []

    async def work(producer: ClusterProducer) -> None:
        waiting = []
        for call in range(30):
            rows = [b"%d-%d" % (call, row) for row in range(rng.choice([1, 5, 60, 200]))]
            sent.extend(rows)
            waiting.append(await producer.send_records("orders", RecordColumns(rows, timestamps=0)))
            if rng.random() < 0.3:
                await waiting[-1]
        for each in waiting:
            await each
        assert leader.logs[0] == sent

    run(network, options, work, batch_size=2000)


async def until_quiet() -> None:
    """Gives everything that can move without an answer its turn."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_five_requests_are_under_way_and_not_one_more(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(1))
        broker.is_holding = True
        sending = await producer.send_records("orders", values(200))
        await until_quiet()
        assert len(leader.sent) == 1 + 5
        broker.release()
        await sending
        assert leader.logs[0] == [*values(1).values, *values(200).values]

    run(network, options, work, batch_size=500)


def test_the_first_batch_goes_alone_for_a_log_would_take_any_number_first(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1, 1]

    async def work(producer: ClusterProducer) -> None:
        await producer._cluster.topic("orders")
        await producer.produce("orders", values(1), partition=1)  # it knows who it is
        leader.sent.clear()
        broker.is_holding = True
        sending = await producer.send_records("orders", values(200), partition=0)
        await until_quiet()
        assert len(leader.sent) == 1
        broker.release()
        await sending
        assert leader.logs[0] == values(200).values

    run(network, options, work, batch_size=500)


def test_without_numbers_one_batch_of_a_partition_is_under_way_at_a_time(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1, 1]

    async def work(producer: ClusterProducer) -> None:
        for partition in (0, 1):
            await producer.produce("orders", values(1), partition)
        broker.is_holding = True
        sendings = [await producer.send_records("orders", values(100), partition) for partition in (0, 1)]
        await until_quiet()
        assert sorted(number for number, _ in leader.sent[2:]) == [0, 1]
        broker.release()
        for sending in sendings:
            await sending
        assert leader.logs == {number: [*values(1).values, *values(100).values] for number in (0, 1)}

    run(network, options, work, batch_size=500, enable_idempotence=False)


def test_batches_of_many_partitions_share_requests_up_to_their_limit(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1] * 10
    keys = [b"key %d" % number for number in range(1000)]

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", RecordColumns([b"x" * 100] * 1000, timestamps=5, keys=keys))
        sizes = [
            sum(len(each.records) for topic in request.topic_data for each in topic.partition_data)
            for request in broker.requests(ProduceRequest)
        ]
        assert len(sizes) > 2
        assert max(sizes) <= 40_000
        assert len(leader.sent) == 10, "a batch of each partition"

    run(network, options, work, max_request_size=40_000)


def test_records_without_a_key_change_the_partition_with_every_batch(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1] * 4

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(232))
        assert {partition: len(log) for partition, log in leader.logs.items()} == dict.fromkeys(range(4), 58)

    run(network, options, work, batch_size=1000)


def test_records_without_a_key_avoid_partitions_without_a_leader(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, -1, 1, -1]

    async def work(producer: ClusterProducer) -> None:
        for _ in range(6):
            await producer.produce("orders", values(2))
        assert {partition: len(log) for partition, log in leader.logs.items()} == {0: 6, 2: 6}

    run(network, options, work)


def test_one_partition_without_a_leader_does_not_hold_up_the_others(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, -1]

    async def work(producer: ClusterProducer) -> None:
        waiting = await producer.send_records("orders", values(3), partition=1)
        await producer.produce("orders", values(3), partition=0)
        assert list(leader.logs) == [0]
        network.leaders = [1, 1]
        await waiting
        assert leader.logs[1] == values(3).values

    run(network, options, work)


def test_every_batch_that_is_refused_says_so(network, options):
    leader = Leader(lambda header: ErrorCode.INVALID_RECORD)
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        waiting = [await producer.send_records("orders", values(3)) for _ in range(3)]
        for each in waiting:
            with pytest.raises(ApiError, match="orders-0"):
                await each
        assert not producer.has_failed

    run(network, options, work)


@pytest.mark.parametrize("enable_idempotence", [True, False])
def test_columns_that_are_no_records_fail_alone_and_the_producer_goes_on(network, options, enable_idempotence):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        for _ in range(2):
            with pytest.raises(InvalidRecordError, match=r"cannot be encoded: .*bytes"):
                await producer.produce("orders", RecordColumns(["text"], timestamps=1))  # type: ignore[list-item]
            await producer.produce("orders", values(1))
        assert leader.logs[0] == list(values(1).values) * 2

    run(network, options, work, enable_idempotence=enable_idempotence)


def test_after_trouble_one_batch_goes_alone(network, options):
    """Perhaps the log is another one now, and it would take whatever number comes first."""
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: ClusterProducer) -> None:
        for _ in range(3):
            await producer.produce("orders", values(1))
            refusals = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
            leader.refuse = one_by_one(refusals)
            sending = await producer.send_records("orders", values(20))
            leader.sent.clear()
            while len(leader.sent) < 1:
                await asyncio.sleep(0)
            more = await producer.send_records("orders", values(100))
            broker.is_holding = True
            await asyncio.sleep(1)
            assert len(leader.sent) == 2, "the refused one, and then that one alone"
            broker.release()
            await sending
            await more

    run(network, options, work, batch_size=500)


def test_pauses_are_short_again_after_a_success(network):
    slow = ClientOptions(
        ConnectionOptions(), timeout_s=10_000, pauses=Pauses(first_s=1, max_s=1000, chance=random.Random(1))
    )
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        clock = asyncio.get_running_loop()
        of_one = [*[ErrorCode.NOT_ENOUGH_REPLICAS] * 4, ErrorCode.NONE]
        codes = iter(of_one * 3)
        leader.refuse = lambda header: next(codes)
        sendings = [await producer.send_records("orders", values(1)) for _ in range(3)]
        for sending in sendings:
            started = clock.time()
            await sending
            assert 12 < clock.time() - started < 18, "1, 2, 4 and 8 seconds, about"

    run(network, slow, work, delivery_timeout_s=10_000, enable_idempotence=False)


@pytest.mark.parametrize("first", [2**31 - 1, 2**31 - 30, 2**31 - 60, 2**31 - 100])
def test_halves_are_numbered_across_the_last_number(network, options, first):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE if header.record_count > 10 else ErrorCode.NONE)
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        await producer.produce("orders", values(1))
        assert producer._sequences is not None
        producer._sequences._partitions[TopicPartition("orders", 0)].next_sequence = first
        leader.sent.clear()
        await producer.produce("orders", values(100))
        expected = first
        for sequence, count in leader.sequences():
            if count <= 10:
                assert sequence == expected
                expected = (expected + count) % 2**31
        assert expected == (first + 100) % 2**31

    run(network, options, work)


# -- in a transaction that somebody else ends --------------------------------------------------------------------------


def run_in_transaction(network, options, work, *, raises_epochs: bool) -> None:
    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            producer = ClusterProducer(cluster, Prepared("copy-7", 44, 3, raises_epochs), batch_size=500)
            try:
                await work(producer)
            finally:
                await producer.close(0)

    loop.run(main())


def install_coordinator(broker, added: list[int], code: ErrorCode = ErrorCode.NONE) -> None:
    def add(request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        (topic,) = request.v3_and_below_topics
        added.extend(topic.partitions)
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
            for each in topic.partitions
        ]
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)]
        )

    broker.scripts[AddPartitionsToTxnRequest] = add
    broker.scripts[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
        node_id=1, host="broker", port=9001
    )


@pytest.mark.parametrize("raises_epochs", [True, False])
def test_columns_are_written_in_the_transaction_and_its_end_is_left_to_others(network, options, raises_epochs):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    added: list[int] = []
    install_coordinator(broker, added)
    network.leaders = [1, 1]

    async def work(producer: ClusterProducer) -> None:
        for partition in (0, 1, 0):
            await producer.produce("orders", values(50), partition)
        assert added == ([] if raises_epochs else [0, 1])
        headers = [batch.read_header(data) for _, data in leader.sent]
        assert all(header.is_transactional for header in headers)
        assert {(header.producer_id, header.producer_epoch) for header in headers} == {(44, 3)}
        requests = broker.requests(ProduceRequest)
        assert {request.transactional_id for request in requests} == {"copy-7"}

    run_in_transaction(network, options, work, raises_epochs=raises_epochs)
    assert not broker.requests(InitProducerIdRequest)


def test_a_transaction_that_takes_no_partitions_ends_what_waits_with_the_reason(network, options):
    broker = network.add(1)
    leader = Leader()
    leader.install(broker)
    install_coordinator(broker, [], ErrorCode.INVALID_PRODUCER_EPOCH)

    async def work(producer: ClusterProducer) -> None:
        with pytest.raises(TransactionAbortedError, match="INVALID_PRODUCER_EPOCH") as caught:
            await producer.produce("orders", values(5))
        assert isinstance(caught.value.__cause__, ApiError)
        assert not leader.sent

    run_in_transaction(network, options, work, raises_epochs=False)


def test_after_a_refusal_nothing_more_is_written_in_the_transaction(network, options):
    leader = Leader(lambda header: ErrorCode.INVALID_RECORD)
    leader.install(network.add(1))

    async def work(producer: ClusterProducer) -> None:
        sent = await producer.send_records("orders", values(100))
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            await sent
        with pytest.raises(TransactionAbortedError, match="INVALID_RECORD"):
            await producer.produce("orders", values(1))
        assert len(leader.sent) == 1

    run_in_transaction(network, options, work, raises_epochs=True)
