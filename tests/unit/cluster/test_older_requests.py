"""A request of brokers in every version that a broker may have: it can be written, and says the same."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.cluster.older_requests import in_version, merged
from ottla.controller.controller import _lost
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.replication import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = UUID(int=7)
LEADING = LeaderAndIsrPartitionState(
    partition_index=1,
    controller_epoch=3,
    leader=1,
    leader_epoch=4,
    isr=[1],
    partition_epoch=5,
    replicas=[1, 2],
    leader_recovery_state=1,
)
LEADER_AND_ISR = LeaderAndIsrRequest(
    controller_id=1,
    controller_epoch=3,
    broker_epoch=9,
    topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[LEADING])],
    live_leaders=[],
)
KNOWN = UpdateMetadataPartitionState(
    partition_index=1, controller_epoch=3, leader=1, leader_epoch=4, isr=[1], zk_version=5, replicas=[1, 2]
)
ENDPOINT = UpdateMetadataEndpoint(port=9092, host="broker", listener="PLAINTEXT", security_protocol=0)
UPDATE_METADATA = UpdateMetadataRequest(
    controller_id=1,
    controller_epoch=3,
    broker_epoch=9,
    topic_states=[UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[KNOWN])],
    live_brokers=[UpdateMetadataBroker(id=1, endpoints=[ENDPOINT], rack="r")],
)


def stopping(*partitions: tuple[str, int, bool]) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=3,
        broker_epoch=9,
        topic_states=[
            StopReplicaTopicState(
                topic_name=name,
                partition_states=[
                    StopReplicaPartitionState(partition_index=index, leader_epoch=4, delete_partition=deletes)
                ],
            )
            for name, index, deletes in partitions
        ],
    )


STOP_REPLICA = stopping(("t", 0, True), ("t", 1, False), ("u", 2, True))
ALTER_PARTITION = AlterPartitionRequest(
    broker_id=1,
    broker_epoch=9,
    topics=[
        AlterPartitionRequestTopicData(
            topic_name="t",
            topic_id=TOPIC_ID,
            partitions=[
                AlterPartitionRequestPartitionData(
                    partition_index=1,
                    leader_epoch=4,
                    partition_epoch=5,
                    new_isr_with_epochs=[BrokerState(broker_id=1), BrokerState(broker_id=2)],
                )
            ],
        )
    ],
)


def written(request: Any, version: int) -> list[Any]:
    """As the other side reads it."""
    return [decode(type(request), encode(part, version), version) for part in in_version(request, version)]


@pytest.mark.parametrize("version", range(2, 8))
def test_roles_are_told_in_every_version_since_kafka_2_2(version: int) -> None:
    (told,) = written(LEADER_AND_ISR, version)
    (topic,) = told.topic_states
    (state,) = topic.partition_states
    assert (topic.topic_name, topic.topic_id == TOPIC_ID) == ("t", version >= 5)
    assert (state.partition_index, state.leader, state.leader_epoch, state.isr) == (1, 1, 4, [1])
    assert state.leader_recovery_state == (version >= 6)
    assert LEADING.leader_recovery_state == 1, "others are told the same request"


@pytest.mark.parametrize("version", range(5, 9))
def test_metadata_are_told_in_every_version_since_kafka_2_2(version: int) -> None:
    (told,) = written(UPDATE_METADATA, version)
    assert told.topic_states[0].partition_states[0].leader == 1
    assert told.live_brokers[0].endpoints[0].host == "broker"


@pytest.mark.parametrize("version", range(5))
def test_replicas_are_stopped_in_every_version(version: int) -> None:
    stopped = set()
    for part in written(STOP_REPLICA, version):
        assert part.controller_epoch == 3
        stopped |= {
            (each.topic_name, each.partition_index, part.delete_partitions) for each in part.ungrouped_partitions
        }
        stopped |= {
            (each.name, index, part.delete_partitions) for each in part.topics for index in each.partition_indexes
        }
        stopped |= {
            (each.topic_name, state.partition_index, state.delete_partition)
            for each in part.topic_states
            for state in each.partition_states
        }
    assert stopped == {("t", 0, True), ("t", 1, False), ("u", 2, True)}
    assert len(in_version(STOP_REPLICA, version)) == (2 if version < 3 else 1)
    assert len(in_version(stopping(("t", 0, False)), version)) == 1


@pytest.mark.parametrize("version", range(4))
def test_in_sync_replicas_are_proposed_in_every_version(version: int) -> None:
    (told,) = written(ALTER_PARTITION, version)
    (topic,) = told.topics
    (entry,) = topic.partitions
    assert (topic.topic_name == "t", topic.topic_id == TOPIC_ID) == (version < 2, version >= 2)
    assert (entry.new_isr or [each.broker_id for each in entry.new_isr_with_epochs]) == [1, 2]


def test_a_replica_that_is_lost_is_known_by_the_id_or_by_the_name_of_its_topic() -> None:
    def errors(name: str) -> list[LeaderAndIsrPartitionError]:
        codes = {0: ErrorCode.NONE, 1: ErrorCode.KAFKA_STORAGE_ERROR, 2: ErrorCode.STALE_CONTROLLER_EPOCH}
        return [
            LeaderAndIsrPartitionError(topic_name=name, partition_index=index, error_code=code)
            for index, code in codes.items()
        ]

    gone = LeaderAndIsrTopicError(topic_id=UUID(int=8), partition_errors=errors(""))
    new = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=errors("")), gone])
    old = LeaderAndIsrResponse(partition_errors=errors("t"))
    for version, response in ((7, new), (5, new), (4, old), (2, old)):
        read = decode(LeaderAndIsrResponse, encode(response, version), version)
        assert _lost(read, {TOPIC_ID: "t"}) == [TopicPartition("t", 1)]


def test_what_became_of_the_parts_of_a_request_is_one_response() -> None:
    def answer(code: int, *indexes: int) -> StopReplicaResponse:
        errors = [StopReplicaPartitionError(topic_name="t", partition_index=index) for index in indexes]
        return StopReplicaResponse(error_code=code, partition_errors=errors)

    assert merged([answer(0, 1)]) == answer(0, 1)
    assert merged([answer(0, 1), answer(0, 2, 3)]) == answer(0, 1, 2, 3)
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert merged([answer(0, 1), answer(stale)]).error_code == stale
