"""Answers of brokers on their way to the user: batches that wait, and the records that are made of them. Pure.

An `Answer` is what one Fetch brought for one partition. Batches are decoded one after the other when their records are
wanted, so that what nobody asks for costs nothing. Positions move with what is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.consumer.positions import NO_EPOCH, Position
from ottla.client.fetching import FetchedBatch
from ottla.client.serializers.base import BadRecordPolicy, Context, Load, LookupNeededError
from ottla.client.values import ConsumerRecord
from ottla.client.visibility import Aborted, visible, whole_batches
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import PartitionData
from ottla.records import batch, codec

Records = list[ConsumerRecord[Any, Any]]


class Reader(NamedTuple):
    """How bytes become keys and values, and what happens to those that cannot be read."""

    key: Load | None = None
    value: Load | None = None
    on_bad_record: BadRecordPolicy = "raise"

    @property
    def is_plain(self) -> bool:
        return self.key is None and self.value is None


class Taken(NamedTuple):
    """Records of one partition and where that leaves the reader. Without records: a position that moved."""

    partition: TopicPartition
    records: Records
    position: Position


class Answer:
    """What a Fetch brought for a partition, from `start_offset` on."""

    def __init__(
        self,
        partition: TopicPartition,
        start_offset: int,
        data: memoryview,
        found: PartitionData,
        *,
        checks_crcs: bool = True,
    ) -> None:
        located = whole_batches(data, checks_crcs=checks_crcs)
        aborted = [Aborted(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
        self.partition = partition
        self.start_offset = start_offset
        self.size_bytes = len(data)
        self._position = Position(start_offset)
        # Behind the last batch, whether anybody may see it or not.
        self.end = Position(located[-1].header.end_offset, located[-1].header.leader_epoch) if located else None
        self._batches = deque(
            FetchedBatch(partition, header, data, at, max(header.base_offset, start_offset), header.end_offset)
            for header, at in visible(data, located, aborted)
            if header.end_offset > start_offset
        )
        self.record_count = sum(each.header.record_count for each in self._batches)
        self._decoded: Records = []
        self._decoded_at = 0  # of which so many were taken
        self._decoded_of: FetchedBatch | None = None
        self._bad: RecordDeserializationError | None = None

    @property
    def is_started(self) -> bool:
        return self._position.offset != self.start_offset or bool(self._decoded)

    @property
    def position(self) -> Position:
        """Where the reader must stand for the rest of this to be of use."""
        return self._position

    @property
    def _has_more(self) -> bool:
        return bool(self._batches or self._decoded) or self._bad is not None

    def is_done(self) -> bool:
        """Whether the reader stands behind all of it, what nobody may see included."""
        return not self._has_more and self._position == self.end

    @property
    def batches(self) -> Iterable[FetchedBatch]:
        return self._batches

    def take(self, records_max: int, reader: Reader) -> Taken:
        """The next records, up to a limit; raises what is wrong with a record only when it is the first.

        Then nothing has moved: the next call raises it again, or goes on after the look-up of a LookupNeededError.
        """
        taken: Records = []
        while len(taken) < records_max and self._has_more:
            if not self._decoded:
                if self._bad is not None:
                    if taken:
                        break
                    raise self._bad
                try:
                    self._decode(reader)
                except Exception:
                    if taken:
                        break
                    raise
                continue
            piece = self._decoded[self._decoded_at : self._decoded_at + records_max - len(taken)]
            self._decoded_at += len(piece)
            if self._decoded_at == len(self._decoded):
                self._decoded = []
            taken = taken + piece if taken else piece
            self._move_past(piece[-1])
        if not self._has_more and self.end is not None:
            self._position = self.end
        return Taken(self.partition, taken, self._position)

    def _move_past(self, record: ConsumerRecord[Any, Any]) -> None:
        assert self._decoded_of is not None, "records come from a batch"
        header = self._decoded_of.header
        # Behind the last record of a batch there may be offsets that compaction emptied.
        is_last = not self._decoded and self._bad is None and not self._is_rest_waiting()
        self._position = Position(header.end_offset if is_last else record.offset + 1, header.leader_epoch)

    def _is_rest_waiting(self) -> bool:
        """Whether the rest of the batch that records come from could not be read yet."""
        return (
            bool(self._batches) and self._decoded_of is not None and self._batches[0].header is self._decoded_of.header
        )

    def take_batches(self, records_max: int) -> tuple[list[FetchedBatch], Position]:
        """Whole batches, for those who make columns of them: at least one, then as many as have so few records."""
        if self._decoded:
            # Some of its records were given out one by one: the rest is a batch again.
            assert self._decoded_of is not None, "records come from a batch"
            self._batches.appendleft(self._decoded_of._replace(start_offset=self._position.offset))
            self._decoded = []
        taken: list[FetchedBatch] = []
        count = 0
        while self._batches and (not taken or count + self._batches[0].header.record_count <= records_max):
            fetched = self._batches.popleft()
            taken.append(fetched)
            count += fetched.header.record_count
            self._position = Position(fetched.header.end_offset, fetched.header.leader_epoch)
        if not self._has_more and self.end is not None:
            self._position = self.end
        return taken, self._position

    def _decode(self, reader: Reader) -> None:
        fetched = self._batches[0]  # until it could be read
        records: Records = records_of(fetched)
        rest: FetchedBatch | None = None
        if not reader.is_plain:
            records, rest = self._deserialized(fetched, records, reader)
        self._batches.popleft()
        if self._bad is not None:
            # Nothing behind it is handed out: whoever wants to go on seeks.
            self._batches.clear()
            self.end = None
        if rest is not None:
            self._batches.appendleft(rest)
        self._decoded_of, header = fetched, fetched.header
        self._decoded, self._decoded_at = records, 0
        if not records and self._bad is None and not self._is_rest_waiting():
            self._position = Position(header.end_offset, header.leader_epoch)

    def _deserialized(
        self, fetched: FetchedBatch, records: Sequence[ConsumerRecord[Any, Any]], reader: Reader
    ) -> tuple[Records, FetchedBatch | None]:
        """Those that could be read, up to the first bad one; and what has to wait for a look-up."""
        made: Records = []
        for record in records:
            try:
                made.append(deserialized(record, reader))
            except LookupNeededError:
                rest = fetched._replace(start_offset=record.offset)
                if made:
                    return made, rest
                self._batches[0] = rest  # those that the policy left out are not asked about again
                raise
            except RecordDeserializationError as error:
                policy = reader.on_bad_record
                if policy == "raise":
                    self._bad = error
                    break
                if callable(policy):
                    replacement = policy(record, error)
                    if replacement is not None:
                        made.append(replacement)
        return made, None


def records_of(fetched: FetchedBatch) -> Records:
    """The records of a batch from its start offset on, with keys and values as bytes."""
    header = fetched.header
    return codec.decode_named(
        batch.records_of(fetched.data, fetched.position, header=header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        fetched.start_offset,
        ConsumerRecord,
        fetched.partition.topic,
        fetched.partition.partition,
        int(header.is_log_append_time),
        header.leader_epoch,
    )


def deserialized(record: ConsumerRecord[Any, Any], reader: Reader) -> ConsumerRecord[Any, Any]:
    key, value = record.key, record.value
    headers = list(record.headers)
    field = "key"
    try:
        if reader.key is not None and key is not None:
            key = reader.key(key, Context(record.topic, is_key=True, headers=headers))
        field = "value"
        if reader.value is not None and value is not None:
            value = reader.value(value, Context(record.topic, is_key=False, headers=headers))
    except LookupNeededError:
        raise
    except Exception as error:
        raise RecordDeserializationError(
            record.topic_partition, record.offset, field, record.key, record.value, error
        ) from error
    return record._replace(key=key, value=value)


def by_partition(records: Iterable[ConsumerRecord[Any, Any]]) -> list[Taken]:
    """Records that were given out together, as they were taken."""
    found: dict[TopicPartition, Records] = {}
    for record in records:
        found.setdefault(record.topic_partition, []).append(record)
    return [
        Taken(partition, mine, Position(mine[-1].offset + 1, _epoch(mine[-1]))) for partition, mine in found.items()
    ]


def _epoch(record: ConsumerRecord[Any, Any]) -> int:
    return NO_EPOCH if record.leader_epoch is None else record.leader_epoch


def first_offsets(records: Iterable[ConsumerRecord[Any, Any]]) -> dict[TopicPartition, Position]:
    """The first record of each partition, as the position before it."""
    found: dict[TopicPartition, Position] = {}
    for record in records:
        found.setdefault(record.topic_partition, Position(record.offset, _epoch(record)))
    return found
