"""The file that a clean stop writes into a log directory, and what a start reads from it."""

from __future__ import annotations

import json
import logging
import os
from enum import Enum, auto

from ottla.disk import Disk, read_file
from ottla.records.codec import crc32c
from ottla.storage import checkpoints
from ottla.storage.directory_names import partition_of
from ottla.storage.segment import LOG_SUFFIX

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"  # Kafka's name, so that either opens what the other closed
CLOSED_LOGS = "closedLogs"  # our own field of that file: a checksum of how the logs were left


class LastStop(Enum):
    """How a directory was left by whoever had it last."""

    CLEAN = auto()
    UNCLEAN = auto()
    BY_ANOTHER = auto()  # in order, by a program that keeps no checksums of the checkpoints


def write_clean_mark(disk: Disk, directory: str) -> None:
    """The logs are closed: the next start may trust what it finds."""
    mark = disk.open(os.path.join(directory, CLEAN_SHUTDOWN_FILE), create=True, writable=True)
    try:
        content = {"version": 0, "brokerEpoch": -1, CLOSED_LOGS: _ends_on_disk(disk, directory)}
        mark.write(0, json.dumps(content, separators=(",", ":")).encode())
        mark.sync()
    finally:
        mark.close()
    disk.sync_directory(directory)


def remove_clean_mark(disk: Disk, directory: str) -> None:
    """From here on a crash must not be taken for a clean stop."""
    disk.unlink(os.path.join(directory, CLEAN_SHUTDOWN_FILE))
    disk.sync_directory(directory)


def last_stop(disk: Disk, directory: str) -> LastStop:
    """How the last owner left the directory, and whether the logs are as it left them."""
    path = os.path.join(directory, CLEAN_SHUTDOWN_FILE)
    if not disk.exists(path):
        return LastStop.UNCLEAN
    try:
        mark = json.loads(read_file(disk, path) or b"{}")  # that of Kafka's older releases is empty
        if CLOSED_LOGS not in mark:
            return _stop_by_another(disk, directory)
        if mark[CLOSED_LOGS] == _ends_on_disk(disk, directory):
            return LastStop.CLEAN
    except (ValueError, TypeError) as error:
        logger.warning("%s: cannot be parsed (%s)", path, error)
    logger.warning("%s: does not match the logs; they are checked as after a crash", path)
    return LastStop.UNCLEAN


def _stop_by_another(disk: Disk, directory: str) -> LastStop:
    """By Apache Kafka, or by a release of ours that did not note how the logs and the checkpoints were left.

    Where we ran before it, our checksums are of checkpoints that it has replaced. And nothing says that the mark is
    of the last stop: so the logs are checked, from the recovery points on.
    """
    has_checksums = disk.exists(os.path.join(directory, checkpoints.CHECKSUMS))
    return LastStop.BY_ANOTHER if has_checksums else LastStop.CLEAN


def _ends_on_disk(disk: Disk, directory: str) -> int:
    """A checksum of where the logs end by their files: the mark of another stop has another one."""
    ends = []
    for name in disk.list_directory(directory):
        path = os.path.join(directory, name)
        if partition_of(name) is not None and disk.is_directory(path):
            last = max((file for file in disk.list_directory(path) if file.endswith(LOG_SUFFIX)), default="")
            ends.append(f"{name} {last} {disk.size(os.path.join(path, last)) if last else 0}\n")
    return crc32c("".join(sorted(ends)).encode())
