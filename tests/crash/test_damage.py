"""Files that were sound and are not any more: cut, zeroed, with a flipped bit.

No crash explains such damage, so no file may be trusted for having been synced. What comes of it must be the original,
or less than the original with a report, or a clear error; never other records. `OTTLA_DAMAGE_SEEDS=n` damages more.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.config import LogConfig
from ottla.disk import RealDisk
from ottla.errors import CorruptFileError, RecordsError, StorageError
from ottla.ids import TopicPartition
from ottla.records import batch, control
from ottla.records.batch import Compression
from ottla.storage import checkpoints
from ottla.storage.clean_mark import CLEAN_SHUTDOWN_FILE
from ottla.storage.epochs import EpochStart
from ottla.storage.index import TimestampOffset
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.testing.audit import audit, check_producers, replay
from ottla.testing.log_upkeep import write_checkpoints

SEEDS = int(os.environ.get("OTTLA_DAMAGE_SEEDS", "2"))
NAME = TopicPartition("damaged", 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150)
START_MS = 1_700_000_000_000
# What stands before the checksummed part of a batch and is not covered by its length or magic: Kafka's format.
UNCHECKED = [*range(8), *range(12, 16)]


# -- a log, and what is right about it ---------------------------------------------------------------------------------


class Original(NamedTuple):
    root: Path
    batches: list[bytes]
    epochs: tuple[EpochStart, ...]
    times: dict[int, TimestampOffset | None]

    @property
    def partition(self) -> Path:
        return self.root / str(NAME)


def open_logs(root: Path) -> Logs:
    logs = Logs(RealDisk(), [str(root)], lambda topic: CONFIG)
    logs.open(START_MS)
    return logs


def write_original(root: Path, *, is_clean: bool) -> Original:
    """Ten segments with producers, transactions and epochs; the end is not flushed where the stop is not clean."""
    rng = random.Random(4)
    logs = open_logs(root)
    log = logs.create(NAME, now_ms=START_MS)
    sequence = 0
    for number in range(60):
        count = rng.randint(1, 5)
        values = [rng.randbytes(rng.randint(10, 60)) for _ in range(count)]
        timestamps = [START_MS + 100 * number + rng.randint(-150, 150) for _ in range(count)]
        options: dict[str, object] = {"compression": rng.choice(list(Compression))}
        if number % 3 == 0:
            options |= {"producer_id": 10, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
            sequence += count
        log.append(
            batch.build(None, values, timestamps, **options),  # type: ignore[arg-type]
            leader_epoch=number // 10,
            now_ms=START_MS + 100 * number,
        )
        if number % 6 == 4:
            marker = control.EndTransactionMarker(commit=number % 12 == 4, coordinator_epoch=1)
            log.append_marker(10, 0, marker, leader_epoch=number // 10, now_ms=START_MS + 100 * number)
        if number == 55:
            log.flush(START_MS)
            write_checkpoints(logs)
    checkpoints.write_topic_id(RealDisk(), log.directory, UUID(int=7))
    batches = audit(log)
    asked = [START_MS + 50 * step for step in range(-4, 130)]
    original = Original(root, batches, log.epochs.entries, {at: log.offset_for_time(at) for at in asked})
    if is_clean:
        logs.close()
    else:
        logs.fail(logs.directories[0], StorageError(str(root), "stopped by the test"))
        logs.close_locks()
    return original


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls a plug here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module", params=["clean", "unclean"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    return write_original(tmp_path_factory.mktemp("original"), is_clean=request.param == "clean")


# -- damage ------------------------------------------------------------------------------------------------------------


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) | 1 :]


def zero_range(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randint(1, 600))
    data[start:end] = bytes(end - start)


def zero_tail(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:] = bytes(len(data) - start)


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def add_garbage(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randint(1, 300))


DAMAGES: list[Callable[[bytearray, random.Random], None]] = [cut, zero_range, zero_tail, flip_bit, add_garbage]


def damaged_copies(original: Original, tmp_path: Path, files: list[Path]) -> list[tuple[Path, str]]:
    """(root of a copy, what was done to it), for every file, kind of damage and seed."""
    copies = []
    for file in files:
        for damage in DAMAGES:
            for seed in range(SEEDS):
                rng = random.Random(f"{file.name} {damage.__name__} {seed}")
                data = bytearray(file.read_bytes())
                if not data:
                    continue
                damage(data, rng)
                root = tmp_path / f"{file.name}-{damage.__name__}-{seed}"
                shutil.copytree(original.root, root)
                (root / file.relative_to(original.root)).write_bytes(data)
                copies.append((root, f"{file.name} {damage.__name__} {seed}"))
    assert copies
    return copies


def files_of(original: Original, pattern: str) -> list[Path]:
    return sorted(original.partition.glob(pattern))


# -- what may come of it -----------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """What a reader got, batch by batch, and whether something was refused on the way."""

    batches: dict[int, bytes]
    refusals: list[str]


def read_everything(log: Log, offsets: list[int]) -> Served:
    """Asks for every batch that there was."""
    served = Served({}, [])
    for offset in offsets:
        if not log.log_start_offset <= offset < log.end_offset:
            continue
        try:
            piece = log.read(offset, 1)
        except CorruptFileError as error:
            served.refusals.append(str(error))
            continue
        assert piece is not None
        served.batches[offset] = piece.records.read()
    return served


def check_served(served: Served, original: Original) -> None:
    """Each batch is the original's, or its reader finds that it is damaged."""
    expected = {batch.read_header(data).base_offset: data for data in original.batches}
    for offset, data in served.batches.items():
        if data != expected[offset]:
            try:
                batch.check(data, strict=False)
            except RecordsError:
                continue
            # Sound by its checksum: then it is a batch of the original, under an offset or epoch that is not its own.
            assert data[16:] in [other[16:] for other in original.batches], f"foreign records at {offset}"


