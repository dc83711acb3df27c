"""`ottla import`: takes over the data directories of an Apache Kafka broker."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.arguments import require_different
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.takeover import kafka_directory
from ottla.cli.takeover.kafka_directory import KafkaDirectory
from ottla.cli.takeover.takeover import KAFKAS_OWN, finish, is_unfinished, take_over
from ottla.disk import RealDisk
from ottla.storage.logs import LOCK_FILE

DESCRIPTION: Final = f"""\
Take over the directories of a stopped broker of Apache Kafka (3.x or 4.x, with ZooKeeper or without), so
that `ottla serve` serves what is there: topics with their ids and settings, committed offsets of groups,
and transactions. Logs stay where they are; nothing is copied. Without --yes nothing is changed, and the
command shows what it would do. What only Kafka reads is kept in {KAFKAS_OWN}/ below each directory.

Brokers of a larger cluster with ZooKeeper need no import: start Ottla with the same broker.id, log.dirs and
zookeeper.connect in place of Kafka (docs/guide/migration.md)."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="all log.dirs of one broker")
    parser.add_argument("--yes", action="store_true", help="do it; without this, only show what would be done")
    parser.add_argument("--zookeeper", metavar="CONNECT", help="where a broker with ZooKeeper keeps its settings")
    parser.add_argument(
        "--default-settings",
        action="store_true",
        help="for a broker with ZooKeeper that is gone: topics get the broker's default settings",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document: topics, problems and notes")


def _run(options: argparse.Namespace) -> ExitCode:
    for directory in options.directories:
        if not directory.is_dir():
            raise CommandError(ExitCode.NOT_FOUND, f"{directory} is not a directory")
        kafka_directory.owner_of(directory)  # before anything is locked, which leaves a file in it
    require_different(options.directories)
    with _locked(options.directories):
        if is_unfinished(options.directories):
            finish(options.directories)
            print("an import that was interrupted is finished")
            return ExitCode.OK
        found = kafka_directory.read(
            options.directories, options.zookeeper, with_default_settings=options.default_settings
        )
        if options.yes and not found.problems:
            take_over(options.directories, found)
    if options.json:
        print(json_line(_fields(found, is_done=options.yes and not found.problems)))
    else:
        _show(found)
    if found.problems:
        if not options.json:
            print("nothing was changed: mend the problems first")
        return ExitCode.USAGE
    if not options.json:
        places = ",".join(map(str, options.directories))
        print(
            f"done: `ottla serve --set log.dirs={places}` serves it"
            if options.yes
            else "nothing was changed: the same with --yes takes it over"
        )
    return ExitCode.OK


@contextlib.contextmanager
def _locked(directories: Sequence[Path]) -> Iterator[None]:
    """LockHeldError where a broker, ours or Kafka's, runs on one of them."""
    with contextlib.ExitStack() as stack:
        for directory in directories:
            stack.callback(RealDisk().lock(str(directory / LOCK_FILE)).close)
        yield


def _show(found: KafkaDirectory) -> None:
    kind = "with ZooKeeper" if found.uses_zookeeper else "without ZooKeeper"
    print(f"broker {found.node_id} of cluster {found.cluster_id}, Apache Kafka {kind}")
    topics = count_text(len(found.topics), "topic", "topics")
    print(f"{topics}, {count_text(found.partition_count, 'partition', 'partitions')}")
    for name, (topic_id, partitions) in found.topics.items():
        settings = found.configs.get(("topics", name), {})
        words = "  ".join(f"{key}={value}" for key, value in sorted(settings.items()))
        print(f"  {name}  {count_text(len(partitions), 'partition', 'partitions')}  {topic_id}  {words}".rstrip())
    for note in found.notes:
        print(f"note: {note}")
    for problem in found.problems:
        print(f"problem: {problem}")


def _fields(found: KafkaDirectory, *, is_done: bool) -> dict[str, Json]:
    return {
        "cluster_id": found.cluster_id,
        "broker": found.node_id,
        "zookeeper": found.uses_zookeeper,
        "topics": [
            {
                "name": name,
                "id": str(topic_id),
                "partitions": len(partitions),
                "configs": {**found.configs.get(("topics", name), {})},
            }
            for name, (topic_id, partitions) in found.topics.items()
        ],
        "notes": [*found.notes],
        "problems": [*found.problems],
        "imported": is_done,
    }


COMMAND: Final = Command(
    "import", "take over the data directory of an Apache Kafka broker", DESCRIPTION, _add_arguments, _run
)
