"""Copies log directories of a broker that is stopped, or that goes on writing.

A closed segment never changes, so it is linked where the file system allows that: it takes no time and no space, and
stays when the broker removes its own name for it. Everything else is copied. The files of a partition may be replaced
meanwhile by compaction, retention or a new segment, so they are looked at before and after, and copied again until
nothing but the open segment has changed. The end of that one may be torn in the copy: a starting broker cuts it off.

Order matters while a broker runs. First its checkpoints, which must not promise more than the copied logs hold; then
offsets of groups and states of transactions, so that no committed offset is behind the end of its log; then all other
logs; the metadata last, so that every topic that it names has been there to copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.identity import META_PROPERTIES
from ottla.disk import TEMPORARY_SUFFIX
from ottla.errors import StorageError
from ottla.ids import TopicPartition
from ottla.storage import checkpoints
from ottla.storage.directory_names import partition_of
from ottla.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX

TRIES_MAX: Final = 20
_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
    checkpoints.CHECKSUMS,
)
_PASSING: Final = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)
_STATE_FIRST: Final = ("__consumer_offsets", "__transaction_state")


def partitions_in(directory: Path) -> Iterator[tuple[TopicPartition, Path]]:
    """The partitions of a log directory; those with the state of groups and transactions first."""
    found = [
        (partition, path)
        for path in directory.iterdir()
        if (partition := partition_of(path.name)) is not None and path.is_dir()
    ]
    return iter(sorted(found, key=lambda one: (one[0].topic not in _STATE_FIRST, one[0])))


def copy_checkpoints(source: Path, target: Path) -> None:
    for name in _CHECKPOINTS:
        _copy_if_there(source / name, target / name)


def copy_metadata(source: Path, target: Path) -> None:
    """The metadata, if it is in this directory, and whose the directory is, which makes it whole."""
    if (source / METADATA_DIRECTORY).is_dir():
        (target / METADATA_DIRECTORY).mkdir()
        for path in sorted((source / METADATA_DIRECTORY).iterdir()):
            if not path.name.endswith(TEMPORARY_SUFFIX):
                _copy_if_there(path, target / METADATA_DIRECTORY / path.name)
        _sync_directory(target / METADATA_DIRECTORY)
    _copy_if_there(source / META_PROPERTIES, target / META_PROPERTIES)
    _sync_directory(target)


def copy_partition(source: Path, target: Path, *, with_links: bool, progress: Callable[[int], None]) -> bool:
    """Whether the partition is there; a broker that runs may delete it. `progress` gets the bytes of each file."""
    for _ in range(TRIES_MAX):
        target.mkdir()
        try:
            before = _files(source)
            _copy_files(source, target, before, with_links=with_links, progress=progress)
            if _closed(before) == _closed({name: stat for name, stat in _files(source).items() if name in before}):
                _sync_directory(target)
                return True
        except FileNotFoundError:
            if not source.exists():
                shutil.rmtree(target)
                return False
        shutil.rmtree(target)
    raise StorageError(str(source), f"its files have changed during each of {TRIES_MAX} copies; try again later")


def _files(directory: Path) -> dict[str, os.stat_result]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat() for entry in entries if entry.is_file() and not entry.name.endswith(_PASSING)}


def _closed(files: dict[str, os.stat_result]) -> dict[str, tuple[int, int]]:
    """The segments that are no longer written to, which make a copy another one when they change."""
    segments = sorted(name for name in files if name.endswith(LOG_SUFFIX))
    return {name: (files[name].st_ino, files[name].st_size) for name in segments[:-1]} | dict.fromkeys(
        segments[-1:], (0, 0)
    )


def _copy_files(
    source: Path, target: Path, files: dict[str, os.stat_result], *, with_links: bool, progress: Callable[[int], None]
) -> None:
    newest = max((name for name in files if name.endswith(LOG_SUFFIX)), default="")
    for name in sorted(files):
        is_closed = name.endswith(LOG_SUFFIX) and name != newest
        if not (with_links and is_closed and _link(source / name, target / name)):
            _copy(source / name, target / name)
        progress(files[name].st_size)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        return False
    return True


def _copy_if_there(source: Path, target: Path) -> None:
    if source.exists():
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader:
        try:
            with target.open("xb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
        except OSError as error:
            raise StorageError(str(target), f"cannot be written: {error.strerror or error}") from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
