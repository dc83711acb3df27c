"""`ottla offsets`: which offsets partitions have, at their ends and at a time."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.places import PLACES_HELP, offsets_at, parse_place, ranges_of
from ottla.cli.render import Json, json_line
from ottla.cli.table import Value, print_table
from ottla.client.admin.admin import Admin
from ottla.client.offsets import Isolation
from ottla.runtime.clock import SystemClock


def _add_get_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC[:0,2]", help="a topic, or some partitions of it (default: all topics)"
    )
    parser.add_argument("--at", metavar="PLACE", help=f"the offset at a place as well: {PLACES_HELP}")
    parser.add_argument(
        "--isolation",
        choices=[level.name.lower() for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.name.lower(),
        help="whether the end is that of all records or of committed ones (default: read_uncommitted)",
    )
    remote.add_json_argument(parser, "one JSON document per partition: topic, partition, earliest, latest and at")
    remote.add_arguments(parser)


def _get(options: argparse.Namespace) -> ExitCode:
    place = None if options.at is None else parse_place(options.at, SystemClock().now_ms())
    isolation = Isolation[options.isolation.upper()]

    async def work(admin: Admin) -> ExitCode:
        names = options.topics
        if not names:
            names = [name for name, topic in (await admin.metadata(None)).topics.items() if not topic.is_internal]
        partitions = await named_partitions(admin, names)
        ranges = await ranges_of(admin, partitions, isolation)
        there = None if place is None else await offsets_at(admin, partitions, place, isolation)
        if options.json:
            for partition in partitions:
                earliest, latest = ranges[partition]
                fields: dict[str, Json] = {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "earliest": earliest,
                    "latest": latest,
                    "at": None if there is None else there[partition],
                }
                print(json_line(fields))
            return ExitCode.OK
        titles = ["PARTITION", "EARLIEST", "LATEST", "OFFSETS"]
        rows: list[list[Value]] = [
            [str(partition), earliest, latest, latest - earliest] for partition, (earliest, latest) in ranges.items()
        ]
        if there is not None:
            titles.append(f"AT {options.at}")
            rows = [[*row, there[partition]] for row, partition in zip(rows, ranges, strict=True)]
        print_table(titles, rows, if_empty="no topics; `ottla topics create NAME` creates one")
        return ExitCode.OK

    return remote.run(options, work)


COMMAND: Final = command_group(
    "offsets",
    "show the offsets of partitions",
    "Show the offsets of partitions. Those that groups have committed are shown by `ottla groups describe`.",
    (
        Command(
            "get",
            "show the first and the last offset, and the one at a time",
            "Show the offset of the first record of each partition, and the one behind its last record. Between them\n"
            "are at most that many records: compaction and the markers of transactions leave gaps.",
            _add_get_arguments,
            _get,
        ),
    ),
)
