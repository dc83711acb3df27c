"""`ottla dump-log`: shows the contents of a partition's files, and checks them on request."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.inspection.files import FileKind, LogFile, files_of, identify
from ottla.cli.inspection.findings import (
    CheckpointOffset,
    Damage,
    Finding,
    FoundBatch,
    Note,
    ReadOptions,
)
from ottla.cli.inspection.reader import read
from ottla.cli.render import Json, bytes_json, bytes_text, count_text, json_line, time_text
from ottla.errors import RecordsError
from ottla.ids import topic_id_text
from ottla.records.batch import BatchHeader, Record
from ottla.storage.epochs import EpochStart
from ottla.storage.index import AbortedTransaction, OffsetPosition, TimestampOffset
from ottla.storage.producer_state import ProducerEntry

SHOWN_BYTES_MAX: Final = 200

DESCRIPTION: Final = """\
Show the contents of a partition's files: batches and records of a segment (.log), the entries of its
indexes (.index, .timeindex, .txnindex), producer snapshots (.snapshot), checkpoints
(leader-epoch-checkpoint, *-offset-checkpoint) and partition.metadata. The name of a file says what it
is. For a directory, all files of these kinds are shown. Files are only read, so a broker may be using them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a file, or a partition's directory")
    parser.add_argument("--deep", action="store_true", help="show every record: key, value and headers")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check checksums and records of every batch, and every index entry against its segment;"
        " exit code 4 if anything is wrong",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document per line: file, kind and fields")
    parser.add_argument("--from-offset", type=int, default=0, metavar="N", help="skip batches that end before offset N")
    parser.add_argument(
        "--max-bytes", type=int, metavar="N", help="read no more than the first N bytes of each segment"
    )


def run(options: argparse.Namespace) -> ExitCode:
    wanted = ReadOptions(
        deep=options.deep,
        verify=options.verify,
        from_offset=options.from_offset,
        bytes_max=options.max_bytes,
    )
    files = [file for path in options.paths for file in _files(path)]
    show = _show_json if options.json else _show_text
    damages = sum(show(file, wanted, print) for file in files)
    if not damages:
        return ExitCode.OK
    print(
        f"ottla: {count_text(damages, 'damaged place', 'damaged places')} in the files above;"
        " stop the broker and start it again to let it recover, or restore them from a replica",
        file=sys.stderr,
    )
    return ExitCode.DAMAGED


COMMAND: Final = Command(
    name="dump-log",
    help="show and check the files of a partition",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)


def _files(path: Path) -> list[LogFile]:
    if path.is_dir():
        if files := files_of(path):
            return files
        raise CommandError(
            ExitCode.NOT_FOUND,
            f"{path}: no log files in this directory",
            "give the directory of a partition, such as DATA/my-topic-0",
        )
    if not path.exists():
        raise CommandError(ExitCode.NOT_FOUND, f"{path}: no such file or directory", "check the name")
    if (file := identify(path)) is None:
        raise CommandError(
            ExitCode.USAGE,
            f"{path}: unknown kind of file",
            "files must have the names that they have in a log directory, such as 00000000000000000000.log",
        )
    return [file]


# -- JSON ----------------------------------------------------------------------------------------------------


def _show_json(file: LogFile, options: ReadOptions, write: Callable[[str], None]) -> int:
    """Writes every finding as a line and returns how many of them are damage."""
    path = str(file.path)
    size_bytes = file.path.stat().st_size
    write(json_line({"file": path, "kind": "file", "holds": file.kind, "size_bytes": size_bytes}))
    damages = 0
    for finding in read(file, options):
        kind, fields = describe(finding)
        write(json_line({"file": path, "kind": kind, **fields}))
        damages += isinstance(finding, Damage)
    return damages


def describe(finding: Finding) -> tuple[str, dict[str, Json]]:
    """The kind of a finding and its fields, as they stand in JSON. docs/guide/dump-log.md lists them."""
    match finding:
        case FoundBatch(position, header, says):
            return "batch", {"position": position, **_header_fields(header), "control": says}
        case Record(offset, timestamp, key, value, headers):
            return "record", {
                "offset": offset,
                "timestamp": timestamp,
                "key": bytes_json(key),
                "value": bytes_json(value),
                "headers": [[name, bytes_json(content)] for name, content in headers],
            }
        case OffsetPosition(offset, position):
            return "offset_index_entry", {"offset": offset, "position": position}
        case TimestampOffset(timestamp, offset):
            return "time_index_entry", {"timestamp": timestamp, "offset": offset}
        case AbortedTransaction():
            return "aborted_transaction", dict(finding._asdict())
        case ProducerEntry():
            return "producer", _producer_fields(finding)
        case EpochStart(epoch, start_offset):
            return "leader_epoch", {"epoch": epoch, "start_offset": start_offset}
        case CheckpointOffset(partition, offset):
            fields: dict[str, Json] = {"topic": partition.topic, "partition": partition.partition}
            return "checkpoint_offset", {**fields, "offset": offset}
        case UUID():
            return "partition_metadata", {"topic_id": topic_id_text(finding)}
        case Note(text, position):
            return "note", {"text": text, "position": position}
        case Damage(text, position, offset):
            return "damage", {"text": text, "position": position, "offset": offset}


