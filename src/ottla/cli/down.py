"""`ottla down`: stop the cluster that `ottla up` started."""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path
from typing import Final

from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.local import add_data_argument, no_cluster
from ottla.cli.remote import add_json_argument
from ottla.cli.render import Json, json_line
from ottla.cli.up import stop_and_report
from ottla.local_cluster.broker import STOP_TIMEOUT_S
from ottla.local_cluster.cluster import LocalCluster, hold
from ottla.local_cluster.process import ProcessIdentity, is_alive, send_signal

LOOK_S: Final = 0.05


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_argument(parser)
    add_json_argument(parser, "one JSON document: which processes were stopped, and which had to be killed")


def _run(options: argparse.Namespace) -> ExitCode:
    directory: Path = options.data.absolute()
    cluster = LocalCluster.find(directory)
    if cluster is None:
        raise no_cluster(directory)
    running = [process.name for process in cluster.processes if process.is_alive()]
    killed: list[str] = []
    if (supervisor := cluster.supervisor) is not None:
        _end_supervisor(supervisor, len(cluster.servers))
    else:
        with hold(directory):
            killed = stop_and_report(cluster, is_quiet=options.json)
    if options.json:
        print(json_line({"stopped": list[Json](running), "killed": list[Json](killed)}))
    elif not running:
        print("nothing was running")
    elif supervisor is not None:
        print(f"stopped {', '.join(running)}")
    return ExitCode.UNEXPECTED if killed else ExitCode.OK


def _end_supervisor(supervisor: ProcessIdentity, servers: int) -> None:
    """The command in the foreground stops everything in order, as with Ctrl-C."""
    send_signal(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + servers * STOP_TIMEOUT_S
    while is_alive(supervisor):
        if time.monotonic() > deadline:
            raise CommandError(
                ExitCode.TIMED_OUT, f"`ottla up` (process {supervisor.pid}) does not end", "look at its terminal"
            )
        time.sleep(LOOK_S)


COMMAND: Final = Command(
    "down",
    "stop the cluster on this machine",
    "Stop the cluster that `ottla up` started: brokers first, each of which hands over its leaderships, then\n"
    "ZooKeeper. The data is kept, and `ottla up` starts it again. Only processes that `ottla up` started are stopped.",
    _add_arguments,
    _run,
)
