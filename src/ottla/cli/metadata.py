"""`ottla metadata`: the brokers, topics and leaders that a client sees."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, ExitCode
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.cli.topics import add_internal_argument, partition_fields, show_topic, topic_fields
from ottla.client.admin.admin import Admin
from ottla.client.metadata import ClusterView


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", "-t", action="append", metavar="TOPIC", help="only this topic; repeatable")
    add_internal_argument(parser)
    remote.add_json_argument(parser, "one JSON document: cluster id, controller, brokers and topics")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(options.topic)
        for name in options.topic or ():
            view.topic(name)
        if options.json:
            print(json_line(_fields(view)))
        else:
            _show(view, with_internal=options.internal or bool(options.topic))
        return ExitCode.OK

    return remote.run(options, work)


def _fields(view: ClusterView) -> dict[str, Json]:
    brokers: list[Json] = [
        {"broker": node.node_id, "host": node.address.host, "port": node.address.port, "rack": node.rack}
        for node in sorted(view.nodes.values(), key=lambda node: node.node_id)
    ]
    topics: list[Json] = [
        {**topic_fields(topic), "partitions": [partition_fields(partition) for partition in topic.partitions]}
        for _, topic in sorted(view.topics.items())
    ]
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller_id,
        "brokers": brokers,
        "topics": topics,
    }


def _show(view: ClusterView, *, with_internal: bool) -> None:
    print(f"cluster {view.cluster_id}  controller {view.controller_id}")
    nodes = sorted(view.nodes.values(), key=lambda node: node.node_id)
    print_table(
        ("BROKER", "ADDRESS", "RACK"),
        [(str(node.node_id), str(node.address), node.rack) for node in nodes],
        indent="  ",
    )
    for _, topic in sorted(view.topics.items()):
        if with_internal or not topic.is_internal:
            show_topic(topic, topic.partitions, (), as_json=False)


COMMAND: Final = Command(
    "metadata",
    "show brokers, topics and leaders as a client sees them",
    "Show the metadata that a client gets: brokers, topics, partitions and their leaders.",
    _add_arguments,
    _run,
)
