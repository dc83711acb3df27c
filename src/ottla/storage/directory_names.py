"""What the directories below a log directory are called: those of partitions, of deleted ones and of moving ones."""

from __future__ import annotations

import random
import re

from ottla.ids import TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"  # a copy of a log that is in another directory: it takes its place when it is whole

_FILE_NAME_LENGTH_MAX = 255
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_FUTURE_DIRECTORY = re.compile(r"(.+)\.[0-9a-f]{32}-future")


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name."""
    matched = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(matched[1], int(matched[2])) if matched else None


def is_deleted(name: str) -> bool:
    """Whether a log was here that was deleted, and whose files are still to be removed."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def set_aside_name(partition: TopicPartition, rng: random.Random, kind: str) -> str:
    """A name for a directory that no longer belongs to a partition, unlike any other and no longer than allowed."""
    suffix = f".{rng.getrandbits(128):032x}{kind}"
    return str(partition)[: _FILE_NAME_LENGTH_MAX - len(suffix)] + suffix


def future_partition_of(name: str) -> TopicPartition | None:
    """The partition whose log is being moved into a directory of this name."""
    matched = _FUTURE_DIRECTORY.fullmatch(name)
    return partition_of(matched[1]) if matched else None


def future_name(partition: TopicPartition, rng: random.Random) -> str:
    """A name for the copy of a partition's log, unlike any other."""
    return f"{partition}.{rng.getrandbits(128):032x}{FUTURE_SUFFIX}"


def has_future_name(partition: TopicPartition) -> bool:
    """Whether the copy of a partition's log can have a name: not where the topic's own is too long for one."""
    return len(future_name(partition, random.Random(0))) <= _FILE_NAME_LENGTH_MAX