def _header_fields(header: BatchHeader) -> dict[str, Json]:
    return {
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "compression": _codec_name(header),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "is_log_append_time": header.is_log_append_time,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except RecordsError:
        return "unknown"


def _producer_fields(producer: ProducerEntry) -> dict[str, Json]:
    last = producer.batches[-1] if producer.batches else None
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_timestamp": producer.last_timestamp,
        "transaction_first_offset": producer.transaction_first_offset,
        "first_sequence": last.first_sequence if last else None,
        "last_sequence": last.last_sequence if last else None,
        "first_offset": last.first_offset if last else None,
        "last_offset": last.last_offset if last else None,
    }


# -- text ----------------------------------------------------------------------------------------------------


def _show_text(file: LogFile, options: ReadOptions, write: Callable[[str], None]) -> int:
    """Writes the file as text, with a line of sums at its end, and returns how many findings are damage."""
    size_bytes = file.path.stat().st_size
    write(f"{file.path}: {file.kind}, {size_bytes:,} bytes")
    kinds: Counter[str] = Counter()
    records = 0
    for finding in read(file, options):
        write(text_of(finding))
        kinds[describe(finding)[0]] += 1
        if isinstance(finding, FoundBatch):
            records += finding.header.record_count
    write(f"  {_sum(file, kinds, records, verified=options.verify)}")
    return kinds["damage"]


def _sum(file: LogFile, kinds: Counter[str], records: int, *, verified: bool) -> str:
    found = sum(kinds.values()) - kinds["note"] - kinds["damage"]
    if file.kind is FileKind.SEGMENT:
        counted = f"{count_text(kinds['batch'], 'batch', 'batches')}, {count_text(records, 'record', 'records')}"
    else:
        counted = count_text(found, "entry", "entries")
    if kinds["damage"]:
        return f"{counted}; DAMAGED in {count_text(kinds['damage'], 'place', 'places')}"
    return f"{counted}; verified" if verified else counted


def text_of(finding: Finding) -> str:
    """One line about a finding, indented below its file, or below its batch."""
    match finding:
        case FoundBatch():
            return f"  {'  '.join(_batch_words(finding))}"
        case Record(offset, timestamp, key, value, headers):
            line = f"    offset {offset}  {time_text(timestamp)}"
            line += f"  key {bytes_text(key, SHOWN_BYTES_MAX)}  value {bytes_text(value, SHOWN_BYTES_MAX)}"
            for name, content in headers:
                shown = bytes_text(name.encode("utf-8", "surrogateescape"), SHOWN_BYTES_MAX)
                line += f"  header {shown}={bytes_text(content, SHOWN_BYTES_MAX)}"
            return line
        case OffsetPosition(offset, position):
            return f"  offset {offset}  position {position}"
        case TimestampOffset(timestamp, offset):
            return f"  {time_text(timestamp)}  offset {offset}"
        case AbortedTransaction(producer_id, first, last, stable):
            return f"  aborted  producer {producer_id}  offsets {first}..{last}  last stable offset {stable}"
        case ProducerEntry():
            return f"  {'  '.join(_producer_words(finding))}"
        case EpochStart(epoch, start_offset):
            return f"  leader epoch {epoch}  from offset {start_offset}"
        case CheckpointOffset(partition, offset):
            return f"  {partition}  offset {offset}"
        case UUID():
            return f"  topic id {topic_id_text(finding)}"
        case Note(text, position):
            return f"  note: {_place(position)}{text}"
        case Damage(text, position, offset):
            at = _place(position) + ("" if offset is None else f"offset {offset}: ")
            return f"  DAMAGED: {at}{text}"


def _place(position: int | None) -> str:
    return "" if position is None else f"byte {position}: "


def _batch_words(found: FoundBatch) -> Iterator[str]:
    header = found.header
    yield f"position {found.position}"
    yield f"size {header.size_bytes}"
    yield f"offsets {header.base_offset}..{header.last_offset}"
    yield f"records {header.record_count}"
    yield _codec_name(header)
    yield f"{time_text(header.max_timestamp)}{' (append time)' if header.is_log_append_time else ''}"
    yield f"leader epoch {header.leader_epoch}"
    if header.has_producer:
        sequence = f" sequence {header.base_sequence}..{header.last_sequence}" if header.base_sequence >= 0 else ""
        yield f"producer {header.producer_id} epoch {header.producer_epoch}{sequence}"
    if header.is_transactional and not header.is_control:
        yield "transactional"
    if header.is_control:
        yield f"control: {found.control or 'empty'}"
    if header.delete_horizon_ms is not None:
        yield f"tombstones until {time_text(header.delete_horizon_ms)}"


def _producer_words(producer: ProducerEntry) -> Iterator[str]:
    yield f"producer {producer.producer_id} epoch {producer.epoch}"
    if producer.batches:
        last = producer.batches[-1]
        yield f"last batch: sequence {last.first_sequence}..{last.last_sequence}"
        yield f"offsets {last.first_offset}..{last.last_offset}"
    yield time_text(producer.last_timestamp)
    if producer.coordinator_epoch >= 0:
        yield f"coordinator epoch {producer.coordinator_epoch}"
    if producer.transaction_first_offset is not None:
        yield f"open transaction from offset {producer.transaction_first_offset}"
