"""What a controller sends to the brokers after a change: gathered by broker, in the order that it must have. Pure.

A broker first learns which partitions it leads or follows (LeaderAndIsr), then what the cluster looks like
(UpdateMetadata), then which replicas it is to stop (StopReplica). Each kind is one request for all partitions of a
batch. The states are those of the context when the requests are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.cluster.controller_context import NOT_WRITTEN, ControllerContext
from ottla.cluster.image import SECURITY_PROTOCOLS, BrokerNode, PartitionState, TopicState
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

BEING_DELETED: Final = -2  # as leader: the partition leaves the metadata; as leader epoch: stop it whatever it knows


@dataclass(slots=True)
class ControlBatch:
    """The requests that one event leads to."""

    _led_or_followed: dict[int, dict[TopicPartition, bool]] = field(default_factory=dict)  # by broker; is it new?
    _stopped: dict[int, dict[TopicPartition, tuple[int, bool]]] = field(default_factory=dict)  # epoch, is it deleted?
    _metadata_to: set[int] = field(default_factory=set)
    _metadata_of: dict[TopicPartition, None] = field(default_factory=dict)
    _concerns_all: bool = False  # whether every broker learns of what changed

    def lead_or_follow(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """These brokers learn the state of a partition that they hold; the others learn of it as metadata."""
        for node_id in brokers:
            wanted = self._led_or_followed.setdefault(node_id, {})
            wanted[partition] = wanted.get(partition, False) or is_new
        self._metadata_of[partition] = None
        self._concerns_all = True

    def update_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """These brokers learn who is alive, and of these partitions."""
        self._metadata_to.update(brokers)
        self._metadata_of.update(dict.fromkeys(partitions))

    def stop(self, brokers: Iterable[int], partition: TopicPartition, leader_epoch: int, *, deletes: bool) -> None:
        for node_id in brokers:
            self._stopped.setdefault(node_id, {})[partition] = (leader_epoch, deletes)

    # -- requests ------------------------------------------------------------------------------------------------------

    def requests(self, context: ControllerContext, listener_name: str) -> dict[int, list[ControlRequest]]:
        """By broker, in order. `listener_name`: the listener by which brokers reach each other."""
        requests: dict[int, list[ControlRequest]] = {}
        for node_id, partitions in self._led_or_followed.items():
            held = {each: is_new for each, is_new in partitions.items() if _is_held(context, node_id, each)}
            if node_id in context.brokers and held:
                requests.setdefault(node_id, []).append(
                    _leader_and_isr(context, context.brokers[node_id], held, listener_name)
                )
        readers = set(context.brokers) if self._concerns_all else self._metadata_to & context.brokers.keys()
        if readers:
            topics = _metadata_of_topics(context, self._metadata_of)
            live = [_live_broker(broker) for broker in context.brokers.values()]
            for node_id in sorted(readers):
                requests.setdefault(node_id, []).append(
                    _update_metadata(context, context.brokers[node_id], topics, live)
                )
        for node_id, stopped in self._stopped.items():
            if node_id in context.brokers:
                requests.setdefault(node_id, []).append(_stop_replica(context, context.brokers[node_id], stopped))
        return requests


def _is_held(context: ControllerContext, node_id: int, partition: TopicPartition) -> bool:
    """Not where a move has ended meanwhile, nor of a topic that goes: such replicas are stopped, never made again."""
    return node_id in context.state(partition).replicas and partition.topic not in context.deleting


def _leader_and_isr(
    context: ControllerContext, broker: BrokerNode, partitions: dict[TopicPartition, bool], listener_name: str
) -> LeaderAndIsrRequest:
    topics: dict[str, LeaderAndIsrTopicState] = {}
    leaders: set[int] = set()
    for partition, is_new in partitions.items():
        topic = context.topics[partition.topic]
        state = topic.partitions[partition.partition]
        leaders.add(state.leader)
        group = topics.get(topic.name)
        if group is None:
            group = topics[topic.name] = LeaderAndIsrTopicState(
                topic_name=topic.name, topic_id=topic.topic_id, partition_states=[]
            )
        group.partition_states.append(
            LeaderAndIsrPartitionState(
                partition_index=partition.partition,
                controller_epoch=context.epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.version,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
                is_new=is_new,
                leader_recovery_state=int(state.is_recovering),
            )
        )
    return LeaderAndIsrRequest(
        controller_id=context.controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=node.node_id, host_name=endpoint.host, port=endpoint.port)
            for node in context.brokers.values()
            if node.node_id in leaders and (endpoint := node.endpoints.get(listener_name)) is not None
        ],
    )


def _update_metadata(
    context: ControllerContext,
    broker: BrokerNode,
    topics: list[UpdateMetadataTopicState],
    live: list[UpdateMetadataBroker],
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=context.controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker.epoch,
        topic_states=topics,
        live_brokers=live,
    )


def _metadata_of_topics(
    context: ControllerContext, partitions: Iterable[TopicPartition]
) -> list[UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataTopicState] = {}
    for partition in partitions:
        topic = context.topics.get(partition.topic)
        if topic is None:
            continue
        # One that is being deleted leaves the metadata also where its state is gone already.
        if topic.partitions[partition.partition].version == NOT_WRITTEN and topic.name not in context.deleting:
            continue
        group = topics.get(topic.name)
        if group is None:
            group = topics[topic.name] = UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.topic_id, partition_states=[]
            )
        group.partition_states.append(_metadata_of_partition(context, topic, partition))
    return list(topics.values())


def _metadata_of_partition(
    context: ControllerContext, topic: TopicState, partition: TopicPartition
) -> UpdateMetadataPartitionState:
    state: PartitionState = topic.partitions[partition.partition]
    is_going = topic.name in context.deleting
    return UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=context.epoch,
        leader=BEING_DELETED if is_going else state.leader,
        leader_epoch=0 if is_going else state.leader_epoch,
        isr=list(state.isr),
        zk_version=0 if is_going else state.version,
        replicas=list(state.replicas),
        offline_replicas=[
            node
            for node in state.replicas
            if node in context.shutting_down or not context.is_replica_online(partition, node)
        ],
    )


def _live_broker(broker: BrokerNode) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.node_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=name,
                security_protocol=SECURITY_PROTOCOLS[endpoint.security_protocol],
            )
            for name, endpoint in broker.endpoints.items()
        ],
        rack=broker.rack,
    )


def _stop_replica(
    context: ControllerContext, broker: BrokerNode, stopped: dict[TopicPartition, tuple[int, bool]]
) -> StopReplicaRequest:
    topics: dict[str, StopReplicaTopicState] = {}
    for partition, (leader_epoch, deletes) in stopped.items():
        group = topics.get(partition.topic)
        if group is None:
            group = topics[partition.topic] = StopReplicaTopicState(topic_name=partition.topic, partition_states=[])
        group.partition_states.append(
            StopReplicaPartitionState(
                partition_index=partition.partition, leader_epoch=leader_epoch, delete_partition=deletes
            )
        )
    return StopReplicaRequest(
        controller_id=context.controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
    )
