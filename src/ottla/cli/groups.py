"""`ottla groups`: list, describe and delete groups, and reset their committed offsets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.places import PLACES_HELP, offsets_at, parse_place
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.table import Cell, Value, print_names, print_table
from ottla.cli.terminal import Style, note
from ottla.client.admin.admin import Admin
from ottla.client.admin.group_offsets import NoCommittedOffsetError, OffsetReset, PartitionLag
from ottla.client.admin.groups import CONSUMER, GroupDescription
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.runtime.clock import SystemClock

# -- list --------------------------------------------------------------------------------------------------------------


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only groups in this state; repeatable"
    )
    parser.add_argument(
        "--type", action="append", default=[], metavar="TYPE", help="only groups of this type; repeatable"
    )
    remote.add_json_argument(parser, "one JSON document per group: name, state, type and protocol")
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        found = await admin.list_groups(states=options.state, types=options.type)
        if options.json:
            for each in found:
                fields: dict[str, Json] = {
                    "group": each.group_id,
                    "state": each.state,
                    "type": each.group_type,
                    "protocol_type": each.protocol_type,
                }
                print(json_line(fields))
        else:
            print_names(
                ("GROUP", "STATE", "TYPE"),
                ((each.group_id, each.state, each.group_type) for each in found),
                if_empty="no groups",
            )
        return ExitCode.OK

    return remote.run(options, work)


# -- describe ----------------------------------------------------------------------------------------------------------


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="GROUP", help="a group (default: all)")
    parser.add_argument("--members", action="store_true", help="show the members instead of the partitions")
    remote.add_json_argument(
        parser, "one JSON document per group: state, members, and offset and lag of each partition"
    )
    remote.add_arguments(parser)


def _describe(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        names = list(dict.fromkeys(options.names))
        if not names:
            names = [each.group_id for each in await admin.list_groups()]
        failures = []
        for described in (await admin.describe_groups(names)).values():
            if isinstance(described, ApiError):
                failures.append(described)
                continue
            progress = await admin.lag(described.group_id)
            if options.json:
                print(json_line(_description_fields(described, progress)))
            else:
                print(_headline(described))
                if options.members:
                    print_table(MEMBER_TITLES, _member_rows(described), indent="  ")
                else:
                    print_table(PROGRESS_TITLES, _progress_rows(described, progress), indent="  ")
        if not names and not options.json:
            note("no groups")
        return remote.report_failures(failures)

    return remote.run(options, work)


def _headline(group: GroupDescription) -> str:
    words = [group.group_id, group.state, group.group_type]
    if group.protocol_type and group.protocol_type != CONSUMER:
        words.append(f"protocol {group.protocol_type}")
    if group.assignor:
        words.append(f"assignor {group.assignor}")
    words += [count_text(len(group.members), "member", "members"), f"coordinator {group.coordinator}"]
    return "  ".join(words)


PROGRESS_TITLES: Final = ("PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST")
MEMBER_TITLES: Final = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")


def _progress_rows(
    group: GroupDescription, progress: Mapping[TopicPartition, PartitionLag]
) -> Iterator[tuple[Value, ...]]:
    hosts = {member.member_id: member.host for member in group.members}
    for partition, each in progress.items():
        yield (
            str(partition),
            None if each.committed is None else each.committed.offset,
            Cell("no such partition", Style.BAD) if each.end_offset is None else each.end_offset,
            None if each.lag is None else Cell(each.lag, Style.WARNING if each.lag else Style.GOOD),
            each.member_id,
            None if each.member_id is None else hosts.get(each.member_id),
        )


def _member_rows(group: GroupDescription) -> Iterator[tuple[Value, ...]]:
    for member in group.members:
        partitions = None if member.partitions is None else " ".join(map(str, sorted(member.partitions)))
        yield (member.member_id, member.instance_id, member.client_id, member.host, partitions or None)


def _description_fields(group: GroupDescription, progress: Mapping[TopicPartition, PartitionLag]) -> dict[str, Json]:
    members: list[Json] = [
        {
            "member": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": None
            if member.partitions is None
            else [{"topic": topic, "partition": number} for topic, number in sorted(member.partitions)],
        }
        for member in group.members
    ]
    partitions: list[Json] = [
        {
            "topic": topic,
            "partition": number,
            "offset": None if each.committed is None else each.committed.offset,
            "leader_epoch": None if each.committed is None else _epoch(each.committed.leader_epoch),
            "metadata": None if each.committed is None else each.committed.metadata,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "member": each.member_id,
        }
        for (topic, number), each in progress.items()
    ]
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": members,
        "partitions": partitions,
    }


def _epoch(leader_epoch: int | None) -> int:
    return -1 if leader_epoch is None else leader_epoch


# -- delete ------------------------------------------------------------------------------------------------------------


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="GROUP", help="a group")
    parser.add_argument("--if-exists", action="store_true", help="ignore groups that do not exist")
    remote.add_json_argument(parser, "one JSON document per group: name and whether it was deleted")
    remote.add_arguments(parser)


def _delete(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        failures: list[ApiError] = []
        for name, error in (await admin.delete_groups(list(dict.fromkeys(options.names)))).items():
            is_absent = error is not None and error.code is ErrorCode.GROUP_ID_NOT_FOUND
            if error is not None and not (is_absent and options.if_exists):
                failures.append(error)
            elif options.json:
                print(json_line({"group": name, "deleted": error is None}))
            elif error is None:
                print(f"deleted {name}")
        return remote.report_failures(failures)

    return remote.run(options, work)


# -- reset -------------------------------------------------------------------------------------------------------------


def _add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="a group without members")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:N,...]",
        help="a topic, or some of its partitions, such as orders:0,2; repeatable",
    )
    which.add_argument(
        "--all-topics", action="store_true", help="every partition in which the group has a committed offset"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to",
        metavar="PLACE",
        help=PLACES_HELP,
    )
    where.add_argument("--shift-by", type=int, metavar="N", help="N records forward, or back with -N")
    parser.add_argument("--execute", action="store_true", help="make the change; without this it is only shown")
    remote.add_json_argument(parser, "one JSON document per partition: topic, partition, offset and new offset")
    remote.add_arguments(parser)


def _reset(options: argparse.Namespace) -> ExitCode:
    place = None if options.to is None else parse_place(options.to, SystemClock().now_ms())

    async def work(admin: Admin) -> ExitCode:
        name = options.group
        if options.all_topics:
            partitions = sorted(await admin.committed_offsets(name))
        else:
            partitions = await named_partitions(admin, options.topic)
        if not partitions:
            raise CommandError(ExitCode.NOT_FOUND, f"the group {name} has no committed offsets", "name a --topic")
        offsets = None if place is None else await offsets_at(admin, partitions, place)
        try:
            resets = await admin.reset_offsets(
                name,
                offsets=offsets,
                shift_by=options.shift_by,
                partitions=partitions,
                dry_run=not options.execute,
            )
        except NoCommittedOffsetError as error:
            raise CommandError(ExitCode.NOT_FOUND, str(error), "use --to, or leave out the partition") from error
        if options.json:
            for partition, reset in resets.items():
                print(json_line(_reset_fields(options, partition, reset)))
        else:
            rows = ((str(partition), reset.before, reset.after) for partition, reset in resets.items())
            print_table(("PARTITION", "OFFSET", "NEW OFFSET"), rows)
        if not options.execute:
            note("nothing was changed; add --execute to make the change")
        return ExitCode.OK

    return remote.run(options, work)


def _reset_fields(options: argparse.Namespace, partition: TopicPartition, reset: OffsetReset) -> dict[str, Json]:
    return {
        "group": options.group,
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": reset.before,
        "new_offset": reset.after,
        "executed": options.execute,
    }


# -- all ---------------------------------------------------------------------------------------------------------------

COMMAND: Final = command_group(
    "groups",
    "list, describe, delete and reset groups",
    "List, describe and delete groups, and reset their committed offsets.",
    (
        Command("list", "list all groups", "List all groups, one per line.", _add_list_arguments, _list),
        Command(
            "describe",
            "show state, members, offsets and lag",
            "Show the state of groups and, for each partition, the committed offset, the end, the lag and its member.",
            _add_describe_arguments,
            _describe,
        ),
        Command(
            "delete",
            "delete groups",
            "Delete groups without members, with all their offsets.",
            _add_delete_arguments,
            _delete,
        ),
        Command(
            "reset",
            "reset the committed offsets of a group",
            "Set the committed offsets of a group without members. Without --execute it only shows what it would do.\n"
            "An offset outside its partition becomes the nearest one inside.",
            _add_reset_arguments,
            _reset,
        ),
    ),
)
