"""Answers that refuse a whole request: there is one for every API and version, and it repeats nothing but names."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.broker.error_answers import error_answer, error_of_entries
from ottla.errors import ErrorCode
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.versions import API_TABLE
from ottla.runtime.turns import done_at_once
from ottla.testing.messages import random_message, smallest_message

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("key", sorted(API_TABLE), ids=lambda key: API_TABLE[key].name)
def test_any_request_can_be_refused(key: int) -> None:
    api = API_TABLE[key]
    for version in api.versions:
        random = Random(f"{key} {version}")
        requests: list[Any] = [smallest_message(api.request, version)]
        requests += [random_message(api.request, version, random) for _ in range(5)]
        for request in requests:
            for refused in (error_answer, error_of_entries):
                answer = done_at_once(refused(api, request, version, DENIED, "no"))
                assert decode(api.response, encode(answer, version), version) is not None


def test_what_a_member_said_of_itself_is_not_repeated() -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=protocols
    )
    answer = done_at_once(error_answer(API_TABLE[11], request, 9, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert (answer.member_id, answer.protocol_type, answer.generation_id, answer.members) == ("", None, -1, [])


def test_every_topic_of_every_directory_has_its_error() -> None:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 2]) for name in "ab"]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=f"/{one.name}", topics=[one]) for one in topics])
    answer = done_at_once(error_answer(API_TABLE[34], request, 2, DENIED))
    assert [
        (topic.topic_name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in answer.results
    ] == [("a", [(0, DENIED), (2, DENIED)]), ("b", [(0, DENIED), (2, DENIED)])]


def test_every_user_has_one_error() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="a", mechanism=1), ScramCredentialDeletion(name="a", mechanism=2)],
        upsertions=[
            ScramCredentialUpsertion(name="b", mechanism=1, iterations=4096, salt=b"", salted_password=b"secret")
        ],
    )
    answer = done_at_once(error_answer(API_TABLE[51], request, 0, DENIED))
    assert [(one.user, one.error_code) for one in answer.results] == [("a", DENIED), ("b", DENIED)]


def test_an_election_is_refused_as_a_whole_and_for_each_partition() -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[1])])
    answer = done_at_once(error_answer(API_TABLE[43], request, 2, DENIED))
    (topic,) = answer.replica_election_results
    assert (answer.error_code, topic.topic) == (DENIED, "t")
    assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [(1, DENIED)]


def test_a_move_is_refused_as_a_whole_and_for_each_partition() -> None:
    stays = [ReassignablePartition(partition_index=3, replicas=[1])]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=stays)])
    answer = done_at_once(error_answer(API_TABLE[45], request, 1, DENIED))
    (topic,) = answer.responses
    assert (answer.error_code, topic.name) == (DENIED, "t")
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(3, DENIED)]


def test_a_refused_list_of_moves_names_what_was_asked_for_and_says_nothing_of_it() -> None:
    wanted = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[3])]
    answer = done_at_once(error_answer(API_TABLE[46], ListPartitionReassignmentsRequest(topics=wanted), 0, DENIED))
    ((topic,), (partition,)) = (answer.topics, answer.topics[0].partitions)
    assert (answer.error_code, topic.name) == (DENIED, "t")
    assert (partition.partition_index, partition.replicas) == (3, [])
    of_all = done_at_once(error_answer(API_TABLE[46], ListPartitionReassignmentsRequest(topics=None), 0, DENIED))
    assert (of_all.error_code, of_all.topics) == (DENIED, [])
