"""Produce requests of one connection that are in flight together: taken as they come, answered in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.handlers.produce import APPENDED_AT_ONCE_MAX
from ottla.broker.repeated_produce import PENDING_MAX, PRODUCE_KEY, RepeatedProduce
from ottla.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.records import batch
from ottla.replication.leader import Leader
from ottla.testing.raw_requests import fetch, metadata, one_batch, produce, produce_to_many
from ottla.testing.scene import FOLLOWER_ID, Scene, perform
from ottla.testing.wire_client import WireClient

VERSION = 9
SETTLED_S = 0.1  # what was sent has arrived, and what could be answered is


class InFlight:
    """Requests over one connection, whose answers are awaited later."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self._sent: list[tuple[Any, int]] = []

    async def send(self, request: Any) -> None:
        self._sent.append((request, await self.client.send(request, VERSION)))
        await asyncio.sleep(SETTLED_S)

    async def answers(self, count: int) -> list[Any]:
        """The next answers, matched with their requests in order."""
        found = []
        for _ in range(count):
            request, correlation_id = self._sent.pop(0)
            found.append(await self.client.receive(request, VERSION, correlation_id))
        return found

    async def is_silent(self, scene: Scene) -> bool:
        """Whether nothing more comes for a while."""
        try:
            async with asyncio.timeout(SETTLED_S):
                await self.client._receive_frame()
        except TimeoutError:
            return True
        return False


def outcome(answer: Any) -> tuple[int, int]:
    of_partition = answer.responses[0].partition_responses[0]
    return of_partition.error_code, of_partition.base_offset


async def remembered(scene: Scene, *topics: str, **how: Any) -> InFlight:
    """A connection whose Produce requests to these topics repeat; each topic has a record and a second replica."""
    client = await scene.connect()
    for topic in topics:
        assert outcome(await client.call(produce(topic, one_batch(b"first"), **how), VERSION)) == (0, 0)
        scene.follow(topic)
        scene.catch_up(topic)
    return InFlight(client)


def end_offset(scene: Scene, topic: str) -> int:
    return scene.partition(topic).log.end_offset


def connection_of(scene: Scene) -> Connection:
    """The youngest one."""
    return list(scene.broker.server.connections)[-1]


def test_requests_behind_one_that_waits_are_taken_and_answered_in_their_order() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for number in range(5):
            await flight.send(produce(topic, one_batch(b"%d" % number)))
        assert end_offset(scene, topic) == 6, "all are in the log before any is answered"
        scene.catch_up(topic, end_offset=3)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 2)]
        await flight.send(produce(topic, one_batch(b"5")))
        scene.catch_up(topic)
        assert [outcome(one) for one in await flight.answers(4)] == [(0, 3), (0, 4), (0, 5), (0, 6)]
        assert await scene.values(topic) == [b"first", b"0", b"1", b"2", b"3", b"4", b"5"]

    perform(play)


def test_an_answer_waits_for_those_before_it_whichever_partition_commits_first() -> None:
    async def play(scene: Scene) -> None:
        slow, fast = await scene.new_topic("slow"), await scene.new_topic("fast")
        flight = await remembered(scene, slow, fast)
        await flight.send(produce(slow, one_batch(b"a")))
        await flight.send(produce(fast, one_batch(b"b")))
        await flight.send(produce(fast, one_batch(b"c"), acks=1))  # not repeated: it has to wait as a whole
        scene.catch_up(fast)
        assert end_offset(scene, fast) == 2
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(slow)
        answers = await flight.answers(3)
        assert [one.responses[0].name for one in answers] == [slow, fast, fast]
        assert [outcome(one) for one in answers] == [(0, 1), (0, 1), (0, 2)]

    perform(play)


def test_requests_of_other_kinds_wait_for_their_turn() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        await flight.send(produce(topic, one_batch(b"a")))
        await flight.send(metadata(topic))
        await flight.send(produce(topic, one_batch(b"b")))
        assert end_offset(scene, topic) == 2, "what is behind the other request has not been looked at"
        scene.catch_up(topic)
        first, second = await flight.answers(2)
        assert outcome(first) == (0, 1)
        assert second.topics[0].name == topic
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        assert outcome((await flight.answers(1))[0]) == (0, 2)

    perform(play)


