"""`ottla topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.cli import remote
from ottla.cli.arguments import parse_assignment, parse_settings, positive_number
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.places import PLACES_HELP, offsets_at, parse_place, ranges_of
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.table import Cell, Value, print_names, print_table
from ottla.cli.terminal import Style, note, warn
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
from ottla.ids import ZERO_TOPIC_ID, TopicPartition, topic_id_text
from ottla.runtime.clock import SystemClock

# A topic's own settings, and those that its brokers give it.
NOT_DEFAULT: Final = frozenset(
    {ConfigSource.TOPIC, ConfigSource.BROKER, ConfigSource.BROKER_DEFAULT, ConfigSource.STATIC}
)


# -- create ------------------------------------------------------------------------------------------------------------


def _add_create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the topic")
    parser.add_argument(
        "--partitions", type=positive_number, metavar="N", help="how many partitions (default: the broker's)"
    )
    parser.add_argument(
        "--replication-factor",
        type=positive_number,
        metavar="N",
        help="how many replicas of each (default: the broker's)",
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
        warn("metrics do not distinguish . and _ in topic names: use only one of the two")

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
    which = parser.add_mutually_exclusive_group()
    add_internal_argument(which)
    which.add_argument("--exclude-internal", action="store_true", help="with --json: leave out internal topics")
    remote.add_json_argument(
        parser, "one JSON document per topic, internal ones included: name, id, counts and whether it is internal"
    )
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata()
        is_internal_shown = options.internal or (options.json and not options.exclude_internal)
        topics = [topic for _, topic in sorted(view.topics.items()) if is_internal_shown or not topic.is_internal]
        if options.json:
            for topic in topics:
                print(json_line(topic_fields(topic)))
        else:
            print_names(
                ("TOPIC", "PARTITIONS", "REPLICAS"),
                ((topic.name, len(topic.partitions), topic.replication_factor) for topic in topics),
                if_empty="no topics; `ottla topics create NAME` creates one",
            )
        return ExitCode.OK

    return remote.run(options, work)


def add_internal_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--internal",
        action="store_true",
        help="show internal topics too, which brokers use for groups and transactions",
    )


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
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="a topic (default: all)")
    add_internal_argument(parser)
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
    asked = {
        "under-replicated": options.under_replicated,
        "at min ISR": options.at_min_isr,
        "under min ISR": options.under_min_isr,
        "offline": options.offline,
    }
    asks_for_some = any(asked.values())

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
        is_internal_shown = options.internal or options.names or options.json or asks_for_some
        shown = 0
        for name, topic in sorted(view.topics.items()):
            if topic.is_internal and not is_internal_shown:
                continue
            partitions = [each for each in topic.partitions if is_wanted(each, min_isr.get(name, 1))]
            if partitions:
                configs = (await admin.describe_config(ConfigResource.topic(name))).values()
                show_topic(topic, partitions, [each for each in configs if each.source in NOT_DEFAULT], options.json)
                shown += 1
        if not shown and not view.errors and not options.json:
            conditions = " or ".join(condition for condition, is_asked in asked.items() if is_asked)
            note(
                f"no partition is {conditions}"
                if asks_for_some
                else "no topics; `ottla topics create NAME` creates one"
            )
        return remote.report_failures(view.errors.values())

    return remote.run(options, work)


async def min_isr_of(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    """How many in-sync replicas each topic needs to be written; topics without a value are left out."""
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
    print_table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), map(_partition_row, partitions), indent="  ")


def partition_fields(partition: Partition) -> dict[str, Json]:
    return {
        "partition": partition.partition,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline_replicas": list(partition.offline_replicas),
    }


def _partition_row(partition: Partition) -> tuple[Value, ...]:
    in_sync = ",".join(map(str, partition.isr)) or "none"
    offline = ",".join(map(str, partition.offline_replicas))
    return (
        partition.partition,
        str(partition.leader_id) if partition.leader_id >= 0 else Cell("NONE", Style.BAD),
        ",".join(map(str, partition.replicas)),
        Cell(in_sync, Style.WARNING) if is_under_replicated(partition) else in_sync,
        Cell(offline, Style.BAD) if offline else None,
    )


# -- alter -------------------------------------------------------------------------------------------------------------


def _add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC", help="the topic")
    parser.add_argument(
        "--partitions", type=positive_number, metavar="N", help="the new number of partitions: more than now"
    )
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
    parser.add_argument("names", nargs="+", metavar="TOPIC", help="a topic")
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


# -- delete records ----------------------------------------------------------------------------------------------------


def _add_delete_records_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:0,2]", help="a topic, or some partitions of it")
    parser.add_argument(
        "--before", required=True, metavar="PLACE", help=f"delete what lies before this place: {PLACES_HELP}"
    )
    parser.add_argument("--execute", action="store_true", help="delete; without this, only show what would be deleted")
    remote.add_json_argument(
        parser, "one JSON document per partition: topic, partition, and first offset before and after"
    )
    remote.add_arguments(parser)


def _delete_records(options: argparse.Namespace) -> ExitCode:
    place = parse_place(options.before, SystemClock().now_ms())

    async def work(admin: Admin) -> ExitCode:
        partitions = await named_partitions(admin, options.topics)
        ranges = await ranges_of(admin, partitions)
        wanted = await offsets_at(admin, partitions, place)
        # What is beyond an end is the end: a shorter partition beside a longer one becomes empty.
        before = {partition: min(max(wanted[partition], begin), end) for partition, (begin, end) in ranges.items()}
        outcomes: dict[TopicPartition, int | ApiError] = dict(before)
        if options.execute:
            outcomes = await admin.delete_records(before)
        rows: list[tuple[Value, ...]] = []
        for partition, (begin, end) in ranges.items():
            after = outcomes[partition]
            if isinstance(after, ApiError):
                continue
            if options.json:
                fields: dict[str, Json] = {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "earliest": begin,
                    "new_earliest": after,
                    "latest": end,
                    "executed": options.execute,
                }
                print(json_line(fields))
            rows.append((str(partition), begin, after, end, max(0, after - begin)))
        if not options.json:
            print_table(("PARTITION", "EARLIEST", "NEW EARLIEST", "LATEST", "DELETED"), rows)
        if not options.execute:
            note("nothing was deleted; add --execute to delete")
        return remote.report_failures(each for each in outcomes.values() if isinstance(each, ApiError))

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
        Command(
            "delete-records",
            "delete the oldest records of topics",
            "Delete the records of topics before an offset or a time; the topics stay. Without --execute it only\n"
            "shows what it would delete.",
            _add_delete_records_arguments,
            _delete_records,
        ),
    ),
)


def _id_text(topic_id: UUID) -> str | None:
    return None if topic_id == ZERO_TOPIC_ID else topic_id_text(topic_id)
