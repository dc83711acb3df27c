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
from ottla.runtime.turns import STEP, Steps
from ottla.storage.lookups import LongLookupError, Looked, TimeLookup

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The first version that knows a special timestamp; an earlier client that sends it gets an error.
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


FIRST_NOT_AVAILABLE_VERSION = 5
FIRST_EPOCH_VERSION = 4


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = Found(-1, -1, -1)


class Unfinished(NamedTuple):
    """An answer that waits for a batch to be decompressed in a thread."""

    topic: str
    entry: ListOffsetsPartition
    answer: ListOffsetsPartitionResponse
    lookup: TimeLookup


async def handle(broker: Broker, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    unfinished: list[Unfinished] = []
    response = await broker.turns.finish(_begun(broker, request, context, unfinished))
    if unfinished:
        await _finish(broker, request, context, unfinished)
    return response


def _begun(
    broker: Broker, request: ListOffsetsRequest, context: Context, unfinished: list[Unfinished]
) -> Steps[ListOffsetsResponse]:
    """The answer, in which those that are added to `unfinished` have yet to be filled."""
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    looked_at = 0  # of all topics together: most have few partitions
    for topic in request.topics:
        partitions = answers.setdefault(topic.name, {})
        for entry in topic.partitions:
            index = entry.partition_index
            try:
                if index in partitions:  # then it is answered once, and not with an offset
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is in the request twice")
                check_isolation(request.isolation_level)
                _check_timestamp(entry.timestamp, context.version)
                partition = broker.replicas.find(topic.name, index)
                found = _find(partition, entry, request, {})
                partitions[index] = _answer(index, found, context.version)
            except LongLookupError as error:
                partitions[index] = ListOffsetsPartitionResponse(partition_index=index)
                unfinished.append(Unfinished(topic.name, entry, partitions[index], error.lookup))
            except ApiError as error:
                code = _code_of(error, context.version)
                partitions[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=code)
            looked_at += 1
            if looked_at % STEP == 0:
                yield
        looked_at += 1  # a topic without partitions, too
        if looked_at % STEP == 0:
            yield
    topics = []
    for name, partitions in answers.items():
        topics.append(ListOffsetsTopicResponse(name=name, partitions=list(partitions.values())))
        if len(topics) % STEP == 0:
            yield
    return ListOffsetsResponse(topics=topics)


async def _finish(broker: Broker, request: ListOffsetsRequest, context: Context, unfinished: list[Unfinished]) -> None:
    """Decompresses batches in a thread, one at a time, and looks again at the log as it is then."""
    for topic, entry, answer, first in unfinished:
        lookup: TimeLookup | None = first
        looked: Looked = {}
        while lookup is not None:
            async with broker.long_checks:
                looked[lookup.key] = await broker.offload.computed(lookup.run)
            try:
                partition = broker.replicas.find(topic, entry.partition_index)
                found = _find(partition, entry, request, looked)
                _fill(answer, found, context.version)
                lookup = None
            except LongLookupError as error:
                lookup = error.lookup
            except ApiError as error:
                answer.error_code = _code_of(error, context.version)
                lookup = None


def _answer(index: int, found: Found, version: int) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=index)
    _fill(answer, found, version)
    return answer


def _fill(answer: ListOffsetsPartitionResponse, found: Found, version: int) -> None:
    if version == 0:  # asks for a list with a limit; the offset that fits best is in it
        answer.old_style_offsets = [found.offset] if found.offset >= 0 else []
        return
    answer.offset = found.offset
    answer.timestamp = found.timestamp
    answer.leader_epoch = found.leader_epoch if version >= FIRST_EPOCH_VERSION else -1


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < EARLIEST_PENDING_UPLOAD or version < FIRST_VERSION.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {version} does not support timestamp {timestamp}")


def _find(partition: Partition, entry: ListOffsetsPartition, request: ListOffsetsRequest, looked: Looked) -> Found:
    partition.leader.check_epoch(entry.current_leader_epoch)
    log = partition.log
    upper_offset = log.end_offset if request.replica_id >= 0 else partition.upper_offset(request.isolation_level)
    match entry.timestamp:
        case -1:
            _check_watermark(partition, request)
            # Asked for by the epoch of the end, so that a reader can notice a truncation.
            return Found(upper_offset, -1, partition.leader.epoch)
        case -2 | -4:
            return Found(log.log_start_offset, -1, log.epochs.epoch_at(log.log_start_offset))
        case -5 | -6:
            return NOT_FOUND  # nothing is tiered
        case _:
            found = _find_by_time(partition, entry.timestamp, upper_offset, looked)
            if found is NOT_FOUND:
                _check_watermark(partition, request)
            return found


def _check_watermark(partition: Partition, request: ListOffsetsRequest) -> None:
    """OFFSET_NOT_AVAILABLE where a new leader does not know yet that all from before its epoch is committed.

    A client that got a later high watermark from the previous leader would see it go back (KIP-207).
    """
    leader = partition.leader
    if request.replica_id < 0 and leader.high_watermark < leader.epoch_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.name} is known to be committed up to {leader.high_watermark}; its leader began its epoch at "
            f"{leader.epoch_start_offset}",
        )


def _code_of(error: ApiError, version: int) -> ErrorCode:
    if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_NOT_AVAILABLE_VERSION:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error.code


def _find_by_time(partition: Partition, timestamp: int, upper_offset: int, looked: Looked) -> Found:
    is_latest = timestamp == MAX_TIMESTAMP
    found = partition.offset_of_max_timestamp(looked) if is_latest else partition.offset_for_time(timestamp, looked)
    if found is None or found.offset >= upper_offset:
        return NOT_FOUND
    return Found(found.offset, found.timestamp, partition.log.epochs.epoch_at(found.offset))
