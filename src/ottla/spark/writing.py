"""Rows of a task into topics: what the sink does on an executor.

Arrow batches are collected until they are worth sending, split by topic, and given to a producer, which is kept for the
next task of this process. A task ends when all its records are acknowledged. While brokers work on some the next ones
are encoded, and what is not acknowledged is bounded: a task that is ahead of its brokers waits for them.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from ottla.client.arrow_columns import arrow_columns
from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions
from ottla.client.prepared import Prepared, end
from ottla.client.producing import Acks, BatchProducer, ProducerOptions, Sending
from ottla.client.retrying import UnknownTopicError
from ottla.errors import ApiError, ErrorCode, OttlaError, RecordsError
from ottla.net.client import ConnectionFailedError, ConnectionOptions
from ottla.records import codec
from ottla.records.layout import Compression
from ottla.spark.delivery.tasks import Attempt, TaskTransactions
from ottla.spark.workers import client_for

if TYPE_CHECKING:
    from ottla.spark.sink_options import SinkOptions

_log = logging.getLogger(__name__)

COLLECTED_BYTES: Final = 4 * 1024 * 1024  # rows of about this size are split by partition and sent together
SENDINGS_MAX: Final = 4  # that many of them may be without acknowledgement


class WriteError(OttlaError):
    """Rows could not be written. The task fails, and Spark tries it again as often as it tries tasks."""


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes all rows and returns how many there were, once all are acknowledged."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0  # many tasks of a query have nothing to write, and need no connection for it
    with _client(options) as client:
        return _write_all(client, options, _producer_of(client, _producer_options(options)), chain([first], filled))


def write_in_transaction(
    options: SinkOptions, attempt: Attempt, batches: Iterator[pa.RecordBatch]
) -> tuple[int, Prepared | None]:
    """Writes all rows in a transaction that is left open; None where there is nothing to write, or it was decided."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0, None
    with _client(options) as client:
        transactions = _transactions.setdefault(client, TaskTransactions())
        with _explained(options, None):
            begun = transactions.begin(client.cluster, attempt, options.decisions_topic, options.transaction_timeout_ms)
            transaction = client.wait(begun)
        if transaction is None:
            return 0, None
        producer = BatchProducer(client.cluster, _producer_options(options), transaction=transaction)
        try:
            count = _write_all(client, options, _KeptProducer(producer), chain([first], filled))
        except BaseException:
            _abort(client, transaction)
            raise
        transactions.keep(attempt, transaction)
        return count, transaction


def _abort(client: Blocking, transaction: Prepared) -> None:
    """At once where it can be done; else the driver sweeps it up."""
    try:
        client.wait(end(client.cluster, transaction, commits=False))
    except OttlaError as error:
        _log.warning("the transaction of a failed task is left to the driver: %s", error)


@contextmanager
def _client(options: SinkOptions) -> Iterator[Blocking]:
    with ExitStack() as stack:
        with _explained(options, None):
            client = stack.enter_context(client_for(options.bootstrap_servers, client_options(options)))
        yield client


def _write_all(client: Blocking, options: SinkOptions, kept: _KeptProducer, batches: Iterable[pa.RecordBatch]) -> int:
    task = _Task(client, options, kept)
    for batch in batches:
        task.add(batch)
    task.finish()
    return task.record_count


class _KeptProducer:
    """A producer, and when what it knows of a topic is too old."""

    def __init__(self, producer: BatchProducer) -> None:
        self.producer = producer
        self.stale_at: dict[str, float] = {}


# With a client its producers go. Without one that is kept a task would begin with asking for a producer id.
_producers: WeakKeyDictionary[Blocking, dict[ProducerOptions, _KeptProducer]] = WeakKeyDictionary()
_transactions: WeakKeyDictionary[Blocking, TaskTransactions] = WeakKeyDictionary()


def _producer_of(client: Blocking, options: ProducerOptions) -> _KeptProducer:
    of_client = _producers.setdefault(client, {})
    if options not in of_client or of_client[options].producer.has_failed:
        of_client[options] = _KeptProducer(BatchProducer(client.cluster, options))
    return of_client[options]


