"""A disk without room: a clear error to whoever writes, and a log that stays whole and goes on once there is room."""

from __future__ import annotations

import contextlib
import errno
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.config import LogConfig
from ottla.disk import Disk, RealDisk
from ottla.errors import DiskFullError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.testing.audit import audit
from ottla.testing.disk import SimulatedDisk
from ottla.testing.log_upkeep import write_checkpoints

NAME = TopicPartition("full", 0)
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
START_MS = 1_700_000_000_000


class Full:
    """A log directory on a small disk, with `ballast` that can be thrown out to make room."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.ballast, self.crumbs = f"{root}/ballast", f"{root}/crumbs"
        self.rng = random.Random(3)
        self.batches: list[bytes] = []
        self.sequence = 0
        self.epoch = 0
        self.open()

    def open(self) -> None:
        self.logs = Logs(self.disk, [self.root], lambda topic: CONFIG)
        self.logs.open(START_MS)
        self.log: Log = self.logs.create(NAME, now_ms=START_MS)

    def take_room(self, size_bytes: int) -> None:
        file = self.disk.open(self.ballast, create=True, writable=True)
        file.write(0, bytes(size_bytes))
        file.close()

    def take_the_rest(self) -> None:
        """What a refused batch leaves free is enough for a small file."""
        file = self.disk.open(self.crumbs, create=True, writable=True)
        for size_bytes in (4096, 64, 1):
            with contextlib.suppress(DiskFullError):
                while True:
                    file.write(file.size(), bytes(size_bytes))
        file.close()

    def make_room(self) -> None:
        self.disk.unlink(self.ballast)
        self.disk.unlink(self.crumbs)

    def append(self) -> None:
        count = self.rng.randint(1, 5)
        data = batch.build(
            None,
            [self.rng.randbytes(200) for _ in range(count)],
            START_MS + len(self.batches),
            producer_id=1,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        expected = bytearray(data)
        batch.stamp(expected, self.log.end_offset, self.epoch)
        self.log.append(data, leader_epoch=self.epoch, now_ms=START_MS)
        self.batches.append(bytes(expected))
        self.sequence += count

    def append_until_full(self) -> None:
        with pytest.raises(DiskFullError, match="No space left"):
            self.append_for_ever()

    def append_for_ever(self) -> None:
        while True:
            self.append()

    def check(self) -> None:
        assert audit(self.log) == self.batches

    def check_goes_on(self) -> None:
        """Appends and rolls again, and nothing is missing or damaged after a clean and after an unclean stop."""
        self.check()
        for _ in range(5):
            self.append()
        self.log.roll(START_MS)
        self.append()
        self.check()
        self.logs.close()
        self.open()
        assert not self.logs.reports[NAME].problems
        self.check()
        self.append()
        self.log.abandon()
        self.logs.close_locks()
        self.open()
        assert not self.logs.reports[NAME].problems
        self.check()
        self.logs.close()


@pytest.fixture(params=["simulated", "tmpfs"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Full]:
    """One mebibyte in all, most of it taken."""
    if request.param == "simulated":
        story = Full(SimulatedDisk(capacity_bytes=1 << 20), "/data")
        story.take_room(800_000)
        yield story
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "ottla-test", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        story = Full(RealDisk(), str(tmp_path))
        story.take_room(800_000)
        yield story
        story.log.abandon()
        story.logs.close_locks()
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_an_append_without_room_is_refused_and_leaves_the_log_as_it_was(full: Full) -> None:
    full.append_until_full()
    end_offset = full.log.end_offset
    full.check()
    for _ in range(3):
        full.append_until_full()
    full.check()
    assert full.log.end_offset >= end_offset
    full.make_room()
    full.check_goes_on()


def test_a_roll_without_room_leaves_the_log_as_it_was(full: Full) -> None:
    full.append()  # an empty segment has nothing to roll
    full.take_the_rest()
    with pytest.raises(DiskFullError):
        full.log.roll(START_MS)
    full.check()
    full.make_room()
    full.log.roll(START_MS)
    full.check_goes_on()


def test_a_flush_without_room_loses_nothing_that_was_flushed(full: Full) -> None:
    full.append()
    full.log.flush()
    full.epoch = 1  # so that there is something to write
    full.append_until_full()
    full.take_the_rest()
    with pytest.raises(DiskFullError):
        full.log.flush()
    full.check()
    full.make_room()
    full.log.flush()
    assert full.log.recovery_point == full.log.end_offset
    full.check_goes_on()


def test_a_checkpoint_without_room_leaves_the_one_that_was_there(full: Full) -> None:
    full.append()
    full.log.flush()
    write_checkpoints(full.logs)
    full.append_until_full()
    full.log.flush()  # so that there is something to write
    full.take_the_rest()
    with pytest.raises(DiskFullError):
        write_checkpoints(full.logs)
    full.check()
    full.log.abandon()
    full.logs.close_locks()
    full.make_room()
    full.open()
    full.check_goes_on()


def test_an_unclean_stop_on_a_full_disk_opens_again(full: Full) -> None:
    full.append_until_full()
    full.log.abandon()
    full.logs.close_locks()
    full.make_room()
    full.open()
    full.check_goes_on()


OPERATIONS: dict[str, Callable[[Full], object]] = {
    "append": Full.append,
    "roll": lambda full: full.log.roll(START_MS),
    "flush": lambda full: full.log.flush(),
    "checkpoint": lambda full: write_checkpoints(full.logs),
}


@pytest.mark.parametrize("written", [0.0, 0.5])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wherever_there_is_no_room_the_same_works_once_there_is(operation: str, written: float) -> None:
    """Every single write and creation of an operation fails in turn."""

    def prepared() -> Full:
        full = Full(SimulatedDisk(), "/data")
        for _ in range(8):
            full.append()
        return full

    whole = prepared()
    start = len(whole.disk.operations)  # type: ignore[attr-defined]
    OPERATIONS[operation](whole)
    done = whole.disk.operations[start:]  # type: ignore[attr-defined]
    for target in {(step.kind, step.path) for step in done if step.kind in ("write", "create")}:
        full = prepared()
        disk = full.disk
        assert isinstance(disk, SimulatedDisk)
        fault = disk.fail(target[1], target[0], errno.ENOSPC, written=written)
        with pytest.raises(DiskFullError):
            OPERATIONS[operation](full)
        full.check()
        disk.heal(fault)
        OPERATIONS[operation](full)
        full.check_goes_on()
