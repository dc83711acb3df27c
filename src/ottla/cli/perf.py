"""`ottla perf`: how many records a second go through, and how long each takes, with our own clients."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.cli import remote
from ottla.cli.arguments import positive_number, record_size
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.progress import Progress
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.values import RecordMetadata
from ottla.ids import TopicPartition
from ottla.records.layout import Compression

RECORDS_DEFAULT: Final = 100_000
SIZE_DEFAULT: Final = 100
IDLE_S_DEFAULT: Final = 10.0
SAMPLES_MAX: Final = 500_000  # latencies that are kept: every nth of more
AT_ONCE_MAX: Final = 500  # records that are sent before others get their turn
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
MEGABYTE: Final = 1_000_000


@dataclass(slots=True)
class Latencies:
    """How long things took, in seconds: the average and the maximum of all, the rest of a sample."""

    sample_every: int = 1
    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0
    sample: array[float] = field(default_factory=lambda: array("d"))

    def add(self, seconds: float) -> None:
        if self.count % self.sample_every == 0:
            self.sample.append(seconds)
        self.count += 1
        self.sum_s += seconds
        self.max_s = max(self.max_s, seconds)

    def milliseconds(self) -> dict[str, float]:
        """By name, in the order of a table."""
        found = {"average": self.sum_s / self.count if self.count else 0.0}
        found |= {f"p{percent:g}": value for percent, value in zip(PERCENTILES, self._percentiles(), strict=True)}
        return {name: round(seconds * 1000, 3) for name, seconds in (found | {"max": self.max_s}).items()}

    def _percentiles(self) -> Sequence[float]:
        ordered = sorted(self.sample)
        if not ordered:
            return [0.0] * len(PERCENTILES)
        return [ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] for percent in PERCENTILES]


@dataclass(slots=True)
class Measured:
    """What went through in a run."""

    noun: str  # what is timed
    latencies: Latencies
    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / MEGABYTE / self.seconds if self.seconds else 0.0

    def report(self, options: argparse.Namespace) -> None:
        times = self.latencies.milliseconds()
        if options.json:
            fields: dict[str, Json] = {
                "topic": options.topic,
                "records": self.records,
                "size_bytes": self.size_bytes,
                "seconds": round(self.seconds, 3),
                "records_per_s": round(self.records_per_s, 1),
                "megabytes_per_s": round(self.megabytes_per_s, 3),
                f"{self.noun}_ms": dict[str, Json](times),
            }
            print(json_line(fields))
            return
        print(
            f"{self.records:,} records, {self.size_bytes:,} bytes in {self.seconds:.2f} s:"
            f" {self.records_per_s:,.0f} records/s, {self.megabytes_per_s:,.2f} MB/s"
        )
        print_table(["MILLISECONDS", *(name.upper() for name in times)], [[self.noun, *times.values()]])


# -- produce -----------------------------------------------------------------------------------------------------------


def _add_produce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic; its records are kept")
    parser.add_argument(
        "--records",
        type=positive_number,
        default=RECORDS_DEFAULT,
        metavar="N",
        help=f"how many records to send (default: {RECORDS_DEFAULT})",
    )
    parser.add_argument(
        "--record-size",
        type=record_size,
        default=SIZE_DEFAULT,
        metavar="BYTES",
        help=f"the size of each value (default: {SIZE_DEFAULT})",
    )
    parser.add_argument(
        "--throughput", type=positive_number, metavar="N", help="at most N records a second (default: as many as go)"
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="which replicas (default: all)")
    parser.add_argument(
        "--compression",
        choices=[codec.name.lower() for codec in Compression],
        default="none",
        help="how batches are compressed (default: none)",
    )
    parser.add_argument(
        "--linger-ms", type=float, default=5.0, metavar="MS", help="how long a batch waits to be filled (default: 5)"
    )
    parser.add_argument(
        "--batch-size",
        type=positive_number,
        default=16384,
        metavar="BYTES",
        help="the size of a batch (default: 16384)",
    )
    remote.add_json_argument(parser, "one JSON document: records, bytes, seconds, rates and latencies")
    remote.add_arguments(parser)


def _produce(options: argparse.Namespace) -> ExitCode:
    settings = remote.client_settings(options) | {
        "acks": options.acks,
        "enable_idempotence": options.acks == "all",
        "compression_type": options.compression,
        "linger_s": options.linger_ms / 1000,
        "batch_size": options.batch_size,
        "delivery_timeout_s": max(options.timeout, options.linger_ms / 1000 + options.timeout),
        "max_block_s": options.timeout,
        "max_request_size": max(1024 * 1024, options.batch_size + options.record_size + 1024),
    }

    async def work(admin: Admin) -> ExitCode:
        async with Producer(settings) as producer:
            await producer.partitions_for(options.topic)
            measured = await _send_all(producer, options)
        measured.report(options)
        return ExitCode.OK

    return remote.run(options, work)


async def _send_all(producer: Producer[bytes, bytes], options: argparse.Namespace) -> Measured:
    # The same bytes in every run: letters, which compress as text does.
    payload = bytes(random.Random(1).choices(range(ord("A"), ord("Z") + 1), k=options.record_size))
    measured = Measured("latency", Latencies(max(1, options.records // SAMPLES_MAX)))
    failures: list[BaseException] = []
    clock = time.monotonic
    begin = clock()

    def send_one() -> None:
        sent_at = clock()

        def delivered(metadata: RecordMetadata | None, error: BaseException | None) -> None:
            if error is not None:
                failures.append(error)
                return
            measured.latencies.add(clock() - sent_at)
            measured.records += 1
            measured.size_bytes += options.record_size

        producer.send(options.topic, payload, on_delivery=delivered)

    with Progress() as progress:
        sent = 0
        while sent < options.records and not failures:
            allowed = _allowed(options, clock() - begin)
            for _ in range(min(AT_ONCE_MAX, allowed - sent, options.records - sent)):
                send_one()
                sent += 1
            await producer.room()
            # What has been sent needs the loop to get away; where nothing may be sent now, it waits for its time.
            await asyncio.sleep(1 / options.throughput if options.throughput and allowed <= sent else 0)
            progress.show(lambda: f"{measured.records:,} of {options.records:,} records")
        await producer.flush()
    measured.seconds = clock() - begin
    if failures:
        raise failures[0]
    return measured


def _allowed(options: argparse.Namespace, seconds: float) -> int:
    """How many records may have been sent by now."""
    return options.records if options.throughput is None else int(options.throughput * seconds) + 1


# -- consume -----------------------------------------------------------------------------------------------------------


def _add_consume_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument(
        "--records",
        type=positive_number,
        default=RECORDS_DEFAULT,
        metavar="N",
        help=f"how many records to read, from the beginning on (default: {RECORDS_DEFAULT})",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=IDLE_S_DEFAULT,
        metavar="SECONDS",
        help=f"end if no record comes for so long (default: {IDLE_S_DEFAULT:g})",
    )
    remote.add_json_argument(parser, "one JSON document: records, bytes, seconds, rates and the times of polls")
    remote.add_arguments(parser)


def _consume(options: argparse.Namespace) -> ExitCode:
    settings = remote.client_settings(options) | {"auto_offset_reset": "earliest"}

    async def work(admin: Admin) -> ExitCode:
        topic = await admin.describe_topic(options.topic)
        async with Consumer(settings) as consumer:
            consumer.assign([TopicPartition(options.topic, each.partition) for each in topic.partitions])
            consumer.seek_to_beginning()
            measured = await _read_all(consumer, options)
        measured.report(options)
        if measured.records < options.records:
            raise CommandError(
                ExitCode.TIMED_OUT,
                f"no record came for {options.idle:g} s after {measured.records:,} of {options.records:,}",
                "write more with `ottla perf produce`, or ask for fewer with --records",
            )
        return ExitCode.OK

    return remote.run(options, work)


async def _read_all(consumer: Consumer[bytes, bytes], options: argparse.Namespace) -> Measured:
    measured = Measured("poll", Latencies())
    clock = time.monotonic
    begin = last_at = clock()
    with Progress() as progress:
        while measured.records < options.records and clock() - last_at < options.idle:
            before = clock()
            records = await consumer.take(min(options.idle, 1.0), options.records - measured.records)
            if not records:
                continue
            last_at = clock()
            measured.latencies.add(last_at - before)
            measured.records += len(records)
            measured.size_bytes += sum(len(each.key or b"") + len(each.value or b"") for each in records)
            progress.show(lambda: f"{measured.records:,} of {options.records:,} records")
    measured.seconds = last_at - begin  # without the time that was waited in vain
    return measured


COMMAND: Final = command_group(
    "perf",
    "measure throughput and latency",
    "Measure how many records a second a broker takes and gives, with the clients of this library. Numbers depend on\n"
    "this machine as much as on the broker: one process here sends or reads.",
    (
        Command(
            "produce",
            "send records and time their acknowledgements",
            "Send records of random letters to a topic, and show how many a second were acknowledged, and how long\n"
            "that took: on average, at percentiles and at most. A latency is the time from sending a record to its\n"
            "acknowledgement, and includes the time in which it waits for its batch.",
            _add_produce_arguments,
            _produce,
        ),
        Command(
            "consume",
            "read records and time the polls",
            "Read records of a topic from the beginning on, without a group, and show how many a second were read.",
            _add_consume_arguments,
            _consume,
        ),
    ),
)
