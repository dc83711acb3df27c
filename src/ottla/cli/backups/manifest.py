"""What a backup holds: a JSON file beside the copies, written last, so a backup without it was interrupted."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ottla.cli.backups.contents import Contents, Files
from ottla.disk import RealDisk, write_atomically
from ottla.errors import ConfigError, CorruptFileError
from ottla.storage.directory_names import partition_of

FILE: Final = "backup.json"
FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """For each log directory: its partitions and what readers see in them, and all files that are not records."""

    cluster_id: str
    node_id: int
    made_by: str  # the version of Ottla
    made_at: str  # ISO 8601, UTC
    was_running: bool
    directories: tuple[dict[str, Contents], ...]
    files: tuple[Files, ...]

    @property
    def partition_count(self) -> int:
        return sum(map(len, self.directories))


def write(backup: Path, manifest: Manifest) -> None:
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1)
    write_atomically(RealDisk(), os.fspath(backup / FILE), [text.encode()])


def read(backup: Path) -> Manifest:
    path = backup / FILE
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{backup} holds no whole backup: {FILE} is missing, which is written last") from None
    except (ValueError, OSError) as error:
        raise CorruptFileError(str(path), str(error)) from error
    if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
        raise ConfigError(f"{path} is not of format {FORMAT}: restore it with the version of Ottla that made it")
    try:
        fields["directories"] = tuple(
            {name: Contents(**contents) for name, contents in directory.items()} for directory in fields["directories"]
        )
        fields["files"] = tuple({**files} for files in fields["files"])
        found = Manifest(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(str(path), f"does not list what the backup holds: {error}") from error
    names = [name for directory in found.directories for name in directory]
    if len(found.files) != len(found.directories) or not all(map(partition_of, names)):
        raise CorruptFileError(str(path), "does not list what the backup holds")
    return found
