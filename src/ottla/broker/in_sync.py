"""Changes of in-sync replicas on their way to the controller: one request in flight, with all that is proposed by then.

A proposal is answered, taken back, or overtaken by a new leader epoch; until then the partition counts the larger set.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.broker.controller_client import ControllerClient
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.cluster.image import ClusterImage
from ottla.config.broker import BrokerConfig
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
from ottla.protocol.wire import ZERO_UUID
from ottla.replication.leader import UNKNOWN_BROKER_EPOCH, IsrProposal, Leader
from ottla.runtime.clock import Clock
from ottla.runtime.listed import Listed
from ottla.runtime.signal import Signal
from ottla.runtime.turns import Turns

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

    def isr_refused(self, leader: Leader) -> None: ...


class NewIsr(NamedTuple):
    """The in-sync replicas of a partition from now on."""

    partition: TopicPartition
    isr: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.partition} {list(self.isr)}"


class IsrChanges:
    """All proposals of a broker."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerClient) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._waiting: dict[LedPartition, IsrProposal] = {}
        self._more = Signal()
        self._rejected_with = ErrorCode.NONE  # what was logged since the last answer that was none

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
            code = ErrorCode.of(response.error_code)
            if code is not self._rejected_with:
                logger.info("the controller rejects changes now: %s", code.name)
                self._rejected_with = code
            for partition, proposal in sent.items():
                self._waiting.setdefault(partition, proposal)
            await asyncio.sleep(RETRY_S)
            return
        self._rejected_with = ErrorCode.NONE
        # An older controller names topics, a newer one their ids.
        answers = {
            (topic.topic_name if topic.topic_id == ZERO_UUID else topic.topic_id, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }
        fewer: list[NewIsr] = []
        more: list[NewIsr] = []
        for partition, proposal in sent.items():
            topic_name, index = partition.name
            answer = answers.get((partition.topic_id, index)) or answers.get((topic_name, index))
            if answer is None:
                self._waiting.setdefault(partition, proposal)
                continue
            count = 0 if partition.current_leader is None else len(partition.current_leader.isr)
            if self._answered(partition, proposal, answer):
                (fewer if len(answer.isr) < count else more).append(NewIsr(partition.name, tuple(answer.isr)))
        if fewer:
            logger.info("%d partitions have fewer in-sync replicas: %s", len(fewer), Listed(fewer))
        if more:
            logger.info("%d partitions have more in-sync replicas: %s", len(more), Listed(more))

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
                    new_isr_with_epochs=[
                        BrokerState(broker_id=node, broker_epoch=proposal.broker_epochs.get(node, UNKNOWN_BROKER_EPOCH))
                        for node in proposal.isr
                    ],
                    partition_epoch=proposal.version,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(
        self, partition: LedPartition, proposal: IsrProposal, answer: AlterPartitionResponsePartitionData
    ) -> bool:
        """Takes over what the controller says; whether the proposal is in force now."""
        leader = partition.current_leader
        if leader is None or leader.proposal is not proposal:
            return False  # a new leader epoch came meanwhile
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            partition.isr_changed(leader, tuple(answer.isr), answer.partition_epoch)
            return True
        if code in REFUSED:
            partition.isr_refused(leader)
        elif code in OVERTAKEN:
            logger.info("%s: the controller has a newer state of the in-sync replicas: %s", partition.name, code.name)
        else:
            self._waiting.setdefault(partition, proposal)
        return False


class InSyncReplicas:
    """Proposes changes of the in-sync replicas: who has caught up joins them, who is too far behind leaves."""

    def __init__(
        self,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        changes: IsrChanges,
        clock: Clock,
        turns: Turns,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._config = config
        self._changes = changes
        self._clock = clock
        self._turns = turns

    def fetched(self, partition: Partition, node_id: int) -> None:
        """A follower fetched: one that has caught up is proposed as in sync."""
        leader = partition.leader
        if node_id not in leader.isr and leader.proposal is None:
            proposal = leader.propose_growth(node_id, self._image().brokers)
            if proposal is not None:
                self._changes.propose(partition, proposal)

    async def propose_shrinks(self) -> None:
        """Proposes to leave out followers that have been behind for longer than replica.lag.time.max.ms."""
        lag_ms_max = self._config().replica_lag_time_max_ms
        behind: Counter[int] = Counter()
        async for partition in self._turns.over(list(self._replicas)):
            leader = partition.current_leader
            if leader is not None and len(leader.isr) > 1:
                proposal = leader.propose_shrink(self._clock.steady_ms(), lag_ms_max)
                if proposal is not None:
                    behind.update({*leader.isr} - {*proposal.isr})
                    self._changes.propose(partition, proposal)
        for node_id, count in sorted(behind.items()):
            logger.info("broker %d has been behind for %d ms, with %d partitions led here", node_id, lag_ms_max, count)
