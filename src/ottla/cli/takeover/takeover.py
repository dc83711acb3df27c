"""Makes the directories of an Apache Kafka broker those of ours. Logs stay where they are; only metadata is written.

It may be stopped at any point and run again. Our metadata is written under another name; the directory is ours from
the moment when it gets its own. Then what only Kafka reads is put out of the way, and a later run
finishes that if need be.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.identity import META_PROPERTIES, VERSION, Identity, write_identity
from ottla.broker.producer_ids import BLOCK_SIZE, encode_block
from ottla.cli.takeover.kafka_directory import KafkaDirectory, owner_of
from ottla.cli.takeover.metadata_log import DIRECTORY
from ottla.cluster import nodes
from ottla.cluster.image import PartitionState, TopicState
from ottla.disk import RealDisk
from ottla.store.api import Create, Operation
from ottla.store.embedded import EmbeddedStore
from ottla.store.recipes import ensure_path

KAFKAS_OWN: Final = ".kafka-metadata"  # where what only Kafka reads is kept
UNFINISHED: Final = METADATA_DIRECTORY + ".import"
CONTROLLER_EPOCH: Final = 0


def take_over(directories: Sequence[Path], found: KafkaDirectory) -> None:
    """Everything is durable when it returns."""
    disk = RealDisk()
    first = directories[0]
    unfinished = first / UNFINISHED
    if unfinished.exists():
        shutil.rmtree(unfinished)  # of a run that was interrupted
    unfinished.mkdir()
    asyncio.run(_write_metadata(str(unfinished), found))
    disk.rename(str(unfinished), str(first / METADATA_DIRECTORY))
    disk.sync_directory(str(first))
    finish(directories)


def is_unfinished(directories: Sequence[Path]) -> bool:
    """Whether an import was interrupted when its metadata was there, and Kafka's not out of the way yet."""
    return (directories[0] / METADATA_DIRECTORY).is_dir() and any(
        (directory / DIRECTORY).is_dir() or owner_of(directory).version != VERSION for directory in directories
    )


def finish(directories: Sequence[Path]) -> None:
    """Puts out of the way what only Kafka reads."""
    disk = RealDisk()
    for directory in directories:
        owner = owner_of(directory)
        kept = directory / KAFKAS_OWN
        kept.mkdir(exist_ok=True)
        if not (kept / META_PROPERTIES).exists():
            shutil.copy2(directory / META_PROPERTIES, kept / META_PROPERTIES)
        if (directory / DIRECTORY).is_dir():
            os.rename(directory / DIRECTORY, kept / DIRECTORY)
        write_identity(disk, str(directory), Identity(owner.cluster_id, owner.node_id))
        disk.sync_directory(str(directory))


async def _write_metadata(directory: str, found: KafkaDirectory) -> None:
    store = EmbeddedStore(RealDisk(), directory)
    try:
        await ensure_path(store, *nodes.ROOTS)
        await store.commit(Create(nodes.CLUSTER_ID, nodes.encode({"version": "1", "id": found.cluster_id})))
        for topic in _topics(found):
            await store.commit(*_creations(topic))
        for (kind, name), settings in sorted(found.configs.items()):
            path = nodes.config_path(kind, name)
            await store.commit(Create(path, nodes.encode_config(settings)))
        if found.next_producer_id:
            block = encode_block(found.node_id, found.next_producer_id - BLOCK_SIZE)
            await store.commit(Create(nodes.PRODUCER_IDS, block))
    finally:
        await store.close()


def _topics(found: KafkaDirectory) -> list[TopicState]:
    """All led by this broker alone, whoever held them besides."""
    alone = (found.node_id,)
    return [
        TopicState(
            name,
            topic_id,
            tuple(PartitionState(alone, found.node_id, state.leader_epoch, alone) for state in partitions),
        )
        for name, (topic_id, partitions) in found.topics.items()
    ]


def _creations(topic: TopicState) -> list[Operation]:
    return [
        Create(nodes.topic_path(topic.name), nodes.encode_topic(topic)),
        Create(nodes.partitions_path(topic.name)),
        *(
            operation
            for index, state in enumerate(topic.partitions)
            for operation in (
                Create(nodes.partition_path(topic.name, index)),
                Create(nodes.state_path(topic.name, index), nodes.encode_state(state, CONTROLLER_EPOCH)),
            )
        ),
    ]
