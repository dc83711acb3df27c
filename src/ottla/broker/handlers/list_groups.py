"""ListGroups: the groups that this broker coordinates, those of some states and types if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import or_refused, together
from ottla.errors import ApiError, ErrorCode
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
        return _refused(error.code)
    answer = together(
        answers, lambda shards: ListGroupsResponse(groups=[group for groups in shards for group in groups])
    )
    return or_refused(answer, _refused)


def _refused(code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])