def test_as_many_wait_as_there_is_room_for_and_the_others_behind_them() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for number in range(PENDING_MAX + 3):
            await flight.send(produce(topic, one_batch(b"%d" % number)))
        assert end_offset(scene, topic) == 1 + PENDING_MAX
        scene.catch_up(topic)
        answers = await flight.answers(PENDING_MAX)
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        answers += await flight.answers(3)
        assert [outcome(one) for one in answers] == [(0, offset) for offset in range(1, PENDING_MAX + 4)]

    perform(play)


def test_as_soon_as_one_is_answered_the_next_one_has_its_place() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for number in range(PENDING_MAX + 3):
            await flight.send(produce(topic, one_batch(b"%d" % number)))
        for count in (1, 2, 3):
            scene.catch_up(topic, end_offset=1 + count)
            assert outcome((await flight.answers(1))[0]) == (0, count)
            await asyncio.sleep(SETTLED_S)
            assert end_offset(scene, topic) == 1 + PENDING_MAX + count
        scene.catch_up(topic)
        answers = await flight.answers(PENDING_MAX)
        assert [outcome(one) for one in answers] == [(0, offset) for offset in range(4, PENDING_MAX + 4)]

    perform(play)


def test_each_has_its_own_time_and_an_early_end_does_not_hold_up_the_next() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic, timeout_ms=5000)
        await flight.send(produce(topic, one_batch(b"a"), timeout_ms=5000))
        started = scene.world.loop.time()
        await asyncio.sleep(3)
        await flight.send(produce(topic, one_batch(b"b"), timeout_ms=5000))
        first, second = await flight.answers(2)
        assert [outcome(one)[0] for one in (first, second)] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert 7.8 < scene.world.loop.time() - started < 8.3, "the second one had five seconds from its own beginning"

    perform(play)


def test_all_that_wait_fail_when_the_leader_changes_and_the_connection_goes_on() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for value in (b"a", b"b", b"c"):
            await flight.send(produce(topic, one_batch(value)))
        partition = scene.partition(topic)
        leader = partition.leader
        partition.go_idle(leader.epoch + 1)
        assert [outcome(one) for one in await flight.answers(3)] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 3
        await flight.send(produce(topic, one_batch(b"d")))
        assert outcome((await flight.answers(1))[0]) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    perform(play)


