"""What the log directories of one Apache Kafka broker hold, read without changing anything."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.identity import KRAFT_VERSION, META_PROPERTIES, VERSION, properties_of
from ottla.cli.inspection.segments import SegmentWalk, StoredBatch
from ottla.cli.takeover.metadata_log import DIRECTORY, FoundPartition, MetadataLog, read_metadata_log
from ottla.cluster import nodes
from ottla.disk import RealDisk
from ottla.errors import ConfigError
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS, decode_value
from ottla.records import batch
from ottla.storage import checkpoints
from ottla.storage.clean_mark import CLEAN_SHUTDOWN_FILE
from ottla.storage.directory_names import partition_of
from ottla.storage.producer_state import read_snapshot

PRODUCER_ID_BLOCK: Final = 1000
NAMES_SHOWN_MAX: Final = 5
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
COMPACTED: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}


@dataclass(slots=True)
class KafkaDirectory:
    """One broker with everything that it serves. `problems` forbid to take it over, `notes` are for the reader."""

    cluster_id: str
    node_id: int
    uses_zookeeper: bool
    topics: dict[str, tuple[UUID, list[FoundPartition]]] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for _, partitions in self.topics.values())


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The directory of a partition, and the topic that it says it is of."""

    path: Path
    topic_id: UUID | None


def read(directories: Sequence[Path], zookeeper: str | None, *, with_default_settings: bool) -> KafkaDirectory:
    """ConfigError where they are not those of one Kafka broker."""
    owners = [owner_of(directory) for directory in directories]
    if (directories[0] / METADATA_DIRECTORY).exists():
        raise ConfigError(f"{directories[0]} is a directory of Ottla already: `ottla serve --data {directories[0]}`")
    if len(set(owners)) > 1:
        raise ConfigError(
            "these directories belong to different brokers: name all log.dirs of one broker, and no others"
        )
    version, cluster_id, node_id = owners[0]
    found = KafkaDirectory(cluster_id, node_id, uses_zookeeper=version == VERSION)
    unclean = [directory for directory in directories if not (directory / CLEAN_SHUTDOWN_FILE).exists()]
    for directory in unclean:
        if found.uses_zookeeper and zookeeper is None:  # which producer ids are taken is known from its snapshots only
            found.problems.append(
                f"{directory} was not closed in order: start Kafka on it once more, and stop it with SIGTERM"
            )
        else:
            found.notes.append(f"{directory} was not closed in order: the logs are checked at the first start")
    logs = _logs(directories)
    if found.uses_zookeeper:
        _read_logs(found, logs, directories, zookeeper, with_default_settings=with_default_settings)
    else:
        metadata = [directory / DIRECTORY for directory in directories if (directory / DIRECTORY).is_dir()]
        if not metadata:
            raise ConfigError(f"{DIRECTORY} is in none of the directories: name metadata.log.dir of the broker too")
        _take_metadata(found, read_metadata_log(metadata[0]), logs)
    return found


class Owner(NamedTuple):
    """Who a directory says it belongs to; the version is that of its layout."""

    version: str
    cluster_id: str
    node_id: int


def owner_of(directory: Path) -> Owner:
    path = directory / META_PROPERTIES
    if not path.is_file():
        raise ConfigError(
            f"{directory} has no {META_PROPERTIES}: name a log directory (log.dirs) of an Apache Kafka broker"
        )
    fields = properties_of(path.read_text("utf-8", "replace"))
    version, cluster_id = fields.get("version", ""), fields.get("cluster.id", "")
    node_id = fields.get("node.id" if version == KRAFT_VERSION else "broker.id", "")
    if version not in (VERSION, KRAFT_VERSION) or not cluster_id or not node_id.isdecimal():
        raise ConfigError(f"{path} is not what Apache Kafka writes: version, cluster.id or the broker's id is missing")
    return Owner(version, cluster_id, int(node_id))


def _logs(directories: Sequence[Path]) -> dict[TopicPartition, FoundLog]:
    disk = RealDisk()
    found = {}
    for directory in directories:
        for path in sorted(directory.iterdir()):
            partition = partition_of(path.name) if path.is_dir() else None
            if partition is not None and path.name != DIRECTORY:
                found[partition] = FoundLog(path, checkpoints.read_topic_id(disk, str(path)))
    return found


# -- without ZooKeeper -------------------------------------------------------------------------------------------------


def _take_metadata(found: KafkaDirectory, log: MetadataLog, logs: Mapping[TopicPartition, FoundLog]) -> None:
    elsewhere, missing, behind = [], [], []
    known = set()
    for topic_id, name in sorted(log.names.items(), key=lambda item: item[1]):
        partitions = [state for _, state in sorted(log.partitions[topic_id].items())]
        for index, state in enumerate(partitions):
            partition = TopicPartition(name, index)
            known.add(partition)
            here = logs.get(partition)
            if found.node_id not in state.replicas:
                elsewhere.append(str(partition))
            elif here is None or here.topic_id not in (None, topic_id):
                missing.append(str(partition))
            elif not state.has_all_on(found.node_id):
                behind.append(str(partition))
        found.topics[name] = (topic_id, partitions)
    for names, what in (
        (elsewhere, "on other brokers only; move to this one first (kafka-reassign-partitions.sh)"),
        (missing, "not in these directories; name all log.dirs of the broker"),
        (behind, "not in sync on this broker; wait until they are, or take the broker that leads them"),
    ):
        if names:
            found.problems.append(f"{what}: {_some(names)}")
    shared = sum(len(state.replicas) > 1 for _, partitions in found.topics.values() for state in partitions)
    if shared:
        found.notes.append(
            f"{shared} partitions have replicas on other brokers, which stay as they are and fall behind"
        )
    unknown = [str(partition) for partition in logs if partition not in known]
    if unknown:
        found.notes.append(f"logs of no topic, which stay where they are and are not served: {_some(unknown)}")
    for what, count in sorted(log.left_out.items()):
        found.notes.append(f"{what} are not taken over ({count} records)")
    found.configs = {key: settings for key, settings in log.configs.items() if settings}
    found.next_producer_id = log.next_producer_id


