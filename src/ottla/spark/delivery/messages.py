"""What tasks of the exactly-once sink tell the driver. It travels between processes and holds values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.prepared import Prepared
from ottla.spark.delivery.decision import Writer


@dataclass(frozen=True, slots=True)
class PreparedWrite(WriterCommitMessage):
    """An attempt of a task: everything is written and acknowledged, and its transaction is open."""

    writer: Writer
    batch_id: int
    partition_id: int
    attempt_number: int
    record_count: int
    transaction: Prepared | None  # None: nothing to write, or the batch is decided already


def prepared_writes(messages: Iterable[WriterCommitMessage | None]) -> list[PreparedWrite]:
    """Those of the messages that are ours: tasks that failed have none."""
    return [message for message in messages if isinstance(message, PreparedWrite)]
