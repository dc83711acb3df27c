"""What only a consumer can run into."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.consumer.positions import Truncation
from ottla.client.errors import ConfigurationError, RestartError, RetriableError
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import TopicPartition


class NoOffsetForPartitionError(ConfigurationError):
    """There is no committed offset, and `auto_offset_reset` is `none`: seek, or commit one."""

    CODE = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, partitions: Iterable[TopicPartition], message: str = "") -> None:
        self.partitions = tuple(sorted(partitions))
        names = ", ".join(map(str, self.partitions))
        super().__init__(message or f"no offset to start from in {names}, and auto_offset_reset is none")


class LogTruncationError(ConfigurationError):
    """Records that were read are not in the log any more: an unclean election lost them."""

    CODE = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, found: Truncation) -> None:
        self.truncation = found
        super().__init__(
            f"{found.partition} was read up to offset {found.position.offset}, of which the new leader has only "
            f"those before {found.end_offset}; seek to go on"
        )


class CommitFailedError(RestartError):
    """Offsets were not committed: this consumer is no longer the member of its group that read them."""

    CODE = ErrorCode.UNKNOWN_MEMBER_ID


class CommitInRebalanceError(RetriableError):
    """Offsets were not committed because the group rebalances: poll, then commit again."""

    CODE = ErrorCode.REBALANCE_IN_PROGRESS


class WakeupError(OttlaError):
    """`wakeup()` was called."""


class RecordDeserializationError(OttlaError):
    """A record cannot be read; the position stays before it. `seek` past it to go on."""

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        field: str,
        key: bytes | None,
        value: bytes | None,
        cause: Exception,
    ) -> None:
        super().__init__(f"the {field} of the record at offset {offset} of {partition} cannot be read: {cause}")
        self.partition, self.offset, self.field = partition, offset, field
        self.key, self.value = key, value
