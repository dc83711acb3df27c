"""Who leads after a broker came back, and after a log directory failed."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.cluster.elections import decide_loss, decide_return
from ottla.cluster.image import NO_LEADER, BrokerNode, ClusterImage, PartitionState, TopicState
from ottla.ids import TopicPartition

ALONE = PartitionState(replicas=(1,), leader=1, leader_epoch=5, isr=(1,), version=3)


def image_of(*partitions: PartitionState, alive: tuple[int, ...] = (1,)) -> ClusterImage:
    image = ClusterImage("c").with_brokers([BrokerNode(node, {}) for node in alive], controller_id=1)
    return image.with_topics([TopicState("t", UUID(int=1), partitions)])


def returned(state: PartitionState, *, alive: tuple[int, ...] = (1,)) -> PartitionState:
    changed = decide_return(image_of(state, alive=alive), 1)
    return changed[0].partitions[0] if changed else state


def lost(state: PartitionState, *, alive: tuple[int, ...] = (1,)) -> PartitionState:
    changed = decide_loss(image_of(state, alive=alive), 1, [TopicPartition("t", 0)])
    return changed[0].partitions[0] if changed else state


def test_a_broker_that_comes_back_leads_again_in_a_new_epoch() -> None:
    assert returned(ALONE) == replace(ALONE, leader_epoch=6, version=4)


def test_a_broker_that_comes_back_leads_what_waited_for_it() -> None:
    waiting = replace(ALONE, leader=NO_LEADER, offline=(1,))
    assert returned(waiting) == replace(ALONE, leader_epoch=6, version=4)


def test_a_broker_that_comes_back_takes_nothing_from_a_leader_that_is_alive() -> None:
    led = PartitionState(replicas=(1, 2), leader=2, leader_epoch=5, isr=(2, 1), version=3)
    assert decide_return(image_of(led, alive=(1, 2)), 1) == []
    assert returned(replace(led, offline=(1,)), alive=(1, 2)) == led


def test_a_broker_that_was_not_in_sync_does_not_lead() -> None:
    behind = PartitionState(replicas=(1, 2), leader=2, leader_epoch=5, isr=(2,), version=3)
    assert decide_return(image_of(behind), 1) == []


def test_without_another_replica_nobody_leads_and_the_lost_one_stays_in_sync() -> None:
    gone = lost(ALONE)
    assert gone == replace(ALONE, leader=NO_LEADER, leader_epoch=6, version=4, offline=(1,))
    image = image_of(gone)
    assert (image.leader_of(gone), image.offline_replicas(gone)) == (NO_LEADER, [1])


def test_another_replica_in_sync_leads_on() -> None:
    state = PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=(1, 2, 3), version=3)
    assert lost(state, alive=(1, 3)) == replace(state, leader=3, leader_epoch=6, isr=(2, 3), version=4, offline=(1,))


def test_a_follower_that_is_lost_leaves_the_replicas_in_sync() -> None:
    state = PartitionState(replicas=(1, 2), leader=2, leader_epoch=5, isr=(2, 1), version=3)
    assert lost(state, alive=(1, 2)) == replace(state, leader_epoch=6, isr=(2,), version=4, offline=(1,))


def test_what_is_lost_already_or_unknown_changes_nothing() -> None:
    image = image_of(lost(ALONE), ALONE)
    assert decide_loss(image, 1, [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 0)]) == []


def test_partitions_of_a_topic_that_are_lost_together_change_together() -> None:
    (topic,) = decide_loss(image_of(ALONE, ALONE, ALONE), 1, [TopicPartition("t", 2), TopicPartition("t", 0)])
    assert [state.leader for state in topic.partitions] == [NO_LEADER, 1, NO_LEADER]
