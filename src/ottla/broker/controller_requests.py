"""What brokers ask of their controller, on the broker that is it: AlterPartition, ControlledShutdown,
AllocateProducerIds.

On any other broker the answer is NOT_CONTROLLER, and the asker looks for the right one.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.broker.producer_ids import BLOCK_SIZE, take_block
from ottla.cluster.image import PartitionState
from ottla.controller import brokers
from ottla.controller.controller import Controller
from ottla.controller.in_sync import IsrRequest, alter
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.store.api import Store

# Of AlterPartition.
FIRST_VERSION_WITH_TOPIC_IDS: Final = 2
FIRST_VERSION_WITH_INELIGIBLE_REPLICA: Final = 2


class ControllerRequests:
    """Requests of brokers to the controller."""

    def __init__(self, controller: Controller, store: Store) -> None:
        self._controller = controller
        self._store = store

    async def handle(self, request: object) -> object:
        """The answer to this same broker."""
        match request:
            case AlterPartitionRequest():
                return await self.alter_partition(request)
            case ControlledShutdownRequest():
                return await self.controlled_shutdown(request)
            case _:
                raise AssertionError(f"{type(request).__name__} is not a request to a controller")

    # -- in-sync replicas ----------------------------------------------------------------------------------------------

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int = FIRST_VERSION_WITH_TOPIC_IDS
    ) -> AlterPartitionResponse:
        try:
            return await self._controller.ask(lambda term: _alter_partition(term, request, version))
        except ApiError as error:
            return AlterPartitionResponse(error_code=error.code, topics=[])

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        async def shut_down(term: Term) -> list[TopicPartition]:
            return await brokers.shut_down(term, request.broker_id, request.broker_epoch)

        try:
            remaining = await self._controller.ask(shut_down)
        except ApiError as error:
            # Kafka's word for it here, unlike everywhere else.
            code = ErrorCode.STALE_CONTROLLER_EPOCH if error.code == ErrorCode.NOT_CONTROLLER else error.code
            return ControlledShutdownResponse(error_code=code, remaining_partitions=[])
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=one.topic, partition_index=one.partition) for one in remaining
            ]
        )

    # -- producer ids --------------------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        async def check(term: Term) -> None:
            if request.broker_id not in term.context.brokers:
                raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
            _check_broker_epoch(term, request.broker_id, request.broker_epoch)

        try:
            await self._controller.ask(check)
            start = await take_block(self._store, request.broker_id)
        except ApiError as error:
            return AllocateProducerIdsResponse(error_code=error.code, producer_id_start=0, producer_id_len=0)
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)


def _check_broker_epoch(term: Term, node_id: int, broker_epoch: int) -> None:
    broker = term.context.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is not registered in epoch {broker_epoch}")


async def _alter_partition(term: Term, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
    _check_broker_epoch(term, request.broker_id, request.broker_epoch)
    context = term.context
    has_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
    asked: dict[TopicPartition, IsrRequest] = {}
    answers: dict[UUID | str, AlterPartitionResponseTopicData] = {}
    names: dict[TopicPartition, AlterPartitionResponseTopicData] = {}
    for topic in request.topics:
        key = topic.topic_id if has_ids else topic.topic_name
        answer = answers[key] = AlterPartitionResponseTopicData(
            topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=[]
        )
        name = context.names_by_id.get(topic.topic_id) if has_ids else topic.topic_name
        for entry in topic.partitions:
            if name is None:
                answer.partitions.append(_refused(entry.partition_index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            partition = TopicPartition(name, entry.partition_index)
            asked[partition] = _isr_request(entry)
            names[partition] = answer
    for partition, outcome in (await alter(term, asked)).items():
        names[partition].partitions.append(
            _refused(partition.partition, _known_in(version, outcome))
            if isinstance(outcome, ErrorCode)
            else _altered(partition.partition, outcome)
        )
    return AlterPartitionResponse(topics=list(answers.values()))


def _known_in(version: int, code: ErrorCode) -> ErrorCode:
    """The error as leaders know it that send this version."""
    if code is ErrorCode.INELIGIBLE_REPLICA and version < FIRST_VERSION_WITH_INELIGIBLE_REPLICA:
        return ErrorCode.OPERATION_NOT_ATTEMPTED
    return code


def _isr_request(entry: AlterPartitionRequestPartitionData) -> IsrRequest:
    isr = [broker.broker_id for broker in entry.new_isr_with_epochs] or entry.new_isr
    broker_epochs = {broker.broker_id: broker.broker_epoch for broker in entry.new_isr_with_epochs}
    is_recovering = entry.leader_recovery_state == 1
    return IsrRequest(entry.leader_epoch, entry.partition_epoch, tuple(isr), is_recovering, broker_epochs)


def _refused(index: int, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


def _altered(index: int, state: PartitionState) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.is_recovering),
        partition_epoch=state.version,
    )
