"""A tour of the log: written, read back, compacted, torn by a crash and recovered, with figures.

    python examples/log_tour.py [RECORDS]

Everything happens in a temporary directory that is gone afterwards.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from steps import check, step

from ottla.config import LogConfig
from ottla.disk import RealDisk
from ottla.ids import TopicPartition
from ottla.records import batch, codec
from ottla.records.layout import Compression
from ottla.storage import cleaner
from ottla.storage.log import Log
from ottla.storage.recovery import RecoveryReport, open_log

BATCH_RECORDS = 200
FETCH_BYTES = 1024 * 1024
KEYS = 20_000
PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=16 * 1024 * 1024, cleanup_policy=("compact",))


def now_ms() -> int:
    return int(time.time() * 1000)


def batch_of(number: int) -> bytearray:
    """The `number`-th batch of orders; the codecs take turns."""
    orders = range(number * BATCH_RECORDS, (number + 1) * BATCH_RECORDS)
    keys = [b"customer-%06d" % (order * 7919 % KEYS) for order in orders]
    values = [
        b'{"order": %d, "amount": %d, "currency": "EUR", "state": "paid"}' % (order, order % 997) for order in orders
    ]
    return batch.build(keys, values, now_ms(), compression=list(Compression)[number % len(Compression)])


def write(log: Log, batches: int) -> dict[bytes, bytes]:
    """Appends the batches and returns what a reader must find in the end: the last value of each key."""
    latest = {}
    for number in range(batches):
        data = batch_of(number)
        log.append(data, leader_epoch=0, now_ms=now_ms())
        columns = batch.decode(data)
        latest.update(zip(columns.keys, columns.values, strict=True))
    return latest


def read(log: Log) -> tuple[int, dict[bytes, bytes]]:
    """Reads the log as a consumer does, slice by slice: how many records, and the last value of each key."""
    count, latest, offset = 0, {}, log.log_start_offset
    while (found := log.read(offset, FETCH_BYTES)) is not None:
        data = found.records.read()
        position = 0
        for header in batch.scan(data).headers:
            columns = batch.decode(data, position)
            count += len(columns.keys)
            latest.update(zip(columns.keys, columns.values, strict=True))
            position += header.size_bytes
            offset = header.end_offset
    return count, latest


def compact(log: Log) -> cleaner.CleaningResult:
    """Compacts in a process of its own, as a broker does, so that nobody waits for it."""
    job = cleaner.plan(log, 0, high_watermark=log.end_offset, now_ms=now_ms())
    assert job is not None, "a log of many values per key is worth compacting"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = pool.submit(cleaner.run_job, job).result()
    assert cleaner.commit(log, result, now_ms())
    return result


def tear(log: Log) -> int:
    """Appends one more batch, but the power fails in the middle of it: the bytes that reached the disk."""
    log.abandon()
    data = batch_of(0)
    batch.stamp(data, log.end_offset, 0)
    torn = bytes(data[: len(data) // 2])
    with open(os.path.join(log.directory, f"{log.active.base_offset:020d}.log"), "ab") as file:
        file.write(torn)
    return len(torn)


def tour(directory: str, records: int) -> None:
    disk = RealDisk()
    log = open_log(disk, directory, PARTITION, CONFIG, now_ms=now_ms())
    with step("write") as notes:
        latest = write(log, records // BATCH_RECORDS)
        log.flush()
        notes += [f"{log.end_offset:,} records", f"{log.size_bytes / 1e6:.1f} MB", f"{len(log.segments)} segments"]
    with step("read back") as notes:
        count, found = read(log)
        notes += [f"{count:,} records", check(count == log.end_offset and found == latest, "all as written")]
    with step("find by time") as notes:
        first = log.offset_for_time(0)
        newest = log.offset_of_max_timestamp()
        assert first is not None
        assert newest is not None
        notes += [f"first record at offset {first.offset}", f"newest at offset {newest.offset:,}"]
    with step("compact, in another process") as notes:
        log.roll(now_ms())
        log.flush()
        before = log.size_bytes
        result = compact(log)
        notes += [f"{before / 1e6:.1f} -> {log.size_bytes / 1e6:.1f} MB", f"{result.records_kept:,} records left"]
    with step("read the compacted log") as notes:
        count, found = read(log)
        notes += [f"{count:,} records", check(found == latest, "the last value of every key is there")]
    end_offset = log.end_offset
    with step("tear it: half a batch, then power off") as notes:
        notes.append(f"{tear(log):,} torn bytes at the end")
    report = RecoveryReport()
    with step("recover") as notes:
        log = open_log(
            disk, directory, PARTITION, CONFIG, now_ms=now_ms(), recovery_point=log.recovery_point, report=report
        )
        notes += [
            f"{report.dropped_bytes:,} torn bytes cut off",
            check(log.end_offset == end_offset, "nothing else lost"),
        ]
    with step("write on, close, open again") as notes:
        log.append(batch_of(0), leader_epoch=1, now_ms=now_ms())
        log.close()
        log = open_log(disk, directory, PARTITION, CONFIG, now_ms=now_ms(), is_clean=True)
        epochs = ", ".join(f"epoch {epoch} from {offset:,}" for epoch, offset in log.epochs.entries)
        notes += [check(log.end_offset == end_offset + BATCH_RECORDS, f"{log.end_offset:,} is the next offset"), epochs]
        log.close()


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    core = "the compiled core" if codec.NATIVE else "the Python reference (no compiled core)"
    print(f"Ottla: the log of one partition, {records:,} records, on {core}\n")
    logging.disable(logging.WARNING)  # what recovery has to say is part of the tour
    directory = tempfile.mkdtemp(prefix="ottla-demo-")
    started = time.perf_counter()
    try:
        tour(os.path.join(directory, str(PARTITION)), records)
    finally:
        shutil.rmtree(directory)
    print(f"\nDone in {time.perf_counter() - started:.1f} s; {directory} is gone again.")


if __name__ == "__main__":
    main()
