"""`ottla consume`: the records of topics to standard output."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import BinaryIO, Final

from ottla.cli import decoding, remote
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.decoding import Decoding, decoding_of, is_json
from ottla.cli.formats import FORMAT_HELP, RenderBatch, compile_format, json_renderer
from ottla.cli.output import while_read
from ottla.cli.places import PLACES_HELP, Kind, Place, offsets_at, offsets_of, parse_place, ranges_of
from ottla.cli.progress import Progress
from ottla.cli.terminal import note, warn
from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.fetching import FetchedBatch, OffsetOutOfRangeError
from ottla.client.offsets import Isolation, OffsetSpec
from ottla.ids import TopicPartition
from ottla.records.layout import Columns
from ottla.runtime.clock import SystemClock

FORMAT_DEFAULT: Final = "%v\\n"
NULL_DEFAULT: Final = "null"
POLL_S: Final = 1.0
END_LOOK_S: Final = 0.1  # a topic may end with what nobody sees, such as the marker of a transaction
COMMIT_EVERY_S: Final = 1.0
RECORDS_AT_ONCE_MAX: Final = 100_000

DESCRIPTION: Final = """\
Write the records of topics to standard output, by default one value per line, starting with new records
and ending with Ctrl-C. --from starts elsewhere; --to and --exit end it. With --group, the members of a group
share the partitions, start where the group has committed, and commit what they have written. Records of one
partition are written in order; the order between partitions is not defined."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic")
    parser.add_argument(
        "--pattern", metavar="REGEX", help="all topics whose whole name matches, instead of names; not internal ones"
    )
    parser.add_argument(
        "--partition", type=int, action="append", metavar="N", help="only this partition; repeatable (default: all)"
    )
    parser.add_argument("--group", "-g", metavar="GROUP", help="read as a member of this group, and commit offsets")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start with the first record: --from earliest")
    start.add_argument(
        "--from",
        "--offset",
        "-o",
        dest="start",
        metavar="PLACE",
        help=f"where to start in each partition: {PLACES_HELP} (default: latest; with --group, what it has committed)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="PLACE",
        help="end before this place in each partition, written like --from;"
        " one that does not reach so far yet is waited for, unless --exit is given",
    )
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--exit", action="store_true", help="end at what is the end of each partition now")
    until.add_argument(
        "--follow", "-f", action="store_true", help="wait for new records; that is so unless --exit is given"
    )
    parser.add_argument("--max-messages", "-n", type=int, metavar="N", help="end after N records")
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
    decoding.add_arguments(parser)
    parser.add_argument(
        "--isolation",
        choices=[level.name.lower() for level in Isolation],
        default=Isolation.READ_UNCOMMITTED.name.lower(),
        help="whether to show records of open and aborted transactions (default: read_uncommitted)",
    )
    remote.add_json_argument(parser, "one JSON document per record with everything it contains, instead of --format")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    _check(options)
    now_ms = SystemClock().now_ms()
    start = None if options.start is None else parse_place(options.start, now_ms)
    if options.from_beginning:
        start = Place(Kind.SPEC, OffsetSpec.EARLIEST)
    end = None if options.end is None else _end_place(options.end, now_ms)
    reset = _reset_of(options, start) if options.group is not None else "none"
    render = _renderer(options)
    decode = decoding_of(options)

    async def work(admin: Admin) -> ExitCode:
        topics = await _topics(admin, options)
        isolation = Isolation[options.isolation.upper()]
        partitions = await _partitions(admin, topics, options.partition)
        ends = await _end_offsets(admin, partitions, end, options.exit, isolation)
        settings = remote.client_settings(options) | {
            "isolation_level": options.isolation,
            "auto_offset_reset": reset,
            "enable_auto_commit": False,
            **({} if options.group is None else {"group_id": options.group}),
        }
        async with Consumer(settings) as consumer:
            writing = _Writing(consumer, render, decode, sys.stdout.buffer, options.max_messages, ends)
            if options.group is not None:
                pattern = None if options.pattern is None else re.compile(f"(?:{options.pattern})\\Z")
                names = None if pattern is not None else topics
                consumer.subscribe(names, pattern=pattern, on_revoked=writing.commit_these, on_lost=writing.forget)
                await writing.write_and_commit()
            else:
                if start is None and (options.exit or end is not None):
                    note("it starts with new records, and ends before them; --from-beginning reads what is there")
                consumer.assign(partitions)
                place = start or Place(Kind.SPEC, OffsetSpec.LATEST)
                for partition, offset in (await writing.start_offsets(admin, partitions, place, isolation)).items():
                    consumer.seek(partition, offset)
                await writing.write()
        return ExitCode.OK

    return remote.run(options, lambda admin: while_read(work(admin)))


