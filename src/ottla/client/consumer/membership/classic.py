"""A member of a classic group, as a machine. Pure: every method takes the time as an argument.

    join_request → joined → (leader: assignments) → sync_request → synced → STABLE
    heartbeat_request → handle_heartbeat, again and again from the join's answer on

Every answer leads to a `Step`, which says what the runner does next. What the group knows of this member (its id, the
generation, the protocol) is here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from ottla.client.consumer.assignors import Assignor
from ottla.client.consumer.assignors.spec import NO_GENERATION, Member, Topics
from ottla.client.consumer.assignors.wire import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "consumer"
REASON_LENGTH_MAX: Final = 255


class State(Enum):
    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


class Step(Enum):
    """What to do after an answer."""

    GO_ON = auto()
    WAIT = auto()  # the same again after a pause
    FIND_COORDINATOR = auto()  # this broker is not it, or not any more
    REJOIN = auto()  # the member is still known, its generation is over
    LOST = auto()  # the group has forgotten this member: what it read may be read by others already
    FAIL = auto()  # no request of this member can succeed


_STEPS: Final[Mapping[ErrorCode, Step]] = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Step.WAIT,
    ErrorCode.UNKNOWN_SERVER_ERROR: Step.WAIT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: Step.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Step.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Step.LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.LOST,
}


def step_of(code: int) -> Step:
    return _STEPS.get(ErrorCode.of(code), Step.FAIL)


@dataclass(frozen=True, slots=True)
class ClassicOptions:
    group_id: str
    assignors: tuple[Assignor, ...]
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0

    @property
    def is_cooperative(self) -> bool:
        """Members keep their partitions in a rebalance only where all assignors that may be chosen allow it."""
        return all(assignor.is_cooperative for assignor in self.assignors)


Assignments: TypeAlias = Mapping[str, Sequence[TopicPartition]]


class ClassicMember:
    """The state: who this member is to the group, and what is due when."""

    def __init__(self, options: ClassicOptions) -> None:
        self.options = options
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.assigned: tuple[TopicPartition, ...] = ()  # by the last generation
        self.needs_rejoin = True
        self.is_lost = False  # what is assigned is to be given up without a commit
        self.group_members: Mapping[str, Member] = {}  # for the leader: who is to be given something
        self._assignor: Assignor | None = None
        self._heartbeat_due: float | None = None
        self._answered_at = 0.0

    # -- joining -------------------------------------------------------------------------------------------------------

    def join_request(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], reason: str = ""
    ) -> JoinGroupRequest:
        self.state = State.JOINING
        self._heartbeat_due = None
        names, owned = list(topics), list(owned)
        options = self.options
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    names,
                    assignor.user_data(self.assigned, self.generation),
                    owned if assignor.is_cooperative else (),
                    self.generation,
                    options.rack,
                ),
            )
            for assignor in options.assignors
        ]
        return JoinGroupRequest(
            group_id=options.group_id,
            session_timeout_ms=int(options.session_timeout_s * 1000),
            rebalance_timeout_ms=int(options.max_poll_interval_s * 1000),
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason[:REASON_LENGTH_MAX],
        )

    def joined(self, response: JoinGroupResponse, now: float) -> Step:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Step.REJOIN
        step = step_of(code)
        if step is Step.GO_ON:
            self.state = State.SYNCING
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.is_lost = False
            self._assignor = next(
                (each for each in self.options.assignors if each.name == response.protocol_name), None
            )
            if self._assignor is None:
                return Step.FAIL
            is_leader = response.leader == response.member_id
            self.group_members = (
                {
                    each.member_id: decode_subscription(each.metadata, each.group_instance_id)
                    for each in response.members
                }
                if is_leader and not response.skip_assignment
                else {}
            )
            self._beat_from(now)
        elif step is Step.LOST:
            self._forget(code)
        return step

    @property
    def topics_of_group(self) -> frozenset[str]:
        """What the leader needs the partitions of."""
        return frozenset().union(*(member.topics for member in self.group_members.values()))

    def assignments(self, topics: Topics) -> Assignments:
        """What the leader gives to whom."""
        assert self._assignor is not None, "a generation has a protocol"
        return self._assignor.assign(self.group_members, topics)

    def sync_request(self, assignments: Assignments) -> SyncGroupRequest:
        assert self._assignor is not None, "a generation has a protocol"
        return SyncGroupRequest(
            group_id=self.options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._assignor.name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                for member_id, partitions in assignments.items()
            ],
        )

    def synced(self, response: SyncGroupResponse, now: float) -> Step:
        step = step_of(response.error_code)
        if step is Step.GO_ON:
            self.assigned = tuple(decode_assignment(response.assignment))
            self.state = State.STABLE
            self.needs_rejoin = False
        elif step is Step.LOST:
            self._forget(response.error_code)
        return step

    # -- staying -------------------------------------------------------------------------------------------------------

    def _beat_from(self, now: float) -> None:
        self._answered_at = now
        self._heartbeat_due = now + self.options.heartbeat_interval_s

    @property
    def heartbeat_due(self) -> float | None:
        """When the next heartbeat is to be sent; None while there is no generation to keep."""
        return self._heartbeat_due

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
        )

    def handle_heartbeat(self, request: HeartbeatRequest, code: int, now: float) -> Step:
        """What an answer to a heartbeat means; one that was sent for an older generation means nothing."""
        if (request.generation_id, request.member_id) != (self.generation, self.member_id) or self.state in (
            State.UNJOINED,
            State.JOINING,
        ):
            return Step.GO_ON
        step = step_of(code)
        self._beat_from(now)
        if step is Step.REJOIN:
            # While a member syncs, the rebalance that is in progress is its own.
            if self.state is State.STABLE:
                self.needs_rejoin = True
        elif step is Step.LOST:
            self._forget(code)
        return step

    def heartbeat_failed(self, now: float, pause_s: float) -> bool:
        """No answer came. Whether none has come for so long that another coordinator is to be looked for."""
        if self._heartbeat_due is not None:
            self._heartbeat_due = now + pause_s
        return now - self._answered_at >= self.options.session_timeout_s

    def _forget(self, code: int) -> None:
        """The generation is over, and with another code than ILLEGAL_GENERATION the member, too."""
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = NO_GENERATION
        self.state = State.UNJOINED
        self.needs_rejoin = True
        self.is_lost = True
        self.assigned = ()
        self._heartbeat_due = None

    def lost_taken_note_of(self) -> None:
        self.is_lost = False

    # -- leaving -------------------------------------------------------------------------------------------------------

    def poll_overdue_s(self, last_poll: float, now: float) -> float:
        """By how much the user has been away for too long; at most 0 where not."""
        return now - last_poll - self.options.max_poll_interval_s

    def leave_request(self, reason: str) -> LeaveGroupRequest | None:
        """For a dynamic member of a group; a static one stays until its session ends, or comes back before."""
        if not self.member_id or self.options.instance_id is not None:
            return None
        return LeaveGroupRequest(
            group_id=self.options.group_id,
            members=[MemberIdentity(member_id=self.member_id, reason=reason[:REASON_LENGTH_MAX])],
        )

    def left(self) -> None:
        """Away, by leaving or by no longer sending heartbeats."""
        if self.options.instance_id is None:
            self._forget(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._forget(ErrorCode.ILLEGAL_GENERATION)

    def rejoin(self) -> None:
        self.needs_rejoin = True
