"""ConsumerGroupDescribe: state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.authorized import GROUP_OPERATIONS
from ottla.broker.group_requests import may_begin_consumer_group
from ottla.broker.response_budget import ResponseBudget
from ottla.errors import ApiError, ErrorCode
from ottla.groups.admin import refused_consumer
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    budget = ResponseBudget()

    def note(group: DescribedGroup) -> None:
        budget.spend(sum(map(_element_count, group.members)))

    groups = await all_of((_describe(broker, group_id) for group_id in request.group_ids), broker.turns, note)
    return _response(request.include_authorized_operations, groups)


def _element_count(member: Member) -> int:
    assignments = (member.assignment, member.target_assignment)
    partition_count = sum(len(topic.partitions) for each in assignments for topic in each.topic_partitions)
    return 1 + len(member.subscribed_topic_names) + partition_count


async def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    refuse = partial(refused_consumer, group_id)
    if not group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    features = None if broker.cluster is None else broker.cluster.features
    try:
        may_begin = may_begin_consumer_group(broker.config, features)
    except ApiError as error:
        return refuse(error.code, error.message)
    ask = GroupMachine.consumer_describe if may_begin else GroupMachine.running_consumer_describe
    return await broker.groups.ask(group_id, refuse, ask, group_id)


def _response(includes_operations: bool, groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
    if includes_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)
