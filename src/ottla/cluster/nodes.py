"""The nodes of the metadata store: paths and JSON, as Kafka keeps them in ZooKeeper. Pure.

Both stores, the embedded one and ZooKeeper, hold the same tree, so that either can be read with the tools operators
know, and a broker can move from one to the other.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from ottla.cluster.image import BrokerNode, PartitionState, TopicState
from ottla.errors import OttlaError
from ottla.ids import parse_topic_id, topic_id_text

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETIONS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
CONFIGS = "/config"
CONFIG_CHANGES = "/config/changes"

# What has to be there before anything else is written.
ROOTS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/cluster",
    "/admin",
    DELETIONS,
    CONFIGS,
    CONFIG_CHANGES,
    "/config/topics",
    "/config/brokers",
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/config/groups",
)

DEFAULT_ENTITY = "<default>"


class MetadataError(OttlaError):
    """A node does not hold what it must; `path` says which."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"metadata node {path}: {reason}")
        self.path = path


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def deletion_path(topic: str) -> str:
    return f"{DELETIONS}/{topic}"


def consumer_offset_path(group: str, topic: str, index: int) -> str:
    """Where the oldest consumers keep an offset; a group that is no plain word is quoted."""
    return f"/consumers/{quote(group, safe='')}/offsets/{topic}/{index}"


def config_path(kind: str, name: str) -> str:
    """`kind` is topics, brokers, users …; a name that is no plain word is quoted as Kafka does."""
    return f"{CONFIGS}/{kind}/{name if name == DEFAULT_ENTITY else quote(name, safe='')}"


def config_name(path_segment: str) -> str:
    return path_segment if path_segment == DEFAULT_ENTITY else unquote(path_segment)


# -- values ------------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8")


def decode(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MetadataError(path, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MetadataError(path, "is not a JSON object")
    return value


def encode_broker(broker: BrokerNode) -> bytes:
    first = next(iter(broker.endpoints.values()))
    return encode(
        {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "jmx_port": -1,
            "rack": broker.rack,
            "endpoints": [f"{name}://{end.host}:{end.port}" for name, end in broker.endpoints.items()],
            "listener_security_protocol_map": {name: end.security_protocol for name, end in broker.endpoints.items()},
            "features": {},
        }
    )


def encode_topic(topic: TopicState) -> bytes:
    return encode(
        {
            "version": 3,
            "topic_id": topic_id_text(topic.topic_id),
            "partitions": {str(index): list(state.replicas) for index, state in enumerate(topic.partitions)},
            "adding_replicas": {str(i): list(state.adding) for i, state in enumerate(topic.partitions) if state.adding},
            "removing_replicas": {
                str(i): list(state.removing) for i, state in enumerate(topic.partitions) if state.removing
            },
        }
    )


def encode_deletion(topic_id: UUID) -> bytes:
    return encode({"version": 1, "topic_id": topic_id_text(topic_id)})


def decode_deletion(path: str, data: bytes) -> UUID:
    try:
        return parse_topic_id(decode(path, data)["topic_id"])
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is no deletion: {error!r}") from error


def encode_state(state: PartitionState, controller_epoch: int) -> bytes:
    value = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.is_recovering:
        value["leader_recovery_state"] = 1
    return encode(value)


def decode_assignment(path: str, data: bytes) -> tuple[UUID, dict[int, tuple[int, ...]]]:
    """The topic id and the replicas of each partition."""
    value = decode(path, data)
    try:
        replicas = {int(index): tuple(nodes) for index, nodes in value["partitions"].items()}
        if sorted(replicas) != list(range(len(replicas))):
            raise MetadataError(path, "has gaps in its partitions")
        return parse_topic_id(value["topic_id"]), replicas
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise MetadataError(path, f"is no topic: {error!r}") from error


def decode_state(path: str, data: bytes, replicas: tuple[int, ...], version: int) -> PartitionState:
    value = decode(path, data)
    try:
        return PartitionState(
            replicas=replicas,
            leader=int(value["leader"]),
            leader_epoch=int(value["leader_epoch"]),
            isr=tuple(value["isr"]),
            version=version,
            is_recovering=value.get("leader_recovery_state", 0) == 1,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is no partition state: {error!r}") from error


def encode_config(properties: dict[str, str]) -> bytes:
    return encode({"version": 1, "config": properties})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    value = decode(path, data)
    config = value.get("config")
    if not isinstance(config, dict):
        raise MetadataError(path, "holds no config")
    return {str(key): str(text) for key, text in config.items()}
