"""Who a log directory belongs to: `meta.properties`, as Kafka writes it.

A directory of another cluster or of another broker is refused: serving it would mix two logs under one name.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import ConfigError

META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int


def read_identity(disk: Disk, directory: str) -> dict[str, str]:
    """The fields of a directory's `meta.properties`; empty where it has none yet."""
    path = os.path.join(directory, META_PROPERTIES)
    if not disk.exists(path):
        return {}
    fields = {}
    for line in read_file(disk, path).decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            fields[name.strip()] = value.strip()
    return fields


def check_identity(disk: Disk, directories: Sequence[str], identity: Identity) -> None:
    """ConfigError if a directory belongs to somebody else; directories without an owner become ours."""
    for directory in directories:
        fields = read_identity(disk, directory)
        cluster_id = fields.get("cluster.id")
        node_id = fields.get("broker.id", fields.get("node.id"))
        if cluster_id is not None and cluster_id != identity.cluster_id:
            raise ConfigError(
                f"{directory} belongs to cluster {cluster_id}, this is {identity.cluster_id}; "
                "use another directory (log.dirs), or remove it if its data is not needed"
            )
        if node_id is not None and node_id != str(identity.node_id):
            raise ConfigError(
                f"{directory} belongs to broker {node_id}, this is broker {identity.node_id}; "
                f"set broker.id={node_id}, or use another directory (log.dirs)"
            )
        if not fields:
            text = f"version=0\nbroker.id={identity.node_id}\ncluster.id={identity.cluster_id}\n"
            write_atomically(disk, os.path.join(directory, META_PROPERTIES), [text.encode("utf-8")])


def new_cluster_id(dice: random.Random) -> str:
    """22 characters of base64, as Kafka makes them; never with a leading '-', which tools take for an option."""
    while True:
        text = base64.urlsafe_b64encode(dice.randbytes(16)).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text
