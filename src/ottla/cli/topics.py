"""`ottla topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.cli import remote
from ottla.cli.arguments import parse_assignment, parse_settings
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, count_text, json_line
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
)
from ottla.client.admin.topics import CreatedTopic, NewTopic
from ottla.client.health import MIN_ISR, is_offline, is_under_replicated
from ottla.client.metadata import Partition, Topic
from ottla.errors import ApiError, ErrorCode
from ottla.ids import ZERO_TOPIC_ID, topic_id_text

# A topic's own settings, and those that its brokers give it.
NOT_DEFAULT: Final = frozenset(
    {ConfigSource.TOPIC, ConfigSource.BROKER, ConfigSource.BROKER_DEFAULT, ConfigSource.STATIC}
)


# -- create ------------------------------------------------------------------------------------------------------------


def _add_create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the topic")
    parser.add_argument("--partitions", type=int, metavar="N", help="how many partitions (default: the broker's)")
    parser.add_argument(
        "--replication-factor", type=int, metavar="N", help="how many replicas of each (default: the broker's)"
    )
    parser.add_argument(
        "--replica-assignment",
        metavar="LIST",
        help="the brokers of each partition by hand, as 0:1,1:2; the first of each leads",
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic; repeatable"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic exists")
    parser.add_argument("--validate-only", action="store_true", help="only check whether it could be created")
    remote.add_json_argument(parser, "one JSON document: topic, id, partitions and replication factor")
    remote.add_arguments(parser)


def _create(options: argparse.Namespace) -> ExitCode:
    assignment: list[list[int]] = []
    if options.replica_assignment is not None:
        if options.partitions is not None or options.replication_factor is not None:
            raise CommandError(
                ExitCode.USAGE,
                "--replica-assignment already gives the numbers of partitions and replicas",
                "leave out --partitions and --replication-factor",
            )
        assignment = parse_assignment(options.replica_assignment)
    topic = NewTopic(
        options.name,
        partitions=-1 if options.partitions is None else options.partitions,
        replication_factor=-1 if options.replication_factor is None else options.replication_factor,
        assignment=assignment,
        config=parse_settings(options.config),
    )
    if any(character in options.name for character in "._"):
        _warn("metrics do not distinguish . and _ in topic names: use only one of the two")

    async def work(admin: Admin) -> ExitCode:
        outcome = (await admin.create_topics([topic], validate_only=options.validate_only))[topic.name]
        if isinstance(outcome, ApiError):
            if options.if_not_exists and outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                outcome = _as_created(await admin.describe_topic(topic.name))
                return _show_created(options, outcome, "already exists:", is_created=False)
            raise outcome
        done = "would create" if options.validate_only else "created"
        return _show_created(options, outcome, done, is_created=not options.validate_only)

    return remote.run(options, work)


def _as_created(topic: Topic) -> CreatedTopic:
    return CreatedTopic(topic.name, topic.topic_id, len(topic.partitions), topic.replication_factor)


def _show_created(options: argparse.Namespace, topic: CreatedTopic, done: str, *, is_created: bool) -> ExitCode:
    if options.json:
        fields: dict[str, Json] = {
            "topic": topic.name,
            "topic_id": _id_text(topic.topic_id),
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "created": is_created,
        }
        print(json_line(fields))
    else:
        partitions = count_text(topic.partitions, "partition", "partitions")
        print(f"{done} {topic.name}: {partitions}, replication factor {topic.replication_factor}")
    return ExitCode.OK


# -- list --------------------------------------------------------------------------------------------------------------


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--exclude-internal", action="store_true", help="leave out topics that brokers use themselves")
    remote.add_json_argument(parser, "one JSON document per topic: name, id, counts and whether it is internal")
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata()
        for name in sorted(view.topics):
            topic = view.topics[name]
            if not (options.exclude_internal and topic.is_internal):
                print(json_line(topic_fields(topic)) if options.json else name)
        return ExitCode.OK

    return remote.run(options, work)


def topic_fields(topic: Topic) -> dict[str, Json]:
    return {
        "topic": topic.name,
        "topic_id": _id_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


# -- describe ----------------------------------------------------------------------------------------------------------


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a topic (default: all)")
    parser.add_argument(
        "--under-replicated", action="store_true", help="only partitions with a replica that is not in sync"
    )
    parser.add_argument(
        "--at-min-isr", action="store_true", help="only partitions that have just as many in sync as writes need"
    )
    parser.add_argument(
        "--under-min-isr",
        action="store_true",
        help="only partitions that have too few in sync to be written with acks=all",
    )
    parser.add_argument("--offline", "--unavailable", action="store_true", help="only partitions without a leader")
    remote.add_json_argument(parser, "one JSON document per topic: name, id, settings and partitions")
    remote.add_arguments(parser)


def _describe(options: argparse.Namespace) -> ExitCode:
    asks_for_isr = options.at_min_isr or options.under_min_isr
    asks_for_some = options.under_replicated or options.offline or asks_for_isr

    def is_wanted(partition: Partition, min_isr: int) -> bool:
        return not asks_for_some or any(
            (
                options.under_replicated and is_under_replicated(partition),
                options.offline and is_offline(partition),
                options.at_min_isr and len(partition.isr) == min_isr,
                options.under_min_isr and len(partition.isr) < min_isr,
            )
        )

    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(options.names or None)
        min_isr = await min_isr_of(admin, sorted(view.topics)) if asks_for_isr else {}
        for name in sorted(view.topics):
            topic = view.topics[name]
            partitions = [each for each in topic.partitions if is_wanted(each, min_isr.get(name, 1))]
            if partitions:
                configs = (await admin.describe_config(ConfigResource.topic(name))).values()
                show_topic(topic, partitions, [each for each in configs if each.source in NOT_DEFAULT], options.json)
        return remote.report_failures(view.errors.values())

    return remote.run(options, work)


async def min_isr_of(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    """How many in-sync replicas each topic needs to be written; topics that do not tell are left out."""
    described = await admin.describe_configs(map(ConfigResource.topic, topics), [MIN_ISR]) if topics else {}
    return {
        resource.name: int(entries[MIN_ISR].value or 1)
        for resource, entries in described.items()
        if not isinstance(entries, ApiError) and MIN_ISR in entries
    }


def show_topic(topic: Topic, partitions: Sequence[Partition], configs: Sequence[ConfigEntry], as_json: bool) -> None:
    if as_json:
        settings: dict[str, Json] = {each.name: each.value for each in configs}
        shown: list[Json] = [partition_fields(partition) for partition in partitions]
        print(json_line({**topic_fields(topic), "configs": settings, "partitions": shown}))
        return
    words = [
        topic.name,
        f"id {_id_text(topic.topic_id) or 'none'}",
        count_text(len(topic.partitions), "partition", "partitions"),
        f"replication factor {topic.replication_factor}",
    ]
    if topic.is_internal:
        words.append("internal")
    print("  ".join([*words, *(f"{each.name}={each.value}" for each in configs)]))
    for partition in partitions:
        print(f"  {'  '.join(_partition_words(partition))}")


def partition_fields(partition: Partition) -> dict[str, Json]:
    return {
        "partition": partition.partition,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline_replicas": list(partition.offline_replicas),
    }


def _partition_words(partition: Partition) -> Iterable[str]:
    yield f"partition {partition.partition}"
    yield f"leader {partition.leader_id}" if partition.leader_id >= 0 else "NO LEADER"
    yield f"replicas {','.join(map(str, partition.replicas))}"
    yield f"in sync {','.join(map(str, partition.isr)) or 'none'}"
    if partition.offline_replicas:
        yield f"OFFLINE {','.join(map(str, partition.offline_replicas))}"


# -- alter -------------------------------------------------------------------------------------------------------------


def _add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the topic")
    parser.add_argument("--partitions", type=int, metavar="N", help="the new number of partitions: more than now")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable"
    )
    parser.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="reset a setting to its default; repeatable"
    )
    remote.add_json_argument(parser, "one JSON document: what was changed")
    remote.add_arguments(parser)


def _alter(options: argparse.Namespace) -> ExitCode:
    settings = parse_settings(options.config)
    changes = config_changes(settings, options.delete_config)
    if options.partitions is None and not changes:
        raise CommandError(ExitCode.USAGE, "nothing to alter", "use --partitions, --config or --delete-config")

    async def work(admin: Admin) -> ExitCode:
        # The settings first: a wrong one is found before partitions are added, which nothing takes back.
        if changes:
            await admin.alter_config(ConfigResource.topic(options.name), changes)
        if options.partitions is not None:
            await admin.create_partitions(options.name, options.partitions)
        if options.json:
            print(
                json_line(
                    {
                        "topic": options.name,
                        "partitions": options.partitions,
                        "configs": dict[str, Json](settings),
                        "deleted_configs": list[Json](options.delete_config),
                    }
                )
            )
        else:
            print(f"altered {options.name}")
        return ExitCode.OK

    return remote.run(options, work)


def config_changes(settings: Mapping[str, str], deleted: Sequence[str]) -> list[ConfigChange]:
    if both := sorted(set(settings) & set(deleted)):
        raise CommandError(ExitCode.USAGE, f"{both[0]} is both set and deleted", "name it once")
    return [
        *(ConfigChange(name, ConfigOperation.SET, value) for name, value in settings.items()),
        *(ConfigChange(name, ConfigOperation.DELETE) for name in deleted),
    ]


# -- delete ------------------------------------------------------------------------------------------------------------


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a topic")
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    remote.add_json_argument(parser, "one JSON document per topic: name and whether it was deleted")
    remote.add_arguments(parser)


def _delete(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        outcomes = await admin.delete_topics(list(dict.fromkeys(options.names)))
        failures: list[ApiError] = []
        for name, error in outcomes.items():
            is_absent = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error is not None and not (is_absent and options.if_exists):
                failures.append(error)
            elif options.json:
                print(json_line({"topic": str(name), "deleted": error is None}))
            elif error is None:
                print(f"deleted {name}")
        return remote.report_failures(failures)

    return remote.run(options, work)


# -- all ---------------------------------------------------------------------------------------------------------------

COMMAND: Final = command_group(
    "topics",
    "create, list, describe, alter and delete topics",
    "Create, list, describe, alter and delete topics.",
    (
        Command(
            "create",
            "create a topic",
            "Create a topic. Defaults come from the broker's settings.",
            _add_create_arguments,
            _create,
        ),
        Command("list", "list all topics", "List all topics, one per line.", _add_list_arguments, _list),
        Command(
            "describe",
            "show partitions, replicas and settings",
            "Show the partitions of topics with their leaders and replicas, and settings that differ from the default.",
            _add_describe_arguments,
            _describe,
        ),
        Command(
            "alter",
            "add partitions, change settings",
            "Add partitions to a topic or change its settings. Added partitions change where keys go.",
            _add_alter_arguments,
            _alter,
        ),
        Command("delete", "delete topics", "Delete topics with all their records.", _add_delete_arguments, _delete),
    ),
)


def _warn(text: str) -> None:
    print(f"ottla: warning: {text}", file=sys.stderr)


def _id_text(topic_id: UUID) -> str | None:
    return None if topic_id == ZERO_TOPIC_ID else topic_id_text(topic_id)
