"""`ottla restore`: brings a backup back, or checks it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ottla.cli.backup import Bytes, show
from ottla.cli.backups import backup
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.progress import Progress

DESCRIPTION: Final = """\
Copy a backup to new directories, and verify that readers see in each partition what was backed up. The backup
itself is not changed. `--check` verifies a backup where it is, and restores nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", type=Path, metavar="BACKUP", help="what `ottla backup --to` has made")
    parser.add_argument(
        "--to", nargs="+", type=Path, metavar="DIR", help="new or empty directories, as many as were backed up"
    )
    parser.add_argument("--check", action="store_true", help="verify the backup, and restore nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> ExitCode:
    if options.check == (options.to is not None):
        raise CommandError(ExitCode.USAGE, "name directories with --to, or check the backup with --check")
    if not options.backup.is_dir():
        raise CommandError(ExitCode.NOT_FOUND, f"{options.backup} is not a directory")
    if options.check:
        show(backup.check(options.backup), options.json)
        return ExitCode.OK
    with Progress() as progress:
        restored = backup.restore(options.backup, options.to, Bytes(progress).add)
    show(restored, options.json)
    if not options.json:
        print(f"done: `ottla serve --set log.dirs={','.join(map(str, options.to))}` serves it")
    return ExitCode.OK


COMMAND: Final = Command("restore", "bring back a backup, or check it", DESCRIPTION, add_arguments, run)
