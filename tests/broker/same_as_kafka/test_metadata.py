"""Metadata, topics page by page, the directories of the logs, the versions of the APIs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.testing.raw_requests import metadata, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


@conversations.add
def metadata_by_name_id_and_nothing(side: Side) -> None:
    topic, topic_id = side.new_topic("seen", 2)
    for version in range(13 + 1):
        side.ask(metadata(topic), version)
        side.ask(metadata(side.name("unknown")), version)
        if version >= 1:
            side.ask(metadata(), version)
    for version in (12, 13):
        side.ask(metadata(topic_id), version)
        side.ask(metadata(UUID(int=77)), version)
    side.ask(metadata("not a name!"), 12)
    side.ask(metadata(""), 12)
    side.ask(metadata("." * 2), 12)
    side.ask(metadata("x" * 250), 9)
    side.ask(metadata(topic, topic), 9)


@conversations.add
def metadata_with_authorized_operations(side: Side) -> None:
    topic, _ = side.new_topic("allowed")
    for version in (8, 10, 11, 12):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        if version <= 10:
            request.include_cluster_authorized_operations = True
        side.ask(request, version)
    for version in (0, 1, 2):
        side.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        side.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), version)


@conversations.add
def topics_page_by_page(side: Side) -> None:
    topics = [side.new_topic(f"page-{number}", 3)[0] for number in range(3)]
    for limit in (1, 3, 4, 2000, 0, -1):
        side.ask(_pages(topics, limit), 0)
    side.ask(_pages(topics, 4, Cursor(topic_name=topics[1], partition_index=1)), 0)
    side.ask(_pages(topics, 4, Cursor(topic_name=topics[1], partition_index=9)), 0)
    side.ask(_pages([side.name("never"), topics[0]], 10), 0)
    side.ask(_pages(["what?"], 10), 0)


def _pages(topics: list[str], limit: int, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=cursor,
    )


@conversations.add
def log_directories(side: Side) -> None:
    topic, _ = side.new_topic("stored", 2)
    side.ask(produce(topic, one_batch(b"x" * 100), partition=1), 9)
    for version in range(1, 6):
        side.ask(
            DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0, 1, 7])]),
            version,
            note=_by_partition,
        )


@conversations.add
def moves_between_log_directories(side: Side) -> None:
    """To directories that a broker does not have, and of topics that there are not."""
    topic, _ = side.new_topic("moved", 2)
    topics = [
        AlterReplicaLogDirTopic(name=topic, partitions=[0, 7]),
        AlterReplicaLogDirTopic(name="never", partitions=[0]),
    ]
    for version in (1, 2):
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=topics)])
        side.ask(request, version, note=_by_topic)


def _by_topic(answer: Any) -> Any:
    answer.results.sort(key=lambda each: each.topic_name)
    for topic in answer.results:
        topic.partitions.sort(key=lambda each: each.partition_index)
    return answer


def _by_partition(answer: Any) -> Any:
    for directory in answer.results:
        for topic in directory.topics:
            topic.partitions.sort(key=lambda each: each.partition_index)
    return answer


@conversations.add
def api_versions(side: Side) -> None:
    for name, version_name in (("x", "1"), ("", "1"), ("-x", "1"), ("x", "1!"), ("a.b-c", "1.2.3"), ("x", "")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version_name)
        for version in (3, 4):
            side.ask(request, version, note=_has_versions)
    for version in range(3):
        side.ask(ApiVersionsRequest(), version, note=_has_versions)
    for version in (3, 4):
        side.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version, note=_features)


def _has_versions(answer: Any) -> Any:
    return answer.error_code, bool(answer.api_keys)


def _features(answer: Any) -> Any:
    """Of the features, those that we have; Kafka has others, and knows share groups and KRaft by them."""
    ours = ("metadata.version", "group.version", "transaction.version")
    return (
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features if each.name in ours},
        {each.name: each.max_version_level for each in answer.finalized_features if each.name in ours},
    )


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
