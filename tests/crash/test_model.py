"""A plain list against the log, over long random histories.

The model is the list of all batches ever appended that were not cut off; it needs no index, no segments and no cache.
After every step the whole log is audited and compared with it. `OTTLA_MODEL_EXAMPLES=n` plays more histories.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.config import LogConfig
from ottla.errors import ApiError, DiskFullError, ErrorCode
from ottla.ids import TopicPartition
from ottla.records import batch, control
from ottla.records.batch import BatchHeader, Compression
from ottla.storage import cleaner
from ottla.storage.logs import Logs
from ottla.storage.producer_state import ProducerStates
from ottla.testing.audit import ClosedTransaction, audit, check_producers, replay
from ottla.testing.disk import EVERY_FATE, Fate, SimulatedDisk
from ottla.testing.log_upkeep import commit_cleaning, unlink_due, write_checkpoints

EXAMPLES = int(os.environ.get("OTTLA_MODEL_EXAMPLES", "100"))
ROOT = "/data"
NAME = TopicPartition("model", 0)
START_MS = 1_700_000_000_000
HISTORY = settings(
    max_examples=EXAMPLES,
    stateful_step_count=80,
    phases=[Phase.generate],  # making a failing history shorter takes minutes: add Phase.shrink to look for a bug
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

seeds = st.integers(0, 2**32)
counts = st.integers(1, 6)


@dataclass
class KnownProducer:
    """What the batches of the model say of a producer, the plain way."""

    epoch: int
    batches: list[BatchHeader]  # of its last epoch

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].last_sequence + 1 if self.batches else 0


class LogModel(RuleBasedStateMachine):
    """A log that is never compacted."""

    config = LogConfig(
        segment_bytes=1500,
        index_interval_bytes=150,
        segment_index_bytes=120,
        retention_bytes=6000,
        file_delete_delay_ms=1000,
        max_message_bytes=1400,
    )
    is_compacted = False

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.now_ms = START_MS
        self.epoch = 0
        self.batches: list[bytes] = []
        self.log_start = 0
        self.end_offset = 0
        self.has_gaps = False
        self.durable_end = 0
        self.durable_start = 0
        self.closed: list[ClosedTransaction] = []
        self.open()

    def open(self) -> None:
        self.logs = Logs(self.disk, [ROOT], lambda topic: self.config, rng=random.Random(1))
        self.logs.open(self.now_ms)
        self.log = self.logs.create(NAME, now_ms=self.now_ms)

    # -- the model's answers -------------------------------------------------------------------------------------------

    @property
    def headers(self) -> list[BatchHeader]:
        return [batch.read_header(data) for data in self.batches]

    def took(self, data: bytes) -> None:
        self.batches.append(data)
        self.end_offset = batch.read_header(data).end_offset

    def producer(self, producer_id: int) -> KnownProducer | None:
        known: KnownProducer | None = None
        for header in self.headers:
            if header.producer_id == producer_id:
                if known is None or known.epoch != header.producer_epoch:
                    known = KnownProducer(header.producer_epoch, [])
                if not header.is_control:
                    known.batches.append(header)
        return known

    def is_in_transaction(self, producer_id: int) -> bool:
        own = [header for header in self.headers if header.producer_id == producer_id and header.is_transactional]
        return bool(own) and not own[-1].is_control

    # -- appending -----------------------------------------------------------------------------------------------------

    def build(self, seed: int, count: int, **options: object) -> bytearray:
        rng = random.Random(seed)
        self.now_ms += rng.randint(0, 20)
        return batch.build(
            [b"key-%d" % rng.randint(0, 8) for _ in range(count)],
            [rng.choice([None, rng.randbytes(rng.randint(0, 80))]) for _ in range(count)],
            [self.now_ms + rng.randint(-100, 10) for _ in range(count)],
            **options,  # type: ignore[arg-type]
        )

    def append(self, data: bytearray) -> None:
        expected = bytearray(data)
        batch.stamp(expected, self.end_offset, self.epoch)
        appended = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        header = batch.read_header(expected)
        assert (appended.first_offset, appended.last_offset) == (header.base_offset, header.last_offset)
        assert not appended.is_duplicate
        self.took(bytes(expected))

    @rule(seed=seeds, count=counts, codec=st.sampled_from(Compression))
    def append_plain(self, seed: int, count: int, codec: Compression) -> None:
        self.append(self.build(seed, count, compression=codec))

    @rule(seed=seeds, times=st.integers(2, 10))
    def append_much(self, seed: int, times: int) -> None:
        for number in range(times):
            self.append(self.build(seed + number, 1 + (seed + number) % 5))

    @rule(seed=seeds, producer_id=st.integers(1, 3), count=counts, epochs_later=st.integers(0, 1))
    def append_in_sequence(self, seed: int, producer_id: int, count: int, epochs_later: int) -> None:
        known = self.producer(producer_id)
        epoch = known.epoch + epochs_later if known else 5
        sequence = known.next_sequence if known and not epochs_later else 0
        self.append(self.build(seed, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))

    @rule(seed=seeds, producer_id=st.integers(1, 3), back=st.integers(1, 5))
    def send_a_batch_again(self, seed: int, producer_id: int, back: int) -> None:
        known = self.producer(producer_id)
        if known is None or len(known.batches) < back or self.is_compacted:
            return
        sent = known.batches[-back]
        data = self.build(
            seed,
            sent.last_offset - sent.base_offset + 1,
            producer_id=producer_id,
            producer_epoch=known.epoch,
            base_sequence=sent.base_sequence,
        )
        try:
            appended = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        except ApiError as error:
            # Of a snapshot, only the last batch is remembered.
            if back == 1 or error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
        else:
            assert appended.is_duplicate
            assert (appended.first_offset, appended.last_offset) == (sent.base_offset, sent.last_offset)

    @rule(seed=seeds, producer_id=st.integers(1, 3), skipped=st.integers(1, 5))
    def leave_out_a_sequence(self, seed: int, producer_id: int, skipped: int) -> None:
        known = self.producer(producer_id)
        if known is None or not known.batches:
            return
        data = self.build(
            seed, 1, producer_id=producer_id, producer_epoch=known.epoch, base_sequence=known.next_sequence + skipped
        )
        with pytest.raises(ApiError, match="sent sequence"):
            self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)

    @rule(seed=seeds, producer_id=st.integers(1, 3))
    def send_of_an_old_epoch(self, seed: int, producer_id: int) -> None:
        known = self.producer(producer_id)
        if known is None:
            return
        data = self.build(seed, 1, producer_id=producer_id, producer_epoch=known.epoch - 1, base_sequence=0)
        with pytest.raises(ApiError, match="already at"):
            self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)

    @rule(seed=seeds, producer_id=st.integers(10, 12), count=counts)
    def append_in_transaction(self, seed: int, producer_id: int, count: int) -> None:
        known = self.producer(producer_id)
        self.append(
            self.build(
                seed,
                count,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=known.next_sequence if known else 0,
                is_transactional=True,
            )
        )

    @rule(producer_id=st.integers(10, 12), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        marker = control.EndTransactionMarker(commit, coordinator_epoch=2)
        expected = control.build_marker(
            producer_id, 0, marker, self.now_ms, base_offset=self.end_offset, leader_epoch=self.epoch
        )
        self.log.append_marker(producer_id, 0, marker, leader_epoch=self.epoch, now_ms=self.now_ms)
        self.took(bytes(expected))

    @rule(seed=seeds, gaps=st.lists(st.integers(0, 3), min_size=1, max_size=4), cut=st.integers(0, 60))
    def append_as_follower(self, seed: int, gaps: list[int], cut: int) -> None:
        """Batches of a leader whose log has gaps; the last one may come cut, as a fetch of limited size cuts it."""
        end_offset, stamped = self.end_offset, []
        for number, gap in enumerate(gaps):
            data = self.build(seed + number, 1 + (seed + number) % 4)
            batch.stamp(data, end_offset + gap, self.epoch)
            end_offset = batch.read_header(data).end_offset
            stamped.append(bytes(data))
            self.has_gaps = self.has_gaps or gap > 0
        rest = stamped[0][:cut]
        self.log.append_as_follower(b"".join(stamped) + rest, now_ms=self.now_ms)
        for taken in stamped:
            self.took(taken)

    @rule(seed=seeds, written=st.sampled_from([0.0, 0.3, 0.9]))
    def meet_a_full_disk(self, seed: int, written: float) -> None:
        fault = self.disk.fail("*.log", "write", errno.ENOSPC, written=written)
        with pytest.raises(DiskFullError):
            self.log.append(self.build(seed, 3), leader_epoch=self.epoch, now_ms=self.now_ms)
        self.disk.heal(fault)

    @rule()
    def become_leader_of_a_new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    # -- reading -------------------------------------------------------------------------------------------------------

    @rule(seed=seeds, max_bytes=st.integers(1, 3000), at_least_one=st.booleans())
    def read(self, seed: int, max_bytes: int, at_least_one: bool) -> None:
        rng = random.Random(seed)
        offset = rng.randint(self.log_start, self.end_offset)
        upper = rng.choice([None, *(header.end_offset for header in self.headers)])
        piece = self.log.read(offset, max_bytes, upper_offset=upper, at_least_one=at_least_one)
        bound = self.end_offset if upper is None else upper
        expected = [
            data
            for data, header in zip(self.batches, self.headers, strict=True)
            if header.last_offset >= offset and header.base_offset < bound
        ]
        if offset >= bound or not expected:
            assert piece is None
        elif piece is None:
            assert not at_least_one
            assert len(expected[0]) > max_bytes
        else:
            content = piece.records.read()
            assert b"".join(expected).startswith(content)
            assert len(content) >= len(expected[0]) if at_least_one else len(content) > 0
            assert len(content) <= max(max_bytes, len(expected[0]))
            whole = batch.scan(content).headers
            assert piece.first_offset == whole[0].base_offset
            assert whole[-1].end_offset <= piece.upper_offset <= bound

    @rule(seed=seeds)
    def ask_for_aborted_transactions(self, seed: int) -> None:
        rng = random.Random(seed)
        start = rng.randint(self.log_start, self.end_offset)
        upper = rng.randint(start, self.end_offset)
        known = self.log.aborted_transactions(start, upper)
        if self.is_compacted or self.log.segments[0].base_offset:
            return
        every = replay(zip(self.headers, self.batches, strict=True)).aborted
        needed = [entry for entry in every if entry.last_offset >= start and entry.first_offset < upper]
        assert [entry for entry in known if entry in needed] == needed
        assert all(entry in every for entry in known)

    @rule(outside=st.integers(1, 5))
    def read_outside(self, outside: int) -> None:
        with pytest.raises(ApiError, match="holds offsets"):
            self.log.read(self.end_offset + outside, 100)
        if self.log_start:
            with pytest.raises(ApiError, match="holds offsets"):
                self.log.read(self.log_start - 1, 100)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.durable_end = self.end_offset

    @rule()
    def checkpoint(self) -> None:
        write_checkpoints(self.logs)
        self.durable_start = min(self.log_start, self.log.recovery_point)

    @rule(seed=seeds)
    def truncate(self, seed: int) -> None:
        offset = random.Random(seed).randint(self.log.segments[0].base_offset, self.end_offset)
        if offset >= self.end_offset:
            return
        self.logs.truncate(NAME, offset, now_ms=self.now_ms)
        self.batches = [data for data in self.batches if batch.read_header(data).end_offset <= offset]
        # Only batches are cut off: an offset in a gap leaves the end at the batch or the roll before it.
        ends = [header.end_offset for header in self.headers]
        self.end_offset = max([self.log.active.base_offset, *ends])
        assert self.end_offset <= offset
        self.log_start = min(self.log_start, self.end_offset)
        self.durable_start = min(self.log_start, self.log.recovery_point)
        self.durable_end = min(self.durable_end, self.end_offset)
        self.epoch += 1

    @rule(offset=st.integers(0, 10_000))
    def start_all_over(self, offset: int) -> None:
        if offset % 10 or self.is_compacted:
            return  # now and then is enough: it leaves little to compare
        self.log.truncate_fully(offset, now_ms=self.now_ms)
        write_checkpoints(self.logs)
        self.batches = []
        self.closed = []
        self.log_start = self.durable_start = self.durable_end = self.end_offset = offset
        self.epoch += 1

    @rule(seed=seeds)
    def delete_records(self, seed: int) -> None:
        self.log_start = random.Random(seed).randint(self.log_start, self.end_offset)
        self.log.advance_log_start(self.log_start)

    @rule()
    def apply_retention(self) -> None:
        before = self.log.segments
        count = self.log.delete_expired(self.now_ms, self.end_offset)
        kept = sum(segment.size_bytes for segment in before[count:])
        assert self.is_compacted or kept < self.config.retention_bytes + before[count].size_bytes
        assert not set(before[:count]) & set(self.log.segments)
        self.log_start = max(self.log_start, self.log.segments[0].base_offset) if count else self.log_start

    @rule()
    def unlink_due(self) -> None:
        self.now_ms += 2000
        unlink_due(self.logs, self.now_ms)
        assert not any(name.endswith(".deleted") for name in self.disk.list_directory(self.log.directory))

    @rule()
    def release_idle_files(self) -> None:
        self.log.release_idle_files()

    # -- stopping ------------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.logs.close()
        self.open()
        assert not self.logs.reports[NAME].problems
        self.durable_end, self.durable_start = self.end_offset, self.log_start

    @rule(seed=seeds, fates=st.sampled_from([(Fate.DROPPED,), (Fate.KEPT,), EVERY_FATE]))
    def lose_power(self, seed: int, fates: tuple[Fate, ...]) -> None:
        self.disk = self.disk.crash(seed, fates)
        self.open()
        log = self.log
        assert self.durable_end <= log.end_offset <= self.end_offset
        assert self.durable_start <= log.log_start_offset <= self.log_start
        self.batches = [data for data in self.batches if batch.read_header(data).end_offset <= log.end_offset]
        self.log_start, self.end_offset = log.log_start_offset, log.end_offset
        self.durable_end, self.durable_start = self.end_offset, self.log_start
        self.epoch += 1

    # -- comparing -----------------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_list(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.end_offset) == (self.log_start, self.end_offset)
        found = audit(log, may_have_gaps=self.has_gaps or self.is_compacted)
        first_offset = log.segments[0].base_offset
        assert found == [data for data in self.batches if batch.read_header(data).base_offset >= first_offset]
        if not self.is_compacted:
            check_producers(log.producers, self.expected_producers(first_offset))

    def expected_producers(self, first_offset: int) -> ProducerStates:
        """Once producers are made anew, a transaction is closed that has left nothing in the log."""
        self.closed = [
            transaction._replace(at_offset=min(transaction.at_offset, self.end_offset))
            for transaction in self.closed
            if transaction.first_offset < first_offset  # else what was deleted came back, as power was lost
        ]
        expected = replay(zip(self.headers, self.batches, strict=True), self.closed).producers
        for producer in self.log.producers.producers.values():
            known = expected.producers.get(producer.producer_id)
            if known is None or known.transaction_first_offset is None or known.last_offset >= first_offset:
                continue
            if producer.transaction_first_offset is None:
                self.closed.append(
                    ClosedTransaction(self.end_offset, producer.producer_id, known.transaction_first_offset)
                )
                expected.close_transaction(producer.producer_id)
        return expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.logs.close()


class CompactedLogModel(LogModel):
    """A log that is compacted now and then: the list follows it, once the records were found right."""

    config = LogConfig(
        segment_bytes=1500,
        index_interval_bytes=150,
        segment_index_bytes=120,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=500,
        file_delete_delay_ms=1000,
        max_message_bytes=1400,
    )
    is_compacted = True

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule()
    def compact(self) -> None:
        self.log.roll(self.now_ms)
        self.flush()
        self.log.producers.passed_high_watermark(self.end_offset)
        job = cleaner.plan(self.log, self.logs.clean_offset(NAME), high_watermark=self.end_offset, now_ms=self.now_ms)
        if job is None:
            return
        before = records_of(self.batches)
        last = last_of_keys(self.batches, self.log_start)
        result = cleaner.run_job(job, self.disk)
        assert commit_cleaning(self.logs, NAME, result, now_ms=self.now_ms)
        # What retention took is not in the log any more, and the log still knows its producers.
        first_offset = self.log.segments[0].base_offset
        taken = [data for data in self.batches if batch.read_header(data).base_offset < first_offset]
        self.batches = taken + [
            data for segment in self.log.segments for data in whole_batches(segment.file.read(0, 2**31))
        ]
        after = records_of(self.batches)
        assert all(before[offset] == record for offset, record in after.items())
        for offset in last:
            assert offset in after or before[offset].value is None, f"the last value of {before[offset].key!r} is gone"
        keys = [
            record.key
            for data in self.batches
            if not batch.read_header(data).is_control
            for record in batch.iterate(data)
            if self.log_start <= record.offset < result.end_offset
        ]
        assert len(set(keys)) == len(keys), "a key was left twice in the cleaned part"
        self.durable_end = self.end_offset


def whole_batches(content: bytes) -> list[bytes]:
    scanned = batch.scan(content)
    return [
        content[position : position + header.size_bytes]
        for position, header in zip(scanned.positions, scanned.headers, strict=True)
    ]


def records_of(batches: list[bytes]) -> dict[int, batch.Record]:
    return {record.offset: record for data in batches for record in batch.iterate(data)}


def last_of_keys(batches: list[bytes], log_start: int) -> set[int]:
    """The offsets of the last record of each key that a read_committed reader would see."""
    headers = [batch.read_header(data) for data in batches]
    aborted = replay(zip(headers, batches, strict=True)).aborted
    last: dict[bytes | None, int] = {}
    for header, data in zip(headers, batches, strict=True):
        is_aborted = header.is_transactional and any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not is_aborted:
            last.update({record.key: record.offset for record in batch.iterate(data)})
    return {offset for offset in last.values() if offset >= log_start}


LogModel.TestCase.settings = HISTORY
CompactedLogModel.TestCase.settings = settings(HISTORY, max_examples=max(1, EXAMPLES // 2))


class TestTheLogIsTheList(LogModel.TestCase):  # type: ignore[name-defined,misc,valid-type]
    pass


class TestTheCompactedLogIsTheList(CompactedLogModel.TestCase):  # type: ignore[name-defined,misc,valid-type]
    pass


def test_what_a_full_disk_left_of_a_batch_does_not_come_back_with_a_power_loss() -> None:
    """The segment was durable before, and is not the last one when the power goes: nobody looks at its end."""
    model = CompactedLogModel()
    model.begin()
    model.end_transaction(commit=False, producer_id=10)
    model.append_in_transaction(count=2, producer_id=11, seed=69444852)
    model.append_in_sequence(count=6, epochs_later=0, producer_id=2, seed=25804)
    model.append_much(seed=999224, times=2)
    model.append_much(seed=154936800, times=4)
    model.lose_power(fates=(Fate.KEPT,), seed=1087323)
    model.meet_a_full_disk(seed=12584212, written=0.3)
    model.append_in_transaction(count=4, producer_id=12, seed=510511)
    model.lose_power(fates=(Fate.DROPPED, Fate.KEPT, Fate.CUT, Fate.SECTORS), seed=1698279)
    model.the_log_is_the_list()
    model.teardown()
