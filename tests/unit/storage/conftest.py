"""One partition's directory on the real disk, and short words for what the tests do with its log."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.config import LogConfig
from ottla.disk import RealDisk
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.records.control import EndTransactionMarker
from ottla.storage.appended import Appended
from ottla.storage.log import Log
from ottla.storage.recovery import RecoveryReport, open_log
from ottla.testing.audit import batches_of

NOW = 1_700_000_000_000


class Home:
    """The directory of one partition. Every log that it opened is let go of when the test ends."""

    now_ms = NOW

    def __init__(self, directory: Path) -> None:
        self.disk = RealDisk()
        self.directory = str(directory)
        self.name = TopicPartition("orders", 0)
        self.report = RecoveryReport()
        self._opened: list[Log] = []

    # -- opening -------------------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        config: LogConfig | None = None,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        now_ms: int = NOW,
        seed: int = 0,
        **settings: Any,
    ) -> Log:
        """The log under these settings (`segment_bytes=…`), as a start after a clean stop or after a crash."""
        self.report = RecoveryReport()
        log = open_log(
            self.disk,
            self.directory,
            self.name,
            LogConfig(**settings) if config is None else config,
            now_ms=now_ms,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            rng=random.Random(seed),
            report=self.report,
        )
        self._opened.append(log)
        return log

    def restart(self, log: Log) -> Log:
        """Closes the log in order and opens it again."""
        log.close()
        return self.open(config=log.config, is_clean=True, log_start_offset=log.log_start_offset)

    def restart_after_kill(self, log: Log) -> Log:
        """The process died: the files are as they are, only the checkpoints of the moment are known."""
        log.abandon()
        return self.open(config=log.config, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)

    def let_go(self) -> None:
        for log in self._opened:
            log.abandon()

    # -- writing -------------------------------------------------------------------------------------------------------

    @staticmethod
    def batch(
        *values: bytes | None, keys: list[bytes | None] | None = None, at: int | list[int] = NOW, **options: Any
    ) -> bytearray:
        return batch.build(keys, values, at, **options)

    def produce(
        self,
        log: Log,
        *values: bytes | None,
        leader_epoch: int = 0,
        now_ms: int = NOW,
        keys: list[bytes | None] | None = None,
        at: int | list[int] = NOW,
        **options: Any,
    ) -> Appended:
        """Appends one batch of these values."""
        return log.append(self.batch(*values, keys=keys, at=at, **options), leader_epoch=leader_epoch, now_ms=now_ms)

    def put(self, log: Log, *pairs: tuple[bytes, bytes | None], **options: Any) -> Appended:
        """Appends one batch of these keys and values."""
        keys, values = zip(*pairs, strict=True)
        return self.produce(log, *values, keys=list(keys), **options)

    def send(
        self, log: Log, producer_id: int, sequence: int, *values: bytes | None, epoch: int = 0, **options: Any
    ) -> Appended:
        """Appends one batch of an idempotent producer; with `is_transactional=True` of its transaction."""
        options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence} | options
        return self.produce(log, *(values or (b"v",)), **options)

    def end(
        self,
        log: Log,
        producer_id: int,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        now_ms: int = NOW,
    ) -> Appended:
        """Ends the transaction of a producer."""
        marker = EndTransactionMarker(commit, coordinator_epoch)
        return log.append_marker(producer_id, epoch, marker, leader_epoch=0, now_ms=now_ms)

    # -- reading -------------------------------------------------------------------------------------------------------

    @staticmethod
    def headers(log: Log, start_offset: int | None = None) -> list[BatchHeader]:
        return [header for header, _ in batches_of(log, start_offset)]

    @staticmethod
    def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of every data record in the log."""
        return [
            (record.offset, record.key, record.value)
            for header, data in batches_of(log)
            if not header.is_control
            for record in batch.iterate(data)
        ]

    def values(self, log: Log) -> list[bytes | None]:
        return [value for _, _, value in self.records(log)]

    @staticmethod
    def bases(log: Log) -> list[int]:
        return [segment.base_offset for segment in log.segments]

    def files(self, ending: str = "") -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.endswith(ending))

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def content(self, name: str) -> bytes:
        return Path(self.directory, name).read_bytes()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is lost here (tests/crash does that), and waiting for the disk would be most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def home(tmp_path: Path) -> Any:
    place = Home(tmp_path / "orders-0")
    yield place
    place.let_go()


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()
