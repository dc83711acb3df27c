"""Records column by column: lists, NumPy or Arrow, partitioned and encoded without a Python object per record.

    future = await producer.send_columns("orders", values, keys=keys)
    appended = await future

Columns become batches that are full from the start, in the same queues as single records: order, idempotence,
transactions and the bounds of memory are the same. Arrow and NumPy need the extra `arrow`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.error_codes import MessageTooLargeError
from ottla.client.errors import SerializationError, TimedOutError, UsageError
from ottla.client.metadata import Topic
from ottla.client.partitioning import RecordColumns, Records
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.deliveries import Delivery, settled, wait_until_settled
from ottla.client.producer.partitioners import Keyless, Murmur2, Partitioner
from ottla.client.producer.preparation import as_pairs
from ottla.client.serializers.extras import extra
from ottla.records.layout import HEADER_BYTES

# Kafka's `message.max.bytes` is 1 MiB and a little; a batch of this size is taken by default.
BATCH_BYTES_DEFAULT: Final = 1_000_000
BYTES_TYPES: Final = {bytes, bytearray, memoryview, type(None)}


class AppendedRecords(NamedTuple):
    """A batch of columns that a broker took; the offset is -1 where it did not say."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    size_bytes: int  # as it was sent


class ColumnsFuture:
    """What became of columns: `await` it, or `result()` in a thread without an event loop."""

    def __init__(self, batches: Iterable[ProducerBatch]) -> None:
        self._deliveries = [(batch.delivery, batch.record_count) for batch in batches]

    def done(self) -> bool:
        return all(each.is_done for delivery, count in self._deliveries for each, _, _ in _leaves(delivery, count))

    def result(self, timeout_s: float | None = None) -> list[AppendedRecords]:
        """The batches, once all are acknowledged; the error of the first that failed."""
        if not wait_until_settled([delivery for delivery, _ in self._deliveries], timeout_s):
            raise TimedOutError(timeout_s or 0.0, None, "waiting for the acknowledgement of columns")
        return self._appended()

    def __await__(self) -> Generator[Any, None, list[AppendedRecords]]:
        for delivery, _ in self._deliveries:
            yield from settled(delivery).__await__()
        return self._appended()

    def _appended(self) -> list[AppendedRecords]:
        appended = []
        for delivery, count in self._deliveries:
            for leaf, start, leaf_count in _leaves(delivery, count):
                error = leaf.error_of(start)
                if error is not None:
                    raise error
                appended.append(AppendedRecords(*leaf.partition, leaf.base_offset, leaf_count, leaf.size_bytes))
        return appended


def _leaves(delivery: Delivery, count: int) -> Iterator[tuple[Delivery, int, int]]:
    """The deliveries in which the records of one are by now, with the first place and the number of them."""
    if not delivery.moves:
        yield delivery, 0, count
    for move in delivery.moves:
        yield from _leaves(move.target, move.end - move.start)


def columns_of(values: Any, keys: Any, timestamps: Any, headers: Any, now_ms: int) -> Records:
    """Columns as a producer takes them, of lists or of anything that Arrow can read; an error says what is wrong."""
    times = now_ms if timestamps is None else timestamps
    columns = {"values": values, "keys": keys, "timestamps": times, "headers": headers}
    for name, column in columns.items():
        _check_is_column(name, column)
    if all(column is None or isinstance(column, int | Sequence) for column in columns.values()):
        return _of_lists(values, keys, times, headers)
    return _of_arrow(values, keys, times, headers)


def _check_is_column(name: str, column: Any) -> None:
    if (column is None and name != "values") or (isinstance(column, int) and name == "timestamps"):
        return
    if isinstance(column, str | bytes | bytearray | memoryview | Mapping) or not hasattr(column, "__len__"):
        raise TypeError(f"the {name} are a column, in a list, NumPy or Arrow, not {type(column).__name__}")


def _of_lists(values: Any, keys: Any, timestamps: Any, headers: Any) -> RecordColumns:
    for name, column in (("values", values), ("keys", keys)):
        if column is not None and (others := set(map(type, column)) - BYTES_TYPES):
            kind = min(others, key=lambda each: each.__name__)
            raise SerializationError(f"the {name} of records are bytes or None, and one is {kind.__name__}: encode it")
    times = (timestamps,) if isinstance(timestamps, int) else timestamps
    if not set(map(type, times)) <= {int} or (times and min(times) < 0):
        raise ValueError("timestamps count milliseconds since 1970: whole numbers from 0 on")
    pairs = None if headers is None else [as_pairs(each) for each in headers]
    return RecordColumns(values, timestamps, keys, pairs)


def _of_arrow(values: Any, keys: Any, timestamps: Any, headers: Any) -> Records:
    pa = extra("pyarrow", "arrow")
    from ottla.client.arrow_columns import arrow_columns  # an extra, which most programs do without

    def arrow(column: Any) -> Any:
        if column is None or isinstance(column, int | pa.Array | pa.ChunkedArray):
            return column
        return pa.array(column)

    try:
        return arrow_columns(arrow(values), arrow(timestamps), arrow(keys), arrow(headers))
    except (pa.ArrowException, AttributeError, TypeError) as error:
        raise SerializationError(
            f"columns are of bytes or text, timestamps of milliseconds, headers lists of keys and values: {error}"
        ) from error


class _Piece(NamedTuple):
    partition: int | None  # None: the sticky one
    records: Records
    size_bytes: int


def pieces_of(
    topic: Topic,
    records: Records,
    partition: int | None,
    partitioner: Partitioner,
    batch_bytes_max: int,
    request_bytes_max: int,
) -> list[_Piece]:
    """The batches of columns: by partition, then by size. MessageTooLargeError before anything is sent."""
    if partition is not None:
        parts: dict[int | None, Records] = {topic.partition(partition).partition: records}
    else:
        parts = _by_partition(topic, records, partitioner)
    pieces = []
    for number, part in parts.items():
        for piece in part.pieces(batch_bytes_max):
            size_bytes = HEADER_BYTES + piece.size_bytes()
            if len(piece) == 1 and size_bytes > request_bytes_max:
                raise MessageTooLargeError(
                    f"a record of {size_bytes} bytes for {topic.name}: at most {request_bytes_max}"
                )
            pieces.append(_Piece(number, piece, size_bytes))
    return pieces


def _by_partition(topic: Topic, records: Records, partitioner: Partitioner) -> dict[int | None, Records]:
    count = len(topic.partitions)
    if isinstance(partitioner, Murmur2):
        return dict(records.by_partition(count))
    if isinstance(partitioner, Keyless):
        return {None: records}
    if not isinstance(records, RecordColumns):
        raise UsageError("columns of Arrow are partitioned by murmur2; name a partition, or give lists")
    available = [each.partition for each in topic.partitions if each.leader_id >= 0]
    rows: dict[int | None, list[int]] = {}
    for row in range(len(records)):
        key = None if records.keys is None else records.keys[row]
        rows.setdefault(partitioner.partition(topic.name, key, count, available), []).append(row)
    return {number: records.take(each) for number, each in rows.items()}
