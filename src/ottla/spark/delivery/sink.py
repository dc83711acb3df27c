"""`delivery=exactly-once`: what the sink's writers do with it, on executors and on the driver.

Spark tells a writer neither its query nor its batch. A task finds both in the properties of its job, and its message
brings them to the driver. A batch write has none: each call of `save` is a query of its own, unless
`ottla.spark.write_batch` has named the batch of the stream that it belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.client import prepared
from ottla.client.blocking import Blocking
from ottla.errors import OttlaError
from ottla.spark import writing
from ottla.spark.compat import BATCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY
from ottla.spark.delivery.commits import Commits, warn_of_timeouts
from ottla.spark.delivery.decision import Writer
from ottla.spark.delivery.messages import PreparedWrite, prepared_writes
from ottla.spark.delivery.tasks import Attempt
from ottla.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

ONLY_BATCH: Final = 0  # of a batch write, which is a query of one batch


def write_stream_task(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
    """A task of a streaming query."""
    context = _context()
    query, batch, run = map(context.getLocalProperty, (QUERY_PROPERTY, BATCH_PROPERTY, RUN_PROPERTY))
    if query is None or batch is None:
        raise writing.WriteError(
            "this Spark does not tell a task which query and batch it belongs to, which delivery=exactly-once needs: "
            "write at least once, or use a release of Spark that Ottla was tested with"
        )
    return _write(options, Writer(query, run or query), int(batch), batches)


def write_batch_task(options: SinkOptions, own: Writer, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
    """A task of a batch write; `own` is whose it is where it belongs to no batch of a stream."""
    if options.batch is None:
        return _write(options, own, ONLY_BATCH, batches)
    return _write(options, Writer(options.batch.scope, options.batch.run), options.batch.batch_id, batches)


def _write(options: SinkOptions, writer: Writer, batch_id: int, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
    context = _context()
    attempt = Attempt(writer, batch_id, context.partitionId(), context.attemptNumber())
    record_count, transaction = writing.write_in_transaction(options, attempt, batches)
    return PreparedWrite(writer, batch_id, attempt.partition_id, attempt.attempt_number, record_count, transaction)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


# -- on the driver -----------------------------------------------------------------------------------------------------


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Decides the batch of these messages and ends its transactions."""
    writes = prepared_writes(messages)
    if not writes:
        return  # a batch without tasks
    writer, batch_id = writes[0].writer, writes[0].batch_id
    _run(options, lambda commits: commits.commit(writer, batch_id, writes))


def abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Aborts what the tasks have written, as far as it can be done now: the error that led here is what matters."""
    writes = prepared_writes(messages)
    if not writes:
        return
    writer, batch_id = writes[0].writer, writes[0].batch_id
    try:
        _run(options, lambda commits: commits.abort(writer, batch_id, writes))
    except (OttlaError, TimeoutError) as error:
        _log.warning("transactions of a failed batch are left to the next run of the query: %s", error)


# With a client go what it has open. Queries that share a client may differ in these two options.
_commits: WeakKeyDictionary[Blocking, dict[tuple[str, bool], Commits]] = WeakKeyDictionary()


def _run(options: SinkOptions, work: Callable[[Commits], Coroutine[Any, Any, None]]) -> None:
    with writing.client_of(options) as client:
        if not client.wait(prepared.has_two_phase(client.cluster)):
            warn_of_timeouts(options.transaction_timeout_ms)
        of_client = _commits.setdefault(client, {})
        key = options.decisions_topic, options.fail_on_data_loss
        if key not in of_client:
            of_client[key] = Commits(client.cluster, key[0], fail_on_data_loss=key[1])
        client.wait(work(of_client[key]))
