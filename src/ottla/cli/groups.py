"""`ottla groups`: list, describe and delete groups, and reset their committed offsets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.named_partitions import named_partitions
from ottla.cli.places import offsets_at, parse_place, ranges_of
from ottla.cli.render import Json, count_text, json_line
from ottla.client import groups
from ottla.client.groups import CommittedOffset, GroupDescription, GroupMember
from ottla.client.metadata import Cluster
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

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
    async def work(cluster: Cluster) -> ExitCode:
        for each in await groups.list_groups(cluster, options.state, options.type):
            if options.json:
                fields: dict[str, Json] = {
                    "group": each.group_id,
                    "state": each.state,
                    "type": each.group_type,
                    "protocol_type": each.protocol_type,
                }
                print(json_line(fields))
            else:
                print(each.group_id)
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
    async def work(cluster: Cluster) -> ExitCode:
        names = list(dict.fromkeys(options.names))
        if not names:
            names = [each.group_id for each in await groups.list_groups(cluster)]
        failures = []
        for described in (await groups.describe_groups(cluster, names)).values():
            if isinstance(described, ApiError):
                failures.append(described)
                continue
            progress = await _progress(cluster, described)
            if options.json:
                print(json_line(_description_fields(described, progress)))
            else:
                print(_headline(described))
                lines = _member_lines(described) if options.members else _progress_lines(described, progress)
                for line in lines:
                    print(f"  {line}")
        return remote.report_failures(failures)

    return remote.run(options, work)


class Progress:
    """How far a group is in one partition; None for what is not known: it never committed, or the topic is gone."""

    __slots__ = ("committed", "end_offset", "owner")

    def __init__(self, committed: CommittedOffset | None, end_offset: int | None, owner: GroupMember | None) -> None:
        self.committed = committed
        self.end_offset = end_offset
        self.owner = owner

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


async def _progress(cluster: Cluster, group: GroupDescription) -> dict[TopicPartition, Progress]:
    """Every partition that the group has committed or is assigned."""
    committed = await groups.committed_offsets(cluster, group.group_id)
    owners = {partition: member for member in group.members for partition in member.partitions or ()}
    partitions = sorted({*committed, *owners})
    ends = await _end_offsets(cluster, partitions)
    return {
        partition: Progress(committed.get(partition), ends.get(partition), owners.get(partition))
        for partition in partitions
    }


async def _end_offsets(cluster: Cluster, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Where the partitions end, those that still exist."""
    view = await cluster.refresh(sorted({partition.topic for partition in partitions}))
    there = [
        partition
        for partition in partitions
        if partition.topic in view.topics and partition.partition < len(view.topics[partition.topic].partitions)
    ]
    return await offsets_at(cluster, there, parse_place("latest")) if there else {}


def _headline(group: GroupDescription) -> str:
    words = [group.group_id, group.state, group.group_type]
    if group.protocol_type and group.protocol_type != groups.CONSUMER:
        words.append(f"protocol {group.protocol_type}")
    if group.assignor:
        words.append(f"assignor {group.assignor}")
    words += [count_text(len(group.members), "member", "members"), f"coordinator {group.coordinator}"]
    return "  ".join(words)


def _progress_lines(group: GroupDescription, progress: Mapping[TopicPartition, Progress]) -> Iterable[str]:
    for partition, each in progress.items():
        words = [
            str(partition),
            "no offset" if each.committed is None else f"offset {each.committed.offset:,}",
            "no such partition" if each.end_offset is None else f"end {each.end_offset:,}",
        ]
        if each.lag is not None:
            words.append(f"lag {each.lag:,}")
        if each.owner is not None:
            words += [f"member {each.owner.member_id}", f"host {each.owner.host}"]
        yield "  ".join(words)


def _member_lines(group: GroupDescription) -> Iterable[str]:
    for member in group.members:
        words = [member.member_id]
        if member.instance_id is not None:
            words.append(f"instance {member.instance_id}")
        words += [f"client {member.client_id}", f"host {member.host}"]
        if member.partitions is not None:
            words.append(f"partitions {', '.join(map(str, sorted(member.partitions))) or 'none'}")
        yield "  ".join(words)