# -- what was asked for ------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> None:
    if bool(options.topics) == (options.pattern is not None):
        raise CommandError(ExitCode.USAGE, "what to read was not given", "name topics, or give --pattern")
    if options.group is not None and options.partition:
        raise CommandError(
            ExitCode.USAGE, "a group shares partitions out by itself", "leave out --partition or --group"
        )
    if options.max_messages is not None and options.max_messages < 0:
        raise CommandError(ExitCode.USAGE, f"--max-messages {options.max_messages}", "name 0 or more")
    if options.pattern is not None:
        try:
            re.compile(options.pattern)
        except re.error as error:
            raise CommandError(
                ExitCode.USAGE, f"--pattern {options.pattern!r}: {error}", "write a regular expression, such as order.*"
            ) from error


def _end_place(text: str, now_ms: int) -> Place:
    place = parse_place(text, now_ms)
    if place.kind is Kind.TIME and place.number > now_ms:
        raise CommandError(ExitCode.USAGE, f"--to {text} is in the future", "leave it out, and end with Ctrl-C")
    return place


def _reset_of(options: argparse.Namespace, start: Place | None) -> str:
    """Where a group starts in partitions in which it has not committed."""
    if start is None or start == Place(Kind.SPEC, OffsetSpec.LATEST):
        return "latest"
    if start == Place(Kind.SPEC, OffsetSpec.EARLIEST):
        return "earliest"
    raise CommandError(
        ExitCode.USAGE,
        "a group starts at its committed offsets, and where it has none at earliest or latest",
        f"`ottla groups reset {options.group}` sets them elsewhere",
    )


def _renderer(options: argparse.Namespace) -> RenderBatch:
    if options.json:
        return json_renderer(is_key_json=is_json(options.key_format), is_value_json=is_json(options.value_format))
    return compile_format(options.format, options.null_marker.encode("utf-8", "surrogateescape"))


async def _topics(admin: Admin, options: argparse.Namespace) -> list[str]:
    if options.pattern is None:
        return list(dict.fromkeys(options.topics))
    view = await admin.metadata(None)
    found = [name for name, topic in view.topics.items() if not topic.is_internal]
    matching = sorted(name for name in found if re.fullmatch(options.pattern, name))
    if not matching and options.group is None:  # a group waits for topics to come
        raise CommandError(
            ExitCode.NOT_FOUND, f"no topic matches {options.pattern!r}", "`ottla topics list` shows the topics"
        )
    return matching


async def _partitions(admin: Admin, topics: Sequence[str], numbers: Sequence[int] | None) -> list[TopicPartition]:
    found = []
    for name in topics:
        topic = await admin.describe_topic(name)
        wanted = numbers or [partition.partition for partition in topic.partitions]
        found += [TopicPartition(name, topic.partition(number).partition) for number in wanted]
    return found


async def _end_offsets(
    admin: Admin, partitions: Sequence[TopicPartition], end: Place | None, exits: bool, isolation: Isolation
) -> Mapping[TopicPartition, int]:
    """Where reading ends; nothing where it does not."""
    ends = {} if end is None else await offsets_at(admin, partitions, end, isolation)
    if not exits:
        return ends
    now = await offsets_of(admin, partitions, OffsetSpec.LATEST, isolation)
    return {partition: min(offset, ends.get(partition, offset)) for partition, offset in now.items()}


# -- records, on their way to the output -------------------------------------------------------------------------------


