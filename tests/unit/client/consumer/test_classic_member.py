"""A member of a classic group, as a machine: answers and times in, steps and requests out."""

from __future__ import annotations

import pytest

from ottla.client.consumer.assignors import ASSIGNORS
from ottla.client.consumer.assignors.wire import decode_sticky, decode_subscription, encode_assignment
from ottla.client.consumer.membership.classic import ClassicMember, ClassicOptions, State, Step
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(*assignors: str, instance_id: str | None = None) -> ClassicMember:
    chosen = tuple(ASSIGNORS[name] for name in assignors or ("range",))
    return ClassicMember(ClassicOptions("g", chosen, instance_id, max_poll_interval_s=60))


def joined_answer(protocol: str = "range", generation: int = 1, leader: str = "other") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_name=protocol, leader=leader, member_id="m1", members=[]
    )


def refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="", leader="", member_id=member_id, members=[])


def synced_answer(*partitions: TopicPartition) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment(partitions))


def stable(*assignors: str, instance_id: str | None = None, now: float = 0.0) -> ClassicMember:
    machine = member(*assignors, instance_id=instance_id)
    machine.join_request(["t"], ())
    assert machine.joined(joined_answer((assignors or ("range",))[0]), now) is Step.GO_ON
    assert machine.synced(synced_answer(P0), now) is Step.GO_ON
    return machine


def test_a_member_joins_syncs_and_is_stable() -> None:
    machine = member()
    request = machine.join_request(["t", "a"], (), "because")
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms, request.reason) == (45000, 60000, "because")
    assert decode_subscription(request.protocols[0].metadata).topics == {"a", "t"}
    assert machine.joined(refused(ErrorCode.MEMBER_ID_REQUIRED, "m1"), 1.0) is Step.REJOIN
    assert machine.join_request(["t"], ()).member_id == "m1"
    assert machine.heartbeat_due is None
    assert machine.joined(joined_answer(), 5.0) is Step.GO_ON
    assert machine.heartbeat_due == 8.0, "from the answer on, also while it syncs"
    sync = machine.sync_request({})
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (1, "m1", "range", [])
    assert machine.synced(synced_answer(P0, P1), 6.0) is Step.GO_ON
    assert machine.state is State.STABLE
    assert machine.assigned == (P0, P1)
    assert not machine.needs_rejoin


def test_the_leader_shares_out_what_all_members_subscribe_to() -> None:
    machine, other = member(), member()
    metadata = {"m1": machine.join_request(["t"], ()), "m2": other.join_request(["t", "u"], ())}
    answer = joined_answer(leader="m1")
    answer.members = [
        JoinGroupResponseMember(member_id=name, metadata=request.protocols[0].metadata)
        for name, request in metadata.items()
    ]
    machine.joined(answer, 0.0)
    assert machine.topics_of_group == {"t", "u"}
    topics: dict[str, list[frozenset[str]]] = {"t": [frozenset()] * 2, "u": [frozenset()]}
    assert machine.assignments(topics) == {"m1": [P0], "m2": [P1, TopicPartition("u", 0)]}


def test_a_member_that_is_not_the_leader_or_is_told_to_skip_shares_nothing_out() -> None:
    machine = member()
    machine.join_request(["t"], ())
    answer = joined_answer(leader="m1")
    answer.skip_assignment = True
    answer.members = [JoinGroupResponseMember(member_id="m1", metadata=b"")]
    machine.joined(answer, 0.0)
    assert not machine.group_members


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Step.WAIT),
        (ErrorCode.NOT_COORDINATOR, Step.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Step.FIND_COORDINATOR),
        (ErrorCode.REBALANCE_IN_PROGRESS, Step.REJOIN),
        (ErrorCode.UNKNOWN_MEMBER_ID, Step.LOST),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Step.FAIL),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Step.FAIL),
        (ErrorCode.FENCED_INSTANCE_ID, Step.FAIL),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, Step.FAIL),
    ],
)
def test_what_a_refused_join_means(code: ErrorCode, step: Step) -> None:
    machine = member()
    machine.join_request(["t"], ())
    assert machine.joined(refused(code), 0.0) is step