# -- with ZooKeeper ----------------------------------------------------------------------------------------------------


def _read_logs(
    found: KafkaDirectory,
    logs: Mapping[TopicPartition, FoundLog],
    directories: Sequence[Path],
    zookeeper: str | None,
    *,
    with_default_settings: bool,
) -> None:
    """Topics by the directories that are here; what only ZooKeeper knows is asked there, or taken by default."""
    by_topic: dict[str, dict[int, FoundLog]] = defaultdict(dict)
    for partition, log in logs.items():
        by_topic[partition.topic][partition.partition] = log
    for name, partitions in sorted(by_topic.items()):
        topic_ids = {log.topic_id for log in partitions.values()}
        if sorted(partitions) != list(range(len(partitions))):
            found.problems.append(
                f"{name}: partitions are missing here, other brokers have them; join the cluster instead"
            )
        topic_id = next(iter(topic_ids))
        if len(topic_ids) > 1 or topic_id is None:
            found.problems.append(f"{name}: its partitions do not name one topic id (partition.metadata)")
            continue
        states = [
            FoundPartition((found.node_id,), (found.node_id,), found.node_id, _last_epoch(partitions[index].path))
            for index in sorted(partitions)
        ]
        found.topics[name] = (topic_id, states)
    if zookeeper is not None:
        asyncio.run(_ask_zookeeper(found, zookeeper))
    elif with_default_settings:
        _guess_settings(found, directories)
        found.next_producer_id = _next_producer_id(logs)
        found.notes.append("settings are the broker's defaults, but for topics that Kafka has compacted before")
    else:
        found.problems.append(
            "settings of topics are in ZooKeeper: name it (--zookeeper HOST:PORT/PATH), or take the broker's defaults "
            "(--default-settings)"
        )


def _last_epoch(directory: Path) -> int:
    path = directory / "leader-epoch-checkpoint"
    epochs = checkpoints.read_epochs(RealDisk(), str(path)) if path.exists() else []
    return max((epoch for epoch, _ in epochs), default=0)


async def _ask_zookeeper(found: KafkaDirectory, connect: str) -> None:
    try:
        from ottla.store.zookeeper import ZooKeeperOptions, ZooKeeperStore  # not at the top: others need no kazoo
    except ImportError as error:
        raise ConfigError("--zookeeper needs kazoo, which is not installed: pip install 'ottla[cluster]'") from error
    store = ZooKeeperStore(ZooKeeperOptions(connect))
    await store.start()
    try:
        node = await store.get(nodes.CLUSTER_ID)
        cluster_id = None if node is None else str(nodes.decode(nodes.CLUSTER_ID, node.data)["id"])
        if cluster_id != found.cluster_id:
            found.problems.append(
                f"ZooKeeper at {connect} is of cluster {cluster_id}, the directory of {found.cluster_id}"
            )
            return
        for kind in ("topics", "brokers"):
            for segment in await store.children(f"{nodes.CONFIGS}/{kind}"):
                name = nodes.config_name(segment)
                path = f"{nodes.CONFIGS}/{kind}/{segment}"
                node = await store.get(path)
                if node is not None and (kind == "brokers" or name in found.topics):
                    settings = nodes.decode_config(path, node.data)
                    if settings:
                        found.configs[(kind, name)] = settings
        node = await store.get(nodes.PRODUCER_IDS)
        if node is not None:
            found.next_producer_id = nodes.decode_producer_ids_end(nodes.PRODUCER_IDS, node.data)
    finally:
        await store.close()


def _guess_settings(found: KafkaDirectory, directories: Sequence[Path]) -> None:
    """A topic that the cleaner has worked on is compacted: by time, its records would be deleted."""
    disk = RealDisk()
    cleaned = {
        partition.topic
        for directory in directories
        if (path := directory / checkpoints.CLEANER_OFFSETS).exists()
        for partition in checkpoints.read_offsets(disk, str(path))
    }
    for name in found.topics:
        if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            found.configs["topics", name] = dict(COMPACTED)
        elif name in cleaned:
            found.configs["topics", name] = {"cleanup.policy": "compact"}


def _next_producer_id(logs: Mapping[TopicPartition, FoundLog]) -> int:
    """Behind all that anybody has: ids in the snapshots of logs, and those of transactional ids."""
    highest = max(_producer_ids(logs), default=-1)
    return (highest // PRODUCER_ID_BLOCK + 2) * PRODUCER_ID_BLOCK if highest >= 0 else 0


def _producer_ids(logs: Mapping[TopicPartition, FoundLog]) -> Iterator[int]:
    for partition, log in logs.items():
        for path in log.path.glob("*.snapshot"):
            yield from (producer.producer_id for producer in read_snapshot(path.read_bytes(), str(path)))
        if partition.topic == TRANSACTIONS_TOPIC:
            for segment in log.path.glob("*.log"):
                yield from _transactional_producer_ids(segment)


def _transactional_producer_ids(segment: Path) -> Iterator[int]:
    (record_type,) = TRANSACTION_RECORDS.values()
    for piece in SegmentWalk(segment, 0):
        if isinstance(piece, StoredBatch) and not piece.header.is_control:
            for record in batch.iterate(piece.data, piece.at):
                if record.value is not None:
                    yield decode_value(record_type, record.value).producer_id


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    return shown if len(names) <= NAMES_SHOWN_MAX else f"{shown} and {len(names) - NAMES_SHOWN_MAX} more"
