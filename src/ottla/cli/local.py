"""What `up`, `status` and `down` share: where the cluster of this machine is, and how its servers are shown."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ottla.cli.arguments import directory
from ottla.cli.render import Json
from ottla.local_cluster.cluster import Server
from ottla.local_cluster.process import ServerProcess

DATA_DEFAULT: Final = "ottla-cluster"
LOG_LINES_SHOWN: Final = 8


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=directory,
        default=Path(DATA_DEFAULT),
        metavar="DIR",
        help=f"the directory of the cluster (default: {DATA_DEFAULT})",
    )


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
    lines = process.end_of_log().splitlines()[-LOG_LINES_SHOWN:]
    words = [f"{process.name} (process {process.pid}) {process.how_it_ended()}; the end of {process.log}:"]
    return "\n".join([*words, *(f"    {line}" for line in lines or ["(it is empty)"])])
