"""`ottla up`: a whole cluster on this machine, with one command."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.cli.arguments import parse_settings
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.local import add_data_argument, exit_report, server_fields, server_words
from ottla.cli.remote import add_json_argument, read_command_config
from ottla.cli.render import Json, json_line
from ottla.cli.signals import is_ignored
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.client.retrying import Deadline
from ottla.client.security import secure_connector
from ottla.client.settings import AdminSettings
from ottla.errors import ApiError, OttlaError
from ottla.local_cluster.cluster import LocalCluster, Server, hold
from ottla.local_cluster.layout import BROKERS_DEFAULT, PORT_DEFAULT, Wanted
from ottla.local_cluster.process import ProcessFailedError, ProcessIdentity
from ottla.local_cluster.security import ADMIN, ClusterSecurity
from ottla.net.client import ConnectionFailedError, ConnectionOptions, Connector, connect_tcp
from ottla.runtime.stop_flag import StopFlag

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
    parser.add_argument(
        "--secure",
        action="store_true",
        help="with TLS, users with passwords, and ACLs; the administrator's password is shown once and kept in a file "
        "that only you can read",
    )
    parser.add_argument("--detach", action="store_true", help="leave it running; `ottla down` stops it")
    add_json_argument(
        parser,
        "one JSON document once the cluster is up: bootstrap servers, and address, process and log of each server",
    )


def _run(options: argparse.Namespace) -> ExitCode:
    wanted = Wanted(
        options.brokers, options.zookeepers, options.port, parse_settings(options.set), is_secure=options.secure
    )
    directory: Path = options.data.absolute()
    LocalCluster.decide(directory, wanted)  # what is refused leaves no directory behind
    with hold(directory):
        cluster = LocalCluster.prepare(directory, wanted)
        stopping = _Stopping()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A shell has jobs in the background ignore the interrupt that is meant for the one in front.
            if not is_ignored(number):
                signal.signal(number, stopping)
        _start(cluster, options, stopping)
    if options.detach:
        return ExitCode.OK
    is_alive = _supervise(cluster, stopping.flag)
    with hold(directory, wait_s=JOIN_TIMEOUT_S):
        cluster.look_again()
        is_stopped = not stop_and_report(cluster, is_quiet=options.json)
    return ExitCode.OK if is_alive and is_stopped else ExitCode.UNEXPECTED


class _Stopping:
    """Ctrl-C and SIGTERM. While the cluster starts they break that off, and from then on they set a flag.

    The start is broken off once: what follows stops what was started, and another Ctrl-C would leave it running.
    """

    def __init__(self) -> None:
        self.flag = StopFlag()
        self.is_starting = True
        self._is_deferred = False

    def __call__(self, *_: object) -> None:
        self.flag.set()
        if not self._is_deferred:
            self._break_off()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What is inside is done whole, and broken off behind it."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self.flag.is_set():
            self._break_off()

    def _break_off(self) -> None:
        if self.is_starting:
            self.is_starting = False
            raise KeyboardInterrupt


def _start(cluster: LocalCluster, options: argparse.Namespace, stopping: _Stopping) -> None:
    def on_ready(server: Server) -> None:
        if not options.json:
            print(server_words(server), flush=True)

    cluster.check_start(is_supervised=not options.detach)
    for server in cluster.servers:
        if server.process.is_alive():
            on_ready(server)
    _warn_of_old_settings(cluster)
    try:
        with cluster.starting(on_ready, is_supervised=not options.detach, whole=stopping.deferred):
            asyncio.run(wait_until_joined(cluster))
            stopping.is_starting = False
    except ProcessFailedError as error:
        what = f"{error.what}, and whatever this command had started has been stopped"
        raise CommandError(ExitCode.UNEXPECTED, what, error.last_words) from error
    except (TimedOutError, ConnectionFailedError, ApiError) as error:
        raise CommandError(ExitCode.TIMED_OUT, str(error), f"look at the logs in {cluster.directory}") from error
    if options.json:
        servers: list[Json] = [server_fields(server) for server in cluster.servers]
        fields: dict[str, Json] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "data": str(cluster.directory),
            "servers": servers,
            **_credential_fields(cluster),
        }
        print(json_line(fields), flush=True)
        return
    _show_credentials(cluster)
    how = "`ottla down` stops it" if options.detach else "Ctrl-C stops it"
    print(f"up: {cluster.bootstrap_servers}  ({how}; files and logs are in {cluster.directory})", flush=True)


def _warn_of_old_settings(cluster: LocalCluster) -> None:
    """Brokers that are left running do not learn what was changed."""
    old = [broker for broker in cluster.brokers if broker.process.is_alive() and broker.has_new_settings()]
    if old:
        names = ", ".join(broker.process.name for broker in old)
        print(
            f"ottla: warning: the settings of this cluster have changed since {names} started: "
            "stop it with `ottla down` and start it again for them to take effect everywhere",
            file=sys.stderr,
        )


def _credential_fields(cluster: LocalCluster) -> dict[str, Json]:
    """How to log in; the password when it is new, and never again."""
    if cluster.security is None:
        return {}
    fields: dict[str, Json] = {"command_config": str(cluster.security.admin_file)}
    return {**fields, "user": ADMIN, "password": cluster.security.admin_password} if cluster.is_new else fields


def _show_credentials(cluster: LocalCluster) -> None:
    fields = _credential_fields(cluster)
    if "password" in fields:
        print(f"user {fields['user']}  password {fields['password']}  (shown this once)")
    if fields:
        print(f"log in with --command-config {fields['command_config']}", flush=True)


async def wait_until_joined(cluster: LocalCluster) -> None:
    """Until every broker's metadata has all the others and a controller."""
    deadline = Deadline.after(JOIN_TIMEOUT_S)
    options = ClientOptions(ConnectionOptions(client_id="ottla-up"))
    for broker in cluster.brokers:
        async with Cluster(parse_addresses(broker.address), options, _connector(cluster.security)) as client:
            while True:
                view = await client.refresh((), deadline)
                if len(view.nodes) >= len(cluster.brokers) and view.controller_id in view.nodes:
                    break
                seen = ", ".join(map(str, sorted(view.nodes))) or "none"
                apart = f"broker {broker.broker_id} knows of brokers {seen} and of controller {view.controller_id}"
                await deadline.pause(LOOK_S, OttlaError(apart))