class _Writing:
    """Owns how many records are left to be written, and up to where each partition has been."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        render: RenderBatch,
        decode: Decoding,
        out: BinaryIO,
        records_max: int | None,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._consumer = consumer
        self._render = render
        self._decode = decode
        self._out = out
        self._left = records_max
        self._ends = ends
        self._ended: set[TopicPartition] = set()
        self._starts: dict[TopicPartition, int] = {}
        self._count = 0
        self._written: dict[TopicPartition, int] = {}  # and not committed
        self._commits = False
        self._commit_at = 0.0

    async def start_offsets(
        self, admin: Admin, partitions: Sequence[TopicPartition], place: Place, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        """Where to start. An offset that a partition does not have is an error only if none of them has it."""
        if place.kind is not Kind.OFFSET:
            return await offsets_at(admin, partitions, place, isolation)
        ranges = await ranges_of(admin, partitions, isolation)
        outside = [each for each, (begin, end) in ranges.items() if not begin <= place.number <= end]
        if outside and len(outside) == len(partitions):
            # Named is the one that comes nearest: others may be empty, which is not the reason.
            nearest = min(outside, key=lambda each: min(abs(place.number - edge) for edge in ranges[each]))
            raise OffsetOutOfRangeError(nearest, place.number, *ranges[nearest], others=len(outside) - 1)
        for partition in outside:
            begin, end = ranges[partition]
            where = f"begins at offset {begin:,}" if place.number < begin else f"ends at offset {end:,}"
            warn(f"{partition} {where}: it has no offset {place.number:,}")
        # Records that a shorter partition gets until it reaches the offset are before it, and left out.
        self._starts = dict.fromkeys(outside, place.number)
        return {partition: min(max(place.number, begin), end) for partition, (begin, end) in ranges.items()}

    async def write_and_commit(self) -> None:
        """Commits from time to time, and in the end, however that comes."""
        self._commits = True
        try:
            await self.write()
        finally:
            await self.commit_these(list(self._written))

    async def write(self) -> None:
        """Until every partition is at its end, if there are ends, or the limit of records is reached."""
        with Progress(is_wanted=_is_file(self._out)) as progress:
            while self._left != 0 and not await self._is_at_end():
                batches = await self._consumer.take_batches(END_LOOK_S if self._ends else POLL_S, RECORDS_AT_ONCE_MAX)
                await self._write(batches)
                progress.show(lambda: f"{self._count:,} records")
                if self._commits and time.monotonic() >= self._commit_at:
                    self._commit_at = time.monotonic() + COMMIT_EVERY_S
                    await self.commit_these(list(self._written))

    async def _is_at_end(self) -> bool:
        if not self._ends:
            return False
        assigned = self._consumer.assignment()
        for partition in assigned - self._ended:
            end = self._ends.get(partition)
            if end is None or await self._consumer.position(partition) >= end:
                self._ended.add(partition)
        return bool(assigned) and assigned <= self._ended

    async def _write(self, batches: Iterable[FetchedBatch]) -> None:
        """Writes batches, and notes what was written once that is certain."""
        written: dict[TopicPartition, int] = {}
        for batch in batches:
            partition = batch.partition
            columns = _between(batch.columns(), self._starts.get(partition), self._ends.get(partition))
            if self._left is not None:
                columns = _slice(columns, 0, self._left)
                self._left -= len(columns.values)
            if columns.offsets:
                self._out.write(self._render(partition, await self._decode.columns(partition, columns)))
                self._count += len(columns.offsets)
                written[partition] = columns.offsets[-1] + 1
        if written:
            self._out.flush()
            self._written |= written

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Another member has these already, and commits them."""
        for partition in partitions:
            self._written.pop(partition, None)

    async def commit_these(self, partitions: Collection[TopicPartition]) -> None:
        """Commits what was written of these; a group calls it before it gives them to another member."""
        offsets = {each: self._written.pop(each) for each in partitions if each in self._written}
        if offsets:
            await self._consumer.commit(offsets)


def _is_file(out: BinaryIO) -> bool:
    """Whether records go where they do not disturb a line of progress."""
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:
        return False


def _between(columns: Columns, start: int | None, end: int | None) -> Columns:
    """The records with offsets in `[start, end)`."""
    first = 0 if start is None else bisect_left(columns.offsets, start)
    last = len(columns.offsets) if end is None else bisect_left(columns.offsets, end)
    return _slice(columns, first, last)


def _slice(columns: Columns, first: int, last: int) -> Columns:
    if first == 0 and last >= len(columns.offsets):
        return columns
    offsets, timestamps, keys, values, headers = columns
    return Columns(
        offsets[first:last], timestamps[first:last], keys[first:last], values[first:last], headers[first:last]
    )


COMMAND: Final = Command("consume", "write the records of topics to standard output", DESCRIPTION, _add_arguments, _run)
