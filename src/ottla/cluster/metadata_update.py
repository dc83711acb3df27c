"""UpdateMetadata: what a broker knows of its cluster after the controller has sent it what changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.cluster.control_batch import BEING_DELETED
from ottla.cluster.image import (
    NO_LEADER,
    SECURITY_PROTOCOLS,
    BrokerEndpoint,
    BrokerNode,
    ClusterImage,
    PartitionState,
    TopicState,
)
from ottla.protocol.messages.replication import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.wire import ZERO_UUID

PROTOCOL_NAMES: Final = {number: name for name, number in SECURITY_PROTOCOLS.items()}
# In place of a partition that was not sent: it has no state yet, because none of its brokers was ever there.
UNTOLD: Final = PartitionState((), NO_LEADER, leader_epoch=-1, isr=(), version=-1)


def updated(image: ClusterImage, request: UpdateMetadataRequest) -> ClusterImage:
    """The image afterwards: the brokers are those of the request, its partitions join those that are known."""
    brokers = [_broker(sent, image) for sent in request.live_brokers]
    image = image.with_brokers(brokers, request.controller_id)
    changed: list[TopicState] = []
    removed: list[str] = []
    for sent in _by_topic(request):
        topic = _topic(image.topics.get(sent.topic_name), sent)
        if topic is not None:
            changed.append(topic)
        elif sent.topic_name in image.topics:
            removed.append(sent.topic_name)
    return image.with_topics(changed, removed) if changed or removed else image


def _by_topic(request: UpdateMetadataRequest) -> Iterable[UpdateMetadataTopicState]:
    """In the oldest versions each partition names its topic."""
    if not request.ungrouped_partition_states:
        return request.topic_states
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in request.ungrouped_partition_states:
        if state.topic_name not in topics:
            topics[state.topic_name] = UpdateMetadataTopicState(topic_name=state.topic_name, partition_states=[])
        topics[state.topic_name].partition_states.append(state)
    return topics.values()


def _broker(sent: UpdateMetadataBroker, image: ClusterImage) -> BrokerNode:
    endpoints = {
        endpoint.listener: BrokerEndpoint(endpoint.host, endpoint.port, PROTOCOL_NAMES[endpoint.security_protocol])
        for endpoint in sent.endpoints
    }
    broker = BrokerNode(sent.id, endpoints, sent.rack)
    known = image.brokers.get(sent.id)
    return known if known == broker else broker


def _topic(known: TopicState | None, sent: UpdateMetadataTopicState) -> TopicState | None:
    """The topic with the states of its partitions that were sent; None where none is left."""
    topic_id = sent.topic_id
    if topic_id == ZERO_UUID and known is not None:
        topic_id = known.topic_id
    partitions = [] if known is None or known.topic_id != topic_id else list(known.partitions)
    for state in sent.partition_states:
        missing = state.partition_index + 1 - len(partitions)
        partitions += [UNTOLD] * missing
        if state.leader == BEING_DELETED:
            partitions[state.partition_index] = UNTOLD
        elif not _is_older(state, partitions[state.partition_index]):
            partitions[state.partition_index] = _partition(state)
    if all(state is UNTOLD for state in partitions):
        return None
    return TopicState(sent.topic_name, topic_id, tuple(partitions))


def _is_older(sent: UpdateMetadataPartitionState, known: PartitionState) -> bool:
    """A request that was on its way for long arrives behind later ones: its sender had sent it again meanwhile."""
    return (sent.leader_epoch, sent.zk_version) < (known.leader_epoch, known.version)


def _partition(sent: UpdateMetadataPartitionState) -> PartitionState:
    return PartitionState(
        replicas=tuple(sent.replicas),
        leader=sent.leader,
        leader_epoch=sent.leader_epoch,
        isr=tuple(sent.isr),
        version=sent.zk_version,
        offline=tuple(sent.offline_replicas),
    )


def new_topics(before: ClusterImage, after: ClusterImage) -> list[TopicState]:
    """Topics that `before` did not have, also those that were deleted and recreated under their name."""
    return [
        topic
        for topic in after.changes_since(before).changed
        if topic.name not in before.topics or before.topics[topic.name].topic_id != topic.topic_id
    ]
