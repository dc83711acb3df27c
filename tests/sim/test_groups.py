"""Groups in a simulated world: members come, go, fall silent and lose their way, and the broker crashes under them.

The broker is the real one; members speak the classic protocol over the simulated network. Judged all the time: a
partition has one owner in a generation, nobody commits once a later generation has, and what was committed is found
again, at no smaller offset. When all is quiet again the group becomes stable.

`OTTLA_SIM_SEEDS=n` runs that many seeds (`make sim SEEDS=n`), `OTTLA_SIM_SEED=s` runs one.
"""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from ottla.broker.coordinators import CoordinatorShard
from ottla.broker.journal import Replay
from ottla.errors import ErrorCode
from ottla.groups.classic import ClassicGroup
from ottla.groups.machine import GroupMachine
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.embedded import ConsumerProtocolAssignment, TopicPartition
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.testing.seeds import portion_id, portions
from ottla.testing.wire_client import WireClient
from ottla.testing.world import BrokerProcess, SimulationError, World

GROUP, TOPIC = "readers", "orders"
PARTITIONS = 6
MEMBERS = 4
TROUBLED_S = 60.0
QUIET_S = 60.0
SESSION_S = 6.0
HOUR_MS = 3_600_000
CLOCK_SKEWS_MS = (-365 * 24 * HOUR_MS, -HOUR_MS, 0, HOUR_MS, 365 * 24 * HOUR_MS)
SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "500"}
ASSIGNMENT_VERSION = 0


class Lost(Exception):  # noqa: N818 (what happened to a member, not an error)
    """A member must find its coordinator, or its group, again."""


