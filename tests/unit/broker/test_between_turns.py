"""Long answers: where others may have their turn, and what happens when the world changes meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.group_requests import COMMITTED_AT_ONCE_MAX
from ottla.broker.handlers import (
    find_coordinator,
    list_groups,
    list_offsets,
    list_transactions,
    offset_commit,
    offset_fetch,
)
from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.stepping import resumed
from ottla.runtime.turns import TURN_S, Turns
from ottla.testing.messages import smallest_message
from ottla.testing.raw_groups import commit, fetch_offsets
from ottla.testing.raw_transactions import GROUP_KEY, TRANSACTION_KEY
from ottla.testing.scene import Scene, perform

SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class ByHand(Turns):
    """Every turn is over at the next look at the time, and the test says when the next one begins."""

    def __init__(self) -> None:
        looks = count()
        super().__init__(lambda: next(looks) * 10 * TURN_S)
        self.may_go_on = asyncio.Event()
        self.turn_count = 1

    async def yield_turn(self) -> None:
        self.turn_count += 1
        await self.may_go_on.wait()


class Begun:
    """A handler that has come to the end of its first turn."""

    def __init__(self, scene: Scene, handle: Any, request: object, version: int) -> None:
        usual, self._turns = scene.broker.turns, ByHand()
        scene.broker.turns = self._turns
        session = scene.broker.sessions.open("PLAINTEXT", "host")
        context = SimpleNamespace(version=version, client_id="c", session=session, rights=None)
        coroutine = handle(scene.broker, request, context)
        self._rest = resumed(coroutine, coroutine.send(None))
        scene.broker.turns = usual

    async def finish(self) -> Any:
        self._turns.may_go_on.set()
        return await self._rest

    async def turn_count(self) -> int:
        await self.finish()
        return self._turns.turn_count


async def delete(scene: Scene, topic: str) -> None:
    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=ZERO_UUID)], timeout_ms=1000)
    assert not (await scene.ask(doomed, 6)).responses[0].error_code


def test_the_topic_of_a_coordinator_goes_while_many_names_are_looked_for() -> None:
    async def play(scene: Scene) -> None:
        await scene.find_coordinator("g", GROUP_KEY)
        keys = [f"g{number}" for number in range(100)]
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=keys)
        handling = Begun(scene, find_coordinator.handle, request, 4)
        await delete(scene, GROUPS)
        answer = await handling.finish()
        assert [one.key for one in answer.coordinators] == keys
        assert answer.coordinators[-1].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    perform(play, SETTINGS)


@pytest.mark.parametrize(
    ("module", "topic", "key_type"),
    [(list_groups, GROUPS, GROUP_KEY), (list_transactions, TRANSACTIONS, TRANSACTION_KEY)],
)
def test_the_shards_go_while_they_are_listed(module: Any, topic: str, key_type: int) -> None:
    async def play(scene: Scene) -> None:
        await scene.find_coordinator("name", key_type)
        name = module.__name__.rpartition(".")[2]
        cls = getattr(module, "".join(word.title() for word in name.split("_")) + "Request")
        handling = Begun(scene, module.handle, smallest_message(cls, 1), 1)
        await delete(scene, topic)
        asked_at = scene.broker.loop.time()
        assert (await handling.finish()).error_code == ErrorCode.NOT_COORDINATOR
        assert scene.broker.loop.time() == asked_at, "nobody waits for what cannot be"

    perform(play, SETTINGS)


def test_offsets_of_a_topic_that_goes_while_they_are_committed_are_not_left_behind() -> None:
    """A topic of the same name would begin where the old one was read."""

    async def play(scene: Scene) -> None:
        count = COMMITTED_AT_ONCE_MAX + 100
        await scene.new_topic("t", count)
        await scene.find_coordinator("g", GROUP_KEY)
        handling = Begun(scene, offset_commit.handle, commit("g", "t", dict.fromkeys(range(count), 5)), 8)
        await delete(scene, "t")
        told = Counter(one.error_code for topic in (await handling.finish()).topics for one in topic.partitions)
        assert told == {ErrorCode.NONE: COMMITTED_AT_ONCE_MAX, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 100}
        await asyncio.sleep(10)  # what the group had is taken away in the background
        assert not (await scene.ask(fetch_offsets(8, "g", None), 8)).groups[0].topics

    perform(play)


# -- many topics of one partition each ---------------------------------------------------------------------------------

TOPICS = [f"t{number}" for number in range(1200)]
TURNS_MIN = 10


def test_offsets_of_many_small_topics_are_listed_in_steps() -> None:
    async def play(scene: Scene) -> None:
        entry = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = [ListOffsetsTopic(name=name, partitions=[entry]) for name in TOPICS]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        assert await Begun(scene, list_offsets.handle, request, 7).turn_count() >= TURNS_MIN

    perform(play)


def test_committed_offsets_of_many_small_topics_are_reported_in_steps() -> None:
    async def play(scene: Scene) -> None:
        await scene.find_coordinator("g", GROUP_KEY)
        named = fetch_offsets(8, "g", {name: [0] for name in TOPICS})
        assert await Begun(scene, offset_fetch.handle, named, 8).turn_count() >= TURNS_MIN

    perform(play)
