"""ListGroups: the groups that this broker coordinates, those of some states and types if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import together
from ottla.errors import ApiError
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import ListGroupsRequest, ListGroupsResponse
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(broker: Broker, request: ListGroupsRequest, context: Context) -> Steps[Any]:
    answers = []
    try:
        for runner in broker.groups.runners():
            answers.append(runner.ask(GroupMachine.list, request.states_filter, request.types_filter))
            yield
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    return together(answers, lambda shards: ListGroupsResponse(groups=[group for groups in shards for group in groups]))
