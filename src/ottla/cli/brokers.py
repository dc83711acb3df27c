"""`ottla brokers`: the brokers of a cluster and their load."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, ExitCode
from ottla.cli.render import Json, count_text, json_line
from ottla.client.admin.admin import Admin
from ottla.client.health import BrokerLoad, loads_of
from ottla.client.metadata import ClusterView


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    remote.add_json_argument(parser, "one JSON document per broker: id, address, rack and load")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(None)
        for node_id, load in loads_of(view).items():
            if options.json:
                print(json_line(broker_fields(view, node_id, load)))
            else:
                print("  ".join(broker_words(view, node_id, load)))
        return ExitCode.OK

    return remote.run(options, work)


def broker_fields(view: ClusterView, node_id: int, load: BrokerLoad) -> dict[str, Json]:
    node = view.nodes.get(node_id)
    return {
        "broker": node_id,
        "is_alive": node is not None,
        "host": None if node is None else node.address.host,
        "port": None if node is None else node.address.port,
        "rack": None if node is None else node.rack,
        "is_controller": node_id == view.controller_id,
        "replicas": load.replicas,
        "leaders": load.leaders,
        "preferred_leaders": load.preferred_leaders,
        "out_of_sync": load.out_of_sync,
    }


def broker_words(view: ClusterView, node_id: int, load: BrokerLoad) -> Iterable[str]:
    node = view.nodes.get(node_id)
    yield f"broker {node_id}"
    yield "DOWN" if node is None else str(node.address)
    if node is not None and node.rack is not None:
        yield f"rack {node.rack}"
    yield count_text(load.replicas, "replica", "replicas")
    yield f"leads {load.leaders:,}, preferred for {load.preferred_leaders:,}"
    if load.out_of_sync:
        yield f"{load.out_of_sync:,} NOT IN SYNC"
    if node_id == view.controller_id:
        yield "controller"


COMMAND: Final = Command(
    "brokers",
    "show the load of each broker",
    "Show the brokers: their addresses, how many replicas they hold, how many partitions they lead and would lead if\n"
    "every preferred replica led, and how many of their replicas are not in sync. A broker that holds replicas and is\n"
    "not running is shown as DOWN.",
    _add_arguments,
    _run,
)
