"""Fewer requests that say the same in the end: whoever hears them is left in the same place."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.control_backlog import coalesced
from ottla.cluster.control_batch import BEING_DELETED, ControlRequest
from ottla.cluster.image import ClusterImage
from ottla.cluster.metadata_update import updated
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
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)


def metadata(number: int, indexes: list[int], topic_id: UUID = FIRST_ID, leader: int = 1) -> UpdateMetadataRequest:
    """In-sync replicas changed for the so manieth time."""
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=number,
            isr=[1, number],
            zk_version=number,
            replicas=[1, 2],
            offline_replicas=[],
        )
        for index in indexes
    ]
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=states)
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[topic] if states else [],
        live_brokers=[UpdateMetadataBroker(id=number, endpoints=[])],
    )


def roles(number: int, indexes: list[int], topic_id: UUID = FIRST_ID, *, is_new: bool = False) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=1,
            leader_epoch=number,
            isr=[1],
            partition_epoch=number,
            replicas=[1, 2],
            is_new=is_new,
        )
        for index in indexes
    ]
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=states)],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=number, host_name="host", port=9092)],
    )


def stop(index: int, epoch: int) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=True)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    return StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic])


class Listener:
    """A broker, as far as it matters what it was told last."""

    def __init__(self) -> None:
        self.image = ClusterImage("cluster")
        self.roles: dict[TopicPartition, tuple[UUID, int, bool]] = {}  # id, epoch, was it told that it is new?

    def hear(self, request: Any) -> None:
        match request:
            case UpdateMetadataRequest():
                self.image = updated(self.image, request)
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        name = TopicPartition(topic.topic_name, state.partition_index)
                        before = self.roles.get(name)
                        if before is None or (before[0] == topic.topic_id and before[1] < state.leader_epoch):
                            is_new = state.is_new or (before is not None and before[2])
                            self.roles[name] = topic.topic_id, state.leader_epoch, is_new
            case StopReplicaRequest():
                for stopping in request.topic_states:
                    for replica in stopping.partition_states:
                        self.roles.pop(TopicPartition(stopping.topic_name, replica.partition_index), None)


def heard(requests: list[ControlRequest]) -> Listener:
    listener = Listener()
    for request in requests:
        listener.hear(request)
    return listener


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["metadata", "metadata", "roles", "new roles", "stop", "another topic", "it goes"]),
        st.lists(st.integers(0, 4), unique=True, max_size=3),
    ),
    max_size=40,
)


@given(STEPS)
def test_whoever_hears_fewer_requests_is_left_in_the_same_place(steps: list[tuple[str, list[int]]]) -> None:
    requests: list[ControlRequest] = []
    ids = iter(range(2, 100))
    topic_id, is_going = FIRST_ID, False
    for number, (kind, indexes) in enumerate(steps, 1):
        if kind == "it goes":
            requests += [metadata(number, list(range(5)), topic_id, BEING_DELETED), *(stop(i, -2) for i in range(5))]
            is_going = True
        elif kind == "another topic" and is_going:
            topic_id, is_going = UUID(int=next(ids)), False
        elif kind == "metadata":
            requests.append(metadata(number, [] if is_going else indexes, topic_id))
        elif kind in ("roles", "new roles") and not is_going:
            requests.append(roles(number, indexes, topic_id, is_new=kind == "new roles"))
        elif kind == "stop":
            requests += [stop(index, number) for index in indexes]
    whole = heard(requests)
    fewer = [request for request, _ in coalesced((request, None) for request in requests)]
    assert len(fewer) <= len(requests)
    left = heard(fewer)
    assert left.image.topics == whole.image.topics
    assert left.image.brokers == whole.image.brokers
    assert left.roles == whole.roles


def test_many_changes_of_a_few_partitions_are_one_request() -> None:
    requests = [metadata(number, [number % 3]) for number in range(1, 100)]
    ((merged, last),) = coalesced((request, request) for request in requests)
    assert isinstance(merged, UpdateMetadataRequest)
    assert sorted(state.zk_version for state in merged.topic_states[0].partition_states) == [97, 98, 99]
    assert merged.live_brokers == requests[-1].live_brokers
    assert last is requests[-1]
    assert requests[-1].topic_states[0].partition_states == metadata(99, [0]).topic_states[0].partition_states, (
        "other brokers are sent the same object"
    )


def test_metadata_come_before_roles_and_nothing_passes_a_replica_that_stops() -> None:
    backlog: list[ControlRequest] = [roles(1, [0], is_new=True), metadata(1, [0]), roles(2, [0, 1]), metadata(2, [1])]
    backlog += (stop(0, 2), roles(3, [0]), metadata(3, [0]))
    found = [request for request, _ in coalesced((request, None) for request in backlog)]
    assert [type(request).__name__ for request in found] == [
        *["UpdateMetadataRequest", "LeaderAndIsrRequest", "StopReplicaRequest"],
        *["UpdateMetadataRequest", "LeaderAndIsrRequest"],
    ]
    first = found[1]
    assert isinstance(first, LeaderAndIsrRequest)
    assert [
        (state.partition_index, state.leader_epoch, state.is_new) for state in first.topic_states[0].partition_states
    ] == [
        (0, 2, True),
        (1, 2, False),
    ]
    assert [leader.broker_id for leader in first.live_leaders] == [1, 2]


def test_two_topics_of_a_name_do_not_meet_in_a_request() -> None:
    requests = [metadata(1, [0]), metadata(2, [0], leader=BEING_DELETED), metadata(3, [0], SECOND_ID)]
    found = coalesced((request, None) for request in requests)
    assert [request.topic_states[0].topic_id for request, _ in found if isinstance(request, UpdateMetadataRequest)] == [
        FIRST_ID,
        SECOND_ID,
    ]
