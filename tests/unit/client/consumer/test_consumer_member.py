"""A member of a group of KIP-848, as a machine."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client.consumer.membership.classic import Step
from ottla.client.consumer.membership.consumer import (
    ConsumerMember,
    ConsumerOptions,
    Interest,
    State,
    TopicIdPartition,
)
from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)

T = UUID(int=1)
P0, P1 = TopicIdPartition(T, 0), TopicIdPartition(T, 1)


def member(instance_id: str | None = None) -> ConsumerMember:
    machine = ConsumerMember(ConsumerOptions("g", "me", instance_id, assignor="uniform", max_poll_interval_s=60))
    machine.subscribe(Interest(("t",)))
    return machine


def answer(epoch: int = 1, *partitions: int, unchanged: bool = False) -> ConsumerGroupHeartbeatResponse:
    assigned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=T, partitions=list(partitions))]
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=None if unchanged else ConsumerGroupHeartbeatResponseAssignment(topic_partitions=assigned),
    )


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


def beat(machine: ConsumerMember, response: ConsumerGroupHeartbeatResponse, now: float = 0.0) -> Step:
    machine.request()
    return machine.handle_response(response, now)


def stable(instance_id: str | None = None) -> ConsumerMember:
    machine = member(instance_id)
    beat(machine, answer(1, 0))
    machine.acknowledge([P0])
    beat(machine, answer(1, unchanged=True))
    assert machine.state is State.STABLE
    return machine


def test_the_first_heartbeat_says_everything_and_the_next_ones_what_is_new() -> None:
    machine = member()
    first = machine.request()
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
    assert (first.rebalance_timeout_ms, first.server_assignor) == (60000, "uniform")
    assert machine.handle_response(answer(1, 0, 1), now=10.0) is Step.GO_ON
    assert machine.state is State.RECONCILING
    assert machine.heartbeat_due == 15.0
    assert machine.target == {P0, P1}
    second = machine.request()
    assert (second.member_epoch, second.subscribed_topic_names, second.topic_partitions) == (1, None, None)
    assert (second.rebalance_timeout_ms, second.server_assignor) == (-1, None)


def test_what_is_owned_is_said_at_once_and_confirmed_by_the_answer() -> None:
    machine = member()
    beat(machine, answer(1, 0), now=10.0)
    assert machine.has_new_target
    machine.acknowledge([P0])
    assert machine.state is State.ACKNOWLEDGING
    assert machine.heartbeat_due == 0.0
    request = machine.request()
    assert [(each.topic_id, each.partitions) for each in request.topic_partitions or ()] == [(T, [0])]
    machine.handle_response(answer(1, unchanged=True), now=11.0)
    assert machine.state is State.STABLE
    assert machine.heartbeat_due == 16.0
    assert not machine.has_new_target


def test_an_answer_to_a_heartbeat_from_before_the_change_does_not_confirm_it() -> None:
    machine = member()
    beat(machine, answer(1, 0))
    machine.request()
    machine.acknowledge([P0])  # while that request is under way
    machine.handle_response(answer(1, unchanged=True), now=1.0)
    assert machine.state is State.ACKNOWLEDGING
    assert machine.heartbeat_due == 0.0
    assert machine.request().topic_partitions


def test_partitions_that_are_taken_back_before_they_were_taken_up_are_said_not_to_be_owned() -> None:
    machine = stable()
    beat(machine, answer(2, 0, 1))
    assert machine.has_new_target
    beat(machine, answer(2, 0), now=10.0)  # before a poll could take the other one up
    assert machine.state is State.ACKNOWLEDGING
    assert machine.heartbeat_due == 0.0
    request = machine.request()
    assert [each.partitions for each in request.topic_partitions or ()] == [[0]]
    machine.handle_response(answer(2, unchanged=True), now=11.0)
    assert machine.state is State.STABLE
    assert machine.request().topic_partitions is None


def test_everything_is_said_again_after_a_failure() -> None:
    machine = stable()
    machine.failed(now=20.0, pause_s=0.5)
    assert machine.heartbeat_due == 20.5
    request = machine.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["t"])
    assert [each.partitions for each in request.topic_partitions or ()] == [[0]]


def test_a_new_subscription_is_said_at_once() -> None:
    machine = stable()
    machine.subscribe(Interest(("t", "u")))
    assert machine.heartbeat_due == 0.0
    assert machine.request().subscribed_topic_names == ["t", "u"]
    machine.handle_response(answer(2, unchanged=True), 0.0)
    machine.subscribe(Interest((), "x.*"))
    request = machine.request()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "x.*")
    machine.handle_response(answer(3, unchanged=True), 0.0)
    machine.subscribe(Interest(("t",)))
    assert machine.request().subscribed_topic_regex == "", "an empty pattern takes back the last one"


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_gives_everything_up_and_joins_under_the_same_id(code: ErrorCode) -> None:
    machine = stable()
    assert beat(machine, refusal(code)) is Step.LOST
    assert machine.state is State.FENCED
    assert machine.heartbeat_due is None
    machine.gave_up_everything()
    request = machine.request()
    assert (request.member_epoch, request.member_id, request.topic_partitions) == (0, "me", [])


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.NOT_COORDINATOR, Step.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Step.WAIT),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Step.WAIT),
        (ErrorCode.UNRELEASED_INSTANCE_ID, Step.FAIL),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Step.FAIL),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, Step.FAIL),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, Step.FAIL),
    ],
)
def test_what_a_refused_heartbeat_means(code: ErrorCode, step: Step) -> None:
    machine = stable()
    assert beat(machine, refusal(code)) is step
    assert (machine.heartbeat_due is None) == (step is Step.FAIL)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving(instance_id: str | None, epoch: int) -> None:
    machine = stable(instance_id)
    request = machine.leave_request()
    assert request is not None
    assert (request.member_id, request.member_epoch) == ("me", epoch)
    machine.left()
    assert machine.leave_request() is None
    assert machine.heartbeat_due is None
    late = machine.handle_response(answer(7, 0), now=1.0)
    assert late is Step.GO_ON
    assert machine.state is State.UNSUBSCRIBED


def test_a_member_that_nobody_polled_for_comes_back_with_the_next_poll() -> None:
    machine = stable()
    assert machine.poll_overdue_s(last_poll=0.0, now=60.5) == 0.5
    machine.went_stale()
    assert machine.heartbeat_due is None
    assert machine.state is State.STALE
    machine.gave_up_everything()
    assert machine.state is State.JOINING
    assert machine.heartbeat_due == 0.0
    assert machine.request().member_epoch == 0
