"""What a broker knows of its cluster after the controller told it what changed."""

from __future__ import annotations

from uuid import UUID

from ottla.cluster.control_batch import BEING_DELETED
from ottla.cluster.image import NO_LEADER, BrokerEndpoint, ClusterImage
from ottla.cluster.metadata_update import UNTOLD, new_topics, updated
from ottla.protocol.messages.replication import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

FIRST, SECOND = UUID(int=1), UUID(int=2)
EMPTY = ClusterImage("cluster")


def broker(node_id: int, port: int = 9092) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=port, host="here", listener="PLAINTEXT", security_protocol=0)
    return UpdateMetadataBroker(id=node_id, endpoints=[endpoint], rack=None)


def state(index: int, leader: int = 1, epoch: int = 0, version: int = 0) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1, 2],
        zk_version=version,
        replicas=[1, 2],
        offline_replicas=[2],
    )


def update(*states: UpdateMetadataPartitionState, topic_id: UUID = FIRST, brokers: int = 2) -> UpdateMetadataRequest:
    topics = [UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=list(states))]
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=topics if states else [],
        live_brokers=[broker(node_id) for node_id in range(1, brokers + 1)],
    )


def test_brokers_are_replaced_and_partitions_join_those_that_are_known() -> None:
    image = updated(EMPTY, update(state(0), state(1)))
    image = updated(image, update(state(1, leader=2, epoch=5, version=7), brokers=1))
    assert image.controller_id == 1
    assert {node.node_id: node.endpoints for node in image.brokers.values()} == {
        1: {"PLAINTEXT": BrokerEndpoint("here", 9092, "PLAINTEXT")}
    }
    first, second = image.topics["t"].partitions
    assert (first.leader, first.leader_epoch, first.isr, first.offline) == (1, 0, (1, 2), (2,))
    assert (second.leader, second.leader_epoch, second.version) == (2, 5, 7)
    assert image.names_by_id == {FIRST: "t"}


def test_an_update_without_partitions_leaves_the_topics_as_they_are() -> None:
    image = updated(EMPTY, update(state(0)))
    assert updated(image, update()).topics is image.topics


def test_a_partition_of_which_nothing_was_told_has_no_leader_until_it_is() -> None:
    image = updated(EMPTY, update(state(1)))
    assert image.topics["t"].partitions[0] is UNTOLD
    assert image.topics["t"].partitions[0].leader == NO_LEADER
    assert updated(image, update(state(0))).topics["t"].partitions[0].leader == 1


def test_a_state_that_arrives_behind_a_later_one_changes_nothing() -> None:
    """A request that took long was sent again over another connection, and others after it, before it arrived."""
    image = updated(EMPTY, update(state(0, leader=2, epoch=5, version=7)))
    for late in (state(0, epoch=4, version=6), state(0, leader=2, epoch=5, version=6)):
        assert updated(image, update(late)).topics == image.topics
    recreated = updated(image, update(state(0, epoch=0, version=0), topic_id=SECOND))
    assert recreated.topics["t"].partitions[0].leader_epoch == 0


def test_a_topic_goes_with_the_last_of_its_partitions() -> None:
    image = updated(EMPTY, update(state(0), state(1)))
    image = updated(image, update(state(0, leader=BEING_DELETED)))
    assert [partition.leader for partition in image.topics["t"].partitions] == [NO_LEADER, 1]
    image = updated(image, update(state(1, leader=BEING_DELETED)))
    assert image.topics == image.names_by_id == {}
    assert updated(image, update(state(1, leader=BEING_DELETED))).topics == {}


def test_a_topic_made_anew_under_its_name_has_nothing_of_the_one_before() -> None:
    before = updated(EMPTY, update(state(0), state(1)))
    image = updated(before, update(state(0), topic_id=SECOND))
    assert len(image.topics["t"].partitions) == 1
    assert image.names_by_id == {SECOND: "t"}
    assert new_topics(before, image) == [image.topics["t"]]
    assert new_topics(before, updated(before, update(state(0, epoch=1)))) == []