def test_an_idempotent_producer_whose_batches_fail_together_sends_them_again_in_order() -> None:
    """Those behind the first are refused until that has come again: they must not become the first."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)

        def batch(sequence: int) -> Any:
            records = one_batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
            return produce(topic, records, timeout_ms=1000)

        for sequence in range(3):
            await flight.send(batch(sequence))
        answers = await flight.answers(3)
        assert [outcome(one)[0] for one in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 3
        for sequence in range(4):
            await flight.send(batch(sequence))
            scene.catch_up(topic)
            await asyncio.sleep(SETTLED_S)
        assert [outcome(one) for one in await flight.answers(4)] == [(0, 1), (0, 2), (0, 3), (0, 4)]
        assert await scene.values(topic) == [b"first", b"0", b"1", b"2", b"3"]

    perform(play)


def test_a_batch_behind_one_that_was_lost_with_a_leadership_does_not_become_the_first() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)

        def batch(sequence: int) -> Any:
            records = one_batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
            return produce(topic, records)

        for sequence in range(2):
            await flight.send(batch(sequence))
        partition = scene.partition(topic)
        leader = partition.leader
        partition.go_idle(leader.epoch + 1)
        assert [outcome(one)[0] for one in await flight.answers(2)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        partition.log.truncate_to(1, now_ms=scene.broker.clock.now_ms())
        alone = (leader.node_id,)
        partition.lead(Leader(leader.node_id, leader.epoch + 2, alone, alone, end_offset=1, high_watermark=1))
        for sequence in (1, 0, 1):
            await flight.send(batch(sequence))
        codes = [outcome(one) for one in await flight.answers(3)]
        assert codes == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 1), (0, 2)]

    perform(play)


def test_a_record_that_was_lost_with_a_leadership_is_not_acknowledged_when_its_place_is_committed() -> None:
    """Its answer waits behind another, until this broker leads again with a record of somebody else there."""

    async def play(scene: Scene) -> None:
        first, other = await scene.new_topic("first"), await scene.new_topic("other")
        flight = await remembered(scene, first, other)
        await flight.send(produce(first, one_batch(b"waits")))
        await flight.send(produce(other, one_batch(b"lost")))
        partition = scene.partition(other)
        node_id, epoch = partition.leader.node_id, partition.leader.epoch
        follower = partition.follow(FOLLOWER_ID, epoch + 1, partition.high_watermark)
        partition.truncate_to_leader(follower, epoch, 1, 0)
        theirs = batch.build(None, [b"theirs"], 0, base_offset=1, leader_epoch=epoch + 1)
        partition.log.append_as_follower(theirs, now_ms=0)
        both = (node_id, FOLLOWER_ID)
        partition.lead(Leader(node_id, epoch + 2, both, both, end_offset=2, high_watermark=1))
        scene.catch_up(other)
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(first)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert await scene.values(other) == [b"first", b"theirs"]

    perform(play)


def test_a_new_epoch_of_the_same_leader_fails_nothing() -> None:
    """It comes whenever a follower leaves the in-sync replicas in order. The log is the same."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=2)
        flight = await remembered(scene, topic)
        several = asyncio.create_task(
            scene.ask(produce_to_many(topic, [(index, one_batch(b"v")) for index in range(2)]), VERSION)
        )
        await flight.send(produce(topic, one_batch(b"a")))
        leader = scene.partition(topic).leader
        scene.partition(topic).lead(
            Leader(leader.node_id, leader.epoch + 1, leader.replicas, leader.isr, end_offset=3, high_watermark=1)
        )
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        assert outcome((await flight.answers(1))[0])[0] == 0
        assert [one.error_code for one in (await several).responses[0].partition_responses] == [0, 0]

    perform(play)


def test_what_was_committed_before_the_leader_was_lost_is_acknowledged() -> None:
    async def play(scene: Scene) -> None:
        slow, fast = await scene.new_topic("slow"), await scene.new_topic("fast")
        flight = await remembered(scene, slow, fast)
        await flight.send(produce(slow, one_batch(b"a")))
        await flight.send(produce(fast, one_batch(b"b")))
        await flight.send(produce(fast, one_batch(b"c")))
        scene.catch_up(fast, end_offset=2)
        scene.partition(fast).go_idle(scene.partition(fast).leader_epoch + 1)
        scene.catch_up(slow)
        codes = [outcome(one) for one in await flight.answers(3)]
        assert codes == [(0, 1), (0, 1), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    perform(play)


def test_what_enough_replicas_had_is_acknowledged_in_its_turn_where_fewer_are_in_sync_by_then() -> None:
    async def play(scene: Scene) -> None:
        slow, topic = await scene.new_topic("slow"), await scene.new_topic(min_insync_replicas="2")
        flight = await remembered(scene, slow, topic)
        for name in (slow, topic):
            await flight.send(produce(name, one_batch(b"a")))
        scene.catch_up(topic)
        partition = scene.partition(topic)
        leader = partition.leader
        partition.isr_changed(leader, (leader.node_id,), leader.version + 1)
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(slow)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 1)]

    perform(play)