def _connector(security: ClusterSecurity | None) -> Connector:
    if security is None:
        return connect_tcp
    settings = read_command_config(str(security.admin_file))
    return secure_connector(AdminSettings.read({"bootstrap.servers": "unused:1", **settings}), connect_tcp)


# -- until it is stopped -----------------------------------------------------------------------------------------------


def _supervise(cluster: LocalCluster, stopping: StopFlag) -> bool:
    """Reports every process that ends. True after a signal to stop, False when no broker is left."""
    reported: set[ProcessIdentity] = set()
    while not stopping.wait(LOOK_S):
        if cluster.ended():
            cluster.look_again()
        for process in cluster.ended():
            assert process.identity is not None
            if process.identity not in reported:
                reported.add(process.identity)
                print(f"ottla: {exit_report(process)}", file=sys.stderr, flush=True)
                again = f"`ottla up --detach --data {cluster.directory}`"
                print(f"ottla: {again} starts it again", file=sys.stderr, flush=True)
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
    "of them serve, shows their addresses, and stays until Ctrl-C, SIGTERM or SIGHUP; then it stops everything in\n"
    "order. If a process dies, the end of its log is shown, and the others continue; another call, with --detach,\n"
    "starts it again. With --detach the cluster is left running.\n"
    "\n"
    "The cluster of an existing directory is started again, at the same addresses and with the same settings; servers\n"
    "that still run are left running. A larger --brokers adds brokers. ZooKeeper comes with pyspark and needs Java. A\n"
    "single broker needs neither: it keeps the metadata itself, unless --zookeepers is given. New topics get three\n"
    "replicas, two of which must be in sync, or as many as there are brokers; --set changes that.\n"
    "\n"
    "With --secure, brokers have TLS, users log in with passwords (SCRAM-SHA-512), nobody but the administrator may\n"
    "do anything until `ottla acls add` allows it, and only these brokers may change what is in ZooKeeper.",
    _add_arguments,
    _run,
)
