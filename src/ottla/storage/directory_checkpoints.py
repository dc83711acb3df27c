"""The checkpoint files of one log directory: read at the start, written by any thread, believed by their checksums."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition
from ottla.records.codec import crc32c
from ottla.storage import checkpoints

logger = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """What the checkpoints said at the start, as far as they are to be believed."""

    recovery_points: Offsets | None  # None where nobody knows what was flushed
    log_start_offsets: Offsets
    clean_offsets: Offsets
    high_watermarks: Offsets

    def by_file(self) -> dict[str, Offsets]:
        """Of those that are written together."""
        return {
            checkpoints.RECOVERY_POINTS: self.recovery_points or {},
            checkpoints.LOG_START_OFFSETS: self.log_start_offsets,
            checkpoints.CLEANER_OFFSETS: self.clean_offsets,
        }


class DirectoryCheckpoints:
    """Owns what is known of the files: the checksum of each as it was written last, and who has written it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._lock = Lock()
        self._plan_count = 0
        self._written: dict[str, int] = {}  # the number of the plan that wrote a file last
        self._checksums: dict[str, int] = {}
        self._settled: set[str] = set()  # those that were written since the start, and whole
        # What they say of logs that could not be opened: it is needed once they can be.
        self._left_alone: dict[str, dict[TopicPartition, int]] = {}

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, *, by_checksums: bool) -> Checkpointed:
        """What they say; not `by_checksums` where somebody wrote them who does not keep any."""
        known = self._read_checksums() if by_checksums else {}
        return Checkpointed(
            recovery_points=self._read(checkpoints.RECOVERY_POINTS, known),
            log_start_offsets=self._read(checkpoints.LOG_START_OFFSETS, known) or {},
            clean_offsets=self._read(checkpoints.CLEANER_OFFSETS, known) or {},
            high_watermarks=self._read(checkpoints.HIGH_WATERMARKS, known) or {},
        )

    def _read_checksums(self) -> dict[str, tuple[int, ...]]:
        try:
            return checkpoints.read_checksums(self._disk, self._path(checkpoints.CHECKSUMS))
        except CorruptFileError as error:
            logger.warning("%s; it is rebuilt", error)
            return {}

    def _read(self, name: str, known: Mapping[str, tuple[int, ...]]) -> dict[TopicPartition, int] | None:
        """A checkpoint; None for one that is not to be believed, which costs time (a longer check) and never data."""
        path = self._path(name)
        if name not in known and not self._disk.exists(path):
            return None  # the first start here
        try:
            offsets = checkpoints.read_offsets(self._disk, path, known.get(name, ()))
        except CorruptFileError as error:
            logger.warning("%s; it is rebuilt", error)
            self._disk.unlink(path)  # or the next start would find it, and nothing that says what is wrong with it
            return None
        # What stands there is known until the next writing is whole: the first one after a start may be cut off too.
        self._checksums[name] = crc32c(read_file(self._disk, path))
        return offsets

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def leave_alone(self, partition: TopicPartition, said: Checkpointed) -> None:
        """The log could not be opened: what was said of it is said again, until it can be."""
        for name, offsets in said.by_file().items():
            if partition in offsets:
                self._left_alone.setdefault(name, {})[partition] = offsets[partition]

    # -- writing -------------------------------------------------------------------------------------------------------

    def numbered(self, offsets: Mapping[str, Offsets]) -> tuple[int, dict[str, Offsets]]:
        """The number of a new plan, and what it writes: also what is said of logs that were left alone."""
        self._plan_count += 1
        return self._plan_count, {name: {**self._left_alone.get(name, {}), **own} for name, own in offsets.items()}

    def write(self, number: int, offsets: Mapping[str, Offsets]) -> None:
        """Of two plans for the same file the later one wins, whichever runs last."""
        with self._lock:
            coming = {}
            for name, values in offsets.items():
                if self._written.get(name, 0) < number:
                    text = checkpoints.offsets_text(values)
                    # What was written since the start and stays as it is needs no writing.
                    if name not in self._settled or self._checksums.get(name) != crc32c(text):
                        coming[name] = text
            if coming:
                self._write(coming)
            for name in offsets:  # only now: a plan that failed may run again
                self._written[name] = max(number, self._written.get(name, 0))

    def _write(self, coming: Mapping[str, bytes]) -> None:
        """While files are written, both what they were and what they become is known: a crash in between costs neither.

        And not any longer: what was true before a truncation must not be believed after it.
        """
        path = self._path(checkpoints.CHECKSUMS)
        self._settled -= coming.keys()  # an error leaves any of them as it was, or as it was to be
        before = self._checksums
        after = before | {name: crc32c(text) for name, text in coming.items()}
        either = {name: {before.get(name, checksum), checksum} for name, checksum in after.items()}
        checkpoints.write_checksums(self._disk, path, either)
        for name, text in coming.items():
            write_atomically(self._disk, self._path(name), [text])
        checkpoints.write_checksums(self._disk, path, {name: {checksum} for name, checksum in after.items()})
        self._checksums = after
        self._settled |= coming.keys()