def test_what_too_few_replicas_have_is_not_acknowledged_when_the_leader_goes() -> None:
    """The other replica left, so the record is committed, by fewer than min.insync.replicas asks for; and then the disk
    of the only one fails."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(min_insync_replicas="2")
        flight = await remembered(scene, topic)
        await flight.send(produce(topic, one_batch(b"a")))
        partition = scene.partition(topic)
        leader = partition.leader
        partition.isr_changed(leader, (leader.node_id,), leader.version + 1)
        assert leader.high_watermark == 2
        partition.leave()
        assert outcome((await flight.answers(1))[0]) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    perform(play)


def test_a_batch_behind_a_lost_one_is_not_taken_while_the_answer_of_that_waits_its_turn() -> None:
    async def play(scene: Scene) -> None:
        first, other = await scene.new_topic("first"), await scene.new_topic("other")
        flight = await remembered(scene, first, other)

        def batch(sequence: int) -> Any:
            records = one_batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
            return produce(other, records)

        await flight.send(produce(first, one_batch(b"waits")))
        await flight.send(batch(0))
        partition = scene.partition(other)
        leader = partition.leader
        partition.go_idle(leader.epoch + 1)
        partition.log.truncate_to(1, now_ms=scene.broker.clock.now_ms())
        alone = (leader.node_id,)
        partition.lead(Leader(leader.node_id, leader.epoch + 2, alone, alone, end_offset=1, high_watermark=1))
        await flight.send(batch(1))
        assert end_offset(scene, other) == 1
        scene.catch_up(first)
        codes = [outcome(one)[0] for one in await flight.answers(3)]
        assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]

    perform(play)


def test_a_record_that_was_lost_is_not_acknowledged_on_the_general_way_either() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=2)
        for index in range(2):
            scene.follow(topic, index)
        batches = [(index, one_batch(b"mine")) for index in range(2)]
        client = await scene.connect()
        waiting = asyncio.create_task(client.call(produce_to_many(topic, batches), VERSION))
        await asyncio.sleep(SETTLED_S)
        partition = scene.partition(topic, 1)
        node_id, epoch = partition.leader.node_id, partition.leader.epoch
        partition.go_idle(epoch + 1)  # and leads again before who waits has its turn
        alone = (node_id,)
        partition.lead(Leader(node_id, epoch + 2, alone, alone, end_offset=1, high_watermark=0))
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic, 0)
        answers = (await waiting).responses[0].partition_responses
        assert [one.error_code for one in answers] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    perform(play)


def test_a_connection_that_is_closed_leaves_no_timer() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic, timeout_ms=2**31 - 1)
        await flight.send(produce(topic, one_batch(b"a"), timeout_ms=2**31 - 1))
        scene.catch_up(topic)
        await flight.answers(1)
        deadline = connection_of(scene).session.repeated[PRODUCE_KEY]._deadline
        assert deadline._timer is not None
        flight.client.close()
        await asyncio.sleep(SETTLED_S)
        assert deadline._timer is None, "it would keep all of this for 24 days"

    perform(play)


def test_a_batch_that_cannot_be_taken_is_answered_in_its_turn() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        damaged = bytearray(one_batch(b"damaged"))
        damaged[-1] ^= 1
        await flight.send(produce(topic, one_batch(b"a")))
        await flight.send(produce(topic, bytes(damaged)))
        await flight.send(produce(topic, one_batch(b"b")))
        assert end_offset(scene, topic) == 3
        assert await flight.is_silent(scene)
        scene.catch_up(topic)
        codes = [outcome(one) for one in await flight.answers(3)]
        assert codes == [(0, 1), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 2)]

    perform(play)


def test_a_peer_that_has_ended_its_side_gets_all_of_its_answers() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for value in (b"a", b"b"):
            await flight.send(produce(topic, one_batch(value)))
        flight.client.end()
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 2)]
        with pytest.raises(ConnectionResetError):
            await flight.client._receive_frame()

    perform(play)


def test_a_peer_that_is_gone_leaves_its_records_and_nothing_else() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        before = scene.partition(topic).committed.waiter_count
        flight = await remembered(scene, topic)
        for value in (b"a", b"b"):
            await flight.send(produce(topic, one_batch(value)))
        connection = connection_of(scene)
        connection.close()
        assert scene.partition(topic).committed.waiter_count == before
        scene.catch_up(topic)
        await asyncio.sleep(SETTLED_S)
        assert await scene.values(topic) == [b"first", b"a", b"b"]

    perform(play)


def test_nothing_is_learned_from_a_request_that_gave_way_to_others() -> None:
    """What stands where it arrived is another request by then."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        client = await scene.connect()
        session = connection_of(scene).session
        for count, is_learned in ((APPENDED_AT_ONCE_MAX + 1, False), (APPENDED_AT_ONCE_MAX, True)):
            request = produce_to_many(topic, [(0, one_batch(b"v"))] * count)
            answer = await client.call(request, VERSION)
            assert outcome(answer)[0] == 0
            assert (PRODUCE_KEY in session.repeated) == is_learned

    perform(play)


