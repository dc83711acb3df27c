"""`ottla produce`: standard input or files to a topic, one record per line."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.cli import remote
from ottla.cli.arguments import parse_headers
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.formats import BadLineError, JsonRecord, LineFormat, LineSplitter, parse_json_line, unescape
from ottla.cli.progress import Progress
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.standard_input import StandardInput
from ottla.cli.terminal import note
from ottla.client.admin.admin import Admin
from ottla.client.partitioning import RecordColumns
from ottla.client.producer.columns import AppendedRecords
from ottla.client.producer.producer import Producer
from ottla.records.layout import Compression

_ACKS: Final = ("all", "-1", "1", "0")
_NOT_ACKNOWLEDGED: Final = "0"
STANDARD_INPUT: Final = "-"
# A record may be as large as the topic takes it: what a broker refuses is its own affair.
REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024

DESCRIPTION: Final = """\
Send standard input, or files, to a topic, one record per line, without the line ends; bytes are sent as they
are. Input is sent as soon as it arrives; whatever arrives while a batch is in flight goes into the next one.
A record with a key goes to the partition that every Kafka client would choose for it."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic; created if the broker creates topics automatically")
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="what to send, in this order; - is standard input (default: -)"
    )
    parser.add_argument(
        "--delimiter",
        default="\\n",
        metavar="TEXT",
        help="the text that ends a record, with the escapes \\n \\t \\0 \\xNN (default: \\n)",
    )
    parser.add_argument("--whole", action="store_true", help="every file is one record, as it is")
    parser.add_argument(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="the text between key and value, with the same escapes (default: no keys)",
    )
    parser.add_argument(
        "--headers-separator",
        metavar="TEXT",
        help="every record begins with its headers, as name=value,name=value, and this text (default: no headers)",
    )
    parser.add_argument(
        "--header",
        "-H",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for every record; repeatable",
    )
    parser.add_argument("--null-marker", metavar="TEXT", help="the text that stands for a null key or value")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="every record is a JSON object with key, value, headers, timestamp and partition, all of them optional:"
        " what `ottla consume --json` writes",
    )
    parser.add_argument(
        "--partition", type=int, metavar="N", help="send all records to this partition, whatever their keys"
    )
    parser.add_argument(
        "--acks",
        choices=_ACKS,
        default="all",
        help="which replicas must have a record: all in sync, the leader, or none (default: all)",
    )
    parser.add_argument(
        "--compression",
        choices=[codec.name.lower() for codec in Compression],
        default="none",
        help="how batches are compressed (default: none)",
    )
    parser.add_argument(
        "--no-idempotence",
        action="store_true",
        help="send without sequence numbers: a record may be stored twice after a failure",
    )
    remote.add_json_argument(parser, "the summary as a JSON document on standard output")
    remote.add_arguments(parser)


@dataclass(eq=False, slots=True)
class _Summary:
    """What was sent so far."""

    started: float
    records: int = 0
    size_bytes: int = 0
    batches: int = 0
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)  # partition -> first and last offset

    def add(self, appended: Sequence[AppendedRecords]) -> None:
        for each in appended:
            self.records += each.record_count
            self.size_bytes += each.size_bytes
            self.batches += 1
            if each.base_offset >= 0:
                first = self.ends.get(each.partition, (each.base_offset, 0))[0]
                self.ends[each.partition] = (first, each.base_offset + each.record_count - 1)

    def report(self, topic: str, acks: str, *, as_json: bool) -> None:
        seconds = time.monotonic() - self.started
        if as_json:
            partitions: list[Json] = [
                {"partition": number, "first_offset": first, "last_offset": last}
                for number, (first, last) in sorted(self.ends.items())
            ]
            fields: dict[str, Json] = {
                "topic": topic,
                "records": self.records,
                "batches": self.batches,
                "size_bytes": self.size_bytes,
                "seconds": round(seconds, 3),
                "partitions": partitions,
            }
            print(json_line(fields))
            return
        where = f"{topic}, not acknowledged" if acks == _NOT_ACKNOWLEDGED else topic
        rate = self.records / seconds if seconds > 0 else 0
        print(
            f"{count_text(self.records, 'record', 'records')} to {where}: {self.size_bytes:,} bytes in"
            f" {count_text(self.batches, 'batch', 'batches')}, {seconds:.2f} s ({rate:,.0f} records/s)",
            file=sys.stderr,
        )


def _run(options: argparse.Namespace) -> ExitCode:
    record_format = _record_format(options)
    with contextlib.ExitStack() as files:
        # Opened before anything is sent: a wrong name among them should not be found half-way.
        inputs = [_Input(name, _opened(name, files)) for name in options.files or [STANDARD_INPUT]]
        if not options.files and sys.stdin.isatty():
            note("type records, one per line; Ctrl-D ends the input")

        async def work(admin: Admin) -> ExitCode:
            async with Producer(_producer_settings(options)) as producer:
                # Found out before a line is read: a wrong name should not swallow the input first.
                await producer.partitions_for(options.topic)
                if options.partition is not None:
                    (await admin.describe_topic(options.topic)).partition(options.partition)
                sending = _Sending(producer, options, record_format)
                try:
                    await sending.send_all(inputs)
                finally:
                    sending.summary.report(options.topic, options.acks, as_json=options.json)
            return ExitCode.OK

        return remote.run(options, work)


