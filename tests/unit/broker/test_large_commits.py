"""Commits of so many offsets that they are decided in pieces, and what happens between two of them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from ottla.broker import group_requests
from ottla.errors import ErrorCode
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.records.control import EndTransactionMarker
from ottla.testing.raw_transactions import GROUP_KEY, TRANSACTION_KEY, init_request
from ottla.testing.scene import Scene, perform

GROUP, ID, TOPIC = "g", "tx", "t"
PIECE = 50
COUNT = 2 * PIECE + 25


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens between two pieces does not depend on how large they are, and partitions take time to make."""
    monkeypatch.setattr(group_requests, "COMMITTED_AT_ONCE_MAX", PIECE)


async def large_commit(scene: Scene, **fields: object) -> TxnOffsetCommitRequest:
    """Of a new producer's transaction, which has written nothing yet."""
    await scene.new_topic(TOPIC, COUNT)
    await scene.find_coordinator(GROUP, GROUP_KEY)
    await scene.find_coordinator(ID, TRANSACTION_KEY)
    producer = await scene.ask(init_request(ID), 5)
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=None)
        for index in range(COUNT)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        **fields,  # type: ignore[arg-type]
    )


def codes(answer: TxnOffsetCommitResponse) -> Counter[int]:
    return Counter(one.error_code for topic in answer.topics for one in topic.partitions)


async def begun(scene: Scene, request: TxnOffsetCommitRequest) -> asyncio.Future[TxnOffsetCommitResponse]:
    """The answer to come, once the first piece is written and others have their turn."""
    partition = scene.partition("__consumer_offsets")
    client = await scene.connect()
    answer = asyncio.ensure_future(client.call(request, 5))
    while not partition.log.producers.is_in_transaction(request.producer_id):
        await partition.moved.wait()
    return answer


def test_every_piece_of_a_refused_commit_in_a_transaction_tells_the_same_reason() -> None:
    """Nothing of it is written, so no transaction is open here when the next piece is looked at."""

    async def play(scene: Scene) -> None:
        request = await large_commit(scene, generation_id=7, member_id="nobody")
        assert codes(await scene.ask(request, 5)) == {ErrorCode.ILLEGAL_GENERATION: COUNT}

    perform(play)


def test_a_first_piece_of_which_nothing_can_be_written_does_not_stop_the_others() -> None:
    async def play(scene: Scene) -> None:
        request = await large_commit(scene)
        for partition in request.topics[0].partitions[:PIECE]:
            partition.committed_metadata = "x" * 5000
        told = codes(await scene.ask(request, 5))
        assert told == {
            ErrorCode.OFFSET_METADATA_TOO_LARGE: PIECE,
            ErrorCode.NONE: COUNT - PIECE,
        }

    perform(play)


def test_a_marker_between_two_pieces_ends_the_commit() -> None:
    async def play(scene: Scene) -> None:
        request = await large_commit(scene)
        partition = scene.partition("__consumer_offsets")
        answer = await begun(scene, request)
        marker = EndTransactionMarker(commit=False, coordinator_epoch=0)
        producer = request.producer_id, request.producer_epoch
        partition.append_marker(*producer, marker, raises_epoch=False, now_ms=scene.broker.clock.now_ms())
        told = codes(await answer)
        assert told[ErrorCode.INVALID_TXN_STATE] >= COUNT - 2 * PIECE
        assert sum(told.values()) == COUNT
        assert not partition.log.producers.is_in_transaction(request.producer_id), "nothing hangs"

    perform(play)


def test_a_topic_that_is_deleted_between_two_pieces_gets_no_more_offsets() -> None:
    """Nobody would take them away any more, and a topic of the same name would find them."""

    async def play(scene: Scene) -> None:
        request = await large_commit(scene)
        answer = await begun(scene, request)
        scene.broker.publish(scene.broker.image.with_topics([], [TOPIC]))
        told = codes(await answer)
        assert told[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] >= COUNT - 2 * PIECE
        assert sum(told.values()) == COUNT

    perform(play)


def test_a_topic_that_is_deleted_while_the_coordinator_is_asked_gets_no_offsets() -> None:
    async def play(scene: Scene) -> None:
        request = await large_commit(scene)
        request.topics[0].partitions = request.topics[0].partitions[:1]
        coordinator = scene.partition("__transaction_state")
        scene.follow("__transaction_state")  # the coordinator answers once its record is committed
        client = await scene.connect()
        end_offset = coordinator.log.end_offset
        answer = asyncio.ensure_future(client.call(request, 5))
        while coordinator.log.end_offset == end_offset:
            await coordinator.moved.wait()
        scene.broker.publish(scene.broker.image.with_topics([], [TOPIC]))
        scene.catch_up("__transaction_state")
        assert codes(await answer) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}

    perform(play)
