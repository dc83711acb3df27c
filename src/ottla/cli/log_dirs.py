"""`ottla log-dirs`: the log directories of brokers."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.render import Json, count_text, json_line
from ottla.client.admin.admin import Admin
from ottla.client.admin.log_dirs import LogDirectory, ReplicaInDirectory
from ottla.ids import TopicPartition


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", action="append", type=int, metavar="ID", help="only this broker; repeatable")
    parser.add_argument("--topic", action="append", metavar="NAME", help="only replicas of this topic; repeatable")
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
                    _show(broker, directory)
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


def _show(broker: int, directory: LogDirectory) -> None:
    used = sum(each.size_bytes for each in directory.replicas)
    words = [f"broker {broker}", directory.path, count_text(len(directory.replicas), "replica", "replicas")]
    words.append(f"{used:,} bytes")
    if directory.usable_bytes >= 0:
        words.append(f"{directory.usable_bytes:,} of {directory.total_bytes:,} bytes free")
    print("  ".join(words))
    if directory.error is not None:
        print(f"ottla: warning: broker {broker}: {directory.error}", file=sys.stderr)
    for each in _sorted(directory):
        lag = f"  lag {each.offset_lag:,}" if each.offset_lag else ""
        print(f"  {each.partition}  {each.size_bytes:,} bytes{lag}{'  moving here' if each.is_future else ''}")


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