@dataclass(frozen=True, slots=True)
class _Input:
    """A file that is open, or standard input."""

    name: str
    file: int | None  # its descriptor; None is standard input

    @property
    def descriptor(self) -> int:
        return sys.stdin.fileno() if self.file is None else self.file


def _opened(name: str, files: contextlib.ExitStack) -> int | None:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise CommandError(ExitCode.USAGE, "standard input is closed", "name a file, or redirect one to it")
        return None
    descriptor = os.open(name, os.O_RDONLY)
    files.callback(os.close, descriptor)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise CommandError(ExitCode.USAGE, f"{name} is a directory", "name files")
    return descriptor


def _record_format(options: argparse.Namespace) -> LineFormat:
    for name in ("delimiter", "key_separator", "headers_separator"):
        if getattr(options, name) == "":
            option = f"--{name.replace('_', '-')}"
            raise CommandError(ExitCode.USAGE, f"{option} is empty", "give the text that ends this part of a record")
    if options.json_lines and (options.key_separator or options.headers_separator):
        raise CommandError(ExitCode.USAGE, "--json-lines has keys and headers of its own", "leave out the separators")
    return LineFormat(
        key_separator=None if options.key_separator is None else unescape(options.key_separator),
        headers_separator=None if options.headers_separator is None else unescape(options.headers_separator),
        null_marker=None if options.null_marker is None else _bytes(options.null_marker),
        headers=tuple((name, _bytes(value)) for name, value in parse_headers(options.header)),
    )


def _producer_settings(options: argparse.Namespace) -> dict[str, object]:
    return remote.client_settings(options) | {
        "acks": options.acks,
        "compression_type": options.compression,
        "enable_idempotence": options.acks in ("all", "-1") and not options.no_idempotence,
        "linger_s": 0,  # whatever arrives together is sent together
        "delivery_timeout_s": options.timeout,
        "max_block_s": options.timeout,
        "max_request_size": REQUEST_BYTES_MAX,
    }


def _bytes(text: str) -> bytes:
    """An argument as it was typed, also where it is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


class _Sending:
    """Lines on their way to a topic."""

    def __init__(self, producer: Producer[bytes, bytes], options: argparse.Namespace, lines: LineFormat) -> None:
        self.summary = _Summary(time.monotonic())
        self._producer = producer
        self._options = options
        self._lines = lines
        self._input_name = STANDARD_INPUT
        self._line_number = 1  # of the next line

    async def send_all(self, inputs: Sequence[_Input]) -> None:
        is_typed = any(os.isatty(each.descriptor) for each in inputs)
        with Progress(is_wanted=not is_typed) as progress:
            for each in inputs:
                self._input_name, self._line_number = each.name, 1
                source = StandardInput(each.descriptor)
                if self._options.whole:
                    await self._send([b"".join([chunk async for chunk in source.chunks()])])
                    continue
                splitter = LineSplitter(unescape(self._options.delimiter))
                async for chunk in source.chunks():
                    await self._send(splitter.feed(chunk))
                    progress.show(lambda: f"{self.summary.records:,} records sent")
                await self._send(splitter.end())

    async def _send(self, lines: list[bytes]) -> None:
        """Sends lines; a bad one ends it after those before it."""
        try:
            await self._send_sound(lines)
        except BadLineError as bad:
            await self._send_sound(lines[: bad.index])
            of_file = "" if self._input_name == STANDARD_INPUT else f"{self._input_name}, "
            raise CommandError(
                ExitCode.USAGE,
                f"{of_file}line {self._line_number}: {bad}; the lines before it were sent, this line and the rest were"
                " not",
                bad.hint,
            ) from bad

    async def _send_sound(self, lines: list[bytes]) -> None:
        if not lines:
            return
        now_ms = int(time.time() * 1000)
        if self._options.json_lines:
            parts = _by_partition([parse_json_line(index, line) for index, line in enumerate(lines)], now_ms)
        else:
            parts = {None: self._lines.parse(lines, now_ms)}
        for partition, records in parts.items():
            chosen = self._options.partition if self._options.partition is not None else partition
            sent = await self._producer.send_records(self._options.topic, records, chosen)
            self.summary.add(await sent)
        self._line_number += len(lines)


def _by_partition(records: Sequence[JsonRecord], now_ms: int) -> dict[int | None, RecordColumns]:
    """Records that name a partition go there; the others (None) where their keys say."""
    groups: dict[int | None, list[JsonRecord]] = {}
    for record in records:
        groups.setdefault(record.partition, []).append(record)
    return {
        partition: RecordColumns(
            values=[record.value for record in group],
            timestamps=[now_ms if record.timestamp is None else record.timestamp for record in group],
            keys=[record.key for record in group],
            headers=[record.headers for record in group],
        )
        for partition, group in groups.items()
    }


COMMAND: Final = Command("produce", "send standard input or files to a topic", DESCRIPTION, _add_arguments, _run)
