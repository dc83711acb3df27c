"""What the directories below a log directory are called: those of partitions, and those that are none any more."""

from __future__ import annotations

import random
import re

from ottla.ids import TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

_FILE_NAME_LENGTH_MAX = 255
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name."""
    matched = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(matched[1], int(matched[2])) if matched else None


def is_deleted(name: str) -> bool:
    """Whether a log was here that was deleted, and whose files are still to be removed."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def set_aside_name(partition: TopicPartition, rng: random.Random, kind: str) -> str:
    """A name for a directory that is no partition's any more, unlike any other and as long as may be."""
    suffix = f".{rng.getrandbits(128):032x}{kind}"
    return str(partition)[: _FILE_NAME_LENGTH_MAX - len(suffix)] + suffix
