"""What a broker does when its controller says so: LeaderAndIsr, UpdateMetadata, StopReplica.

One at a time and in their order: roles change here and nowhere else in a cluster. A request of a controller that is
over, or to an incarnation of this broker that is, changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.broker.config_changes import ConfigChanges
from ottla.broker.fetchers import Fetchers
from ottla.broker.membership import NOT_REGISTERED
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.broker.role_changes import RoleChanges
from ottla.broker.strays import Assignments, Strays
from ottla.cluster.image import ClusterImage, PartitionState
from ottla.cluster.metadata_update import new_topics, updated
from ottla.errors import ErrorCode, StorageError
from ottla.ids import TopicPartition
from ottla.net.client import Address
from ottla.protocol.messages.replication import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.runtime.listed import Listed
from ottla.runtime.offload import Offload
from ottla.runtime.turns import Turns
from ottla.storage.log import Log

logger = logging.getLogger(__name__)

ANY_BROKER_EPOCH: Final = -1
ANY_LEADER_EPOCH: Final = -1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 5  # of LeaderAndIsr


class StoppedReplica(NamedTuple):
    """A replica that is to stop. A negative epoch stops it whatever is known of it."""

    partition: TopicPartition
    leader_epoch: int
    deletes: bool


class RolesAndImage(Protocol):
    """What of a broker the controller changes, besides its replicas."""

    @property
    def image(self) -> ClusterImage: ...

    def update_image(self, image: ClusterImage) -> None:
        """Takes over a new image."""
        ...

    def role_changed(self, partition: Partition) -> None:
        """A partition is led here from now on, or no longer."""
        ...


class ControlRequests:
    """The controller's requests to this broker. `controller_epoch` is the largest that was seen."""

    def __init__(
        self,
        broker: RolesAndImage,
        node_id: int,
        replicas: Replicas,
        offload: Offload,
        turns: Turns,
        broker_epoch: Callable[[], Awaitable[int]],
        fetchers: Fetchers,
        configs: ConfigChanges,
        listener_name: str,
        assignments: Assignments,
    ) -> None:
        self._broker = broker
        self._node_id = node_id
        self._replicas = replicas
        self._offload = offload
        self._turns = turns
        self._broker_epoch = broker_epoch
        self._fetchers = fetchers
        self._configs = configs
        self._listener_name = listener_name
        self._assignments = assignments
        self._strays = Strays(node_id)
        self._one_at_a_time = asyncio.Lock()
        self.controller_epoch = 0
        self.epoch_of_roles = NOT_REGISTERED  # the registration for which the controller has sent roles last

    async def handle(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> object:
        """The answer to a request of the controller on this same broker."""
        match request:
            case LeaderAndIsrRequest():
                return await self.leader_and_isr(request)
            case UpdateMetadataRequest():
                return await self.update_metadata(request)
            case StopReplicaRequest():
                return await self.stop_replica(request)

    async def _refusal(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> ErrorCode:
        """Why nothing of a request is done, or NONE; the order of the checks is Kafka's."""
        broker_epoch = await self._broker_epoch()
        # A larger one is of a registration whose answer has not reached us yet.
        if broker_epoch == NOT_REGISTERED or ANY_BROKER_EPOCH < request.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            logger.info(
                "rejected %s of controller %d: its epoch is %d, the current one is %d",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    # -- LeaderAndIsr --------------------------------------------------------------------------------------------------

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int = FIRST_VERSION_WITH_TOPIC_IDS
    ) -> LeaderAndIsrResponse:
        async with self._one_at_a_time:
            refusal = await self._refusal(request)
            if refusal:
                return LeaderAndIsrResponse(error_code=refusal)
            if version < FIRST_VERSION_WITH_TOPIC_IDS:
                # By its id a topic differs from an earlier one of its name, whose logs are deleted.
                logger.error(
                    "controller %d sends no topic ids, so this broker neither leads nor follows: "
                    "set inter.broker.protocol.version to 2.8 or later on the brokers of Kafka",
                    request.controller_id,
                )
                return LeaderAndIsrResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            response = LeaderAndIsrResponse()
            changes = RoleChanges()
            for topic in request.topic_states:
                codes = await self._take_roles(topic, changes)
                errors = [
                    LeaderAndIsrPartitionError(partition_index=index, error_code=code) for index, code in codes.items()
                ]
                response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            self.epoch_of_roles = await self._broker_epoch()
            changes.log(request.controller_id)
            return response

    async def _take_roles(self, topic: LeaderAndIsrTopicState, changes: RoleChanges) -> dict[int, ErrorCode]:
        """Leads and follows the partitions of one topic as the controller says; returns what became of each."""
        codes: dict[int, ErrorCode] = {}
        states: dict[int, PartitionState] = {}
        for sent in topic.partition_states:
            state = _state(sent)
            name = TopicPartition(topic.topic_name, sent.partition_index)
            code = self._check_state(name, topic.topic_id, state)
            codes[sent.partition_index] = code
            if code is ErrorCode.NONE and not self._is_outdated(name, state):
                states[sent.partition_index] = state
        if not states:
            return codes
        await self._configs.learn_topics({topic.topic_name: topic.topic_id})
        new = {sent.partition_index for sent in topic.partition_states if sent.is_new}
        held = await self._replicas.hold(topic.topic_name, topic.topic_id, states, new, self._offload)
        async for index, state in self._turns.over(states.items()):
            partition = held[index]
            if isinstance(partition, ErrorCode):
                codes[index] = partition
                continue
            led = partition.is_leader
            codes[index] = self._take_role(partition, state)
            if codes[index] is ErrorCode.NONE:
                changes.add(partition.name, led_before=led, leads=partition.is_leader)
        return codes

    def _check_state(self, name: TopicPartition, topic_id: UUID, state: PartitionState) -> ErrorCode:
        """Why a new state of a partition is not taken over, or NONE; the order of the checks is Kafka's."""
        if self._replicas.is_offline(name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._replicas.get(name)
        if partition is not None and partition.topic_id != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if partition is not None and state.leader_epoch <= partition.leader_epoch:
            # Known already, as most of what a new controller sends; controllers do not mind this answer.
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._node_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _is_outdated(self, name: TopicPartition, state: PartitionState) -> bool:
        """Whether a later state is known here. The answer does not say that it was passed over: so in Kafka."""
        partition = self._replicas.get(name)
        if partition is None or state.version >= partition.version:
            return False
        logger.info("%s: version %d of its state is passed over: %d is known", name, state.version, partition.version)
        return True

    def _take_role(self, partition: Partition, state: PartitionState) -> ErrorCode:
        if partition.is_gone:  # its directory failed meanwhile
            return ErrorCode.KAFKA_STORAGE_ERROR
        name, replicas = partition.name, self._replicas
        try:
            if state.leader == self._node_id:
                self._fetchers.leave(name)
                replicas.lead(partition, state)
                logger.debug("%s: leads in epoch %d from %d on", name, state.leader_epoch, partition.log.end_offset)
            elif state.leader >= 0:
                self._fetchers.leave(name)
                replicas.follow(partition, state)
                self._fetch(partition)
            else:
                self._fetchers.leave(name)
                partition.go_idle(state.leader_epoch)
        except StorageError as error:
            replicas.directory_failed(partition.log, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition.version = state.version
        self._broker.role_changed(partition)
        return ErrorCode.NONE

    def _fetch(self, partition: Partition) -> None:
        """Fetches from the leader, as soon as it is known where that is."""
        follower = partition.follower
        assert follower is not None
        address = self._address_of(follower.leader_id)
        if address is None:
            logger.warning("%s: its leader, broker %d, is not known yet", partition.name, follower.leader_id)
            return
        logger.debug("%s: follows broker %d in epoch %d", partition.name, follower.leader_id, follower.leader_epoch)
        self._fetchers.follow(partition, follower.leader_id, address)

    def _address_of(self, node_id: int) -> Address | None:
        endpoint = self._broker.image.endpoint(node_id, self._listener_name)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    # -- UpdateMetadata ------------------------------------------------------------------------------------------------

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._one_at_a_time:
            refusal = await self._refusal(request)
            if refusal:
                return UpdateMetadataResponse(error_code=refusal)
            before = self._broker.image
            image = updated(before, request)
            self._strays.told_by((request.controller_epoch, await self._broker_epoch()), before)
            await self._take_image(before, image)
            return UpdateMetadataResponse()

    async def _take_image(self, before: ClusterImage, image: ClusterImage) -> None:
        await self._configs.learn_topics({topic.name: topic.topic_id for topic in new_topics(before, image)})
        gone = [topic.name for topic in image.changes_since(before).removed if topic.name not in image.topics]
        self._strays.image_changed(before, image)
        self._broker.update_image(image)
        await self._configs.forget_topics(gone)
        if image.brokers != before.brokers:
            self._follow_addresses()

    def _follow_addresses(self) -> None:
        """Leaders may be known now that were not, or be somewhere else."""
        for partition in self._replicas:
            follower = partition.follower
            if follower is not None:
                address = self._address_of(follower.leader_id)
                if address is not None and address != self._fetchers.source_of(partition.name):
                    self._fetch(partition)

    # -- StopReplica ---------------------------------------------------------------------------------------------------

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._one_at_a_time:
            refusal = await self._refusal(request)
            if refusal:
                return StopReplicaResponse(error_code=refusal, partition_errors=[])
            codes: Mapping[TopicPartition, ErrorCode] = {
                stopped.partition: self._stop(stopped) for stopped in _stopped_of(request)
            }
            await self._replicas.finish(self._offload)
            stopped = [name for name, code in codes.items() if code is ErrorCode.NONE]
            if stopped:
                logger.info(
                    "controller %d has stopped %d replicas: %s", request.controller_id, len(stopped), Listed(stopped)
                )
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(topic_name=name.topic, partition_index=name.partition, error_code=code)
                    for name, code in codes.items()
                ]
            )

    def _stop(self, stopped: StoppedReplica) -> ErrorCode:
        name, replicas = stopped.partition, self._replicas
        if replicas.is_offline(name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = replicas.get(name)
        if partition is not None:
            if 0 <= stopped.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._fetchers.leave(name)
            partition.go_idle(stopped.leader_epoch)
            self._broker.role_changed(partition)
        if stopped.deletes:
            replicas.drop(name)
        return ErrorCode.NONE

    # -- what nobody tells us ------------------------------------------------------------------------------------------

    async def drop_unclaimed(self) -> None:
        """Deletes logs that were assigned to others while this broker did not run.

        No controller's request comes in between: what is found not to be ours is not made so meanwhile.
        """
        async with self._one_at_a_time:
            unclaimed = self._replicas.unclaimed()
            if unclaimed:
                await self._assignments.catch_up()
            for log in unclaimed:
                if not await self._assignments.is_ours(log.name, self._replicas.owner_of(log.name)):
                    self._drop_stray(log)
            await self._replicas.finish(self._offload)

    async def drop_strays(self) -> None:
        """Forgets topics and deletes replicas that went while nobody could say so to this broker."""
        gone = await self._strays.gone_topics(self._assignments)
        if gone:
            async with self._one_at_a_time:
                if gone := self._strays.unconfirmed(gone):
                    logger.warning(
                        "%d topics were deleted while nobody could say so to us: %s", len(gone), Listed(gone)
                    )
                    await self._take_image(self._broker.image, self._broker.image.with_topics((), gone))
        found = [each async for each in self._turns.over(list(self._replicas)) if self._is_stray(each)]
        if found:
            await self._assignments.catch_up()
        strays = [each for each in found if not await self._assignments.is_ours(each.name, each.topic_id)]
        if strays:
            async with self._one_at_a_time:
                for partition in strays:
                    if self._is_stray(partition):
                        self._drop_stray(partition.log)
                await self._replicas.finish(self._offload)
        self._strays.forget_deleted((each.name.topic, each.topic_id) for each in self._replicas)

    def _is_stray(self, partition: Partition) -> bool:
        name, topic_id, leader_epoch = partition.name, partition.topic_id, partition.leader_epoch
        is_here = self._replicas.get(name) is partition
        return is_here and self._strays.is_stray(name, topic_id, leader_epoch, self._broker.image)

    def _drop_stray(self, log: Log) -> None:
        logger.warning("%s is no longer assigned to this broker and is deleted", log.directory)
        self._stop(StoppedReplica(log.name, ANY_LEADER_EPOCH, deletes=True))


def _state(sent: LeaderAndIsrPartitionState) -> PartitionState:
    return PartitionState(
        replicas=tuple(sent.replicas),
        leader=sent.leader,
        leader_epoch=sent.leader_epoch,
        isr=tuple(sent.isr),
        version=sent.partition_epoch,
        adding=tuple(sent.adding_replicas),
        removing=tuple(sent.removing_replicas),
        is_recovering=sent.leader_recovery_state == 1,
    )


def _stopped_of(request: StopReplicaRequest) -> Iterator[StoppedReplica]:
    """The replicas to stop, whichever version names them."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            partition = TopicPartition(topic.topic_name, state.partition_index)
            yield StoppedReplica(partition, state.leader_epoch, state.delete_partition)
    for old_topic in request.topics:
        for index in old_topic.partition_indexes:
            yield StoppedReplica(TopicPartition(old_topic.name, index), ANY_LEADER_EPOCH, request.delete_partitions)
    for each in request.ungrouped_partitions:
        partition = TopicPartition(each.topic_name, each.partition_index)
        yield StoppedReplica(partition, ANY_LEADER_EPOCH, request.delete_partitions)
