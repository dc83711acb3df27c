"""The queue of requests to one broker: whatever happens to one of them, those behind it are not held up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.control_channel import WAITING_MAX, ControlChannels
from ottla.cluster.control_batch import ControlRequest
from ottla.cluster.image import BrokerEndpoint, BrokerNode
from ottla.errors import CannotEncodeError
from ottla.protocol.messages.replication import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.testing.loop import run

US = BrokerNode(1, {"PLAINTEXT": BrokerEndpoint("host", 9092, "PLAINTEXT")})


def play(outcomes: list[Exception | None], *, fails_to_note: bool = False) -> tuple[list[int], float]:
    """Two requests to the broker itself, whose attempts end as given: which are answered, and after how long."""
    answered: list[int] = []
    left: Iterator[Exception | None] = iter(outcomes)

    async def handle(request: ControlRequest) -> Any:
        failure = next(left)
        if failure is not None:
            raise failure
        return UpdateMetadataResponse()

    def note(number: int, answer: Any) -> None:
        answered.append(number)
        if fails_to_note:
            raise KeyError(number)

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        channels = ControlChannels(US.node_id, "PLAINTEXT", handle, request_timeout_s=30)
        channels.add(US)
        started = loop.time()
        for number in (1, 2):
            request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[])
            channels.send(US.node_id, request, partial(note, number))
        await channels.wait_until_answered()
        channels.close()
        return loop.time() - started

    return answered, run(scenario())


def test_a_request_that_cannot_be_encoded_is_reported_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answered, seconds = play([CannotEncodeError("99999999999 is no int32"), None])
    assert (answered, seconds) == ([2], 0)
    assert caplog.messages == ["UpdateMetadataRequest to broker 1 is not sent: 99999999999 is no int32"]


def test_an_unexpected_failure_is_reported_and_tried_again_more_and_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        answered, seconds = play([*[KeyError("t")] * 8, None, None])
    assert answered == [1, 2]
    assert seconds == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5 + 5)
    assert all(record.exc_info for record in caplog.records)


def test_a_response_that_its_reader_cannot_take_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert play([None, None], fails_to_note=True) == ([1, 2], 0)
    assert caplog.messages == ["what broker 1 answered to UpdateMetadataRequest could not be taken in"] * 2


def test_a_broker_that_does_not_answer_for_hours_costs_no_more_memory_than_its_partitions() -> None:
    """It is registered, and the controller cannot reach it, while in-sync replicas change a hundred times a second."""
    heard: list[Any] = []
    can_answer = asyncio.Event()
    queued: list[int] = []

    async def handle(request: ControlRequest) -> Any:
        await can_answer.wait()
        heard.append(request)
        return UpdateMetadataResponse()

    def change(number: int) -> UpdateMetadataRequest:
        state = UpdateMetadataPartitionState(
            partition_index=number % 7,
            controller_epoch=1,
            leader=1,
            leader_epoch=0,
            isr=[1],
            zk_version=number,
            replicas=[1],
        )
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=UUID(int=1), partition_states=[state])
        return UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_brokers=[])

    async def scenario() -> None:
        channels = ControlChannels(US.node_id, "PLAINTEXT", handle, request_timeout_s=30)
        channels.add(US)
        for number in range(10_000):
            channels.send(US.node_id, change(number), lambda _: None)
            await asyncio.sleep(0.01)
            queued.append(len(channels._channels[US.node_id]._queue))
        can_answer.set()
        await channels.wait_until_answered()
        channels.close()

    run(scenario())
    assert max(queued) <= WAITING_MAX
    assert len(heard) <= WAITING_MAX
    latest = {
        state.partition_index: state.zk_version for each in heard for state in each.topic_states[0].partition_states
    }
    assert sorted(latest.values()) == list(range(9_993, 10_000))
