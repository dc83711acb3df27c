"""Batches on their way out: numbers, order, and what is tried again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions, Cluster
from ottla.client.partitioning import RecordColumns
from ottla.client.producing import Acks, BatchProducer, ProducerOptions
from ottla.client.retrying import Pauses
from ottla.client.sending import Sender
from ottla.errors import ApiError, ErrorCode
from ottla.hashing import partition_of_key
from ottla.ids import TopicPartition
from ottla.net.client import ConnectionOptions
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records import batch
from ottla.records.layout import Compression
from ottla.testing import loop


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


def run(network, options, work, *, run_on=loop.run, **settings) -> None:
    async def main() -> None:
        async with Cluster([network.address(1)], options, network.connector) as cluster:
            await work(BatchProducer(cluster, ProducerOptions(**settings), random.Random(3)))

    run_on(main())


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

    async def work(producer: BatchProducer) -> None:
        waiting = []
        for call in range(30):
            rows = [b"%d-%d" % (call, row) for row in range(rng.choice([1, 5, 60, 200]))]
            sent.extend(rows)
            waiting.append(await producer.send("orders", RecordColumns(rows, timestamps=0)))
            if rng.random() < 0.3:
                await waiting[-1].appended()
        for each in waiting:
            await each.appended()
        assert leader.logs[0] == sent

    run(network, options, work, batch_bytes_max=2000)


async def until_quiet() -> None:
    """Gives everything that can move without an answer its turn."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_five_requests_are_under_way_and_not_one_more(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(1))
        broker.is_holding = True
        sending = await producer.send("orders", values(200))
        await until_quiet()
        assert len(leader.sent) == 1 + 5
        broker.release()
        await sending.appended()
        assert leader.logs[0] == [*values(1).values, *values(200).values]

    run(network, options, work, batch_bytes_max=500)


def test_the_first_batch_goes_alone_for_a_log_would_take_any_number_first(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: BatchProducer) -> None:
        await producer._cluster.topic("orders")
        producer._identity = await producer._new_identity()
        broker.is_holding = True
        sending = await producer.send("orders", values(200))
        await until_quiet()
        assert len(leader.sent) == 1
        broker.release()
        await sending.appended()
        assert leader.logs[0] == values(200).values

    run(network, options, work, batch_bytes_max=500)


def test_without_numbers_one_batch_of_a_partition_is_under_way_at_a_time(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1, 1]

    async def work(producer: BatchProducer) -> None:
        for partition in (0, 1):
            await producer.produce("orders", values(1), partition)
        broker.is_holding = True
        sendings = [await producer.send("orders", values(100), partition) for partition in (0, 1)]
        await until_quiet()
        assert sorted(number for number, _ in leader.sent[2:]) == [0, 1]
        broker.release()
        for sending in sendings:
            await sending.appended()
        assert leader.logs == {number: [*values(1).values, *values(100).values] for number in (0, 1)}

    run(network, options, work, batch_bytes_max=500, is_idempotent=False)


def test_batches_of_many_partitions_share_requests_up_to_their_limit(network, options):
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)
    network.leaders = [1] * 10
    keys = [b"key %d" % number for number in range(1000)]

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", RecordColumns([b"x" * 100] * 1000, timestamps=5, keys=keys))
        sizes = [
            sum(len(each.records) for topic in request.topic_data for each in topic.partition_data)
            for request in broker.requests(ProduceRequest)
        ]
        assert len(sizes) > 2
        assert max(sizes) <= 40_000
        assert len(leader.sent) == 10, "a batch of each partition"

    run(network, options, work, request_bytes_max=40_000)


def test_records_without_a_key_change_the_partition_with_every_batch(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1] * 4

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(232))
        assert {partition: len(log) for partition, log in leader.logs.items()} == dict.fromkeys(range(4), 58)

    run(network, options, work, batch_bytes_max=1000)


def test_records_without_a_key_avoid_partitions_without_a_leader(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, -1, 1, -1]

    async def work(producer: BatchProducer) -> None:
        for _ in range(6):
            await producer.produce("orders", values(2))
        assert {partition: len(log) for partition, log in leader.logs.items()} == {0: 6, 2: 6}

    run(network, options, work)


def test_one_partition_without_a_leader_does_not_hold_up_the_others(network, options):
    leader = Leader()
    leader.install(network.add(1))
    network.leaders = [1, -1]

    async def work(producer: BatchProducer) -> None:
        waiting = await producer.send("orders", values(3), partition=1)
        await producer.produce("orders", values(3), partition=0)
        assert list(leader.logs) == [0]
        network.leaders = [1, 1]
        await waiting.appended()
        assert leader.logs[1] == values(3).values

    run(network, options, work)


def test_the_failure_of_a_batch_is_told_to_all_that_wait(network, options):
    leader = Leader(lambda header: ErrorCode.INVALID_RECORD)
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        waiting = [await producer.send("orders", values(3)) for _ in range(3)]
        for each in waiting:
            with pytest.raises(ApiError, match="orders-0"):
                await each.appended()
        assert producer.has_failed

    run(network, options, work)


def test_a_mistake_in_the_records_is_told_and_nobody_waits_for_ever(network, options):
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        with pytest.raises(TypeError):
            await producer.produce("orders", RecordColumns(["text"], timestamps=1))  # type: ignore[list-item]
        assert not leader.sent

    run(network, options, work)


