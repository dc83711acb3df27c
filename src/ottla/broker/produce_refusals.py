"""Why records were not appended, in the fields of a Produce answer: on the general way and on the short one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode, RecordsError
from ottla.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from ottla.records.layout import LENGTH_AT, LENGTH_PREFIX

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LENGTH = struct.Struct(">i")


def refuse(answer: PartitionProduceResponse, error: ApiError, records: Buffer | None) -> None:
    """Makes `answer` tell the error; `records` are those that were to be appended."""
    code = error.code
    if code == ErrorCode.CORRUPT_MESSAGE and _is_cut(records):
        code = ErrorCode.INVALID_RECORD  # no whole batch: sending the same bytes again would not help
    answer.error_code = code
    answer.error_message = error.message or None
    if isinstance(error, RecordsError) and error.record_index is not None:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=error.record_index, batch_index_error_message=error.message)
        ]


def _is_cut(records: Buffer | None) -> bool:
    view = memoryview(records or b"")
    return len(view) < LENGTH_PREFIX or _LENGTH.unpack_from(view, LENGTH_AT)[0] > len(view) - LENGTH_PREFIX
