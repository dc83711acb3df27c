"""`ottla backup`: copies the directories of a broker to another place."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ottla.cli.backups import backup
from ottla.cli.backups.manifest import Manifest
from ottla.cli.command import Command, ExitCode
from ottla.cli.progress import Progress
from ottla.cli.render import Json, count_text, json_line

DESCRIPTION: Final = """\
Copy the directories of a broker with its own metadata (not of a cluster) to another place, with a checksum of what
readers see in each partition. Closed segments are linked where the file system allows it, so a backup on the
same disk takes seconds and little space; copy it to another machine from there.

A stopped broker is copied exactly. A broker may also run: then each partition is copied as a crash at that
moment would leave it, one partition after the other. A transaction that ends meanwhile may be in the copy of
one partition and not of another; stop the broker, or its transactional producers, where that matters."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="all log.dirs of one broker, in order")
    parser.add_argument("--to", required=True, type=Path, metavar="BACKUP", help="a new or empty directory")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> ExitCode:
    with Progress() as progress:
        made = backup.make(options.directories, options.to, Bytes(progress).add)
    show(made, options.json)
    if not options.json:
        print(f"done: `ottla restore {options.to} --to DIR` brings it back")
    return ExitCode.OK


class Bytes:
    """Counts what was copied, for the progress line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        self._progress.show(lambda: f"{self._count / 1e6:,.0f} MB")


def show(found: Manifest, as_json: bool) -> None:
    """What a backup holds."""
    if as_json:
        print(json_line(_fields(found)))
        return
    how = "running" if found.was_running else "stopped"
    print(f"broker {found.node_id} of cluster {found.cluster_id}, {how}, {found.made_at}")
    records = sum(one.end_offset - one.start_offset for directory in found.directories for one in directory.values())
    print(f"{count_text(found.partition_count, 'partition', 'partitions')}, {count_text(records, 'offset', 'offsets')}")


def _fields(found: Manifest) -> dict[str, Json]:
    return {
        "cluster_id": found.cluster_id,
        "broker": found.node_id,
        "made_by": found.made_by,
        "made_at": found.made_at,
        "was_running": found.was_running,
        "partitions": [
            {
                "directory": number,
                "name": name,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "batches": one.batch_count,
                "crc32c": one.checksum,
            }
            for number, directory in enumerate(found.directories)
            for name, one in directory.items()
        ],
    }


COMMAND: Final = Command("backup", "copy the directories of a broker", DESCRIPTION, add_arguments, run)
