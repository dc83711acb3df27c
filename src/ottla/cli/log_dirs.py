"""`ottla log-dirs`: the log directories of brokers."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.table import Cell, Value, print_table
from ottla.cli.terminal import Style, warn
from ottla.cli.topics import add_internal_argument
from ottla.client.admin.admin import Admin
from ottla.client.admin.log_dirs import LogDirectory, ReplicaInDirectory
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.ids import TopicPartition


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", action="append", type=int, metavar="ID", help="only this broker; repeatable")
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="only replicas of this topic; repeatable")
    add_internal_argument(parser)
    remote.add_json_argument(parser, "one JSON document per directory: broker, path, sizes and replicas")
    remote.add_arguments(parser)


def _describe(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(options.topic or ())
        partitions: list[TopicPartition] | None = None
        if options.topic:
            partitions = [
                TopicPartition(name, each.partition) for name in options.topic for each in view.topic(name).partitions
            ]
        failed = 0
        for broker in options.broker or sorted(view.nodes):
            for directory in await admin.describe_log_dirs(broker, partitions):
                failed += directory.error is not None
                if options.json:
                    print(json_line(_fields(broker, directory)))
                else:
                    _show(broker, directory, with_internal=options.internal or bool(options.topic))
        if failed:
            raise CommandError(
                ExitCode.REFUSED,
                f"{count_text(failed, 'log directory', 'log directories')} cannot be used",
                "look at the broker's log and at the disk",
            )
        return ExitCode.OK

    return remote.run(options, work)


def _fields(broker: int, directory: LogDirectory) -> dict[str, Json]:
    replicas: list[Json] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "size_bytes": each.size_bytes,
            "offset_lag": each.offset_lag,
            "is_future": each.is_future,
        }
        for each in _sorted(directory)
    ]
    return {
        "broker": broker,
        "path": directory.path,
        "error": None if directory.error is None else directory.error.code.name,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "replicas": replicas,
    }


def _show(broker: int, directory: LogDirectory, *, with_internal: bool) -> None:
    used = sum(each.size_bytes for each in directory.replicas)
    words = [f"broker {broker}", directory.path, count_text(len(directory.replicas), "replica", "replicas")]
    words.append(f"{used:,} bytes")
    if directory.usable_bytes >= 0:
        words.append(f"{directory.usable_bytes:,} of {directory.total_bytes:,} bytes free")
    print("  ".join(words))
    if directory.error is not None:
        warn(f"broker {broker}: {directory.error}")
    replicas = _sorted(directory)
    shown = [each for each in replicas if with_internal or each.partition.topic not in INTERNAL_TOPICS]
    print_table(("REPLICA", "BYTES", "LAG", "STATE"), map(_row, shown), indent="  ")
    if len(shown) < len(replicas):
        internal = count_text(len(replicas) - len(shown), "replica", "replicas")
        size = sum(each.size_bytes for each in replicas) - sum(each.size_bytes for each in shown)
        print(f"  and {internal} of internal topics, {size:,} bytes")


def _row(replica: ReplicaInDirectory) -> tuple[Value, ...]:
    moving = Cell("moving here", Style.WARNING) if replica.is_future else None
    return (str(replica.partition), replica.size_bytes, replica.offset_lag, moving)


def _sorted(directory: LogDirectory) -> list[ReplicaInDirectory]:
    return sorted(directory.replicas, key=lambda each: each.partition)


# -- move --------------------------------------------------------------------------------------------------------------


def _add_move_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:0,2]", help="a topic, or some partitions of it")
    parser.add_argument("--broker", type=int, required=True, metavar="ID", help="the broker with the replicas")
    parser.add_argument("--to", required=True, metavar="DIR", help="a log directory of that broker, as in its settings")
    remote.add_json_argument(parser, "one JSON document per replica: topic, partition and directory")
    remote.add_arguments(parser)


def _move(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        partitions = await named_partitions(admin, options.topics)
        outcomes = await admin.alter_replica_log_dirs(options.broker, dict.fromkeys(partitions, options.to))
        for partition, error in sorted(outcomes.items()):
            if error is None and options.json:
                fields: dict[str, Json] = {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "broker": options.broker,
                    "path": options.to,
                }
                print(json_line(fields))
            elif error is None:
                print(f"{partition}  moves to {options.to} of broker {options.broker}")
        return remote.report_failures(error for error in outcomes.values() if error is not None)

    return remote.run(options, work)


COMMAND: Final = command_group(
    "log-dirs",
    "show log directories, move replicas between them",
    "Show the log directories of brokers, and move replicas between those of one broker.",
    (
        Command(
            "describe",
            "show sizes and replicas",
            "Show the log directories of brokers: their size, the free space, and every replica in them.",
            _add_describe_arguments,
            _describe,
        ),
        Command(
            "move",
            "move replicas to another directory of their broker",
            "Move replicas to another log directory of their broker, while they are in use. The command returns while\n"
            "they are being moved; until that is done, `describe` shows a replica twice, the new one as moving.",
            _add_move_arguments,
            _move,
        ),
    ),
)
