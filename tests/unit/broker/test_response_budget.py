"""A small request cannot ask for an answer that does not fit in memory: what is named again and again counts again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.broker import response_budget
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.groups import DescribeGroupsRequest
from ottla.protocol.messages.transactions import DescribeTransactionsRequest
from ottla.testing.raw_groups import commit, first_beat, join, sync
from ottla.testing.raw_transactions import GROUP_KEY, TRANSACTION_KEY, add_request, init_request
from ottla.testing.scene import Scene, perform

PARTITIONS = 20


async def is_answered(scene: Scene, request: object, version: int) -> bool:
    client = await scene.connect()
    try:
        await client.call(request, version)
    except (ConnectionError, EOFError):
        return False
    return True


async def check_limit(scene: Scene, request_of: Any, version: int) -> None:
    assert await is_answered(scene, request_of(9), version)
    assert not await is_answered(scene, request_of(11), version)


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_budget, "RESPONSE_BYTES_MAX", 10_500)
    monkeypatch.setattr(response_budget, "RESPONSE_ELEMENTS_MAX", 10 * (2 + 2 * PARTITIONS))


@pytest.mark.usefixtures("small_budget")
def test_what_members_tell_about_themselves() -> None:
    async def play(scene: Scene) -> None:
        await scene.find_coordinator("g", GROUP_KEY)
        joined = await scene.ask(join("g", metadata=bytes(1000)), 3)
        assert not (await scene.ask(sync("g", 1, joined.member_id, {joined.member_id: b"all"}), 2)).error_code
        await check_limit(scene, lambda count: DescribeGroupsRequest(groups=["g"] * count), 4)

    perform(play)


@pytest.mark.usefixtures("small_budget")
def test_what_is_noted_with_offsets() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        await scene.find_coordinator("g", GROUP_KEY)
        await scene.ask(commit("g", "t", {0: 1}, "x" * 1000), 8)
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        await check_limit(scene, lambda count: OffsetFetchRequest(groups=[group] * count), 8)

    perform(play)


@pytest.mark.usefixtures("small_budget")
def test_the_partitions_of_members() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t", PARTITIONS)
        await scene.find_coordinator("g", GROUP_KEY)
        assert not (await scene.ask(first_beat("g", "m" * 22, "t"), 1)).error_code
        request_of = partial(ConsumerGroupDescribeRequest, include_authorized_operations=False)
        await check_limit(scene, lambda count: request_of(group_ids=["g"] * count), 0)

    perform(play)


@pytest.mark.usefixtures("small_budget")
def test_the_partitions_of_transactions() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t", 2 * PARTITIONS)
        await scene.find_coordinator("tx", TRANSACTION_KEY)
        producer = await scene.ask(init_request("tx"), 4)
        names = range(2 * PARTITIONS)
        await scene.ask(add_request("tx", producer.producer_id, producer.producer_epoch, "t", *names), 3)
        await check_limit(scene, lambda count: DescribeTransactionsRequest(transactional_ids=["tx"] * count), 0)

    perform(play)
