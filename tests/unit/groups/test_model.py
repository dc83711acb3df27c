"""Many members of one group, by seed: they join, leave, die, lose replies, are slow; the shard moves, appends fail, and
the wall clock is set to some other time.

Checked after every step: no two members that are current hold one partition, nobody is assigned a partition that does
not exist, and another machine that reads the log comes to the same state. When the trouble ends, the group becomes
stable with all who live, and every partition has its owner.

`OTTLA_SIM_SEEDS` sets how many seeds are run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.groups.classic import ClassicGroup, ClassicState
from ottla.groups.consumer import ConsumerGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.partitions import each_partition
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition

SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "6"))
STEPS = 150
TOPIC = "a"
HOUR_MS = 3_600_000
# How far the wall clock is ahead of steady time. Not by as long as offsets are kept: those really are too old then.
WALL_CLOCKS_MS = (-365 * 24 * HOUR_MS, -HOUR_MS, 0, HOUR_MS, 24 * HOUR_MS)
RETRY = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


class ClassicClient:
    """A consumer of the classic protocol that gives up everything before it joins again."""

    def __init__(self, world: World, instance: str | None) -> None:
        self.world = world
        self.instance = instance
        self.member = ""
        self.generation = -1
        self.held: set[int] = set()
        self.waits_for: tuple[str, int] | None = None
        self.is_joined = False

    @property
    def epoch(self) -> int:
        return self.generation

    def act(self) -> None:
        if self.waits_for is not None:
            self.look()
        elif not self.is_joined:
            self.join()
        else:
            self.take(self.world.driver.heartbeat(self.member, self.generation, instance=self.instance))

    def join(self) -> None:
        self.held = set()
        # As consumers do: the generation is in the bytes, which so are never the same after a restart.
        subscription = ConsumerProtocolSubscription(topics=[TOPIC], generation_id=self.generation)
        protocols = {"range": b"\0\2" + encode(subscription, 2)}
        driver = self.world.driver
        code = driver.join(
            self.member, protocols=protocols, instance=self.instance, session_ms=10_000, rebalance_ms=20_000
        )
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = driver.given_id
            return
        self.waits_for = ("join", driver.ticket)
        self.look()

    def look(self) -> None:
        """Looks whether the answer is there; sometimes it is lost on the way."""
        assert self.waits_for is not None
        what, ticket = self.waits_for
        reply = self.world.driver.replies.get(ticket)
        if reply is None:
            return
        self.waits_for = None
        if self.world.loses_a_reply():
            self.is_joined = False
            return
        if isinstance(reply, ErrorCode):
            self.take(reply)
        elif what == "join":
            self.joined(reply)
        else:
            assigned = decode(ConsumerProtocolAssignment, reply.assignment, 0, 2) if reply.assignment else None
            topics = [] if assigned is None else assigned.assigned_partitions
            self.held = {index for topic in topics for index in topic.partitions}
            self.world.check_nothing_unknown(self.held)

    def joined(self, reply: Any) -> None:
        self.member, self.generation, self.is_joined = reply.member_id, reply.generation_id, True
        shares: dict[str, bytes] = {}
        if reply.leader == self.member and not reply.skip_assignment:
            members = [each.member_id for each in reply.members]
            count = self.world.driver.topics.topics[TOPIC].partition_count
            for position, member in enumerate(members):
                mine = list(range(position, count, len(members)))
                message = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic=TOPIC, partitions=mine)])
                shares[member] = b"\0\1" + encode(message, 1)
        driver = self.world.driver
        driver.sync(self.member, self.generation, shares, instance=self.instance)
        self.waits_for = ("sync", driver.ticket)
        self.look()

    def take(self, code: ErrorCode) -> None:
        if code == ErrorCode.NONE or code in RETRY:
            self.is_joined = self.is_joined and code != ErrorCode.GROUP_ID_NOT_FOUND
            return
        assert code in {
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        }, code
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member = ""
            self.held = set()
        self.is_joined = False

    def leave(self) -> None:
        if self.member:
            self.world.driver.leave(self.member, instances=(self.instance,))


class ConsumerClient:
    """A consumer of the new protocol; now and then slow to give up what it should, or in no mood to read."""

    def __init__(self, world: World, instance: str | None) -> None:
        self.world = world
        self.instance = instance
        self.member = f"consumer-{world.rng.getrandbits(64):x}"
        self.epoch = 0
        self.held: set[int] = set()
        self.wanted: set[int] = set()
        self.waits_for = None
        self.is_reading = True
        # A member that may have missed something says everything.
        self.is_full = True

    def change_mind(self) -> None:
        """It reads nothing for a while, and reads again."""
        if not self.is_reading or (not self.world.is_calm and self.world.rng.random() < 0.05):
            self.is_reading = self.world.is_calm or self.world.rng.random() < 0.3
            self.is_full = True

    def act(self) -> None:
        self.change_mind()
        if not self.world.is_calm and self.world.rng.random() < 0.3:
            pass  # slow: it keeps what it has for another while
        else:
            self.held = set(self.wanted)
        owned = {TOPIC: set(self.held)} if self.held else {}
        driver = self.world.driver
        if self.epoch == 0 or self.is_full:
            topics = (TOPIC,) if self.is_reading else ()
            reply = driver.beat(
                self.member, self.epoch, topics=topics, owned=owned, rebalance_ms=20_000, instance=self.instance
            )
        else:
            reply = driver.beat(self.member, self.epoch, owned=owned, instance=self.instance)
        if self.world.loses_a_reply():
            self.is_full = True
            return
        if isinstance(reply, ErrorCode):
            self.take(reply)
            return
        self.is_full = False
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.wanted = {index for topic in reply.assignment.topic_partitions for index in topic.partitions}
            self.world.check_nothing_unknown(self.wanted)
            self.held &= self.wanted | self.held

    def take(self, code: ErrorCode) -> None:
        if code in RETRY and (code != ErrorCode.GROUP_ID_NOT_FOUND or self.epoch == 0):
            self.is_full = True
            return
        assert code in {
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.FENCED_INSTANCE_ID,
        }, code
        self.epoch, self.held, self.wanted = 0, set(), set()

    def leave(self) -> None:
        """By itself, or an administrator takes it out, by its member id or its instance id."""
        driver, way = self.world.driver, self.world.rng.randrange(3)
        if way == 0:
            driver.beat(self.member, -1, instance=self.instance)
        else:
            driver.leave("" if way == 1 and self.instance else self.member, instances=(self.instance,))


class World:
    """The shard, the members and the trouble."""

    def __init__(self, seed: int, make_driver: Callable[..., Any], kinds: tuple[type, ...], **settings: int) -> None:
        self.rng = random.Random(seed)
        self.driver = make_driver(
            **{"initial_rebalance_delay_ms": 500, "consumer_assignment_interval_ms": 200} | settings
        )
        self.has_steady_clock = False
        self.driver.create_topics(**{TOPIC: 5})
        self.kinds = kinds
        self.clients: list[Any] = []
        self.is_calm = False
        self.instances = iter(range(1_000_000))

    def loses_a_reply(self) -> bool:
        return not self.is_calm and self.rng.random() < 0.1

    def check_nothing_unknown(self, partitions: set[int]) -> None:
        assert partitions <= set(range(self.driver.topics.topics[TOPIC].partition_count))

    def step(self) -> None:
        rng, driver = self.rng, self.driver
        driver.refuse = ErrorCode.NOT_COORDINATOR if rng.random() < 0.03 else None
        match rng.randrange(20):
            case 0 if len(self.clients) < 7:
                instance = f"i{next(self.instances)}" if rng.random() < 0.3 else None
                self.clients.append(rng.choice(self.kinds)(self, instance))
            case 1 if self.clients:
                self.clients.pop(rng.randrange(len(self.clients))).leave()
            case 2 if self.clients:
                gone = self.clients.pop(rng.randrange(len(self.clients)))  # dies without a word
                if gone.instance is not None and rng.random() < 0.7:
                    self.clients.append(type(gone)(self, gone.instance))  # and is started anew
            case 3 if rng.random() < 0.3:
                driver.restart()
            case 4 if rng.random() < 0.3:
                count = driver.topics.topics[TOPIC].partition_count
                driver.create_topics(**{TOPIC: min(count + 1, 12)})
            case 5:
                driver.commit_in_transaction({(TOPIC, rng.randrange(5)): rng.randrange(100)}, producer_id=1)
            case 6:
                driver.end_transaction(1, rng.random() < 0.5)
            case 7:
                driver.pass_time(rng.choice((3000, 12_000)))
            case 8:
                ahead_ms = rng.choice(WALL_CLOCKS_MS)
                if not self.has_steady_clock:
                    driver.set_wall_clock(ahead_ms)
            case _ if self.clients:
                rng.choice(self.clients).act()
        driver.pass_time(rng.randrange(300))
        self.check()

    def check(self) -> None:
        """What must hold at every moment."""
        group = self.driver.machine.group("g")
        holders: dict[int, str] = {}
        for client in self.clients:
            if not self.is_current(group, client):
                continue
            for partition in client.held:
                assert partition not in holders, f"{client.member} and {holders[partition]} hold {partition}"
                holders[partition] = client.member
        if isinstance(group, ConsumerGroup):
            owned = [
                partition
                for member in group.members.values()
                for held in (member.assigned, member.revoking)
                for partition in each_partition(held)
            ]
            assert len(owned) == len(set(owned)), "a partition belongs to two members"
            assert {partition: group.owners[partition] for partition in owned} == group.owners

    @staticmethod
    def is_current(group: Any, client: Any) -> bool:
        """Whether the coordinator takes the client for a member, as far as that knows itself."""
        if group is None or client.member not in group.members:
            return False
        if isinstance(group, ClassicGroup):
            return bool(client.epoch == group.generation and group.state == ClassicState.STABLE)
        member = group.members[client.member]
        return client.epoch in (member.epoch, member.previous_epoch)

    def check_replay(self) -> None:
        """Reading the log anew gives all that is durable, also where compaction has been at it."""
        for stretch in (1, self.rng.randrange(2, 50), len(self.driver.log) + 1):
            self.check_same(self.driver.machine, self.driver.replayed(stretch))

    @staticmethod
    def check_same(live: GroupMachine, replayed: GroupMachine) -> None:
        assert live._shard.offsets.snapshot() == replayed._shard.offsets.snapshot()
        group, again = live.group("g"), replayed.group("g")
        if isinstance(group, ConsumerGroup):
            for name in ("epoch", "metadata_hash", "assignment_epoch", "members", "target", "owners", "static_members"):
                assert getattr(group, name) == getattr(again, name), name
        elif isinstance(group, ClassicGroup) and group.state == ClassicState.STABLE:
            assert isinstance(again, ClassicGroup)
            assert (group.generation, group.leader_id, group.protocol_name, group.static_members) == (
                again.generation,
                again.leader_id,
                again.protocol_name,
                again.static_members,
            )
            assert {key: member.assignment for key, member in group.members.items()} == {
                key: member.assignment for key, member in again.members.items()
            }

    def calm_down(self) -> None:
        """No more trouble: within two minutes of the clock the group is stable, with all who live."""
        self.is_calm = True
        self.driver.refuse = None
        for _ in range(480):
            for client in self.clients:
                client.act()
                self.check()
            self.driver.pass_time(250)
            if self.is_settled():
                return
        group = self.driver.machine.group("g")
        raise AssertionError(f"{group.state_name}: {[vars(client) for client in self.clients]}")

    def is_settled(self) -> bool:
        group = self.driver.machine.group("g")
        if not self.clients:
            return group is None or group.is_empty
        if (
            group is None
            or group.state_name != "Stable"
            or set(group.members) != {each.member for each in self.clients}
        ):
            return False
        if not all(self.is_current(group, client) for client in self.clients):
            return False
        count = self.driver.topics.topics[TOPIC].partition_count
        held = sorted(partition for client in self.clients for partition in client.held)
        # The leader of a classic group learns of new partitions by itself; this one does not look.
        return held == list(range(count)) or (isinstance(group, ClassicGroup) and len(held) == len(set(held)) > 0)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(
    "kinds",
    [(ClassicClient,), (ConsumerClient,), (ClassicClient, ConsumerClient)],
    ids=["classic", "consumer", "both"],
)
def test_a_group_survives_everything(seed: int, kinds: tuple[type, ...], make_driver: Callable[..., Any]) -> None:
    world = World(seed, make_driver, kinds)
    for number in range(STEPS):
        world.step()
        if number % 15 == 0:
            world.check_replay()
    world.check_replay()
    world.calm_down()
    world.check_replay()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kinds", [(ClassicClient,), (ConsumerClient,)], ids=["classic", "consumer"])
def test_nobody_in_a_group_notices_what_the_wall_clock_says(
    seed: int, kinds: tuple[type, ...], make_driver: Callable[..., Any]
) -> None:
    # Without the pause between assignments, which is counted from a time in a record.
    worlds = [World(seed, make_driver, kinds, consumer_assignment_interval_ms=0) for _ in range(2)]
    worlds[1].has_steady_clock = True
    for world in worlds:
        for _ in range(STEPS):
            world.step()
    assert worlds[0].driver.replies == worlds[1].driver.replies
