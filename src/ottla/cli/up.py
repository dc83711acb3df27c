"""`ottla up`: a whole cluster on this machine, with one command."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli.arguments import parse_settings
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.local import add_data_argument, exit_report, server_fields, server_words
from ottla.cli.remote import add_json_argument
from ottla.cli.render import Json, json_line
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, OttlaError
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import LocalCluster, Server, hold
from ottla.local_cluster.layout import BROKERS_DEFAULT, PORT_DEFAULT, Wanted
from ottla.local_cluster.process import ProcessFailedError, ProcessIdentity
from ottla.net.client import ConnectionFailedError, ConnectionOptions

JOIN_TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.2


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help=f"how many brokers (default: as before; {BROKERS_DEFAULT} in a new directory)",
    )
    parser.add_argument(
        "--zookeepers",
        type=int,
        metavar="N",
        help="how many ZooKeeper servers (default: 1; none for a single broker, which keeps the metadata itself)",
    )
    add_data_argument(parser)
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help=f"the port of the first broker; the others follow (default: as before; {PORT_DEFAULT} in a new directory)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for all brokers; repeatable, and stored for the next start",
    )
    parser.add_argument("--detach", action="store_true", help="leave it running; `ottla down` stops it")
    add_json_argument(
        parser,
        "one JSON document once the cluster is up: bootstrap servers, and address, process and log of each server",
    )


def _run(options: argparse.Namespace) -> ExitCode:
    wanted = Wanted(options.brokers, options.zookeepers, options.port, parse_settings(options.set))
    directory: Path = options.data.absolute()
    with hold(directory):
        cluster = LocalCluster.prepare(directory, wanted)
        stopping = _Stopping()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A shell has jobs in the background ignore the interrupt that is meant for the one in front.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, stopping)
        _start(cluster, options, stopping)
        if options.detach:
            return ExitCode.OK
        is_alive = _supervise(cluster, stopping.event)
        is_stopped = not stop_and_report(cluster, is_quiet=options.json)
        return ExitCode.OK if is_alive and is_stopped else ExitCode.UNEXPECTED


class _Stopping:
    """Ctrl-C and SIGTERM. While the cluster starts they break that off, and from then on they are an event."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.is_starting = True

    def __call__(self, *_: object) -> None:
        self.event.set()
        if self.is_starting:
            raise KeyboardInterrupt


def _start(cluster: LocalCluster, options: argparse.Namespace, stopping: _Stopping) -> None:
    def on_ready(server: Server) -> None:
        if not options.json:
            print(server_words(server), flush=True)

    for server in cluster.servers:
        if server.process.is_alive():
            on_ready(server)
    try:
        with cluster.starting(on_ready, is_supervised=not options.detach):
            asyncio.run(wait_until_joined(cluster.brokers))
            stopping.is_starting = False
    except ProcessFailedError as error:
        hint = "everything that this command started has been stopped; if a port is in use, choose another with --port"
        raise CommandError(ExitCode.UNEXPECTED, str(error), hint) from error
    except (TimedOutError, ConnectionFailedError, ApiError) as error:
        raise CommandError(ExitCode.TIMED_OUT, str(error), f"look at the logs in {cluster.directory}") from error
    if options.json:
        servers: list[Json] = [server_fields(server) for server in cluster.servers]
        fields: dict[str, Json] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "data": str(cluster.directory),
            "servers": servers,
        }
        print(json_line(fields), flush=True)
        return
    how = "`ottla down` stops it" if options.detach else "Ctrl-C stops it"
    print(f"up: {cluster.bootstrap_servers}  ({how}; files and logs are in {cluster.directory})", flush=True)


async def wait_until_joined(brokers: Sequence[BrokerProcess]) -> None:
    """Until every broker's metadata has all the others and a controller."""
    deadline = Deadline.after(JOIN_TIMEOUT_S)
    options = ClientOptions(ConnectionOptions(client_id="ottla-up"))
    for broker in brokers:
        async with Cluster(parse_addresses(broker.address), options) as cluster:
            while True:
                view = await cluster.refresh((), deadline)
                if len(view.nodes) >= len(brokers) and view.controller_id in view.nodes:
                    break
                seen = ", ".join(map(str, sorted(view.nodes))) or "none"
                apart = f"broker {broker.broker_id} knows of brokers {seen} and of controller {view.controller_id}"
                await deadline.pause(LOOK_S, OttlaError(apart))


# -- until it is told to stop ------------------------------------------------------------------------------------------


def _supervise(cluster: LocalCluster, stopping: threading.Event) -> bool:
    """Reports every process that ends. True after a signal to stop, False when no broker is left."""
    told: set[ProcessIdentity] = set()
    while not stopping.wait(LOOK_S):
        for process in cluster.ended():
            assert process.identity is not None
            if process.identity not in told:
                told.add(process.identity)
                print(f"ottla: {exit_report(process)}", file=sys.stderr, flush=True)
        if not any(broker.process.is_alive() for broker in cluster.brokers):
            print("ottla: no broker is left; the rest is stopped", file=sys.stderr, flush=True)
            return False
    return True


def stop_and_report(cluster: LocalCluster, *, is_quiet: bool = False) -> list[str]:
    """Stops everything in order; the names of those that had to be killed."""

    def on_stopped(server: Server) -> None:
        if not is_quiet:
            print(f"{server.process.name} stopped", flush=True)

    killed = cluster.stop(on_stopped)
    for process in killed:
        print(f"ottla: warning: {process.name} did not stop and was killed; see {process.log}", file=sys.stderr)
    return [process.name for process in killed]


COMMAND: Final = Command(
    "up",
    "run a whole cluster on this machine",
    "Run a cluster on this machine: ZooKeeper and brokers, each in a process of its own. The command waits until all\n"
    "of them serve, shows their addresses, and stays until Ctrl-C or SIGTERM; then it stops everything in order. If a\n"
    "process dies, the end of its log is shown, and the others continue. With --detach the cluster is left running.\n"
    "\n"
    "The cluster of an existing directory is started again, at the same addresses and with the same settings; servers\n"
    "that still run are left running. A larger --brokers adds brokers. ZooKeeper comes with pyspark and needs Java. A\n"
    "single broker needs neither: it keeps the metadata itself, unless --zookeepers is given. New topics get three\n"
    "replicas, two of which must be in sync, or as many as there are brokers; --set changes that.",
    _add_arguments,
    _run,
)
