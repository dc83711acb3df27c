"""Elections and moves asked of one broker alone: it has its leaders, or lost them with a log directory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

PREFERRED, UNCLEAN = 0, 1


def elect(broker: Any, kind: int, *topics: tuple[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
    """What came of each partition; without any, of all."""
    named = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics] or None
    answer = broker.ask(ElectLeadersRequest(election_type=kind, topic_partitions=named), 2)
    assert answer.error_code == ErrorCode.NONE
    return {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }


@pytest.mark.parametrize(
    ("kind", "without_leader"),
    [(PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_an_election_changes_nothing_and_says_why(broker: Any, kind: int, without_leader: ErrorCode) -> None:
    broker.new_topic("t", 2)
    broker.lose(TopicPartition("t", 1))
    assert elect(broker, kind, ("t", [1, 0, 2]), ("never", [0])) == {
        "t": [
            (1, without_leader),
            (0, ErrorCode.ELECTION_NOT_NEEDED),
            (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        "never": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    broker.new_topic("whole")
    assert elect(broker, kind) == {"t": [(1, without_leader)], "whole": []}, "of all, those that lack something"


@pytest.mark.parametrize("version", [1, 2])
def test_a_kind_of_election_that_there_is_not_is_refused(broker: Any, version: int) -> None:
    broker.new_topic("t")
    named = ElectLeadersRequest(
        election_type=2, topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=1
    )
    answer = broker.ask(named, version)
    result = answer.replica_election_results[0].partition_result[0]
    assert (answer.error_code, result.error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST)
    answer = broker.ask(ElectLeadersRequest(election_type=2, topic_partitions=None), version)
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([1], ErrorCode.NONE),
        ([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
    ids=str,
)
def test_a_partition_stays_where_it_is(broker: Any, replicas: list[int] | None, code: ErrorCode) -> None:
    broker.new_topic("t")
    entries = [ReassignablePartition(partition_index=index, replicas=replicas) for index in (0, 1)]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False, topics=[ReassignableTopic(name="t", partitions=entries)]
    )
    answer = broker.ask(request, 1)
    assert (answer.error_code, answer.allow_replication_factor_change) == (ErrorCode.NONE, False)
    codes = [one.error_code for one in answer.responses[0].partitions]
    assert codes == [code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
