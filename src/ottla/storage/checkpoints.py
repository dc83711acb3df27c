"""The small text files of a log directory, in Kafka's format: a version, a count, a line per entry.

Each is written beside and renamed, so it is whole or old. A damaged one is a `CorruptFileError`; what to do about it
is the reader's business.

Kafka's format has no checksum, and a wrong digit is as good as a right one. So a file of ours beside them says how each
of them was written last: one that is not like that, by damage or because it is of another time, is not believed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition, parse_topic_id, topic_id_text
from ottla.records.codec import crc32c

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CHECKSUMS = ".ottla-checksums"

_VERSION = 0


def _lines(disk: Disk, path: str) -> list[list[str]]:
    """The words of each entry line."""
    return _parsed(read_file(disk, path), path)


def _parsed(data: bytes, path: str) -> list[list[str]]:
    try:
        text = data.decode("utf-8")
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


def _text(entries: Iterable[str]) -> bytes:
    lines = [str(_VERSION), "", *entries]
    lines[1] = str(len(lines) - 2)
    return "".join(f"{line}\n" for line in lines).encode()


def read_offsets(disk: Disk, path: str, known: Collection[int] = ()) -> dict[TopicPartition, int]:
    """An offset checkpoint (`topic partition offset`).

    CorruptFileError where it is missing, damaged, or has none of the checksums that are `known`, if any are.
    """
    if not disk.exists(path):
        raise CorruptFileError(path, "is missing")
    data = read_file(disk, path)
    if known and crc32c(data) not in known:
        raise CorruptFileError(path, "is not what was written last")
    offsets = {}
    for words in _parsed(data, path):
        try:
            topic, partition, offset = words
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptFileError(path, f"does not understand the line {' '.join(words)!r}") from error
    return offsets


def offsets_text(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _text(f"{name.topic} {name.partition} {offset}" for name, offset in sorted(offsets.items()))


def read_checksums(disk: Disk, path: str) -> dict[str, tuple[int, ...]]:
    """The checksums that each file beside this one may have; empty where nothing is known of them."""
    if not disk.exists(path):
        return {}
    checksums = {}
    for name, *words in _lines(disk, path):
        try:
            checksums[name] = tuple(int(word) for word in words)
        except ValueError as error:
            raise CorruptFileError(path, f"does not understand the line of {name!r}") from error
    return checksums


def write_checksums(disk: Disk, path: str, checksums: Mapping[str, Iterable[int]]) -> None:
    entries = (f"{name} {' '.join(map(str, known))}" for name, known in sorted(checksums.items()))
    write_atomically(disk, path, [_text(entries)])


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
    write_atomically(disk, path, [_text(f"{epoch} {start_offset}" for epoch, start_offset in epochs)])


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