def test_a_pause_that_ends_while_lanes_are_looked_at_is_not_slept_through(network, options, monkeypatch):
    refusals = iter([ErrorCode.NOT_ENOUGH_REPLICAS] * 5)
    leader = Leader(lambda header: next(refusals, ErrorCode.NONE))
    leader.install(network.add(1))
    look = Sender._leaders_of_ready_lanes

    async def look_slowly(self: Sender) -> list[int]:
        found = await look(self)
        time.sleep(0.005)  # a busy machine: longer than the pauses of these tests
        return found

    monkeypatch.setattr(Sender, "_leaders_of_ready_lanes", look_slowly)

    async def work(producer: BatchProducer) -> None:
        async with asyncio.timeout(60):
            await producer.produce("orders", values(5))
        assert len(leader.sent) == 6

    run(network, options, work, run_on=asyncio.run)  # time goes on while it looks


def test_an_open_error_closes_its_lane_until_nothing_of_it_is_under_way(network, options):
    """The first of five is refused. Whatever were sent before the other answers are in would stand behind a gap."""
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(1))
        for code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
            leader.sent.clear()
            refusals = iter([code, *[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 4])
            leader.refuse = lambda header, refusals=refusals: next(refusals, ErrorCode.NONE)
            broker.is_holding = True
            sending = await producer.send("orders", values(200))
            await until_quiet()
            first_try = list(leader.sent)
            assert len(first_try) == 5
            # Answers come one at a time, with long enough in between for any pause of the sender.
            for left in reversed(range(5)):
                broker.release_one()
                await asyncio.sleep(0.1)
                assert not left or leader.sent == first_try, f"something was sent while {left} were under way"
            assert leader.sent[5:] == first_try[:1], "the first one comes again, alone"
            broker.release()
            await sending.appended()
        assert leader.logs[0] == [*values(1).values, *values(200).values * 3]

    run(network, options, work, batch_bytes_max=500)


def test_a_gap_closes_its_lane_before_it_is_known_what_made_it(network, options):
    """The first of five was taken and its answer says so; the others found a gap. Nothing new may be sent behind it."""
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(1))
        leader.sent.clear()
        codes = iter([ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, *[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3])
        leader.refuse = lambda header: next(codes, ErrorCode.NONE)
        broker.is_holding = True
        sending = await producer.send("orders", values(400))
        await until_quiet()
        first_try = list(leader.sent)
        (taken, refused, *behind), broker.held = broker.held, []
        pipe = taken[0]
        # All at once but for the refusal: its answer is on its way, behind those that only know of a gap.
        for _, data in (taken, refused):
            pipe.deliver(data)
        await asyncio.sleep(0.1)
        sent_after_refusal = leader.sent[5:]
        assert [number for number, _ in sent_after_refusal] in ([], [0]), "one more may follow the one that was taken"
        broker.held = behind + broker.held
        broker.release()
        await sending.appended()
        assert leader.logs[0] == [*values(1).values, *values(400).values]
        assert first_try[1] in leader.sent[5:]

    run(network, options, work, batch_bytes_max=500)


def test_after_trouble_one_batch_goes_alone(network, options):
    """Perhaps the log is another one now, and it would take whatever number comes first."""
    leader = Leader()
    broker = network.add(1)
    leader.install(broker)

    async def work(producer: BatchProducer) -> None:
        for _ in range(3):
            await producer.produce("orders", values(1))
            refusals = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
            leader.refuse = lambda header, refusals=refusals: next(refusals, ErrorCode.NONE)
            sending = await producer.send("orders", values(20))
            leader.sent.clear()
            while len(leader.sent) < 1:
                await asyncio.sleep(0)
            more = await producer.send("orders", values(100))
            broker.is_holding = True
            await asyncio.sleep(1)
            assert len(leader.sent) == 2, "the refused one, and then that one alone"
            broker.release()
            await sending.appended()
            await more.appended()

    run(network, options, work, batch_bytes_max=500)


def test_pauses_are_short_again_after_a_success(network):
    slow = ClientOptions(
        ConnectionOptions(), timeout_s=10_000, pauses=Pauses(first_s=1, max_s=1000, chance=random.Random(1))
    )
    leader = Leader()
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        clock = asyncio.get_running_loop()
        of_one = [*[ErrorCode.NOT_ENOUGH_REPLICAS] * 4, ErrorCode.NONE]
        codes = iter(of_one * 3)
        leader.refuse = lambda header: next(codes)
        sendings = [await producer.send("orders", values(1)) for _ in range(3)]
        for sending in sendings:
            started = clock.time()
            await sending.appended()
            assert 12 < clock.time() - started < 18, "1, 2, 4 and 8 seconds, about"

    run(network, slow, work, delivery_timeout_s=10_000, is_idempotent=False)


@pytest.mark.parametrize("first", [2**31 - 1, 2**31 - 30, 2**31 - 60, 2**31 - 100])
def test_halves_are_numbered_across_the_last_number(network, options, first):
    leader = Leader(lambda header: ErrorCode.MESSAGE_TOO_LARGE if header.record_count > 10 else ErrorCode.NONE)
    leader.install(network.add(1))

    async def work(producer: BatchProducer) -> None:
        await producer.produce("orders", values(1))
        producer._identity.next_sequences[TopicPartition("orders", 0)] = first
        leader.sent.clear()
        await producer.produce("orders", values(100))
        expected = first
        for sequence, count in leader.sequences():
            if count <= 10:
                assert sequence == expected
                expected = (expected + count) % 2**31
        assert expected == (first + 100) % 2**31

    run(network, options, work)
