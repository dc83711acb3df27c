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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from ottla.client.arrow_columns import ArrowColumns, arrow_columns
from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError, TransactionAbortedError
from ottla.client.metadata import ClientOptions
from ottla.client.prepared import Prepared, end
from ottla.client.producer.columns import ColumnsFuture
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.client.retrying import UnknownTopicError
from ottla.errors import ApiError, ErrorCode, OttlaError, RecordsError
from ottla.net.client import ConnectionFailedError, ConnectionOptions
from ottla.records import codec
from ottla.spark.delivery.log import DecisionsError
from ottla.spark.delivery.tasks import Attempt, TaskTransactions
from ottla.spark.option_reader import OptionError
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
        return _write_all(client, options, _producer_of(client, options), chain([first], filled))


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
        producer = ClusterProducer(client.cluster, transaction, **_producer_settings(options))
        try:
            count = _write_all(client, options, producer, chain([first], filled))
        except BaseException:
            client.wait(producer.close(0))
            _abort(client, transaction)
            raise
        client.wait(producer.close())
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
            client = stack.enter_context(client_of(options))
        yield client


def _write_all(
    client: Blocking, options: SinkOptions, producer: ClusterProducer, batches: Iterable[pa.RecordBatch]
) -> int:
    task = _Task(client, options, producer)
    for batch in batches:
        task.add(batch)
    task.finish()
    return task.record_count


# With a client its producers go. Without one that is kept a task would begin with asking for a producer id.
_producers: WeakKeyDictionary[Blocking, _Producers] = WeakKeyDictionary()
_transactions: WeakKeyDictionary[Blocking, TaskTransactions] = WeakKeyDictionary()


class _Producers:
    """The producers over one client, by their settings."""

    def __init__(self) -> None:
        self._by_settings: dict[tuple[tuple[str, Any], ...], ClusterProducer] = {}

    def producer(self, client: Blocking, options: SinkOptions) -> ClusterProducer:
        settings = _producer_settings(options)
        key = tuple(settings.items())
        if key in self._by_settings and self._by_settings[key].has_failed:
            client.wait(self._by_settings.pop(key).close(0))
        if key not in self._by_settings:
            self._by_settings[key] = ClusterProducer(client.cluster, **settings)
        return self._by_settings[key]

    async def close(self) -> None:
        for producer in self._by_settings.values():
            await producer.close(0)


def _producer_of(client: Blocking, options: SinkOptions) -> ClusterProducer:
    if client not in _producers:
        _producers[client] = _Producers()
        client.close_with(_producers[client].close)
    return _producers[client].producer(client, options)


class _Task:
    """The rows of one task on their way."""

    def __init__(self, client: Blocking, options: SinkOptions, producer: ClusterProducer) -> None:
        self.record_count = 0
        self._client = client
        self._options = options
        self._producer = producer
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._collecting_since = 0.0
        self._sendings: deque[tuple[str, ColumnsFuture]] = deque()

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
            columns = {name: rows.column(index) for index, name in enumerate(rows.schema.names)}
            records = arrow_columns(
                columns["value"],
                timestamps=columns["timestamp"] if self._options.keeps_timestamps else int(time.time() * 1000),
                keys=columns.get("key"),
                headers=columns.get("headers"),
                partitions=columns.get("partition"),
                hashes_keys=self._options.hashes_keys,
            )
            self._sendings.append((topic, self._client.wait(self._begin(topic, records))))
        while len(self._sendings) > SENDINGS_MAX:
            self._wait_for_oldest()

    async def _begin(self, topic: str, records: ArrowColumns) -> ColumnsFuture:
        # A topic that is not there and is not created is said at once, not when `max.block.ms` is over.
        cluster = self._client.cluster
        await cluster.topic(topic, may_create=True)
        try:
            return await self._producer.send_records(topic, records)
        except UnknownTopicError:
            # A partition that rows name: it may have been added since this client, which outlives tasks, has looked.
            cluster.forget([topic])
            await cluster.topic(topic)
            return await self._producer.send_records(topic, records)

    def _wait_for_oldest(self) -> None:
        topic, sending = self._sendings.popleft()
        with _explained(self._options, topic):
            self._client.wait(_acknowledged(sending))


async def _acknowledged(sending: ColumnsFuture) -> None:
    await sending


def client_of(options: SinkOptions) -> AbstractContextManager[Blocking]:
    """The client of this process for what a sink writes."""
    return client_for(options.bootstrap_servers, client_options(options), options.security)


def client_options(options: SinkOptions) -> ClientOptions:
    return ClientOptions(
        connection=ConnectionOptions(
            client_id=options.client_id,
            connect_timeout_s=options.connect_timeout_ms / 1000,
            request_timeout_s=options.request_timeout_ms / 1000,
        ),
        timeout_s=options.block_ms_max / 1000,
    )


def _producer_settings(options: SinkOptions) -> dict[str, Any]:
    delivery_s = options.delivery_timeout_ms / 1000
    return {
        "acks": options.acks,
        "compression_type": options.compression,
        "enable_idempotence": options.is_idempotent,
        "batch_size": options.batch_bytes_max,
        "max_request_size": options.request_bytes_max,
        "metadata_max_age_s": options.metadata_age_ms_max / 1000,
        "delivery_timeout_s": delivery_s,
        "request_timeout_s": min(options.request_timeout_ms / 1000, delivery_s),
        # What a task has collected waits for room as long as it would wait for its acknowledgement.
        "max_block_s": delivery_s,
    }


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
    except (OptionError, DecisionsError):
        raise  # says what to change
    except (OttlaError, ValueError) as error:
        what = "cannot write" if topic is None else f"cannot write to the topic {topic}"
        raise WriteError(f"{what}: {error}. {_advice(error, options)}") from error


def _advice(error: OttlaError | ValueError, options: SinkOptions) -> str:
    cause: BaseException | None = error
    if isinstance(cause, TransactionAbortedError):
        cause = cause.__cause__ or cause
    if isinstance(cause, TimedOutError):
        cause = cause.cause
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
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Look at user and password in kafka.sasl.jaas.config, and at certificates.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set kafka.sasl.mechanism to one that the listener has.",
    ErrorCode.ILLEGAL_SASL_STATE: "Set kafka.security.protocol to that of the listener.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader: look after the brokers that hold it.",
}
