"""What is said of an election: the leaders that it made, whoever is asked for them."""

from __future__ import annotations

import asyncio
from typing import cast
from uuid import UUID

import pytest

from ottla.cli import elect
from ottla.cli.elect import view_after
from ottla.client.admin.admin import Admin as RealAdmin
from ottla.client.admin.elections import ElectionType
from ottla.client.metadata import ClusterView, Partition, Topic
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

FIRST = TopicPartition("t", 0)


class Admin:
    """Brokers that learn of an election one question after the other; only `metadata` is asked here."""

    def __init__(self, *leaders: int) -> None:
        self._leaders = list(leaders)

    async def metadata(self, _: object) -> ClusterView:
        leader = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        partition = Partition(0, leader_id=leader, leader_epoch=1, replicas=(2, 1), isr=(1, 2))
        return ClusterView("c", 1, {}, {"t": Topic("t", UUID(int=1), False, (partition,))}, {})


@pytest.mark.parametrize(
    ("kind", "leaders", "error", "shown"),
    [
        (ElectionType.PREFERRED, (1, 1, 2), None, 2),
        (ElectionType.UNCLEAN, (-1, 1), None, 1),
        (ElectionType.PREFERRED, (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1),  # there is nothing to wait for
    ],
)
def test_the_leader_is_the_one_that_was_elected(kind, leaders, error, shown):
    outcomes = {FIRST: None if error is None else ApiError(error)}
    view = asyncio.run(view_after(cast("RealAdmin", Admin(*leaders)), kind, outcomes))
    assert view.topic("t").partition(0).leader_id == shown


def test_a_leader_that_others_have_replaced_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(elect, "LEARNED_S", 0.0)
    view = asyncio.run(view_after(cast("RealAdmin", Admin(1)), ElectionType.PREFERRED, {FIRST: None}))
    assert view.topic("t").partition(0).leader_id == 1
