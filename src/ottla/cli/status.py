"""`ottla status`: a cluster at a glance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli import remote
from ottla.cli.brokers import BROKER_TITLES, broker_fields, broker_row
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.local import DATA_DEFAULT, add_data_argument, no_cluster, process_words, server_fields, server_words
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.table import print_table
from ottla.cli.terminal import Style, is_coloured, paint
from ottla.cli.topics import min_isr_of
from ottla.client.admin.admin import Admin
from ottla.client.health import BrokerLoad, Health, health_of, is_under_replicated, loads_of
from ottla.client.metadata import ClusterView
from ottla.ids import TopicPartition
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import LocalCluster

NAMES_SHOWN_MAX: Final = 10


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_argument(parser, default=None)
    remote.add_json_argument(parser, "one JSON document: brokers, controller, processes, and partitions in trouble")
    remote.add_arguments(parser, otherwise="the cluster in --data if there is one, else ")


def _run(options: argparse.Namespace) -> ExitCode:
    local: LocalCluster | None = None
    if options.bootstrap_server is None and options.cluster is None:
        directory: Path = (options.data or Path(DATA_DEFAULT)).absolute()
        local = LocalCluster.find(directory)
        if local is None and options.data is not None:
            raise no_cluster(directory)  # another one would be shown as this one
        if local is not None:
            options.bootstrap_server = local.bootstrap_servers
            if local.security is not None and options.command_config is None:
                options.command_config = str(local.security.admin_file)
    if local is not None and not any(broker.process.is_alive() for broker in local.brokers):
        return _show_stopped(local, options)

    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(None)
        topics = sorted(name for name, topic in view.topics.items() if any(map(is_under_replicated, topic.partitions)))
        health = health_of(view, await min_isr_of(admin, topics))
        if options.json:
            print(json_line(_fields(view, health, local)))
        else:
            _show(view, health, local)
        return ExitCode.OK

    return remote.run(options, work)


def _show_stopped(local: LocalCluster, options: argparse.Namespace) -> ExitCode:
    if options.json:
        servers: list[Json] = [server_fields(server) for server in local.servers]
        print(json_line({"is_up": False, "servers": servers}))
    else:
        for server in local.servers:
            print(server_words(server))
    raise CommandError(
        ExitCode.UNREACHABLE,
        f"no broker of {local.directory} runs",
        f"start it with `ottla up --data {local.directory}`",
    )


def _show(view: ClusterView, health: Health, local: LocalCluster | None) -> None:
    brokers = count_text(len(view.nodes), "broker", "brokers")
    controller = f"controller {view.controller_id}" if view.controller_id in view.nodes else "NO CONTROLLER"
    print(f"cluster {view.cluster_id}  {brokers}  {controller}")
    own = {broker.broker_id: broker for broker in local.brokers} if local else {}
    rows = [
        (*broker_row(view, node_id, load), process_words(own[node_id].process) if node_id in own else None)
        for node_id, load in _all_loads(view, own).items()
    ]
    if own:
        print_table((*BROKER_TITLES, "PROCESS"), rows, indent="  ")
    else:
        print_table(BROKER_TITLES, [row[:-1] for row in rows], indent="  ")
    for server in local.zookeepers if local else ():
        print(f"  {server_words(server)}")
    verdict = paint(_verdict(health), Style.GOOD if health.is_good else Style.BAD, is_coloured=is_coloured(sys.stdout))
    print(f"{count_text(health.partition_count, 'partition', 'partitions')}: {verdict}")
    for what, partitions in _troubles(health):
        if partitions:
            print(f"  {what}: {_names(partitions)}")


def _verdict(health: Health) -> str:
    if health.is_good:
        return "all in sync"
    return ", ".join(f"{len(partitions):,} {what}" for what, partitions in _troubles(health))


def _troubles(health: Health) -> Sequence[tuple[str, tuple[TopicPartition, ...]]]:
    return (
        ("under-replicated", health.under_replicated),
        ("under min ISR", health.under_min_isr),
        ("offline", health.offline),
    )


def _all_loads(view: ClusterView, own: dict[int, BrokerProcess]) -> dict[int, BrokerLoad]:
    """Also of brokers that are down and hold nothing."""
    loads = loads_of(view)
    return {node_id: loads.get(node_id, BrokerLoad()) for node_id in sorted({*loads, *own})}


def _names(partitions: Sequence[TopicPartition]) -> str:
    rest = len(partitions) - NAMES_SHOWN_MAX
    return " ".join(map(str, partitions[:NAMES_SHOWN_MAX])) + (f" and {rest:,} more" if rest > 0 else "")


def _fields(view: ClusterView, health: Health, local: LocalCluster | None) -> dict[str, Json]:
    own = {broker.broker_id: broker for broker in local.brokers} if local else {}
    brokers: list[Json] = [broker_fields(view, node_id, load) for node_id, load in _all_loads(view, own).items()]
    servers: list[Json] = [server_fields(server) for server in local.servers] if local else []

    def partitions(found: Sequence[TopicPartition]) -> list[Json]:
        return [{"topic": each.topic, "partition": each.partition} for each in found]

    return {
        "is_up": True,
        "cluster_id": view.cluster_id,
        "controller": view.controller_id if view.controller_id in view.nodes else None,
        "brokers": brokers,
        "servers": servers,
        "partition_count": health.partition_count,
        "is_healthy": health.is_good,
        "under_replicated": partitions(health.under_replicated),
        "under_min_isr": partitions(health.under_min_isr),
        "offline": partitions(health.offline),
    }


COMMAND: Final = Command(
    "status",
    "show the health of a cluster",
    "Show a cluster at a glance: its brokers and their load, its controller, and the partitions that are\n"
    "under-replicated, have too few in-sync replicas to be written, or have no leader. For a cluster that `ottla up`\n"
    "started it also shows the processes. Works with any cluster that speaks Kafka's protocol.",
    _add_arguments,
    _run,
)
