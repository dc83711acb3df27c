"""Produce requests that have to wait: for replicas, for a coordinator, for a thread. What they sent stays as it was."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.records.layout import Compression
from ottla.storage.admission import DECOMPRESSED_AT_ONCE_BYTES_MAX
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.scene import FOLLOWER_ID, Producer, Scene, perform

DECOMPRESSES_FAR = bytes(DECOMPRESSED_AT_ONCE_BYTES_MAX)


async def chatter(scene: Scene, rounds: int) -> None:
    """Others send: all connections receive into one buffer."""
    client = await scene.connect()
    for _ in range(rounds):
        await client.call(produce("others", one_batch(b"\xff" * 3000)), 9)


def test_acks_of_all_wait_for_the_last_of_several_partitions_and_acks_of_the_leader_for_nobody() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        scene.follow(topic)
        answer = await scene.ask(produce(topic, one_batch(b"0"), acks=1), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        clients = [await scene.connect() for _ in range(3)]
        waiting = [
            asyncio.create_task(client.call(produce(topic, one_batch(b"1", b"2"), timeout_ms=60_000), 9))
            for client in clients
        ]
        await asyncio.sleep(1)
        for end_offset, answered in ((2, 0), (3, 1), (6, 2), (7, 3)):
            scene.catch_up(topic, end_offset=end_offset)
            await asyncio.sleep(1)
            assert sum(task.done() for task in waiting) == answered, end_offset
        answers = [task.result().responses[0].partition_responses[0] for task in waiting]
        assert sorted((one.error_code, one.base_offset) for one in answers) == [(0, 1), (0, 3), (0, 5)]

    perform(play)


def test_acks_of_all_that_nobody_gives_time_out_and_the_records_stay() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        scene.follow(topic)
        started = scene.world.loop.time()
        answer = await scene.ask(produce(topic, one_batch(b"v"), timeout_ms=5000), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert 5 <= scene.world.loop.time() - started < 6
        scene.catch_up(topic)
        assert await scene.values(topic) == [b"v"]

    perform(play)


@pytest.mark.parametrize(
    ("is_before", "code"), [(True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), (False, ErrorCode.NONE)]
)
def test_as_many_replicas_as_asked_for_must_have_a_record_when_it_is_committed(is_before: bool, code: int) -> None:
    """Not later: a request about several partitions waits for all of them, and they may have other replicas by then."""

    async def play(scene: Scene) -> None:
        topic, slow = await scene.new_topic(min_insync_replicas="2"), await scene.new_topic("slow")
        for name in (topic, slow):
            await scene.ask(produce(name, one_batch(b"first"), acks=1), 9)
            scene.follow(name)
            scene.catch_up(name)
        request = produce(topic, one_batch(b"v"))
        request.topic_data += produce(slow, one_batch(b"v")).topic_data
        client = await scene.connect()
        waiting = asyncio.create_task(client.call(request, 9))
        await asyncio.sleep(1)
        if not is_before:
            scene.catch_up(topic)
        await asyncio.sleep(1)
        partition = scene.partition(topic)
        leader = partition.leader
        partition.isr_changed(leader, (leader.node_id,), leader.version + 1)
        assert leader.high_watermark == 2
        if is_before:
            await asyncio.sleep(1)
            partition.isr_changed(leader, (leader.node_id, FOLLOWER_ID), leader.version + 1)
        assert not waiting.done()
        scene.catch_up(slow)
        assert [one.partition_responses[0].error_code for one in (await waiting).responses] == [code, ErrorCode.NONE]

    perform(play)


def test_only_what_is_committed_can_be_deleted() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        await scene.ask(produce(topic, one_batch(b"committed")), 9)
        scene.follow(topic)
        scene.catch_up(topic)
        await scene.ask(produce(topic, one_batch(b"not yet"), acks=1), 9)

        async def delete(offset: int) -> tuple[int, int]:
            trim = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
            answer = await scene.ask(DeleteRecordsRequest(topics=[trim], timeout_ms=1000), 2)
            partition = answer.topics[0].partitions[0]
            return partition.error_code, partition.low_watermark

        assert await delete(2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(-1) == (0, 1)
        scene.catch_up(topic)
        assert await delete(2) == (0, 2)

    perform(play)


def test_records_that_wait_for_their_coordinator_are_not_those_of_others() -> None:
    """As long as a partition does not know of the end of the transaction before, the next one has to wait."""

    async def play(scene: Scene) -> None:
        await scene.new_topic("others")
        topic = await scene.new_topic()
        producer, client = Producer(scene, "tx"), await scene.connect()
        await producer.init()
        scene.follow(topic)
        for number in range(3):
            first = asyncio.create_task(producer.send(topic, b"first %d" % number))
            await asyncio.sleep(0.1)
            scene.catch_up(topic)
            await first
            await producer.end(commit=True)
            second = asyncio.create_task(producer.send(topic, b"second %d" % number, client=client))
            await chatter(scene, 3)
            assert scene.partition(topic).log.end_offset == 4 * number + 2, "the marker, and nothing behind it"
            for _ in range(2):
                scene.catch_up(topic)
                await asyncio.sleep(0.1)
            await second
            await producer.end(commit=True)
            scene.catch_up(topic)
            await asyncio.sleep(0.1)
        assert await scene.values(topic, isolation_level=1) == [
            value for number in range(3) for value in (b"first %d" % number, b"second %d" % number)
        ]

    perform(play, {"add.partitions.to.txn.retry.backoff.max.ms": "10000"})


def test_records_that_a_thread_looks_at_are_not_those_of_others() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("others")
        topic = await scene.new_topic()
        client = await scene.connect()
        large = one_batch(b"mine", DECOMPRESSES_FAR, compression=Compression.ZSTD)
        for number in range(3):
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(client.call(produce(topic, large), 9))
                tasks.create_task(chatter(scene, 5))
            answer = asked.result().responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
        assert (await scene.values(topic))[::2] == [b"mine"] * 3

    perform(play, disk_delay_s=0.05)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_ends_while_a_thread_looks_at_its_batch_does_not_get_it(version: int) -> None:
    """In version 1 the next batch has the number and the epoch that are due: only a second look tells."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        producer, client = Producer(scene, "tx", version=version), await scene.connect()
        await producer.init()
        for number in range(3):
            await producer.send(topic, b"%d" % number)
            late = asyncio.create_task(
                producer.send(topic, DECOMPRESSES_FAR, client=client, compression=Compression.ZSTD, timestamps=number)
            )
            await asyncio.sleep(0.01)  # the thread has it, for a second or so
            await producer.end(commit=False)
            with pytest.raises(AssertionError, match=r"INVALID_TXN_STATE|INVALID_PRODUCER_EPOCH"):
                await late
        assert await scene.values(topic) == [b"0", b"1", b"2"]
        assert scene.partition(topic).log.last_stable_offset(6) == 6, "nothing hangs"

    perform(play, disk_delay_s=5)


def test_without_acks_what_cannot_be_written_costs_the_connection() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        client = await scene.connect()
        await client.send(produce(topic, one_batch(b"fine"), acks=0), 9)
        await client.send(produce("never", one_batch(b"v"), acks=0), 9)
        try:
            await client.call(produce(topic, one_batch(b"behind")), 9)
        except ConnectionResetError:
            pass
        else:
            raise AssertionError("a producer without acks would never learn of it")
        assert await scene.values(topic) == [b"fine"]

    perform(play, {"auto.create.topics.enable": "false"})