class Judge:
    """What all members saw, and what cannot be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[tuple[int, int], str] = {}  # by generation and partition
        self._latest: dict[int, tuple[int, int]] = {}  # generation and offset of the last commit that was granted
        self.commits = 0

    def assigned(self, generation: int, member: str, partitions: list[int]) -> None:
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self._world.fail(f"generation {generation} gave partition {partition} to {owner} and to {member}")

    def latest(self, partition: int) -> tuple[int, int]:
        return self._latest.get(partition, (0, 0))

    def committed(self, partition: int, generation: int, offset: int, before: tuple[int, int]) -> None:
        """`before`: what had been granted when the commit was sent."""
        self.commits += 1
        if generation < before[0]:
            self._world.fail(f"generation {generation} committed {partition} after generation {before[0]} had")
        self._latest[partition] = max(self.latest(partition), (generation, offset))

    def fetched(self, partition: int, offset: int, before: tuple[int, int]) -> None:
        if offset < before[1]:
            self._world.fail(f"partition {partition} was committed at {before[1]} and is found at {offset}")


class Member:
    """One consumer, over as many connections and member ids as its troubles cost."""

    def __init__(self, world: World, process: BrokerProcess, judge: Judge, number: int) -> None:
        self._world = world
        self._process = process
        self._judge = judge
        self._name = f"member-{number}"
        self._rng: Random = world.rng(self._name)
        self._client: WireClient | None = None
        self._member_id = ""
        self.generation = -1
        self.partitions: list[int] = []
        self.is_troubled = True

    async def run(self) -> None:
        while True:
            try:
                await self._connect()
                while True:
                    await self._join()
                    await self._work()
            except (Lost, OSError, TimeoutError):
                self._forget_generation()
                if self._client is not None:
                    self._client.close()
                await asyncio.sleep(0.1 + self._rng.random())

    def _forget_generation(self) -> None:
        self.generation, self.partitions = -1, []

    async def _call(self, request: object, version: int, timeout_s: float = 10.0):
        assert self._client is not None
        return await self._client.call(request, version, timeout_s=timeout_s)

    async def _connect(self) -> None:
        self._client = WireClient(await self._world.network.host(self._name).connect(*self._process.address))
        found = await self._call(FindCoordinatorRequest(key=GROUP), 3)
        if found.error_code:
            raise Lost

    # -- joining -------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        self._forget_generation()
        while True:
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=int(SESSION_S * 1000),
                rebalance_timeout_ms=10_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            joined = await self._call(request, 5, timeout_s=30)
            match joined.error_code:
                case ErrorCode.NONE:
                    self._member_id = joined.member_id
                    if await self._sync(joined):
                        return
                case ErrorCode.MEMBER_ID_REQUIRED:
                    self._member_id = joined.member_id
                case ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                case ErrorCode.REBALANCE_IN_PROGRESS:
                    pass
                case _:
                    raise Lost

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Whether the member has its assignment; else the group has moved on."""
        assignments = []
        for number, member in enumerate(joined.members):
            own = [partition for partition in range(PARTITIONS) if partition % len(joined.members) == number]
            value = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic=TOPIC, partitions=own)])
            assignment = ASSIGNMENT_VERSION.to_bytes(2) + encode(value, ASSIGNMENT_VERSION)
            assignments.append(SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment))
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=assignments,
        )
        synced = await self._call(request, 3, timeout_s=30)
        if synced.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            return False
        if synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
            return False
        if synced.error_code:
            raise Lost
        assigned = decode(ConsumerProtocolAssignment, synced.assignment, ASSIGNMENT_VERSION, 2)
        self.generation = joined.generation_id
        self.partitions = [number for each in assigned.assigned_partitions for number in each.partitions]
        self._judge.assigned(self.generation, self._member_id, self.partitions)
        return True

    # -- working -------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Commits and reports until the group moves on."""
        offsets = await self._fetch_offsets()
        while True:
            await asyncio.sleep(self._rng.random())
            if self.is_troubled and await self._is_in_trouble():
                return
            code = await self._commit(offsets) if self._rng.random() < 0.5 else await self._beat()
            match code:
                case ErrorCode.NONE:
                    continue
                case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                    return
                case ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                    return
                case _:
                    raise Lost

    async def _is_in_trouble(self) -> bool:
        """Sometimes the member leaves, dies without a word or sleeps too long; whether it is out of the group."""
        fate = self._rng.random()
        if fate < 0.02:
            leaving = [MemberIdentity(member_id=self._member_id)]
            await self._call(LeaveGroupRequest(group_id=GROUP, members=leaving), 3)
            self._member_id = ""
            await asyncio.sleep(5 * self._rng.random())
            return True
        if fate < 0.04:
            self._member_id = ""
            raise Lost
        if fate < 0.06:
            await asyncio.sleep(2 * SESSION_S * self._rng.random())
        return False

    async def _beat(self) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self._member_id)
        return int((await self._call(request, 3)).error_code)

    async def _commit(self, offsets: dict[int, int]) -> int:
        if not self.partitions:
            return await self._beat()
        partition = self._rng.choice(self.partitions)
        offset = offsets[partition] + 1
        before = self._judge.latest(partition)
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])],
        )
        (answer,) = (await self._call(request, 7)).topics[0].partitions
        if not answer.error_code:
            offsets[partition] = offset
            self._judge.committed(partition, self.generation, offset, before)
        return int(answer.error_code)

    async def _fetch_offsets(self) -> dict[int, int]:
        before = {partition: self._judge.latest(partition) for partition in self.partitions}
        wanted = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=self.partitions)]
        answer = await self._call(OffsetFetchRequest(group_id=GROUP, topics=wanted if self.partitions else []), 7)
        if answer.error_code:
            raise Lost
        offsets: dict[int, int] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                offsets[each.partition_index] = max(0, each.committed_offset)
                self._judge.fetched(each.partition_index, offsets[each.partition_index], before[each.partition_index])
        return offsets


async def trouble(world: World, process: BrokerProcess) -> None:
    """Crashes, stops, a network that loses its way and a clock that is set, again and again."""
    rng = world.rng("trouble")
    end = world.loop.time() + TROUBLED_S
    while world.loop.time() < end:
        await asyncio.sleep(8 * rng.random())
        fate = rng.random()
        if fate < 0.3:
            await process.crash()
            await asyncio.sleep(3 * rng.random())
            await process.start()
        elif fate < 0.5:
            await process.stop()
            await asyncio.sleep(rng.random())
            await process.start()
        elif fate < 0.8:
            name = f"member-{rng.randrange(MEMBERS)}"
            world.network.cut(name, process.name)
            await asyncio.sleep(SESSION_S * rng.random())
            world.network.heal(name, process.name)
        else:
            process.clock.skew_ms = rng.choice(CLOCK_SKEWS_MS)


