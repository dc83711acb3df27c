"""Who a log directory belongs to: `meta.properties`, as Kafka writes it, and the metadata that goes with it.

A directory of another cluster or of another broker is refused: serving it would mix two logs under one name. So is one
that is not known to be ours, because it holds what somebody wrote and no metadata of ours says what that is: a broker
that starts there would find no topics, and a topic of the same name would put those logs out of the way.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from ottla.cluster import nodes
from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import ConfigError
from ottla.storage.directory_names import partition_of
from ottla.store.api import Store
from ottla.store.recipes import create_if_missing

META_PROPERTIES = "meta.properties"
VERSION = "0"  # of what we write: Kafka's with ZooKeeper
KRAFT_VERSION = "1"
NAMES_TOLD_MAX = 3

ELSEWHERE = "name another directory (--data or log.dirs), or remove this one if its data is not needed"
TAKEOVER = f"`ottla import` takes over what a stopped broker of Apache Kafka left there; or {ELSEWHERE}"


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int


def read_identity(disk: Disk, directory: str) -> Identity | None:
    """Whose the directory is by its `meta.properties`; None where it has none yet. ConfigError: not one of ours."""
    path = os.path.join(directory, META_PROPERTIES)
    if not disk.exists(path):
        return None
    fields = properties_of(read_file(disk, path).decode("utf-8", "replace"))
    if not fields:
        return None
    version, cluster_id = fields.get("version"), fields.get("cluster.id")
    if version == KRAFT_VERSION:
        whose = f"node {fields.get('node.id', 'without an id')} of cluster {cluster_id}"
        raise ConfigError(f"{directory} belongs to Apache Kafka in KRaft mode ({whose}): {TAKEOVER}")
    if version != VERSION:
        raise ConfigError(
            f"{path} has version={version}, and this version of Ottla supports version={VERSION} only: "
            f"start the program that wrote it, or {ELSEWHERE}"
        )
    node_id = fields.get("broker.id", "")
    if cluster_id is None or not node_id.isdecimal():
        raise ConfigError(
            f"{path} does not name a broker (broker.id) and its cluster (cluster.id): repair it, or {ELSEWHERE}"
        )
    return Identity(cluster_id, int(node_id))


def properties_of(text: str) -> dict[str, str]:
    """The fields of a `meta.properties`."""
    fields = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            fields[name.strip()] = value.strip()
    return fields


def check_ours(disk: Disk, directories: Sequence[str], metadata_name: str) -> None:
    """ConfigError if a directory holds what is not known to be ours. Nothing is written.

    The first directory holds the metadata, under `metadata_name`; until there is some, all are empty.
    """
    holders = [directory for directory in directories if disk.exists(os.path.join(directory, metadata_name))]
    if holders and directories[0] not in holders:
        raise ConfigError(
            f"the metadata of this broker is in {holders[0]}, and log.dirs begins with {directories[0]}: "
            f"name {holders[0]} first"
        )
    for directory in directories:
        identity = read_identity(disk, directory)
        if identity is not None and not holders:
            raise metadata_is_missing(directory, identity, zookeeper=None)
        if identity is None:
            _check_has_no_logs(disk, directory)


def check_belongs_to_cluster(disk: Disk, directories: Sequence[str], cluster_id: str) -> None:
    """ConfigError if a directory is another cluster's, or holds logs of nobody knows whose. Nothing is written."""
    for directory in directories:
        identity = read_identity(disk, directory)
        if identity is None:
            _check_has_no_logs(disk, directory)
        elif identity.cluster_id != cluster_id:
            raise ConfigError(
                f"{directory} belongs to cluster {identity.cluster_id}, and the cluster in ZooKeeper is {cluster_id}: "
                f"check zookeeper.connect, or {ELSEWHERE}"
            )


def metadata_is_missing(directory: str, identity: Identity, zookeeper: str | None) -> ConfigError:
    """The directory of a broker is not empty, and its metadata is: `zookeeper` says where that should be, None beside
    the logs.
    """
    if zookeeper is not None:
        return ConfigError(
            f"{directory} belongs to cluster {identity.cluster_id}, and there is none in ZooKeeper at {zookeeper}: "
            f"check zookeeper.connect, also its path; if ZooKeeper has lost its data, restore that; or {ELSEWHERE}"
        )
    whose = f"broker {identity.node_id} of cluster {identity.cluster_id}"
    return ConfigError(
        f"{directory} belongs to {whose}, whose metadata is not here; "
        "if that is Ottla, put the directory with its metadata first in log.dirs, or restore it; "
        f"if that is Apache Kafka with ZooKeeper, {TAKEOVER}"
    )


def _check_has_no_logs(disk: Disk, directory: str) -> None:
    names = sorted(
        name
        for name in disk.list_directory(directory)
        if partition_of(name) is not None and disk.is_directory(os.path.join(directory, name))
    )
    if names:
        shown = ", ".join(islice(names, NAMES_TOLD_MAX)) + (", …" if len(names) > NAMES_TOLD_MAX else "")
        raise ConfigError(
            f"{directory} holds logs of topics ({shown}) and no {META_PROPERTIES} that says whose they are: if it was "
            f"this broker's, restore that file; if not, {ELSEWHERE}"
        )


def check_identity(disk: Disk, directories: Sequence[str], identity: Identity) -> None:
    """ConfigError if a directory belongs to somebody else; directories without an owner become ours."""
    for directory in directories:
        owner = read_identity(disk, directory)
        if owner is None:
            write_identity(disk, directory, identity)
        elif owner.cluster_id != identity.cluster_id:
            raise ConfigError(
                f"{directory} belongs to cluster {owner.cluster_id}, this is {identity.cluster_id}; "
                "use another directory (log.dirs), or remove it if its data is not needed"
            )
        elif owner.node_id != identity.node_id:
            raise ConfigError(
                f"{directory} belongs to broker {owner.node_id}, this is broker {identity.node_id}; "
                f"set broker.id={owner.node_id}, or use another directory (log.dirs)"
            )


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    text = f"version={VERSION}\nbroker.id={identity.node_id}\ncluster.id={identity.cluster_id}\n"
    write_atomically(disk, os.path.join(directory, META_PROPERTIES), [text.encode("utf-8")])


async def cluster_id_in(store: Store, rng: random.Random) -> str:
    """The id of the cluster whose metadata it is; a new one where it has none yet."""
    await create_if_missing(store, nodes.CLUSTER_ID, nodes.encode({"version": "1", "id": new_cluster_id(rng)}))
    node = await store.get(nodes.CLUSTER_ID)
    assert node is not None, "just made"
    return str(nodes.decode(nodes.CLUSTER_ID, node.data)["id"])


def new_cluster_id(rng: random.Random) -> str:
    """22 characters of base64, as Kafka makes them; never with a leading '-', which tools take for an option."""
    while True:
        text = base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text
