"""The small text files of a log directory, in Kafka's format: a version, a count, a line per entry.

Each is written beside and renamed, so it is whole or old. A damaged one is a `CorruptFileError`; what to do about it
is the reader's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition, parse_topic_id, topic_id_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_VERSION = 0


def _lines(disk: Disk, path: str) -> list[list[str]]:
    """The words of each entry line."""
    try:
        text = read_file(disk, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(path, "is not text") from error
    lines = text.split("\n")
    if len(lines) < 3 or lines[-1]:
        raise CorruptFileError(path, "is cut: it does not end with a whole line")
    if lines[0] != str(_VERSION):
        raise CorruptFileError(path, f"is of unknown version {lines[0]!r}")
    entries = [line.split(" ") for line in lines[2:-1]]
    if lines[1] != str(len(entries)):
        raise CorruptFileError(path, f"announces {lines[1]!r} entries and has {len(entries)}")
    return entries


def _write_lines(disk: Disk, path: str, entries: list[str]) -> None:
    text = f"{_VERSION}\n{len(entries)}\n" + "".join(f"{entry}\n" for entry in entries)
    write_atomically(disk, path, [text.encode("utf-8")])


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint (`topic partition offset`); empty where the file does not exist."""
    if not disk.exists(path):
        return {}
    offsets = {}
    for words in _lines(disk, path):
        try:
            topic, partition, offset = words
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptFileError(path, f"does not understand the line {' '.join(words)!r}") from error
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    _write_lines(disk, path, [f"{name.topic} {name.partition} {offset}" for name, offset in sorted(offsets.items())])


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """A leader epoch checkpoint (`epoch start_offset`); empty where the file does not exist."""
    if not disk.exists(path):
        return []
    epochs: list[tuple[int, int]] = []
    for words in _lines(disk, path):
        try:
            epoch, start_offset = (int(word) for word in words)
        except ValueError as error:
            raise CorruptFileError(path, f"does not understand the line {' '.join(words)!r}") from error
        if epochs and (epoch <= epochs[-1][0] or start_offset < epochs[-1][1]):
            raise CorruptFileError(path, f"epoch {epoch} from {start_offset} does not rise above the one before")
        epochs.append((epoch, start_offset))
    return epochs


def write_epochs(disk: Disk, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    _write_lines(disk, path, [f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic id of a partition directory; None where it has none yet."""
    path = os.path.join(directory, PARTITION_METADATA)
    if not disk.exists(path):
        return None
    try:
        text = read_file(disk, path).decode("ascii")
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        if fields["version"] != "0":
            raise CorruptFileError(path, f"is of unknown version {fields['version']!r}")
        return parse_topic_id(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptFileError(path, f"names no topic id: {error}") from error


def write_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    text = f"version: 0\ntopic_id: {topic_id_text(topic_id)}"
    write_atomically(disk, os.path.join(directory, PARTITION_METADATA), [text.encode("ascii")])
