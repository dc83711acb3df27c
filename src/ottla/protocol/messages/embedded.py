"""What stands inside other messages and files: subscriptions, assignments, markers, snapshots."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Bytes, Int16, Int32, Int64, String, UInt32, Uuid


@struct
class TopicPartition:
    """An entry of `owned_partitions` of `ConsumerProtocolSubscription`, among others."""

    topic: String
    partitions: list[Int32]


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    """What a consumer of a classic group puts in the metadata of its JoinGroup."""

    topics: list[String]
    user_data: Bytes | None = wire(default=None)
    owned_partitions: list[TopicPartition] = wire(since=1, factory=list, ignorable=True)
    generation_id: Int32 = wire(since=2, default=-1, ignorable=True)
    rack_id: String | None = wire(since=3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    """What the leader of a classic consumer group assigns to a member by SyncGroup."""

    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = wire(default=None)


@message(versions=(0, 0))
class ControlRecordTypeSchema:
    """The key of a control record: 0 aborts, 1 commits, others are the quorum's."""

    type: Int16


@message(versions=(0, 0))
class EndTxnMarker:
    """The value of a control record that ends a transaction."""

    coordinator_epoch: Int32


@struct
class Voter:
    """An entry of `voters` and `granting_voters` of `LeaderChangeMessage`."""

    voter_id: Int32
    voter_directory_id: Uuid = wire(since=1, default=ZERO_UUID)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    """The value of a control record that marks a new leader of the metadata quorum."""

    version: Int16
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


@struct
class ProducerEntry:
    """An entry of `producer_entries` of `ProducerSnapshot`."""

    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


@message(versions=(1, 1))
class ProducerSnapshot:
    """The body of a `.snapshot` file: the producers of a partition; the crc covers all that follows it."""

    crc: UInt32
    producer_entries: list[ProducerEntry]


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData:
    """A principal on its way from one broker to another."""

    type: String
    name: String
    token_authenticated: Bool