async def connect(world: World, process: BrokerProcess) -> WireClient:
    return WireClient(await world.network.host("admin").connect(*process.address))


async def create_topic(client: WireClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    assert not (await client.call(CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code


async def soak(world: World, judge: Judge) -> None:
    process = world.broker("broker", SETTINGS)
    await process.start()
    client = await connect(world, process)
    await create_topic(client)
    client.close()
    members = [Member(world, process, judge, number) for number in range(MEMBERS)]
    tasks = [asyncio.create_task(member.run(), name=f"member {number}") for number, member in enumerate(members)]
    await trouble(world, process)
    world.network.heal()
    for member in members:
        member.is_troubled = False
    await asyncio.sleep(QUIET_S)
    client = await connect(world, process)
    (described,) = (await client.call(DescribeGroupsRequest(groups=[GROUP]), 5)).groups
    client.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await process.stop()
    assert (described.group_state, len(described.members)) == ("Stable", MEMBERS)
    assert len({member.generation for member in members}) == 1
    assert sorted(partition for member in members for partition in member.partitions) == list(range(PARTITIONS))


def run(seed: int) -> Judge:
    world = World(seed)
    judge = Judge(world)
    replay = f"OTTLA_SIM_SEED={seed} pytest tests/sim/test_groups.py"
    world.run(soak(world, judge), seconds=1000, replay=replay)
    return judge


@pytest.mark.parametrize("portion", portions(20, per_test=5), ids=portion_id)
def test_a_group_survives_its_members_its_network_and_its_broker(portion: range) -> None:
    judges = [run(seed) for seed in portion]
    assert len(portion) < 5 or all(judge.commits > 50 for judge in judges), "too little happened"


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_offsets_of_a_group_that_nobody_uses_are_forgotten_after_their_time() -> None:
    world = World(1)

    async def scenario() -> None:
        process = world.broker("broker", {**SETTINGS, "offsets.retention.minutes": "60"})
        await process.start()
        client = await connect(world, process)
        await create_topic(client)
        await client.call(FindCoordinatorRequest(key=GROUP), 3)
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])]
        await client.call(OffsetCommitRequest(group_id=GROUP, topics=topics), 7)
        client.close()

        async def groups() -> list[str]:
            asking = await connect(world, process)
            found = [each.group_id for each in (await asking.call(ListGroupsRequest(), 4)).groups]
            asking.close()
            return found

        await asyncio.sleep(50 * 60)
        assert await groups() == [GROUP]
        await process.crash()
        await process.start()
        await asyncio.sleep(1)
        assert await groups() == [GROUP]
        await asyncio.sleep(25 * 60)
        assert await groups() == []
        await process.crash()
        await process.start()
        await asyncio.sleep(1)
        assert await groups() == []
        await process.stop()

    world.run(scenario(), seconds=10_000)


def test_a_broker_that_stops_answers_members_that_wait() -> None:
    world = World(2)

    async def scenario() -> None:
        process = world.broker("broker", {**SETTINGS, "group.initial.rebalance.delay.ms": "60000"})
        await process.start()
        client = await connect(world, process)
        await create_topic(client)
        await client.call(FindCoordinatorRequest(key=GROUP), 3)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        waiting = asyncio.create_task(client.call(request, 3))
        await asyncio.sleep(1)
        assert not waiting.done()
        before = world.loop.time()
        await process.stop()
        assert world.loop.time() - before < 1
        with suppress(OSError):
            assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR

    world.run(scenario(), seconds=1000)


# -- planted bugs ------------------------------------------------------------------------------------------------------


def is_found() -> bool:
    for seed in range(10):
        try:
            run(seed)
        except SimulationError:
            return True
    return False


def test_a_coordinator_that_takes_commits_of_the_past_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_commit", lambda *_, **__: None)
    assert is_found()


def test_a_coordinator_that_loads_only_the_beginning_of_its_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(shard: CoordinatorShard[GroupMachine], replay: Replay) -> None:
        found = shard.partition.read(0, 1, upper_offset=shard.partition.log.end_offset, at_least_one=True)
        if found is not None:
            replay.take(found.records.read())

    monkeypatch.setattr(CoordinatorShard, "load", hasty)
    assert is_found()
