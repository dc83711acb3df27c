"""What a fetcher appends on its short way: records for where the follower stands, in a partition that is still its."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.fetchers import Fetchers, FetcherSettings, _Fetcher, hash_of
from ottla.broker.follower_truncation import EpochQuestion
from ottla.broker.partition import Partition
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.broker.steady_fetches import SteadyFetches
from ottla.config import LogConfig
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.net.client import Address, BrokerConnection, ClientTransport, ConnectionOptions
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.offsets import EpochEndOffset
from ottla.protocol.versions import API_TABLE
from ottla.records import batch
from ottla.replication.fetch_frames import FetchedPartition
from ottla.runtime.turns import Turns
from ottla.storage.log import Log
from ottla.storage.recovery import open_log
from ottla.testing import loop
from ottla.testing.disk import SimulatedDisk

NODE, LEADER, OTHER_LEADER = 2, 1, 3
FETCH = API_TABLE[1]
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


class Surroundings:
    """What a fetcher asks about again and again."""

    def __init__(self) -> None:
        self.broker_epoch = 1
        self.throttled: tuple[str, ...] = ()


def fetcher(around: Surroundings | None = None) -> _Fetcher:
    around = around or Surroundings()
    settings = FetcherSettings(1000, 10_000, 1, 500, 1000, 30.0)
    quota = ReplicationQuota(NODE, lambda: 1, lambda config: around.throttled, lambda: 0.0)
    address, options = Address("leader", 9092), ConnectionOptions()
    epoch = lambda: around.broker_epoch  # noqa: E731
    return _Fetcher(NODE, LEADER, address, 0, options, lambda: settings, epoch, quota, Clock(), nobody)


def followed(index: int = 0) -> Partition:
    name = TopicPartition(NAME.topic, index)
    log = open_log(SimulatedDisk(), f"/data/{name}", name, LogConfig(), now_ms=0)
    partition = Partition(name, UUID(int=1), log, DiskFailures(), lambda name, offset, now_ms: None)
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
        assert at._append(partition, asked, records(0), 0) is None
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
            found = at._append(partition, position, records(offset), 0)
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
        assert at._append(partition, position, damaged, 0) is None
        assert partition.follower.position.offset == partition.log.end_offset == 0
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_records_that_never_fit_are_asked_for_and_reported_more_and_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        follower = partition.follower
        assert follower is not None
        asked, now, pauses = follower.position, asyncio.get_running_loop().time(), []
        for damaged in (b"\0" * 100, b"") * 2:
            for _ in range(8 if damaged else 1):
                await at._handle_response(
                    partition, asked, PartitionData(partition_index=0, high_watermark=0, records=damaged)
                )
                pauses.append(follower.paused_until - now)
        assert pauses[:6] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64])
        assert pauses[6:8] == [1.0, 1.0]
        assert pauses[9] == pytest.approx(0.02)  # it had gone well meanwhile
        assert len(caplog.messages) == 2 * len((1, 2, 4, 8))


def test_a_follower_goes_on_behind_what_it_took_of_a_response_that_it_refuses() -> None:
    """It has the first batch: who asks again from where it asked before gets it for ever."""

    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        assert partition.follower is not None
        position = partition.follower.position._replace(bytes_max=1000)
        twice = records(0)._replace(records=memoryview(bytes(records(0).records) * 2))
        assert at._append(partition, position, twice, 0) is None
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
        assert at._append(partition, position, records(0)._replace(records=data), 0) is None
        log = partition.log
        assert log.log_start_offset <= partition.high_watermark <= log.end_offset
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_partition_that_fails_in_a_way_that_nobody_expected_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        at, broken, sound = fetcher(), followed(), followed()
        sound.name = TopicPartition("t", 1)
        at.add(broken)
        at.add(sound)

        append = Log.append_as_follower

        def append_or_fail(log: Log, data: Any, *, now_ms: int) -> Any:
            if log is broken.log:
                raise IndexError("nobody expected that")
            return append(log, data, now_ms=now_ms)

        monkeypatch.setattr(Log, "append_as_follower", append_or_fail)
        wanted = at._wanted()
        positions = at._positions(wanted)
        answers = [
            PartitionData(partition_index=index, high_watermark=1, records=bytes(records(0).records))
            for index in (0, 1)
        ]
        topic = FetchableTopicResponse(topic_id=broken.topic_id, partitions=answers)
        await at._handle_answer(FetchResponse(responses=[topic], session_id=7), wanted, positions)
        assert sound.log.end_offset == 1
        assert broken.follower is not None
        assert not broken.follower.is_ready(asyncio.get_running_loop().time())
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())
    assert "t-0: its records cannot be taken; will retry" in caplog.text


# -- before the first fetch from an older leader -----------------------------------------------------------------------


def older_epochs() -> Partition:
    """One that follows with records of epochs 0, 1 and 2, of which the leader has other ones."""
    log = open_log(SimulatedDisk(), "/data/t-0", NAME, LogConfig(), now_ms=0)

    def truncate(name: TopicPartition, offset: int, now_ms: int) -> None:
        log.truncate_to(offset, now_ms=now_ms)

    partition = Partition(NAME, UUID(int=1), log, DiskFailures(), truncate)
    for epoch in range(3):
        data = bytearray(batch.build(None, [b"v"], 0, base_offset=epoch))
        batch.stamp(data, epoch, epoch)
        log.append_as_follower(data, now_ms=0)
    partition.follow(LEADER, EPOCH, 1)
    return partition


def questions(at: _Fetcher, *, reports_divergence: bool = False) -> list[EpochQuestion]:
    return at._truncation.questions(at.partitions.values(), reports_divergence=reports_divergence)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        EpochEndOffset(partition=0, error_code=ErrorCode.FENCED_LEADER_EPOCH),
        EpochEndOffset(partition=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_follower_whose_question_is_not_answered_asks_again_and_does_not_fetch_before(
    answer: EpochEndOffset | None,
) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        at.add(partition)
        (question,) = questions(at)
        assert question.epoch == 2
        at._truncation.handle_answer(question, answer)
        assert partition.log.end_offset == 3
        assert not at._wanted()
        assert not questions(at)
        await asyncio.sleep(1.0)
        assert questions(at) == [question]
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


@pytest.mark.parametrize("change", [leave, follow_another, go_idle])
def test_where_an_epoch_ends_is_of_no_interest_to_one_that_has_left(
    change: Callable[[_Fetcher, Partition], None],
) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        at.add(partition)
        (question,) = questions(at)
        change(at, partition)
        at._truncation.handle_answer(question, EpochEndOffset(partition=0, leader_epoch=0, end_offset=1))
        assert partition.log.end_offset == 3
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_after_the_last_answer_nothing_is_asked_any_more() -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        at.add(partition)
        (question,) = questions(at)
        at._truncation.handle_answer(question, EpochEndOffset(partition=0, leader_epoch=1, end_offset=9))
        assert (partition.log.end_offset, partition.log.epochs.latest) == (2, 1)
        assert not questions(at)
        assert partition.follower is not None
        assert partition.follower.position.offset == 2
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_leader_that_knows_no_epochs_leaves_what_is_known_to_be_committed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        at.add(partition)
        (question,) = questions(at)
        at._truncation.handle_answer(question, EpochEndOffset(partition=0, leader_epoch=-1, end_offset=-1))
        assert partition.log.end_offset == partition.high_watermark == 1
        assert not questions(at)
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())
    assert "truncating to the high watermark, from 3 to 1" in caplog.text


@pytest.mark.parametrize("reports_divergence", [False, True])
def test_records_without_epochs_are_cut_off_above_the_high_watermark_without_a_question(
    reports_divergence: bool,
) -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        partition.log.epochs.clear()
        partition.follow(LEADER, EPOCH + 1, 1)
        at.add(partition)
        assert not questions(at, reports_divergence=reports_divergence)
        assert partition.log.end_offset == 1
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_one_that_had_to_go_back_to_the_end_of_its_leader_asks_again() -> None:
    async def scenario() -> None:
        at, partition = fetcher(), older_epochs()
        at.add(partition)
        follower = partition.follower
        assert follower is not None
        follower.is_truncated = True
        partition.restart_at(follower, 2, 0, is_new_start=False)
        assert [question.epoch for question in questions(at)] == [1]
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


# -- another number of fetchers ----------------------------------------------------------------------------------------

ADDRESSES = {LEADER: Address("leader", 9092), OTHER_LEADER: Address("other", 9092)}


class Fetching:
    """Twelve partitions of two leaders, fetched by as many fetchers of each as are set."""

    def __init__(self, count: int) -> None:
        self.count = count
        settings = FetcherSettings(1000, 10_000, 1, 500, 1000, 30.0)
        quota = ReplicationQuota(NODE, lambda: 1, lambda config: (), lambda: 0.0)
        self.fetchers = Fetchers(NODE, lambda: settings, lambda: self.count, lambda: 1, quota, Clock(), nobody)
        self.partitions = [followed(index) for index in range(12)]
        for partition in self.partitions:
            leader = LEADER if partition.name.partition % 2 else OTHER_LEADER
            partition.follow(leader, EPOCH, 0)
            self.fetchers.follow(partition, leader, ADDRESSES[leader])

    async def resize(self, count: int) -> None:
        self.count = count
        await self.fetchers.resize(Turns())

    def check(self) -> None:
        """Each partition is fetched once, from its leader, by the fetcher that it would have from the beginning."""
        fetchers = [*self.fetchers._fetchers.values()]
        assert sorted(name for each in fetchers for name in each.partitions) == [one.name for one in self.partitions]
        for partition in self.partitions:
            assert partition.follower is not None
            fetcher = self.fetchers._places[partition.name]
            assert fetcher.partitions[partition.name] is partition
            assert (fetcher.leader_id, fetcher.number) == (
                partition.follower.leader_id,
                hash_of(partition.name) % self.count,
            )
        assert all(each.partitions for each in fetchers)

    async def close(self) -> None:
        self.fetchers.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (2, 5, 4), (4, 4)])
def test_another_number_of_fetchers_holds_for_partitions_that_are_followed(counts: tuple[int, ...]) -> None:
    async def scenario() -> None:
        fetching = Fetching(counts[0])
        followers = [partition.follower for partition in fetching.partitions]
        assert followers[0] is not None
        followers[0].pause(asyncio.get_running_loop().time(), 10.0)
        before = [(each.position, each.paused_until, each.is_stopped) for each in followers if each is not None]
        for count in counts[1:]:
            await fetching.resize(count)
            fetching.check()
        for partition, follower in zip(fetching.partitions, followers, strict=True):
            assert partition.follower is follower, "it goes on where it stands"
        assert before == [(each.position, each.paused_until, each.is_stopped) for each in followers if each is not None]
        await fetching.close()

    loop.run(scenario())


def test_a_partition_whose_fetcher_stays_the_same_is_left_alone() -> None:
    async def scenario() -> None:
        fetching = Fetching(2)
        before = {name: (fetcher, fetcher._changed.count) for name, fetcher in fetching.fetchers._places.items()}
        await fetching.resize(2)
        assert {name: (each, each._changed.count) for name, each in fetching.fetchers._places.items()} == before
        await fetching.close()

    loop.run(scenario())


def test_a_broker_that_stops_also_ends_fetchers_that_wait_for_their_last_response() -> None:
    async def scenario() -> None:
        fetching = Fetching(3)
        await asyncio.sleep(0)
        tasks = [fetcher._task for fetcher in fetching.fetchers._fetchers.values()]
        await fetching.resize(1)
        assert sum(not task.done() for task in tasks) == 6, "nobody has answered them yet"
        await fetching.close()
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        assert not fetching.fetchers._ending

    loop.run(scenario())


class AskedLeader(BrokerConnection):
    """Notes what it is asked, and goes on with every session."""

    def __init__(self) -> None:
        super().__init__(ADDRESSES[LEADER], ConnectionOptions())
        self.versions = {FETCH.key: FETCH.versions}
        self.asked: list[FetchRequest] = []

    async def request(self, message: Any, answer: Any, **options: Any) -> Any:
        self.asked.append(message)
        return FetchResponse(session_id=7, responses=[])


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_one_that_comes_back_is_named_in_a_session_that_has_reported_nothing_of_it(epoch: int) -> None:
    """What the leader said while it was away was not taken. In a new epoch the leader says everything again anyway."""

    async def scenario() -> None:
        at, partition, leader = fetcher(), followed(), AskedLeader()
        at.add(partition)
        for _ in range(2):
            at._session.answered(await at._ask(leader, at._positions(at._wanted())))
        at.remove(NAME)
        partition.follow(LEADER, epoch, 0) if epoch != EPOCH else None
        at.add(partition)
        for _ in range(2):
            at._session.answered(await at._ask(leader, at._positions(at._wanted())))
        is_again = epoch == EPOCH
        assert [request.session_epoch for request in leader.asked] == [0, 1, 0, 1] if is_again else [0, 1, 2, 3]
        assert [len(request.topics) for request in leader.asked] == [1, 0, 1, 0]
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


# -- whether there is a short way --------------------------------------------------------------------------------------


def begun(
    at: _Fetcher, *, session_id: int = 7, meanwhile: Callable[[], None] = lambda: None
) -> tuple[SteadyFetches | None, BrokerConnection]:
    """What follows the first response of a session; `meanwhile`: what happens until it comes."""
    connection = BrokerConnection(at.address, ConnectionOptions())
    connection.versions = {FETCH.key: FETCH.versions}
    wanted = at._wanted()
    at._session.next_request(at._positions(wanted))
    meanwhile()
    at._session.answered(FetchResponse(session_id=session_id, responses=[]))
    return at._steady_run(connection, wanted), connection


def expect(change: Callable[[_Fetcher, Surroundings, BrokerConnection], None], *, goes_on: bool) -> None:
    async def scenario() -> None:
        around = Surroundings()
        at, partition = fetcher(around), followed()
        at.add(partition)
        run, connection = begun(at)
        assert run is not None
        assert run._may_go_on()
        change(at, around, connection)
        assert run._may_go_on() is goes_on
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_run_ends_where_the_broker_is_another_one_for_its_leader() -> None:
    """Leaders compare the epoch that a request names before they let a replica join."""

    def register_again(at: _Fetcher, around: Surroundings, connection: BrokerConnection) -> None:
        around.broker_epoch += 1

    expect(register_again, goes_on=False)


def test_a_run_ends_where_partitions_come_or_go() -> None:
    def come(at: _Fetcher, around: Surroundings, connection: BrokerConnection) -> None:
        other = followed()
        other.name = TopicPartition("t", 1)
        at.add(other)

    def go(at: _Fetcher, around: Surroundings, connection: BrokerConnection) -> None:
        at.remove(NAME)

    expect(come, goes_on=False)
    expect(go, goes_on=False)


def test_a_run_ends_where_a_login_has_to_be_renewed() -> None:
    """No other request may be sent before, and the short way does not log in."""

    def end_login(at: _Fetcher, around: Surroundings, connection: BrokerConnection) -> None:
        connection._login_ends_at = asyncio.get_running_loop().time()

    def begin_login(at: _Fetcher, around: Surroundings, connection: BrokerConnection) -> None:
        connection._login_ends_at = asyncio.get_running_loop().time() + 1

    expect(end_login, goes_on=False)
    expect(begin_login, goes_on=True)


def test_a_throttled_replica_is_not_fetched_on_the_short_way_which_counts_nothing() -> None:
    async def scenario() -> None:
        around = Surroundings()
        at, partition = fetcher(around), followed()
        at.add(partition)
        around.throttled = ("*",)
        assert begun(at)[0] is None
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_without_a_session_each_request_names_everything() -> None:
    """The leader has no room for another session: who names nothing gets nothing."""

    async def scenario() -> None:
        at = fetcher()
        at.add(followed())
        assert begun(at, session_id=0)[0] is None
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_partition_that_pauses_since_a_response_came_is_not_asked_for_on_the_short_way() -> None:
    async def scenario() -> None:
        at, partition = fetcher(), followed()
        at.add(partition)
        follower = partition.follower
        assert follower is not None
        now = asyncio.get_running_loop().time()
        assert begun(at, meanwhile=lambda: follower.pause(now, 10.0))[0] is None
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_partition_that_left_while_a_response_came_is_first_forgotten_in_the_session() -> None:
    async def scenario() -> None:
        at, other = fetcher(), followed()
        at.add(followed())
        other.name = TopicPartition("t", 1)
        at.add(other)
        assert begun(at, meanwhile=lambda: at.remove(NAME))[0] is None
        assert [part.partitions for part in at._session.next_request(at._positions(at._wanted())).forgotten] == [[0]]
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_a_partition_whose_directory_failed_takes_the_short_way_from_no_other() -> None:
    async def scenario() -> None:
        at, other = fetcher(), followed()
        at.add(followed())
        other.name = TopicPartition("t", 1)
        at.add(other)
        other.leave()
        assert begun(at)[0] is not None
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())


def test_while_a_partition_pauses_the_others_go_the_general_way() -> None:
    """The short way would not look at it again when its pause is over."""

    async def scenario() -> None:
        at, other = fetcher(), followed()
        at.add(followed())
        other.name = TopicPartition("t", 1)
        at.add(other)
        assert other.follower is not None
        other.follower.pause(asyncio.get_running_loop().time(), 10.0)
        assert begun(at)[0] is None
        at.close()
        await asyncio.sleep(0)

    loop.run(scenario())
