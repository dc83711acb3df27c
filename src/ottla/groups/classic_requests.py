"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, and their deadlines.

A rebalance: members join and are parked (PreparingRebalance) until all are there or the time is up; all get the new
generation, the leader with everybody's metadata (CompletingRebalance); they ask for their assignments and are parked
until the leader hands them in, which is the one thing that is written (Stable).

Changes volatile state of groups; what is durable changes by `ClassicGroup.apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.decisions import Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic import NO_ASSIGNMENT, ClassicGroup, ClassicMember, ClassicState, Protocols, protocols_of
from ottla.groups.group import Caller, GroupDecision, GroupOfMembers
from ottla.groups.shard import GroupShard, TimerKey, TimerKind
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

# A member without an id cannot send heartbeats while its JoinGroup is parked. If its client went away and comes back
# as another new member, the first one must not stay for ever.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000

_NAMES_MEMBER_ID_FIRST: Final = 4  # JoinGroup: a new member gets its id and has to join again with it
_KNOWS_NULL_PROTOCOL: Final = 7  # JoinGroup
_SKIPS_ASSIGNMENT: Final = 9  # JoinGroup: the response to a static leader that returns says that it need not assign
_SYNC_NAMES_PROTOCOL: Final = 5
_LEAVES_IN_BATCHES: Final = 3

_CAN_REBALANCE: Final = (ClassicState.EMPTY, ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)


class _Joining(NamedTuple):
    """A JoinGroup in progress, and the decision that it leads to."""

    request: JoinGroupRequest
    caller: Caller
    protocols: Protocols
    ticket: Ticket
    now_ms: int
    decided: GroupDecision


class ClassicRequests:
    """The decisions about classic groups of one shard."""

    __slots__ = ("_shard",)

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    # --- join

    def check_join(self, request: JoinGroupRequest) -> None:
        """What can be said of a JoinGroup without looking at the group."""
        check_group_id(request.group_id)
        settings = self._shard.settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session.timeout.ms={request.session_timeout_ms}: the broker allows {settings.min_session_timeout_ms}"
                f" to {settings.max_session_timeout_ms} (group.min.session.timeout.ms, group.max.session.timeout.ms)",
            )

    def join(self, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> GroupDecision:
        joining = _Joining(request, caller, protocols_of(request.protocols), ticket, now_ms, GroupDecision())
        group = self._shard.classic_group(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
            # It stays, also if the request is refused: so it is in Kafka, whose tools then list it as empty.
            group = self._shard.groups[request.group_id] = ClassicGroup(request.group_id)
        if not self._has_room_for(group, request.member_id):
            self._reject_join(group, joining)
            return joining.decided
        if not group.supports(request.protocol_type, joining.protocols):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group uses {group.protocol_type} {sorted(group.supported or ())}",
            )
        if not request.member_id:
            self._join_new(group, joining)
        elif request.member_id in group.pending_members and request.group_instance_id is None:
            self._add(group, request.member_id, joining)
        else:
            self._rejoin(group, joining)
        return joining.decided

    def _reject_join(self, group: ClassicGroup, joining: _Joining) -> None:
        """The group is full, also for a member that was there before the limit was lowered."""
        self._remove(group, joining.request.member_id, joining.decided)
        joining.decided.replies.append((joining.ticket, ErrorCode.GROUP_MAX_SIZE_REACHED))
        self._complete_if_all_joined(group, joining.now_ms, joining.decided)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """Members that were given an id and have yet to come back with it count as well."""
        pending = len(group.pending_members - {member_id})
        if group.state == ClassicState.PREPARING_REBALANCE:
            # Counted by who joined: with a limit that was lowered, the last to rejoin are turned away.
            known = group.members.get(member_id)
            if known is not None and known.is_awaiting_join:
                return True
            return group.awaiting_join_count + pending < self._shard.settings.max_size
        return member_id in group.members or len(group.members) + pending < self._shard.settings.max_size

    def _join_new(self, group: ClassicGroup, joining: _Joining) -> None:
        request, caller = joining.request, joining.caller
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{self._shard.new_id()}"
        if requires_member_id(request, caller):
            group.pending_members.add(member_id)
            self._shard.touch(group.group_id, member_id, request.session_timeout_ms, joining.now_ms)
            joining.decided.replies.append((joining.ticket, member_id_required(member_id, caller)))
        elif (existing := group.static_member(instance_id)) is not None:
            self._replace_static(group, existing, member_id, joining)
        else:
            self._add(group, member_id, joining)

    def _add(self, group: ClassicGroup, member_id: str, joining: _Joining) -> None:
        request = joining.request
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            joining.caller.client_id,
            joining.caller.client_host,
            rebalance_timeout_ms(request),
            request.session_timeout_ms,
            joining.protocols,
        )
        member.is_new = True
        member.join_ticket = joining.ticket
        group.has_new_member = group.initial_deadline_ms is not None
        group.add(member, request.protocol_type)
        self._shard.touch(group.group_id, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, joining.now_ms)
        self._rebalance_or_complete(group, joining.now_ms, joining.decided)

    def _rejoin(self, group: ClassicGroup, joining: _Joining) -> None:
        member = group.check_member(joining.request.member_id, joining.request.group_instance_id)
        is_unchanged = member.protocols == joining.protocols
        # A leader that joins again wants to assign again: topics have changed, for example.
        is_content = group.state == ClassicState.STABLE and not group.is_leader(member.member_id)
        if is_unchanged and (is_content or group.state == ClassicState.COMPLETING_REBALANCE):
            joining.decided.replies.append((joining.ticket, _joined(group, member)))
            return
        self._update(group, member, joining)
        self._park_join(member, joining)
        self._rebalance_or_complete(group, joining.now_ms, joining.decided)

    def _replace_static(self, group: ClassicGroup, member: ClassicMember, member_id: str, joining: _Joining) -> None:
        """A static member is back, as another process perhaps. Whoever has its old member id is fenced."""
        decided = joining.decided
        old_id, old_leader_id = member.member_id, group.leader_id
        old_protocols = member.protocols
        old_timeouts = member.rebalance_timeout_ms, member.session_timeout_ms
        self._answer_parked(member, ErrorCode.FENCED_INSTANCE_ID, decided)
        self._rename(group, member, member_id, joining.now_ms)
        self._update(group, member, joining)
        # Only another protocol takes a rebalance (KIP-345). The bytes of a subscription say nothing: a consumer's carry
        # its generation, so those of one that restarts are never what they were.
        if group.state != ClassicState.STABLE or group.select_protocol() != group.protocol_name:
            self._park_join(member, joining)
            self._rebalance_or_complete(group, joining.now_ms, decided)
            return

        def take_back(at_ms: int) -> Decision:
            group.update_protocols(member, old_protocols)
            member.rebalance_timeout_ms, member.session_timeout_ms = old_timeouts
            self._rename(group, member, old_id, at_ms)
            return Decision()

        decided.undo = take_back
        decided.records.append(group.record())
        reply = _joined(group, member)
        if joining.caller.api_version >= _SKIPS_ASSIGNMENT:
            reply.skip_assignment = group.is_leader(member_id)
        else:
            # Older clients assign when they find themselves leading; by its old id the leader does not.
            reply.leader = old_leader_id or ""
            reply.members = []
        decided.replies.append((joining.ticket, reply))

    def _rename(self, group: ClassicGroup, member: ClassicMember, member_id: str, now_ms: int) -> None:
        self._shard.end_session(group.group_id, member.member_id)
        group.rename(member, member_id)
        self._shard.touch(group.group_id, member_id, member.session_timeout_ms, now_ms)

    @staticmethod
    def _update(group: ClassicGroup, member: ClassicMember, joining: _Joining) -> None:
        group.update_protocols(member, joining.protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms(joining.request)
        member.session_timeout_ms = joining.request.session_timeout_ms

    @staticmethod
    def _park_join(member: ClassicMember, joining: _Joining) -> None:
        if member.join_ticket is not None:
            # The same member asks again, over another connection perhaps: the newer request gets the answer.
            joining.decided.replies.append((member.join_ticket, ErrorCode.REBALANCE_IN_PROGRESS))
        member.join_ticket = joining.ticket

    # --- rebalances

    def _rebalance_or_complete(self, group: ClassicGroup, now_ms: int, decided: Decision) -> None:
        if group.state in _CAN_REBALANCE:
            self.prepare_rebalance(group, now_ms, decided)
        else:
            self._complete_if_all_joined(group, now_ms, decided)

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int, decided: Decision) -> None:
        """The members learn by their next heartbeat that they must join again."""
        if group.state == ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = NO_ASSIGNMENT
                self._answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, decided)
        group.pending_sync.clear()
        timers = self._shard.timers
        timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        is_initial = group.state == ClassicState.EMPTY
        group.move_to(ClassicState.PREPARING_REBALANCE, self._shard.wall_ms(now_ms))
        if is_initial:
            delay_ms = self._shard.settings.initial_rebalance_delay_ms
            group.initial_deadline_ms = now_ms + max(group.rebalance_timeout_ms, delay_ms)
            timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + delay_ms)
            return
        timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
        self._complete_if_all_joined(group, now_ms, decided)

    def _complete_if_all_joined(self, group: ClassicGroup, now_ms: int, decided: Decision) -> None:
        is_preparing = group.state == ClassicState.PREPARING_REBALANCE
        if is_preparing and group.initial_deadline_ms is None and group.have_all_joined:
            self._complete_join(group, now_ms, decided)

    def _expire_join(self, group: ClassicGroup, now_ms: int) -> Decision:
        decided = Decision()
        if group.state != ClassicState.PREPARING_REBALANCE:
            return decided
        deadline_ms = group.initial_deadline_ms
        if deadline_ms is not None and group.has_new_member and now_ms < deadline_ms:
            # Members keep coming: wait for a little more of them.
            group.has_new_member = False
            next_look_ms = min(now_ms + self._shard.settings.initial_rebalance_delay_ms, deadline_ms)
            self._shard.timers.set(TimerKey(TimerKind.JOIN, group.group_id), next_look_ms)
            return decided
        self._complete_join(group, now_ms, decided)
        return decided

    def _complete_join(self, group: ClassicGroup, now_ms: int, decided: Decision) -> None:
        """The rebalance goes on with those who came. Static members stay until their sessions end."""
        timers = self._shard.timers
        timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        for member in list(group.members.values()):
            if not member.is_awaiting_join and member.instance_id is None:
                self._remove(group, member.member_id, decided)
        if group.members and not group.elect_joined_leader():
            # Nobody is there to lead. Sessions will end, or somebody comes.
            timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.begin_generation(self._shard.wall_ms(now_ms))
        if group.state == ClassicState.EMPTY:
            decided.records.append(group.record())
            return
        for member in group.members.values():
            if member.join_ticket is not None:
                decided.replies.append((member.join_ticket, _joined(group, member)))
                member.join_ticket = None
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self._touch(group, member, now_ms)
        timers.set(TimerKey(TimerKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    # --- sync

    def sync(self, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> GroupDecision:
        decided = GroupDecision()
        group = self._shard.classic_group(request.group_id)
        if group is None or group.is_empty:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group {request.group_id} has no members")
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        check_sync_protocol(request, caller, group.protocol_type, group.protocol_name)
        if group.state == ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.discard(member.member_id)
        if group.state == ClassicState.STABLE:
            decided.replies.append((ticket, _synced(group, member.assignment)))
            return decided
        if member.sync_ticket is not None:
            decided.replies.append((member.sync_ticket, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        if group.is_leader(member.member_id):
            self._hand_out(group, request, now_ms, decided)
        return decided

    def _hand_out(self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, decided: GroupDecision) -> None:
        """The leader has assigned. Members that it forgot get nothing."""
        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
        decided.records.append(group.record(assignments))
        for member in group.members.values():
            if member.sync_ticket is not None:
                assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
                decided.replies.append((member.sync_ticket, _synced(group, assignment)))
                member.sync_ticket = None
                self._touch(group, member, now_ms)

        def rejoin(at_ms: int) -> Decision:
            following = Decision()
            self.prepare_rebalance(group, at_ms, following)
            return following

        decided.undo = rejoin

    def _expire_sync(self, group: ClassicGroup, now_ms: int) -> Decision:
        """Members that joined and never asked for their assignment are gone."""
        decided = Decision()
        if not group.pending_sync:
            return decided
        for member_id in list(group.pending_sync):
            self._remove(group, member_id, decided)
        self.prepare_rebalance(group, now_ms, decided)
        return decided

    # --- heartbeat, leave, sessions

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, now_ms: int) -> Decision:
        group = self._shard.classic_group(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self._touch(group, member, now_ms)
        if group.state == ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Decision(replies=[(ticket, HeartbeatResponse())])

    def leave(self, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now_ms: int) -> Decision:
        group = self._shard.classic_group(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
        decided = Decision()
        gone: list[str] = []

        def leave_one(member_id: str, instance_id: str | None) -> None:
            if member_id not in group.pending_members:
                group.check_member(member_id, instance_id)
            self._remove(group, member_id, decided)
            gone.append(member_id)

        reply = leave_each(group, request, caller, leave_one)
        # Also if the one who goes had only been given its id: Kafka's members are then called to rejoin as well.
        if gone and not group.is_empty:
            self._rebalance_or_complete(group, now_ms, decided)
        decided.replies.append((ticket, reply))
        return decided

    def expire(self, group: ClassicGroup, key: TimerKey, now_ms: int) -> Decision:
        match key.kind:
            case TimerKind.SESSION:
                return self._expire_session(group, key.member_id, now_ms)
            case TimerKind.JOIN:
                return self._expire_join(group, now_ms)
            case TimerKind.SYNC:
                return self._expire_sync(group, now_ms)
            case _:
                return Decision()

    def _expire_session(self, group: ClassicGroup, member_id: str, now_ms: int) -> Decision:
        decided = Decision()
        if member_id in group.pending_members:
            group.pending_members.discard(member_id)
            self._complete_if_all_joined(group, now_ms, decided)
            return decided
        member = group.members.get(member_id)
        if member is None:
            return decided
        if not member.is_new and (member.is_awaiting_join or member.is_awaiting_sync):
            # It waits for us. Its session goes on when it is answered.
            return decided
        self._remove(group, member_id, decided)
        self._rebalance_or_complete(group, now_ms, decided)
        return decided

    def _remove(self, group: ClassicGroup, member_id: str, decided: Decision) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._answer_parked(member, ErrorCode.UNKNOWN_MEMBER_ID, decided)
        group.remove(member_id)
        self._shard.end_session(group.group_id, member_id)

    @staticmethod
    def _answer_parked(member: ClassicMember, code: ErrorCode, decided: Decision) -> None:
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                decided.replies.append((ticket, code))
        member.join_ticket = member.sync_ticket = None

    def _answer_sync(
        self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, now_ms: int, decided: Decision
    ) -> None:
        if member.sync_ticket is not None:
            decided.replies.append((member.sync_ticket, code))
            member.sync_ticket = None
            self._touch(group, member, now_ms)

    def _touch(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        self._shard.touch(group.group_id, member.member_id, member.session_timeout_ms, now_ms)

    # --- loading and unloading

    def loaded(self, group: ClassicGroup, now_ms: int, decided: Decision) -> None:
        for member in group.members.values():
            self._touch(group, member, now_ms)
        if group.is_unled or len(group.members) > self._shard.settings.max_size:
            self.prepare_rebalance(group, now_ms, decided)

    @staticmethod
    def parked(group: ClassicGroup) -> list[Ticket]:
        """The tickets of all who wait for the group."""
        return [
            ticket
            for member in group.members.values()
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        ]


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group has no name")


def requires_member_id(request: JoinGroupRequest, caller: Caller) -> bool:
    """Whether a new member gets its id first, so that a client that gives up leaves no member behind."""
    is_new_and_dynamic = not request.member_id and request.group_instance_id is None
    return is_new_and_dynamic and caller.api_version >= _NAMES_MEMBER_ID_FIRST


def member_id_required(member_id: str, caller: Caller) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None if caller.api_version >= _KNOWS_NULL_PROTOCOL else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def check_sync_protocol(
    request: SyncGroupRequest, caller: Caller, protocol_type: str | None, protocol_name: str | None
) -> None:
    """What a member believes the group to speak must be what it speaks."""
    given = (request.protocol_type, request.protocol_name)
    if caller.api_version >= _SYNC_NAMES_PROTOCOL and None in given:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the request has no protocol")
    for named, actual in zip(given, (protocol_type, protocol_name), strict=True):
        if named is not None and actual is not None and named != actual:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{named}: the group uses {actual}")


def leave_each(
    group: GroupOfMembers[Any],
    request: LeaveGroupRequest,
    caller: Caller,
    leave_one: Callable[[str, str | None], None],
) -> LeaveGroupResponse:
    """Lets those go who are named, by member id or by instance id; `leave_one` raises ApiError for who may not."""
    in_batches = caller.api_version >= _LEAVES_IN_BATCHES
    answers = []
    for leaving in request.members if in_batches else [MemberIdentity(member_id=request.member_id)]:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id and instance_id is not None:
            # An administrator takes out a static member by its name.
            member_id = group.static_members.get(instance_id, "")
        code = ErrorCode.NONE
        try:
            leave_one(member_id, instance_id)
        except ApiError as refusal:
            code = refusal.code
        answers.append(MemberResponse(member_id=leaving.member_id, group_instance_id=instance_id, error_code=code))
    return LeaveGroupResponse(members=answers) if in_batches else LeaveGroupResponse(error_code=answers[0].error_code)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none: the session timeout serves."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


def _joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """The generation; the leader gets all members, to assign."""
    members = []
    if group.is_leader(member.member_id):
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata_of(group.protocol_name),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
