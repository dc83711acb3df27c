"""DeleteGroups: groups without members go, with their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import together
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(broker: Broker, request: DeleteGroupsRequest, context: Context) -> Steps[Any]:
    answers = []
    for group_id in dict.fromkeys(request.groups_names):
        answers.append(_delete(broker, group_id))
        yield
    return together(answers, lambda results: DeleteGroupsResponse(results=list(results)))


def _delete(broker: Broker, group_id: str) -> Any:
    return broker.groups.ask(group_id, partial(_refused, group_id), GroupMachine.delete, group_id)


def _refused(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