def check_whole(log: Log, original: Original) -> None:
    """Nothing is lost, nothing is refused, all answers are right."""
    assert audit(log, indexes_are_sound=False) == original.batches
    assert log.epochs.entries == original.epochs
    for asked, answer in original.times.items():
        assert log.offset_for_time(asked) == answer, f"at time {asked}"
    headers = [batch.read_header(data) for data in original.batches]
    check_producers(log.producers, replay(zip(headers, original.batches, strict=True)).producers)


def opened(root: Path) -> tuple[Logs, Log]:
    logs = open_logs(root)
    log = logs.get(NAME)
    assert log is not None, logs.unreadable
    return logs, log


def check_each(original: Original, tmp_path: Path, files: list[Path], check: Callable[[Logs, Log], None]) -> None:
    for root, what in damaged_copies(original, tmp_path, files):
        try:
            logs, log = opened(root)
            check(logs, log)
            logs.close()
            # What was mended or given up stays so: the next start finds nothing new.
            again, log = opened(root)
            check(again, log)
            again.close()
        except Exception as error:
            error.add_note(what)
            raise


def test_an_undamaged_log_is_whole(original: Original, tmp_path: Path) -> None:
    shutil.copytree(original.root, tmp_path / "copy")
    logs, log = opened(tmp_path / "copy")
    check_whole(log, original)
    assert not logs.reports[NAME].problems
    logs.close()


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_a_damaged_index_is_mended(kind: str, original: Original, tmp_path: Path) -> None:
    """No checksum covers them. What cannot be found without reading the log: a cut between two whole entries."""
    check_each(original, tmp_path, files_of(original, f"*.{kind}"), lambda logs, log: check_whole(log, original))


def test_a_missing_index_is_made_anew(original: Original, tmp_path: Path) -> None:
    for kind in ("index", "timeindex"):
        root = tmp_path / kind
        shutil.copytree(original.root, root)
        for file in (root / str(NAME)).glob(f"*.{kind}"):
            file.unlink()
        logs, log = opened(root)
        check_whole(log, original)
        logs.close()


