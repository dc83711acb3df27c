"""ListOffsets: the offset at a time, or one of the special ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.partition import Partition, check_isolation
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The first version that knows a special timestamp; an earlier client that sends it is told so.
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


FIRST_EPOCH_VERSION = 4


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = Found(-1, -1, -1)


def handle(broker: Broker, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        partitions = answers.setdefault(topic.name, {})
        for wish in topic.partitions:
            index = wish.partition_index
            try:
                if index in partitions:  # then it is answered once, and not with an offset
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                check_isolation(request.isolation_level)
                _check_timestamp(wish.timestamp, context.version)
                partition = broker.replicas.find(topic.name, index)
                partitions[index] = _answer(index, _find(partition, wish, request), context.version)
            except ApiError as error:
                partitions[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(partitions.values()))
            for name, partitions in answers.items()
        ]
    )


def _answer(index: int, found: Found, version: int) -> ListOffsetsPartitionResponse:
    if version == 0:  # asked for a list of at most so many offsets; the one that fits best is in it
        return ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=[found.offset] if found.offset >= 0 else []
        )
    epoch = found.leader_epoch if version >= FIRST_EPOCH_VERSION else -1
    return ListOffsetsPartitionResponse(
        partition_index=index, offset=found.offset, timestamp=found.timestamp, leader_epoch=epoch
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < EARLIEST_PENDING_UPLOAD or version < FIRST_VERSION.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {version} does not know timestamp {timestamp}")


def _find(partition: Partition, wish: ListOffsetsPartition, request: ListOffsetsRequest) -> Found:
    partition.leader.check_epoch(wish.current_leader_epoch)
    log = partition.log
    upper_offset = log.end_offset if request.replica_id >= 0 else partition.upper_offset(request.isolation_level)
    match wish.timestamp:
        case -1:
            # Asked for by the epoch of the end, so that a reader can notice a truncation.
            return Found(upper_offset, -1, partition.leader.epoch)
        case -2 | -4:
            return Found(log.log_start_offset, -1, log.epochs.epoch_at(log.log_start_offset))
        case -5 | -6:
            return NOT_FOUND  # nothing is tiered
        case _:
            return _find_by_time(partition, wish.timestamp, upper_offset)


def _find_by_time(partition: Partition, timestamp: int, upper_offset: int) -> Found:
    is_latest = timestamp == MAX_TIMESTAMP
    found = partition.offset_of_max_timestamp() if is_latest else partition.offset_for_time(timestamp)
    if found is None or found.offset >= upper_offset:
        return NOT_FOUND
    return Found(found.offset, found.timestamp, partition.log.epochs.epoch_at(found.offset))
