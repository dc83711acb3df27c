"""Whole batches of the log as columns, with where they begin: for whoever has to read them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.consumer.positions import Position
from ottla.client.fetching import FetchedBatch
from ottla.client.serializers.extras import extra
from ottla.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowTaken(NamedTuple):
    rows: pa.RecordBatch
    first: Mapping[TopicPartition, Position]


def first_of_batches(batches: Iterable[FetchedBatch]) -> dict[TopicPartition, Position]:
    """The first batch of each partition, as the position before it."""
    found: dict[TopicPartition, Position] = {}
    for batch in batches:
        found.setdefault(batch.partition, Position(batch.start_offset))
    return found


def arrow_of(batches: Iterable[FetchedBatch]) -> pa.RecordBatch:
    extra("pyarrow", "arrow")
    from ottla.client.arrow_rows import ArrowRows  # needs that extra

    rows = ArrowRows()
    for batch in batches:
        rows.add(batch)
    return rows.finish()
