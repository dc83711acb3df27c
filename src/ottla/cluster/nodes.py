"""The nodes of the metadata store: paths and JSON, as Kafka keeps them in ZooKeeper. Pure.

Both stores, the embedded one and ZooKeeper, hold the same tree, so that either can be read with the tools operators
know, and a broker can move from one to the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from ottla.cluster.features import registered_features
from ottla.cluster.image import NO_LEADER, SECURITY_PROTOCOLS, BrokerEndpoint, BrokerNode, PartitionState, TopicState
from ottla.errors import OttlaError
from ottla.ids import TopicPartition, parse_topic_id, topic_id_text

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
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
FEATURE = "/feature"
# What operators of old write to have partitions moved, or led by their preferred replica.
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTIONS = "/admin/preferred_replica_election"

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

# What every broker of a cluster makes besides; Kafka's peers read and watch them.
CLUSTER_ROOTS = (
    *ROOTS,
    "/consumers",
    BROKER_SEQUENCE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_IDS,
)

DEFAULT_ENTITY = "<default>"
INT32_MAX = 2**31 - 1
PORT_MAX = 2**16 - 1


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


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def consumer_offset_path(group: str, topic: str, index: int) -> str:
    """Where the oldest consumers keep an offset; a group that is not a plain word is quoted."""
    return f"/consumers/{_quoted(group)}/offsets/{topic}/{index}"


def config_path(kind: str, name: str) -> str:
    """`kind` is topics, brokers, users …; a name that is not a plain word is quoted as Kafka does: a tilde too.

    An empty name is that of the default, and what is called `<default>` is not.
    """
    return f"{CONFIGS}/{kind}/{_quoted(name).replace('~', '%7E') if name else DEFAULT_ENTITY}"


def _quoted(name: str) -> str:
    """One segment of a path. Kafka leaves dots as they are; a name of one or two of them is nowhere a segment."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def config_name(path_segment: str) -> str:
    return "" if path_segment == DEFAULT_ENTITY else unquote(path_segment)


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


def _int32(value: Any, least: int = 0) -> int:
    """A number that has a place in every message; ValueError for anything else."""
    if type(value) is not int or not least <= value <= INT32_MAX:
        raise ValueError(f"{value!r} is not a number from {least} to {INT32_MAX}")
    return value


def _node_ids(values: Any) -> tuple[int, ...]:
    found = tuple(map(_int32, values))
    if len(set(found)) < len(found):
        raise ValueError(f"{values} names a broker twice")
    return found


def encode_broker(broker: BrokerNode, now_ms: int) -> bytes:
    """`host` and `port` are for readers from before there were listeners: those of the first one without security."""
    plain = next((end for end in broker.endpoints.values() if end.security_protocol == "PLAINTEXT"), None)
    value = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{name}://{_address(end)}" for name, end in broker.endpoints.items()],
        "listener_security_protocol_map": {name: end.security_protocol for name, end in broker.endpoints.items()},
        "features": registered_features(),
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    return encode(value)


def _address(endpoint: BrokerEndpoint) -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"


def decode_broker(path: str, data: bytes, node_id: int, epoch: int) -> BrokerNode:
    """A broker by its registration; `epoch` is the commit that made it."""
    value = decode(path, data)
    try:
        protocols = value.get("listener_security_protocol_map") or {}
        endpoints = {}
        for text in value["endpoints"]:
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            protocol = protocols.get(name, name)
            if protocol not in SECURITY_PROTOCOLS:
                raise MetadataError(path, f"names the security protocol {protocol}, which does not exist")
            if not 0 <= int(port) <= PORT_MAX:
                raise MetadataError(path, f"has the port {port}")
            endpoints[name] = BrokerEndpoint(host.strip("[]"), int(port), protocol)
        rack = value.get("rack")
        if rack is not None and not isinstance(rack, str):
            raise MetadataError(path, f"has the rack {rack!r}, which is not text")
        return BrokerNode(_int32(node_id), endpoints, rack, epoch)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise MetadataError(path, f"is not a broker: {error!r}") from error