def test_a_group_that_chose_what_nobody_asked_for_is_a_failure() -> None:
    machine = member()
    machine.join_request(["t"], ())
    assert machine.joined(joined_answer("mine"), 0.0) is Step.FAIL


def test_heartbeats_follow_each_other_and_keep_the_generation() -> None:
    machine = stable(now=10.0)
    assert machine.heartbeat_due == 13.0
    request = machine.heartbeat_request()
    assert (request.generation_id, request.member_id) == (1, "m1")
    assert machine.handle_heartbeat(request, 0, 13.5) is Step.GO_ON
    assert machine.heartbeat_due == 16.5


def test_a_rebalance_is_joined_while_heartbeats_go_on() -> None:
    machine = stable()
    assert machine.handle_heartbeat(machine.heartbeat_request(), ErrorCode.REBALANCE_IN_PROGRESS, 3.0) is Step.REJOIN
    assert machine.needs_rejoin
    assert machine.heartbeat_due == 6.0, "it stays alive until its user polls"


def test_an_unknown_member_has_lost_everything_and_becomes_another() -> None:
    machine = stable()
    assert machine.handle_heartbeat(machine.heartbeat_request(), ErrorCode.UNKNOWN_MEMBER_ID, 3.0) is Step.LOST
    assert machine.is_lost
    assert machine.assigned == ()
    assert machine.heartbeat_due is None
    request = machine.join_request(["t"], ())
    assert request.member_id == ""
    assert decode_subscription(request.protocols[0].metadata).generation == -1


def test_a_generation_that_is_over_leaves_the_member_its_id() -> None:
    machine = stable()
    assert machine.handle_heartbeat(machine.heartbeat_request(), ErrorCode.ILLEGAL_GENERATION, 3.0) is Step.LOST
    assert machine.join_request(["t"], ()).member_id == "m1"


def test_an_answer_to_a_heartbeat_of_an_older_generation_means_nothing() -> None:
    machine = stable()
    late = machine.heartbeat_request()
    machine.join_request(["t"], ())
    machine.joined(joined_answer(generation=2), 5.0)
    assert machine.handle_heartbeat(late, ErrorCode.ILLEGAL_GENERATION, 6.0) is Step.GO_ON
    assert machine.generation == 2
    assert not machine.is_lost


def test_a_silent_coordinator_is_looked_for_anew_after_the_session() -> None:
    machine = stable(now=0.0)
    assert not machine.heartbeat_failed(44.0, 0.1)
    assert machine.heartbeat_due == 44.1
    assert machine.heartbeat_failed(45.0, 0.1)


def test_the_time_between_polls_is_limited() -> None:
    machine = stable()
    assert machine.poll_overdue_s(last_poll=10.0, now=70.0) == 0
    assert machine.poll_overdue_s(last_poll=10.0, now=71.5) == 1.5


def test_a_dynamic_member_says_that_it_leaves_and_a_static_one_does_not() -> None:
    machine = stable()
    leave = machine.leave_request("done")
    assert leave is not None
    assert [each.member_id for each in leave.members] == ["m1"]
    machine.left()
    assert machine.leave_request("done") is None
    static = stable(instance_id="i")
    assert static.leave_request("done") is None
    static.left()
    assert static.join_request(["t"], ()).member_id == "m1", "it comes back as the same"


def test_cooperative_members_say_what_they_own_and_sticky_ones_what_they_had() -> None:
    machine = stable("cooperative-sticky")
    (protocol,) = machine.join_request(["t"], [P0]).protocols
    subscription = decode_subscription(protocol.metadata)
    assert (subscription.owned, subscription.generation) == (frozenset({P0}), 1)
    machine = stable("sticky")
    (protocol,) = machine.join_request(["t"], ()).protocols
    subscription = decode_subscription(protocol.metadata)
    assert subscription.owned == frozenset()
    assert decode_sticky(subscription.user_data) == (frozenset({P0}), 1)


def test_partitions_are_kept_in_a_rebalance_only_where_every_assignor_allows_it() -> None:
    assert member("cooperative-sticky").options.is_cooperative
    assert not member("range", "cooperative-sticky").options.is_cooperative
