"""`ottla brokers`: the brokers of a cluster and their load."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, ExitCode
from ottla.cli.render import Json, json_line
from ottla.cli.table import Cell, Value, print_table
from ottla.cli.terminal import Style
from ottla.client.admin.admin import Admin
from ottla.client.health import BrokerLoad, loads_of
from ottla.client.metadata import ClusterView


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    remote.add_json_argument(parser, "one JSON document per broker: id, address, rack and load")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(None)
        loads = loads_of(view)
        if options.json:
            for node_id, load in loads.items():
                print(json_line(broker_fields(view, node_id, load)))
        else:
            print_table(BROKER_TITLES, [broker_row(view, node_id, load) for node_id, load in loads.items()])
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


BROKER_TITLES: Final = ("BROKER", "ADDRESS", "RACK", "REPLICAS", "LEADERS", "PREFERRED", "NOT IN SYNC", "STATE")


def broker_row(view: ClusterView, node_id: int, load: BrokerLoad) -> tuple[Value, ...]:
    node = view.nodes.get(node_id)
    return (
        str(node_id),
        None if node is None else str(node.address),
        None if node is None else node.rack,
        load.replicas,
        load.leaders,
        load.preferred_leaders,
        Cell(load.out_of_sync, Style.BAD if load.out_of_sync else None),
        _state(view, node_id),
    )


def _state(view: ClusterView, node_id: int) -> Cell:
    if node_id not in view.nodes:
        return Cell("DOWN", Style.BAD)
    return Cell("controller" if node_id == view.controller_id else "up", Style.GOOD)


COMMAND: Final = Command(
    "brokers",
    "show the load of each broker",
    "Show the brokers: their addresses, how many replicas they hold, how many partitions they lead and would lead if\n"
    "every preferred replica led, and how many of their replicas are not in sync. A broker that holds replicas and is\n"
    "not running is shown as DOWN.",
    _add_arguments,
    _run,
)
