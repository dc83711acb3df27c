"""ListGroups: the groups that this broker coordinates, those of some states and types if asked for."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import together
from ottla.errors import ApiError
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(
    broker: Broker, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse | Coroutine[Any, Any, ListGroupsResponse]:
    try:
        answers = [
            runner.ask(GroupMachine.list, request.states_filter, request.types_filter)
            for runner in broker.groups.runners()
        ]
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    return together(answers, lambda shards: ListGroupsResponse(groups=[group for groups in shards for group in groups]))
