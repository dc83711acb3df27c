"""`ottla consume`: the records of a topic to standard output."""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.formats import FORMAT_HELP, RenderBatch, compile_format, render_json
from ottla.cli.places import Kind, Place, offsets_at, offsets_of, parse_place, ranges_of
from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.fetching import OffsetOutOfRangeError
from ottla.client.offsets import Isolation, OffsetSpec
from ottla.ids import TopicPartition
from ottla.records.layout import Columns

FORMAT_DEFAULT: Final = "%v\\n"
NULL_DEFAULT: Final = "null"
POLL_S: Final = 1.0
END_LOOK_S: Final = 0.1  # a topic may end with what nobody sees, such as the marker of a transaction
RECORDS_AT_ONCE_MAX: Final = 100_000

DESCRIPTION: Final = """\
Write the records of a topic to standard output, by default one value per line, starting with new records
and ending with Ctrl-C. --from-beginning or --offset starts earlier; --exit stops at what is the end of the
topic when the command starts. Records of one partition are written in order; the order between partitions
is not defined."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument(
        "--partition", type=int, action="append", metavar="N", help="only this partition; repeatable (default: all)"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start with the first record: --offset earliest")
    start.add_argument(
        "--offset",
        metavar="PLACE",
        help="where to start in each partition: an offset, -N for the last N records, earliest, latest, or @TIME with"
        " milliseconds since 1970 or 2026-01-31T12:00:00 in UTC (default: latest)",
    )
    parser.add_argument("--exit", action="store_true", help="stop at the end of the topic")
    parser.add_argument("--max-messages", type=int, metavar="N", help="end after N records")
    parser.add_argument(
        "--format",
        default=FORMAT_DEFAULT,
        metavar="FORMAT",
        help=f"how a record is written (default: {FORMAT_DEFAULT.replace('%', '%%')}): {FORMAT_HELP};"
        " \\n \\t \\xNN as in C",
    )
    parser.add_argument(
        "--null-marker",
        default=NULL_DEFAULT,
        metavar="TEXT",
        help=f"the text to write for a null key or value (default: {NULL_DEFAULT})",
    )
    parser.add_argument(
        "--isolation",
        choices=[level.name.lower() for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.name.lower(),
        help="whether to show records of open and aborted transactions (default: read_uncommitted)",
    )
    remote.add_json_argument(parser, "one JSON document per record with everything it contains, instead of --format")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    place = parse_place("earliest" if options.from_beginning else options.offset or "latest")
    null = options.null_marker.encode("utf-8", "surrogateescape")
    render = render_json if options.json else compile_format(options.format, null)
    if options.max_messages is not None and options.max_messages < 0:
        raise CommandError(ExitCode.USAGE, f"--max-messages {options.max_messages}", "name 0 or more")
    isolation = Isolation[options.isolation.upper()]

    async def work(admin: Admin) -> ExitCode:
        topic = await admin.describe_topic(options.topic)
        numbers = options.partition or [partition.partition for partition in topic.partitions]
        partitions = [TopicPartition(options.topic, topic.partition(number).partition) for number in numbers]
        start = await _start_offsets(admin, partitions, place, isolation)
        end = await offsets_of(admin, partitions, OffsetSpec.LATEST, isolation) if options.exit else {}
        async with Consumer(
            remote.client_settings(options), isolation_level=options.isolation, auto_offset_reset="none"
        ) as consumer:
            consumer.assign(partitions)
            for partition, offset in start.items():
                consumer.seek(partition, offset)
            await _write(consumer, end, render, sys.stdout.buffer, options.max_messages)
        return ExitCode.OK

    return remote.run(options, work)


async def _write(
    consumer: Consumer[bytes, bytes],
    ends: Mapping[TopicPartition, int],
    render: RenderBatch,
    out: BinaryIO,
    records_max: int | None,
) -> None:
    """Until every partition is at its end, if there are ends, or so many records are written."""
    left = records_max
    open_ends = dict(ends)
    while left != 0:
        for partition, end in list(open_ends.items()):
            if await consumer.position(partition) >= end:
                del open_ends[partition]
        if ends and not open_ends:
            return
        fetched = await consumer.take_batches(END_LOOK_S if ends else POLL_S, RECORDS_AT_ONCE_MAX)
        for batch in fetched:
            columns = _before(batch.columns(), ends.get(batch.partition))
            if left is not None:
                columns = _first(columns, left)
                left -= len(columns.values)
            out.write(render(batch.partition, columns))
        if fetched:
            out.flush()


def _before(columns: Columns, end: int | None) -> Columns:
    """Without what was written after the command had started."""
    if end is None or not columns.offsets or columns.offsets[-1] < end:
        return columns
    return _first(columns, bisect_left(columns.offsets, end))


def _first(columns: Columns, count: int) -> Columns:
    offsets, timestamps, keys, values, headers = columns
    return Columns(offsets[:count], timestamps[:count], keys[:count], values[:count], headers[:count])


async def _start_offsets(
    admin: Admin, partitions: Sequence[TopicPartition], place: Place, isolation: Isolation
) -> Mapping[TopicPartition, int]:
    if place.kind is Kind.OFFSET:
        ranges = await ranges_of(admin, partitions, isolation)
        for partition, (begin, end) in ranges.items():
            # Asked now: with --exit, a partition that ends before the offset would look as if it were read.
            if not begin <= place.number <= end:
                raise OffsetOutOfRangeError(partition, place.number, begin, end)
    return await offsets_at(admin, partitions, place, isolation)


COMMAND: Final = Command(
    "consume", "write the records of a topic to standard output", DESCRIPTION, _add_arguments, _run
)