def test_a_damaged_snapshot_gives_way_to_an_earlier_one(original: Original, tmp_path: Path) -> None:
    check_each(original, tmp_path, files_of(original, "*.snapshot"), lambda logs, log: check_whole(log, original))


def test_damaged_leader_epochs_are_read_from_the_log(original: Original, tmp_path: Path) -> None:
    files = [original.partition / checkpoints.LEADER_EPOCHS]
    check_each(original, tmp_path, files, lambda logs, log: check_whole(log, original))


def test_missing_leader_epochs_are_read_from_the_log(original: Original, tmp_path: Path) -> None:
    shutil.copytree(original.root, tmp_path / "copy")
    (tmp_path / "copy" / str(NAME) / checkpoints.LEADER_EPOCHS).unlink()
    logs, log = opened(tmp_path / "copy")
    check_whole(log, original)
    logs.close()


@pytest.mark.parametrize(
    "name", [checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.CLEANER_OFFSETS]
)
def test_a_damaged_offset_checkpoint_costs_no_record(name: str, original: Original, tmp_path: Path) -> None:
    check_each(original, tmp_path, [original.root / name], lambda logs, log: check_whole(log, original))


def test_the_mark_of_a_clean_stop_may_hold_anything(original: Original, tmp_path: Path) -> None:
    file = original.root / CLEAN_SHUTDOWN_FILE
    if file.exists():
        check_each(original, tmp_path, [file], lambda logs, log: check_whole(log, original))


def test_a_damaged_topic_id_is_a_clear_error_or_another_id(original: Original, tmp_path: Path) -> None:
    """22 characters without a checksum: a flipped bit may make another id of it, which nobody here can know."""

    def check(logs: Logs, log: Log) -> None:
        check_whole(log, original)
        try:
            checkpoints.read_topic_id(RealDisk(), log.directory)
        except CorruptFileError as error:
            assert checkpoints.PARTITION_METADATA in str(error)  # noqa: PT017

    check_each(original, tmp_path, [original.partition / checkpoints.PARTITION_METADATA], check)


def test_a_damaged_segment_is_cut_or_refused_and_never_served_as_other_records(
    original: Original, tmp_path: Path
) -> None:
    offsets = [batch.read_header(data).base_offset for data in original.batches]

    def check(logs: Logs, log: Log) -> None:
        served = read_everything(log, offsets)
        check_served(served, original)
        for asked in original.times:
            with contextlib.suppress(CorruptFileError, RecordsError):  # a damaged batch on the way
                log.offset_for_time(asked)
        if len(served.batches) < len(offsets):
            assert served.refusals or log.end_offset < offsets[-1] + 1

    check_each(original, tmp_path, files_of(original, "*.log"), check)


def test_a_segment_that_was_lost_whole_is_reported(original: Original, tmp_path: Path) -> None:
    offsets = [batch.read_header(data).base_offset for data in original.batches]
    for file in files_of(original, "*.log"):
        root = tmp_path / file.name
        shutil.copytree(original.root, root)
        (root / str(NAME) / file.name).unlink()
        logs, log = opened(root)
        check_served(read_everything(log, offsets), original)
        logs.close()


# -- single bits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_every_flipped_bit_of_a_batch_is_found_but_in_what_no_checksum_covers(codec: Compression) -> None:
    data = batch.build([b"key"] * 3, [b"value-%d" % n for n in range(3)], START_MS, compression=codec, base_offset=70)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            scanned = batch.scan(damaged)
            is_found = scanned.problem is not None or scanned.is_cut
            assert is_found or position in UNCHECKED, f"byte {position}, bit {bit}: {scanned}"
            if is_found:
                with pytest.raises(RecordsError):
                    batch.check(damaged, strict=False)
