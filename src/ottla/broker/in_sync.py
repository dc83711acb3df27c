"""Changes of in-sync replicas on their way to the controller: one request in flight, with all that is proposed by then.

A proposal is answered, taken back, or overtaken by a new leader epoch; until then the partition counts the larger set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from ottla.broker.controller_client import ControllerClient
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from ottla.replication.leader import IsrProposal, Leader
from ottla.runtime.signal import Signal

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.05
# The controller will say more by itself: the proposal stands until then.
OVERTAKEN: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    }
)
# Nothing was changed and nothing will be: what was before stands.
REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class LedPartition(Protocol):
    """What is needed of a partition that this broker leads, or led."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def current_leader(self) -> Leader | None: ...

    def isr_changed(self, leader: Leader, isr: tuple[int, ...], version: int) -> None: ...


class IsrChanges:
    """All proposals of a broker."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerClient) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._waiting: dict[LedPartition, IsrProposal] = {}
        self._more = Signal()

    def propose(self, partition: LedPartition, proposal: IsrProposal) -> None:
        self._waiting[partition] = proposal
        self._more.fire()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            while self._waiting:
                sent, self._waiting = self._waiting, {}
                await self._exchange(sent)
            await self._more.wait()

    async def _exchange(self, sent: dict[LedPartition, IsrProposal]) -> None:
        response = await self._controller.ask(lambda: self._request(sent), AlterPartitionResponse)
        if response.error_code:
            # Our registration and the controller's view differ for a moment: asked again.
            logger.info("the controller rejects changes now: %s", ErrorCode(response.error_code).name)
            for partition, proposal in sent.items():
                self._waiting.setdefault(partition, proposal)
            await asyncio.sleep(RETRY_S)
            return
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        for partition, proposal in sent.items():
            answer = answers.get((partition.topic_id, partition.name.partition))
            if answer is None:
                self._waiting.setdefault(partition, proposal)
            else:
                self._answered(partition, proposal, answer)

    def _request(self, sent: dict[LedPartition, IsrProposal]) -> AlterPartitionRequest:
        topics: dict[UUID, AlterPartitionRequestTopicData] = {}
        for partition, proposal in sent.items():
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = AlterPartitionRequestTopicData(
                    topic_name=partition.name.topic, topic_id=partition.topic_id, partitions=[]
                )
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=partition.name.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=node) for node in proposal.isr],
                    partition_epoch=proposal.version,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(
        self, partition: LedPartition, proposal: IsrProposal, answer: AlterPartitionResponsePartitionData
    ) -> None:
        leader = partition.current_leader
        if leader is None or leader.proposal is not proposal:
            return  # a new leader epoch came meanwhile
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            logger.info("%s: the in-sync replicas are %s", partition.name, answer.isr)
            partition.isr_changed(leader, tuple(answer.isr), answer.partition_epoch)
        elif code in REFUSED:
            leader.withdraw_proposal()
        elif code in OVERTAKEN:
            logger.info("%s: the controller has a newer state of the in-sync replicas: %s", partition.name, code.name)
        else:
            self._waiting.setdefault(partition, proposal)
