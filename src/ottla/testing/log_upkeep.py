"""The upkeep of logs in one go, where nobody minds waiting for the disk.

A broker begins each of these on its loop, lets a thread run it, and ends it on the loop again: see `broker.upkeep` and
`broker.compaction`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.ids import TopicPartition
from ottla.storage import cleaner
from ottla.storage.cleaning_job import CleaningResult
from ottla.storage.log import Log
from ottla.storage.logs import Logs


def write_checkpoints(logs: Logs) -> None:
    """Makes recovery points, log start offsets and clean offsets of every directory durable."""
    for plan in logs.begin_checkpoint():
        plan.run()


def write_high_watermarks(logs: Logs, high_watermarks: Mapping[TopicPartition, int]) -> None:
    for plan in logs.begin_high_watermarks(high_watermarks):
        plan.run()


def unlink_due_segments(log: Log, now_ms: int) -> int:
    """Removes the files of segments that were deleted long enough ago; how many segments."""
    due = log.take_due(now_ms)
    for unlinking in due:
        unlinking.run()
    return len(due)


def unlink_due(logs: Logs, now_ms: int) -> int:
    """Removes the files of deleted segments and logs whose time has come; how many of either."""
    count = sum(unlink_due_segments(log, now_ms) for log in logs)
    for path in logs.take_due_directories(now_ms):
        logs.remove_tree(path)
        count += 1
    return count


def commit_cleaning(logs: Logs, partition: TopicPartition, result: CleaningResult, *, now_ms: int) -> bool:
    """Puts compacted segments in place; False, with nothing changed, where the log was cut in the meantime."""
    log = logs.get(partition)
    assert log is not None, f"{partition} has no log here"
    is_done = cleaner.commit(log, result, now_ms)
    if is_done:
        log.disk.sync_directory(log.directory)
        logs.end_cleaning(log, result)
    return is_done
