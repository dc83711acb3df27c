"""The state of share groups, as group and share coordinators pass it between brokers."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, Int64, String, Uuid


@struct
class InitializeShareGroupStateRequestPartitionData:
    """An entry of `partitions` of `InitializeStateData`."""

    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@struct
class InitializeStateData:
    """An entry of `topics` of `InitializeShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStateRequestPartitionData]


@message(key=83, versions=(0, 0), flexible=0, listeners=("broker",))
class InitializeShareGroupStateRequest:
    """A group coordinator has share state set up."""

    group_id: String
    topics: list[InitializeStateData]


@struct
class InitializeShareGroupStateResponsePartitionResult:
    """An entry of `partitions` of `InitializeStateResult`, among others."""

    partition: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class InitializeStateResult:
    """An entry of `results` of `InitializeShareGroupStateResponse`."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStateResponsePartitionResult]


@message(key=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse:
    """The outcome per partition."""

    results: list[InitializeStateResult]


@struct
class ReadShareGroupStateRequestPartitionData:
    """An entry of `partitions` of `ReadStateData` and of `partitions` of `ReadStateSummaryData`."""

    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateData:
    """An entry of `topics` of `ReadShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStateRequestPartitionData]


@message(key=84, versions=(0, 0), flexible=0, listeners=("broker",))
class ReadShareGroupStateRequest:
    """A share-partition leader asks for its saved state."""

    group_id: String
    topics: list[ReadStateData]


@struct
class StateBatch:
    """An entry of `state_batches` of `ReadShareGroupStateResponsePartitionResult`, among others."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class ReadShareGroupStateResponsePartitionResult:
    """An entry of `partitions` of `ReadStateResult`."""

    partition: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


@struct
class ReadStateResult:
    """An entry of `results` of `ReadShareGroupStateResponse`."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStateResponsePartitionResult]


@message(key=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse:
    """The saved state of each partition."""

    results: list[ReadStateResult]


@struct
class WriteShareGroupStateRequestPartitionData:
    """An entry of `partitions` of `WriteStateData`."""

    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = wire(since=1, default=-1, ignorable=True)
    state_batches: list[StateBatch]


@struct
class WriteStateData:
    """An entry of `topics` of `WriteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[WriteShareGroupStateRequestPartitionData]


@message(key=85, versions=(0, 1), flexible=0, listeners=("broker",))
class WriteShareGroupStateRequest:
    """A share-partition leader saves its state."""

    group_id: String
    topics: list[WriteStateData]


@struct
class WriteStateResult:
    """An entry of `results` of `WriteShareGroupStateResponse`."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStateResponsePartitionResult]


@message(key=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse:
    """The outcome per partition."""

    results: list[WriteStateResult]


@struct
class DeleteShareGroupStateRequestPartitionData:
    """An entry of `partitions` of `DeleteStateData`."""

    partition: Int32


@struct
class DeleteStateData:
    """An entry of `topics` of `DeleteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[DeleteShareGroupStateRequestPartitionData]


@message(key=86, versions=(0, 0), flexible=0, listeners=("broker",))
class DeleteShareGroupStateRequest:
    """A group coordinator has share state removed."""

    group_id: String
    topics: list[DeleteStateData]


@struct
class DeleteStateResult:
    """An entry of `results` of `DeleteShareGroupStateResponse`."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStateResponsePartitionResult]


@message(key=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse:
    """The outcome per partition."""

    results: list[DeleteStateResult]


@struct
class ReadStateSummaryData:
    """An entry of `topics` of `ReadShareGroupStateSummaryRequest`."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStateRequestPartitionData]


@message(key=87, versions=(0, 1), flexible=0, listeners=("broker",))
class ReadShareGroupStateSummaryRequest:
    """A group coordinator asks for start offsets only."""

    group_id: String
    topics: list[ReadStateSummaryData]


@struct
class ReadShareGroupStateSummaryResponsePartitionResult:
    """An entry of `partitions` of `ReadStateSummaryResult`."""

    partition: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = wire(since=1, default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    """An entry of `results` of `ReadShareGroupStateSummaryResponse`."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStateSummaryResponsePartitionResult]


@message(key=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse:
    """The summary of each partition."""

    results: list[ReadStateSummaryResult]
