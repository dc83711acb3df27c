"""`ottla transactions`: list and describe transactions, and abort one that its producer does not end."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, count_text, json_line, time_text
from ottla.cli.table import Value, print_table
from ottla.client.admin.admin import Admin
from ottla.client.admin.transactions import OpenTransaction, TransactionDescription
from ottla.errors import ApiError
from ottla.ids import NO_TIMESTAMP, TopicPartition

NO_TIMEOUT_MS: Final = 2**31 - 1

# -- list --------------------------------------------------------------------------------------------------------------


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only transactional ids in this state; repeatable"
    )
    parser.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=int,
        metavar="ID",
        help="only transactional ids of this producer; repeatable",
    )
    parser.add_argument(
        "--longer-than",
        type=int,
        default=-1,
        metavar="MS",
        help="only transactions that have been open for longer than this many milliseconds",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="only transactional ids that match the whole expression")
    parser.add_argument(
        "--hanging",
        action="store_true",
        help="search partitions for open transactions that no coordinator will end; see --topic",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="with --hanging: only this topic; repeatable"
    )
    remote.add_json_argument(parser, "one JSON document per transactional id: id, state, producer and coordinator")
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    if options.topic and not options.hanging:
        raise CommandError(ExitCode.USAGE, "--topic is for --hanging only", "transactional ids do not belong to topics")

    async def work(admin: Admin) -> ExitCode:
        if options.hanging:
            hanging = await _find_hanging(admin, options.topic)
            if options.json:
                for open_one in hanging:
                    print(json_line(_open_fields(open_one)))
            else:
                titles = ("PARTITION", "START OFFSET", "PRODUCER", "EPOCH", "LAST WRITTEN")
                print_table(titles, map(_open_row, hanging), if_empty="no hanging transactions")
            return ExitCode.OK
        found = await admin.list_transactions(
            states=options.state,
            producer_ids=options.producer_id,
            longer_than_ms=options.longer_than,
            pattern=options.pattern,
        )
        if options.json:
            for each in found:
                fields: dict[str, Json] = {
                    "transactional_id": each.transactional_id,
                    "state": each.state,
                    "producer_id": each.producer_id,
                    "coordinator": each.coordinator,
                }
                print(json_line(fields))
        else:
            print_table(
                ("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"),
                ((each.transactional_id, each.state, str(each.producer_id), str(each.coordinator)) for each in found),
                if_empty="no transactional ids",
            )
        return ExitCode.OK

    return remote.run(options, work)


async def _find_hanging(admin: Admin, topics: list[str]) -> list[OpenTransaction]:
    view = await admin.metadata(topics or None)
    names = topics or sorted(view.topics)
    partitions = [TopicPartition(name, each.partition) for name in names for each in view.topic(name).partitions]
    return await admin.hanging_transactions(partitions)


def _open_fields(found: OpenTransaction) -> dict[str, Json]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_timestamp_ms": found.last_timestamp_ms,
    }


def _open_row(found: OpenTransaction) -> tuple[Value, ...]:
    return (
        str(found.partition),
        found.start_offset,
        str(found.producer_id),
        str(found.producer_epoch),
        time_text(found.last_timestamp_ms),
    )


def _open_line(found: OpenTransaction) -> str:
    return (
        f"{found.partition}  open since offset {found.start_offset:,}  producer {found.producer_id} epoch "
        f"{found.producer_epoch}  last written {time_text(found.last_timestamp_ms)}"
    )


# -- describe ----------------------------------------------------------------------------------------------------------


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="TRANSACTIONAL_ID", help="a transactional id")
    remote.add_json_argument(
        parser, "one JSON document per transactional id: state, producer, timeout, start and partitions"
    )
    remote.add_arguments(parser)


def _describe(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        failures = []
        for described in (await admin.describe_transactions(dict.fromkeys(options.names))).values():
            if isinstance(described, ApiError):
                failures.append(described)
            elif options.json:
                print(json_line(_description_fields(described)))
            else:
                _show(described)
        return remote.report_failures(failures)

    return remote.run(options, work)


def _description_fields(described: TransactionDescription) -> dict[str, Json]:
    partitions: list[Json] = [
        {"topic": partition.topic, "partition": partition.partition} for partition in described.partitions
    ]
    return {
        "transactional_id": described.transactional_id,
        "coordinator": described.coordinator,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": None if described.timeout_ms == NO_TIMEOUT_MS else described.timeout_ms,
        "start_ms": None if described.start_ms == NO_TIMESTAMP else described.start_ms,
        "partitions": partitions,
    }


def _show(described: TransactionDescription) -> None:
    words = [
        described.transactional_id,
        described.state,
        f"producer {described.producer_id} epoch {described.producer_epoch}",
        "no timeout" if described.timeout_ms == NO_TIMEOUT_MS else f"timeout {described.timeout_ms:,} ms",
        f"coordinator {described.coordinator}",
    ]
    if described.partitions:
        words.append(f"began {time_text(described.start_ms)}")
        words.append(count_text(len(described.partitions), "partition", "partitions"))
    print("  ".join(words))
    for partition in described.partitions:
        print(f"  {partition}")


# -- abort -------------------------------------------------------------------------------------------------------------


def _add_abort_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="TRANSACTIONAL_ID", help="abort its open transaction, and fence its producer"
    )
    hanging = parser.add_argument_group("a hanging transaction, as `ottla transactions list --hanging` shows it")
    hanging.add_argument("--topic", metavar="TOPIC", help="its topic")
    hanging.add_argument("--partition", type=int, metavar="NUMBER", help="its partition")
    hanging.add_argument("--start-offset", type=int, metavar="OFFSET", help="where it begins")
    remote.add_json_argument(parser, "one JSON document: what was aborted")
    remote.add_arguments(parser)


def _abort(options: argparse.Namespace) -> ExitCode:
    place = (options.topic, options.partition, options.start_offset)
    if (options.name is None) == (place == (None, None, None)):
        raise CommandError(
            ExitCode.USAGE,
            "give either a transactional id or the place of a hanging transaction",
            "a place is --topic, --partition and --start-offset",
        )
    if options.name is None and None in place:
        raise CommandError(ExitCode.USAGE, "--topic, --partition and --start-offset belong together")

    async def work(admin: Admin) -> ExitCode:
        if options.name is not None:
            return await _abort_id(admin, options)
        return await _abort_hanging(admin, options)

    return remote.run(options, work)


async def _abort_id(admin: Admin, options: argparse.Namespace) -> ExitCode:
    was_open = await admin.abort_transaction(options.name)
    if options.json:
        print(json_line({"transactional_id": options.name, "aborted": was_open}))
    else:
        print(f"{options.name}: {'aborted' if was_open else 'no transaction is open'}")
    return ExitCode.OK


async def _abort_hanging(admin: Admin, options: argparse.Namespace) -> ExitCode:
    partition = TopicPartition(options.topic, options.partition)
    found = await admin.open_transactions([partition])
    at_place = [each for each in found if each.start_offset == options.start_offset]
    if not at_place:
        raise CommandError(
            ExitCode.NOT_FOUND,
            f"{partition} has no open transaction that begins at offset {options.start_offset}",
            "`ottla transactions list --hanging` shows hanging transactions",
        )
    (hanging,) = at_place
    await admin.abort_open_transaction(hanging)
    print(json_line({**_open_fields(hanging), "aborted": True}) if options.json else f"{_open_line(hanging)}  aborted")
    return ExitCode.OK


COMMAND: Final = command_group(
    "transactions",
    "list, describe and abort transactions",
    "List and describe transactions, and abort those that are not ended otherwise.",
    (
        Command(
            "list",
            "list transactional ids with their states",
            "List the transactional ids of all brokers, one per line, with state and producer.\n\n"
            "With --hanging: transactions that are open in partitions and unknown to every coordinator. Consumers\n"
            "with read_committed wait for them for ever; `ottla transactions abort` ends them.",
            _add_list_arguments,
            _list,
        ),
        Command(
            "describe",
            "show state, producer and partitions",
            "Show transactional ids: state, producer, timeout, and the partitions of the open transaction.",
            _add_describe_arguments,
            _describe,
        ),
        Command(
            "abort",
            "abort an open transaction",
            "Abort the open transaction of a transactional id, or a hanging transaction in a partition.",
            _add_abort_arguments,
            _abort,
        ),
    ),
)
