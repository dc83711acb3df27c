"""A small partition on disk, the same at every run, and a way to call the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.disk import RealDisk
from ottla.ids import TopicPartition, parse_topic_id
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.records.control import EndTransactionMarker
from ottla.storage import checkpoints
from ottla.storage.recovery import open_log
from ottla.testing.topic_config import topic_config

EPOCH_MS = 1_700_000_000_000
NOW_MS = EPOCH_MS + 3_600_000
PRODUCER, SHOPKEEPER = 7, 8


@pytest.fixture
def ottla(run_command: Callable[..., Any]) -> Callable[..., Any]:
    return run_command


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`orders-0`: two segments of plain, compressed and transactional batches with all the files beside them."""
    directory = tmp_path / "orders-0"
    config = topic_config({"internal.segment.bytes": "700", "index.interval.bytes": "100"})
    log = open_log(RealDisk(), str(directory), TopicPartition("orders", 0), config, now_ms=NOW_MS)

    def append(first: int, count: int, codec: Compression, producer_id: int, sequence: int) -> None:
        numbers = range(first, first + count)
        log.append(
            batch.build(
                [b"order-%d" % number for number in numbers],
                [b'{"total": %d}' % (number * 100) for number in numbers],
                [EPOCH_MS + number * 1000 for number in numbers],
                headers=[[("source", b"web")] for _ in numbers],
                compression=codec,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=producer_id == SHOPKEEPER,
            ),
            leader_epoch=4,
            now_ms=NOW_MS,
        )

    append(0, 3, Compression.NONE, PRODUCER, 0)
    append(3, 3, Compression.LZ4, PRODUCER, 3)
    append(6, 2, Compression.NONE, SHOPKEEPER, 0)
    aborted = EndTransactionMarker(commit=False, coordinator_epoch=1)
    log.append_marker(SHOPKEEPER, 0, aborted, leader_epoch=4, now_ms=EPOCH_MS + 8000)
    log.roll(NOW_MS)
    append(9, 2, Compression.NONE, PRODUCER, 6)
    append(11, 2, Compression.NONE, SHOPKEEPER, 2)
    log.close()
    checkpoints.write_topic_id(RealDisk(), str(directory), parse_topic_id("b3R0bGEtZ3VpZGUtMTIzNA"))
    return directory