def test_those_who_wait_for_a_commit_do_not_look_at_every_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hundreds of connections to one partition each append would cost many times what it takes."""
    looks = 0
    note = RepeatedProduce.note

    def counted(repeated: RepeatedProduce, place: int) -> None:
        nonlocal looks
        looks += 1
        note(repeated, place)

    monkeypatch.setattr(RepeatedProduce, "note", counted)

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flights = [InFlight(await scene.connect()) for _ in range(3)]
        for flight in flights:
            await flight.client.call(produce(topic, one_batch(b"first")), VERSION)
        scene.follow(topic)
        scene.catch_up(topic)
        for flight in flights:
            await flight.send(produce(topic, one_batch(b"a")))
        assert looks == 0
        scene.catch_up(topic)
        assert looks == len(flights)
        for flight in flights:
            assert outcome((await flight.answers(1))[0])[0] == 0

    perform(play)


def test_a_frame_in_pieces_behind_one_that_waits_is_taken_once_it_is_whole() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        pieces: list[bytes] = []
        send_part = flight.client.send_part

        async def cut(data: bytes) -> None:
            for start in range(0, len(data), 50):
                pieces.append(data[start : start + 50])
                await send_part(pieces[-1])
                await asyncio.sleep(SETTLED_S)

        await flight.send(produce(topic, one_batch(b"a")))
        flight.client.send_part = cut  # type: ignore[method-assign]
        await flight.send(produce(topic, one_batch(b"b" * 100)))
        assert len(pieces) > 3
        assert end_offset(scene, topic) == 3
        scene.catch_up(topic)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 2)]

    perform(play)


def test_the_answer_comes_where_a_frame_behind_it_is_never_finished() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        await flight.send(produce(topic, one_batch(b"a")))
        await flight.client.send_part(b"\0\0\1\0half")
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        assert outcome((await flight.answers(1))[0]) == (0, 1)

    perform(play)


async def nothing(scene: Scene) -> None:
    """No change."""


async def other_rules(scene: Scene) -> None:
    scene.broker.sessions.rules_changed()


async def limited_session(scene: Scene) -> None:
    connection_of(scene).session.ends_ms = scene.broker.clock.steady_ms() + 3_600_000


@pytest.mark.parametrize(("change", "taken"), [(nothing, 1), (other_rules, 0), (limited_session, 0)])
def test_nothing_is_taken_by_rules_that_no_longer_hold(change: Callable[[Scene], Awaitable[None]], taken: int) -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        await flight.send(produce(topic, one_batch(b"a")))
        await change(scene)
        await flight.send(produce(topic, one_batch(b"b")))
        assert end_offset(scene, topic) == 2 + taken
        scene.catch_up(topic)
        await asyncio.sleep(SETTLED_S)
        scene.catch_up(topic)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 2)]

    perform(play)


def test_a_broker_that_stops_answers_what_waits_for_as_long_as_it_may() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        for value in (b"a", b"b"):
            await flight.send(produce(topic, one_batch(value)))
        connection = connection_of(scene)
        connection.stop()
        await asyncio.sleep(SETTLED_S)
        assert not connection.is_closed
        scene.catch_up(topic)
        assert [outcome(one) for one in await flight.answers(2)] == [(0, 1), (0, 2)]
        await asyncio.sleep(SETTLED_S)
        assert connection.is_closed

    perform(play)


def test_what_is_taken_is_counted_like_any_other_request() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        flight = await remembered(scene, topic)
        meter = scene.broker.dispatcher.meters[0]
        before = meter.count
        for value in (b"a", b"b", b"c"):
            await flight.send(produce(topic, one_batch(value)))
        assert meter.count == before + 3
        scene.catch_up(topic)
        await flight.answers(3)
        assert meter.total_ns >= meter.local_ns > 0
        assert (await scene.ask(fetch(topic), 11)).responses[0].partitions[0].high_watermark == 4

    perform(play)
