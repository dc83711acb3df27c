"""What an inspected file turns out to hold. Where storage has a type for a thing already, that is the finding."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ottla.ids import TopicPartition
from ottla.records.batch import BatchHeader, Record
from ottla.storage.epochs import EpochStart
from ottla.storage.index import AbortedTransaction, OffsetPosition, TimestampOffset
from ottla.storage.producer_state import ProducerEntry


@dataclass(frozen=True, slots=True)
class FoundBatch:
    position: int
    header: BatchHeader
    control: str | None = None  # of a control batch: what it says


@dataclass(frozen=True, slots=True)
class Note:
    """Something to know that is not wrong."""

    text: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is wrong, and where: the byte in the file and the offset in the log, as far as known."""

    text: str
    position: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointOffset:
    partition: TopicPartition
    offset: int


Finding = (
    FoundBatch
    | Record
    | OffsetPosition
    | TimestampOffset
    | AbortedTransaction
    | ProducerEntry
    | EpochStart
    | CheckpointOffset
    | UUID
    | Note
    | Damage
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    deep: bool = False  # records, not only their batches
    verify: bool = False
    from_offset: int = 0  # batches that end before it are passed over
    bytes_max: int | None = None  # of a segment
