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
    topic_settings,
)
from ottla.client.admin.elections import ElectionType, elect_leaders
from ottla.client.admin.leaders import ask_leaders, by_topic
from ottla.client.admin.log_dirs import (
    LogDirectory,
    ReplicaInDirectory,
    alter_replica_log_dirs,
    describe_log_dirs,
)
from ottla.client.admin.offsets import FoundOffset, Isolation, OffsetSpec, list_offsets
from ottla.client.admin.producers import describe_producers
from ottla.client.admin.reassignments import OngoingReassignment, alter_reassignments, list_reassignments
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
    "ElectionType",
    "FoundOffset",
    "Isolation",
    "LogDirectory",
    "NewTopic",
    "OffsetSpec",
    "OngoingReassignment",
    "ReplicaInDirectory",
    "ResourceType",
    "alter_configs",
    "alter_reassignments",
    "alter_replica_log_dirs",
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
    "elect_leaders",
    "list_offsets",
    "list_reassignments",
    "topic_settings",
]
