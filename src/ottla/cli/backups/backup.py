"""A whole backup: the directories of one broker, each under its number, and the manifest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import ottla
from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.identity import Identity, read_identity
from ottla.cli.arguments import require_different
from ottla.cli.backups import manifest
from ottla.cli.backups.contents import Contents, Files, contents_of, files_of
from ottla.cli.backups.copying import copy_checkpoints, copy_metadata, copy_partition, partitions_in
from ottla.cli.backups.manifest import Manifest
from ottla.cli.command import CommandError, ExitCode
from ottla.disk import RealDisk
from ottla.errors import ConfigError, CorruptFileError, LockHeldError
from ottla.ids import TopicPartition
from ottla.storage import checkpoints
from ottla.storage.logs import LOCK_FILE


def make(directories: Sequence[Path], target: Path, progress: Callable[[int], None]) -> Manifest:
    """A new backup below `target`, which is missing or empty. A broker that is stopped stays so until it is made."""
    require_different(directories)
    identity = _identity_of(directories)
    _require_empty(target)
    _require_outside(target, directories)
    with _held(directories) as is_held:
        found: list[dict[str, Contents]] = []
        for number, directory in enumerate(directories):
            copy = target / str(number)
            copy.mkdir(parents=True)
            copy_checkpoints(directory, copy)
        for number, directory in enumerate(directories):
            copy = target / str(number)
            starts = _start_offsets(copy)
            contents = {}
            for partition, path in partitions_in(directory):
                if copy_partition(path, copy / path.name, with_links=True, progress=progress):
                    contents[path.name] = contents_of(copy / path.name, starts.get(partition, 0))
            found.append(contents)
        for number, directory in enumerate(directories):
            copy_metadata(directory, target / str(number))
    made = Manifest(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        made_by=ottla.__version__,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        was_running=not is_held,
        directories=tuple(found),
        files=tuple(files_of(target / str(number)) for number in range(len(directories))),
    )
    manifest.write(target, made)
    return made


def check(backup: Path) -> Manifest:
    """What the backup holds. CorruptFileError: it is not what was backed up."""
    expected = manifest.read(backup)
    for number, (contents, files) in enumerate(zip(expected.directories, expected.files, strict=True)):
        _compare(backup / str(number), contents)
        _compare_files(backup / str(number), files)
    return expected


def restore(backup: Path, directories: Sequence[Path], progress: Callable[[int], None]) -> Manifest:
    """Copies a backup to directories that are missing or empty; verified before a broker would serve them."""
    expected = manifest.read(backup)
    if len(directories) != len(expected.directories):
        raise ConfigError(
            f"the backup is of {len(expected.directories)} log directories, and {len(directories)} are named: "
            "name as many, in the order of log.dirs"
        )
    require_different(directories)
    for directory in directories:
        _require_empty(directory)
    for number, files in enumerate(expected.files):
        _compare_files(backup / str(number), files)
    for number, (directory, contents) in enumerate(zip(directories, expected.directories, strict=True)):
        source = backup / str(number)
        directory.mkdir(parents=True, exist_ok=True)
        copy_checkpoints(source, directory)
        for name in contents:
            if not copy_partition(source / name, directory / name, with_links=False, progress=progress):
                raise CorruptFileError(str(source / name), "is missing in the backup")
        _compare(directory, contents)
    for number, directory in enumerate(directories):
        copy_metadata(backup / str(number), directory)
    return expected


def _compare(directory: Path, expected: dict[str, Contents]) -> None:
    for name, contents in expected.items():
        if not (directory / name).is_dir():
            raise CorruptFileError(str(directory / name), "is missing in the backup")
        found = contents_of(directory / name, contents.start_offset)
        if found != contents:
            raise CorruptFileError(str(directory / name), f"holds {found}, and the backup was made of {contents}")


def _compare_files(directory: Path, expected: Files) -> None:
    found = files_of(directory)
    for name, checksum in expected.items():
        if name not in found:
            raise CorruptFileError(str(directory / name), "is missing in the backup")
        if found[name] != checksum:
            raise CorruptFileError(str(directory / name), "is not what was backed up: its checksum is another")


def _identity_of(directories: Sequence[Path]) -> Identity:
    identities = []
    for directory in directories:
        if not directory.is_dir():
            raise CommandError(ExitCode.NOT_FOUND, f"{directory} is not a directory")
        identity = read_identity(RealDisk(), str(directory))
        if identity is None:
            raise ConfigError(f"{directory} is not a log directory of a broker: it has no meta.properties")
        identities.append(identity)
    if len(set(identities)) > 1:
        raise ConfigError("the directories belong to several brokers: back up each broker by itself")
    if not (directories[0] / METADATA_DIRECTORY).is_dir():
        raise ConfigError(
            f"{directories[0]} holds no metadata: if another of log.dirs does, name it first; a broker of a cluster "
            "has its metadata in ZooKeeper, and its replicas on other brokers are its backup"
        )
    return identities[0]


def _require_outside(target: Path, directories: Sequence[Path]) -> None:
    for directory in directories:
        if target.resolve().is_relative_to(directory.resolve()):
            raise ConfigError(f"{target} is inside of {directory}, of which it would be a backup: name another place")


def _require_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} is there and not empty: name another place")


@contextlib.contextmanager
def _held(directories: Sequence[Path]) -> Iterator[bool]:
    """Whether the directories could be locked; if not, a broker runs on them."""
    with contextlib.ExitStack() as stack:
        try:
            for directory in directories:
                stack.callback(RealDisk().lock(str(directory / LOCK_FILE)).close)
            is_held = True
        except LockHeldError:
            is_held = False
        yield is_held


def _start_offsets(directory: Path) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(RealDisk(), str(directory / checkpoints.LOG_START_OFFSETS))
    except CorruptFileError:  # a broker starts without it, too: a log then starts where its files do
        return {}
