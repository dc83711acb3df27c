"""Asking about a cluster and changing it: a module for each noun.

Each function takes a `Cluster` and values and returns values. Where one call concerns several things, what went wrong
with single ones is in the answer beside those that went well; what concerns the whole call is raised.
"""

from ottla.client.admin.cluster import ClusterBroker, ClusterDescription, describe_cluster
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
    alter_configs,
    describe_configs,
)
from ottla.client.admin.leaders import ask_leaders, by_topic
from ottla.client.admin.log_dirs import LogDirectory, ReplicaInDirectory, describe_log_dirs
from ottla.client.admin.offsets import FoundOffset, Isolation, OffsetSpec, list_offsets
from ottla.client.admin.producers import describe_producers
from ottla.client.admin.records import delete_records
from ottla.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
)

__all__ = [
    "ClusterBroker",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "FoundOffset",
    "Isolation",
    "LogDirectory",
    "NewTopic",
    "OffsetSpec",
    "ReplicaInDirectory",
    "ResourceType",
    "alter_configs",
    "ask_leaders",
    "by_topic",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_log_dirs",
    "describe_producers",
    "describe_topics",
    "list_offsets",
]