class _Task:
    """The rows of one task on their way."""

    def __init__(self, client: Blocking, options: SinkOptions, kept: _KeptProducer) -> None:
        self.record_count = 0
        self._client = client
        self._options = options
        self._kept = kept
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._collecting_since = 0.0
        self._sendings: deque[tuple[str, Sending]] = deque()

    def add(self, batch: pa.RecordBatch) -> None:
        now = time.monotonic()
        if not self._collected:
            self._collecting_since = now
        self._collected.append(batch)
        self._collected_bytes += batch.nbytes
        is_late = now - self._collecting_since >= self._options.linger_ms / 1000
        if self._collected_bytes >= COLLECTED_BYTES or is_late:
            self._send_collected()

    def finish(self) -> None:
        """Sends the rest and waits for everything."""
        if self._collected:
            self._send_collected()
        while self._sendings:
            self._wait_for_oldest()

    def _send_collected(self) -> None:
        rows = _together(self._collected)
        self._collected, self._collected_bytes = [], 0
        self.record_count += rows.num_rows
        for topic, of_topic in self._by_topic(rows):
            self._send(topic, of_topic)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            return [(self._options.topic, rows)]
        names = rows.column(rows.schema.get_field_index("topic"))
        if names.null_count:
            raise WriteError(
                "a row has null in its column `topic`: give every row a topic, or set the option topic for all rows"
            )
        encoded = names.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            return [(topics[0], rows)]
        groups = codec.group_rows(encoded.indices.buffers()[1], len(topics))
        return [(topics[number], rows.take(_row_numbers(numbers))) for number, numbers in groups]

    def _send(self, topic: str, rows: pa.RecordBatch) -> None:
        with _explained(self._options, topic):
            self._forget_stale(topic)
            columns = {name: rows.column(index) for index, name in enumerate(rows.schema.names)}
            records = arrow_columns(
                columns["value"],
                timestamps=int(time.time() * 1000),
                keys=columns.get("key"),
                headers=columns.get("headers"),
                partitions=columns.get("partition"),
                hashes_keys=self._options.hashes_keys,
            )
            self._sendings.append((topic, self._client.wait(self._kept.producer.send(topic, records))))
        while len(self._sendings) > SENDINGS_MAX:
            self._wait_for_oldest()

    def _wait_for_oldest(self) -> None:
        topic, sending = self._sendings.popleft()
        with _explained(self._options, topic):
            self._client.wait(sending.appended())

    def _forget_stale(self, topic: str) -> None:
        """New partitions of a topic are to be used sometime, though nothing fails without them."""
        now = time.monotonic()
        if self._kept.stale_at.get(topic, 0.0) <= now:
            self._client.cluster.forget([topic])
            self._kept.stale_at[topic] = now + self._options.metadata_age_ms_max / 1000


def client_options(options: SinkOptions) -> ClientOptions:
    return ClientOptions(
        connection=ConnectionOptions(
            client_id=options.client_id,
            connect_timeout_s=options.connect_timeout_ms / 1000,
            request_timeout_s=options.request_timeout_ms / 1000,
        ),
        timeout_s=options.block_ms_max / 1000,
    )


def _producer_options(options: SinkOptions) -> ProducerOptions:
    return ProducerOptions(
        acks=Acks(options.acks),
        compression=Compression[options.compression.upper()],
        is_idempotent=options.is_idempotent,
        batch_bytes_max=options.batch_bytes_max,
        request_bytes_max=options.request_bytes_max,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
    )


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of all; a column is copied once, and a record never looked at."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _row_numbers(numbers: memoryview) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers) // 4, [None, pa.py_buffer(numbers)])


# -- what to do about it -----------------------------------------------------------------------------------------------


@contextmanager
def _explained(options: SinkOptions, topic: str | None) -> Iterator[None]:
    """Turns an error of the client into one that says what could not be written, why, and what to try."""
    try:
        yield
    except (OttlaError, ValueError) as error:
        what = "cannot write" if topic is None else f"cannot write to the topic {topic}"
        raise WriteError(f"{what}: {error}. {_advice(error, options)}") from error


def _advice(error: OttlaError | ValueError, options: SinkOptions) -> str:
    cause = error.cause if isinstance(error, TimedOutError) else error
    if isinstance(cause, ConnectionFailedError):
        return (
            f"Is a broker at {options.bootstrap_servers} (kafka.bootstrap.servers), and can this machine reach it and"
            " its advertised addresses (advertised.listeners)?"
        )
    if isinstance(cause, (RecordsError, ValueError)):
        return "Every header needs a key: look at the column `headers`."
    if isinstance(cause, UnknownTopicError) and "partition" in str(cause):
        return "Look at the column `partition`, or remove it to let the key decide."
    code = cause.code if isinstance(cause, ApiError) else None
    return _ADVICE.get(code, "Acknowledged records stay written; Spark writes the rest when it retries the task.")


_ADVICE: Final[dict[ErrorCode | None, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or have the brokers do so (auto.create.topics.enable).",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The name of a topic has letters, digits, dots, underscores and hyphens only.",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "A record is larger than the topic allows: raise its max.message.bytes, compress with kafka.compression.type,"
        " or make the value smaller."
    ),
    ErrorCode.INVALID_RECORD: "A compacted topic takes records with a key only: look for nulls in the column `key`.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Too few replicas are in sync (min.insync.replicas): look after the other brokers.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader: look after the brokers that hold it.",
}
