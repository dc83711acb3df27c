"""Why records were not appended, in the fields of a Produce answer: on the general way and on the short one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiError, ErrorCode, RecordsError
from ottla.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from ottla.records.layout import LENGTH_AT, LENGTH_PREFIX

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_OFFSET: Final = -1
# With these Kafka says no more than the code.
_WITHOUT_LOG_START: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_LENGTH = struct.Struct(">i")


def refuse(
    answer: PartitionProduceResponse, error: ApiError, records: Buffer | None, log_start_offset: int = NO_OFFSET
) -> None:
    """Puts the error into `answer`; `records` are those that were to be appended.

    `log_start_offset` is known where the records reached a log: the response has it beside the log's error.
    """
    code = error.code
    if code == ErrorCode.CORRUPT_MESSAGE and _is_cut(records):
        code = ErrorCode.INVALID_RECORD  # no whole batch: sending the same bytes again would not help
    answer.error_code = code
    if error.code not in _WITHOUT_LOG_START and _is_one_batch(records):
        answer.log_start_offset = log_start_offset
    answer.error_message = error.message or None
    if isinstance(error, RecordsError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
            for index, reason in error.bad_records
        ]


def _is_cut(records: Buffer | None) -> bool:
    return _first_batch_bytes(records) > len(memoryview(records or b""))


def _is_one_batch(records: Buffer | None) -> bool:
    """Anything else is refused before a log is asked."""
    return _first_batch_bytes(records) == len(memoryview(records or b""))


def _first_batch_bytes(records: Buffer | None) -> int:
    """How long the first batch says that it is; at least as long as what says so."""
    view = memoryview(records or b"")
    return LENGTH_PREFIX + (_LENGTH.unpack_from(view, LENGTH_AT)[0] if len(view) >= LENGTH_PREFIX else 0)
