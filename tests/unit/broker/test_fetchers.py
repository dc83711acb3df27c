"""What a fetcher appends on its short way: records for where the follower stands, in a partition that is still its."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.fetchers import FetcherSettings, _Fetcher
from ottla.broker.partition import Partition
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.net.client import Address, ClientTransport, ConnectionOptions
from ottla.records import batch
from ottla.replication.fetch_frames import FetchedPartition
from ottla.storage.recovery import open_log
from ottla.testing import loop
from ottla.testing.disk import SimulatedDisk

NODE, LEADER, OTHER_LEADER = 2, 1, 3
EPOCH = 4
NAME = TopicPartition("t", 0)


class Clock:
    """It stands still."""

    def now_ms(self) -> int:
        return 0

    def steady_ms(self) -> int:
        return 0


async def nobody(make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address) -> ClientTransport:
    """No leader ever answers."""
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits for so long")


def fetcher() -> _Fetcher:
    settings = FetcherSettings(1000, 10_000, 1, 500, 1000, 30.0)
    quota = ReplicationQuota(NODE, lambda: 1, lambda config: (), lambda: 0.0)
    address, options = Address("leader", 9092), ConnectionOptions()
    return _Fetcher(NODE, LEADER, address, options, lambda: settings, lambda: 1, quota, Clock(), nobody)


def followed() -> Partition:
    log = open_log(SimulatedDisk(), "/data/t-0", NAME, LogConfig(), now_ms=0)
    partition = Partition(NAME, UUID(int=1), log, DiskFailures(), lambda name, offset, now_ms: None)
    partition.follow(LEADER, EPOCH, 0)
    return partition


def records(offset: int) -> FetchedPartition:
    data = bytearray(batch.build(None, [b"v"], 0, base_offset=offset))
    return FetchedPartition(UUID(int=1).bytes, 0, 0, 0, 0, memoryview(data))


def leave(at: _Fetcher, partition: Partition) -> None:
    at.remove(NAME)


def follow_another(at: _Fetcher, partition: Partition) -> None:
    partition.follow(OTHER_LEADER, EPOCH + 1, 0)


def go_idle(at: _Fetcher, partition: Partition) -> None:
    partition.go_idle(EPOCH + 1)


def stop(at: _Fetcher, partition: Partition) -> None:
    assert partition.follower is not None
    partition.follower.is_stopped = True


def move_on(at: _Fetcher, partition: Partition) -> None:
    assert partition.follower is not None
    partition.append_fetched(partition.follower, records(0), 0)


@pytest.mark.parametrize("change", [leave, follow_another, go_idle, stop, move_on])
def test_an_answer_that_comes_too_late_is_left_to_the_general_way(
    change: Callable[[_Fetcher, Partition], None],
) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        assert partition.follower is not None
        asked = partition.follower.position._replace(bytes_max=1000)
        change(at, partition)
        before = partition.log.end_offset
        assert at._append(partition, asked, records(0)) is None
        assert partition.log.end_offset == before
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_records_are_appended_and_the_next_place_has_the_size_that_was_asked_for() -> None:
    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        assert partition.follower is not None
        position = partition.follower.position._replace(bytes_max=1000)
        for offset in range(3):
            found = at._append(partition, position, records(offset))
            assert found is not None
            assert (found.offset, found.bytes_max) == (offset + 1, 1000)
            position = found
        assert partition.log.end_offset == 3
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_records_that_cannot_be_appended_are_left_to_the_general_way() -> None:
    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        assert partition.follower is not None
        position = partition.follower.position._replace(bytes_max=1000)
        damaged = records(0)
        damaged.records[-1] ^= 1
        assert at._append(partition, position, damaged) is None
        assert partition.follower.position.offset == partition.log.end_offset == 0
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_follower_goes_on_behind_what_it_took_of_a_response_that_it_refuses() -> None:
    """It has the first batch: who asks again from where it asked before gets it for ever."""

    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        assert partition.follower is not None
        position = partition.follower.position._replace(bytes_max=1000)
        twice = records(0)._replace(records=memoryview(bytes(records(0).records) * 2))
        assert at._append(partition, position, twice) is None
        assert partition.follower.position.offset == partition.log.end_offset == 1
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_disk_that_fails_where_a_log_starts_within_a_batch_leaves_offsets_in_their_order() -> None:
    async def scenario() -> None:
        at, partition, disk = fetcher(), followed(), SimulatedDisk()
        partition.log = open_log(disk, "/data/t-0", NAME, LogConfig(), now_ms=0)
        at.add(partition)
        follower = partition.follower
        assert follower is not None
        partition.restart_at(follower, 2, 0, is_new_start=True)
        assert partition.high_watermark == 2
        position = follower.position._replace(bytes_max=1000)
        data = memoryview(bytearray(batch.build(None, [b"v"] * 4, 0)))
        disk.fail("*.log", "write", errno.ENOSPC)
        assert at._append(partition, position, records(0)._replace(records=data)) is None
        log = partition.log
        assert log.log_start_offset <= partition.high_watermark <= log.end_offset
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())
