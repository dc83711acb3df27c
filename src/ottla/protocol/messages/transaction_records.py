"""Records of `__transaction_state`."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, Int64, String


@message(record_type=0, versions=(0, 0))
class TransactionLogKey:
    """Key of a transactional id."""

    transactional_id: String


@struct
class PartitionsSchema:
    """An entry of `transaction_partitions` of `TransactionLogValue`."""

    topic: String
    partition_ids: list[Int32]


@message(record_type=0, versions=(0, 1), flexible=1)
class TransactionLogValue:
    """The state of a transactional id."""

    producer_id: Int64
    previous_producer_id: Int64 = wire(since=1, tag=0, default=-1)
    next_producer_id: Int64 = wire(since=1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = wire(since=1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = wire(since=1, tag=2, default=0)
