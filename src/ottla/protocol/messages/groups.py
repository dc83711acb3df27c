"""Groups of the classic protocol, and what all kinds of groups share."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Bytes, Int8, Int16, Int32, String


@message(key=10, versions=(0, 6), flexible=3, listeners=("broker",))
class FindCoordinatorRequest:
    """Asks which broker coordinates groups, transactions or share state."""

    key: String = wire(until=3, default="")
    key_type: Int8 = wire(since=1, default=0)
    coordinator_keys: list[String] = wire(since=4, factory=list)


@struct
class Coordinator:
    """An entry of `coordinators` of `FindCoordinatorResponse`."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """The coordinator of each key."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(until=3, default=0)
    error_message: String | None = wire(since=1, until=3, default=None, ignorable=True)
    node_id: Int32 = wire(until=3, default=0)
    host: String = wire(until=3, default="")
    port: Int32 = wire(until=3, default=0)
    coordinators: list[Coordinator] = wire(since=4, factory=list)


@struct
class JoinGroupRequestProtocol:
    """An entry of `protocols` of `JoinGroupRequest`."""

    name: String
    metadata: Bytes


@message(key=11, versions=(0, 9), flexible=6, listeners=("broker",))
class JoinGroupRequest:
    """Joins a classic group, or joins it again for a new generation."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire(since=1, default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = wire(since=5, default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = wire(since=8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    """An entry of `members` of `JoinGroupResponse`."""

    member_id: String
    group_instance_id: String | None = wire(since=5, default=None, ignorable=True)
    metadata: Bytes


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """The generation, its protocol, and for the leader all members."""

    throttle_time_ms: Int32 = wire(since=2, default=0, ignorable=True)
    error_code: Int16 = wire(default=0)
    generation_id: Int32 = wire(default=-1)
    protocol_type: String | None = wire(since=7, default=None, ignorable=True)
    protocol_name: String | None = wire(nullable_since=7)
    leader: String
    skip_assignment: Bool = wire(since=9, default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


@message(key=12, versions=(0, 4), flexible=4, listeners=("broker",))
class HeartbeatRequest:
    """Says that a member of a classic group is alive."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = wire(since=3, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Whether the generation still stands."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(default=0)


@struct
class MemberIdentity:
    """An entry of `members` of `LeaveGroupRequest`."""

    member_id: String
    group_instance_id: String | None = wire(default=None)
    reason: String | None = wire(since=5, default=None, ignorable=True)


@message(key=13, versions=(0, 5), flexible=4, listeners=("broker",))
class LeaveGroupRequest:
    """Takes members out of a group."""

    group_id: String
    member_id: String = wire(until=2, default="")
    members: list[MemberIdentity] = wire(since=3, factory=list)


@struct
class MemberResponse:
    """An entry of `members` of `LeaveGroupResponse`."""

    member_id: String
    group_instance_id: String | None
    error_code: Int16 = wire(default=0)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """The outcome per member."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(default=0)
    members: list[MemberResponse] = wire(since=3, factory=list)


@struct
class SyncGroupRequestAssignment:
    """An entry of `assignments` of `SyncGroupRequest`."""

    member_id: String
    assignment: Bytes


@message(key=14, versions=(0, 5), flexible=4, listeners=("broker",))
class SyncGroupRequest:
    """The leader hands in assignments; everyone asks for its own."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = wire(since=3, default=None)
    protocol_type: String | None = wire(since=5, default=None, ignorable=True)
    protocol_name: String | None = wire(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """The assignment of the member that asks."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(default=0)
    protocol_type: String | None = wire(since=5, default=None, ignorable=True)
    protocol_name: String | None = wire(since=5, default=None, ignorable=True)
    assignment: Bytes


@message(key=15, versions=(0, 6), flexible=5, listeners=("broker",))
class DescribeGroupsRequest:
    """Asks for the state and members of classic groups."""

    groups: list[String]
    include_authorized_operations: Bool = wire(since=3, default=False)


@struct
class DescribedGroupMember:
    """An entry of `members` of `DescribedGroup`."""

    member_id: String
    group_instance_id: String | None = wire(since=4, default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    """An entry of `groups` of `DescribeGroupsResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(since=6, default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = wire(since=3, default=-2147483648)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """State and members of each group."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    groups: list[DescribedGroup]


@message(key=16, versions=(0, 5), flexible=3, listeners=("broker",))
class ListGroupsRequest:
    """Asks which groups the broker coordinates."""

    states_filter: list[String] = wire(since=4, factory=list)
    types_filter: list[String] = wire(since=5, factory=list)


@struct
class ListedGroup:
    """An entry of `groups` of `ListGroupsResponse`."""

    group_id: String
    protocol_type: String
    group_state: String = wire(since=4, default="", ignorable=True)
    group_type: String = wire(since=5, default="", ignorable=True)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups, with protocol and state."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(default=0)
    groups: list[ListedGroup]


@message(key=42, versions=(0, 2), flexible=2, listeners=("broker",))
class DeleteGroupsRequest:
    """Deletes groups that have no members."""

    groups_names: list[String]


@struct
class DeletableGroupResult:
    """An entry of `results` of `DeleteGroupsResponse`."""

    group_id: String
    error_code: Int16 = wire(default=0)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """The outcome per group."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[DeletableGroupResult]
