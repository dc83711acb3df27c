"""ListGroups: the groups that this broker coordinates, those of some states and types if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import ListGroupsRequest, ListGroupsResponse
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    try:
        shards = await all_of(
            (
                runner.ask(GroupMachine.list, request.states_filter, request.types_filter)
                for runner in broker.groups.runners()
            ),
            broker.turns,
        )
    except ApiError as error:
        return _refused(error.code)
    return ListGroupsResponse(groups=[group for steps in shards for group in await broker.turns.finish(steps)])


def _refused(code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])
