"""What becomes of a change of in-sync replicas that the controller refuses, on a real log."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.in_sync import IsrChanges
from ottla.broker.partition import Partition
from ottla.config import LogConfig
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.records import batch
from ottla.replication.leader import Leader
from ottla.storage.recovery import open_log
from ottla.testing.disk import SimulatedDisk

NAME, TOPIC_ID = TopicPartition("t", 0), UUID(int=1)


def answer_of(code: int) -> AlterPartitionResponse:
    refused = AlterPartitionResponsePartitionData(
        partition_index=0, error_code=code, leader_id=-1, leader_epoch=-1, isr=[], partition_epoch=-1
    )
    topic = AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=[refused])
    return AlterPartitionResponse(error_code=0, topics=[topic])


class Answers:
    """Stands for a controller that gives these answers, one after the other, and the last one for ever."""

    def __init__(self, *answers: AlterPartitionResponse) -> None:
        self.answers = list(answers)

    async def ask(self, make_request: Any, answer: type) -> AlterPartitionResponse:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


REFUSED = answer_of(ErrorCode.INELIGIBLE_REPLICA)  # it knows that the broker is leaving
LATER_CODE = 9999  # of a version that is not known here


@pytest.mark.parametrize(
    "answers",
    [(REFUSED,), (AlterPartitionResponse(error_code=LATER_CODE, topics=[]), answer_of(LATER_CODE), REFUSED)],
    ids=["refused", "refused at last"],
)
def test_what_waited_for_a_replica_that_may_not_join_is_committed_at_once(
    answers: tuple[AlterPartitionResponse, ...],
) -> None:
    """The others have it already: none of them will fetch anything that moves the high watermark again."""
    log = open_log(SimulatedDisk(), "/data/t-0", NAME, LogConfig(), now_ms=0)
    partition = Partition(NAME, TOPIC_ID, log, failures=DiskFailures(), truncate=lambda *_: None)
    leader = Leader(1, 1, (1, 2, 3), (1, 2), end_offset=0, high_watermark=0)
    partition.lead(leader)
    partition.record_fetch(3, 0, 0, 0)
    proposal = leader.propose_growth(3, (1, 2, 3))
    assert proposal is not None
    partition.append(batch.build(None, [b"a record"], 0), acks=1, now_ms=0)
    partition.record_fetch(2, 1, 0, 0)
    assert leader.high_watermark == 0, "as long as broker 3 may be in sync"

    async def play() -> None:
        controller: Any = Answers(*answers)
        changes = IsrChanges(1, lambda: 1, controller)
        changes.propose(partition, proposal)
        running = asyncio.ensure_future(changes.run())
        async with asyncio.timeout(10):
            await partition.moved.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    assert (leader.isr, leader.proposal, leader.high_watermark) == ((1, 2), None, 1)
