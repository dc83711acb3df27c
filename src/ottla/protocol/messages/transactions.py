"""Idempotent producers and transactions."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int8, Int16, Int32, Int64, String


@message(key=22, versions=(0, 6), flexible=2, listeners=("broker",), advertised=(0, 5))
class InitProducerIdRequest:
    """Asks for a producer id and epoch, and fences earlier holders of a transactional id."""

    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = wire(since=3, default=-1)
    producer_epoch: Int16 = wire(since=3, default=-1)
    enable2_pc: Bool = wire(since=6, default=False)
    keep_prepared_txn: Bool = wire(since=6, default=False)


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    """The producer id and epoch to use."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    producer_id: Int64 = wire(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = wire(since=6, default=-1)
    ongoing_txn_producer_epoch: Int16 = wire(since=6, default=-1)


@struct
class AddPartitionsToTxnTopic:
    """An entry of `topics` of `AddPartitionsToTxnTransaction`, among others."""

    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """An entry of `transactions` of `AddPartitionsToTxnRequest`."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = wire(default=False)
    topics: list[AddPartitionsToTxnTopic]


@message(key=24, versions=(0, 5), flexible=3, listeners=("broker",))
class AddPartitionsToTxnRequest:
    """Adds partitions to transactions; brokers use it in batches to verify them."""

    transactions: list[AddPartitionsToTxnTransaction] = wire(since=4, factory=list)
    v3_and_below_transactional_id: String = wire(until=3, default="")
    v3_and_below_producer_id: Int64 = wire(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = wire(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(until=3, factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    """An entry of `results_by_partition` of `AddPartitionsToTxnTopicResult`."""

    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    """An entry of `topic_results` of `AddPartitionsToTxnResult`, among others."""

    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """An entry of `results_by_transaction` of `AddPartitionsToTxnResponse`."""

    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """The outcome per transaction and partition."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(since=4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(since=4, factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(until=3, factory=list)


@message(key=25, versions=(0, 4), flexible=3, listeners=("broker",))
class AddOffsetsToTxnRequest:
    """Adds the offsets of a group to a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Whether the group was added."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)


@message(key=26, versions=(0, 5), flexible=3, listeners=("broker",))
class EndTxnRequest:
    """Commits or aborts a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    """Whether the decision was taken, and the next producer epoch."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    producer_id: Int64 = wire(since=5, default=-1, ignorable=True)
    producer_epoch: Int16 = wire(since=5, default=-1, ignorable=True)


@struct
class WritableTxnMarkerTopic:
    """An entry of `topics` of `WritableTxnMarker`."""

    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    """An entry of `markers` of `WriteTxnMarkersRequest`."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = wire(since=2, default=0, ignorable=True)


@message(key=27, versions=(0, 2), flexible=1, listeners=("broker",), advertised=(1, 2))
class WriteTxnMarkersRequest:
    """A transaction coordinator has markers written to partitions."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    """An entry of `partitions` of `WritableTxnMarkerTopicResult`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class WritableTxnMarkerTopicResult:
    """An entry of `topics` of `WritableTxnMarkerResult`."""

    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """An entry of `markers` of `WriteTxnMarkersResponse`."""

    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersResponse:
    """The outcome per marker and partition."""

    markers: list[WritableTxnMarkerResult]


@struct
class TxnOffsetCommitRequestPartition:
    """An entry of `partitions` of `TxnOffsetCommitRequestTopic`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=2, default=-1, ignorable=True)
    committed_metadata: String | None


@struct
class TxnOffsetCommitRequestTopic:
    """An entry of `topics` of `TxnOffsetCommitRequest`."""

    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


@message(key=28, versions=(0, 5), flexible=3, listeners=("broker",))
class TxnOffsetCommitRequest:
    """Commits offsets of a group as a part of a transaction."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = wire(since=3, default=-1)
    member_id: String = wire(since=3, default="")
    group_instance_id: String | None = wire(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    """An entry of `partitions` of `TxnOffsetCommitResponseTopic`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class TxnOffsetCommitResponseTopic:
    """An entry of `topics` of `TxnOffsetCommitResponse`."""

    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    topics: list[TxnOffsetCommitResponseTopic]


@message(key=65, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeTransactionsRequest:
    """Asks for the state of transactions."""

    transactional_ids: list[String]


@struct
class TopicData:
    """An entry of `topics` of `DescribeTransactionsResponseTransactionState`."""

    topic: String
    partitions: list[Int32]


@struct
class DescribeTransactionsResponseTransactionState:
    """An entry of `transaction_states` of `DescribeTransactionsResponse`."""

    error_code: Int16 = wire(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """State and partitions of each transaction."""

    throttle_time_ms: Int32 = wire(default=0)
    transaction_states: list[DescribeTransactionsResponseTransactionState]


@message(key=66, versions=(0, 2), flexible=0, listeners=("broker",))
class ListTransactionsRequest:
    """Asks which transactions the broker coordinates, with filters."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = wire(since=1, default=-1)
    transactional_id_pattern: String | None = wire(since=2, default=None)


@struct
class ListTransactionsResponseTransactionState:
    """An entry of `transaction_states` of `ListTransactionsResponse`."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """The transactions found."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    unknown_state_filters: list[String]
    transaction_states: list[ListTransactionsResponseTransactionState]
