"""Reads any file of a log directory into findings."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cli.inspection.files import FileKind, LogFile
from ottla.cli.inspection.findings import CheckpointOffset, Damage, Finding, ReadOptions
from ottla.cli.inspection.indexes import read_offset_index, read_time_index
from ottla.cli.inspection.segments import read_segment
from ottla.disk import RealDisk, read_file
from ottla.errors import CorruptFileError
from ottla.storage import checkpoints
from ottla.storage.epochs import EpochStart
from ottla.storage.index import TransactionIndex
from ottla.storage.producer_state import read_snapshot


def read(file: LogFile, options: ReadOptions) -> Iterator[Finding]:
    """Everything in the file, in its order. StorageError only where the disk refuses."""
    try:
        yield from _findings(file, options)
    except CorruptFileError as error:
        yield Damage(str(error).removeprefix(f"{error.path}: "))


def _findings(file: LogFile, options: ReadOptions) -> Iterator[Finding]:
    disk = RealDisk()
    path = str(file.path)
    match file.kind:
        case FileKind.SEGMENT:
            return read_segment(file, options)
        case FileKind.OFFSET_INDEX:
            return read_offset_index(file, verify=options.verify)
        case FileKind.TIME_INDEX:
            return read_time_index(file, verify=options.verify)
        case FileKind.TRANSACTION_INDEX:
            return iter(TransactionIndex(disk, path).entries())
        case FileKind.PRODUCER_SNAPSHOT:
            return read_snapshot(read_file(disk, path), path)
        case FileKind.LEADER_EPOCHS:
            return (EpochStart(*entry) for entry in checkpoints.read_epochs(disk, path))
        case FileKind.OFFSETS:
            return (CheckpointOffset(*entry) for entry in checkpoints.read_offsets(disk, path).items())
        case FileKind.PARTITION_METADATA:
            topic_id = checkpoints.read_topic_id(disk, str(file.path.parent))
            return iter((topic_id,) if topic_id else ())
