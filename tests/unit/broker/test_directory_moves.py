"""Logs move between the directories of a broker while they are written to and read."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.scene import Producer, Scene, perform

DIRECTORIES = {"log.dirs": "/one,/two"}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW = {**DIRECTORIES, RATE: "1000"}
T0 = TopicPartition("t", 0)


async def move(scene: Scene, path: str, topic: str = "t", partition: int = 0) -> ErrorCode:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    answer = await scene.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]), 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


async def places(scene: Scene) -> dict[str, list[Any]]:
    """What is in each directory: of the topic t, whether it is a copy, and by how much that lags."""
    answer = await scene.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        result.log_dir: [
            (entry.is_future_key, entry.offset_lag)
            for topic in result.topics
            if topic.name == "t"
            for entry in topic.partitions
        ]
        for result in answer.results
    }


def other_of(scene: Scene) -> str:
    directory = scene.broker.logs.directory_of(T0)
    assert directory is not None
    return "/two" if directory.path == "/one" else "/one"


async def until_moved(scene: Scene, path: str) -> None:
    while (directory := scene.broker.logs.directory_of(T0)) is None or directory.path != path:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # virtual: what is left to do on the disk is done


async def send(scene: Scene, *values: bytes) -> None:
    for value in values:
        answer = (await scene.ask(produce("t", one_batch(value)), 9)).responses[0].partition_responses[0]
        assert not answer.error_code, ErrorCode(answer.error_code)


async def set_rate(scene: Scene, rate: int) -> None:
    entry = IncrementalAlterConfigsRequestAlterableConfig(name=RATE, config_operation=0, value=str(rate))
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="", configs=[entry]
    )
    answer = await scene.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert not answer.responses[0].error_code, answer


def test_a_log_moves_while_it_is_written_and_read() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t", segment_bytes="1048576")
        sent = [b"%d" % number * 300 for number in range(200)]
        await send(scene, *sent[:100])
        target = other_of(scene)
        old = scene.partition("t").log.directory
        assert await move(scene, target) == ErrorCode.NONE
        await send(scene, *sent[100:])
        await until_moved(scene, target)
        assert scene.partition("t").log.directory == f"{target}/t-0"
        assert not scene.process.disk.is_directory(old)
        assert await places(scene) == {target: [(False, 0)], "/two" if target == "/one" else "/one": []}
        assert await scene.values("t") == sent
        await send(scene, b"behind")
        await scene.restart(crashes=True, power_loss=True)
        assert (await scene.values("t"))[:100] == sent[:100]  # was made durable before the old one went

    perform(play, DIRECTORIES, disk_delay_s=0.05)


def test_a_move_is_shown_slowed_down_and_goes_on_after_a_restart() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t", internal_segment_bytes="3000")
        sent = [bytes([number]) * 1000 for number in range(20)]
        await send(scene, *sent)
        target = other_of(scene)
        assert await move(scene, target) == ErrorCode.NONE
        await asyncio.sleep(10)
        (_, lag), *_ = (await places(scene))[target]
        assert 2 < lag < 15
        for crashes in (False, True):
            await scene.restart(crashes=crashes)
            ((is_future, left),) = (await places(scene))[target]
            assert is_future
            assert left <= lag
        await set_rate(scene, 1_000_000)
        await until_moved(scene, target)
        found: list[bytes | None] = []
        while len(found) < len(sent):  # a fetch reads one segment
            found += await scene.values("t", offset=len(found))
        assert found == sent

    perform(play, SLOW)


def test_a_setting_that_changes_meanwhile_holds_for_the_copy() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t", internal_segment_bytes="3000")
        await send(scene, *[bytes(1000)] * 20)
        target = other_of(scene)
        assert await move(scene, target) == ErrorCode.NONE
        await asyncio.sleep(1)
        entry = IncrementalAlterConfigsRequestAlterableConfig(
            name="max.message.bytes", config_operation=0, value="5000"
        )
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=[entry]
        )
        await scene.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert (await places(scene))[target][0][0], "it is still moving"
        await set_rate(scene, 1_000_000)
        await until_moved(scene, target)
        assert scene.partition("t").log.config.max_message_bytes == 5000

    perform(play, SLOW)


def test_a_move_ends_when_the_replica_is_asked_to_stay_and_when_its_topic_goes() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        await send(scene, bytes(5000), bytes(5000))
        target = other_of(scene)
        stays = "/one" if target == "/two" else "/two"
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000)
        for end in (lambda: move(scene, stays), lambda: scene.ask(deletion, 6)):
            assert await move(scene, target) == ErrorCode.NONE
            assert (await places(scene))[target][0][0]
            await end()
            assert (await places(scene))[target] == []
            await asyncio.sleep(120)
            assert [path for path in scene.process.disk.walk("/") if "future" in path] == []

    perform(play, {**DIRECTORIES, RATE: "1"})


def test_a_copy_is_cut_with_its_log() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        await send(scene, *[bytes([number]) * 1000 for number in range(10)])
        target = other_of(scene)
        await move(scene, target)
        await asyncio.sleep(6)
        partition = scene.partition("t")
        directory = scene.broker.logs.moves.target_of(T0)
        assert directory is not None
        copied = directory.future_logs[T0].end_offset
        assert copied > 3
        scene.broker.logs.truncate(T0, 2, now_ms=0)
        partition.log.assign_epoch(partition.leader.epoch + 1)
        for value in (b"x", b"y"):
            partition.log.append(
                one_batch(value), leader_epoch=partition.leader.epoch + 1, now_ms=scene.process.clock.now_ms()
            )
        await set_rate(scene, 1_000_000)
        await until_moved(scene, target)
        log = scene.partition("t").log
        assert (log.end_offset, log.epochs.entries[-1].start_offset) == (4, 2)
        assert (await scene.values("t"))[2:] == [b"x", b"y"]

    perform(play, SLOW)


def test_a_log_that_starts_in_the_middle_of_a_batch_moves() -> None:
    """Records were deleted up to there; the copy has the whole batch and starts where the log does."""

    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        answer = await scene.ask(produce("t", one_batch(*[b"%d" % number for number in range(10)])), 9)
        assert not answer.responses[0].partition_responses[0].error_code
        scene.partition("t").delete_records(4)
        target = other_of(scene)
        assert await move(scene, target) == ErrorCode.NONE
        await asyncio.wait_for(until_moved(scene, target), 60)
        log = scene.partition("t").log
        assert (log.log_start_offset, log.end_offset) == (4, 10)
        await send(scene, b"behind")

    perform(play, DIRECTORIES)


def test_an_open_transaction_moves_along() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        producer = Producer(scene, "tx")
        await producer.init()
        await producer.send("t", b"first")
        target = other_of(scene)
        await move(scene, target)
        await until_moved(scene, target)
        await producer.send("t", b"second")
        assert await scene.values("t", isolation_level=1) == []
        await producer.end(commit=True)
        assert await scene.values("t", isolation_level=1) == [b"first", b"second"]

    perform(play, DIRECTORIES)


@pytest.mark.parametrize(
    ("path", "topic", "partition", "code"),
    [
        ("/nowhere", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/one", "never", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/one", "t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/two", "x" * 249, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_move(path: str, topic: str, partition: int, code: ErrorCode) -> None:
    async def play(scene: Scene) -> None:
        for name in ("t", "x" * 249):
            await scene.new_topic(name)
        both = {await move(scene, each, topic, partition) for each in {path, "/one" if "x" in topic else path}}
        assert code in both

    perform(play, DIRECTORIES)


@pytest.mark.parametrize("kind", ["write", "rename"])
def test_the_disk_that_a_log_moves_to_may_fail(kind: Any) -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        await send(scene, b"one", b"two")
        target = other_of(scene)
        scene.world.excuses = lambda message: "is offline" in message
        scene.process.disk.fail(f"{target}/t-0*", kind, errno.EIO)
        await move(scene, target)
        await asyncio.sleep(5)
        (failed,) = [each.path for each in scene.broker.logs.directories if not each.is_online]
        assert failed == target
        assert await scene.values("t") == [b"one", b"two"]
        await send(scene, b"three")

    perform(play, DIRECTORIES)


def test_a_log_with_a_damaged_batch_stays_where_it_is_and_others_move() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        await scene.new_topic("damaged")
        answer = await scene.ask(produce("damaged", one_batch(b"value")), 9)
        assert not answer.responses[0].partition_responses[0].error_code
        log = scene.partition("damaged").log
        file = scene.process.disk.open(f"{log.directory}/{0:020}.log", writable=True)
        file.write(log.size_bytes - 1, b"?")
        scene.world.excuses = lambda message: "damaged-0 cannot be moved" in message
        moved_from = scene.broker.logs.directory_of(TopicPartition("damaged", 0))
        assert moved_from is not None
        assert await move(scene, "/two" if moved_from.path == "/one" else "/one", "damaged") == ErrorCode.NONE
        await send(scene, b"one")
        target = other_of(scene)
        assert await move(scene, target) == ErrorCode.NONE
        await asyncio.wait_for(until_moved(scene, target), 60)
        assert list(scene.broker.logs.moves) == []
        assert scene.broker.logs.directory_of(TopicPartition("damaged", 0)) is moved_from

    perform(play, DIRECTORIES)
