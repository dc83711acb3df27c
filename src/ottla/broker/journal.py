"""A coordinator's machine and the partition that holds its records: writing decisions, and reading them back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.partition import Partition
from ottla.decisions import CoordinatorRecord, Decision
from ottla.errors import ApiError, ErrorCode
from ottla.ids import NO_PRODUCER_ID
from ottla.protocol.coordinator_records import (
    RecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_type_of,
)
from ottla.records import batch, control
from ottla.records.layout import Compression
from ottla.runtime.signal import Signal
from ottla.storage.admission import Admitted

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

ALL_REPLICAS = -1
NO_APPEND_TIME = -1

# What a failed append means to somebody who asked a coordinator; other codes are passed on as they are.
_MEANINGS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class PartitionJournal:
    """The records of one machine in the partition that this broker leads."""

    __slots__ = ("_compression", "_partition")

    def __init__(self, partition: Partition, compression: Compression) -> None:
        self._partition = partition
        self._compression = compression

    def __str__(self) -> str:
        return str(self._partition.name)

    @property
    def committed_offset(self) -> int:
        return self._partition.committed_offset

    @property
    def moved(self) -> Signal:
        return self._partition.moved

    def append(self, decision: Decision, wall_ms: int) -> int:
        """Writes a decision as one batch; the codes of ApiError are those that a coordinator answers."""
        data = self._batch(decision, wall_ms)
        partition = self._partition
        try:
            bytes_max = partition.log.config.max_message_bytes
            if len(data) > bytes_max:
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the records have {len(data)} bytes, the topic allows {bytes_max} (max.message.bytes)",
                )
            if decision.producer_id < 0:
                return partition.append_own(data, len(decision.records), now_ms=wall_ms)
            # A producer's: its epoch is looked at. The batch itself is not, it was made here.
            admitted = Admitted(memoryview(data), batch.read_header(data), NO_APPEND_TIME)
            appended = partition.append_admitted(admitted, acks=ALL_REPLICAS, now_ms=wall_ms)
        except ApiError as error:
            raise ApiError(_MEANINGS.get(error.code, error.code), error.message) from error
        return appended.last_offset + 1

    def _batch(self, decision: Decision, wall_ms: int) -> bytearray:
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for key, value, version in decision.records:
            keys.append(key if type(key) is bytes else encode_key(key))
            values.append(value if value is None or type(value) is bytes else encode_value(value, version))
        if decision.producer_id < 0 and self._compression is Compression.NONE:
            return batch.build_plain(keys, values, wall_ms)
        return batch.build(
            keys,
            values,
            wall_ms,
            compression=self._compression,
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
            is_transactional=decision.producer_id >= 0,
        )


ApplyBytes = Callable[[bytes, "bytes | None", int], None]


class Replay:
    """Brings a machine to where its log stands, a stretch of the log at a time.

    Of a key that comes several times in a stretch only the last record is applied, as if the log had been compacted:
    a machine must come to the same state either way. `apply` takes key, value and the producer of an open transaction.
    """

    def __init__(self, apply: ApplyBytes, complete_transaction: Callable[[int, bool], None]) -> None:
        self._apply = apply
        self._complete_transaction = complete_transaction
        self._latest: dict[bytes, bytes | None] = {}
        self.record_count = 0

    def take(self, data: Buffer) -> int:
        """Applies the whole batches in `data` and returns the offset behind them; OttlaError if they are unreadable."""
        scanned = batch.scan(data)
        if not scanned.headers:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, scanned.problem or "a batch is incomplete")
        for position, header in zip(scanned.positions, scanned.headers, strict=True):
            if header.is_control:
                self._apply_latest()
                marker = control.read_marker(data, position) if header.record_count else None
                if marker is not None:
                    self._complete_transaction(header.producer_id, marker.commit)
                continue
            columns = batch.decode(data, position)
            self.record_count += header.record_count
            if header.is_transactional:
                self._apply_latest()
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is not None:
                        self._apply(key, value, header.producer_id)
            else:
                self._note(columns.keys, columns.values)
        self._apply_latest()
        return scanned.headers[-1].end_offset

    def _note(self, keys: list[bytes | None], values: list[bytes | None]) -> None:
        latest = self._latest
        for key, value in zip(keys, values, strict=True):
            if key is None:
                continue  # nothing of ours: a compacted topic has none
            if key in latest:
                del latest[key]  # its place is that of its last record
            latest[key] = value

    def _apply_latest(self) -> None:
        apply = self._apply
        for key, value in self._latest.items():
            apply(key, value, NO_PRODUCER_ID)
        self._latest.clear()


def decoding(record_types: Mapping[int, RecordType], apply: Callable[[CoordinatorRecord], None]) -> ApplyBytes:
    """For a machine that wants its records in words. Types that only newer brokers know are not ours to judge."""

    def apply_bytes(key: bytes, value: bytes | None, producer_id: int) -> None:
        record_type = record_types.get(record_type_of(key))
        if record_type is not None:
            decoded = None if value is None else decode_value(record_type, value)
            apply(CoordinatorRecord(decode_key(record_types, key), decoded))

    return apply_bytes
