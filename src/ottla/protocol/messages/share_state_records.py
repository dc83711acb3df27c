"""Records of `__share_group_state`."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, Int64, String, Uuid


@message(record_type=0, versions=(0, 0))
class ShareSnapshotKey:
    """Key of a full snapshot of a share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    """An entry of `state_batches` of `ShareSnapshotValue` and of `state_batches` of `ShareUpdateValue`."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(record_type=0, versions=(0, 0), flexible=0)
class ShareSnapshotValue:
    """A full snapshot of a share partition."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = wire(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


@message(record_type=1, versions=(0, 0))
class ShareUpdateKey:
    """Key of a change to a share partition since its snapshot."""

    group_id: String
    topic_id: Uuid
    partition: Int32


@message(record_type=1, versions=(0, 0), flexible=0)
class ShareUpdateValue:
    """A change to a share partition since its snapshot."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = wire(tag=0, default=-1)
    state_batches: list[StateBatch]
