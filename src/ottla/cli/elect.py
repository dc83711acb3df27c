"""`ottla elect`: elect leaders on request."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.named_partitions import named_partitions
from ottla.cli.render import Json, json_line
from ottla.client.admin.admin import Admin
from ottla.client.admin.elections import ElectionType
from ottla.client.metadata import ClusterView
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

LEARNED_S: Final = 5.0
LOOK_S: Final = 0.05


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC[:0,2]", help="a topic, or some partitions of it")
    parser.add_argument("--all", action="store_true", help="all partitions that need an election, instead of names")
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="elect a replica that is not in sync if no other is: records that it does not have are LOST",
    )
    remote.add_json_argument(
        parser, "one JSON document per partition: topic, partition, whether a leader was elected, or why not"
    )
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    if bool(options.topics) == options.all:
        what = "partitions were named, and --all was given" if options.all else "no partitions were given"
        raise CommandError(ExitCode.USAGE, what, "name topics, or give --all")
    kind = ElectionType.UNCLEAN if options.unclean else ElectionType.PREFERRED

    async def work(admin: Admin) -> ExitCode:
        wanted = None if options.all else await named_partitions(admin, options.topics)
        outcomes = await admin.elect_leaders(kind, wanted)
        view = await view_after(admin, kind, outcomes)
        failures: list[ApiError] = []
        for partition, error in sorted(outcomes.items()):
            is_needless = error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
            if error is not None and not is_needless:
                failures.append(error)
            leader = view.topic(partition.topic).partition(partition.partition).leader_id
            if options.json:
                print(json_line(_fields(partition, leader, error)))
            elif error is None:
                print(f"{partition}  leader {leader}")
            elif is_needless and not options.all:
                print(f"{partition}  leader {leader} stays: no election is needed")
        if options.all and not outcomes and not options.json:
            print("no election is needed")
        return remote.report_failures(failures)

    return remote.run(options, work)


async def view_after(
    admin: Admin, kind: ElectionType, outcomes: Mapping[TopicPartition, ApiError | None]
) -> ClusterView:
    """The leaders, as soon as the broker that is asked knows of those that were elected, which may take a moment."""
    deadline = time.monotonic() + LEARNED_S
    while True:
        view = await admin.metadata({partition.topic for partition in outcomes})
        elected = (
            view.topic(partition.topic).partition(partition.partition)
            for partition, error in outcomes.items()
            if error is None
        )
        preferred = kind is ElectionType.PREFERRED
        if all(each.leader_id == each.replicas[0] if preferred else each.leader_id >= 0 for each in elected):
            return view
        if time.monotonic() > deadline:
            return view  # somebody else may have elected others since
        await asyncio.sleep(LOOK_S)


def _fields(partition: TopicPartition, leader: int, error: ApiError | None) -> dict[str, Json]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "elected": error is None,
        "leader": leader if leader >= 0 else None,
        "error": None if error is None else error.code.name,
    }


COMMAND: Final = Command(
    "elect",
    "elect leaders on request",
    "Make the preferred replica of partitions, the first in their list, the leader again if it is in sync.\n"
    "With --unclean, any running replica can become the leader of a partition without in-sync replicas. Records that\n"
    "it does not have are lost for good: use this only when the other replicas will not come back.",
    _add_arguments,
    _run,
)
