"""What `up`, `status` and `down` share: where the cluster of this machine is, and how its servers are shown."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ottla.cli.arguments import directory
from ottla.cli.command import CommandError, ExitCode
from ottla.cli.render import Json
from ottla.local_cluster.cluster import Server
from ottla.local_cluster.process import ServerProcess

DATA_DEFAULT: Final = "ottla-cluster"


def add_data_argument(parser: argparse.ArgumentParser, default: Path | None = Path(DATA_DEFAULT)) -> None:
    parser.add_argument(
        "--data",
        type=directory,
        default=default,
        metavar="DIR",
        help=f"the directory of the cluster (default: {DATA_DEFAULT})",
    )


def no_cluster(directory: Path) -> CommandError:
    return CommandError(ExitCode.NOT_FOUND, f"{directory} has no cluster", "give its directory with --data")


def process_words(process: ServerProcess) -> str:
    if process.identity is None:
        return "not running"
    return f"process {process.pid}" if process.is_alive() else f"ENDED, was process {process.pid}"


def server_words(server: Server) -> str:
    return f"{server.process.name}  {server.address}  {process_words(server.process)}"


def server_fields(server: Server) -> dict[str, Json]:
    return {
        "name": server.process.name,
        "address": server.address,
        "pid": server.process.pid,
        "is_running": server.process.is_alive(),
        "log": str(server.process.log),
    }


def exit_report(process: ServerProcess) -> str:
    """How a process ended, and the last lines of its log."""
    return f"{process.name} (process {process.pid}) {process.how_it_ended()}; {process.last_words()}"
