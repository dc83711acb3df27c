"""`ottla cluster`: the brokers of a cluster; clusters by name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, add_commands
from ottla.cli.named_clusters import BOOTSTRAP, clusters_file, read_clusters, write_clusters
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.client.admin.admin import Admin
from ottla.client.metadata import parse_addresses

LOCATION_SUFFIX: Final = ".location"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_commands(parser, ACTIONS, destination="action", metavar="ACTION")
    remote.add_json_argument(parser, "one JSON document: cluster id, controller, brokers and features")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    action: Command | None = getattr(options, "action", None)
    return _show(options) if action is None else action.run(options)


def _show(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        found = await admin.describe_cluster()
        features = (await admin.describe_features()).finalized
        if options.json:
            brokers: list[Json] = [
                {
                    "broker": each.broker_id,
                    "host": each.address.host,
                    "port": each.address.port,
                    "rack": each.rack,
                    "is_fenced": each.is_fenced,
                }
                for each in found.brokers
            ]
            fields: dict[str, Json] = {
                "cluster_id": found.cluster_id,
                "controller": found.controller_id,
                "brokers": brokers,
                "features": dict[str, Json](features),
            }
            print(json_line(fields))
            return ExitCode.OK
        print(f"cluster {found.cluster_id}")
        for each in found.brokers:
            words = [f"broker {each.broker_id}", str(each.address)]
            words += [f"rack {each.rack}"] if each.rack is not None else []
            words += ["controller"] if each.broker_id == found.controller_id else []
            words += ["fenced"] if each.is_fenced else []
            print(f"  {'  '.join(words)}")
        for name, level in sorted(features.items()):
            print(f"  feature {name}  level {level}")
        return ExitCode.OK

    return remote.run(options, work)


# -- clusters by name --------------------------------------------------------------------------------------------------


def _add_name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the cluster")


def _add_add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_name_argument(parser)
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        required=True,
        help="a broker of the cluster, or several separated by commas",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="settings of the client, such as security.protocol and sasl.jaas.config; they are copied, so the file can "
        "be deleted",
    )
    parser.add_argument("--replace", action="store_true", help="accept that the name is taken, and change it")
    parser.add_argument("--use", action="store_true", help="make it the current one")


def _add(options: argparse.Namespace) -> ExitCode:
    clusters = read_clusters()
    if options.name in clusters.clusters and not options.replace:
        raise CommandError(ExitCode.USAGE, f"there is a cluster {options.name} already", "--replace changes it")
    parse_addresses(options.bootstrap_server)
    path = options.command_config
    given = {} if path is None else remote.read_command_config(path)
    remote.security_settings(remote.Target(options.bootstrap_server, given, path or ""))  # what is wrong is found now
    settings = {name: _absolute(name, value) for name, value in given.items() if name != BOOTSTRAP}
    clusters = clusters.with_cluster(options.name, {BOOTSTRAP: options.bootstrap_server, **settings})
    write_clusters(clusters.using(options.name) if options.use else clusters)
    print(f"{options.name} is kept in {clusters_file()}, which only you can read")
    return ExitCode.OK


def _absolute(name: str, value: str) -> str:
    """Files that settings name are found from every directory."""
    return str(Path(value).absolute()) if name.endswith(LOCATION_SUFFIX) else value


def _use(options: argparse.Namespace) -> ExitCode:
    write_clusters(read_clusters().using(options.name))
    print(f"commands use {options.name} from now on")
    return ExitCode.OK


def _remove(options: argparse.Namespace) -> ExitCode:
    clusters = read_clusters()
    clusters.get(options.name)
    write_clusters(clusters.without(options.name))
    print(f"removed {options.name}")
    return ExitCode.OK


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    remote.add_json_argument(
        parser, "one JSON document for each cluster: name, brokers, protocol, whether it is current"
    )


def _list(options: argparse.Namespace) -> ExitCode:
    """Of the settings only those that are not secret."""
    clusters = read_clusters()
    rows = [
        (name, settings.get(BOOTSTRAP, ""), settings.get("security.protocol", "PLAINTEXT"), name == clusters.current)
        for name, settings in sorted(clusters.clusters.items())
    ]
    if not options.json:
        print_table(
            ("NAME", "BROKERS", "PROTOCOL", "CURRENT"),
            [(name, servers, protocol, "yes" if is_current else None) for name, servers, protocol, is_current in rows],
            if_empty="no cluster has a name; `ottla cluster add` gives it one",
        )
        return ExitCode.OK
    for name, servers, protocol, is_current in rows:
        fields: dict[str, Json] = {
            "name": name,
            "bootstrap_servers": servers,
            "security_protocol": protocol,
            "is_current": is_current,
        }
        print(json_line(fields))
    return ExitCode.OK


ACTIONS: Final = [
    Command(
        "add",
        "give a cluster a name",
        "Give a cluster a name: its address and the settings by which commands log in to it. They are kept in\n"
        "~/.config/ottla/clusters.toml ($XDG_CONFIG_HOME counts), which only you can read.",
        _add_add_arguments,
        _add,
    ),
    Command(
        "use",
        "make a named cluster the current one",
        "Make a named cluster the current one: commands use it unless --cluster, --bootstrap-server or the\n"
        "environment names another.",
        _add_name_argument,
        _use,
    ),
    Command(
        "list", "list named clusters", "List the named clusters, without their secrets.", _add_list_arguments, _list
    ),
    Command(
        "remove", "forget a named cluster", "Forget a named cluster and its settings.", _add_name_argument, _remove
    ),
]

COMMAND: Final = Command(
    "cluster",
    "show the brokers of a cluster, or give clusters names",
    "Show the id of a cluster, its brokers, which of them is the controller, and the enabled features. With an\n"
    "ACTION: keep clusters by name, with the settings by which commands log in to them.",
    _add_arguments,
    _run,
)
