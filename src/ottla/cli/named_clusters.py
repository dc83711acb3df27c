"""Clusters by name, in `clusters.toml` of the user's configuration directory: where they are and how to log in.

    current = "production"

    [clusters.production]
    "bootstrap.servers" = "b1.example.org:9093,b2.example.org:9093"
    "security.protocol" = "SASL_SSL"

The settings are those of a client, in Java's names. Among them may be passwords, so only the owner may read the file:
it is written so, and one that others may read is refused.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.cli.command import CommandError, ExitCode
from ottla.cli.parser import did_you_mean

FILE_NAME: Final = "clusters.toml"
BOOTSTRAP: Final = "bootstrap.servers"
OWNER_ONLY: Final = 0o600
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def clusters_file() -> Path:
    """`$XDG_CONFIG_HOME/ottla/clusters.toml`, by default in `~/.config`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ottla" / FILE_NAME


@dataclass(frozen=True, slots=True)
class NamedClusters:
    """What the file says. `current`: the one that is meant where nobody says which."""

    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    current: str | None = None

    def get(self, name: str) -> Mapping[str, str]:
        """The settings of a cluster; CommandError where there is none of this name."""
        if name not in self.clusters:
            similar = did_you_mean(name, self.clusters)
            raise CommandError(
                ExitCode.NOT_FOUND,
                f"there is no cluster {name} in {clusters_file()}{similar}",
                "" if similar else "`ottla cluster list` shows all",
            )
        return self.clusters[name]

    def with_cluster(self, name: str, settings: Mapping[str, str]) -> NamedClusters:
        return NamedClusters({**self.clusters, name: settings}, self.current)

    def without(self, name: str) -> NamedClusters:
        rest = {each: settings for each, settings in self.clusters.items() if each != name}
        return NamedClusters(rest, None if self.current == name else self.current)

    def using(self, name: str) -> NamedClusters:
        self.get(name)
        return NamedClusters(self.clusters, name)


def read_clusters() -> NamedClusters:
    """The clusters of the user's file; none where there is no file."""
    path = clusters_file()
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & OTHERS:
                raise CommandError(
                    ExitCode.USAGE, f"{path}: others may read it, and it may hold passwords", f"run chmod 600 {path}"
                )
            document = tomllib.load(file)
    except FileNotFoundError:
        return NamedClusters()
    except OSError as error:
        raise CommandError(ExitCode.USAGE, f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(ExitCode.USAGE, f"{path}: is not TOML: {error}", "mend or remove it") from error
    clusters = document.get("clusters", {})
    current = document.get("current")
    if not isinstance(clusters, dict) or not all(isinstance(each, dict) for each in clusters.values()):
        raise CommandError(ExitCode.USAGE, f"{path}: `clusters` must be a table of tables", "mend or remove it")
    return NamedClusters(
        {name: dict(_flat(settings)) for name, settings in clusters.items()},
        current if isinstance(current, str) else None,
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their names with dots, which TOML reads as nested tables unless they are quoted."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", ",".join(map(str, value))
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        else:
            yield f"{prefix}{name}", str(value)


def write_clusters(clusters: NamedClusters) -> None:
    """Replaces the file as a whole; nobody else can read it, not even for a moment."""
    path = clusters_file()
    lines = [] if clusters.current is None else [f"current = {_quoted(clusters.current)}", ""]
    for name, settings in sorted(clusters.clusters.items()):
        lines.append(f"[clusters.{_quoted(name)}]")
        lines += [f"{_quoted(setting)} = {_quoted(value)}" for setting, value in settings.items()]
        lines.append("")
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(beside, "w", encoding="utf-8", opener=_open_private) as file:
            file.write("\n".join(lines))
        beside.replace(path)
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "what is to be written is not UTF-8"
        raise CommandError(ExitCode.USAGE, f"{path}: {reason}") from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, OWNER_ONLY)


def _quoted(text: str) -> str:
    """TOML's basic strings have JSON's escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
