"""DeleteGroups: groups without members go, with their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await all_of((_delete(broker, name) for name in names), broker.turns))


async def _delete(broker: Broker, group_id: str) -> DeletableGroupResult:
    return await broker.groups.ask(group_id, partial(_refused, group_id), GroupMachine.delete, group_id)


def _refused(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
