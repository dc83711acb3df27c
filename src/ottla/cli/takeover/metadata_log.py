"""The metadata log of Apache Kafka without ZooKeeper, played back: topics, settings and producer ids at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from ottla.cli.inspection.segments import Gap, SegmentWalk
from ottla.errors import CorruptFileError, ProtocolError
from ottla.protocol.codec import decode
from ottla.protocol.messages import metadata_log_records
from ottla.protocol.messages.metadata_log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.schema import message_schema_of, messages_in
from ottla.protocol.wire import read_uvarint
from ottla.records import batch

DIRECTORY: Final = "__cluster_metadata-0"
FRAME_VERSION: Final = 1
LEADER_UNCHANGED: Final = -2
CONFIG_KINDS: Final = {2: "topics", 4: "brokers", 32: "groups"}
RECORDS: Final = {message_schema_of(cls).record_type: cls for cls in messages_in(vars(metadata_log_records))}
# What a cluster may have and Ottla does not take over; by the numbers of their records.
LEFT_OUT: Final = {11: "SCRAM users", 14: "client quotas", 18: "ACLs", 10: "delegation tokens"}


@dataclass(frozen=True, slots=True)
class FoundPartition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    eligible: tuple[int, ...] = ()  # out of sync by a stop in order, and with all that is committed (KIP-966)

    def has_all_on(self, node_id: int) -> bool:
        """Whether a broker is known to have every committed record."""
        return node_id in self.isr or node_id in self.eligible


class MetadataLog:
    """The state at the end of the log."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.partitions: dict[UUID, dict[int, FoundPartition]] = {}
        self.configs: dict[tuple[str, str], dict[str, str]] = {}  # kind and name → settings
        self.next_producer_id = 0
        self.left_out: Counter[str] = Counter()
        self._in_transaction: list[Any] | None = None

    def apply(self, record: Any) -> None:
        """The only writer. What a transaction holds that never ended has no effect."""
        match record:
            case BeginTransactionRecord():
                self._in_transaction = []
            case AbortTransactionRecord():
                self._in_transaction = None
            case EndTransactionRecord():
                held, self._in_transaction = self._in_transaction or [], None
                for each in held:
                    self._apply(each)
            case _ if self._in_transaction is not None:
                self._in_transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: Any) -> None:
        match record:
            case TopicRecord():
                self.names[record.topic_id] = record.name
                self.partitions[record.topic_id] = {}
            case RemoveTopicRecord():
                name = self.names.pop(record.topic_id)
                del self.partitions[record.topic_id]
                self.configs.pop(("topics", name), None)
            case PartitionRecord():
                self.partitions[record.topic_id][record.partition_id] = FoundPartition(
                    tuple(record.replicas),
                    tuple(record.isr),
                    record.leader,
                    record.leader_epoch,
                    tuple(record.eligible_leader_replicas or ()),
                )
            case PartitionChangeRecord():
                found = self.partitions[record.topic_id]
                found[record.partition_id] = _changed(found[record.partition_id], record)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case str():
                self.left_out[record] += 1

    def _configure(self, record: ConfigRecord) -> None:
        kind = CONFIG_KINDS.get(record.resource_type)
        if kind is None:
            return
        settings = self.configs.setdefault((kind, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value


def _changed(found: FoundPartition, change: PartitionChangeRecord) -> FoundPartition:
    if change.isr is not None:
        found = replace(found, isr=tuple(change.isr))
    if change.eligible_leader_replicas is not None:
        found = replace(found, eligible=tuple(change.eligible_leader_replicas))
    if change.replicas is not None:
        found = replace(found, replicas=tuple(change.replicas))
    if change.leader != LEADER_UNCHANGED:
        found = replace(found, leader=change.leader, leader_epoch=found.leader_epoch + 1)
    return found


def read_metadata_log(directory: Path) -> MetadataLog:
    """From the newest snapshot on, as Kafka does it. CorruptFileError where a file is not what it must be."""
    log = MetadataLog()
    start_offset = 0
    snapshots = sorted(directory.glob("*.checkpoint"))
    if snapshots:
        start_offset = int(snapshots[-1].name.partition("-")[0])
        for _, record in _records(snapshots[-1]):
            log.apply(record)
    for segment in sorted(directory.glob("*.log")):
        for offset, record in _records(segment):
            if offset >= start_offset:
                log.apply(record)
    return log


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """Offset and message of each record that we know, and of each that we leave out what it is called."""
    for piece in SegmentWalk(path, 0):
        if isinstance(piece, Gap):
            if piece.is_tail:
                return  # reserved space, or a batch that a crash cut off
            raise CorruptFileError(str(path), f"damaged at byte {piece.position}: {piece.problem}")
        if piece.header.is_control:
            continue
        for record in batch.iterate(piece.data, piece.at):
            message = _decoded(path, record.offset, record.value)
            if message is not None:
                yield record.offset, message


def _decoded(path: Path, offset: int, value: bytes | memoryview | None) -> Any:
    if value is None:
        return None
    try:
        frame_version, position = read_uvarint(value, 0)
        number, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        if frame_version != FRAME_VERSION:
            raise CorruptFileError(str(path), f"the record at offset {offset} has frame version {frame_version}")
        if number not in RECORDS:
            return LEFT_OUT.get(number)
        return decode(RECORDS[number], value, version, position)
    except ProtocolError as error:
        raise CorruptFileError(str(path), f"the record at offset {offset} cannot be decoded: {error}") from error
