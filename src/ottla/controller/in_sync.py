"""What leaders ask of their controller: another set of in-sync replicas (AlterPartition)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.cluster.image import PartitionState
from ottla.controller.term import Term
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """What one leader asks for one partition."""

    leader_epoch: int
    version: int
    isr: tuple[int, ...]
    is_recovering: bool = False


async def alter(
    term: Term, requests: Mapping[TopicPartition, IsrRequest]
) -> dict[TopicPartition, PartitionState | ErrorCode]:
    """The state of each partition afterwards, or why it stays as it is."""
    context = term.context
    outcomes: dict[TopicPartition, PartitionState | ErrorCode] = {}
    changes: dict[TopicPartition, PartitionState] = {}
    for partition, request in requests.items():
        state = context.find(partition)
        if state is None or partition.topic in context.deleting:
            outcomes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        eligible = [node for node in state.replicas if node in context.brokers and node not in context.shutting_down]
        decided = decide(state, request, eligible)
        if isinstance(decided, ErrorCode) or decided is state:
            outcomes[partition] = decided
        else:
            changes[partition] = decided
    written = await term.write_states(changes)
    for partition in changes:
        outcomes[partition] = context.state(partition) if partition in written else ErrorCode.INVALID_UPDATE_VERSION
    if written:
        # The leader has its answer; the others learn of it as metadata.
        term.batch.update_metadata(context.brokers, sorted(written))
        term.send()
    return outcomes


def decide(state: PartitionState, request: IsrRequest, eligible: Iterable[int]) -> PartitionState | ErrorCode:
    """The new state, the same one where it is what was asked for, or a refusal. The order of the checks is Kafka's."""
    if request.version > state.version or request.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a later state: another broker is the controller
    if request.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.isr == state.isr and request.is_recovering == state.is_recovering:
        return state  # asked for again, because the first answer was lost
    if request.version < state.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if request.is_recovering and (len(request.isr) > 1 or not state.is_recovering):
        return ErrorCode.INVALID_REQUEST
    if not set(request.isr) <= set(eligible):
        return ErrorCode.INELIGIBLE_REPLICA
    return replace(state, isr=request.isr, is_recovering=request.is_recovering, version=state.version + 1)