def _description_fields(group: GroupDescription, progress: Mapping[TopicPartition, Progress]) -> dict[str, Json]:
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
            "leader_epoch": None if each.committed is None else each.committed.leader_epoch,
            "metadata": None if each.committed is None else each.committed.metadata,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "member": None if each.owner is None else each.owner.member_id,
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


# -- delete ------------------------------------------------------------------------------------------------------------


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="GROUP", help="a group")
    parser.add_argument("--if-exists", action="store_true", help="ignore groups that do not exist")
    remote.add_json_argument(parser, "one JSON document per group: name and whether it was deleted")
    remote.add_arguments(parser)


def _delete(options: argparse.Namespace) -> ExitCode:
    async def work(cluster: Cluster) -> ExitCode:
        failures: list[ApiError] = []
        for name, error in (await groups.delete_groups(cluster, list(dict.fromkeys(options.names)))).items():
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
        help="an offset, -N for the last N records, earliest, latest, or @TIME with milliseconds since 1970 or"
        " 2026-01-31T12:00:00 in UTC",
    )
    where.add_argument("--shift-by", type=int, metavar="N", help="N records forward, or back with -N")
    parser.add_argument("--execute", action="store_true", help="make the change; without this it is only shown")
    remote.add_json_argument(parser, "one JSON document per partition: topic, partition, offset and new offset")
    remote.add_arguments(parser)


def _reset(options: argparse.Namespace) -> ExitCode:
    place = None if options.to is None else parse_place(options.to)

    async def work(cluster: Cluster) -> ExitCode:
        name = options.group
        await _check_is_idle(cluster, name)
        committed = await groups.committed_offsets(cluster, name)
        partitions = sorted(committed) if options.all_topics else await named_partitions(cluster, options.topic)
        if not partitions:
            raise CommandError(ExitCode.NOT_FOUND, f"the group {name} has no committed offsets", "name a --topic")
        if place is not None:
            wanted = await offsets_at(cluster, partitions, place)
        else:
            wanted = _shifted(name, committed, partitions, options.shift_by)
        ranges = await ranges_of(cluster, partitions)
        new = {partition: min(max(wanted[partition], begin), end) for partition, (begin, end) in ranges.items()}
        if options.execute:
            await groups.commit_offsets(cluster, name, new)
        for partition, offset in new.items():
            _show_reset(options, partition, committed.get(partition), offset)
        if not options.execute:
            print("ottla: nothing was changed; add --execute to make the change", file=sys.stderr)
        return ExitCode.OK

    return remote.run(options, work)


async def _check_is_idle(cluster: Cluster, name: str) -> None:
    """Members would continue from their own positions, and commit over the new offsets."""
    described = (await groups.describe_groups(cluster, [name]))[name]
    if isinstance(described, ApiError):
        if described.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise described
    elif described.members:
        members = count_text(len(described.members), "member", "members")
        raise CommandError(
            ExitCode.REFUSED,
            f"the group {name} has {members}, which would continue from their own positions",
            f"stop them first; `ottla groups describe {name} --members` shows them",
        )


def _shifted(
    name: str, committed: Mapping[TopicPartition, CommittedOffset], partitions: Sequence[TopicPartition], steps: int
) -> dict[TopicPartition, int]:
    for partition in partitions:
        if partition not in committed:
            raise CommandError(
                ExitCode.NOT_FOUND,
                f"the group {name} has no committed offset in {partition} to shift",
                "use --to, or leave out the partition",
            )
    return {partition: committed[partition].offset + steps for partition in partitions}


def _show_reset(
    options: argparse.Namespace, partition: TopicPartition, committed: CommittedOffset | None, new_offset: int
) -> None:
    if options.json:
        fields: dict[str, Json] = {
            "group": options.group,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": None if committed is None else committed.offset,
            "new_offset": new_offset,
            "executed": options.execute,
        }
        print(json_line(fields))
    else:
        before = "no offset" if committed is None else f"offset {committed.offset:,}"
        print(f"{partition}  {before}  new offset {new_offset:,}")


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