def decode_features(path: str, data: bytes) -> dict[str, int]:
    """The highest version of each feature that a broker has registered."""
    value = decode(path, data)
    try:
        return {name: int(versions["max_version"]) for name, versions in (value.get("features") or {}).items()}
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise MetadataError(path, f"has features that cannot be read: {error!r}") from error


def encode_controller(node_id: int, now_ms: int) -> bytes:
    return encode({"version": 2, "brokerid": node_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller_epoch(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise MetadataError(path, f"is not an epoch: {data[:20]!r}") from error


def encode_features() -> bytes:
    return encode({"features": {}, "version": 2, "status": 1})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """A list of partitions, as notifications and requests of old carry it."""
    try:
        return [TopicPartition(str(each["topic"]), int(each["partition"])) for each in decode(path, data)["partitions"]]
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is not a list of partitions: {error!r}") from error


def decode_reassignments(path: str, data: bytes) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    """Partitions, each with the replicas that it is to have."""
    partitions = decode_partitions(path, data)
    try:
        replicas = [_node_ids(each["replicas"]) for each in decode(path, data)["partitions"]]
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is not a reassignment: {error!r}") from error
    return list(zip(partitions, replicas, strict=True))


def encode_log_dir_event(node_id: int) -> bytes:
    return encode({"version": 1, "broker": node_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker whose log directory failed."""
    try:
        return int(decode(path, data)["broker"])
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is not an event of a log directory: {error!r}") from error


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
        raise MetadataError(path, f"is not a deletion: {error!r}") from error


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


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The brokers that hold a partition, in the order of their preference as leader."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """What the node of a topic says; one from before there were topic ids has none."""

    topic_id: UUID | None
    partitions: tuple[PartitionAssignment, ...]


def decode_assignment(path: str, data: bytes) -> TopicAssignment:
    value = decode(path, data)
    try:
        replicas = {int(index): _node_ids(nodes) for index, nodes in value["partitions"].items()}
        if sorted(replicas) != list(range(len(replicas))):
            raise MetadataError(path, "has gaps in its partitions")
        if not all(replicas.values()):
            raise MetadataError(path, "has a partition without replicas")
        adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
        return TopicAssignment(
            parse_topic_id(value["topic_id"]) if value.get("topic_id") else None,
            tuple(
                PartitionAssignment(
                    replicas[index], _node_ids(adding.get(str(index), ())), _node_ids(removing.get(str(index), ()))
                )
                for index in range(len(replicas))
            ),
        )
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise MetadataError(path, f"is not a topic: {error!r}") from error


def decode_state(path: str, data: bytes, replicas: tuple[int, ...], version: int) -> PartitionState:
    value = decode(path, data)
    try:
        return PartitionState(
            replicas=replicas,
            leader=_int32(value["leader"], NO_LEADER),
            leader_epoch=_int32(value["leader_epoch"]),
            isr=_node_ids(value["isr"]),
            version=version,
            is_recovering=value.get("leader_recovery_state", 0) == 1,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is not a partition state: {error!r}") from error


def decode_producer_ids_end(path: str, data: bytes) -> int:
    """The first producer id that nobody has; a node that was never written holds nothing."""
    if not data:
        return 0
    try:
        return int(decode(path, data)["block_end"]) + 1
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(path, f"is not a block of producer ids: {error!r}") from error


def encode_config_change(entity_path: str) -> bytes:
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Whose settings changed: kind and name as they stand in the paths of entities."""
    value = decode(path, data)
    entity_path = value.get("entity_path")
    if entity_path is None and "entity_type" in value:  # version 1
        entity_path = f"{value['entity_type']}/{value.get('entity_name')}"
    if not isinstance(entity_path, str):
        raise MetadataError(path, "names no entity whose settings changed")
    return entity_path


def encode_config(properties: dict[str, str]) -> bytes:
    return encode({"version": 1, "config": properties})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    value = decode(path, data)
    config = value.get("config")
    if not isinstance(config, dict):
        raise MetadataError(path, "holds no config")
    return {str(key): str(text) for key, text in config.items()}
